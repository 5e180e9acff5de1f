//! [`Denied::read`]: one line of a log, and the refusal it tells of. Pure; takes any bytes.
//!
//! ```text
//! <time> ERROR [provider-pool] capacity broker denied <key>: budget exhausted: would commit <N> against <M>[ (<bound>)]
//!                              context admission denied <key>: …
//!                              gpu panic guard denied <key>: …
//!                              engine busy <key>: …
//! ```
//!
//! The line may be the text itself, coloured or not, with whatever a collector of logs put before it, or a JSON document
//! that holds it in a string, or in a JSON document in a string. A background attempt says `deferred` for `denied`.
use jiff::Timestamp;
use motorpool_vocab::{Bytes, EngineKey};
use serde_json::Value;
use std::borrow::Cow;

/// How deep documents inside strings of documents are looked into.
const MOST_NESTED: u8 = 3;
/// Keys of a JSON line that can hold its time.
const TIME_KEYS: [&str; 4] = ["timestamp", "time", "ts", "@timestamp"];

/// A refusal that a log tells of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Denied {
    pub(super) class: Class,
    pub(super) outcome: Outcome,
    /// The engine's key as it stands there, without control characters.
    pub(super) key: String,
    pub(super) at: Option<Timestamp>,
    /// The arithmetic, where the line has it in numbers that can be.
    pub(super) amounts: Option<Amounts>,
}

/// Who refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Class {
    /// No room for it.
    Capacity,
    /// No room for so long a context.
    Context,
    /// The graphics device is not to be touched now.
    PanicGuard,
    /// Those who hold the room did not finish in time.
    Busy,
}

/// Whether anybody was refused for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    /// A request was.
    Denied,
    /// Nobody: a background attempt, to be made again.
    Deferred,
}

/// What would have been committed against which bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Amounts {
    pub(super) would_commit: Bytes,
    pub(super) against: Bytes,
    pub(super) bound: Bound,
}

/// Which bound it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// The whole budget.
    Budget,
    /// What may be accelerated side by side.
    CoResidency,
    /// One device's share, by the device's id.
    Device(String),
    /// The share of system memory.
    SystemMemory,
    /// What a graphics device was measured to have free.
    Measured,
    /// One that this version does not know.
    Other,
}

const PHRASES: [(&str, Class, Outcome); 7] = [
    ("capacity broker denied ", Class::Capacity, Outcome::Denied),
    ("capacity broker deferred ", Class::Capacity, Outcome::Deferred),
    ("context admission denied ", Class::Context, Outcome::Denied),
    ("context admission deferred ", Class::Context, Outcome::Deferred),
    ("gpu panic guard denied ", Class::PanicGuard, Outcome::Denied),
    ("gpu panic guard deferred ", Class::PanicGuard, Outcome::Deferred),
    ("engine busy ", Class::Busy, Outcome::Denied),
];

impl Class {
    pub(super) const ALL: [Self; 4] = [Self::Capacity, Self::Context, Self::PanicGuard, Self::Busy];

    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Context => "context",
            Self::PanicGuard => "gpu-panic-guard",
            Self::Busy => "engine-busy",
        }
    }
}

impl Outcome {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Deferred => "deferred",
        }
    }
}

impl Bound {
    pub(super) const fn as_str(&self) -> &'static str {
        match self {
            Self::Budget => "budget",
            Self::CoResidency => "co-residency",
            Self::Device(_) => "device",
            Self::SystemMemory => "system-memory",
            Self::Measured => "measured",
            Self::Other => "other",
        }
    }

    /// The id of the device, of a device's bound.
    pub(super) fn device(&self) -> Option<&str> {
        match self {
            Self::Device(id) => Some(id),
            _ => None,
        }
    }

    /// The bound that stands behind the numbers.
    fn read(suffix: &str) -> Self {
        // Beginnings only: what follows may have lost its dash to another encoding.
        let Some(words) = suffix.strip_prefix(" (") else { return Self::Budget };
        if let Some((id, _)) = words.strip_prefix("device ").and_then(|rest| rest.split_once(')')) {
            return Self::Device(printable(id));
        }
        match words {
            _ if words.starts_with("co-residency ceiling") => Self::CoResidency,
            _ if words.starts_with("system memory)") => Self::SystemMemory,
            _ if words.starts_with("measured free graphics memory)") => Self::Measured,
            _ => Self::Other,
        }
    }
}

