//! CPU time and memory of a process and its descendants, from /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// The kernel counts `utime` and `stime` in these for every architecture (USER_HZ).
const TICKS_PER_SECOND: u64 = 100;

/// A process and its descendants now.
pub fn tree(root: u32) -> BTreeSet<u32> {
    let mut parents = BTreeMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok())
            && let Some(fields) = stat_fields(pid)
            && let Some(parent) = fields.get(1).and_then(|field| field.parse::<u32>().ok())
        {
            parents.insert(pid, parent);
        }
    }
    let mut found = BTreeSet::from([root]);
    loop {
        let before = found.len();
        found.extend(
            parents
                .iter()
                .filter(|(_, parent)| found.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if found.len() == before {
            return found;
        }
    }
}

/// The fields of /proc/PID/stat after the name, which may hold spaces: state is the first.
fn stat_fields(pid: u32) -> Option<Vec<String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(text.rsplit_once(')')?.1.split_whitespace().map(str::to_owned).collect())
}

/// CPU time used so far.
pub struct CpuReading {
    /// By process and thread, in nanoseconds.
    threads: BTreeMap<(u32, u32), u64>,
    ticks: u64,
}

impl CpuReading {
    /// Reads the time of all threads of the processes.
    pub fn of(pids: &BTreeSet<u32>) -> Self {
        let mut reading = Self { threads: BTreeMap::new(), ticks: 0 };
        for &pid in pids {
            for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
                if let Ok(text) = fs::read_to_string(entry.path().join("schedstat"))
                    && let Some(ns) = text.split(' ').next().and_then(|field| field.parse().ok())
                    && let Some(tid) = entry.file_name().to_str().and_then(|name| name.parse().ok())
                {
                    reading.threads.insert((pid, tid), ns);
                }
            }
            if let Some(fields) = stat_fields(pid) {
                let field =
                    |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
                reading.ticks += field(11) + field(12);
            }
        }
        reading
    }

    /// Nanoseconds used since an earlier reading.
    ///
    /// Exact as long as no thread ended in between; a thread that ended took its count with it, and then the
    /// process's own sum is used, which is exact to 10 ms.
    pub fn ns_since(&self, before: &Self) -> u64 {
        let all_alive = before.threads.keys().all(|thread| self.threads.contains_key(thread));
        if all_alive && !self.threads.is_empty() {
            let sum = |reading: &Self| reading.threads.values().sum::<u64>();
            return sum(self).saturating_sub(sum(before));
        }
        self.ticks.saturating_sub(before.ticks) * (1_000_000_000 / TICKS_PER_SECOND)
    }
}

/// Memory in use, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident pages, shared ones counted in full in every process.
    pub rss: u64,
    /// Resident pages, shared ones divided among those that share them.
    pub pss: u64,
}

/// Memory of the processes together.
pub fn memory(pids: &BTreeSet<u32>) -> Memory {
    let mut memory = Memory::default();
    for pid in pids {
        let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (name, kib) =
                (words.next(), words.next().and_then(|word| word.parse::<u64>().ok()).unwrap_or(0));
            match name {
                Some("Rss:") => memory.rss += kib * 1024,
                Some("Pss:") => memory.pss += kib * 1024,
                _ => {}
            }
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn this_process_uses_time_and_memory() {
        let pids = BTreeSet::from([std::process::id()]);
        let before = CpuReading::of(&pids);
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < Duration::from_millis(300) {
            sum = std::hint::black_box(sum.wrapping_add(1));
        }
        let used = CpuReading::of(&pids).ns_since(&before);
        assert!(used > 20_000_000, "{used}");
        let memory = memory(&pids);
        assert!(memory.pss > 100_000 && memory.pss <= memory.rss, "{memory:?}");
        assert!(tree(std::process::id()).contains(&std::process::id()));
    }
}
