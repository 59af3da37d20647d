//! What can be wrong with certificates and keys.

use thiserror::Error;

/// A file that is not what it should be. The text names the file, the thing, the rule and the remedy, and shows no
/// byte of a key.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TlsError {
    /// No PEM of the kind wanted.
    #[error("{file} holds no {what} in PEM form: it must have a `-----BEGIN {label}-----` block; {remedy}")]
    Missing {
        /// The file.
        file: String,
        /// What was looked for.
        what: &'static str,
        /// The label of its block.
        label: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// PEM that cannot be read.
    #[error("{file} cannot be read as PEM ({why}): write it again from its source")]
    Pem {
        /// The file.
        file: String,
        /// What the reader said.
        why: String,
    },
    /// A certificate that cannot be used.
    #[error("the certificate in {file} cannot be used ({why}): issue it again")]
    Certificate {
        /// The file.
        file: String,
        /// Why not.
        why: String,
    },
    /// A key that cannot be used.
    #[error(
        "the private key in {file} cannot be used ({why}): RSA from 2048 bits, ECDSA P-256 and P-384 and Ed25519 \
         keys can be, in PKCS#8, PKCS#1 or SEC1 form and without a passphrase"
    )]
    Key {
        /// The file.
        file: String,
        /// Why not.
        why: String,
    },
    /// A key and a certificate that do not belong together.
    #[error(
        "the private key in {key} does not belong to the first certificate in {certificate}: replace both files \
         together, the server's own certificate first in its file"
    )]
    Mismatch {
        /// The key's file.
        key: String,
        /// The certificate's file.
        certificate: String,
    },
    /// A list of pairs without one.
    #[error("there is no certificate to serve with: give at least one pair of certificate and key")]
    NoPair,
    /// None of the system's certificates could be used.
    #[error(
        "the system has no certificate authorities to trust: install its package of them (ca-certificates), or name \
         a bundle in `tls.ca`"
    )]
    NoSystemRoots,
    /// The versions or suites do not fit; a fault of the build.
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}
