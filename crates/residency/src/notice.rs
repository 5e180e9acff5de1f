//! [`Notice`]: what people are told about a server that we share, and how often ([`Repeats`]).
//!
//! Whoever sends it on adds the target and its kind. What keeps a request from being sent is its caller's to know in any
//! case; a notice is for everybody else.
use crate::{
    decide::{Facts, notice},
    listed::listed,
    protection::Role,
};
use motorpool_vocab::{Bytes, Now};
use std::{collections::HashMap, time::Duration};

/// The same about the same model is told once in so long.
pub const REPEAT: Duration = Duration::from_mins(1);
/// How long a request runs before it is judged slow.
pub const SETTLED: Duration = Duration::from_secs(30);
/// Tokens a second that are too few.
const SLOWEST: u64 = 2;

listed! {
    /// What a notice is about.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    NoticeKind {
        /// The request is not sent, or what was evicted could not be put back.
        WillNotFit = "will-not-fit",
        /// A resident of ours goes now.
        AboutToEvict = "about-to-evict",
        /// A configured model was displaced, or what was displaced is back.
        Swap = "swap",
        /// The model shares its server.
        CoResident = "co-resident",
        /// More is asked of the server than it has.
        Stress = "stress",
        /// A request is slow beyond use.
        Degraded = "degraded",
    }
}

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Good to know.
    Info,
    /// Somebody may want to act.
    Warning,
    /// Something was refused or lost.
    Error,
}

/// One notice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// About what.
    pub kind: NoticeKind,
    /// About which model.
    pub model: String,
    /// For people.
    pub message: String,
    /// For programs.
    pub detail: Detail,
}

/// What a notice has beside its message; what is `None` or empty does not apply.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Detail {
    /// Residents of the server.
    pub resident_count: Option<usize>,
    /// Residents that it takes.
    pub max_instances: Option<u32>,
    /// Residents that the configuration names.
    pub config_protected: Vec<String>,
    /// For what the displaced one is configured.
    pub role: Option<Role>,
    /// What went.
    pub swapped_out: Vec<String>,
    /// Graphics memory that came free by it.
    pub freed_vram: Option<Bytes>,
    /// What is back.
    pub restored: Vec<String>,
    /// What could not be put back.
    pub unrestored: Vec<String>,
    /// Tokens asked for.
    pub requested_context: Option<u32>,
    /// Tokens that the model has at most.
    pub model_max_context: Option<u32>,
    /// Of a resident, what lies in graphics memory.
    pub resident_vram: Option<Bytes>,
    /// All of it.
    pub resident_total: Option<Bytes>,
    /// Tokens that it is loaded with instead.
    pub load_context: Option<u32>,
    /// Other targets that have the same instance.
    pub peer_targets: Vec<String>,
    /// What the caller called the model.
    pub requested_model: Option<String>,
    /// What the server calls it.
    pub wire_model: Option<String>,
}

/// A value of a notice's detail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Field {
    /// A count, tokens, or bytes.
    Number(u64),
    /// One name.
    Text(String),
    /// Some names.
    List(Vec<String>),
}

impl NoticeKind {
    /// How loud it is.
    pub const fn level(self) -> Level {
        match self {
            Self::WillNotFit => Level::Error,
            Self::AboutToEvict | Self::CoResident => Level::Info,
            Self::Swap | Self::Stress | Self::Degraded => Level::Warning,
        }
    }
}

