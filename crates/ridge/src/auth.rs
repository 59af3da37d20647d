//! The files that say who may call, read and watched.

use std::sync::Arc;
use std::time::Duration;

use access::{Access, Keys};
use config::FilePath;
use discovery::FileWatch;
use tokio::task::JoinSet;

/// How often the files are looked at.
const POLL: Duration = Duration::from_millis(500);

/// More than `access` takes, which has the better message.
const MAX_FILE_BYTES: u64 = 9 << 20;

/// Who may call, as the files say.
pub struct Auth {
    access: Option<Arc<Access>>,
    /// One for each file.
    watches: JoinSet<FileWatch>,
}

impl Auth {
    /// Reads the files and watches them.
    pub fn open(config: &config::Auth) -> Result<Self, String> {
        let (access, files) = read(config)?;
        Ok(Self { access: access.map(Arc::new), watches: watch(&files) })
    }

    /// Takes another configuration in, or none of it.
    pub fn reload(&mut self, config: &config::Auth) -> Result<(), String> {
        let (access, files) = read(config)?;
        self.replace(access);
        self.watches = watch(&files);
        Ok(())
    }

    /// Reads the files again. What was read before stays if one of them has an error.
    pub fn reread(&mut self, config: &config::Auth) -> Result<(), String> {
        let (access, _) = read(config)?;
        self.replace(access);
        Ok(())
    }

    /// Rates go on where they were.
    fn replace(&mut self, access: Option<Access>) {
        self.access = access.map(|access| {
            Arc::new(match &self.access {
                Some(before) => access.following(before),
                None => access,
            })
        });
    }

    /// The rules for the gateway.
    pub fn access(&self) -> Option<Arc<Access>> {
        self.access.clone()
    }

    /// Waits until one of the files has changed.
    pub async fn changed(&mut self) {
        match self.watches.join_next().await {
            Some(Ok(watch)) => {
                self.watches.spawn(next_change(watch));
            }
            // The tasks neither panic nor are stopped while this waits.
            Some(Err(_)) | None => std::future::pending().await,
        }
    }
}

type Texts = Vec<(FilePath, Vec<u8>)>;

fn read(config: &config::Auth) -> Result<(Option<Access>, Texts), String> {
    let mut files = Vec::new();
    for path in &config.keys {
        let text = discovery::read_file(path, MAX_FILE_BYTES)
            .map_err(|error| format!("{path} cannot be read: {error} (`auth.keys`)"))?;
        files.push((path.clone(), text));
    }
    let texts = files.iter().map(|(path, text)| (path.as_str(), text.as_slice()));
    let keys = Keys::read(texts).map_err(|error| format!("{error} (`auth.keys`)"))?;
    Ok((config.is_on().then(|| Access::new(keys, config.anonymous)), files))
}

fn watch(files: &Texts) -> JoinSet<FileWatch> {
    let mut watches = JoinSet::new();
    for (path, text) in files {
        watches.spawn(next_change(FileWatch::known(path, text, POLL)));
    }
    watches
}

/// That it cannot be read any more is a change too: why is told by who reads it next.
async fn next_change(mut watch: FileWatch) -> FileWatch {
    let _ = watch.changed().await;
    watch
}
