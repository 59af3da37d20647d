//! Names in certificates.

use serde_json::Value as Json;

use super::host_name_fault;
use crate::diagnostics::Fault;
use crate::field::{Value, pattern};

/// A name that a certificate may have: a host name or all below one, a URI, or a mail address.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SanRule {
    /// A host name; `*.` before it means all below.
    Dns(String),
    /// A URI.
    Uri(String),
    /// A mail address.
    Email(String),
}

impl Value for SanRule {
    const KIND: &'static str = "a certificate's name";

    fn parse(text: &str) -> Result<Self, Fault> {
        let fault = |rule: &str| {
            Fault::new(rule, "write dns:gw.example.com, dns:*.example.com, uri:spiffe://… or email:…")
        };
        if text.len() > 512 || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(fault("at most 512 printable ASCII characters without spaces"));
        }
        match text.split_once(':') {
            Some(("dns", name)) => match host_name_fault(name.strip_prefix("*.").unwrap_or(name)) {
                Some(fault) => Err(fault),
                None => Ok(Self::Dns(name.to_owned())),
            },
            Some((kind @ ("uri" | "email"), name)) if name.contains('*') => {
                Err(fault(&format!("a name of kind {kind} is exact: `*` stands only in `dns:*.`")))
            }
            Some(("uri", name)) if name.contains(':') => Ok(Self::Uri(name.to_owned())),
            Some(("uri", _)) => Err(fault("a URI has a scheme")),
            Some(("email", name)) if name.contains('@') => Ok(Self::Email(name.to_owned())),
            Some(("email", _)) => Err(fault("a mail address has an `@`")),
            _ => Err(fault("its kind comes first: `dns:`, `uri:` or `email:`")),
        }
    }

    fn schema() -> Json {
        pattern("^(dns|uri|email):")
    }
}
