//! The control thread: keeps the picture of the endpoints up to date and watches each of them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use engines::{EngineKind, Model, merge_models};
use http::HeaderValue;
use http::uri::Authority;
use scheduling::{Endpoint, EndpointId, Fleet, Health, Member, Models};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::core::Shared;
use crate::health;
use crate::probe;
use crate::settings::{Level, Notice, Notify, Policy, Upstream};
use crate::upstream::{Pool, Target};
use crate::world::{ModelLabel, World};

/// How often an endpoint that has said what it is is asked again: models are loaded and unloaded.
const RELEARN: Duration = Duration::from_secs(10);

/// Time between the first thing learned and the new picture: shorter than anyone notices at a start, longer than
/// the answers of a fleet that is asked at once are apart.
const SETTLE: Duration = Duration::from_millis(10);

/// Model names that get a label of their own in metrics; later ones share one.
const MAX_LABELS: usize = 10_000;

/// What the control thread is told.
pub enum Control {
    /// These are the upstreams now.
    Upstreams(Vec<Upstream>),
    /// These are the rules now.
    Policy(Box<Policy>),
    /// End.
    Stop,
}

/// One endpoint as the control thread knows it.
struct Watched {
    upstream: Arc<Upstream>,
    endpoint: Arc<Endpoint>,
    target: Target,
    engine: EngineKind,
    models: Option<Vec<Model>>,
    watcher: Option<JoinHandle<()>>,
}

/// What a watcher needs for its next round.
struct Look {
    name: String,
    target: Target,
    endpoint: Arc<Endpoint>,
    engine: EngineKind,
    asks_models: bool,
    policy: Arc<Policy>,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(watcher) = &self.watcher {
            watcher.abort();
        }
    }
}

/// The control thread's state.
pub struct Controller {
    shared: Arc<Shared>,
    notify: Notify,
    pool: Pool,
    state: RefCell<State>,
    /// Something was learned that the picture does not show yet.
    learned: tokio::sync::Notify,
}

struct State {
    policy: Arc<Policy>,
    watched: Vec<Watched>,
    next_id: u32,
    labels: BTreeMap<Box<str>, ModelLabel>,
    next_label: u32,
}

impl Controller {
    /// A controller with these rules and upstreams; the picture is in place when it returns.
    pub fn new(shared: Arc<Shared>, policy: Policy, upstreams: Vec<Upstream>, notify: Notify) -> Self {
        let state = State {
            policy: Arc::new(policy),
            watched: Vec::new(),
            next_id: 1,
            labels: BTreeMap::new(),
            next_label: ModelLabel::OTHER.0 + 1,
        };
        let controller = Self {
            shared,
            notify,
            pool: Pool::default(),
            state: RefCell::new(state),
            learned: tokio::sync::Notify::new(),
        };
        controller.replace_upstreams(upstreams);
        controller.publish();
        controller
    }

    /// Takes a new list. An upstream that was there before under the same name and place keeps its state.
    fn replace_upstreams(&self, upstreams: Vec<Upstream>) {
        let mut state = self.state.borrow_mut();
        let connect_timeout = state.policy.connect_timeout;
        let mut before: Vec<Option<Watched>> = state.watched.drain(..).map(Some).collect();
        for upstream in upstreams {
            let known = before
                .iter_mut()
                .find(|known| known.as_ref().is_some_and(|known| is_same_place(&known.upstream, &upstream)));
            let watched = match known.and_then(Option::take) {
                Some(mut known) => {
                    known.endpoint.set_max_in_flight(upstream.max_in_flight);
                    known.target.authorization = upstream.authorization.clone();
                    if known.upstream.engine != upstream.engine || known.upstream.models != upstream.models {
                        known.engine = upstream.engine;
                        known.models = configured_models(&upstream);
                        if let Some(watcher) = known.watcher.take() {
                            watcher.abort();
                        }
                    }
                    known.upstream = Arc::new(upstream);
                    known
                }
                None => {
                    let id = EndpointId(state.next_id);
                    let Some(target) = target(id, &upstream, connect_timeout) else {
                        let text =
                            format!("upstream {} has no usable address and is left out", upstream.name);
                        (self.notify)(Notice { level: Level::Warning, text });
                        continue;
                    };
                    state.next_id += 1;
                    Watched {
                        endpoint: Endpoint::new(id, upstream.max_in_flight),
                        target,
                        engine: upstream.engine,
                        models: configured_models(&upstream),
                        upstream: Arc::new(upstream),
                        watcher: None,
                    }
                }
            };
            state.watched.push(watched);
        }
    }

