//! The pick: least load, with a little prefix affinity.

use smallvec::SmallVec;
use thiserror::Error;

use crate::endpoint::{EndpointId, Health};
use crate::fleet::{Fleet, ModelId};
use crate::prefix::{PrefixHashes, PrefixIndex};

/// How many requests of load a wholly matched prompt outweighs. Small on purpose: with 2, a hot prompt stays
/// on its engine until that has two requests more than the idlest one, so affinity can never build a queue.
pub const AFFINITY_WORTH: f32 = 2.0;

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// It names no model: any endpoint will do.
    Any,
    /// A model that endpoints are known to serve.
    Model(ModelId),
    /// A model that nobody is known to serve: only endpoints that have not said what they serve may have it.
    UnknownName,
}

/// One request, as far as the choice needs it.
#[derive(Debug)]
pub struct Ask<'a> {
    /// The model it asks for.
    pub model: Wanted,
    /// The prompt's blocks.
    pub prefix: &'a PrefixHashes,
    /// Endpoints that were tried already and failed.
    pub tried: &'a [EndpointId],
    /// The time, on the clock of [`crate::Endpoint::observe`].
    pub now_ms: u64,
    /// An engine's own account of its load that is older than this is unknown.
    pub fresh_ms: u64,
    /// Breaks ties.
    pub seed: u64,
}

/// Why the picked endpoint won.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There was no other.
    OnlyCandidate,
    /// It had the least load for its weight.
    LeastLoad,
    /// It had the least load, and so had others: the seed decided.
    Tie,
    /// It holds the beginning of the prompt, and that outweighed its load.
    Prefix,
}

impl Reason {
    /// The word shown to people.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::OnlyCandidate => "only-candidate",
            Reason::LeastLoad => "least-load",
            Reason::Tie => "tie",
            Reason::Prefix => "prefix",
        }
    }
}

/// The one that would have been next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunnerUp {
    /// Its place in [`Fleet::members`].
    pub member: usize,
    /// Its cost; the picked one's was not higher.
    pub cost: f32,
    /// Its load.
    pub load: u32,
}

/// Where the request goes, and why.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// Place in [`Fleet::members`].
    pub member: usize,
    /// Why.
    pub reason: Reason,
    /// Endpoints that could have taken it.
    pub candidates: u32,
    /// Its load before this request.
    pub load: u32,
    /// Its cost: (load + 1 − [`AFFINITY_WORTH`] · matched share) / weight. Least wins.
    pub cost: f32,
    /// Blocks of the prompt that it holds.
    pub matched_blocks: u32,
    /// Blocks of the prompt.
    pub prompt_blocks: u32,
    /// The next best.
    pub runner_up: Option<RunnerUp>,
}

/// Why there is no endpoint for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Refusal {
    /// Nobody serves it, or all that do were tried.
    #[error("no endpoint serves this model")]
    NoEndpoint,
    /// Those that serve it are at their `max_in_flight`.
    #[error("every endpoint for this model is at its max_in_flight")]
    AllFull,
}

/// Picks an endpoint. Endpoints that could not be reached, or have just turned a request away, are passed over while
/// another can take it; when none is left they are all tried again, since being wrong about all of them is likelier
/// than all being gone.
pub fn pick(fleet: &Fleet, index: &PrefixIndex, ask: &Ask<'_>) -> Result<Decision, Refusal> {
    let candidates = fleet.candidates(ask.model);
    let holders = if ask.prefix.is_empty() { SmallVec::new() } else { index.holders(ask.prefix) };
    let up_only = choose(fleet, candidates, &holders, ask, false);
    match up_only {
        Err(Refusal::NoEndpoint) => choose(fleet, candidates, &holders, ask, true),
        answer => answer,
    }
}