impl Denied {
    /// The refusal that `line` tells of. A line tells of one at most.
    pub(super) fn read(line: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(line);
        // Most lines of a log are others.
        let may = ["denied", "deferred", "busy"].iter().any(|word| text.contains(word));
        if may { Self::read_text(&text, 0) } else { None }
    }

    fn read_text(text: &str, depth: u8) -> Option<Self> {
        let read_inside = |text: &str| {
            let document: Value = serde_json::from_str(text).ok()?;
            let found = Self::read_value(&document, depth)?;
            Some(Self { at: found.at.or_else(|| time_of(&document)), ..found })
        };
        let is_document = depth < MOST_NESTED && text.trim_start().starts_with('{');
        // What was cut, or is no document, or no escape sequence after all, still tells of it as it stands.
        let whole = is_document.then(|| read_inside(text)).flatten();
        whole.or_else(|| Self::read_sentence(&without_colours(text))).or_else(|| Self::read_sentence(text))
    }

    fn read_value(value: &Value, depth: u8) -> Option<Self> {
        match value {
            Value::String(text) => Self::read_text(text, depth + 1),
            Value::Array(items) => items.iter().find_map(|item| Self::read_value(item, depth)),
            Value::Object(fields) => fields.values().find_map(|field| Self::read_value(field, depth)),
            _ => None,
        }
    }

    fn read_sentence(text: &str) -> Option<Self> {
        PHRASES.iter().find_map(|(phrase, class, outcome)| {
            let (at, key, reason) = match (class, outcome) {
                (Class::Capacity, Outcome::Denied) => exhausted(text, phrase)?,
                _ => text.match_indices(phrase).find_map(|(at, _)| {
                    let (key, reason) = keyed(&text[at + phrase.len()..])?;
                    Some((at, key, reason))
                })?,
            };
            let (at, amounts) = (time_before(&text[..at]), Amounts::read(reason));
            Some(Self { class: *class, outcome: *outcome, key: printable(key), at, amounts })
        })
    }
}

impl Amounts {
    /// `…would commit <N> against <M>[ (<bound>)]`
    fn read(reason: &str) -> Option<Self> {
        let (_, rest) = reason.split_once("would commit ")?;
        let (would_commit, rest) = number(rest)?;
        let (against, suffix) = number(rest.strip_prefix(" against ")?)?;
        Some(Self { would_commit, against, bound: Bound::read(suffix) })
    }
}

/// Place, key and reason of a capacity denial: what the looser of the contract's two expressions takes, and no more.
fn exhausted<'a>(text: &'a str, phrase: &str) -> Option<(usize, &'a str, &'a str)> {
    let at = text.find(phrase)?;
    let (key, reason) = text[at + phrase.len()..].split_once("budget exhausted")?;
    Some((at, key.trim_end().trim_end_matches(':'), reason))
}

/// `<key>: <reason>`, with a key that is one: the same words in other sentences tell of nothing.
fn keyed(rest: &str) -> Option<(&str, &str)> {
    let (key, reason) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let key = key.strip_suffix(':')?;
    key.parse::<EngineKey>().ok()?;
    Some((key, reason))
}

fn number(text: &str) -> Option<(Bytes, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((Bytes::new(text[..end].parse().ok()?), &text[end..]))
}

/// The time nearest before the sentence: a collector of logs may have put its own before ours.
fn time_before(text: &str) -> Option<Timestamp> {
    text.split_whitespace().rev().find_map(|word| word.trim_matches(['[', ']', '(', ')']).parse().ok())
}

fn time_of(document: &Value) -> Option<Timestamp> {
    TIME_KEYS.iter().find_map(|key| document.get(key)?.as_str()?.parse().ok())
}

/// `text` without the escape sequences of terminals.
fn without_colours(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let (mut out, mut chars) = (String::with_capacity(text.len()), text.chars());
    while let Some(c) = chars.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut chars),
            c => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Takes what belongs to an escape that was just taken.
fn skip_sequence(chars: &mut std::str::Chars<'_>) {
    let is_end: fn(char) -> bool = match chars.next() {
        Some('[') => |c| ('@'..='~').contains(&c),
        // A title or a link, up to a bell or `\`.
        Some(']') => |c| matches!(c, '\u{7}' | '\\'),
        _ => return,
    };
    chars.find(|c| is_end(*c));
}

/// Control characters of a log do not reach a terminal.
fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

#[cfg(test)]
mod tests;
