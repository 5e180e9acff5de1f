//! Models on servers that somebody else runs: which names mean them, and how they are listed.
//!
//! Boundary: nothing here knows what kind a server is; `external` decides, locks and loads. Names come from the last look at
//! each server, so whoever lists waits for nobody.
//!
//! A name means, in this order: a model of a server that is preferred to ours, a model of ours, a model of the first server
//! in the configuration that has it, what an alias of ours with a `*` takes. `server/name` means that server's model, and
//! `server` alone its default one.
mod exchange;
mod loads;
mod path;
mod rows;
mod watch;

use crate::{context::Context, errors::Failure, refusals::failure_of};
pub(crate) use exchange::by_table;
pub(crate) use loads::watched;
use motorpool_catalog::{External, Model, Prefer};
use motorpool_external::residency::{Resident, Seen, Used};
use motorpool_pool::Refusal;
pub(crate) use path::take_apart as in_path;
pub(crate) use rows::{Listed, listed, row, standing};
use std::{sync::Arc, time::Duration};
pub use watch::Watch;
pub(crate) use watch::{Sighting, Visit};

/// Longest wait for a look at all servers, when nobody has a name.
const LOOK_WITHIN: Duration = Duration::from_secs(2);

/// One server: what the configuration says of it, and what we have there.
#[derive(Clone, Debug)]
pub struct Outside {
    /// Its section.
    pub config: Arc<External>,
    /// The server.
    pub watch: Arc<Watch>,
}

/// A model there.
#[derive(Clone, Debug)]
pub(crate) struct Foreign {
    pub(crate) outside: Outside,
    /// By the name that its server offers it with, or by its own id of one that it holds.
    pub(crate) wire: String,
}

/// What a name means.
#[derive(Clone, Debug)]
pub(crate) enum Chosen {
    /// A model of ours.
    Own(Arc<Model>),
    /// One of somebody else's server.
    Foreign(Foreign),
}

impl Outside {
    /// What of its last look is offered.
    fn offered(&self, sighting: &Sighting) -> Vec<Seen> {
        let rows = sighting.sight.iter().flat_map(|sight| &sight.rows);
        rows.filter(|seen| self.offers(seen)).cloned().collect()
    }

    fn offers(&self, seen: &Seen) -> bool {
        self.config.offers(seen.aliases.iter().chain([&seen.id]).map(String::as_str))
    }

    fn foreign(&self, wire: &str) -> Foreign {
        Foreign { outside: self.clone(), wire: wire.to_owned() }
    }

    /// Its model of this name.
    fn find(&self, name: &str) -> Option<Foreign> {
        let sight = self.watch.seen().sight?;
        let seen = sight.find(name).filter(|seen| self.offers(seen))?;
        // Who names what is loaded means that, and not what its model goes by.
        let is_own_id = sight.residents.iter().any(|one| one.seen.id == name);
        Some(self.foreign(if is_own_id { name } else { &seen.id }))
    }

    /// What `server` or `server/name` means. Before it was ever seen, it is asked itself.
    fn find_qualified(&self, name: &str) -> Option<Foreign> {
        let rest = name.strip_prefix(self.config.id.as_str())?;
        let model = match rest.strip_prefix('/') {
            Some(model) => model,
            None if rest.is_empty() => self.config.default_model.as_deref()?,
            None => return None,
        };
        let unseen = || self.watch.seen().sight.is_none() && self.config.offers([model].into_iter());
        self.find(model).or_else(|| unseen().then(|| self.foreign(model)))
    }

    fn is_preferred(&self) -> bool {
        self.config.prefer == Prefer::External
    }
}

impl Foreign {
    /// `server/name`.
    pub(crate) fn qualified(&self) -> String {
        format!("{}/{}", self.outside.config.id, self.wire)
    }

    /// The names under which a key may have it: `server/name`, and the bare one where that means this model. One that is
    /// named by its own id is had by whoever may have its model.
    pub(crate) fn names(&self, context: &Context) -> Vec<String> {
        let sight = self.outside.watch.seen().sight;
        let row = sight.as_ref().and_then(|sight| sight.find(&self.wire)).map(|row| row.id.as_str());
        let model = row.filter(|id| *id != self.wire).map(|id| self.outside.foreign(id));
        let names = |one: &Self| {
            let bare = matches!(context.mean(&one.wire), Ok(Chosen::Foreign(other)) if other.is(one));
            bare.then(|| one.wire.clone()).into_iter().chain([one.qualified()]).collect::<Vec<_>>()
        };
        [Some(names(self)), model.as_ref().map(names)].into_iter().flatten().flatten().collect()
    }

