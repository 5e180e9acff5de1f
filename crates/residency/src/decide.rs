//! [`decide`]: what becomes of a request for a model on a server that somebody else runs.
//!
//! One pure function over plain [`Facts`]. Only residents of ours are ever candidates, on every kind; whatever is
//! tagged, was loaded by a helper, or is in use never is.
use crate::{
    notice::{Detail, Notice, NoticeKind, stress},
    protection::{Protection, Role},
    resident::{Owner, Phase, Resident, Used},
};
use motorpool_vocab::Now;
use std::{fmt, time::Duration};

/// How long ago a straggler on Ollama was last used, at least.
pub const MIN_RESIDENCY: Duration = Duration::from_secs(10);

/// What kind of server it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// llama-server without a model of its own.
    Router,
    /// LM Studio.
    LmStudio,
    /// Ollama.
    Ollama,
}

/// Who says what is loaded there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lifecycle {
    /// We may load, and evict what is ours.
    #[default]
    Managed,
    /// The user alone: we only look.
    UserManaged,
}

/// How many residents a server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// It does not say.
    Unknown,
    /// As many as one likes.
    Unlimited,
    /// So many, at least 1.
    Of(u32),
}

/// Whether the server could load the model at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Catalogue {
    /// It lists the model.
    Has,
    /// It lists its models, and this is not one of them.
    Lacks,
    /// Its list could not be read, for this reason.
    Unread(String),
}

/// The model that the request wants resident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keep {
    /// Its id or alias there.
    pub model: String,
    /// What protects it once it is resident.
    pub protection: Protection,
    /// Tokens of context asked for.
    pub context: Option<u32>,
    /// Tokens of context that it has at most.
    pub max_context: Option<u32>,
}

/// All that a decision depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The server's kind.
    pub kind: Kind,
    /// Who manages it.
    pub lifecycle: Lifecycle,
    /// What is wanted.
    pub keep: Keep,
    /// What is there, in listing order.
    pub residents: Vec<Resident>,
    /// How much it takes.
    pub capacity: Capacity,
    /// Whether it could load what is wanted.
    pub catalogue: Catalogue,
    /// The present.
    pub now: Now,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the request is sent as it is.
    Observe,
    /// Nothing: the model is there.
    Resident,
    /// Its load, whoever began it, is waited for.
    Await,
    /// These are evicted in order, then the model is loaded.
    Load {
        /// Of ours.
        evict: Vec<Resident>,
    },
    /// The server loads by itself when the request comes.
    Delegate {
        /// Released before.
        release: Vec<Resident>,
        /// Evicted one at a time, each time the server says that it is full.
        fallback: Vec<Resident>,
    },
    /// Others of our own requests must end first: too few candidates only because these are in use.
    Wait {
        /// Their models.
        busy: Vec<String>,
    },
    /// The request is not sent.
    Decline(Decline),
}

/// Why a request is not sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Decline {
    /// Others are there, and nobody knows how many more fit.
    #[error("the server does not tell how many models it takes, and {n_residents} of others' or ours are loaded")]
    CapacityUnknown {
        /// Residents.
        n_residents: usize,
    },
    /// It is full, and not enough of what is there may go.
    #[error("the server is full: {needed} of its {n_residents} models would have to go, and {may_go} may{}", stranded_text(.stranded))]
    Full {
        /// So many would have to go.
        needed: usize,
        /// So many may.
        may_go: usize,
        /// Residents.
        n_residents: usize,
        /// Configured models that would have been enough, which a pinned model may not displace.
        stranded: Vec<(String, Role)>,
    },
    /// Something would have to go for a model that the server does not have.
    #[error("the server does not have this model")]
    NoSuchModel,
    /// Whether it could be loaded at all cannot be found out.
    #[error("whether the server has this model cannot be found out: {0}")]
    Unread(String),
}

/// What is to be done, and what people are told about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// To be done.
    pub action: Action,
    /// To be told, in this order, before.
    pub notices: Vec<Notice>,
}

