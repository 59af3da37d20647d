//! The side that serves.

use std::collections::HashMap;
use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, ServerConfig, SignatureScheme,
};

use crate::{NameRule, Pem, TlsError, identity, provider};

/// A certificate chain and its key.
#[derive(Clone, Copy)]
pub struct ServerPair<'a> {
    /// The server's certificate, then those of the authorities between it and the root.
    pub chain: Pem<'a>,
    /// The first certificate's key.
    pub key: Pem<'a>,
}

/// Clients must show a certificate.
pub struct ClientRules<'a> {
    /// The authorities that issue them.
    pub authorities: Pem<'a>,
    /// Names of which a client's certificate must have one; empty: every name is accepted.
    pub names: Vec<NameRule>,
}

/// What a listener needs.
#[derive(Clone, Debug)]
pub struct Serving {
    /// For rustls. TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1.
    pub config: Arc<ServerConfig>,
    /// Each certificate's file, and when it ends, seconds since 1970.
    pub not_after_s: Vec<(String, u64)>,
    /// The names of which a client must have one; empty: all are accepted.
    pub client_names: Vec<NameRule>,
}

impl Serving {
    /// Who a client is by its certificate. To be asked when a handshake is done, also when it resumed an earlier
    /// session: then nothing has looked at the certificate since, and it may have ended.
    pub fn client(&self, certificate: &[u8], now_s: u64) -> Option<crate::Identity> {
        let client = identity(certificate)?;
        (client.not_after_s >= now_s && accepts(&self.client_names, &client.names)).then_some(client)
    }
}

/// Makes the configuration of a listener. A client that asks for a host name gets the certificate that has it, every
/// other client the first one.
///
/// Sessions are resumed by tickets, whose keys belong to this configuration and change every six hours: after a reload
/// every client is looked at again.
pub fn server(pairs: &[ServerPair<'_>], clients: Option<ClientRules<'_>>) -> Result<Serving, TlsError> {
    let mut by_name = ByName::default();
    let mut not_after_s = Vec::new();
    for pair in pairs {
        let certified = Arc::new(certified(pair)?);
        let read = certified.cert.first().and_then(|certificate| identity(certificate));
        let names = read.as_ref().map(|read| read.names.as_slice()).unwrap_or_default();
        let hosts = names.iter().filter_map(|name| name.strip_prefix("dns:"));
        for name in hosts {
            by_name.names.entry(name.to_ascii_lowercase()).or_insert_with(|| Arc::clone(&certified));
        }
        if let Some(read) = &read {
            not_after_s.push((pair.chain.file.to_owned(), read.not_after_s));
        }
        by_name.first.get_or_insert(certified);
    }
    if by_name.first.is_none() {
        return Err(TlsError::NoPair);
    }
    let setup = |error: Error| TlsError::Setup(error.to_string());
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(setup)?;
    let mut client_names = Vec::new();
    let builder = match clients {
        None => builder.with_no_client_auth(),
        Some(ClientRules { authorities, names }) => {
            let roots = Arc::new(authorities.roots()?);
            let chain = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| TlsError::Setup(error.to_string()))?;
            client_names.clone_from(&names);
            builder.with_client_cert_verifier(Arc::new(NamedClients { chain, names }))
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(by_name));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    config.ticketer = rustls::crypto::ring::Ticketer::new().map_err(setup)?;
    Ok(Serving { config: Arc::new(config), not_after_s, client_names })
}

/// The chain with its key, which belong together.
pub(crate) fn certified(pair: &ServerPair<'_>) -> Result<CertifiedKey, TlsError> {
    let chain = pair.chain.certificates()?;
    let key = pair.key.key()?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
        Error::InconsistentKeys(_) => {
            TlsError::Mismatch { key: pair.key.file.into(), certificate: pair.chain.file.into() }
        }
        Error::InvalidCertificate(why) => {
            TlsError::Certificate { file: pair.chain.file.into(), why: why.to_string() }
        }
        error => TlsError::Key { file: pair.key.file.into(), why: error.to_string() },
    })
}

pub(crate) fn accepts(rules: &[NameRule], names: &[String]) -> bool {
    rules.is_empty() || names.iter().any(|name| rules.iter().any(|rule| rule.accepts(name)))
}

/// The certificate for the host name that a client asks for.
#[derive(Debug, Default)]
struct ByName {
    first: Option<Arc<CertifiedKey>>,
    names: HashMap<String, Arc<CertifiedKey>>,
}

impl ResolvesServerCert for ByName {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let by_name = hello.server_name().filter(|_| self.names.len() > 1).and_then(|name| {
            let name = name.to_ascii_lowercase();
            let below = || self.names.get(&format!("*.{}", name.split_once('.')?.1));
            self.names.get(&name).or_else(below)
        });
        by_name.or(self.first.as_ref()).map(Arc::clone)
    }
}

/// Clients whose chain is good and whose certificate has one of the names.
#[derive(Debug)]
struct NamedClients {
    chain: Arc<dyn ClientCertVerifier>,
    names: Vec<NameRule>,
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.chain.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let good = self.chain.verify_client_cert(end_entity, intermediates, now)?;
        let client = identity(end_entity).ok_or(CertificateError::BadEncoding)?;
        match accepts(&self.names, &client.names) {
            true => Ok(good),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
