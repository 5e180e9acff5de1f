//! How we give back what is ours: one model, or all of it when we go.
use crate::{
    change::Host,
    guest::{Guest, Refusal},
    lock::TargetLock,
};
use motorpool_residency::{Leaving, Listing, Mutation, MutationKind, Owned, Seen, Stamp, Stays};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

impl Guest {
    /// Gives `model` back, which a person wants gone. Refused when it is not ours, or in use. Once the server is told, it is
    /// carried out whatever becomes of who asked.
    pub async fn release(&self, model: &str) -> Result<(), Refusal> {
        let lock = self.lock().await?;
        // From here on who wants to use it looks first.
        self.distrust();
        let listing = self.host.list().await?;
        let seen: &Seen = listing.residents().find(|seen| seen.is_called(model)).ok_or(Refusal::NotOurs)?;
        let going = self.host.common.go(self.key(), seen).map_err(|why| match why {
            Stays::NotOurs => Refusal::NotOurs,
            Stays::InUse => Refusal::InUse(vec![seen.id.clone()]),
        })?;
        let (host, model) = (Arc::clone(&self.host), seen.id.clone());
        let task = self.host.common.spawn(self.key(), async move {
            let unloaded = host.server.unload(&model).await;
            if unloaded.is_ok() {
                host.gone(&model);
                host.common.written().await;
            }
            drop((going, lock));
            unloaded
        });
        Ok(task.await.map_err(|_| Refusal::BrokeOff)??)
    }

    /// Gives back all that is ours, within `within` in all; errors are nobody's business any more. For whose leases ended: a
    /// load of ours that is still under way is broken off, and what comes of it given back too.
    pub async fn leave(&self, within: Duration) {
        self.host.common.break_off(self.key());
        self.leave_as(Leaving::Everything, within).await;
    }

    /// The present, for a probe that begins now.
    pub fn stamp(&self) -> Stamp {
        self.host.common.stamp()
    }

    /// What a one-shot probe of `model` gives back: only what became ours there `since` it began.
    pub async fn leave_probe(&self, (since, model): (Stamp, &str), within: Duration) {
        self.leave_as(Leaving::Probe { since, key: self.key(), model }, within).await;
    }

    async fn leave_as(&self, who: Leaving<'_>, within: Duration) {
        let is_here = |owned: &Owned| owned.key == *self.key();
        let (mut ours, coming) = {
            let own = self.host.common.own();
            (own.book.leaving(who), own.book.coming().filter(|owned| is_here(owned)).cloned().collect::<Vec<_>>())
        };
        ours.retain(is_here);
        let coming = if who == Leaving::Everything { coming } else { Vec::new() };
        if ours.is_empty() && coming.is_empty() {
            return;
        }
        let releases = async {
            let setting = &self.host.common.setting;
            let Ok(_lock) = TargetLock::take(&setting.run, self.key(), within).await else { return };
            let Ok(listing) = self.host.list().await else { return };
            // All at once: the time is for all of them together.
            let mut unloads = JoinSet::new();
            for model in self.still_ours(&listing, &ours, &coming) {
                let host = Arc::clone(&self.host);
                unloads.spawn(async move {
                    if host.server.unload(&model).await.is_ok() {
                        host.gone(&model);
                    }
                });
            }
            while unloads.join_next().await.is_some() {}
            for owned in &coming {
                self.host.common.came((self.key(), &owned.model));
            }
            self.host.common.written().await;
        };
        let _ = tokio::time::timeout(within, releases).await;
    }

    /// What of `listing` goes with us. What others loaded again since is not ours to unload; what was not there before a
    /// load of ours that was broken off came by it.
    fn still_ours(&self, listing: &Listing, ours: &[Owned], coming: &[Owned]) -> Vec<String> {
        let own = self.host.common.own();
        let is_ours = |seen: &Seen| own.book.owned(self.key(), seen).is_some_and(|owned| ours.contains(owned));
        let came = |seen: &Seen| {
            let is_it = |owned: &Owned| {
                seen.is_called(&owned.model) && (owned.instance.is_none() || owned.instance == seen.instance)
            };
            coming.iter().any(is_it)
        };
        let going = listing.residents().filter(|seen| is_ours(seen) || came(seen));
        going.map(|seen| seen.id.clone()).collect()
    }
}

impl Host {
    fn gone(&self, model: &str) {
        self.common.forget(self.key(), model);
        self.common.tell_change(&self.target, Mutation { kind: MutationKind::Evict, model: model.to_owned() });
    }
}
