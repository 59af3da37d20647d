//! The fleet: its ports, and the life and death of its replicas.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::connection;
use crate::error::SimError;
use crate::fault::{FaultKind, Faults};
use crate::model::Model;
use crate::options::SimOptions;
use crate::replica::{Replica, ReplicaSpec};

/// How long to wait when a connection cannot be accepted or a crashed replica's port is not free again.
const RETRY: Duration = Duration::from_millis(20);

/// A fleet that has its ports and is ready to run.
pub struct Sim {
    replicas: Vec<(TcpListener, SocketAddr, Arc<Replica>)>,
}

/// Binds a fleet and runs it until `shutdown` completes.
///
/// # Errors
/// What [`Sim::bind`] returns; a fleet that runs has no errors.
pub async fn serve(options: SimOptions, shutdown: impl Future<Output = ()>) -> Result<(), SimError> {
    Sim::bind(options).await?.run(shutdown).await;
    Ok(())
}

impl Sim {
    /// Takes the ports. From here on connections wait; [`run`](Self::run) answers them.
    ///
    /// # Errors
    /// Options that make no engine, or a port that is taken.
    pub async fn bind(options: SimOptions) -> Result<Self, SimError> {
        let count = usize::from(options.replicas);
        // Faster, and virtual µs would pass what 64 bits count within a process's life.
        if !(1e-3..=1e6).contains(&options.speed) {
            return Err(SimError::Speed(options.speed));
        }
        let first = options.listen.port();
        if first != 0 && usize::from(first) + count > 1 << 16 {
            return Err(SimError::Ports { port: first, replicas: count });
        }
        for change in &options.replica_overrides {
            if change.index >= count {
                let reason =
                    format!("there is no replica {}; the last is {}", change.index, count.saturating_sub(1));
                return Err(SimError::Override { text: change.to_string(), reason });
            }
        }
        let model = Model::load(&options.model, options.max_model_len)?;
        let mut replicas = Vec::with_capacity(count);
        for index in 0..count {
            let mut params = options.engine_params();
            let mut kind = options.engine_kind;
            let mut name = options.model.clone();
            for change in options.replica_overrides.iter().filter(|change| change.index == index) {
                change.apply(&mut params, &mut name, &mut kind);
            }
            let model = if name == options.model {
                model.clone()
            } else {
                Model::load(&name, options.max_model_len)?
            };
            let speed = options.speed;
            let (ignore_eos, real_ids) = (options.ignore_eos, options.real_ids);
            let spec = ReplicaSpec { index, model, kind, params, speed, ignore_eos, real_ids };
            let replica = Replica::new(spec).map_err(|source| SimError::Params { replica: index, source })?;

            let port = if first == 0 { 0 } else { first + index as u16 };
            let address = SocketAddr::new(options.listen.ip(), port);
            let fail = |source| SimError::Listen { replica: index, address, source };
            let listener = TcpListener::bind(address).await.map_err(fail)?;
            let address = listener.local_addr().map_err(fail)?;
            replicas.push((listener, address, Arc::new(replica)));
        }
        let fleet: Vec<_> = replicas.iter().map(|(_, _, replica)| Arc::downgrade(replica)).collect();
        for (_, _, replica) in &replicas {
            replica.join(fleet.clone());
        }
        Ok(Self { replicas })
    }

    /// Where each replica listens, in order.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|(_, address, _)| *address).collect()
    }

    /// Runs the fleet until `shutdown` completes; then, or when this future is dropped, ports and connections
    /// are closed. Needs a tokio runtime with time and IO; one thread is enough.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        for (listener, address, replica) in self.replicas {
            let driven = replica.clone();
            tasks.spawn(async move { driven.drive().await });
            let slowed = replica.clone();
            tasks.spawn(async move { follow_slow(&slowed).await });
            tasks.spawn(live(listener, address, replica));
        }
        shutdown.await;
        // Not before the ports are free again.
        tasks.shutdown().await;
    }
}

/// A replica's life: up, crashed, up again.
async fn live(listener: TcpListener, address: SocketAddr, replica: Arc<Replica>) {
    let mut listener = listener;
    loop {
        accept_until_crash(listener, &replica).await;
        replica.faults.count(FaultKind::Crash);
        replica.restart();
        wait_for_recovery(&replica.faults).await;
        listener = loop {
            match TcpListener::bind(address).await {
                Ok(listener) => break listener,
                Err(_) => tokio::time::sleep(RETRY).await,
            }
        };
    }
}

/// Serves connections until a crash is due; all of them are reset before this returns.
async fn accept_until_crash(listener: TcpListener, replica: &Arc<Replica>) {
    let (crashed, crash) = watch::channel(false);
    let mut connections = JoinSet::new();
    let due = crash_due(&replica.faults);
    tokio::pin!(due);
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    let mut crash = crash.clone();
                    let crash = async move { _ = crash.wait_for(|crashed| *crashed).await; };
                    connections.spawn(connection::serve(stream, replica.clone(), crash));
                }
                // Out of file descriptors, most likely: some connection has to end first.
                Err(_) => tokio::time::sleep(RETRY).await,
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
            () = &mut due => break,
        }
    }
    drop(listener);
    crashed.send_replace(true);
    while connections.join_next().await.is_some() {}
}

/// Completes when the replica is to crash.
async fn crash_due(faults: &Faults) {
    let mut lasting = faults.follow();
    loop {
        let asked =
            lasting.wait_for(|lasting| lasting.crash.is_some()).await.map(|lasting| lasting.crash.clone());
        let Ok(Some(fault)) = asked else {
            return std::future::pending().await;
        };
        tokio::select! {
            () = tokio::time::sleep(fault.after()) => return,
            _ = lasting.wait_for(|lasting| lasting.crash.as_ref() != Some(&fault)) => {}
        }
    }
}

/// Completes when the crash is over: its time has passed, or it was cleared through another replica.
async fn wait_for_recovery(faults: &Faults) {
    let mut lasting = faults.follow();
    let for_ms = lasting.borrow().crash.as_ref().and_then(|fault| fault.for_ms);
    let time_over = async {
        match for_ms {
            Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        () = time_over => faults.end(FaultKind::Crash),
        _ = lasting.wait_for(|lasting| lasting.crash.is_none()) => {}
    }
}

/// Slows the engine down and lets it recover as the slow fault says.
async fn follow_slow(replica: &Replica) {
    let mut lasting = replica.faults.follow();
    let mut current = None;
    loop {
        let Ok(slow) =
            lasting.wait_for(|lasting| lasting.slow != current).await.map(|lasting| lasting.slow.clone())
        else {
            return;
        };
        current = slow;
        let Some(fault) = &current else {
            _ = replica.slow_down(1.0);
            continue;
        };
        let changed = lasting.wait_for(|lasting| lasting.slow.as_ref() != Some(fault));
        let over = async {
            tokio::time::sleep(fault.after()).await;
            _ = replica.slow_down(fault.factor.unwrap_or(5.0));
            replica.faults.count(FaultKind::Slow);
            match fault.for_ms {
                Some(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = over => replica.faults.end(FaultKind::Slow),
            _ = changed => {}
        }
        if lasting.borrow().slow.is_none() {
            current = None;
            _ = replica.slow_down(1.0);
        }
    }
}
