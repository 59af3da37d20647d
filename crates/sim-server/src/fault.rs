//! Faults on demand: what is asked for, and what is due.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Kinds of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FaultKind {
    /// Answers with an HTTP status.
    Status,
    /// Cuts the connection with a TCP reset.
    Reset,
    /// Stops sending in the middle and keeps the connection open.
    Stall,
    /// Makes the engine's steps longer.
    Slow,
    /// Takes the request and never answers.
    Hang,
    /// Closes the port and resets all connections.
    Crash,
}

/// A fault as asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub kind: FaultKind,
    /// Real ms after the request came in (for slow and crash: after the fault was asked for).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Tokens sent (or, if the request does not stream, produced) before it happens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_tokens: Option<u32>,
    /// How many requests it hits; 1 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// The HTTP status of kind status; 503 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// How many times as long steps are, for kind slow; 5 if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
    /// Real ms until slow or crash ends; without it, until cleared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub for_ms: Option<u64>,
    /// Hits only requests whose path starts with this; without it, inference requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Another replica of the same process.
    #[serde(skip_serializing)]
    pub replica: Option<usize>,
}

/// Most faults waiting on one replica; more would be a mistake.
const MAX_ACTIVE: usize = 64;
/// Longest delay: an hour.
const MAX_MS: u64 = 3_600_000;

impl Fault {
    /// Reads and checks a fault.
    ///
    /// # Errors
    /// What is wrong with it, for whoever sent it.
    pub fn read(body: &[u8]) -> Result<Self, String> {
        let fault: Self = serde_json::from_slice(body).map_err(|error| {
            format!("{error}; send {{\"kind\": \"status|reset|stall|slow|hang|crash\", \"after_ms\", \"after_tokens\", \"count\", \"status\", \"factor\", \"for_ms\", \"path\", \"replica\"}}")
        })?;
        let lasting = matches!(fault.kind, FaultKind::Slow | FaultKind::Crash);
        let per_token = matches!(fault.kind, FaultKind::Reset | FaultKind::Stall);
        let kind = json!(fault.kind);
        for (name, given, fits) in [
            ("after_tokens", fault.after_tokens.is_some(), per_token),
            ("count", fault.count.is_some(), !lasting),
            ("path", fault.path.is_some(), !lasting),
            ("status", fault.status.is_some(), fault.kind == FaultKind::Status),
            ("factor", fault.factor.is_some(), fault.kind == FaultKind::Slow),
            ("for_ms", fault.for_ms.is_some(), lasting),
        ] {
            if given && !fits {
                return Err(format!("{name} has no meaning for kind {kind}; leave it out"));
            }
        }
        if fault.count == Some(0) {
            return Err("count is 0, which hits nothing; give at least 1".to_owned());
        }
        if let Some(status) = fault.status.filter(|status| !(200..=599).contains(status)) {
            return Err(format!("status is {status}, which must be from 200 to 599"));
        }
        if let Some(factor) = fault.factor.filter(|factor| !(1e-3..=1e3).contains(factor)) {
            return Err(format!("factor is {factor}, which must be from 0.001 to 1000"));
        }
        for (name, ms) in [("after_ms", fault.after_ms), ("for_ms", fault.for_ms)] {
            if let Some(ms) = ms.filter(|ms| *ms > MAX_MS) {
                return Err(format!("{name} is {ms}, which must be at most {MAX_MS}"));
            }
        }
        Ok(fault)
    }

    pub fn after(&self) -> Duration {
        Duration::from_millis(self.after_ms.unwrap_or(0))
    }
}

/// The faults of one replica.
pub struct Faults {
    state: Mutex<State>,
    /// Changes when the lasting faults do: the replica's own task follows it.
    lasting: watch::Sender<Lasting>,
}

/// What the replica's task has to bring about.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Lasting {
    pub slow: Option<Fault>,
    pub crash: Option<Fault>,
}

#[derive(Default)]
struct State {
    active: Vec<Active>,
    fired: [u64; 6],
}

struct Active {
    fault: Fault,
    left: u64,
}

impl Default for Faults {
    fn default() -> Self {
        Self { state: Mutex::default(), lasting: watch::Sender::new(Lasting::default()) }
    }
}

