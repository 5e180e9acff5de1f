//! [`Guests`]: one guest on each server, however many targets mean it, and the way out of all of them at once.
use crate::{
    guest::{Guest, Setting},
    router::Router,
};
use motorpool_vocab::TargetKey;
use std::{collections::HashMap, time::Duration};
use tokio::task::JoinSet;

/// How long all releases may take together when we exit.
pub const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// All of them. Two targets on one server share its guest, so that neither takes what the other loaded for foreign.
#[derive(Debug, Default)]
pub struct Guests {
    by_key: HashMap<TargetKey, Guest>,
}

impl Guests {
    /// The guest on the server of `router`. When an earlier target means the same server, it is that target's guest:
    /// `router` and `setting` are dropped.
    pub fn admit(&mut self, router: Router, setting: Setting) -> Guest {
        let key = router.key().clone();
        self.by_key.entry(key).or_insert_with(|| Guest::new(router, setting)).clone()
    }

    /// Gives back all that is ours on every server, all at once, within `within` in all ([`LEAVE_WITHIN`] on exit). A
    /// server that does not answer costs the others nothing, and errors are nobody's business any more.
    pub async fn leave_all(&self, within: Duration) {
        let mut leaving = JoinSet::new();
        for guest in self.by_key.values() {
            let guest = guest.clone();
            leaving.spawn(async move { guest.leave(within).await });
        }
        while leaving.join_next().await.is_some() {}
    }
}