fn stranded_text(stranded: &[(String, Role)]) -> String {
    let names: Vec<String> = stranded.iter().map(|(model, role)| format!("{model} ({role})")).collect();
    if names.is_empty() { String::new() } else { format!("; a pinned model does not displace {}", names.join(", ")) }
}

impl Kind {
    /// As it stands in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Router => "llama-cpp-router",
            Self::LmStudio => "lmstudio",
            Self::Ollama => "ollama",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Capacity {
    /// The number, where there is one.
    pub fn limit(self) -> Option<u32> {
        match self {
            Self::Of(n) => Some(n),
            Self::Unknown | Self::Unlimited => None,
        }
    }

    /// How many of `n` residents must go so that one more fits; `None`: nobody knows.
    fn need(self, n: usize) -> Option<usize> {
        match self {
            Self::Unknown => None,
            Self::Unlimited => Some(0),
            Self::Of(limit) => Some((n + 1).saturating_sub(usize::try_from(limit).unwrap_or(usize::MAX))),
        }
    }
}

impl Resident {
    /// How willingly it may go: 0 first; `None` never, whether it is in use or not.
    fn rank(&self) -> Option<u8> {
        match (self.owner, self.protection) {
            (Owner::Ours(_), Protection::None) => Some(0),
            (Owner::Ours(_), Protection::Config(_)) => Some(1),
            (Owner::Ours(_), Protection::Tag | Protection::Worker) | (Owner::Foreign, _) => None,
        }
    }

