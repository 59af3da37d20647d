//! Certificates for a test: an authority of its own, and what it issues.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType, date_time_ymd};

/// An authority that nobody else knows.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

/// A certificate and its key, in PEM form.
#[derive(Clone)]
pub struct Issued {
    /// The certificate.
    pub chain: String,
    /// Its key.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "rig authority");
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }

    /// A certificate with these names (`spiffe://…` is a URI, `a@b` a mail address, an address an address, all else a
    /// host name), valid from 2020 on.
    pub fn issue(&self, names: &[&str]) -> Issued {
        self.issue_until(names, 2090)
    }

    /// A certificate that ends with the beginning of this year.
    pub fn issue_until(&self, names: &[&str], year: i32) -> Issued {
        let mut params = CertificateParams::default();
        for &name in names {
            let text = || name.try_into().expect("an ASCII name");
            params.subject_alt_names.push(match name.parse() {
                Ok(address) => SanType::IpAddress(address),
                Err(_) if name.contains("://") => SanType::URI(text()),
                Err(_) if name.contains('@') => SanType::Rfc822Name(text()),
                Err(_) => SanType::DnsName(text()),
            });
        }
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(year, 1, 1);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        Issued { chain: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A folder for a test's files, gone at the test's end.
pub struct Folder(PathBuf);

impl Default for Folder {
    fn default() -> Self {
        Self::new()
    }
}

impl Folder {
    /// A new, empty one.
    pub fn new() -> Self {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ridge-rig-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    /// Writes a file; gives its path.
    pub fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, contents).expect("a file");
        path.display().to_string()
    }

    /// Writes a certificate and its key as `NAME.crt` and `NAME.key`; gives their paths.
    pub fn write_pair(&self, name: &str, issued: &Issued) -> (String, String) {
        let chain = self.write(&format!("{name}.crt"), &issued.chain);
        (chain, self.write(&format!("{name}.key"), &issued.key))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
