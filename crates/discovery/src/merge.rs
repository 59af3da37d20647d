//! One list from many sources: order, names, and what is there twice. No IO.

use std::collections::{HashMap, HashSet};
use std::fmt;

use config::{Upstream, UpstreamUrl};

use crate::event::Event;

/// Bounds everything that has a place for each endpoint.
const MAX_ENDPOINTS: usize = 20_000;
/// The derived names of upstreams that are given none.
const PREFIX: &str = "engine";

/// Where an endpoint comes from.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The configuration itself.
    Config,
    /// A file of `upstream_files`.
    File(String),
    /// A name of `upstream_dns`.
    Dns(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config => f.write_str("configuration"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Dns(host) => write!(f, "DNS {host}"),
        }
    }
}

/// One engine that requests can be sent to.
#[derive(Debug, Clone, PartialEq)]
pub struct Endpoint {
    /// Unique in its list; never an address. Stays the same as long as the URL stays in the list.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
    /// Where it is, and what is known about it.
    pub upstream: Upstream,
}

/// What one source has to offer.
pub(crate) struct Offer {
    pub origin: Origin,
    /// The prefix of derived names.
    pub prefix: Option<String>,
    pub upstreams: Vec<Upstream>,
}

/// Names that were derived, by URL, so that they stay.
#[derive(Debug, Default)]
pub(crate) struct Names {
    derived: HashMap<UpstreamUrl, String>,
}

/// One list of the offers, first ones first. Events are about what was left out.
pub(crate) fn merge(offers: Vec<Offer>, names: &mut Names) -> (Vec<Endpoint>, Vec<Event>) {
    let mut events = Vec::new();
    let mut urls: HashSet<UpstreamUrl> = HashSet::new();
    let mut taken: HashMap<String, UpstreamUrl> = HashMap::new();
    // A name of `None` is derived once all given names are known.
    let mut kept: Vec<(Option<String>, Offered)> = Vec::new();
    let mut left_out = 0;
    for offer in offers {
        for upstream in offer.upstreams {
            let origin = offer.origin.clone();
            let url = upstream.url.clone();
            if urls.contains(&url) {
                events.push(Event::UrlRepeated { url, origin });
                continue;
            }
            let name = upstream.name.as_ref().map(ToString::to_string);
            if let Some(by) = name.as_ref().and_then(|name| taken.get(name)) {
                let name = name.unwrap_or_default();
                let by = by.clone();
                events.push(Event::NameTaken { name, by, left_out: url, origin });
                continue;
            }
            if kept.len() == MAX_ENDPOINTS {
                left_out += 1;
                continue;
            }
            urls.insert(url.clone());
            if let Some(name) = &name {
                taken.insert(name.clone(), url);
            }
            let prefix = offer.prefix.clone();
            kept.push((name, Offered { origin, prefix, upstream }));
        }
    }
    if left_out > 0 {
        events.push(Event::TooMany { left_out });
    }
    // Names that were derived before stay, unless somebody was given them since.
    for (name, offered) in kept.iter_mut().filter(|(name, _)| name.is_none()) {
        let before = names.derived.get(&offered.upstream.url);
        if let Some(before) =
            before.filter(|before| is_numbered(before, offered.prefix()) && !taken.contains_key(*before))
        {
            taken.insert(before.clone(), offered.upstream.url.clone());
            *name = Some(before.clone());
        }
    }
    let mut next: HashMap<String, u64> = HashMap::new();
    let mut derived = HashMap::new();
    let endpoints = kept
        .into_iter()
        .map(|(name, offered)| {
            let name = name.unwrap_or_else(|| {
                let number = next.entry(offered.prefix().to_owned()).or_insert(1);
                loop {
                    let name = format!("{}-{number}", offered.prefix());
                    *number += 1;
                    if !taken.contains_key(&name) {
                        break name;
                    }
                }
            });
            if offered.upstream.name.is_none() {
                derived.insert(offered.upstream.url.clone(), name.clone());
            }
            Endpoint { name, origin: offered.origin, upstream: offered.upstream }
        })
        .collect();
    names.derived = derived;
    (endpoints, events)
}

struct Offered {
    origin: Origin,
    prefix: Option<String>,
    upstream: Upstream,
}

