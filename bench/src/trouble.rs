//! What befalls one of the mock engines.

use tokio::sync::watch;

/// A trouble of an engine. Answers that are under way when it begins are finished, unless the engine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Trouble {
    /// The process is gone: connections end at once, new ones are refused.
    Killed,
    /// It accepts, reads and never answers, not even `/health`.
    Stuck,
    /// It takes ten times as long for each token.
    Slow,
    /// Every second request gets a 500.
    Failing,
}

impl Trouble {
    /// All troubles.
    pub const ALL: [Trouble; 4] = [Trouble::Killed, Trouble::Stuck, Trouble::Slow, Trouble::Failing];

    /// How many times longer a slow engine takes.
    pub const SLOWNESS: u64 = 10;

    /// The name on the command line, in tables and on the mock engines' standard input.
    pub fn name(self) -> &'static str {
        ["killed", "stuck", "slow", "failing"][self as usize]
    }

    /// The trouble of this name.
    pub fn named(name: &str) -> Option<Trouble> {
        Self::ALL.into_iter().find(|trouble| trouble.name() == name)
    }

    /// Comes back when the engine is killed; never, if nothing more can befall it.
    pub async fn kills(trouble: &mut watch::Receiver<Option<Trouble>>) {
        if trouble.wait_for(|now| *now == Some(Trouble::Killed)).await.is_err() {
            std::future::pending().await
        }
    }
}
