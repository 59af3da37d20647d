//! The endpoints there are, and which models they serve: an immutable picture, replaced whole.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::pick::Wanted;

/// Which models an endpoint serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Models {
    /// It has not said yet, or cannot say.
    Unknown,
    /// These, by name.
    Known(Vec<Box<str>>),
}

/// What part of a request an endpoint may be given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Whole requests.
    #[default]
    Both,
    /// Prefill only: never picked for a whole request.
    Prefill,
    /// Decode; it takes whole requests too, since it can do its own prefill.
    Decode,
}

/// A model name's place in one [`Fleet`]. Means nothing in another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ModelId(pub u32);

/// One endpoint as the configuration and its own answers describe it, with its live state.
#[derive(Clone, Debug)]
pub struct Member {
    /// Its live state.
    pub endpoint: Arc<Endpoint>,
    /// The name shown to people.
    pub name: Box<str>,
    /// Its share of the load relative to others; above 0.
    pub weight: f32,
    /// The models it serves.
    pub models: Models,
    /// What it may be given.
    pub role: Role,
}

impl Member {
    /// A member that takes whole requests.
    pub fn new(endpoint: Arc<Endpoint>, name: &str, weight: f32, models: Models) -> Self {
        Self { endpoint, name: name.into(), weight, models, role: Role::Both }
    }
}

/// All endpoints at one time.
#[derive(Debug, Default)]
pub struct Fleet {
    members: Vec<Member>,
    models: BTreeMap<Box<str>, ModelId>,
    names: Vec<Box<str>>,
    /// Members that serve each model, by [`ModelId`].
    serving: Vec<Vec<u32>>,
    /// Members whose models are unknown.
    unknown: Vec<u32>,
    all: Vec<u32>,
}

impl Fleet {
    /// Builds the picture. Members with [`Role::Prefill`] are kept but never offered for a whole request.
    pub fn new(members: Vec<Member>) -> Self {
        let mut fleet = Self::default();
        for (index, member) in members.iter().enumerate() {
            let index = index as u32;
            let takes_requests = member.role != Role::Prefill;
            if takes_requests {
                fleet.all.push(index);
            }
            match &member.models {
                Models::Unknown if takes_requests => fleet.unknown.push(index),
                Models::Unknown => {}
                Models::Known(names) => {
                    for name in names {
                        let next = ModelId(fleet.names.len() as u32);
                        let id = *fleet.models.entry(name.clone()).or_insert(next);
                        if id == next {
                            fleet.names.push(name.clone());
                            fleet.serving.push(Vec::new());
                        }
                        let serving = &mut fleet.serving[id.0 as usize];
                        if takes_requests && serving.last() != Some(&index) {
                            serving.push(index);
                        }
                    }
                }
            }
        }
        fleet.members = members;
        fleet
    }

    /// All members, in the order they were given.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// The model of that name, if any member is known to serve it.
    pub fn model(&self, name: &str) -> Option<ModelId> {
        self.models.get(name).copied()
    }

    /// The model's name.
    pub fn model_name(&self, model: ModelId) -> &str {
        &self.names[model.0 as usize]
    }

    /// Every model name that a member is known to serve, sorted.
    pub fn model_names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(|name| &**name)
    }

    /// The only model of the fleet, when there is exactly one.
    pub fn only_model(&self) -> Option<ModelId> {
        (self.names.len() == 1 && self.unknown.is_empty()).then_some(ModelId(0))
    }

    /// Whether an endpoint might serve a model that none is known to serve.
    pub fn has_unknown_models(&self) -> bool {
        !self.unknown.is_empty()
    }

    /// Members that may take such a request.
    pub fn candidates(&self, wanted: Wanted) -> &[u32] {
        match wanted {
            Wanted::Model(model) => self.serving.get(model.0 as usize).map_or(&[], Vec::as_slice),
            Wanted::UnknownName => &self.unknown,
            Wanted::Any => &self.all,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint::EndpointId;

    fn member(id: u32, models: Models) -> Member {
        Member::new(Endpoint::new(EndpointId(id), None), &format!("e{id}"), 1.0, models)
    }

    #[test]
    fn a_model_leads_to_those_that_serve_it() {
        let fleet = Fleet::new(vec![
            member(1, Models::Known(vec!["a".into(), "b".into()])),
            member(2, Models::Known(vec!["b".into(), "b".into()])),
            member(3, Models::Unknown),
        ]);
        assert_eq!(fleet.candidates(Wanted::Model(fleet.model("b").unwrap())), [0, 1]);
        assert_eq!(fleet.model("c"), None);
        assert_eq!(fleet.candidates(Wanted::UnknownName), [2]);
        assert_eq!(fleet.candidates(Wanted::Any), [0, 1, 2]);
        assert_eq!(fleet.model_names().collect::<Vec<_>>(), ["a", "b"]);
    }

    #[test]
    fn a_prefill_engine_gets_no_whole_request() {
        let mut prefill = member(1, Models::Known(vec!["a".into()]));
        prefill.role = Role::Prefill;
        let fleet = Fleet::new(vec![prefill]);
        assert!(fleet.candidates(Wanted::Model(fleet.model("a").unwrap())).is_empty());
    }
}
