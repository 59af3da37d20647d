//! A simulated fleet by hand: `cargo run --example sim -- --listen 127.0.0.1:9100 --replicas 4`.

use clap::Parser;
use sim_server::{Sim, SimOptions};

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    sim: SimOptions,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Command::parse().sim;
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let sim = Sim::bind(options).await?;
        for (index, address) in sim.addresses().iter().enumerate() {
            println!("replica {index} http://{address}");
        }
        sim.run(async { _ = tokio::signal::ctrl_c().await }).await;
        Ok(())
    })
}
