//! `ridge serve`: the production gateway.

use std::net::TcpListener;
use std::sync::Arc;

use config::{Config, ServeFlags};
use gateway::{Gateway, Startup};

use crate::{Outcome, local_runtime, notices, settings, signals, status};

/// Runs the gateway until SIGINT or SIGTERM.
pub fn run(flags: &ServeFlags) -> Outcome {
    let config = load(flags)?;
    let notify = notices::to_stderr();
    let upstreams = settings::upstreams(&config.upstreams, config.limits.max_in_flight)?;
    let startup = Startup {
        listen: config.listen.clone(),
        cores: settings::cores(&config),
        seed: config.routing.seed.unwrap_or_else(random_seed),
        access_log: settings::access_log(&config),
        notify: Arc::clone(&notify),
    };
    let gateway = Gateway::start(startup, settings::policy(&config), upstreams)
        .map_err(|error| format!("error: {error}"))?;
    let admin = match config.admin_addr() {
        Some(address) => Some(
            TcpListener::bind(address)
                .and_then(|listener| {
                    admin::start(listener, Arc::new(status::Status::new(gateway.observer())))
                })
                .map_err(|error| format!("error: cannot listen on {address} for the admin page: {error}"))?,
        ),
        None => None,
    };
    println!("{}", ready_line(&gateway, admin.as_ref()));
    let runtime = local_runtime()?;
    runtime.block_on(async {
        signals::ended().await;
        notices::info(&notify, "draining: running requests finish, new ones are still served".into());
        let cut = gateway.shutdown(settings::linger(&config), config.timeouts.drain).await;
        if cut > 0 {
            notices::warn(&notify, format!("{cut} requests were cut off after {:?}", config.timeouts.drain));
        }
    });
    if let Some(admin) = admin {
        admin.stop();
    }
    Ok(())
}

/// `ready gateway=URL admin=URL`: what a script waits for.
pub fn ready_line(gateway: &Gateway, admin: Option<&admin::Server>) -> String {
    let urls: Vec<String> = gateway.addresses().iter().map(|address| format!("http://{address}")).collect();
    match admin {
        Some(admin) => format!("ready gateway={} admin=http://{}", urls.join(","), admin.address()),
        None => format!("ready gateway={}", urls.join(",")),
    }
}

/// A seed from the system's randomness, by way of the standard hash maps' keys.
pub fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

fn load(flags: &ServeFlags) -> Result<Config, String> {
    use std::io::IsTerminal;
    let color = std::io::stderr().is_terminal();
    let loaded = match &flags.config {
        Some(path) => {
            let name = path.display().to_string();
            let text =
                std::fs::read(path).map_err(|error| config::unreadable(&name, &error).render(color))?;
            Config::load(Some((&name, &text)), flags)
        }
        None => Config::load(None, flags),
    };
    loaded.map_err(|diagnostics| diagnostics.render(color))
}
