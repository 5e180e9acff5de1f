//! [`read`]: one text → TOML → substituted → typed, every fault with its place; [`Origin`]: where a value was written.
use crate::{
    ConfigError, Fault,
    examples::{self, Examples},
    expand,
    names::nearest,
};
use serde::de::DeserializeOwned;
use std::{fmt, ops::Range, sync::Arc};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// A text and the name it goes by in errors.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// A name for people; nothing is opened.
    pub file: &'a str,
    /// The content.
    pub text: &'a str,
}

/// The text that a value was read from, kept for faults that show only beside other values.
#[derive(Clone, Default)]
pub(crate) struct Origin(Option<Arc<Written>>);

struct Written {
    file: String,
    text: String,
    examples: Examples,
}

/// One step down into a document.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<'a> {
    Key(&'a str),
    Item(usize),
}

/// Where a value was written says nothing about what it is.
impl PartialEq for Origin {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Origin {}

impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.file())
    }
}

impl Source<'_> {
    /// What people see of it: columns are counted there, and a byte order mark is not.
    pub(crate) fn visible(self) -> Self {
        let text = self.text.strip_prefix('\u{feff}').unwrap_or(self.text);
        Self { text, ..self }
    }
}

impl Origin {
    pub(crate) fn new(source: Source<'_>, examples: Examples) -> Self {
        let Source { file, text } = source;
        Self(Some(Arc::new(Written { file: file.into(), text: text.into(), examples })))
    }

    /// The file's name; a word for values that no file holds.
    pub(crate) fn file(&self) -> &str {
        self.0.as_ref().map_or("(not from a file)", |written| &written.file)
    }

    /// `fault` at the value that `path` leads to.
    pub(crate) fn fault(&self, path: &[Step<'_>], fault: Fault) -> ConfigError {
        let Some(written) = &self.0 else { return ConfigError::nowhere(self.file(), fault) };
        let keys: Vec<&str> = path.iter().filter_map(|step| step.key()).collect();
        let example = examples::of(written.examples, &keys.join("."));
        let error = match DeTable::parse(&written.text).ok().and_then(|table| span_of(&table, path)) {
            Some(span) => ConfigError::at(&written.file, &written.text, span, fault),
            None => ConfigError::nowhere(&written.file, fault),
        };
        error.with_example(example)
    }
}

impl<'a> Step<'a> {
    fn key(self) -> Option<&'a str> {
        match self {
            Self::Key(key) => Some(key),
            Self::Item(_) => None,
        }
    }
}

fn span_of(table: &Spanned<DeTable<'_>>, path: &[Step<'_>]) -> Option<Range<usize>> {
    let (first, rest) = path.split_first()?;
    let mut value = table.get_ref().get(first.key()?)?;
    for step in rest {
        value = match step {
            Step::Key(key) => value.get_ref().as_table()?.get(*key)?,
            Step::Item(at) => value.get_ref().as_array()?.get(*at)?,
        };
    }
    Some(value.span())
}

/// Reads `source` as a `T`.
pub(crate) fn read<T: DeserializeOwned>(
    source: Source<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    examples: Examples,
) -> Result<(T, Origin), ConfigError> {
    let source = source.visible();
    let mut table = DeTable::parse(source.text).map_err(|e| syntax(source, &e))?;
    if let Some(misplaced) = expand::expand(&mut table, source.text, env).into_iter().next() {
        return Err(unresolved(source, &table, misplaced, examples));
    }
    let reader = toml::Deserializer::from(table.clone());
    let value = T::deserialize(reader).map_err(|e| fault_of(source, &table, &e, examples))?;
    Ok((value, Origin::new(source, examples)))
}

/// A reference that cannot be resolved.
pub(crate) fn unresolved(
    Source { file, text }: Source<'_>,
    table: &Spanned<DeTable<'_>>,
    (span, fault): (Range<usize>, Fault),
    examples: Examples,
) -> ConfigError {
    let example = examples::of(examples, &path_at(table.get_ref(), &span).join("."));
    ConfigError::at(file, text, span, fault).with_example(example)
}

/// A text that is no TOML.
pub(crate) fn syntax(Source { file, text }: Source<'_>, error: &toml::de::Error) -> ConfigError {
    let span = error.span().unwrap_or(text.len()..text.len());
    ConfigError::at(file, text, span, Fault::Syntax(format!("no valid TOML: {}", error.message())))
}