    /// Whether its server was seen to have it.
    fn is_seen(&self) -> bool {
        self.outside.find(&self.wire).is_some()
    }

    /// Whether two mean one model of one server.
    fn is(&self, other: &Self) -> bool {
        self.wire == other.wire && self.outside.watch.guest().key() == other.outside.watch.guest().key()
    }
}

impl Context {
    /// Whether a model of somebody else's server may be meant, so that an unknown name is no error yet.
    pub(crate) fn has_outsiders(&self) -> bool {
        !self.settings.outside.is_empty()
    }

    /// The one model that these names mean, ours or not; when nobody has one of them, the servers are looked at once.
    pub(crate) async fn choose_any(&self, names: Vec<&str>) -> Result<Chosen, Failure> {
        match self.choose_seen(&names) {
            Err(Failure::UnknownModel { .. }) if self.has_outsiders() => {}
            other => return other,
        }
        let watches = self.settings.outside.iter().map(|outside| Arc::clone(&outside.watch));
        Watch::look_at_all(watches, LOOK_WITHIN).await;
        self.choose_seen(&names)
    }

    fn choose_seen(&self, names: &[&str]) -> Result<Chosen, Failure> {
        let mut chosen: Option<(&str, Chosen)> = None;
        for name in names.iter().copied().filter(|name| !name.is_empty()) {
            let next = self.mean(name)?;
            match &chosen {
                Some((other, known)) if !known.is(&next) => {
                    return Err(Failure::ModelConflict((*other).to_owned(), name.to_owned()));
                }
                _ => chosen = Some((name, next)),
            }
        }
        match chosen {
            Some((_, chosen)) => Ok(chosen),
            None => self.choose([]).map(Chosen::Own),
        }
    }

    /// What `name` means by the last looks.
    pub(crate) fn mean(&self, name: &str) -> Result<Chosen, Failure> {
        let all = &self.settings.outside;
        let preferred = || all.iter().filter(|one| one.is_preferred()).find_map(|one| one.find(name));
        let theirs = |name: &str| {
            let qualified = || all.iter().find_map(|one| one.find_qualified(name));
            all.iter().find_map(|one| one.find(name)).or_else(qualified)
        };
        if let Some(foreign) = preferred() {
            return Ok(Chosen::Foreign(foreign));
        }
        if self.catalog.has_name(name) {
            return self.choose([name]).map(Chosen::Own);
        }
        if let Some(foreign) = theirs(name) {
            return Ok(Chosen::Foreign(foreign));
        }
        // Ollama's clients write a tag behind names, which only an Ollama tells apart.
        let untagged = || theirs(name.strip_suffix(":latest")?).map(Chosen::Foreign);
        self.choose([name]).map(Chosen::Own).or_else(|unknown| untagged().ok_or(unknown))
    }

    /// The failure that a refusal of the pool is. One for want of room names models of ours on other servers of this
    /// machine that nobody uses: a person may give them back, we never do for our own.
    pub(crate) fn refusal(&self, refusal: Refusal) -> Failure {
        let hint = |message: String| match self.releasable() {
            names if names.is_empty() => message,
            names => format!(
                "{message} Idle on other servers of this machine, and ours: {}; `motorpool residency release` gives their memory back.",
                names.join(", ")
            ),
        };
        match failure_of(refusal) {
            Failure::CapacityDenied { message, retry } => Failure::CapacityDenied { message: hint(message), retry },
            Failure::ContextDenied { message, retry } => Failure::ContextDenied { message: hint(message), retry },
            other => other,
        }
    }

    /// Idle models of ours on other servers of this machine.
    pub(crate) fn releasable(&self) -> Vec<String> {
        let mut names = Vec::new();
        for outside in self.settings.outside.iter().filter(|outside| outside.config.url.is_loopback()) {
            let Some(sight) = outside.watch.seen().sight else { continue };
            names.extend(
                sight
                    .residents
                    .iter()
                    .filter(|one| is_releasable(one))
                    .map(|one| format!("{}/{}", outside.config.id, one.seen.id)),
            );
        }
        names
    }
}

/// Whether a person may give it back: it is ours, and nobody uses it.
pub(crate) fn is_releasable(one: &Resident) -> bool {
    one.is_ours() && matches!(one.used, Used::Idle(_))
}

impl Chosen {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Own(one), Self::Own(other)) => one.id == other.id,
            (Self::Foreign(one), Self::Foreign(other)) => one.is(other),
            _ => false,
        }
    }
}