    fn is_idle(&self) -> bool {
        matches!(self.used, Used::Idle(_))
    }
}

/// What becomes of the request.
#[must_use]
pub fn decide(facts: &Facts) -> Plan {
    let mut notices = stress(facts);
    if facts.lifecycle == Lifecycle::UserManaged {
        return Plan { action: Action::Observe, notices };
    }
    let kept = facts.residents.iter().find(|resident| resident.seen.is_called(&facts.keep.model));
    let action = match (kept, facts.kind) {
        (Some(kept), _) => {
            notices.extend(neighbours(facts));
            if kept.seen.phase == Phase::Loading { Action::Await } else { Action::Resident }
        }
        (None, Kind::Router) => on_router(facts, &mut notices),
        (None, Kind::LmStudio) => Action::Delegate { release: Vec::new(), fallback: pick_candidates(facts) },
        (None, Kind::Ollama) => on_ollama(facts, &mut notices),
    };
    Plan { action, notices }
}

/// The one notice about those beside a model that is resident.
fn neighbours(facts: &Facts) -> Option<Notice> {
    let n = facts.residents.len();
    let over = facts.capacity.limit().filter(|&limit| usize::try_from(limit).is_ok_and(|limit| n > limit));
    (n > 1).then(|| match over {
        Some(limit) => notice(facts, NoticeKind::Stress, format!("{n} models are resident where {limit} fit")),
        None => notice(facts, NoticeKind::CoResident, format!("it shares the server with {} others", n - 1)),
    })
}

fn on_router(facts: &Facts, notices: &mut Vec<Notice>) -> Action {
    let n = facts.residents.len();
    match facts.capacity.need(n) {
        None if n > 0 => decline(facts, notices, Decline::CapacityUnknown { n_residents: n }),
        None | Some(0) => {
            if n > 0 {
                notices.push(notice(facts, NoticeKind::CoResident, format!("it is loaded beside {n} others")));
            }
            Action::Load { evict: Vec::new() }
        }
        Some(need) => make_room(facts, notices, need),
    }
}

/// Stragglers go only for a model that can be loaded.
fn on_ollama(facts: &Facts, notices: &mut Vec<Notice>) -> Action {
    let release = pick_stragglers(facts);
    let declined = if release.is_empty() { None } else { impossible(facts, notices) };
    declined.unwrap_or(Action::Delegate { release, fallback: Vec::new() })
}

/// Nothing goes for a model that cannot be loaded, or of which nobody knows whether it can.
fn impossible(facts: &Facts, notices: &mut Vec<Notice>) -> Option<Action> {
    match &facts.catalogue {
        Catalogue::Has => None,
        Catalogue::Lacks => Some(decline(facts, notices, Decline::NoSuchModel)),
        Catalogue::Unread(why) => Some(Action::Decline(Decline::Unread(why.clone()))),
    }
}

/// `need` of ours go, or none.
fn make_room(facts: &Facts, notices: &mut Vec<Notice>, need: usize) -> Action {
    let mut evict = pick_candidates(facts);
    if evict.len() < need {
        let busy: Vec<String> = allowed(facts).filter(|one| !one.is_idle()).map(|one| one.seen.id.clone()).collect();
        if evict.len() + busy.len() >= need {
            return Action::Wait { busy };
        }
        let why = Decline::Full {
            needed: need,
            may_go: evict.len(),
            n_residents: facts.residents.len(),
            stranded: pick_stranded(facts, need - evict.len()),
        };
        return decline(facts, notices, why);
    }
    if let Some(declined) = impossible(facts, notices) {
        return declined;
    }
    evict.truncate(need);
    notices.extend(evict.iter().map(|victim| about_to_evict(facts, victim)));
    Action::Load { evict }
}

/// Whoever could go for the wanted model if nothing were in use: a pinned one displaces only what is unprotected.
fn allowed(facts: &Facts) -> impl Iterator<Item = &Resident> {
    let most = u8::from(facts.keep.protection != Protection::Tag);
    facts.residents.iter().filter(move |resident| resident.rank().is_some_and(|rank| rank <= most))
}

/// Whoever may go, the unprotected ones first, in listing order.
fn pick_candidates(facts: &Facts) -> Vec<Resident> {
    let mut candidates: Vec<Resident> = allowed(facts).filter(|resident| resident.is_idle()).cloned().collect();
    candidates.sort_by_key(Resident::rank);
    candidates
}

/// The configured ones that would have been enough for a pinned model, were it not pinned.
fn pick_stranded(facts: &Facts, missing: usize) -> Vec<(String, Role)> {
    let mut stranded = Vec::new();
    if facts.keep.protection == Protection::Tag {
        for resident in facts.residents.iter().filter(|one| one.is_ours() && one.is_idle()) {
            if let Protection::Config(role) = resident.protection {
                stranded.push((resident.seen.id.clone(), role));
            }
        }
    }
    if stranded.len() < missing {
        return Vec::new();
    }
    stranded.truncate(missing);
    stranded
}

/// Those of ours on Ollama that nobody used for a while.
fn pick_stragglers(facts: &Facts) -> Vec<Resident> {
    let is_old = |used: Used| match used {
        Used::InUse => false,
        Used::Idle(None) => true,
        Used::Idle(Some(at)) => facts.now.since(at) > MIN_RESIDENCY,
    };
    facts.residents.iter().filter(|one| one.rank() == Some(0) && is_old(one.used)).cloned().collect()
}

fn about_to_evict(facts: &Facts, victim: &Resident) -> Notice {
    let mut told = notice(facts, NoticeKind::AboutToEvict, format!("{} is about to be evicted for it", victim.seen.id));
    told.detail.swapped_out = vec![victim.seen.id.clone()];
    told.model.clone_from(&victim.seen.id);
    told.detail.requested_model = Some(facts.keep.model.clone());
    told
}

fn decline(facts: &Facts, notices: &mut Vec<Notice>, why: Decline) -> Action {
    let mut told = notice(facts, NoticeKind::WillNotFit, why.to_string());
    if let Decline::Full { stranded, .. } = &why {
        told.detail.role = stranded.first().map(|(_, role)| *role);
    }
    notices.push(told);
    Action::Decline(why)
}

/// A notice about the wanted model, with how full the server is.
pub(crate) fn notice(facts: &Facts, kind: NoticeKind, message: String) -> Notice {
    let is_configured = |one: &&Resident| matches!(one.protection, Protection::Config(_));
    let detail = Detail {
        resident_count: Some(facts.residents.len()),
        max_instances: facts.capacity.limit(),
        config_protected: facts.residents.iter().filter(is_configured).map(|one| one.seen.id.clone()).collect(),
        ..Detail::default()
    };
    Notice { kind, model: facts.keep.model.clone(), message, detail }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
