//! From the bytes of PEM files to rustls configurations: certificate chains and keys, authorities of clients and
//! servers, rules on the names in certificates.
//!
//! ```
//! # let pair = rcgen::generate_simple_self_signed(vec!["gw.example".into()]).unwrap();
//! # let (chain, key) = (pair.cert.pem().into_bytes(), pair.signing_key.serialize_pem().into_bytes());
//! use tls::{Pem, ServerPair, server};
//!
//! let pair = ServerPair { chain: Pem::new("gw.crt", &chain), key: Pem::new("gw.key", &key) };
//! let serving = server(&[pair], None).unwrap();
//! assert_eq!(serving.config.alpn_protocols, [b"h2".to_vec(), b"http/1.1".to_vec()]);
//! ```
//!
//! It opens no file and no socket: who calls it has read the bytes, and names the files for the messages. What a
//! certificate says is read by rustls and `x509-cert`; nothing is parsed here.

mod client;
mod error;
mod identity;
mod names;
mod pem;
mod server;

pub use client::{ClientPair, Trust, client};
pub use error::TlsError;
pub use identity::{Identity, identity};
pub use names::{NameKind, NameRule};
pub use pem::Pem;
pub use rustls::{ClientConfig, ServerConfig, pki_types::ServerName};
pub use server::{ClientRules, ServerPair, Serving, server};

use std::sync::Arc;

use rustls::crypto::CryptoProvider;

/// The one provider of cryptography, given explicitly: a process-wide default would be one more thing to set up first.
///
/// `ring` is marked deprecated for having no post-quantum key exchange. The other one, `aws-lc-rs`, takes several times
/// as long to compile and a larger tool chain; changing over is this function, the ticketer and a feature.
#[expect(deprecated, reason = "see above")]
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}
