//! [`Autoload`]: whether a router heeds `autoload=0`, which each of our requests to it carries so that it loads for none.
//!
//! Newer builds say in `GET /props` that they have the setting. Of others it is found out when it does no harm: just
//! before our own load of a model that is not there, by a question about that very model. One that does not heed it loads
//! what we were about to load.
use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

/// Whether a router heeds `autoload=0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Autoload {
    /// Its build does not say, and nothing was seen of it yet.
    #[default]
    Untold,
    /// It does.
    Heeded,
    /// It was seen to load for a request that carried it: what is there may be displaced by any request for something else.
    Ignored,
}

/// What is known of one router, by whoever asks it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Learned(Arc<AtomicU8>);

impl Autoload {
    const ALL: [Self; 3] = [Self::Untold, Self::Heeded, Self::Ignored];

    /// As programs read it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Untold => "untold",
            Self::Heeded => "heeded",
            Self::Ignored => "ignored",
        }
    }
}

impl Learned {
    pub(crate) fn get(&self) -> Autoload {
        let known = self.0.load(Ordering::Relaxed);
        Autoload::ALL.into_iter().find(|one| *one as u8 == known).unwrap_or_default()
    }

    /// It is so from now on; a server that was started anew may be another build, so the last word counts.
    pub(crate) fn put(&self, autoload: Autoload) {
        if self.0.swap(autoload as u8, Ordering::Relaxed) != Autoload::Ignored as u8 && autoload == Autoload::Ignored {
            tracing::warn!("a router loads for requests that carry autoload=0: they may displace what it holds");
        }
    }
}
