//! Noticing that a file changed.
//!
//! By asking twice a second, not by kernel notifications: a ConfigMap is a link to a link whose middle is swapped, an
//! editor renames a new file over the old one, a file may be on a network share. Each of these needs its own watches
//! and some give none at all, while asking costs two system calls and is always right.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use tokio::io::AsyncReadExt;
use xxhash_rust::xxh3::xxh3_128;

/// More than the configuration accepts, so that a file that is too large is refused there, with a message.
const MAX_BYTES: u64 = 9 << 20;
/// A file that was written to this recently may be written to again within the resolution of its time stamp.
const FRESH: Duration = Duration::from_secs(3);
/// Contents are compared this often also when nothing shows: time stamps can be set, and some shares have none.
const RECHECK: Duration = Duration::from_secs(10);
/// How long contents must stay the same before they count, in polls.
const SETTLE_POLLS: u32 = 2;
/// A file that never comes to rest is taken as it is.
const MAX_UNSETTLED_POLLS: u32 = 10;

/// Waits for changes of a file's contents.
#[derive(Debug)]
pub struct FileWatch {
    path: PathBuf,
    poll: Duration,
    /// What the last call gave out.
    told: Option<State>,
    seen: Option<Stamp>,
    read_at: Option<Instant>,
    /// A change showed that has not been given out: a call that was dropped may have seen it.
    dirty: bool,
}

/// What a file held: a hash of its contents, or why it could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Contents(u128),
    Unreadable(io::ErrorKind),
}

/// What shows without reading that a file may have changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    modified: Option<SystemTime>,
    changed_s: i64,
    changed_ns: i64,
}

impl FileWatch {
    /// Watches a file that has not been read yet: the first [`changed`](Self::changed) returns what it holds.
    pub fn new(path: impl AsRef<Path>, poll: Duration) -> Self {
        Self { path: path.as_ref().to_owned(), poll, told: None, seen: None, read_at: None, dirty: false }
    }

    /// Watches a file whose contents are known already: [`changed`](Self::changed) returns when they differ.
    pub fn known(path: impl AsRef<Path>, contents: &[u8], poll: Duration) -> Self {
        Self { told: Some(State::Contents(xxh3_128(contents))), ..Self::new(path, poll) }
    }

    /// Waits until the contents differ from those that were last given out, and gives them out. That the file cannot
    /// be read is told once, until it can be read again. May be dropped and called again at any time.
    pub async fn changed(&mut self) -> io::Result<Vec<u8>> {
        let mut last: Option<State> = None;
        let mut same_polls = 0;
        let mut polls = 0;
        loop {
            let first = self.told.is_none();
            if last.is_some() || self.may_have_changed().await {
                let read = read_bounded(&self.path).await;
                self.read_at = Some(Instant::now());
                let state = match &read {
                    Ok(contents) => State::Contents(xxh3_128(contents)),
                    Err(error) => State::Unreadable(error.kind()),
                };
                if self.told == Some(state) {
                    // Back to what it was, or only touched.
                    last = None;
                    self.dirty = false;
                } else {
                    same_polls = if last == Some(state) { same_polls + 1 } else { 1 };
                    polls += 1;
                    last = Some(state);
                    // A file that is being written, or a rename's short gap, is given time.
                    if first || same_polls >= SETTLE_POLLS || polls >= MAX_UNSETTLED_POLLS {
                        self.told = Some(state);
                        self.dirty = false;
                        return read;
                    }
                }
            }
            if last.is_none() {
                (same_polls, polls) = (0, 0);
            }
            tokio::time::sleep(self.poll).await;
        }
    }

    async fn may_have_changed(&mut self) -> bool {
        let stamp = tokio::fs::metadata(&self.path).await.ok().map(|meta| Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            len: meta.len(),
            modified: meta.modified().ok(),
            changed_s: meta.ctime(),
            changed_ns: meta.ctime_nsec(),
        });
        let fresh = stamp
            .and_then(|stamp| stamp.modified)
            .and_then(|modified| modified.elapsed().ok())
            .is_none_or(|age| age < FRESH);
        let stale = self.read_at.is_none_or(|at| at.elapsed() >= RECHECK);
        self.dirty |= stamp != self.seen;
        self.seen = stamp;
        self.dirty || fresh || stale
    }
}

async fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let file = tokio::fs::File::open(path).await?;
    // A pipe would wait for a writer, a device has no end.
    if !file.metadata().await?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    let mut contents = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut contents).await?;
    Ok(contents)
}