fn choose(
    fleet: &Fleet,
    candidates: &[u32],
    holders: &[(EndpointId, u32)],
    ask: &Ask<'_>,
    all: bool,
) -> Result<Decision, Refusal> {
    let prompt_blocks = ask.prefix.len() as u32;
    let mut best: Option<Decision> = None;
    let mut least_load_cost = f32::INFINITY;
    let mut least_loaded = 0u32;
    let mut ties = 0u64;
    let mut full = false;
    let mut count = 0u32;
    for &place in candidates {
        let member = &fleet.members()[place as usize];
        let endpoint = &member.endpoint;
        let avoided = endpoint.health() == Health::Down || endpoint.is_turning_away(ask.now_ms);
        if (avoided && !all) || ask.tried.contains(&endpoint.id()) {
            continue;
        }
        if endpoint.is_full() {
            full = true;
            continue;
        }
        count += 1;
        let load = endpoint.load(ask.now_ms, ask.fresh_ms);
        let matched = holders.iter().find(|(id, _)| *id == endpoint.id()).map_or(0, |&(_, run)| run);
        let share = if matched == 0 { 0.0 } else { matched as f32 / prompt_blocks as f32 };
        let load_cost = (load as f32 + 1.0) / member.weight;
        let cost = (load as f32 + 1.0 - AFFINITY_WORTH * share) / member.weight;
        if load_cost < least_load_cost {
            (least_load_cost, least_loaded) = (load_cost, 1);
        } else if load_cost == least_load_cost {
            least_loaded += 1;
        }
        let this = |runner_up| Decision {
            member: place as usize,
            reason: Reason::LeastLoad,
            candidates: 0,
            load,
            cost,
            matched_blocks: matched,
            prompt_blocks,
            runner_up,
        };
        let as_runner_up = |d: &Decision| RunnerUp { member: d.member, cost: d.cost, load: d.load };
        match &mut best {
            None => best = Some(this(None)),
            Some(leader) if cost < leader.cost => {
                ties = 0;
                let second = as_runner_up(leader);
                best = Some(this(Some(second)));
            }
            Some(leader) if cost == leader.cost => {
                // Reservoir of one: each of the k tied endpoints ends up the leader with chance 1/k.
                ties += 1;
                if mix(ask.seed, ties).is_multiple_of(ties + 1) {
                    let second = as_runner_up(leader);
                    best = Some(this(Some(second)));
                } else {
                    leader.runner_up = Some(RunnerUp { member: place as usize, cost, load });
                }
            }
            Some(leader) => {
                if leader.runner_up.is_none_or(|second| cost < second.cost) {
                    leader.runner_up = Some(RunnerUp { member: place as usize, cost, load });
                }
            }
        }
    }
    let Some(mut decision) = best else {
        return Err(if full { Refusal::AllFull } else { Refusal::NoEndpoint });
    };
    decision.candidates = count;
    let load_cost = (decision.load as f32 + 1.0) / fleet.members()[decision.member].weight;
    decision.reason = if count == 1 {
        Reason::OnlyCandidate
    } else if decision.matched_blocks > 0 && ties == 0 && (load_cost > least_load_cost || least_loaded > 1) {
        Reason::Prefix
    } else if ties > 0 {
        Reason::Tie
    } else {
        Reason::LeastLoad
    };
    Ok(decision)
}

