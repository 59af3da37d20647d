//! Certificates and keys out of PEM.

use rustls::RootCertStore;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// A file's contents, with its name for messages.
#[derive(Clone, Copy)]
pub struct Pem<'a> {
    /// What the file is called.
    pub file: &'a str,
    /// What it holds.
    pub bytes: &'a [u8],
}

impl<'a> Pem<'a> {
    /// The contents of a file.
    pub fn new(file: &'a str, bytes: &'a [u8]) -> Self {
        Self { file, bytes }
    }

    /// Its certificates, in their order; at least one.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let list: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.bytes).collect();
        let list = list.map_err(|error| self.unreadable(&error))?;
        match list.is_empty() {
            true => Err(TlsError::Missing {
                file: self.file.into(),
                what: "certificate",
                label: "CERTIFICATE",
                remedy: "convert DER with `openssl x509 -inform der`",
            }),
            false => Ok(list),
        }
    }

    /// Its private key: the first one.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        match PrivateKeyDer::from_pem_slice(self.bytes) {
            Ok(key) => Ok(key),
            Err(pem::Error::NoItemsFound) => Err(TlsError::Missing {
                file: self.file.into(),
                what: "private key",
                label: "PRIVATE KEY",
                remedy: "a key with a passphrase (ENCRYPTED PRIVATE KEY) must be written without one",
            }),
            Err(error) => Err(self.unreadable(&error)),
        }
    }

    /// Its certificates as authorities to trust. Each must be usable: one that is silently left out would be missed
    /// only when a peer is refused.
    pub(crate) fn roots(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            let unusable = |error| TlsError::Certificate { file: self.file.into(), why: format!("{error}") };
            roots.add(certificate).map_err(unusable)?;
        }
        Ok(roots)
    }

    fn unreadable(&self, error: &pem::Error) -> TlsError {
        let why = match error {
            pem::Error::MissingSectionEnd { .. } => "a block does not end".into(),
            error => error.to_string(),
        };
        TlsError::Pem { file: self.file.into(), why }
    }
}