    /// Builds the picture from what is known and gives it to the cores.
    fn publish(&self) {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let mut world = World { policy: Arc::clone(&state.policy), ..World::default() };
        let mut members = Vec::with_capacity(state.watched.len());
        for watched in &state.watched {
            let models = match &watched.models {
                Some(models) => Models::Known(models.iter().map(|model| model.id.as_str().into()).collect()),
                None => Models::Unknown,
            };
            let upstream = &watched.upstream;
            let mut member =
                Member::new(Arc::clone(&watched.endpoint), &upstream.name, upstream.weight, models);
            member.role = upstream.role;
            members.push(member);
            world.places.insert(watched.endpoint.id(), world.targets.len());
            world.targets.push(watched.target.clone());
            world.upstreams.push(Arc::clone(upstream));
            world.engines.push(watched.engine);
            let name = HeaderValue::from_str(&upstream.name);
            world.name_values.push(name.unwrap_or_else(|_| HeaderValue::from_static("endpoint")));
        }
        world.fleet = Fleet::new(members);
        let names: Vec<Box<str>> = world.fleet.model_names().map(Box::from).collect();
        // Labels go with their models: engines that load ever new adapters would use all of them up.
        state.labels.retain(|name, _| world.fleet.model(name).is_some());
        let mut by_model = vec![ModelLabel::OTHER; names.len()];
        for name in names {
            if !state.labels.contains_key(&name) && state.labels.len() < MAX_LABELS {
                state.labels.insert(name.clone(), ModelLabel(state.next_label));
                state.next_label += 1;
            }
            if let Some(model) = world.fleet.model(&name) {
                by_model[model.0 as usize] = state.labels.get(&name).copied().unwrap_or(ModelLabel::OTHER);
            }
        }
        world.model_labels = by_model;
        world.label_texts = state.labels.iter().map(|(name, label)| (*label, Arc::from(&**name))).collect();
        let lists = state.watched.iter().filter_map(|watched| watched.models.as_deref());
        world.models_json = Bytes::from(merge_models(lists.clone()));
        let mut objects: BTreeMap<&str, &Model> = BTreeMap::new();
        for model in lists.flatten() {
            objects.entry(&model.id).or_insert(model);
        }
        world.model_objects = objects
            .into_iter()
            .map(|(id, model)| (id.into(), Bytes::copy_from_slice(model.raw.get().as_bytes())))
            .collect();
        self.shared.world.store(Arc::new(world));
    }

    fn watch_all(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        for watched in &mut state.watched {
            if watched.watcher.as_ref().is_none_or(JoinHandle::is_finished) {
                let id = watched.endpoint.id();
                watched.watcher = Some(tokio::task::spawn_local(watch(Rc::clone(self), id)));
            }
        }
    }

    fn look(&self, id: EndpointId) -> Option<Look> {
        let state = self.state.borrow();
        let watched = state.watched.iter().find(|watched| watched.endpoint.id() == id)?;
        let asks_models = watched.upstream.models.is_empty();
        let asks_engine = watched.upstream.engine == EngineKind::Unknown;
        let engine = if asks_engine { watched.engine } else { watched.upstream.engine };
        Some(Look {
            name: watched.upstream.name.clone(),
            target: watched.target.clone(),
            endpoint: Arc::clone(&watched.endpoint),
            engine,
            asks_models,
            policy: Arc::clone(&state.policy),
        })
    }

    fn learned(&self, id: EndpointId, engine: EngineKind, models: Option<Vec<Model>>) {
        {
            let mut state = self.state.borrow_mut();
            let Some(watched) = state.watched.iter_mut().find(|watched| watched.endpoint.id() == id) else {
                return;
            };
            let same_models = match (&models, &watched.models) {
                (None, _) => true, // it did not say: what it said before holds
                (Some(new), Some(old)) => {
                    new.len() == old.len()
                        && new.iter().zip(old).all(|(a, b)| a.id == b.id && a.raw.get() == b.raw.get())
                }
                (Some(_), None) => false,
            };
            if same_models && watched.engine == engine {
                return;
            }
            watched.engine = engine;
            if let Some(models) = models {
                if !same_models {
                    // Names come from the engine: escaped, or they could forge lines.
                    let names = models.iter().take(5).map(|model| model.id.escape_debug().to_string());
                    let names: Vec<String> = names.collect();
                    let text = format!(
                        "endpoint {} is {engine} and serves {} model{}: {}",
                        watched.upstream.name,
                        models.len(),
                        if models.len() == 1 { "" } else { "s" },
                        names.join(", ")
                    );
                    (self.notify)(Notice { level: Level::Info, text });
                }
                watched.models = Some(models);
            }
        }
        self.learned.notify_one();
    }

