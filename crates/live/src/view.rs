//! The live lines.

use admin::{EndpointRow, Health, RecentRequest, Snapshot};
use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use crate::greeting::printable;
use crate::{History, UpInfo};

/// Widths of the curve and the bar, in characters, where there is room.
const CURVE_MAX: u16 = 16;
const BAR_MAX: u16 = 8;
/// The bar in a terminal of 80 columns.
const BAR_MIN: u16 = 4;

/// Lines around the endpoints': the head, an empty one, the last request, the keys.
const LINES_AROUND: u16 = 4;

/// Lines that show every endpoint, if the terminal has them.
pub fn lines_needed(snapshot: &Snapshot) -> u16 {
    let endpoints = u16::try_from(snapshot.endpoints.len().max(1)).unwrap_or(u16::MAX);
    endpoints.saturating_add(LINES_AROUND)
}

/// Draws the live lines over the whole frame.
pub fn render(frame: &mut Frame<'_>, snapshot: &Snapshot, info: &UpInfo, history: &History) {
    let [table, _, last, keys] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    endpoints(frame, table, snapshot, history);
    frame.render_widget(Paragraph::new(last_request(snapshot)), last);
    frame.render_widget(Paragraph::new(footer(snapshot, info)), keys);
}

fn endpoints(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, history: &History) {
    if snapshot.endpoints.is_empty() {
        frame.render_widget(Paragraph::new("  no endpoints").dim(), area);
        return;
    }
    let room = usize::from(area.height.saturating_sub(1));
    let all = snapshot.endpoints.len();
    let shown = if all > room { room.saturating_sub(1) } else { all };
    let names = snapshot.endpoints.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let name = u16::try_from(names + 2).unwrap_or(u16::MAX).clamp(10, 26);
    let mut widths = [name, 8, 9, 9, 5, 7, 0, 6, BAR_MAX + 5, 6];
    let between = widths.len() as u16 - 1;
    let room = |widths: &[u16]| i32::from(area.width) - i32::from(widths.iter().sum::<u16>() + between);
    let bar = if room(&widths) < 0 { BAR_MIN } else { BAR_MAX };
    widths[8] = bar + 5;
    // Below four characters a curve says nothing.
    let curve =
        u16::try_from(room(&widths)).ok().filter(|&room| room >= 4).map_or(0, |room| room.min(CURVE_MAX));
    widths[6] = curve;

    let rows = snapshot.endpoints[..shown].iter().map(|row| endpoint(row, history, curve, bar));
    let head =
        ["  endpoint", "engine", "health", "in flight", "queue", "tok/s", "", "cached", "KV cache", "errors"];
    let head = head.map(|word| match word {
        "in flight" | "queue" | "tok/s" | "cached" | "errors" => right(word.into()),
        _ => Cell::from(word),
    });
    let table = Table::new(rows, widths.map(Constraint::Length)).column_spacing(1);
    frame.render_widget(table.header(Row::new(head).style(Style::new().dim())), area);
    if shown < all {
        let [_, below] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
        frame.render_widget(Paragraph::new(format!("  and {} more", all - shown)).dim(), below);
    }
}

fn endpoint<'a>(row: &EndpointRow, history: &History, curve: u16, bar: u16) -> Row<'a> {
    let colour = match row.health {
        Health::Up => Color::Green,
        Health::Down => Color::Red,
        Health::Unknown => Color::DarkGray,
    };
    let errors = Span::from(row.errors.to_string());
    Row::new([
        Cell::from(Span::from(format!("  {}", printable(&row.name))).bold()),
        Cell::from(printable(&row.engine)),
        Cell::from(Span::from(format!("● {}", row.health.as_str())).fg(colour)),
        right(row.in_flight.to_string().into()),
        right(known(row.waiting.map(|waiting| waiting.to_string()))),
        right(rate(row.tokens_per_s).into()),
        Cell::from(Span::from(history.curve(&row.name, curve.into())).cyan()),
        right(row.cache_hit_share().map_or("–".into(), |share| per_cent(share).into())),
        Cell::from(kv(row.kv_usage, bar.into())),
        right(if row.errors > 0 { errors.yellow() } else { errors.dim() }),
    ])
}

fn right(content: Span<'_>) -> Cell<'_> {
    Cell::from(Text::from(Line::from(content)).alignment(Alignment::Right))
}

/// What is unknown says so; it is not a zero.
fn known<'a>(value: Option<String>) -> Span<'a> {
    value.map_or(Span::from("?").dim(), Span::from)
}

fn kv<'a>(usage: Option<f32>, bar: usize) -> Line<'a> {
    let Some(usage) = usage else { return Line::from("unknown".dim()) };
    let filled = ((usage * bar as f32).round() as usize).min(bar);
    let colour = if usage > 0.9 { Color::Yellow } else { Color::Cyan };
    Line::from(vec![
        Span::from("━".repeat(filled)).fg(colour),
        Span::from("━".repeat(bar - filled)).dark_gray(),
        Span::from(format!(" {}", per_cent(f64::from(usage)))),
    ])
}

fn per_cent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

fn rate(per_s: f64) -> String {
    match per_s {
        r if r <= 0.0 || r.is_nan() => "0".into(),
        r if r < 9.95 => format!("{r:.1}"),
        r if r < 99_999.5 => format!("{r:.0}"),
        r => format!("{:.0}k", r / 1000.0),
    }
}

fn span(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.1} s", ms / 1000.0),
    }
}

fn last_request<'a>(snapshot: &Snapshot) -> Line<'a> {
    let finished = |request: &&RecentRequest| request.status.is_some();
    let Some(request) = snapshot.recent.iter().find(finished) else {
        return Line::from("  no request yet".dim());
    };
    let mut said = format!("  last: {}", printable(&request.path));
    if !request.model.is_empty() {
        said += &format!(" for {}", printable(&request.model));
    }
    if let Some(endpoint) = &request.endpoint {
        said += &format!(" went to {}", printable(endpoint));
    }
    let mut parts = vec![Span::from(said), Span::from(": ")];
    if let Some(status) = request.status {
        let colour = if status < 400 { Color::Green } else { Color::Yellow };
        parts.push(Span::from(status.to_string()).fg(colour));
    }
    if let Some(total_ms) = request.total_ms {
        parts.push(Span::from(format!(" in {}", span(total_ms))));
    }
    if let Some(why) = &request.why {
        let mut because = format!("; {}", printable(&why.reason));
        if let (Some(matched @ 1..), Some(blocks)) = (why.matched_blocks, why.prompt_blocks) {
            because += &format!(" ({matched} of {blocks} blocks)");
        }
        parts.push(Span::from(because).dim());
    }
    Line::from(parts)
}

fn footer<'a>(snapshot: &Snapshot, info: &UpInfo) -> Line<'a> {
    let key = |name: &'static str| Span::styled(name, Style::new().add_modifier(Modifier::BOLD));
    let mut parts =
        vec![Span::from("  "), key("q"), Span::from(" or "), key("Ctrl-C"), Span::from(" ends it").dim()];
    if snapshot.draining {
        parts = vec![
            Span::from("  finishing open requests; "),
            key("Ctrl-C"),
            Span::from(" again ends at once").dim(),
        ];
    }
    if let Some(admin) = &info.admin_url {
        parts.push(Span::from("   admin ").dim());
        parts.push(Span::from(printable(admin)).underlined());
    }
    Line::from(parts)
}
