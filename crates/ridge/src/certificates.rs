//! The files of TLS: read, made into what the gateway takes, and watched.

use config::{Config, FilePath, SanRule};
use discovery::FileWatch;
use tls::{ClientRules, NameKind, NameRule, Pem, ServerPair};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::serve::POLL;

/// More than any chain or bundle of authorities has.
const MAX_BYTES: u64 = 8 << 20;

/// Files with what they held.
#[derive(Default)]
pub struct Files(Vec<(FilePath, Vec<u8>)>);

impl Files {
    /// Reads a file that was not read before.
    fn read(&mut self, path: &FilePath) -> Result<(), String> {
        if self.0.iter().any(|(known, _)| known == path) {
            return Ok(());
        }
        let bytes = discovery::read_file(path, MAX_BYTES).map_err(|error| {
            format!("{path} cannot be read ({error}): check the path, and that ridge's user may read it")
        })?;
        self.0.push((path.clone(), bytes));
        Ok(())
    }

    /// A file that has been read.
    fn pem<'f>(&'f self, path: &'f FilePath) -> Pem<'f> {
        let found = self.0.iter().find(|(known, _)| known == path);
        Pem::new(path, found.map_or(&[], |(_, bytes)| bytes))
    }
}

/// How clients are served with TLS, if they are, and the files that say so.
pub fn serving(config: &Config) -> Result<Option<(gateway::Tls, Files)>, String> {
    let (Some(certificate), Some(key)) = (&config.tls.certificate, &config.tls.key) else { return Ok(None) };
    if config.listen_tls.is_empty() {
        return Ok(None);
    }
    let more = config.tls.more_certificates.iter().map(|pair| (&pair.certificate, &pair.key));
    let pairs: Vec<_> = std::iter::once((certificate, key)).chain(more).collect();
    let mut files = Files::default();
    for path in pairs.iter().flat_map(|&(certificate, key)| [certificate, key]).chain(&config.tls.client_ca) {
        files.read(path)?;
    }
    let pair = |&(chain, key)| ServerPair { chain: files.pem(chain), key: files.pem(key) };
    let pairs: Vec<ServerPair<'_>> = pairs.iter().map(pair).collect();
    let clients = config.tls.client_ca.as_ref().map(|authorities| ClientRules {
        authorities: files.pem(authorities),
        names: config.tls.client_names.iter().map(name_rule).collect(),
    });
    let serving = tls::server(&pairs, clients).map_err(|error| error.to_string())?;
    let tls = gateway::Tls {
        serving,
        handshake_timeout: config.tls.handshake_timeout,
        max_handshakes: config.tls.max_handshakes as usize,
    };
    Ok(Some((tls, files)))
}

fn name_rule(rule: &SanRule) -> NameRule {
    match rule {
        SanRule::Dns(name) => NameRule::new(NameKind::Dns, name),
        SanRule::Uri(name) => NameRule::new(NameKind::Uri, name),
        SanRule::Email(name) => NameRule::new(NameKind::Email, name),
    }
}

/// Waits for changes of files.
pub struct Watch {
    files: Vec<FilePath>,
    tasks: Vec<JoinHandle<()>>,
    sender: mpsc::Sender<()>,
    changes: mpsc::Receiver<()>,
}

impl Watch {
    /// Watches nothing yet.
    pub fn new() -> Self {
        let (sender, changes) = mpsc::channel(1);
        Self { files: Vec::new(), tasks: Vec::new(), sender, changes }
    }

    /// Watches these files from now on, and only these.
    pub fn replace(&mut self, files: Files) {
        let paths: Vec<FilePath> = files.0.iter().map(|(path, _)| path.clone()).collect();
        if paths == self.files {
            return; // their watches know what they hold
        }
        self.tasks.drain(..).for_each(|task| task.abort());
        self.files = paths;
        for (path, bytes) in files.0 {
            let mut watch = FileWatch::known(&path, &bytes, POLL);
            let sender = self.sender.clone();
            self.tasks.push(tokio::task::spawn_local(async move {
                loop {
                    // That it cannot be read is seen when it is read again.
                    let _ = watch.changed().await;
                    if sender.send(()).await.is_err() {
                        return;
                    }
                }
            }));
        }
    }

    /// Waits until one of them has changed.
    pub async fn changed(&mut self) {
        // Never `None`: a sender is kept.
        let _ = self.changes.recv().await;
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.tasks.drain(..).for_each(|task| task.abort());
    }
}
