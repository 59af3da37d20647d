//! The result: a table, and what is wrong with it.

use std::fmt::Write as _;
use std::fs;
use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use crate::clients::Account;
use crate::engine::Fault;

/// Memory may differ by this much between the two fifths: an allocator keeps pages of the busiest moment.
const RSS_FACTOR: f64 = 1.10;
const RSS_SLACK_MIB: f64 = 8.0;
/// Open descriptors may differ by this much: connections come and go with the faults.
const FDS_SLACK: f64 = 24.0;

/// Memory and descriptors at one time: of the gateway that runs through, and of the one that is upgraded.
#[derive(Clone, Copy)]
pub struct Sample {
    at: Duration,
    rss_mib: [f64; 2],
    fds: [f64; 2],
}

impl Sample {
    /// Of these two processes.
    pub fn of(at: Duration, steady: u32, upgraded: u32) -> Self {
        let ids = [steady, upgraded];
        Self { at, rss_mib: ids.map(rss_mib), fds: ids.map(fds) }
    }
}

fn rss_mib(id: u32) -> f64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<f64>().unwrap_or(0.0) / 1024.0
}

fn fds(id: u32) -> f64 {
    fs::read_dir(format!("/proc/{id}/fd")).map_or(0.0, |list| list.count() as f64)
}

/// All that is known at the end.
pub struct Report {
    minutes: u64,
    seed: u64,
    /// Requests.
    pub account: Account,
    /// How often each fault came.
    pub faults: [u64; Fault::ALL.len()],
    /// Configurations taken in by each gateway.
    pub reloads: u64,
    /// New processes.
    pub upgrades: u64,
    /// One each second.
    pub samples: Vec<Sample>,
    /// What was not given back at the end.
    pub left_over: Vec<String>,
}

impl Report {
    /// An empty one.
    pub fn new(minutes: u64, seed: u64) -> Self {
        Self {
            minutes,
            seed,
            account: Account::default(),
            faults: [0; Fault::ALL.len()],
            reloads: 0,
            upgrades: 0,
            samples: Vec::new(),
            left_over: Vec::new(),
        }
    }

    /// The mean over the given fifth of the time.
    fn fifth(&self, fifth: usize, of: impl Fn(&Sample) -> f64) -> f64 {
        let length = (self.samples.len() / 5).max(1);
        let part: Vec<f64> = self.samples.iter().skip(fifth * length).take(length).map(of).collect();
        part.iter().sum::<f64>() / part.len().max(1) as f64
    }

    /// What must not be.
    pub fn complaints(&self) -> Vec<String> {
        let mut out = self.left_over.clone();
        let account = &self.account;
        for (count, what) in [
            (&account.wrong, "answers had wrong bytes"),
            (&account.lost, "requests were lost that a retry could have saved"),
            (&account.cut_without_cause, "answers were cut though their engine lived"),
        ] {
            let count = count.load(Relaxed);
            if count > 0 {
                out.push(format!("{count} {what}"));
            }
        }
        let [early, late] = [1, 4].map(|fifth| self.fifth(fifth, |sample| sample.rss_mib[0]));
        if late > early * RSS_FACTOR + RSS_SLACK_MIB {
            out.push(format!("memory grew from {early:.1} to {late:.1} MiB"));
        }
        let [early, late] = [1, 4].map(|fifth| self.fifth(fifth, |sample| sample.fds[0]));
        if late > early + FDS_SLACK {
            out.push(format!("descriptors grew from {early:.0} to {late:.0}"));
        }
        out
    }

    /// The page.
    pub fn markdown(&self) -> String {
        let mut out = String::from("# Soak: a long time of everything\n\n");
        let account = &self.account;
        let _ = writeln!(
            out,
            "`cargo xtask soak --minutes {} -- --seed {}`: two gateways before four engines. Small JSON, server-sent events, bodies\n\
             of 256 KiB, over HTTP/1.1 and HTTP/2, slow readers and clients that leave; every byte of each answer is compared.\n\
             Meanwhile engines fail, two of four at one time at most; the configuration changes; and one of the gateways is\n\
             replaced by a new process again and again (SIGUSR2).\n",
            self.minutes, self.seed
        );
        let _ = writeln!(out, "| | |\n|---|---|");
        let mut row = |name: &str, value: String| {
            let _ = writeln!(out, "| {name} | {value} |");
        };
        for (name, count) in [
            ("requests", &account.sent),
            ("answered whole, each byte right", &account.good),
            ("answers with wrong bytes", &account.wrong),
            ("lost though a retry could have saved them", &account.lost),
            ("cut in the middle because the engine died", &account.cut),
            ("cut in the middle without such a cause", &account.cut_without_cause),
            ("left by the client in the middle", &account.left),
        ] {
            row(name, count.load(Relaxed).to_string());
        }
        let faults = Fault::ALL.iter().zip(self.faults);
        let faults: Vec<String> = faults.map(|(fault, count)| format!("{} {count}", fault.name())).collect();
        row("faults of engines", faults.join(", "));
        row("upgrades", self.upgrades.to_string());
        row("reloads", self.reloads.to_string());
        for (gateway, name) in
            ["the one that runs through", "the one that is replaced"].into_iter().enumerate()
        {
            let of = |of: fn(&Sample) -> [f64; 2]| {
                [1, 4].map(|fifth| self.fifth(fifth, |sample| of(sample)[gateway]))
            };
            let [early, late] = of(|sample| sample.rss_mib);
            row(&format!("RSS of {name}, second → last fifth"), format!("{early:.1} → {late:.1} MiB"));
            let [early, late] = of(|sample| sample.fds);
            row(&format!("descriptors of {name}, second → last fifth"), format!("{early:.0} → {late:.0}"));
        }
        let points: Vec<String> = (0..=10)
            .filter_map(|tenth| self.samples.get(tenth * self.samples.len().saturating_sub(1) / 10))
            .map(|sample| format!("{:.0} s: {:.1}", sample.at.as_secs_f64(), sample.rss_mib[0]))
            .collect();
        let _ = writeln!(out, "\nRSS in MiB of the one that runs through, at {}.", points.join(", "));
        let first = account.first.lock().unwrap_or_else(PoisonError::into_inner);
        if !first.is_empty() {
            let _ = writeln!(out, "\nThe first that went wrong:\n\n```text\n{}\n```", first.join("\n"));
        }
        out
    }
}
