//! What can go wrong when a fleet starts.

use std::net::SocketAddr;
use std::path::PathBuf;

use simulation::ParamsError;
use thiserror::Error;

/// Why a simulated fleet cannot start.
#[derive(Debug, Error)]
pub enum SimError {
    /// A replica's address cannot be had.
    #[error("replica {replica} cannot listen on {address}: {source}; choose another --listen")]
    Listen {
        /// Index of the replica.
        replica: usize,
        /// Where it should listen.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The ports of the replicas would pass 65,535.
    #[error(
        "{replicas} replicas from port {port} on would pass port 65535; choose a lower --listen port or fewer --replicas"
    )]
    Ports {
        /// First port.
        port: u16,
        /// Number of replicas.
        replicas: usize,
    },
    /// An engine's parameter is out of range.
    #[error("replica {replica}: {source}")]
    Params {
        /// Index of the replica.
        replica: usize,
        /// Which, and what is allowed.
        source: ParamsError,
    },
    /// `--speed` is not a speed.
    #[error("--speed is {0}, which must be from 0.001 to 1000000")]
    Speed(f64),
    /// The model folder's config.json cannot be used.
    #[error("{path}: {reason}")]
    Model {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A `--replica` override that cannot be applied.
    #[error("--replica {text}: {reason}")]
    Override {
        /// The override as given.
        text: String,
        /// What is wrong, and what is allowed.
        reason: String,
    },
}