/// The library's error with a place, our words and an example.
pub(crate) fn fault_of(
    source: Source<'_>,
    table: &Spanned<DeTable<'_>>,
    error: &toml::de::Error,
    examples: Examples,
) -> ConfigError {
    let Source { file, text } = source;
    let span = error.span().unwrap_or(0..0);
    // A key missing from the whole document has no place, only a document.
    let whole = span == table.span();
    let mut path = if whole { vec![] } else { path_at(table.get_ref(), &span) };
    let is_header = path.starts_with(&["external".to_owned(), "headers".to_owned()]);
    let fault = unspoken(fault_from(error.message()), text.get(span.clone()).unwrap_or_default());
    let fault = if is_header { without_value(fault) } else { fault };
    match &fault {
        Fault::UnknownKey { nearest, .. } => {
            path.pop();
            path.extend(nearest.clone());
        }
        Fault::MissingKey(key) => path.push(key.clone()),
        _ => {}
    }
    let error = match &fault {
        Fault::MissingKey(_) if whole => ConfigError::nowhere(file, fault),
        _ => ConfigError::at(file, text, span, fault),
    };
    let error = if is_header { error.unseen() } else { error };
    error.with_example(examples::of(examples, &path.join(".")))
}

/// What a variable holds may be a secret: a fault of it shows what is written in its place.
fn unspoken(fault: Fault, written: &str) -> Fault {
    let value = DeValue::parse(written).ok();
    let Some(text) = value.as_ref().and_then(|value| value.get_ref().as_str()) else { return fault };
    if expand::variables(text).is_empty() {
        return fault;
    }
    match fault {
        Fault::UnknownValue { known, .. } => Fault::UnknownValue { value: text.to_owned(), nearest: None, known },
        Fault::Value(_) => Fault::Value(format!("what `{text}` stands for cannot be used here")),
        other => other,
    }
}

/// A header may be a key: what stands where another type belongs is not told.
fn without_value(fault: Fault) -> Fault {
    match fault {
        Fault::Value(words) if words.starts_with("wrong type: ") => {
            let expected = words.rsplit_once(", expected ").map_or("something else", |(_, expected)| expected);
            Fault::Value(format!("wrong type: expected {expected}"))
        }
        other => other,
    }
}

/// serde and the TOML reader say what they expected only in prose of a fixed form; this reads that form.
fn fault_from(message: &str) -> Fault {
    if let Some((key, known)) =
        message.strip_prefix("unexpected keys in table: ").and_then(|m| m.split_once(", available keys: "))
    {
        let known: Vec<String> = known.split(", ").map(str::to_owned).collect();
        let key = key.split(", ").next().unwrap_or_default().to_owned();
        return Fault::UnknownKey { nearest: nearest(&key, &known), known, key };
    }
    let (what, rest) = message.split_once('`').unwrap_or((message, ""));
    let mut quoted = rest.split('`').step_by(2).map(str::to_owned);
    let subject = quoted.next().unwrap_or_default();
    let known: Vec<String> = quoted.filter(|name| !name.is_empty()).collect();
    match what {
        "unknown field " => Fault::UnknownKey { nearest: nearest(&subject, &known), known, key: subject },
        "unknown variant " => Fault::UnknownValue { nearest: nearest(&subject, &known), known, value: subject },
        "missing field " => Fault::MissingKey(subject),
        _ => Fault::Value(in_plain_words(message)),
    }
}

/// A type mismatch in the words of the file's writer, not of the program's.
fn in_plain_words(message: &str) -> String {
    match message {
        "wanted string or table" => return "wrong type: expected a string".into(),
        m if m.starts_with("wanted exactly 1 element") => return "exactly one key belongs here".into(),
        _ => {}
    }
    let words = message
        .replacen("invalid type: map", "wrong type: table or date", 1)
        .replacen("invalid type: ", "wrong type: ", 1)
        .replace("expected a sequence", "expected a list")
        .replace("expected a boolean", "expected true or false")
        .replace("expected a map", "expected a table");
    match words.split_once("expected struct ") {
        Some((before, _)) => format!("{before}expected a table"),
        None => words,
    }
}

/// The keys that lead to whatever stands at the beginning of `span`. Tables of a document have the span of their
/// header only, so every branch is searched.
fn path_at(table: &DeTable<'_>, span: &Range<usize>) -> Vec<String> {
    fn below(value: &DeValue<'_>, at: usize) -> Option<Vec<String>> {
        match value {
            DeValue::Table(table) => within(table, at),
            DeValue::Array(items) => items.iter().find_map(|item| below(item.get_ref(), at)),
            _ => None,
        }
    }
    fn within(table: &DeTable<'_>, at: usize) -> Option<Vec<String>> {
        table.iter().find_map(|(key, value)| {
            let mut path = vec![key.get_ref().clone().into_owned()];
            if let Some(rest) = below(value.get_ref(), at) {
                path.extend(rest);
                return Some(path);
            }
            (key.span().contains(&at) || value.span().contains(&at)).then_some(path)
        })
    }
    within(table, span.start).unwrap_or_default()
}
