//! What the machine says about names: `/etc/resolv.conf` and `/etc/hosts`.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::time::Duration;

use super::client::Client;

const MAX_BYTES: usize = 1 << 20;
const MAX_SERVERS: usize = 3;
const MAX_SEARCH: usize = 32;

/// Which name servers are asked.
#[derive(Debug, Clone)]
pub enum Nameservers {
    /// As the machine is set up. The files are read for each lookup, so changes need no restart.
    System {
        /// Usually `/etc/resolv.conf`.
        resolv_conf: PathBuf,
        /// Usually `/etc/hosts`.
        hosts: PathBuf,
    },
    /// These, and neither search domains nor a hosts file.
    Fixed {
        /// Asked in this order.
        servers: Vec<SocketAddr>,
        /// How long each is given for an answer.
        timeout: Duration,
    },
}

impl Default for Nameservers {
    fn default() -> Self {
        Self::System { resolv_conf: "/etc/resolv.conf".into(), hosts: "/etc/hosts".into() }
    }
}

/// How names are looked up, for one lookup.
pub(crate) struct Setup {
    pub client: Client,
    search: Vec<String>,
    ndots: usize,
    hosts: String,
}

impl Nameservers {
    pub(crate) async fn setup(&self) -> Setup {
        match self {
            Self::Fixed { servers, timeout } => Setup {
                client: Client { servers: servers.clone(), timeout: *timeout, attempts: 2 },
                search: Vec::new(),
                ndots: 1,
                hosts: String::new(),
            },
            Self::System { resolv_conf, hosts } => {
                let text = tokio::fs::read(resolv_conf).await.unwrap_or_default();
                let hosts = tokio::fs::read(hosts).await.unwrap_or_default();
                let cut = |text: Vec<u8>| text[..text.len().min(MAX_BYTES)].to_vec();
                let hosts = String::from_utf8_lossy(&cut(hosts)).into_owned();
                Setup::from_resolv_conf(&cut(text), hosts)
            }
        }
    }
}

impl Setup {
    fn from_resolv_conf(text: &[u8], hosts: String) -> Self {
        // Lines that cannot be read are passed over, as by every resolver.
        let (conf, _) = resolv_conf::Config::parse_with_errors(text);
        let servers = conf
            .get_nameservers_or_local()
            .into_iter()
            .take(MAX_SERVERS)
            .map(|server| {
                let zone = match &server {
                    resolv_conf::ScopedIp::V6(_, Some(zone)) => zone.parse().unwrap_or(0),
                    _ => 0,
                };
                match IpAddr::from(server) {
                    IpAddr::V4(ip) => SocketAddr::from((ip, 53)),
                    IpAddr::V6(ip) => SocketAddrV6::new(ip, 53, 0, zone).into(),
                }
            })
            .collect();
        Self {
            client: Client {
                servers,
                timeout: Duration::from_secs(u64::from(conf.timeout.clamp(1, 5))),
                attempts: conf.attempts.clamp(1, 3),
            },
            search: conf
                .get_last_search_or_domain()
                .take(MAX_SEARCH)
                .map(|domain| domain.trim_matches('.').to_owned())
                .filter(|domain| !domain.is_empty())
                .collect(),
            ndots: usize::try_from(conf.ndots).unwrap_or(1),
            hosts,
        }
    }

    /// The full names to try for a name, in order.
    pub(crate) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(absolute) = name.strip_suffix('.') {
            return vec![absolute.to_owned()];
        }
        let searched = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let as_is = std::iter::once(name.to_owned());
        let dots = name.bytes().filter(|b| *b == b'.').count();
        if dots >= self.ndots { as_is.chain(searched).collect() } else { searched.chain(as_is).collect() }
    }

    /// Addresses that the hosts file has for a name.
    pub(crate) fn in_hosts(&self, name: &str) -> Vec<IpAddr> {
        let name = name.trim_end_matches('.');
        self.hosts
            .lines()
            .filter_map(|line| {
                let mut words = line.split('#').next()?.split_whitespace();
                let ip = words.next()?.parse().ok()?;
                words.any(|word| word.eq_ignore_ascii_case(name)).then_some(ip)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setup(resolv_conf: &str, hosts: &str) -> Setup {
        Setup::from_resolv_conf(resolv_conf.as_bytes(), hosts.to_owned())
    }

    #[test]
    fn a_cluster_looks_in_its_own_domains_first() {
        let text = "search ns.svc.cluster.local svc.cluster.local\nnameserver 10.96.0.10\noptions ndots:5\n";
        let setup = setup(text, "");
        assert_eq!(setup.client.servers, ["10.96.0.10:53".parse().unwrap()]);
        assert_eq!(
            setup.candidates("vllm.ns"),
            ["vllm.ns.ns.svc.cluster.local", "vllm.ns.svc.cluster.local", "vllm.ns"]
        );
        assert_eq!(setup.candidates("vllm.ns."), ["vllm.ns"]);
        assert_eq!(setup.candidates("a.b.c.d.e.f")[0], "a.b.c.d.e.f");
    }

    #[test]
    fn an_empty_file_means_this_machine() {
        assert!(!setup("", "").client.servers.is_empty());
        assert!(!setup("nonsense\nnameserver x\n", "").client.servers.is_empty());
    }

    #[test]
    fn hosts_are_found_by_any_of_their_names() {
        let setup = setup("", "127.0.0.1 localhost\n::1 localhost ip6-localhost # own\n#1.1.1.1 a\nx y\n");
        let both: Vec<IpAddr> = vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(setup.in_hosts("LocalHost."), both);
        assert_eq!(setup.in_hosts("own"), Vec::<IpAddr>::new());
    }
}
