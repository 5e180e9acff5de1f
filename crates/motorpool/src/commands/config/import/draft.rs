//! [`Draft`]: an entry of the catalog that is being made, with what could not be taken over.
use super::Remark;
use motorpool_catalog::duration_from_text;
use toml::Value;

/// An entry to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Draft {
    pub(super) id: String,
    /// Where it begins in the file that it comes from.
    pub(super) line: usize,
    pub(super) aliases: Vec<String>,
    /// The name of its engine's manifest; empty: the usual one.
    pub(super) engine: String,
    /// Keys and values, in the order of the file; of one key the last counts.
    pub(super) keys: Vec<(&'static str, Written)>,
    pub(super) extra_args: Vec<String>,
    /// The path of its file.
    pub(super) source: Option<String>,
    pub(super) remarks: Vec<Remark>,
    /// Files that are named by where they come from.
    pub(super) wishes: Wishes,
    /// Without a request for so many seconds it stops; never, when nothing says.
    pub(super) idle_after: Option<u64>,
    /// A number, where the file of another entry would have the same name.
    pub(super) twin: Option<u32>,
}

/// What is to be found on this machine when everything was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Wishes {
    /// A repository of the hub, or an address.
    pub(super) model: Option<Wish>,
    /// Which file of the repository.
    pub(super) file: Option<Wish>,
    /// The repository of a draft model, and how many tokens it guesses.
    pub(super) draft: Option<Wish>,
    pub(super) guesses: Option<i64>,
    pub(super) projector: Projector,
}

/// Whether the projector beside a model is its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Projector {
    #[default]
    Taken,
    Left,
}

/// Something wished for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) line: usize,
    /// As it stands there.
    pub(super) shown: String,
    pub(super) value: String,
}

/// A value of TOML; equality of numbers with a point is not asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written(pub(super) Value);

impl Eq for Written {}

impl Draft {
    /// Not taken over, and why.
    pub(super) fn leave(&mut self, line: usize, what: &str, why: &str) {
        self.remarks.push(Remark::new(line, format!("`{what}` is not taken over: {why}")));
    }

    pub(super) fn set(&mut self, key: &'static str, value: impl Into<Value>) {
        self.keys.retain(|(known, _)| *known != key);
        self.keys.push((key, Written(value.into())));
    }

    /// Adds to the list of a key; one that is not there yet begins.
    pub(super) fn add(&mut self, key: &'static str, more: impl IntoIterator<Item = impl Into<Value>>) {
        let known = self.keys.iter().find(|(known, _)| *known == key);
        let mut items = known.and_then(|(_, written)| written.0.as_array().cloned()).unwrap_or_default();
        items.extend(more.into_iter().map(Into::into));
        self.set(key, items);
    }

    /// It stops without a request for so many seconds; of several the fewest count, and none is never.
    pub(super) fn idle(&mut self, seconds: u64) {
        let known = self.idle_after.into_iter().chain([seconds].into_iter().filter(|n| *n > 0));
        self.idle_after = known.min();
    }

    /// As the catalog has it. Longer than that allows is never, too.
    fn idle_ttl(&self) -> String {
        let seconds = self.idle_after.filter(|n| duration_from_text(&format!("{n}s")).is_ok());
        format!("{}s", seconds.unwrap_or(0))
    }

    /// The name of the file that it goes to.
    pub(super) fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
        let (id, twin) = (self.id.chars().map(plain).collect::<String>(), self.twin.map(|n| format!("-{n}")));
        format!("{}{}.toml", id.trim_start_matches('.'), twin.unwrap_or_default())
    }

    /// The entry, what was left out as remarks at its head.
    pub(super) fn text(&self, from: &str) -> String {
        let mut text = format!("# From {from}, line {}.\n", self.line);
        for Remark { line, text: remark } in &self.remarks {
            let remark: String = remark.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
            text.extend(["# Line ", &line.to_string(), ": ", &remark, "\n"]);
        }
        let mut add = |key: &str, value: &Value| text.extend([key, " = ", &value.to_string(), "\n"]);
        add("id", &self.id.clone().into());
        if !self.aliases.is_empty() {
            add("aliases", &self.aliases.clone().into());
        }
        if !self.engine.is_empty() {
            add("engine", &self.engine.clone().into());
        }
        self.keys.iter().for_each(|(key, value)| add(key, &value.0));
        add("idle_ttl", &self.idle_ttl().into());
        if !self.extra_args.is_empty() {
            add("extra_args", &self.extra_args.clone().into());
        }
        if let Some(path) = &self.source {
            add("source", &Value::Table(toml::Table::from_iter([("file".to_owned(), path.clone().into())])));
        }
        text
    }
}