    /// Slow or broken answers say nothing of whether it can be reached: requests will tell.
    fn reached(&self, endpoint: &Endpoint, name: &str, error: Option<&probe::ProbeError>) {
        let reached: Result<(), &dyn std::fmt::Display> = match error {
            None | Some(probe::ProbeError::Body) => Ok(()),
            Some(error) if is_unreachable(error) => Err(error),
            Some(_) => return,
        };
        health::note(&self.shared, &self.notify, endpoint, name, reached);
    }
}

fn is_unreachable(error: &probe::ProbeError) -> bool {
    matches!(error, probe::ProbeError::Exchange(crate::upstream::ExchangeError::Connect(_)))
}

/// Runs the control thread until it is told to stop.
pub fn run(controller: Controller, mut commands: mpsc::UnboundedReceiver<Control>) -> io::Result<()> {
    crate::local::runtime()?.block_on(async move {
        let controller = Rc::new(controller);
        controller.watch_all();
        let mut sweep = tokio::time::interval(Duration::from_secs(5));
        loop {
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Control::Upstreams(upstreams)) => {
                        controller.replace_upstreams(upstreams);
                        controller.publish();
                        controller.watch_all();
                    }
                    Some(Control::Policy(policy)) => {
                        {
                            let mut state = controller.state.borrow_mut();
                            for watched in &mut state.watched {
                                watched.target.connect_timeout = policy.connect_timeout;
                            }
                            state.policy = Arc::from(policy);
                        }
                        controller.publish();
                    }
                    Some(Control::Stop) | None => break,
                },
                () = controller.learned.notified() => {
                    // A hundred endpoints that start together are one new picture, not a hundred.
                    tokio::time::sleep(SETTLE).await;
                    controller.publish();
                }
                _ = sweep.tick() => {
                    let state = controller.state.borrow();
                    let is_current = |id| state.watched.iter().any(|watched| watched.endpoint.id() == id);
                    controller.pool.sweep(Instant::now(), is_current);
                    drop(state);
                    controller.watch_all(); // one that panicked starts again
                }
            }
        }
    });
    Ok(())
}

/// Watches one endpoint for as long as it is configured.
async fn watch(controller: Rc<Controller>, id: EndpointId) {
    // Endpoints are asked at different moments: a hundred pages at once would be a spike each second.
    let mut next = tokio::time::Instant::now();
    let mut learned_at: Option<Instant> = None;
    let mut first = true;
    // What it could not be asked, so that it is told once.
    let mut told: Option<String> = None;
    while let Some(look) = controller.look(id) {
        let Look { name, target, endpoint, engine, asks_models, policy } = look;
        let (pool, timeout) = (&controller.pool, policy.signal_timeout);
        let was_down = endpoint.health() == Health::Down;
        let mut engine = engine;
        let mut trouble = None;
        if learned_at.is_none_or(|at| at.elapsed() >= RELEARN) || was_down {
            let learned = async {
                if engine == EngineKind::Unknown || was_down {
                    let asked = probe::detect(pool, &target, timeout).await?;
                    if asked != EngineKind::Unknown
                        && controller.look(id).is_some_and(|now| now.engine == engine)
                    {
                        engine = asked;
                    }
                }
                match asks_models {
                    true => probe::models(pool, &target, timeout).await,
                    false => Ok(Ok(None)),
                }
            };
            match learned.await {
                Ok(Ok(models)) => {
                    learned_at = Some(Instant::now());
                    controller.learned(id, engine, models);
                }
                Ok(Err(error)) => {
                    learned_at = Some(Instant::now());
                    trouble = Some(error.to_string());
                    controller.learned(id, engine, None);
                }
                Err(error) => {
                    learned_at = None;
                    // That it cannot be reached is told below.
                    trouble = (!is_unreachable(&error)).then(|| format!("cannot ask what it is: {error}"));
                }
            }
            if let Some(text) = trouble.as_ref().filter(|_| trouble != told) {
                let text = format!("endpoint {name}: {text}");
                (controller.notify)(Notice { level: Level::Warning, text });
            }
            told = trouble;
        }
        // Asked whatever became of the questions before: an engine whose list of models is of no use still works.
        let signals = probe::signals(pool, &target, engine, timeout).await;
        controller.reached(&endpoint, &name, signals.as_ref().err());
        match signals {
            Ok(signals) => endpoint.observe(signals, controller.shared.ms(Instant::now())),
            Err(_) => learned_at = None,
        }
        let interval = policy.signal_interval;
        if std::mem::take(&mut first) {
            next += interval.mul_f64(f64::from(id.0.wrapping_mul(0x9e37_79b9)) / f64::from(u32::MAX));
        } else {
            next += interval;
        }
        let now = tokio::time::Instant::now();
        if next < now {
            next = now; // it took longer than the interval: no catching up
        }
        tokio::time::sleep_until(next).await;
    }
}

