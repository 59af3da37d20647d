//! The engines behind a DNS name, looked up again and again.

mod client;
mod message;
mod system;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use config::{DnsType, Family};
use futures_util::StreamExt;

pub use client::DnsError;
pub use system::Nameservers;

use message::{Kind, MAX_RECORDS, Record, Service};
use system::Setup;

/// That a name has no answer any more must be said this often in a row: a name server that is just starting says it
/// too, of every name.
const EMPTY_ANSWERS_BELIEVED: u32 = 3;
/// Targets of SRV records that are looked up at the same time.
const TARGETS_AT_ONCE: usize = 8;

/// What is looked up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Question {
    pub host: String,
    pub records: DnsType,
    pub family: Family,
    pub port: u16,
}

/// One engine behind the name.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Located {
    pub addr: SocketAddr,
    /// Its part compared with the average of its name: 1 without SRV weights.
    pub share: f64,
}

/// What a lookup came to.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// What is to be used now, in a stable order.
    pub located: Vec<Located>,
    /// The first failure, if there was one; what it concerns is as before.
    pub error: Option<DnsError>,
    /// More answers than are used.
    pub cut: bool,
}

/// Looks one name up and remembers its last answers.
pub(crate) struct Lookup {
    question: Question,
    v4: Memory<IpAddr>,
    v6: Memory<IpAddr>,
    services: Memory<Service>,
    targets: HashMap<String, IpAddr>,
}

/// The last answer, which outlives failures.
struct Memory<T> {
    last: Vec<T>,
    empty_answers: u32,
}

impl<T> Memory<T> {
    const fn new() -> Self {
        Self { last: Vec::new(), empty_answers: 0 }
    }

    /// Takes a new answer in; a failure leaves the old one.
    fn take(&mut self, answer: Result<Vec<T>, DnsError>) -> Option<DnsError> {
        match answer {
            Err(error) => return Some(error),
            Ok(records) if records.is_empty() => {
                self.empty_answers += 1;
                if self.empty_answers >= EMPTY_ANSWERS_BELIEVED {
                    self.last.clear();
                }
            }
            Ok(records) => {
                self.empty_answers = 0;
                self.last = records;
            }
        }
        None
    }
}

impl Lookup {
    pub(crate) fn new(question: Question) -> Self {
        Self {
            question,
            v4: Memory::new(),
            v6: Memory::new(),
            services: Memory::new(),
            targets: HashMap::new(),
        }
    }

    pub(crate) async fn run(&mut self, nameservers: &Nameservers) -> Outcome {
        let setup = nameservers.setup().await;
        match self.question.records {
            DnsType::A => self.addresses(&setup).await,
            DnsType::Srv => self.services(&setup).await,
        }
    }

    async fn addresses(&mut self, setup: &Setup) -> Outcome {
        let family = self.question.family;
        let (v4, v6) = both_families(setup, &self.question.host, family).await;
        let mut error = None;
        for (memory, answer) in [(&mut self.v4, v4), (&mut self.v6, v6)] {
            // A family that is not asked for is no answer at all.
            if let Some(answer) = answer {
                error = error.or(memory.take(answer));
            }
        }
        let all = self.v4.last.len() + self.v6.last.len();
        let port = self.question.port;
        let located = self.v4.last.iter().chain(&self.v6.last).take(MAX_RECORDS);
        Outcome {
            located: located.map(|ip| Located { addr: SocketAddr::new(*ip, port), share: 1.0 }).collect(),
            error,
            cut: all > MAX_RECORDS,
        }
    }

    async fn services(&mut self, setup: &Setup) -> Outcome {
        let answer = first_answer(setup, &self.question.host, Kind::Srv).await;
        let answer = answer.map(|records| {
            let service = |record| match record {
                Record::Service(service) => Some(service),
                Record::Address(_) => None,
            };
            records.into_iter().filter_map(service).collect()
        });
        let mut error = self.services.take(answer);
        let cut = self.services.last.len() > MAX_RECORDS;
        let services: Vec<Service> = self.services.last.iter().take(MAX_RECORDS).cloned().collect();
        let mut names: Vec<_> = services.iter().map(|service| service.target.clone()).collect();
        names.dedup();
        let family = self.question.family;
        let answers: Vec<_> = futures_util::stream::iter(names)
            .map(|name| async move {
                let address = target_address(setup, &name, family).await;
                (name, address)
            })
            .buffered(TARGETS_AT_ONCE)
            .collect()
            .await;
        let mut targets = HashMap::new();
        for (name, answer) in answers {
            let address = match answer {
                Ok(address) => address,
                Err(failure) => {
                    error = error.or(Some(failure));
                    self.targets.get(&name).copied()
                }
            };
            if let Some(address) = address {
                targets.insert(name, address);
            }
        }
        self.targets = targets;
        Outcome { located: shares(&services, &self.targets), error, cut }
    }
}

