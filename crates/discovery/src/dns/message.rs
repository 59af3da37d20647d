//! DNS messages: the question, and what an answer says to it.

use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use simple_dns::rdata::RData;
use simple_dns::{CLASS, Name, Packet, PacketFlag, QCLASS, QTYPE, Question, RCODE, TYPE};

/// Answers of one name beyond this are left out.
pub(crate) const MAX_RECORDS: usize = 1024;
/// Longer chains of aliases are loops.
const MAX_ALIASES: usize = 16;

/// What is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    A,
    Aaaa,
    Srv,
}

impl Kind {
    fn qtype(self) -> TYPE {
        match self {
            Self::A => TYPE::A,
            Self::Aaaa => TYPE::AAAA,
            Self::Srv => TYPE::SRV,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Record {
    Address(IpAddr),
    Service(Service),
}

/// An SRV record.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Service {
    pub priority: u16,
    pub target: String,
    pub port: u16,
    pub weight: u16,
}

/// What a message says to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// It is no answer to this question: wait on.
    NotOurs,
    /// It did not fit: ask again over TCP.
    Truncated,
    /// Records, perhaps none: there is no such name, or it has no such record.
    Records(Vec<Record>),
    /// The server cannot tell.
    Failure(String),
}

/// The bytes of a question; `None` when the name cannot stand in one.
pub(crate) fn question(id: u16, name: &str, kind: Kind) -> Option<Vec<u8>> {
    let mut packet = Packet::new_query(id);
    packet.set_flags(PacketFlag::RECURSION_DESIRED);
    let name = Name::new(name).ok()?;
    let question = Question::new(name, QTYPE::TYPE(kind.qtype()), QCLASS::CLASS(CLASS::IN), false);
    packet.questions.push(question);
    packet.build_bytes_vec().ok()
}

/// Reads a message that came in answer to a question.
pub(crate) fn reply(bytes: &[u8], id: u16, name: &str, kind: Kind) -> Reply {
    let Ok(packet) = Packet::parse(bytes) else {
        // A truncated message may end in the middle of a record.
        let header_says_truncated =
            bytes.len() >= 12 && bytes[..2] == id.to_be_bytes() && bytes[2] & 0b1000_0010 == 0b1000_0010;
        return if header_says_truncated { Reply::Truncated } else { Reply::NotOurs };
    };
    let name = plain(name);
    let ours = packet.id() == id
        && packet.has_flags(PacketFlag::RESPONSE)
        && packet.questions.len() == 1
        && packet.questions[0].qtype == QTYPE::TYPE(kind.qtype())
        && plain(&packet.questions[0].qname.to_string()) == name;
    if !ours {
        return Reply::NotOurs;
    }
    if packet.has_flags(PacketFlag::TRUNCATION) {
        return Reply::Truncated;
    }
    match packet.rcode() {
        RCODE::NoError => Reply::Records(records(&packet, name, kind)),
        RCODE::NameError => Reply::Records(Vec::new()),
        other => Reply::Failure(format!("the server answers {other:?}")),
    }
}

/// Records of the name and of what it is an alias for.
fn records(packet: &Packet<'_>, name: String, kind: Kind) -> Vec<Record> {
    let mut names = HashSet::from([name]);
    for _ in 0..MAX_ALIASES {
        let before = names.len();
        for record in &packet.answers {
            if let RData::CNAME(target) = &record.rdata
                && names.contains(&plain(&record.name.to_string()))
            {
                names.insert(plain(&target.0.to_string()));
            }
        }
        if names.len() == before {
            break;
        }
    }
    let mut out: Vec<Record> = packet
        .answers
        .iter()
        .filter(|record| names.contains(&plain(&record.name.to_string())))
        .filter_map(|record| match (&record.rdata, kind) {
            (RData::A(a), Kind::A) => {
                Some(Record::Address(IpAddr::V4(Ipv4Addr::from_bits(a.address))))
            }
            (RData::AAAA(aaaa), Kind::Aaaa) => {
                Some(Record::Address(IpAddr::V6(Ipv6Addr::from_bits(aaaa.address))))
            }
            (RData::SRV(srv), Kind::Srv) => Some(Record::Service(Service {
                priority: srv.priority,
                weight: srv.weight,
                port: srv.port,
                target: plain(&srv.target.to_string()),
            })),
            _ => None,
        })
        // A target of `.` says that the service is not there, port 0 that it cannot be reached.
        .filter(|record| {
            !matches!(record, Record::Service(service) if service.target.is_empty() || service.port == 0)
        })
        .collect();
    // Servers rotate their answers; the order here must not.
    out.sort();
    out.dedup();
    // One more than is used, so that the caller sees that there are more.
    out.truncate(MAX_RECORDS + 1);
    out
}

fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn no_bytes_break_the_reader(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            reply(&bytes, 1, "a.example", Kind::A);
        }

        /// Bytes that begin like an answer get further into the reader.
        #[test]
        fn no_damage_breaks_the_reader(
            at in 12usize..60,
            byte in any::<u8>(),
            tail in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut bytes = question(1, "a.example", Kind::A).unwrap();
            bytes[2] |= 0x80;
            bytes[7] = 2;
            bytes.extend(tail);
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
            reply(&bytes, 1, "a.example", Kind::A);
        }
    }
}
