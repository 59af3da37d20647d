//! Mixed traffic for a long time, while engines fail, configurations change and the program is replaced.
//!
//! Two gateways stand before the same engines. One is upgraded again and again; the other runs through, so that
//! memory and descriptors that are not given back show there.

mod clients;
mod content;
mod engine;
mod report;

use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use e2e::ConfigFile;
use rig::{RidgeProcess, client};

use clients::{Account, Kind};
use engine::{Engine, Fault};
use report::{Report, Sample};

/// Engines with a fault at one time, at most: the others are healthy, and a retry can save what failed.
const FAULTY_MAX: usize = 2;

const ENGINES: usize = 4;

/// Mixed traffic with faults, reloads and upgrades
#[derive(Parser)]
struct Arguments {
    /// How long
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=24 * 60))]
    minutes: u64,
    /// Which faults come when follows from it
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seconds from one upgrade to the next; a reload is halfway between
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(4..=3600))]
    upgrade_every: u64,
    /// Where the table goes, as Markdown
    #[arg(long)]
    output: Option<std::path::PathBuf>,
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let report = soak(&arguments);
    let text = report.markdown();
    println!("{text}");
    if let Some(path) = &arguments.output
        && let Err(error) = std::fs::write(path, &text)
    {
        eprintln!("error: cannot write {}: {error}", path.display());
        return std::process::ExitCode::FAILURE;
    }
    let complaints = report.complaints();
    complaints.iter().for_each(|complaint| eprintln!("error: {complaint}"));
    match complaints.is_empty() {
        true => std::process::ExitCode::SUCCESS,
        false => std::process::ExitCode::FAILURE,
    }
}

fn configuration(engines: &[Engine], attempts: u32) -> String {
    let mut text = format!(
        "listen: [\"127.0.0.1:0\"]\nadmin: \"127.0.0.1:0\"\naccess_log: {{to: off}}\nattempts: {attempts}\nupstreams:\n"
    );
    for (place, engine) in engines.iter().enumerate() {
        text.push_str(&format!("  - url: http://{}\n    name: engine-{}\n", engine.addr, place + 1));
    }
    text
}

fn start(name: &str, engines: &[Engine]) -> (ConfigFile, RidgeProcess) {
    let file = ConfigFile::new(name, &configuration(engines, 3));
    let ridge = RidgeProcess::start(&["serve", "-c", &file.path()], &[]);
    rig::wait_until("every engine is up", || {
        ridge.metrics().sum("ridge_endpoint_up", &[]) == Some(engines.len() as f64)
    });
    (file, ridge)
}

fn soak(arguments: &Arguments) -> Report {
    let engines: Vec<Engine> = (0..ENGINES).map(|_| Engine::start()).collect();
    let (steady_file, steady) = start("soak-steady", &engines);
    let (upgraded_file, mut upgraded) = start("soak-upgraded", &engines);
    let account = Account::default();
    let mut report = Report::new(arguments.minutes, arguments.seed);
    let began = Instant::now();
    let length = Duration::from_secs(arguments.minutes * 60);
    thread::scope(|scope| {
        for (number, kind) in Kind::ALL.into_iter().enumerate() {
            for (gateway, addr) in [steady.gateway, upgraded.gateway].into_iter().enumerate() {
                let seed = arguments.seed ^ ((number * 2 + gateway + 1) as u64) << 32;
                let (account, engines) = (&account, &engines);
                scope.spawn(move || clients::run(kind, addr, seed, account, engines));
            }
        }
        let faults = scope.spawn(|| break_engines(&engines, arguments.seed, &account));
        let every = Duration::from_secs(arguments.upgrade_every);
        let (mut upgrade_at, mut reload_at) = (every, every / 2);
        let mut sample_at = Duration::ZERO;
        while began.elapsed() < length {
            thread::sleep(Duration::from_millis(100));
            let now = began.elapsed();
            if now >= sample_at {
                sample_at += Duration::from_secs(1);
                report.samples.push(Sample::of(now, steady.id(), upgraded.id()));
            }
            if now >= reload_at {
                reload_at += every;
                report.reloads += 1;
                for file in [&steady_file, &upgraded_file] {
                    file.write(&configuration(&engines, 3 + report.reloads as u32 % 2));
                }
            }
            if now >= upgrade_at {
                upgrade_at += every;
                upgraded.upgrade();
                report.upgrades += 1;
                let [sent, lost] = [&account.sent, &account.lost].map(|count| count.load(Relaxed));
                eprintln!(
                    "{:5.0} s: {sent} requests, {lost} lost, {} upgrades",
                    now.as_secs_f64(),
                    report.upgrades
                );
            }
        }
        account.stop.store(true, Relaxed);
        report.faults = faults.join().unwrap_or_default();
    });
    for (name, ridge) in [("steady", &steady), ("upgraded", &upgraded)] {
        let idle = rig::eventually(Duration::from_secs(15), || {
            ridge.metrics().sum("ridge_requests_in_flight", &[]).is_none_or(|count| count == 0.0)
        });
        if !idle || client::get(ridge.gateway, "/livez").status() != 200 {
            report.left_over.push(format!("requests are in flight in the {name} gateway after the end"));
        }
        if ridge.output().contains("panicked") {
            report.left_over.push(format!("the {name} gateway panicked"));
        }
    }
    report.account = account;
    report
}

/// Breaks engines and repairs them until told to stop; answers how often each fault came.
fn break_engines(engines: &[Engine], seed: u64, account: &Account) -> [u64; Fault::ALL.len()] {
    let mut state = seed;
    let mut counts = [0; Fault::ALL.len()];
    let mut until: Vec<Option<Instant>> = vec![None; engines.len()];
    while !account.stop.load(Relaxed) {
        thread::sleep(Duration::from_millis(200));
        for (engine, until) in engines.iter().zip(&mut until) {
            if until.is_some_and(|until| Instant::now() >= until) {
                engine.set(None);
                *until = None;
            }
        }
        let draw = content::random(&mut state);
        let place = draw as usize % engines.len();
        let faulty = until.iter().flatten().count();
        if draw >> 8 & 3 == 0 && faulty < FAULTY_MAX && until[place].is_none() {
            let fault = (draw >> 16) as usize % Fault::ALL.len();
            counts[fault] += 1;
            until[place] = Some(Instant::now() + Duration::from_millis(500 + (draw >> 24) % 5000));
            engines[place].set(Some(Fault::ALL[fault]));
        }
    }
    engines.iter().zip(until).filter(|(_, until)| until.is_some()).for_each(|(engine, _)| engine.set(None));
    counts
}