/// The reachable services of the lowest priority number, each with its part of the work.
fn shares(services: &[Service], targets: &HashMap<String, IpAddr>) -> Vec<Located> {
    let known = |service: &&Service| targets.contains_key(&service.target);
    let best = services.iter().filter(known).map(|service| service.priority).min();
    let used: Vec<&Service> =
        services.iter().filter(known).filter(|service| Some(service.priority) == best).collect();
    let sum: f64 = used.iter().map(|service| f64::from(service.weight)).sum();
    used.iter()
        .map(|service| {
            let share = if sum > 0.0 { f64::from(service.weight) * used.len() as f64 / sum } else { 1.0 };
            Located { addr: SocketAddr::new(targets[&service.target], service.port), share }
        })
        .collect()
}

type Answer = Result<Vec<IpAddr>, DnsError>;

/// Addresses of both families of the first full name that has any; `None` for a family that is not wanted.
async fn both_families(setup: &Setup, name: &str, family: Family) -> (Option<Answer>, Option<Answer>) {
    let (want_v4, want_v6) = (family != Family::Ipv6, family != Family::Ipv4);
    let hosts = setup.in_hosts(name);
    let in_hosts = |v6: bool| hosts.iter().copied().filter(move |ip| ip.is_ipv6() == v6);
    if !hosts.is_empty() {
        let v4 = want_v4.then(|| Ok(in_hosts(false).collect()));
        return (v4, want_v6.then(|| Ok(in_hosts(true).collect())));
    }
    let mut failures = (None, None);
    for candidate in setup.candidates(name) {
        let (v4, v6) = tokio::join!(
            wanted(want_v4, setup, &candidate, Kind::A),
            wanted(want_v6, setup, &candidate, Kind::Aaaa),
        );
        let some = |answer: &Option<Answer>| matches!(answer, Some(Ok(ips)) if !ips.is_empty());
        if some(&v4) || some(&v6) {
            return (v4, v6);
        }
        failures.0 = failures.0.or(v4.and_then(Result::err));
        failures.1 = failures.1.or(v6.and_then(Result::err));
    }
    // Nothing anywhere: that is an answer only if every server said so.
    let outcome = |failure: Option<DnsError>| match failure {
        Some(error) => Err(error),
        None => Ok(Vec::new()),
    };
    let (v4, v6) = (outcome(failures.0), outcome(failures.1));
    (want_v4.then_some(v4), want_v6.then_some(v6))
}

async fn wanted(wanted: bool, setup: &Setup, name: &str, kind: Kind) -> Option<Answer> {
    if !wanted {
        return None;
    }
    let address = |record| match record {
        Record::Address(ip) => Some(ip),
        Record::Service(_) => None,
    };
    let answer = setup.client.ask(name, kind).await;
    Some(answer.map(|records| records.into_iter().filter_map(address).collect()))
}

/// Records of the first full name that has any.
async fn first_answer(setup: &Setup, name: &str, kind: Kind) -> Result<Vec<Record>, DnsError> {
    let mut failure = None;
    for candidate in setup.candidates(name) {
        match setup.client.ask(&candidate, kind).await {
            Ok(records) if !records.is_empty() => return Ok(records),
            Ok(_) => {}
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(Vec::new()), Err)
}

/// One address for the target of an SRV record, which is one engine however many addresses it has: IPv4 if there is one.
async fn target_address(setup: &Setup, name: &str, family: Family) -> Result<Option<IpAddr>, DnsError> {
    // Targets are full names.
    let (v4, v6) = both_families(setup, &format!("{name}."), family).await;
    let answers = [v4, v6].into_iter().flatten();
    let mut failure = None;
    for answer in answers {
        match answer {
            Ok(ips) => {
                if let Some(ip) = ips.first() {
                    return Ok(Some(*ip));
                }
            }
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    failure.map_or(Ok(None), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_outlives_failures_and_short_emptiness() {
        let mut memory = Memory::new();
        assert_eq!(memory.take(Ok(vec![1, 2])), None);
        assert_eq!(memory.take(Err(DnsError::NoServer)), Some(DnsError::NoServer));
        assert_eq!(memory.last, [1, 2]);
        memory.take(Ok(vec![]));
        memory.take(Ok(vec![]));
        assert_eq!(memory.last, [1, 2]);
        memory.take(Ok(vec![]));
        assert_eq!(memory.last, [0; 0]);
    }

    fn service(priority: u16, weight: u16, target: &str) -> Service {
        let target = target.to_owned();
        Service { priority, weight, port: 80, target }
    }

    #[test]
    fn the_lowest_priority_that_has_addresses_is_used_by_weight() {
        let targets = ["b", "c", "d"].map(|name| (name.to_owned(), IpAddr::from([10, 0, 0, 1])));
        let targets = HashMap::from(targets);
        let services = [service(0, 1, "a"), service(1, 1, "b"), service(1, 3, "c"), service(2, 9, "d")];
        let found: Vec<f64> = shares(&services, &targets).iter().map(|l| l.share).collect();
        assert_eq!(found, [0.5, 1.5]);
        let even = [service(0, 0, "b"), service(0, 0, "c")];
        let found: Vec<f64> = shares(&even, &targets).iter().map(|l| l.share).collect();
        assert_eq!(found, [1.0, 1.0]);
    }
}
