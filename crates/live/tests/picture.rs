//! What the live lines look like.

use admin::{EndpointRow, Health, RecentRequest, Snapshot, Why};
use live::{History, UpInfo, lines_needed, render};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

fn endpoint(name: &str, tokens_per_s: f64) -> EndpointRow {
    EndpointRow {
        name: name.into(),
        engine: "vllm".into(),
        health: Health::Up,
        in_flight: 5,
        waiting: Some(2),
        kv_usage: Some(0.5),
        tokens_per_s,
        prompt_tokens_total: 1000,
        cached_tokens_reported: 640,
        ..EndpointRow::default()
    }
}

fn snapshot(step: u32) -> Snapshot {
    let curve = f64::from(step % 5) * 100.0;
    Snapshot {
        endpoints: vec![
            endpoint("sim-1", 120.0 + curve),
            EndpointRow {
                name: "sim-2".into(),
                engine: "llamacpp".into(),
                health: Health::Down,
                errors: 3,
                ..EndpointRow::default()
            },
            EndpointRow { name: "sim-3".into(), engine: "unknown".into(), ..EndpointRow::default() },
        ],
        recent: vec![
            RecentRequest { path: "/v1/completions".into(), ..RecentRequest::default() },
            RecentRequest {
                path: "/v1/chat/completions".into(),
                model: "sim\x1b[31m".into(),
                endpoint: Some("sim-1".into()),
                status: Some(200),
                total_ms: Some(1234.0),
                why: Some(Why {
                    reason: "shared prefix".into(),
                    matched_blocks: Some(10),
                    prompt_blocks: Some(27),
                    ..Why::default()
                }),
                ..RecentRequest::default()
            },
        ],
        ..Snapshot::default()
    }
}

fn info() -> UpInfo {
    UpInfo {
        gateway_url: "http://127.0.0.1:8080".into(),
        admin_url: Some("http://127.0.0.1:9090/".into()),
        model: Some("sim".into()),
        notes: vec!["4 simulated engines".into()],
    }
}

fn picture(width: u16, height: u16, snapshot: &Snapshot, history: &History) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| render(frame, snapshot, &info(), history)).unwrap();
    terminal.backend().to_string()
}

#[test]
fn a_line_an_endpoint_with_what_is_unknown_said() {
    let mut history = History::default();
    for step in 0..12 {
        history.record(&snapshot(step));
    }
    let snapshot = snapshot(3);
    insta::assert_snapshot!(picture(110, lines_needed(&snapshot), &snapshot, &history));
}

#[test]
fn eighty_columns_are_enough() {
    let mut history = History::default();
    history.record(&snapshot(1));
    insta::assert_snapshot!(picture(80, lines_needed(&snapshot(1)), &snapshot(1), &history));
}

#[test]
fn nothing_yet() {
    insta::assert_snapshot!(picture(80, 5, &Snapshot::default(), &History::default()));
}

#[test]
fn more_endpoints_than_lines_are_counted() {
    let endpoints = (0..50).map(|n| endpoint(&format!("gpu-{n}"), 1.0)).collect();
    let snapshot = Snapshot { endpoints, ..Snapshot::default() };
    let shown = picture(110, 10, &snapshot, &History::default());
    assert!(shown.contains("gpu-4 ") && !shown.contains("gpu-5 "), "{shown}");
    assert!(shown.contains("and 45 more"), "{shown}");
}

#[test]
fn any_size_is_drawn() {
    for width in [1, 2, 20, 60, 300] {
        for height in [1, 2, 3, 7, 40] {
            picture(width, height, &snapshot(1), &History::default());
        }
    }
}

#[test]
fn the_greeting_has_lines_to_copy() {
    insta::assert_snapshot!(live::greeting(&info()));
}
