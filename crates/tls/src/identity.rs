//! What a certificate says of its holder.

use x509_cert::Certificate;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

/// Names of one certificate that are read; one with more speaks for too many.
const MAX_NAMES: usize = 256;

/// Who holds a certificate, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Its names, each with its kind: `dns:…`, `uri:…` or `email:…`. Others, such as addresses and the subject's common
    /// name, are not read.
    pub names: Vec<String>,
    /// When the certificate ends, seconds since 1970.
    pub not_after_s: u64,
}

/// Reads a certificate in DER form. `None` for one that cannot be read; whether it is to be trusted is not looked at.
pub fn identity(certificate: &[u8]) -> Option<Identity> {
    let certificate = Certificate::from_der(certificate).ok()?.tbs_certificate;
    let mut names = Vec::new();
    if let Some((_, SubjectAltName(list))) = certificate.get::<SubjectAltName>().ok()? {
        for name in list.iter().take(MAX_NAMES) {
            match name {
                GeneralName::DnsName(name) => names.push(format!("dns:{name}")),
                GeneralName::UniformResourceIdentifier(name) => names.push(format!("uri:{name}")),
                GeneralName::Rfc822Name(name) => names.push(format!("email:{name}")),
                _ => {}
            }
        }
    }
    let not_after_s = certificate.validity.not_after.to_unix_duration().as_secs();
    Some(Identity { names, not_after_s })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_three_kinds_are_read_and_garbage_is_not() {
        let mut params = rcgen::CertificateParams::new(vec!["a.example".into(), "10.0.0.1".into()]).unwrap();
        params.subject_alt_names.push(rcgen::SanType::URI("spiffe://prod/batch".try_into().unwrap()));
        params.subject_alt_names.push(rcgen::SanType::Rfc822Name("ops@a.example".try_into().unwrap()));
        params.not_after = rcgen::date_time_ymd(2031, 1, 2);
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let read = identity(certificate.der()).unwrap();
        assert_eq!(read.names, ["dns:a.example", "uri:spiffe://prod/batch", "email:ops@a.example"]);
        assert_eq!(read.not_after_s, 1_925_078_400);
        assert_eq!(identity(&certificate.der()[..100]), None);
        assert_eq!(identity(b""), None);
    }
}