/// SplitMix64's finaliser (Steele et al., 2014): spreads a seed and a counter over 64 bits.
fn mix(seed: u64, n: u64) -> u64 {
    let mut z = seed.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::{Endpoint, InFlight};
    use crate::fleet::{Member, Models};
    use crate::prefix::BLOCK_BYTES;

    fn fleet(bounds: &[Option<u32>]) -> Fleet {
        let member = |(i, bound): (usize, &Option<u32>)| {
            let models = Models::Known(vec!["m".into()]);
            Member::new(Endpoint::new(EndpointId(i as u32 + 1), *bound), &format!("e{i}"), 1.0, models)
        };
        Fleet::new(bounds.iter().enumerate().map(member).collect())
    }

    fn ask<'a>(prefix: &'a PrefixHashes, tried: &'a [EndpointId], seed: u64) -> Ask<'a> {
        Ask { model: Wanted::Any, prefix, tried, now_ms: 0, fresh_ms: 5_000, seed }
    }

    fn put(fleet: &Fleet, member: usize, count: usize) -> Vec<InFlight> {
        (0..count).filter_map(|_| fleet.members()[member].endpoint.enter()).collect()
    }

    fn prompt() -> PrefixHashes {
        let text = vec![b'x'; BLOCK_BYTES * 4];
        PrefixHashes::of(&text, std::slice::from_ref(&(0..text.len())), 0)
    }

    #[test]
    fn least_load_wins_and_own_dispatches_count_at_once() {
        let (fleet, index, none) =
            (fleet(&[None, None]), PrefixIndex::with_entries(64), PrefixHashes::default());
        let mut held = Vec::new();
        let mut sent = [0; 2];
        for seed in 0..200 {
            let d = pick(&fleet, &index, &ask(&none, &[], seed)).unwrap();
            sent[d.member] += 1;
            held.extend(put(&fleet, d.member, 1));
        }
        assert_eq!(sent, [100, 100]);
    }

    #[test]
    fn a_prefix_outweighs_two_requests_and_not_three() {
        let (fleet, index, prompt) = (fleet(&[None, None]), PrefixIndex::with_entries(64), prompt());
        index.record(&prompt, EndpointId(1));
        let _one = put(&fleet, 0, 1);
        let d = pick(&fleet, &index, &ask(&prompt, &[], 0)).unwrap();
        assert_eq!((d.member, d.reason, d.matched_blocks), (0, Reason::Prefix, 4));
        let _two_more = put(&fleet, 0, 2);
        let d = pick(&fleet, &index, &ask(&prompt, &[], 0)).unwrap();
        assert_eq!((d.member, d.reason), (1, Reason::LeastLoad));
        assert_eq!(d.runner_up.unwrap().member, 0);
    }

    #[test]
    fn ties_are_spread_by_the_seed() {
        let (fleet, index, none) =
            (fleet(&[None; 4]), PrefixIndex::with_entries(64), PrefixHashes::default());
        let mut sent = [0u32; 4];
        for seed in 0..4_000 {
            sent[pick(&fleet, &index, &ask(&none, &[], seed)).unwrap().member] += 1;
        }
        assert!(sent.iter().all(|&n| (800..1_200).contains(&n)), "{sent:?}");
    }

    #[test]
    fn tried_full_and_down_endpoints_are_passed_over() {
        let (fleet, index, none) =
            (fleet(&[Some(1), None, None]), PrefixIndex::with_entries(64), PrefixHashes::default());
        let _full = put(&fleet, 0, 1);
        fleet.members()[1].endpoint.set_health(Health::Down);
        let d = pick(&fleet, &index, &ask(&none, &[], 3)).unwrap();
        assert_eq!((d.member, d.reason), (2, Reason::OnlyCandidate));
        // The one that is down is better than none.
        let d = pick(&fleet, &index, &ask(&none, &[EndpointId(3)], 3)).unwrap_err();
        assert_eq!(d, Refusal::AllFull);
        let only_down = Fleet::new(vec![fleet.members()[1].clone()]);
        assert_eq!(pick(&only_down, &index, &ask(&none, &[], 3)).unwrap().member, 0);
        assert_eq!(pick(&only_down, &index, &ask(&none, &[EndpointId(2)], 3)), Err(Refusal::NoEndpoint));
    }

    #[test]
    fn an_endpoint_that_turns_requests_away_does_not_draw_them() {
        let (fleet, index, none) =
            (fleet(&[None, None]), PrefixIndex::with_entries(64), PrefixHashes::default());
        let _busy = put(&fleet, 1, 5);
        fleet.members()[0].endpoint.turned_away(0);
        assert_eq!(pick(&fleet, &index, &ask(&none, &[], 1)).unwrap().member, 1);
        // Better than nothing, all the same.
        assert_eq!(pick(&fleet, &index, &ask(&none, &[EndpointId(2)], 1)).unwrap().member, 0);
    }

    #[test]
    fn weight_shares_the_load() {
        let members = [1.0, 3.0].into_iter().enumerate().map(|(i, weight)| {
            Member::new(Endpoint::new(EndpointId(i as u32 + 1), None), "e", weight, Models::Unknown)
        });
        let (fleet, index, none) =
            (Fleet::new(members.collect()), PrefixIndex::with_entries(64), PrefixHashes::default());
        let mut held = Vec::new();
        for seed in 0..400 {
            let d = pick(&fleet, &index, &ask(&none, &[], seed)).unwrap();
            held.extend(put(&fleet, d.member, 1));
        }
        assert!((95..=105).contains(&fleet.members()[0].endpoint.in_flight()));
    }
}
