//! [`Host`]: one target's server, and how changes of it are carried out: what `residency` says is next is performed, what
//! happened is reported back, until it is done.
use crate::{
    common::Common,
    error::ServerError,
    server::{Load, Loaded, Server},
    target::Target,
};
use motorpool_residency::{
    After, By, Carry, Decided, Ending, Failure, Happened, Listing, Mutation, MutationKind, Owner, Resident, Seen, Step,
    Used,
};
use std::sync::Arc;

/// One target's server, with what we know together.
#[derive(Debug)]
pub(crate) struct Host {
    pub(crate) target: Target,
    pub(crate) server: Server,
    pub(crate) common: Arc<Common>,
}

/// What is to be resident in the end.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// What the caller calls it.
    pub(crate) model: String,
    /// What its server calls it.
    pub(crate) wire: String,
    /// Tokens of context that Ollama has it loaded with, where that is known.
    pub(crate) loaded_with: Option<u32>,
    /// Tokens to load it with instead of the configured ones.
    pub(crate) context: Option<u32>,
}

impl Wanted {
    pub(crate) fn new(model: &str, wire: String) -> Self {
        Self { model: model.to_owned(), wire, loaded_with: None, context: None }
    }
}

/// A plan under way.
#[derive(Clone, Debug)]
pub(crate) struct Under {
    pub(crate) carry: Carry,
    pub(crate) step: Step,
}

/// Who performs the load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loader {
    /// We, by a call of its own.
    Us,
    /// The request, when it is sent.
    Request,
}

impl Host {
    /// Performs all steps that are ours, and answers with the first that is not: the load by the request, or the end.
    pub(crate) async fn carry_out(&self, wanted: &mut Wanted, mut under: Under, loader: Loader) -> Under {
        self.common.distrust(self.server.key());
        loop {
            let happened = match &under.step {
                Step::Done(_) => return under,
                Step::Load if loader == Loader::Request => return under,
                Step::Evict(victim) => self.evict(victim).await,
                Step::Load => self.load(wanted).await,
                Step::Restore(gone) => self.restore(gone).await,
                Step::Confirm => Happened::Well(self.server.list().await.ok()),
            };
            self.report(&mut under, happened);
        }
    }

    /// Takes what happened in, and tells what came of it.
    pub(crate) fn report(&self, under: &mut Under, happened: Happened) {
        under.step = under.carry.on_happened(happened);
        under.carry.take_mutations().into_iter().for_each(|change| self.common.tell_change(&self.target, change));
        under.carry.take_notices().into_iter().for_each(|notice| self.common.tell(&self.target, notice));
    }

    /// The wanted model is there: for a while nobody needs to look.
    pub(crate) fn trust(&self, wanted: &Wanted) {
        self.common.trust(self.server.key(), wanted, Decided::Resident);
    }

    /// Gives back what nobody used for a while. What cannot be unloaded stays: it goes by its own time.
    pub(crate) async fn release(&self, stragglers: &[Resident]) {
        self.common.distrust(self.server.key());
        for straggler in stragglers {
            let model = &straggler.seen.id;
            let Ok(listing) = self.server.list().await else { continue };
            if self.may_go(model, &listing) && self.server.unload(model).await.is_ok() {
                self.common.forget(self.server.key(), model);
                self.common.tell_change(&self.target, Mutation { kind: MutationKind::Evict, model: model.clone() });
            }
        }
    }

    /// Looks once more: since the decision a request may have begun to use it, or others may have loaded it anew.
    async fn evict(&self, victim: &Resident) -> Happened {
        let model = &victim.seen.id;
        let evicted = match self.server.list().await {
            Ok(listing) if !self.may_go(model, &listing) => return Happened::Spared(listing),
            Ok(_) => self.server.unload(model).await,
            Err(why) => Err(why),
        };
        match evicted {
            Ok(()) => {
                self.common.forget(self.server.key(), model);
                Happened::Well(None)
            }
            Err(why) => Happened::Badly(why.failure(), self.server.list().await.ok()),
        }
    }

    /// Whether the resident `model` of `listing` is ours, and no request uses it.
    fn may_go(&self, model: &str, listing: &Listing) -> bool {
        self.common.observe((&self.target, self.server.key()), listing);
        listing.residents().find(|seen| seen.id == model).is_some_and(|seen| self.is_idle_and_ours(seen))
    }

    pub(crate) fn is_idle_and_ours(&self, seen: &Seen) -> bool {
        let (own, key) = (self.common.own(), self.server.key());
        own.book.owned(key, seen).is_some() && matches!(own.book.used(key, seen), Used::Idle(_))
    }

    async fn load(&self, wanted: &mut Wanted) -> Happened {
        let before = self.server.list().await.ok();
        let loaded = self.server.load(Load { model: &wanted.wire, context: wanted.context }).await;
        if let Ok(Loaded { instance: Some(instance), .. }) = &loaded {
            wanted.wire.clone_from(instance);
        }
        let happened = self.loaded(&wanted.wire, (before, loaded)).await;
        if let Happened::Well(Some(listing)) = &happened {
            wanted.loaded_with = self.server.loaded_with(listing.find(&wanted.wire));
        }
        happened
    }

    async fn restore(&self, gone: &Resident) -> Happened {
        let before = self.server.list().await.ok();
        let loaded = self.server.restore(gone).await;
        let named = loaded.as_ref().ok().and_then(|loaded| loaded.instance.clone());
        let name = named.unwrap_or_else(|| gone.seen.id.clone());
        self.loaded(&name, (before, loaded)).await
    }

    /// What is resident after our load of `name` and was not before is ours.
    async fn loaded(&self, name: &str, (before, loaded): (After, Result<Loaded, ServerError>)) -> Happened {
        let was_there = before.is_none_or(|listing| listing.holds(name));
        if matches!(loaded, Err(ServerError::Stalled(_))) && !was_there {
            // It would hold the place that what went for it needs.
            drop(self.server.unload(name).await);
        }
        let after = self.server.list().await.ok();
        let owner = match loaded {
            Ok(loaded) => loaded.owner,
            Err(why) => return Happened::Badly(why.failure(), after),
        };
        let seen = after.as_ref().and_then(|listing| listing.residents().find(|seen| seen.is_called(name)));
        if after.is_some() && seen.is_none() {
            let why = "the server loaded the model, and has it no more".to_owned();
            return Happened::Badly(Failure::Other(why), after);
        }
        if let Some(seen) = seen.filter(|_| owner == Owner::Ours && !was_there) {
            self.common.take(self.server.key(), seen, By::Us);
            // Before anybody is told that it is there: a crash from then on must not lose whose it is.
            self.common.written().await;
        }
        Happened::Well(after)
    }
}

impl Under {
    /// How it ended, if it did.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match &self.step {
            Step::Done(ending) => Some(ending.clone()),
            Step::Evict(_) | Step::Load | Step::Restore(_) | Step::Confirm => None,
        }
    }
}