fn is_same_place(a: &Upstream, b: &Upstream) -> bool {
    (&a.name, &a.host, a.port, &a.base, a.protocol) == (&b.name, &b.host, b.port, &b.base, b.protocol)
}

fn target(id: EndpointId, upstream: &Upstream, connect_timeout: Duration) -> Option<Target> {
    let host = match upstream.host.contains(':') {
        true => format!("[{}]", upstream.host),
        false => upstream.host.clone(),
    };
    let authority = Authority::try_from(format!("{host}:{}", upstream.port)).ok()?;
    Some(Target {
        id,
        host: upstream.host.as_str().into(),
        port: upstream.port,
        authority,
        base: upstream.base.as_str().into(),
        protocol: upstream.protocol,
        authorization: upstream.authorization.clone(),
        connect_timeout,
    })
}

/// Models named in the configuration, as objects of the list that clients get.
fn configured_models(upstream: &Upstream) -> Option<Vec<Model>> {
    let object = |id: &String| {
        let raw = serde_json::json!({"id": id, "object": "model", "created": 0, "owned_by": "ridge"});
        Some(Model { id: id.clone(), raw: serde_json::value::to_raw_value(&raw).ok()? })
    };
    (!upstream.models.is_empty()).then(|| upstream.models.iter().filter_map(object).collect())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64};

    use arc_swap::ArcSwap;
    use scheduling::PrefixIndex;

    use super::*;

    fn upstream(models: std::ops::Range<usize>) -> Upstream {
        Upstream {
            name: "a".into(),
            host: "127.0.0.1".into(),
            port: 1,
            base: String::new(),
            labels: BTreeMap::new(),
            models: models.map(|n| format!("model-{n}")).collect(),
            role: scheduling::Role::Both,
            engine: EngineKind::Vllm,
            revision: None,
            weight: 1.0,
            max_in_flight: None,
            protocol: crate::Protocol::Http1,
            authorization: None,
        }
    }

    fn controller(upstreams: Vec<Upstream>) -> Controller {
        let shared = Arc::new(Shared {
            world: Arc::new(ArcSwap::from_pointee(World::default())),
            index: PrefixIndex::with_entries(1),
            epoch: Instant::now(),
            draining: AtomicBool::new(false),
            cutting: AtomicBool::new(false),
            ready: AtomicBool::new(false),
            tls: arc_swap::ArcSwapOption::empty(),
            handshake_told_ms: AtomicU64::new(0),
            body_bytes: Arc::new(AtomicU64::new(0)),
            log_lost: Arc::new(AtomicU64::new(0)),
            closures: crate::vitals::Closures::default(),
            gauges: Vec::new(),
        });
        Controller::new(shared, Policy::default(), upstreams, Arc::new(|_| {}))
    }

    fn label(world: &World, name: &str) -> ModelLabel {
        world.label(world.fleet.model(name))
    }

    #[test]
    fn labels_of_models_that_are_gone_make_room_and_are_not_used_again() {
        let controller = controller(vec![upstream(0..MAX_LABELS)]);
        let before = controller.shared.world.load_full();
        let gone = label(&before, "model-0");
        assert_eq!(before.label_text(gone), "model-0");
        // All labels are taken, and then all models change but the last.
        controller.replace_upstreams(vec![upstream(MAX_LABELS - 1..2 * MAX_LABELS - 1)]);
        controller.publish();
        let after = controller.shared.world.load_full();
        let last = format!("model-{}", MAX_LABELS - 1);
        assert_eq!(label(&after, &last), label(&before, &last));
        let new = label(&after, &format!("model-{MAX_LABELS}"));
        assert_ne!(new, ModelLabel::OTHER);
        assert!(before.label_texts.keys().all(|&old| old != new));
        assert!(!after.counts(crate::NOWHERE, gone));
        assert_eq!(after.label_text(gone), "removed");
    }

    #[test]
    fn an_upstream_that_stays_keeps_its_identity_and_one_that_returns_does_not() {
        let controller = controller(vec![upstream(0..1)]);
        let id = || controller.shared.world.load().targets.first().map(|target| target.id);
        let first = id();
        controller.replace_upstreams(vec![Upstream { weight: 2.0, ..upstream(0..2) }]);
        controller.publish();
        assert_eq!(id(), first);
        controller.replace_upstreams(Vec::new());
        controller.publish();
        controller.replace_upstreams(vec![upstream(0..1)]);
        controller.publish();
        assert_ne!(id(), first);
    }
}