impl Offered {
    fn prefix(&self) -> &str {
        self.prefix.as_deref().unwrap_or(PREFIX)
    }
}

fn is_numbered(name: &str, prefix: &str) -> bool {
    name.strip_prefix(prefix)
        .and_then(|rest| rest.strip_prefix('-'))
        .is_some_and(|number| number.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(origin: Origin, text: &str) -> Offer {
        let text = format!("upstreams: [{text}]");
        let list = config::UpstreamList::from_yaml("x", text.as_bytes()).unwrap();
        Offer { origin, prefix: None, upstreams: list.upstreams }
    }

    fn config(text: &str) -> Offer {
        offer(Origin::Config, text)
    }

    fn names(endpoints: &[Endpoint]) -> Vec<String> {
        let show = |e: &Endpoint| format!("{}={}", e.name, e.upstream.url.host());
        endpoints.iter().map(show).collect()
    }

    #[test]
    fn names_are_derived_in_order_around_the_given_ones() {
        let offers = vec![config("{url: http://a}, {url: http://b, name: engine-2}, {url: http://c}")];
        let (endpoints, events) = merge(offers, &mut Names::default());
        assert_eq!(names(&endpoints), ["engine-1=a", "engine-2=b", "engine-3=c"]);
        assert!(events.is_empty());
    }

    #[test]
    fn a_derived_name_stays_with_its_url() {
        let mut kept = Names::default();
        merge(vec![config("{url: http://a}, {url: http://b}, {url: http://c}")], &mut kept);
        let (endpoints, _) = merge(vec![config("{url: http://c}, {url: http://b}")], &mut kept);
        assert_eq!(names(&endpoints), ["engine-3=c", "engine-2=b"]);
        // The number that became free is used before a new one, so that names stay few.
        let offers = vec![config("{url: http://d}, {url: http://c}, {url: http://b}, {url: http://e}")];
        let (endpoints, _) = merge(offers, &mut kept);
        assert_eq!(names(&endpoints), ["engine-1=d", "engine-3=c", "engine-2=b", "engine-4=e"]);
    }

    #[test]
    fn a_given_name_wins_over_a_derived_one() {
        let mut kept = Names::default();
        merge(vec![config("{url: http://a}")], &mut kept);
        let offers = vec![config("{url: http://a}, {url: http://b, name: engine-1}")];
        let (endpoints, _) = merge(offers, &mut kept);
        assert_eq!(names(&endpoints), ["engine-2=a", "engine-1=b"]);
    }

    #[test]
    fn what_is_there_twice_counts_once() {
        let file = offer(
            Origin::File("f".into()),
            "{url: http://a, name: x}, {url: http://b, name: y}, {url: http://c}",
        );
        let offers = vec![config("{url: http://a}, {url: http://d, name: y}"), file];
        let (endpoints, events) = merge(offers, &mut Names::default());
        assert_eq!(names(&endpoints), ["engine-1=a", "y=d", "engine-2=c"]);
        assert!(matches!(&events[0], Event::UrlRepeated { url, .. } if url.to_string() == "http://a:80"));
        assert!(matches!(&events[1], Event::NameTaken { name, .. } if name == "y"), "{events:?}");
    }

    #[test]
    fn a_source_names_its_own() {
        let mut dns = offer(Origin::Dns("d".into()), "{url: http://a}, {url: http://b}");
        dns.prefix = Some("vllm".into());
        let (endpoints, _) = merge(vec![dns, config("{url: http://c}")], &mut Names::default());
        assert_eq!(names(&endpoints), ["vllm-1=a", "vllm-2=b", "engine-1=c"]);
    }

    #[test]
    fn there_is_a_bound() {
        let url = |n: usize| format!("http://h{n}:80").parse().unwrap();
        let upstreams = (0..MAX_ENDPOINTS + 5).map(|n| Upstream::at(url(n))).collect();
        let offers = vec![Offer { origin: Origin::Config, prefix: None, upstreams }];
        let (endpoints, events) = merge(offers, &mut Names::default());
        assert_eq!(endpoints.len(), MAX_ENDPOINTS);
        assert!(matches!(events[..], [Event::TooMany { left_out: 5 }]));
    }
}
