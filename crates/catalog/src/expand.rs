//! `${VAR}` and `${VAR:-default}` in string values, after parsing.
//!
//! `${VAR}` is the variable, which must be set; `${VAR:-default}` is the default when it is unset or empty, up to the
//! first `}`; `$${` is a plain `${`. What a variable holds is not searched again.
use crate::Fault;
use std::{borrow::Cow, ops::Range};
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

type Env<'a> = &'a dyn Fn(&str) -> Option<String>;
type Misplaced = (Range<usize>, Fault);

/// A reference that cannot be resolved: its own text up to the name's end, and why.
struct Unresolved {
    reference: String,
    fault: Fault,
}

/// Replaces every reference in every string of `table`, which was parsed from `text`. Strings with one that cannot be
/// resolved stay as they are and come back, in the order of the text's tables.
pub(crate) fn expand(table: &mut Spanned<DeTable<'_>>, text: &str, env: Env<'_>) -> Vec<Misplaced> {
    let mut misplaced = Vec::new();
    in_table(table.get_mut(), (text, env), &mut misplaced);
    misplaced
}

fn in_table(table: &mut DeTable<'_>, with: (&str, Env<'_>), misplaced: &mut Vec<Misplaced>) {
    table.iter_mut().for_each(|(_, value)| in_value(value, with, misplaced));
}

fn in_value(value: &mut Spanned<DeValue<'_>>, (text, env): (&str, Env<'_>), misplaced: &mut Vec<Misplaced>) {
    let span = value.span();
    match value.get_mut() {
        DeValue::String(string) => match substitute(string, env) {
            Ok(Some(new)) => *string = Cow::Owned(new),
            Ok(None) => {}
            Err(unresolved) => misplaced.push(unresolved.place(text, span)),
        },
        DeValue::Array(items) => items.iter_mut().for_each(|item| in_value(item, (text, env), misplaced)),
        DeValue::Table(table) => in_table(table, (text, env), misplaced),
        _ => {}
    }
}

impl Unresolved {
    /// The reference itself where it stands in the file as it is; the whole string when escapes hide it.
    fn place(self, text: &str, span: Range<usize>) -> Misplaced {
        let raw = text.get(span.clone()).unwrap_or_default();
        match raw.find(&self.reference) {
            Some(at) => (span.start + at..span.start + at + self.reference.len(), self.fault),
            None => (span, self.fault),
        }
    }
}

/// `None` when there is nothing to replace.
fn substitute(text: &str, env: Env<'_>) -> Result<Option<String>, Unresolved> {
    if !text.contains("${") {
        return Ok(None);
    }
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find("${") {
        let (before, from) = rest.split_at(at);
        if let Some(kept) = before.strip_suffix('$') {
            out.push_str(kept);
            out.push_str("${");
            rest = &from[2..];
            continue;
        }
        out.push_str(before);
        let (value, after) = resolve(from, env)?;
        out.push_str(&value);
        rest = after;
    }
    out.push_str(rest);
    Ok(Some(out))
}

/// The value of the reference that `from` begins with, and what follows it.
fn resolve<'a>(from: &'a str, env: Env<'_>) -> Result<(String, &'a str), Unresolved> {
    let bad = |reference: &str| Unresolved {
        reference: reference.into(),
        fault: Fault::BadVariable(reference.chars().take(40).collect()),
    };
    let end = from.find('}').ok_or_else(|| bad(from))?;
    let inner = &from[2..end];
    let (name, default) = match inner.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inner, None),
    };
    if !is_name(name) {
        return Err(bad(&from[..=end]));
    }
    let value = match default {
        Some(default) => env(name).filter(|value| !value.is_empty()).unwrap_or_else(|| default.to_owned()),
        None => env(name)
            .ok_or_else(|| Unresolved { reference: from[..=end].into(), fault: Fault::UnsetVariable(name.into()) })?,
    };
    Ok((value, &from[end + 1..]))
}

/// The variables that `text` refers to, in order.
pub(crate) fn variables(text: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find("${") {
        let is_plain = rest[..at].ends_with('$');
        rest = &rest[at + 2..];
        let name = rest.split(['}', ':']).next().unwrap_or_default();
        if !is_plain && is_name(name) {
            names.push(name.to_owned());
        }
    }
    names
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn env(name: &str) -> Option<String> {
        match name {
            "HOME" => Some("/home/ann".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOME}".into()),
            _ => None,
        }
    }

    fn expanded(text: &str) -> Result<String, Fault> {
        substitute(text, &env).map(|new| new.unwrap_or_else(|| text.to_owned())).map_err(|u| u.fault)
    }

    #[test]
    fn variables_are_replaced_and_defaults_step_in() {
        for (text, value) in [
            ("${HOME}/models", "/home/ann/models"),
            ("a${HOME}b${HOME}c", "a/home/annb/home/annc"),
            ("${NONE:-/srv}/x", "/srv/x"),
            ("${EMPTY:-full}", "full"),
            ("${EMPTY}", ""),
            ("${NONE:-}", ""),
            ("${NONE:-a:-b}", "a:-b"),
            ("$HOME $ {HOME} }{", "$HOME $ {HOME} }{"),
        ] {
            assert_eq!(expanded(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn a_doubled_dollar_keeps_the_text() {
        assert_eq!(expanded("$${HOME} ${HOME}").as_deref(), Ok("${HOME} /home/ann"));
    }

    #[test]
    fn what_a_variable_holds_is_not_searched_again() {
        assert_eq!(expanded("${NESTED}").as_deref(), Ok("${HOME}"));
    }

    #[test]
    fn a_reference_that_cannot_be_resolved_is_named() {
        assert_eq!(expanded("${NONE}"), Err(Fault::UnsetVariable("NONE".into())));
        assert_eq!(expanded("${1X}"), Err(Fault::BadVariable("${1X}".into())));
        assert_eq!(expanded("x${}"), Err(Fault::BadVariable("${}".into())));
        assert_eq!(expanded("x${HOME"), Err(Fault::BadVariable("${HOME".into())));
    }

    proptest! {
        #[test]
        fn any_text_is_resolved_or_refused(text in ".*", dollars in "(\\$|\\{|\\}|HOME|:-|é){0,12}") {
            let _ = expanded(&text);
            let _ = expanded(&dollars);
        }
    }
}
