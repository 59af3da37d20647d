//! A client's side of TLS.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};

use crate::certificates::{Authority, Issued};

/// How a client speaks TLS. Clients made of one of these take each other's sessions up.
#[derive(Clone)]
pub struct Secure {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) name: ServerName<'static>,
}

impl Secure {
    /// Trusts this authority and expects the server to be `name`; offers these protocols by ALPN.
    pub fn new(authority: &Authority, name: &str, alpn: &[&str]) -> Self {
        Self::build(authority, name, alpn, None, rustls::ALL_VERSIONS)
    }

    /// Shows this certificate, too.
    pub fn showing(authority: &Authority, name: &str, alpn: &[&str], pair: &Issued) -> Self {
        Self::build(authority, name, alpn, Some(pair), rustls::ALL_VERSIONS)
    }

    /// Speaks only this version.
    pub fn version(authority: &Authority, name: &str, version: &'static SupportedProtocolVersion) -> Self {
        Self::build(authority, name, &["http/1.1"], None, &[version])
    }

    fn build(
        authority: &Authority,
        name: &str,
        alpn: &[&str],
        pair: Option<&Issued>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        roots.add(certificate(authority.pem())).expect("an authority");
        #[expect(deprecated, reason = "fast to compile, and good enough for a test")]
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions).expect("known versions");
        let builder = builder.with_root_certificates(roots);
        let mut config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => {
                let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("a key");
                builder.with_client_auth_cert(vec![certificate(&pair.chain)], key).expect("a pair")
            }
        };
        config.alpn_protocols = alpn.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(name.to_owned()).expect("a name");
        Self { config: Arc::new(config), name }
    }
}

fn certificate(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}
