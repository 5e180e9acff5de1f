//! [`Guests`]: a guest for each target, and the way out of all servers at once.
use crate::{
    call::CallError,
    common::Common,
    guest::Guest,
    target::{Setting, Target},
};
use motorpool_residency::Adoption;
use motorpool_vocab::{ServerUrl, TargetKey};
use std::{collections::HashSet, io, sync::Arc, time::Duration};
use tokio::task::JoinSet;

/// How long all releases may take together when we exit.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// Why there are no guests.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// What an earlier run wrote down cannot be read.
    #[error("cannot read what earlier runs left on external servers")]
    Journal(#[source] io::Error),
    /// A target that cannot be spoken to.
    #[error("external {id}")]
    Target {
        /// Its name.
        id: String,
        /// Why.
        source: CallError,
    },
}

/// What a helper process of ours loaded.
#[derive(Clone, Debug)]
pub struct Report {
    /// The server's kind, as it stands in the configuration.
    pub kind: String,
    /// Where it is.
    pub url: ServerUrl,
    /// What it loaded.
    pub model: String,
    /// Which load of it, where the server tells loads apart.
    pub instance: Option<String>,
}

/// All of them, in configuration order. Two targets on one server share what they own and trust there.
#[derive(Debug)]
pub struct Guests {
    common: Arc<Common>,
    all: Vec<Guest>,
}

impl Guests {
    /// One on each of `targets`; nothing is connected yet. What an earlier run wrote down is taken over when its server
    /// is first listed, as far as it is still there.
    pub fn open(targets: Vec<Target>, setting: Setting) -> Result<Self, OpenError> {
        let none = Self { common: Arc::new(Common::open(setting).map_err(OpenError::Journal)?), all: Vec::new() };
        none.renewed(targets)
    }

    /// One on each of `targets` instead, which go on with what these know together: what is ours on a server stays ours, by
    /// whatever target it is reached. A target that is as it was keeps its guest, connections and all.
    pub fn renewed(&self, targets: Vec<Target>) -> Result<Self, OpenError> {
        let fresh = |target: Target| {
            let id = target.id.clone();
            Guest::new(target, Arc::clone(&self.common)).map_err(|source| OpenError::Target { id, source })
        };
        let known = |target: &Target| self.all.iter().find(|guest| guest.target() == target).cloned();
        let guest = |target: Target| known(&target).map_or_else(|| fresh(target), Ok);
        let all = targets.into_iter().map(guest).collect::<Result<_, _>>()?;
        Ok(Self { common: Arc::clone(&self.common), all })
    }

    /// From now on these are all: what was seen on other servers says nothing any more.
    pub fn are_all(&self) {
        self.common.forget_seen(|key| self.has(key));
    }

    /// Whether one of them is on this server.
    pub fn has(&self, key: &TargetKey) -> bool {
        self.all.iter().any(|guest| guest.key() == key)
    }

    /// The guest of the target called `id`.
    pub fn get(&self, id: &str) -> Option<&Guest> {
        self.all.iter().find(|guest| guest.target().id == id)
    }

    /// All of them, in configuration order.
    pub fn iter(&self) -> impl Iterator<Item = &Guest> {
        self.all.iter()
    }

    /// A helper process of ours says that it loaded something: from now on it is protected, and released when we exit.
    /// Refused when our own configuration has no such server of that kind.
    pub async fn adopt(&self, report: &Report) -> Adoption {
        match self.iter().find(|guest| guest.is_meant(report)) {
            Some(guest) => guest.adopt(report).await,
            None => Adoption::Refused,
        }
    }

    /// Why what is ours could not be written down the last time; `None` when it was.
    pub fn trouble(&self) -> Option<String> {
        self.common.trouble()
    }

    /// Looks at every server that an earlier run left something on, so that it is taken over and can be given back.
    pub async fn take_over(&self) {
        for key in self.common.left() {
            if let Some(guest) = self.iter().find(|guest| guest.key() == &key) {
                // One that does not answer is asked again when somebody needs it.
                drop(guest.look().await);
            }
        }
        self.common.written().await;
    }

    /// Gives back all that is ours on every server, all at once, within `within` in all ([`LEAVE_WITHIN`] on exit). A
    /// server that does not answer costs the others nothing, and errors are nobody's business any more.
    pub async fn leave_all(&self, within: Duration) {
        let (mut leaving, mut servers) = (JoinSet::new(), HashSet::new());
        for guest in self.all.iter().filter(|guest| servers.insert(guest.key().clone())) {
            let guest = guest.clone();
            leaving.spawn(async move { guest.leave(within).await });
        }
        while leaving.join_next().await.is_some() {}
    }
}
