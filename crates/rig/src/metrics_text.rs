//! Prometheus text, read far enough to ask for a value.

use std::collections::BTreeMap;

/// The samples of one metrics page.
#[derive(Clone, Debug, Default)]
pub struct MetricsText {
    samples: Vec<(String, BTreeMap<String, String>, f64)>,
}

impl MetricsText {
    /// Reads `text`; lines that are not samples are passed over.
    pub fn parse(text: &str) -> Self {
        Self { samples: text.lines().filter_map(sample).collect() }
    }

    /// The sum over all series of `name` that carry every one of `labels`; None when there is no such series.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = None;
        for (_, _, value) in self.samples.iter().filter(|(sample_name, sample_labels, _)| {
            sample_name == name
                && labels
                    .iter()
                    .all(|(key, wanted)| sample_labels.get(*key).is_some_and(|have| have == wanted))
        }) {
            *found.get_or_insert(0.0) += value;
        }
        found
    }

    /// Every series of `name`: its labels and value.
    pub fn series(&self, name: &str) -> Vec<(BTreeMap<String, String>, f64)> {
        let of_name = self.samples.iter().filter(|(sample_name, _, _)| sample_name == name);
        of_name.map(|(_, labels, value)| (labels.clone(), *value)).collect()
    }

    /// The names that occur, each once, sorted.
    pub fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.samples.iter().map(|(name, _, _)| name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }
}

fn sample(line: &str) -> Option<(String, BTreeMap<String, String>, f64)> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return None;
    }
    let name_end = line.find(['{', ' '])?;
    let name = line[..name_end].to_owned();
    let mut labels = BTreeMap::new();
    let mut rest = &line[name_end..];
    if let Some(inside) = rest.strip_prefix('{') {
        let mut inside = inside;
        while !inside.starts_with('}') {
            let (key, after_key) = inside.split_once("=\"")?;
            let (value, after_value) = quoted(after_key)?;
            labels.insert(key.trim_start_matches(',').trim().to_owned(), value);
            inside = after_value;
        }
        rest = &inside[1..];
    }
    let value = rest.split_whitespace().next()?;
    Some((name, labels, value.parse().ok()?))
}

/// Reads up to the closing quote, with its escapes.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, &text[at + 1..])),
            '\\' => match letters.next()?.1 {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_the_series_that_carry_the_labels() {
        let page = MetricsText::parse(
            "# HELP x y\nx_total{a=\"1\",b=\"q\\\"}\"} 2\nx_total{a=\"2\",b=\"\"} 3.5 1700000000\ny 1\n",
        );
        assert_eq!(page.sum("x_total", &[]), Some(5.5));
        assert_eq!(page.sum("x_total", &[("a", "1")]), Some(2.0));
        assert_eq!(page.sum("x_total", &[("b", "q\"}")]), Some(2.0));
        assert_eq!(page.sum("y", &[]), Some(1.0));
        assert_eq!(page.sum("z", &[]), None);
    }
}
