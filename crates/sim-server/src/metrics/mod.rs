//! `/metrics`, in the names of the engine that the replica pretends to be.
//!
//! All times are the engine's own: with `--speed 8` a second here is an eighth of a real one.

mod sglang;
mod trtllm;
mod vllm;

use std::fmt::{Display, Write};

use simulation::Histogram;

use crate::options::EngineKind;
use crate::replica::Replica;

/// The page.
pub fn page(replica: &Replica) -> String {
    match replica.kind {
        EngineKind::Vllm => vllm::page(replica),
        EngineKind::Sglang => sglang::page(replica),
        EngineKind::Trtllm => trtllm::page(replica),
    }
}

/// A page in Prometheus' text format in the making.
struct Page {
    text: String,
    labels: String,
    created_s: f64,
}

impl Page {
    /// `labels` are those of every sample, as they stand between the braces.
    fn new(labels: String, created_s: f64) -> Self {
        Self { text: String::with_capacity(32 << 10), labels, created_s }
    }

    /// HELP and TYPE of what follows.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample; `extra` are labels besides the common ones, each ending in a comma.
    fn sample(&mut self, name: &str, extra: &str, value: impl Display) {
        _ = writeln!(self.text, "{name}{{{extra}{}}} {value}", self.labels);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, "", Number(value));
    }

    /// A counter; `name` without its `_total`. `series` are extra labels and values.
    fn counters(&mut self, name: &str, help: &str, series: &[(&str, u64)]) {
        let total = format!("{name}_total");
        self.head(&total, "counter", help);
        for (extra, value) in series {
            self.sample(&total, extra, Number(*value as f64));
        }
        let created = format!("{name}_created");
        self.head(&created, "gauge", help);
        for (extra, _) in series {
            self.sample(&created, extra, self.created_s);
        }
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, &[("", value)]);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.sample(&bucket, &format!("le=\"{}\",", Number(bound)), Number(count as f64));
        }
        self.sample(&bucket, "le=\"+Inf\",", Number(histogram.count() as f64));
        self.sample(&format!("{name}_sum"), "", Number(histogram.sum()));
        self.sample(&format!("{name}_count"), "", Number(histogram.count() as f64));
    }
}

/// A number as Python's client prints it: always with a point.
struct Number(f64);

impl Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// A label's value, escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