impl Detail {
    /// What applies, by the names that programs read; bytes as numbers.
    pub fn fields(&self) -> Vec<(&'static str, Field)> {
        let count = |n: Option<usize>| n.map(|n| Field::Number(u64::try_from(n).unwrap_or(u64::MAX)));
        let number = |n: Option<u32>| n.map(|n| Field::Number(n.into()));
        let bytes = |n: Option<Bytes>| n.map(|n| Field::Number(n.get()));
        let text = |text: &Option<String>| text.clone().map(Field::Text);
        let list = |list: &[String]| (!list.is_empty()).then(|| Field::List(list.to_vec()));
        let all = [
            ("residentCount", count(self.resident_count)),
            ("maxInstances", number(self.max_instances)),
            ("configProtected", list(&self.config_protected)),
            ("role", self.role.map(|role| Field::Text(role.to_string()))),
            ("swappedOut", list(&self.swapped_out)),
            ("freedVramBytes", bytes(self.freed_vram)),
            ("restored", list(&self.restored)),
            ("unrestored", list(&self.unrestored)),
            ("requestedContext", number(self.requested_context)),
            ("modelMaxContext", number(self.model_max_context)),
            ("residentVramBytes", bytes(self.resident_vram)),
            ("residentTotalBytes", bytes(self.resident_total)),
            ("loadContext", number(self.load_context)),
            ("peerTargets", list(&self.peer_targets)),
            ("requestedModel", text(&self.requested_model)),
            ("wireModel", text(&self.wire_model)),
        ];
        all.into_iter().filter_map(|(name, field)| Some((name, field?))).collect()
    }
}

/// What is always told first: more context than the model has, and residents that are not wholly in graphics memory.
pub(crate) fn stress(facts: &Facts) -> Vec<Notice> {
    let mut notices = Vec::new();
    if let (Some(asked), Some(most)) = (facts.keep.context, facts.keep.max_context)
        && asked > most
    {
        let message = format!("a context of {asked} tokens is asked for, and the model has {most} at most");
        let mut told = notice(facts, NoticeKind::Stress, message);
        (told.detail.requested_context, told.detail.model_max_context) = (Some(asked), Some(most));
        notices.push(told);
    }
    for seen in facts.residents.iter().map(|resident| &resident.seen) {
        let Some(sizes) = seen.sizes.filter(|sizes| sizes.total > sizes.vram) else { continue };
        let message = format!("{} of its {} are in graphics memory", sizes.vram, sizes.total);
        let mut told = notice(facts, NoticeKind::Stress, message);
        told.model.clone_from(&seen.id);
        (told.detail.resident_vram, told.detail.resident_total) = (Some(sizes.vram), Some(sizes.total));
        notices.push(told);
    }
    notices
}

/// Who was told what when.
#[derive(Clone, Debug, Default)]
pub struct Repeats {
    told: HashMap<(NoticeKind, String, String), Now>,
}

impl Repeats {
    /// Whether `notice` about the target called `target` goes out now. What did not happen lately is forgotten.
    pub fn is_news(&mut self, now: Now, target: &str, notice: &Notice) -> bool {
        self.told.retain(|_, at| now.since(*at) < REPEAT);
        let about = (notice.kind, target.to_owned(), notice.model.clone());
        if self.told.contains_key(&about) {
            return false;
        }
        self.told.insert(about, now);
        true
    }
}

/// How fast one request is answered.
#[derive(Clone, Copy, Debug)]
pub enum Pace {
    /// Nothing was said about it.
    Watched {
        /// When its first result came; until then when it was sent.
        since: Now,
    },
    /// It was told that it is slow.
    Told,
}

impl Pace {
    /// Its first result comes only now: what was before was a load, a queue, or a prompt. Tokens are counted from here.
    pub fn on_first_result(&mut self, now: Now) {
        if let Self::Watched { since } = self {
            *since = now;
        }
    }

    /// It had `n_tokens` by `now`; says so once when that is slower than 2 tokens a second after 30 s.
    pub fn observe(&mut self, now: Now, n_tokens: u64, model: &str) -> Option<Notice> {
        let Self::Watched { since } = *self else { return None };
        let within = now.since(since);
        if within < SETTLED || n_tokens >= within.as_secs().saturating_mul(SLOWEST) {
            return None;
        }
        *self = Self::Told;
        let message = format!("{n_tokens} tokens came in {} s", within.as_secs());
        Some(Notice { kind: NoticeKind::Degraded, model: model.to_owned(), message, detail: Detail::default() })
    }
}

#[cfg(test)]
#[path = "notice_tests.rs"]
mod tests;
