//! What all cores share and none of them changes: the endpoints and the rules, replaced whole.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use scheduling::{EndpointId, Fleet, ModelId};

use crate::ledger::NOWHERE;
use crate::settings::{Policy, Upstream};
use crate::upstream::Target;

/// The endpoints and the rules at one time. Places in `targets`, `upstreams` and `name_values` are those of
/// [`Fleet::members`].
#[derive(Debug, Default)]
pub struct World {
    /// The rules.
    pub policy: Arc<Policy>,
    /// The endpoints' state.
    pub fleet: Fleet,
    /// Where they are.
    pub targets: Vec<Target>,
    /// Each endpoint's place.
    pub places: HashMap<EndpointId, usize>,
    /// How they were described.
    pub upstreams: Vec<Arc<Upstream>>,
    /// Which engines they turned out to be.
    pub engines: Vec<engines::EngineKind>,
    /// Their names as header values.
    pub name_values: Vec<HeaderValue>,
    /// The label of each model, by [`ModelId`].
    pub model_labels: Vec<ModelLabel>,
    /// The models' names, by label. A model that nobody serves any more has none.
    pub label_texts: HashMap<ModelLabel, Arc<str>>,
    /// The answer to `GET /v1/models`.
    pub models_json: Bytes,
    /// Each model's object as its engine gave it, sorted by id.
    pub model_objects: Vec<(Box<str>, Bytes)>,
}

/// One core's handle on the world. Each request keeps one; counting them on the [`Arc`] would make all cores
/// write to one cache line twice for every request.
#[allow(clippy::redundant_allocation)]
pub type LocalWorld = Rc<Arc<World>>;

/// A model's number in metrics. Unlike a [`ModelId`] it stays the same when the fleet changes, for as long as the model
/// is served, and is not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ModelLabel(pub u32);

impl ModelLabel {
    /// Requests without a model, or with one that no endpoint is known to serve: a client's own words never
    /// become a label.
    pub const OTHER: ModelLabel = ModelLabel(0);
}

impl World {
    /// Whether requests of this endpoint and model are still counted: both are there, or stand for none in particular.
    pub fn counts(&self, endpoint: EndpointId, model: ModelLabel) -> bool {
        (endpoint == NOWHERE || self.places.contains_key(&endpoint))
            && (model == ModelLabel::OTHER || self.label_texts.contains_key(&model))
    }

    /// What people read for a label.
    pub fn label_text(&self, label: ModelLabel) -> &str {
        match self.label_texts.get(&label) {
            Some(text) => text,
            None if label == ModelLabel::OTHER => "other",
            None => "removed",
        }
    }

    /// The model's label.
    pub fn label(&self, model: Option<ModelId>) -> ModelLabel {
        model.and_then(|model| self.model_labels.get(model.0 as usize)).copied().unwrap_or(ModelLabel::OTHER)
    }
}
