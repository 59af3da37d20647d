//! The side that connects.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};

use crate::server::{ServerPair, accepts, certified};
use crate::{NameRule, Pem, TlsError, identity, provider};

/// The certificate that a client shows.
pub type ClientPair<'a> = ServerPair<'a>;

/// Whose certificates a server may have.
pub enum Trust<'a> {
    /// Those of the authorities in this bundle and of no others.
    Bundle(Pem<'a>),
    /// Those of these authorities, in DER form: the system's. Some of a system's are too odd to be used; they are left
    /// out.
    System(&'a [CertificateDer<'static>]),
}

/// Makes the configuration of connections to a server. With `names` the server's certificate must have one of them, in
/// place of the host's name. `h2` offers HTTP/2 and nothing else, otherwise HTTP/1.1 is offered.
pub fn client(
    trust: &Trust<'_>,
    pair: Option<&ClientPair<'_>>,
    names: Vec<NameRule>,
    h2: bool,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = match trust {
        Trust::Bundle(pem) => pem.roots()?,
        Trust::System(list) => {
            let mut roots = RootCertStore::empty();
            roots.add_parsable_certificates(list.iter().cloned());
            match roots.is_empty() {
                true => return Err(TlsError::NoSystemRoots),
                false => roots,
            }
        }
    };
    let roots = Arc::new(roots);
    let setup = |error: Error| TlsError::Setup(error.to_string());
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(setup)?;
    let verifier: Arc<dyn ServerCertVerifier> = match names.is_empty() {
        true => WebPkiServerVerifier::builder_with_provider(roots, provider())
            .build()
            .map_err(|error| TlsError::Setup(error.to_string()))?,
        false => {
            Arc::new(NamedServers { roots, names, algorithms: provider().signature_verification_algorithms })
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match pair {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let shown = rustls::sign::SingleCertAndKey::from(certified(pair)?);
            builder.with_client_cert_resolver(Arc::new(shown))
        }
    };
    config.alpn_protocols = vec![if h2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok(Arc::new(config))
}

/// Servers whose chain is good and whose certificate has one of the names, whatever host they were reached at.
#[derive(Debug)]
struct NamedServers {
    roots: Arc<RootCertStore>,
    names: Vec<NameRule>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for NamedServers {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        let server = identity(end_entity).ok_or(CertificateError::BadEncoding)?;
        match accepts(&self.names, &server.names) {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
