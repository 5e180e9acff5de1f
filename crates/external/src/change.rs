//! [`Host`]: one target's server, and how changes of it are carried out: what `residency` says is next is performed, what
//! happened is reported back, until it is done.
use crate::{
    common::Common,
    error::ServerError,
    server::{Begun, Load, Loaded, Look, Server, Whose},
    target::Target,
};
use motorpool_residency::{
    After, By, Carry, Decided, Ending, Failure, Happened, Listing, Resident, Seen, Stays, Step, Used,
};
use motorpool_vocab::TargetKey;
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
        self.common.distrust(self.key());
        loop {
            let happened = match &under.step {
                Step::Done(_) => return under,
                Step::Load if loader == Loader::Request => return under,
                Step::Evict(victim) => self.evict(victim).await,
                Step::Load => self.load(wanted).await,
                Step::Restore(gone) => self.restore(gone).await,
                Step::Confirm => Happened::Well(self.list().await.ok()),
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
        self.common.trust(self.key(), wanted, Decided::Resident);
    }

    /// Which server it is.
    pub(crate) fn key(&self) -> &TargetKey {
        self.server.key()
    }

    /// What it has: what was ours and is not there any more is forgotten. One that does not tell what is resident says
    /// nothing of what is ours.
    pub(crate) async fn look(&self) -> Result<Look, ServerError> {
        let asked = self.common.stamp();
        let look = self.server.look().await?;
        if look.tells_residents() {
            self.common.observe((&self.target, self.key()), (asked, &look.listing));
        }
        Ok(look)
    }

    /// The same, without what only a decision needs; an error where the server does not tell what is resident.
    pub(crate) async fn list(&self) -> Result<Listing, ServerError> {
        let look = self.look().await?;
        if look.tells_residents() { Ok(look.listing) } else { Err(ServerError::Plain) }
    }

    /// Looks once more: since the decision a request may have begun to use it, or others may have loaded it anew.
    async fn evict(&self, victim: &Resident) -> Happened {
        let model = &victim.seen.id;
        let listing = match self.list().await {
            Ok(listing) => listing,
            Err(why) => return Happened::Badly(why.failure(), None),
        };
        let seen = listing.residents().find(|seen| seen.id == *model);
        let _going = match seen.map_or(Err(Stays::NotOurs), |seen| self.common.go(self.key(), seen)) {
            Ok(going) => going,
            Err(why) => return Happened::Spared(why, listing),
        };
        let Err(why) = self.server.unload(model).await else {
            self.common.forget(self.key(), model);
            return Happened::Well(None);
        };
        let after = self.list().await.ok();
        if after.as_ref().is_some_and(|listing| !listing.holds(model)) {
            self.common.forget(self.key(), model);
        }
        Happened::Badly(why.failure(), after)
    }

    pub(crate) fn is_idle_and_ours(&self, seen: &Seen) -> bool {
        let (own, key) = (self.common.own(), self.key());
        own.book.owned(key, seen).is_some() && matches!(own.book.used(key, seen), Used::Idle(_))
    }

    async fn load(&self, wanted: &mut Wanted) -> Happened {
        let load = Load { model: &wanted.wire, context: wanted.context };
        let (name, happened) = self.bring(load, Some(By::Us)).await;
        wanted.wire = name;
        if let Happened::Well(Some(listing)) = &happened {
            wanted.loaded_with = self.server.loaded_with(listing.find(&wanted.wire));
        }
        happened
    }

    /// What was ours is ours again; what others had loaded stays theirs.
    async fn restore(&self, gone: &Resident) -> Happened {
        self.bring(self.server.again(gone), gone.by()).await.1
    }

    /// Loads for `by`, and answers with what it is called then. From the first moment on somebody who leaves knows of it.
    async fn bring(&self, load: Load<'_>, by: Option<By>) -> (String, Happened) {
        let coming = (self.key(), load.model);
        let before = self.list().await.ok();
        let is_new = before.as_ref().is_some_and(|listing| !listing.holds(load.model));
        if let Some(by) = by.filter(|_| is_new) {
            self.common.come(coming, by);
        }
        let on_begun = |begun: Begun<'_>| match begun {
            Begun::Ours(seen) => self.common.coming_as(coming, seen),
            Begun::Theirs => self.common.came(coming),
        };
        let loaded = self.server.load(load, &on_begun).await;
        let named = loaded.as_ref().ok().and_then(|loaded| loaded.instance.clone());
        let name = named.unwrap_or_else(|| load.model.to_owned());
        let happened = self.loaded((&name, by), (before, loaded)).await;
        self.common.came(coming);
        (name, happened)
    }

    /// What is resident after our load of `name` and was not before is `by`'s.
    async fn loaded(
        &self,
        (name, by): (&str, Option<By>),
        (before, loaded): (After, Result<Loaded, ServerError>),
    ) -> Happened {
        let was_there = before.is_none_or(|listing| listing.holds(name));
        if matches!(loaded, Err(ServerError::Stalled(_))) && !was_there {
            // It would hold the place that what went for it needs.
            drop(self.server.unload(name).await);
        }
        let after = self.list().await.ok();
        let whose = match loaded {
            Ok(loaded) => loaded.whose,
            Err(why) => return Happened::Badly(why.failure(), after),
        };
        let seen = after.as_ref().and_then(|listing| listing.residents().find(|seen| seen.is_called(name)));
        if after.is_some() && seen.is_none() {
            let why = "the server loaded the model, and has it no more".to_owned();
            return Happened::Badly(Failure::Other(why), after);
        }
        if let (Some(seen), Some(by), Whose::Ours, false) = (seen, by, whose, was_there) {
            self.common.take(self.key(), seen, by);
            // Before anybody is told that it is there: a crash from then on must not lose whose it is.
            self.common.written().await;
        }
        Happened::Well(after)
    }
}

impl Under {
    pub(crate) fn begin((carry, step): (Carry, Step)) -> Self {
        Self { carry, step }
    }

    /// How it ended, if it did.
    pub(crate) fn ending(&self) -> Option<Ending> {
        match &self.step {
            Step::Done(ending) => Some(ending.clone()),
            Step::Evict(_) | Step::Load | Step::Restore(_) | Step::Confirm => None,
        }
    }
}
