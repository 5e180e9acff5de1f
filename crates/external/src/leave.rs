//! How we give back what is ours: one model, or all of it when we go.
use crate::{
    change::Host,
    guest::{Guest, Refusal},
    lock::TargetLock,
};
use motorpool_residency::{Leaving, Mutation, MutationKind, Owned, Seen, Used};
use std::time::Duration;

impl Guest {
    /// Gives `model` back, which a person wants gone. Refused when it is not ours, or in use.
    pub async fn release(&self, model: &str) -> Result<(), Refusal> {
        let _lock = self.lock().await?;
        // From here on who wants to use it looks first.
        self.distrust();
        let listing = self.host.server.list().await?;
        self.host.common.observe((self.target(), self.key()), &listing);
        let seen: &Seen = listing.residents().find(|seen| seen.is_called(model)).ok_or(Refusal::NotOurs)?;
        if !self.is_ours(&seen.id) {
            return Err(Refusal::NotOurs);
        }
        let used = self.host.common.own().book.used(self.key(), seen);
        if used == Used::InUse {
            return Err(Refusal::InUse(vec![seen.id.clone()]));
        }
        self.host.server.unload(&seen.id).await?;
        self.host.gone(&seen.id);
        self.host.common.written().await;
        Ok(())
    }

    /// Gives back all that is ours, within `within` in all; errors are nobody's business any more. For whose leases ended.
    pub async fn leave(&self, within: Duration) {
        self.leave_as(Leaving::Everything, within).await;
    }

    /// What a one-shot probe of `model` gives back: only what became ours there since `since` (UNIX time, seconds).
    pub async fn leave_probe(&self, (since, model): (u64, &str), within: Duration) {
        self.leave_as(Leaving::Probe { since, key: self.key(), model }, within).await;
    }

    async fn leave_as(&self, who: Leaving<'_>, within: Duration) {
        let ours: Vec<Owned> = self.host.common.own().book.leaving(who);
        let ours: Vec<Owned> = ours.into_iter().filter(|owned| owned.key == *self.key()).collect();
        if ours.is_empty() {
            return;
        }
        let releases = async {
            let setting = &self.host.common.setting;
            let Ok(_lock) = TargetLock::take(&setting.run, self.key(), within).await else { return };
            for owned in ours {
                if self.is_same(&owned).await && self.host.server.unload(&owned.model).await.is_ok() {
                    self.host.gone(&owned.model);
                }
            }
            self.host.common.written().await;
        };
        let _ = tokio::time::timeout(within, releases).await;
    }

    /// What others loaded again since is not ours to unload.
    async fn is_same(&self, owned: &Owned) -> bool {
        let Ok(listing) = self.host.server.list().await else { return false };
        self.host.common.observe((self.target(), self.key()), &listing);
        self.owned().contains(owned)
    }
}

impl Host {
    fn gone(&self, model: &str) {
        self.common.forget(self.server.key(), model);
        self.common.tell_change(&self.target, Mutation { kind: MutationKind::Evict, model: model.to_owned() });
    }
}
