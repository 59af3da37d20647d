//! Noticing that a file changed.
//!
//! By asking twice a second, not by kernel notifications: a ConfigMap is a link to a link whose middle is swapped, an
//! editor renames a new file over the old one, a file may be on a network share. Each of these needs its own watches
//! and some give none at all, while asking costs two system calls and is always right.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::time::{Instant, sleep_until};
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
    next_poll: Option<Instant>,
    /// What was last given out.
    told: Option<State>,
    /// What is there instead and has yet to come to rest.
    unsettled: Option<Unsettled>,
    seen: Option<Stamp>,
    read_at: Option<Instant>,
    /// A change showed, and the contents have not been compared since.
    dirty: bool,
}

#[derive(Debug, Clone, Copy)]
struct Unsettled {
    state: State,
    same_polls: u32,
    polls: u32,
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
        Self {
            path: path.as_ref().to_owned(),
            poll,
            next_poll: None,
            told: None,
            unsettled: None,
            seen: None,
            read_at: None,
            dirty: false,
        }
    }

    /// Watches a file whose contents are known already: [`changed`](Self::changed) returns when they differ.
    pub fn known(path: impl AsRef<Path>, contents: &[u8], poll: Duration) -> Self {
        Self { told: Some(State::Contents(xxh3_128(contents))), ..Self::new(path, poll) }
    }

    /// Waits until the contents differ from those that were last given out, and gives them out. That the file cannot
    /// be read is told once, until it can be read again. May be dropped and called again at any time, also more often
    /// than it polls.
    pub async fn changed(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(next_poll) = self.next_poll {
                sleep_until(next_poll).await;
            }
            if self.may_have_changed().await {
                let read = crate::read_file(&self.path, MAX_BYTES);
                if self.is_settled(&read) {
                    return read;
                }
            }
            // Last: a call that was dropped before it came here polls again.
            self.next_poll = Some(Instant::now() + self.poll);
        }
    }

    /// Takes in what was read, and says whether it is to be given out.
    fn is_settled(&mut self, read: &io::Result<Vec<u8>>) -> bool {
        let state = match read {
            Ok(contents) => State::Contents(xxh3_128(contents)),
            Err(error) => State::Unreadable(error.kind()),
        };
        self.read_at = Some(Instant::now());
        self.dirty = false;
        if self.told == Some(state) {
            // Back to what it was, or only touched.
            self.unsettled = None;
            return false;
        }
        let (same_polls, polls) = match self.unsettled {
            Some(before) if before.state == state => (before.same_polls + 1, before.polls + 1),
            Some(before) => (1, before.polls + 1),
            None => (1, 1),
        };
        // A file that is being written, or a rename's short gap, is given time. The first contents are not: somebody
        // waits for them.
        let first = self.told.is_none();
        let settled = first || same_polls >= SETTLE_POLLS || polls >= MAX_UNSETTLED_POLLS;
        self.unsettled = (!settled).then_some(Unsettled { state, same_polls, polls });
        if settled {
            self.told = Some(state);
            self.next_poll = Some(Instant::now() + self.poll);
        }
        settled
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
        self.dirty || self.unsettled.is_some() || fresh || stale
    }
}
