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

/// Labels with their values.
type Labels<'a> = [(&'a str, &'a str)];

/// A page in Prometheus' text format in the making.
struct Page {
    text: String,
    /// Labels of every sample.
    labels: Vec<(&'static str, String)>,
    created_s: f64,
}

impl Page {
    fn new(labels: Vec<(&'static str, String)>, created_s: f64) -> Self {
        Self { text: String::with_capacity(32 << 10), labels, created_s }
    }

    /// HELP and TYPE of what follows.
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    /// One sample with the common labels and `extra`, in the order of their names as Python's client has them.
    fn sample(&mut self, name: &str, extra: &Labels<'_>, value: impl Display) {
        let common = self.labels.iter().map(|(label, text)| (*label, text.as_str()));
        let mut labels: Vec<_> = common.chain(extra.iter().copied()).collect();
        labels.sort_unstable();
        self.text.push_str(name);
        for (index, (label, text)) in labels.into_iter().enumerate() {
            let open = if index == 0 { '{' } else { ',' };
            _ = write!(self.text, "{open}{label}=\"{}\"", Escaped(text));
        }
        _ = writeln!(self.text, "}} {value}");
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        self.sample(name, &[], Number(value));
    }

    /// A counter with one series for each value of a label; `name` is without its `_total`.
    fn counters(&mut self, name: &str, help: &str, label: &str, series: &[(&str, u64)]) {
        let total = format!("{name}_total");
        self.head(&total, "counter", help);
        for (text, value) in series {
            self.sample(&total, &[(label, text)], Number(*value as f64));
        }
        let created = format!("{name}_created");
        self.head(&created, "gauge", help);
        for (text, _) in series {
            self.sample(&created, &[(label, text)], self.created_s);
        }
    }

    /// A counter; `name` is without its `_total`.
    fn counter(&mut self, name: &str, help: &str, value: u64) {
        let total = format!("{name}_total");
        self.head(&total, "counter", help);
        self.sample(&total, &[], Number(value as f64));
        let created = format!("{name}_created");
        self.head(&created, "gauge", help);
        self.sample(&created, &[], self.created_s);
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (bound, count) in histogram.cumulative() {
            self.sample(&bucket, &[("le", &Number(bound).to_string())], Number(count as f64));
        }
        self.sample(&bucket, &[("le", "+Inf")], Number(histogram.count() as f64));
        self.sample(&format!("{name}_count"), &[], Number(histogram.count() as f64));
        self.sample(&format!("{name}_sum"), &[], Number(histogram.sum()));
        let created = format!("{name}_created");
        self.head(&created, "gauge", help);
        self.sample(&created, &[], self.created_s);
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
struct Escaped<'a>(&'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for character in self.0.chars() {
            match character {
                '\\' => f.write_str("\\\\")?,
                '"' => f.write_str("\\\"")?,
                '\n' => f.write_str("\\n")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_sorted_and_escaped() {
        let mut page = Page::new(vec![("model_name", "a\"b\\c".to_owned())], 1.5);
        page.counters("x", "Help.", "le", &[("1", 2)]);
        assert_eq!(
            page.text,
            "# HELP x_total Help.\n# TYPE x_total counter\nx_total{le=\"1\",model_name=\"a\\\"b\\\\c\"} 2.0\n\
             # HELP x_created Help.\n# TYPE x_created gauge\nx_created{le=\"1\",model_name=\"a\\\"b\\\\c\"} 1.5\n"
        );
    }
}