impl Faults {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a fault in.
    ///
    /// # Errors
    /// There are too many already.
    pub fn add(&self, fault: Fault) -> Result<(), String> {
        match fault.kind {
            FaultKind::Slow => self.lasting.send_modify(|lasting| lasting.slow = Some(fault)),
            FaultKind::Crash => self.lasting.send_modify(|lasting| lasting.crash = Some(fault)),
            _ => {
                let mut state = self.state();
                if state.active.len() >= MAX_ACTIVE {
                    return Err(format!(
                        "{MAX_ACTIVE} faults are active, which is the most; DELETE /sim/fault first"
                    ));
                }
                state.active.push(Active { left: fault.count.unwrap_or(1), fault });
            }
        }
        Ok(())
    }

    /// Ends all faults. What they did to requests under way stays done.
    pub fn clear(&self) {
        self.state().active.clear();
        self.lasting.send_replace(Lasting::default());
    }

    /// Follows the lasting faults.
    pub fn follow(&self) -> watch::Receiver<Lasting> {
        self.lasting.subscribe()
    }

    /// Ends one lasting fault whose time is over.
    pub fn end(&self, kind: FaultKind) {
        self.lasting.send_if_modified(|lasting| match kind {
            FaultKind::Slow => lasting.slow.take().is_some(),
            FaultKind::Crash => lasting.crash.take().is_some(),
            _ => false,
        });
    }

    /// Counts that a fault came true.
    pub fn count(&self, kind: FaultKind) {
        self.state().fired[kind as usize] += 1;
    }

    /// The fault that hits this request, the oldest first, if any.
    pub fn due(&self, path: &str, is_inference: bool) -> Option<Fault> {
        let mut state = self.state();
        let hit = state.active.iter().position(|active| match &active.fault.path {
            Some(prefix) => path.starts_with(prefix.as_str()),
            None => is_inference,
        })?;
        let active = &mut state.active[hit];
        active.left -= 1;
        let fault = active.fault.clone();
        if active.left == 0 {
            state.active.remove(hit);
        }
        Some(fault)
    }

    /// What is active and what came true, as JSON.
    pub fn describe(&self) -> Value {
        let lasting = self.lasting.borrow().clone();
        let state = self.state();
        let mut active: Vec<Value> = state
            .active
            .iter()
            .map(|active| {
                let mut fault = json!(active.fault);
                fault["count"] = json!(active.left);
                fault
            })
            .collect();
        active.extend([lasting.slow, lasting.crash].into_iter().flatten().map(|fault| json!(fault)));
        use FaultKind::{Crash, Hang, Reset, Slow, Stall, Status};
        let fired: serde_json::Map<String, Value> = [Status, Reset, Stall, Slow, Hang, Crash]
            .into_iter()
            .filter_map(|kind| Some((json!(kind).as_str()?.to_owned(), json!(state.fired[kind as usize]))))
            .collect();
        json!({ "active": active, "fired": fired })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_faults_are_refused_with_a_reason() {
        for (body, reason) in [
            ("", "EOF"),
            (r#"{"kind": "explode"}"#, "unknown variant `explode`"),
            (r#"{"kind": "status", "typo": 1}"#, "unknown field `typo`"),
            (r#"{"kind": "status", "count": -1}"#, "invalid value"),
            (r#"{"kind": "status", "count": 0}"#, "count is 0"),
            (r#"{"kind": "status", "status": 99}"#, "status is 99"),
            (r#"{"kind": "status", "after_tokens": 3}"#, "after_tokens has no meaning for kind \"status\""),
            (r#"{"kind": "crash", "count": 3}"#, "count has no meaning for kind \"crash\""),
            (r#"{"kind": "slow", "factor": 0}"#, "factor is 0"),
            (r#"{"kind": "hang", "after_ms": 99999999999}"#, "after_ms is 99999999999"),
        ] {
            let error = Fault::read(body.as_bytes()).unwrap_err();
            assert!(error.starts_with(reason), "{body}: {error}");
        }
    }

    #[test]
    fn a_fault_hits_as_many_requests_as_it_says() {
        let faults = Faults::default();
        faults.add(Fault::read(br#"{"kind": "status", "count": 2}"#).unwrap()).unwrap();
        faults.add(Fault::read(br#"{"kind": "hang", "path": "/health"}"#).unwrap()).unwrap();
        assert_eq!(faults.due("/metrics", false), None);
        assert_eq!(faults.due("/v1/completions", true).unwrap().kind, FaultKind::Status);
        assert_eq!(faults.due("/health", false).unwrap().kind, FaultKind::Hang);
        assert_eq!(faults.describe()["active"][0]["count"], 1);
        assert_eq!(faults.due("/v1/completions", true).unwrap().kind, FaultKind::Status);
        assert_eq!(faults.due("/v1/completions", true), None);
    }
}
