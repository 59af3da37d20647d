//! `ridge serve` before scripted engines.

mod bytes;
mod cancel;
mod connections;
mod death;
mod discovery;
mod headers;
mod hostile;
mod http2;
mod keys;
mod leaks;
mod life;
mod limits;
mod load;
mod memory;
mod metrics;
mod refusals;
mod settings;
mod systemd;
mod tls;
mod up;
mod upgrade;
mod wire;
