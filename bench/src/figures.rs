//! Figures by case, metric and proxy, round by round, and the ratios between proxies.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::peers::Peer;

/// All figures of a run, in the order in which cases and metrics came up.
#[derive(Default)]
pub struct Figures {
    keys: Vec<(String, String)>,
    rounds: BTreeMap<(String, String, Peer), Vec<f64>>,
}

/// A median with the extremes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Median over the rounds.
    pub median: f64,
    /// The least of them.
    pub min: f64,
    /// The greatest of them.
    pub max: f64,
}

/// The gateway beside one peer.
#[derive(Debug, Serialize)]
pub struct Row {
    /// What was sent.
    pub case: String,
    /// What was measured, with its unit.
    pub metric: String,
    /// The gateway's median.
    pub ridge: Option<f64>,
    /// The peer's median.
    pub peer: f64,
    /// Which peer.
    pub peer_name: String,
    /// The median over rounds of the gateway's figure divided by the peer's of the same round.
    pub ratio: Option<f64>,
    /// The least and the greatest ratio of a round.
    pub ratio_range: Option<[f64; 2]>,
}

impl Figures {
    /// Adds a round's figure.
    pub fn add(&mut self, case: &str, metric: &str, peer: Peer, value: f64) {
        let key = (case.to_owned(), metric.to_owned());
        if !self.keys.contains(&key) {
            self.keys.push(key);
        }
        self.rounds.entry((case.to_owned(), metric.to_owned(), peer)).or_default().push(value);
    }

    fn of(&self, case: &str, metric: &str, peer: Peer) -> &[f64] {
        self.rounds.get(&(case.to_owned(), metric.to_owned(), peer)).map_or(&[], Vec::as_slice)
    }

    /// A proxy's figure.
    pub fn spread(&self, case: &str, metric: &str, peer: Peer) -> Option<Spread> {
        spread(self.of(case, metric, peer))
    }

    /// A proxy's figures of all rounds added up.
    pub fn sum(&self, case: &str, metric: &str, peer: Peer) -> f64 {
        self.of(case, metric, peer).iter().sum()
    }

    /// One proxy's figure divided by another's, round by round: what changes on the machine between rounds hits both.
    pub fn ratio(&self, case: &str, metric: &str, of: Peer, to: Peer) -> Option<Spread> {
        let pairs = self.of(case, metric, of).iter().zip(self.of(case, metric, to));
        spread(&pairs.filter(|(_, to)| **to > 0.0).map(|(of, to)| of / to).collect::<Vec<_>>())
    }

    /// The gateway beside each peer, for every case and metric.
    pub fn rows(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (case, metric) in &self.keys {
            let peers = self.rounds.keys().filter(|(c, m, p)| c == case && m == metric && *p != Peer::Ridge);
            for (_, _, peer) in peers {
                let ratio = self.ratio(case, metric, Peer::Ridge, *peer);
                rows.push(Row {
                    case: case.clone(),
                    metric: metric.clone(),
                    ridge: self.spread(case, metric, Peer::Ridge).map(|spread| round(spread.median)),
                    peer: self.spread(case, metric, *peer).map_or(f64::NAN, |spread| round(spread.median)),
                    peer_name: peer.name(),
                    ratio: ratio.map(|spread| round(spread.median)),
                    ratio_range: ratio.map(|spread| [round(spread.min), round(spread.max)]),
                });
            }
        }
        rows
    }
}

fn round(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn spread(values: &[f64]) -> Option<Spread> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let (min, max) = (*sorted.first()?, *sorted.last()?);
    let middle = sorted.len() / 2;
    let median =
        if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 };
    Some(Spread { median, min, max })
}

/// A number with three significant digits or so.
pub fn show(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A Markdown table.
pub fn table(head: &[String], rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
    let mut text = line(head);
    text += &line(&vec!["---".to_owned(); head.len()]);
    for row in rows {
        text += &line(row);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_pair_rounds() {
        let mut figures = Figures::default();
        // The machine is twice as slow in the second round; the ratio is not touched by it.
        for (ridge, nginx) in [(10.0, 20.0), (20.0, 40.0), (15.0, 20.0)] {
            figures.add("json2k", "cpu_us", Peer::Ridge, ridge);
            figures.add("json2k", "cpu_us", Peer::Nginx, nginx);
        }
        let ratio = figures.ratio("json2k", "cpu_us", Peer::Ridge, Peer::Nginx).unwrap();
        assert_eq!(ratio, Spread { median: 0.5, min: 0.5, max: 0.75 });
        let rows = figures.rows();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].ridge, rows[0].peer, rows[0].ratio), (Some(15.0), 20.0, Some(0.5)));
    }

    #[test]
    fn a_run_without_the_gateway_still_has_rows() {
        let mut figures = Figures::default();
        figures.add("json2k", "cpu_us", Peer::Nginx, 20.0);
        assert_eq!(figures.rows()[0].ratio, None);
        assert!(figures.spread("json2k", "cpu_us", Peer::Ridge).is_none());
    }
}
