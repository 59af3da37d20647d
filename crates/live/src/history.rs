//! The last seconds of each endpoint, for a small curve.

use std::collections::HashMap;
use std::collections::VecDeque;

use admin::Snapshot;

/// Samples kept for each endpoint; the curve is never wider.
const SAMPLES_MAX: usize = 24;

/// Tokens per second of each endpoint over the last samples.
#[derive(Debug, Default)]
pub struct History {
    by_endpoint: HashMap<String, VecDeque<f64>>,
}

impl History {
    /// Adds a sample of each endpoint and forgets endpoints that are gone.
    pub fn record(&mut self, snapshot: &Snapshot) {
        self.by_endpoint.retain(|name, _| snapshot.endpoints.iter().any(|row| row.name == *name));
        for row in &snapshot.endpoints {
            let samples = self.by_endpoint.entry(row.name.clone()).or_default();
            if samples.len() == SAMPLES_MAX {
                samples.pop_front();
            }
            samples.push_back(row.tokens_per_s.max(0.0));
        }
    }

    /// The curve of one endpoint as `width` characters at most, newest at the right.
    pub(crate) fn curve(&self, endpoint: &str, width: usize) -> String {
        const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        let Some(samples) = self.by_endpoint.get(endpoint) else { return String::new() };
        let top = samples.iter().copied().fold(0.0, f64::max);
        let shown = samples.iter().skip(samples.len().saturating_sub(width));
        let curve: String = shown
            .map(|sample| {
                let step = if top > 0.0 { (sample / top * 7.0).round() as usize } else { 0 };
                STEPS[step.min(7)]
            })
            .collect();
        format!("{curve:>width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::EndpointRow;

    fn record(history: &mut History, name: &str, tokens_per_s: f64) {
        let row = EndpointRow { name: name.into(), tokens_per_s, ..EndpointRow::default() };
        history.record(&Snapshot { endpoints: vec![row], ..Snapshot::default() });
    }

    #[test]
    fn the_curve_is_relative_to_its_own_top() {
        let mut history = History::default();
        for tokens_per_s in [0.0, 50.0, 100.0, f64::NAN] {
            record(&mut history, "a", tokens_per_s);
        }
        assert_eq!(history.curve("a", 6), "  ▁▅█▁");
        assert_eq!(history.curve("a", 2), "█▁");
        assert_eq!(history.curve("other", 6), "");
    }

    #[test]
    fn memory_is_bounded_and_endpoints_that_left_are_forgotten() {
        let mut history = History::default();
        for second in 0..1000 {
            record(&mut history, "a", f64::from(second));
        }
        assert_eq!(history.by_endpoint["a"].len(), SAMPLES_MAX);
        record(&mut history, "b", 1.0);
        assert!(!history.by_endpoint.contains_key("a"));
    }
}
