//! The live view with made-up traffic: `cargo run -p live --example live_demo`.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use admin::{EndpointRow, Health, Snapshot, SnapshotFuture, Source};

#[derive(Default)]
struct MadeUp(AtomicU64);

impl Source for MadeUp {
    fn snapshot(&self) -> SnapshotFuture<'_> {
        let look = self.0.fetch_add(1, Ordering::Relaxed) as f64;
        let endpoint = move |n: u8| {
            let busy = 0.5 + 0.4 * (look / 9.0 + f64::from(n)).sin();
            EndpointRow {
                name: format!("sim-{n}"),
                engine: "vllm".into(),
                health: Health::Up,
                in_flight: (busy * 12.0) as u64,
                waiting: Some((busy * 3.0) as u32),
                kv_usage: Some(busy as f32),
                tokens_per_s: 800.0 * busy,
                prompt_tokens_total: 100,
                cached_tokens_reported: 61,
                ..EndpointRow::default()
            }
        };
        Box::pin(
            async move { Snapshot { endpoints: (1..=4).map(endpoint).collect(), ..Snapshot::default() } },
        )
    }

    fn ready(&self) -> bool {
        true
    }
}

fn main() -> std::io::Result<()> {
    let info = live::UpInfo {
        gateway_url: "http://127.0.0.1:8080".into(),
        admin_url: Some("http://127.0.0.1:9090/".into()),
        model: Some("sim".into()),
        notes: vec!["nothing answers on the usual ports, so 4 simulated engines were started".into()],
    };
    let ended = live::run_live(&MadeUp::default(), &info, &AtomicBool::new(false))?;
    println!("ended: {ended:?}");
    Ok(())
}
