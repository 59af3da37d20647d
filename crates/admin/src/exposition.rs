//! Writing the Prometheus text format 0.0.4.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

/// A page in the making. Families keep the order in which they were first named; all series of one stand together,
/// as the format demands, whatever the order of the calls.
#[derive(Default)]
pub(crate) struct Exposition {
    families: Vec<Family>,
    by_name: HashMap<String, usize>,
}

struct Family {
    head: String,
    series: String,
}

/// The type of a family.
#[derive(Clone, Copy)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// Label names and values.
pub(crate) type Labels<'a> = [(&'a str, &'a str)];

impl Exposition {
    /// Names a family, so that it is on the page even without a series. A name that the format does not allow is
    /// left out with its series: one bad name must not make the whole page unreadable.
    pub(crate) fn family(&mut self, name: &str, kind: Kind, help: &str) -> Option<Writer<'_>> {
        if !is_metric_name(name) {
            return None;
        }
        let index = match self.by_name.get(name) {
            Some(&index) => index,
            None => {
                let head = format!("# HELP {name} {}\n# TYPE {name} {}\n", escape_help(help), kind.as_str());
                self.families.push(Family { head, series: String::new() });
                self.by_name.insert(name.to_owned(), self.families.len() - 1);
                self.families.len() - 1
            }
        };
        Some(Writer { name: name.to_owned(), out: &mut self.families[index].series })
    }

    pub(crate) fn finish(self) -> String {
        let bytes = self.families.iter().map(|family| family.head.len() + family.series.len()).sum();
        let mut page = String::with_capacity(bytes);
        for family in self.families {
            page.push_str(&family.head);
            page.push_str(&family.series);
        }
        page
    }
}

/// Writes the series of one family.
pub(crate) struct Writer<'a> {
    name: String,
    out: &'a mut String,
}

impl Writer<'_> {
    pub(crate) fn series(&mut self, labels: &Labels<'_>, value: f64) {
        write_series(self.out, &self.name, "", labels, None, value);
    }

    /// `counts` are per bucket; the format wants them added up.
    pub(crate) fn histogram(&mut self, labels: &Labels<'_>, bounds: &[f64], counts: &[u64], sum: f64) {
        let mut below = 0u64;
        for (bound, count) in bounds.iter().zip(counts) {
            below = below.saturating_add(*count);
            let bound = number(*bound);
            write_series(self.out, &self.name, "_bucket", labels, Some(("le", &bound)), below as f64);
        }
        let all = counts.iter().fold(0u64, |sum, count| sum.saturating_add(*count));
        write_series(self.out, &self.name, "_bucket", labels, Some(("le", "+Inf")), all as f64);
        write_series(self.out, &self.name, "_sum", labels, None, sum);
        write_series(self.out, &self.name, "_count", labels, None, all as f64);
    }
}

fn write_series(
    out: &mut String,
    name: &str,
    suffix: &str,
    labels: &Labels<'_>,
    last: Option<(&str, &str)>,
    value: f64,
) {
    out.push_str(name);
    out.push_str(suffix);
    let mut open = false;
    for (label, text) in labels.iter().copied().chain(last) {
        if !is_label_name(label) {
            continue;
        }
        out.push(if open { ',' } else { '{' });
        open = true;
        // Writing to a string cannot fail.
        let _ = write!(out, "{label}=\"{}\"", escape_label(text));
    }
    if open {
        out.push('}');
    }
    out.push(' ');
    out.push_str(&number(value));
    out.push('\n');
}

fn number(value: f64) -> Cow<'static, str> {
    if value.is_nan() {
        "NaN".into()
    } else if value.is_infinite() {
        if value > 0.0 { "+Inf".into() } else { "-Inf".into() }
    } else {
        value.to_string().into()
    }
}

fn is_metric_name(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':')
}

fn is_label_name(name: &str) -> bool {
    is_metric_name(name) && !name.contains(':') && !name.starts_with("__")
}

fn escape_help(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '\n']) {
        text.replace('\\', "\\\\").replace('\n', "\\n").into()
    } else {
        text.into()
    }
}

fn escape_label(text: &str) -> Cow<'_, str> {
    if text.contains(['\\', '\n', '"']) {
        text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn series_of_one_family_stand_together_and_text_is_escaped() {
        let mut page = Exposition::default();
        page.family("a_total", Kind::Counter, "two\nlines \\ \"q\"")
            .unwrap()
            .series(&[("m", "x\"\\\n")], 1.0);
        page.family("b", Kind::Gauge, "B").unwrap().series(&[], 0.5);
        page.family("a_total", Kind::Counter, "ignored")
            .unwrap()
            .series(&[("m", "é"), ("bad-name", "x")], 2e20);
        assert_eq!(
            page.finish(),
            "# HELP a_total two\\nlines \\\\ \"q\"\n# TYPE a_total counter\na_total{m=\"x\\\"\\\\\\n\"} 1\n\
             a_total{m=\"é\"} 200000000000000000000\n# HELP b B\n# TYPE b gauge\nb 0.5\n"
        );
    }

    #[test]
    fn buckets_add_up() {
        let mut page = Exposition::default();
        page.family("h", Kind::Histogram, "H").unwrap().histogram(
            &[("e", "1")],
            &[0.1, 1.0],
            &[2, 3, 4],
            7.5,
        );
        assert_eq!(
            page.finish().lines().skip(2).collect::<Vec<_>>(),
            [
                "h_bucket{e=\"1\",le=\"0.1\"} 2",
                "h_bucket{e=\"1\",le=\"1\"} 5",
                "h_bucket{e=\"1\",le=\"+Inf\"} 9",
                "h_sum{e=\"1\"} 7.5",
                "h_count{e=\"1\"} 9",
            ]
        );
    }

    #[test]
    fn numbers_are_spelt_as_the_format_wants() {
        let spelt = [0.0, 1e21, 0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number);
        assert_eq!(spelt, ["0", "1000000000000000000000", "0.1", "NaN", "+Inf", "-Inf"]);
    }

    #[test]
    fn a_name_that_is_not_allowed_is_left_out() {
        let mut page = Exposition::default();
        for name in ["", "1a", "a-b", "a b", "é"] {
            assert!(page.family(name, Kind::Gauge, "").is_none(), "{name:?}");
        }
        assert_eq!(page.finish(), "");
    }
}
