//! [`faults`]: everything that is wrong in one text, not only what a reader stumbles over first.
//!
//! What is at fault is left out and the rest is read again, until it reads or nothing more can be left out. So a fault
//! that only follows from another one (a key is missing because its value was wrong) must not be told: of one place, the
//! first is. What shows only across keys is looked at when everything else is right.
use crate::{
    Config, ConfigError, DescribedHost, Fault, FileKind, Manifest, Model, Source,
    document::{Origin, fault_of, syntax, unresolved},
    examples::{self, Examples},
    expand,
};
use serde::de::DeserializeOwned;
use std::ops::Range;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// So many are told of one text at most.
const MOST: usize = 64;

/// Everything that is wrong in a file of this kind, from its beginning to its end. Nothing: it can be used.
pub fn faults(kind: FileKind, source: Source<'_>, env: &dyn Fn(&str) -> Option<String>) -> Vec<ConfigError> {
    match kind {
        FileKind::Config => {
            all::<Config>(source, env, (examples::CONFIG, |config, origin| config.checked(&origin).map(drop)))
        }
        FileKind::Host => {
            all::<DescribedHost>(source, env, (examples::HOST, |host, origin| host.checked(&origin).map(drop)))
        }
        FileKind::Engine => {
            all::<Manifest>(source, env, (examples::MANIFEST, |engine, origin| engine.checked(origin).map(drop)))
        }
        FileKind::Model => {
            all::<Model>(source, env, (examples::MODEL, |model, origin| model.checked(origin).map(drop)))
        }
    }
}

type Across<T> = fn(T, Origin) -> Result<(), ConfigError>;

fn all<T: DeserializeOwned>(
    source: Source<'_>,
    env: &dyn Fn(&str) -> Option<String>,
    (examples, across): (Examples, Across<T>),
) -> Vec<ConfigError> {
    let source = source.visible();
    let mut table = match DeTable::parse(source.text) {
        Ok(table) => table,
        Err(error) => return vec![syntax(source, &error)],
    };
    let mut found = Found::default();
    for misplaced in expand::expand(&mut table, source.text, env) {
        let span = misplaced.0.clone();
        found.add(unresolved(source, &table, misplaced, examples), &span);
        found.gone.extend(leave_out(&mut table, &span));
    }
    while found.faults.len() < MOST {
        let error = match T::deserialize(toml::Deserializer::from(table.clone())) {
            Ok(value) if found.faults.is_empty() => {
                found.faults.extend(across(value, Origin::new(source, examples)).err());
                break;
            }
            Ok(_) => break,
            Err(error) => error,
        };
        let span = error.span().unwrap_or(0..0);
        found.add(fault_of(source, &table, &error, examples), &span);
        let left_out = if span == table.span() { None } else { leave_out(&mut table, &span) };
        match left_out {
            Some(name) => found.gone.push(name),
            None => break,
        }
    }
    found.faults.sort_by_key(|fault| (fault.line(), fault.column()));
    found.faults
}

#[derive(Default)]
struct Found {
    faults: Vec<ConfigError>,
    /// Where the faults are.
    spans: Vec<Range<usize>>,
    /// Keys that are not there any more because they, or what stood in them, was at fault.
    gone: Vec<String>,
}

impl Found {
    /// Takes it unless it follows from another one.
    fn add(&mut self, error: ConfigError, span: &Range<usize>) {
        let follows = match error.fault() {
            Fault::MissingKey(key) => self.gone.contains(key),
            _ => self.spans.iter().any(|other| span.start <= other.start && other.end <= span.end),
        };
        if !follows {
            self.faults.push(error);
        }
        self.spans.push(span.clone());
    }
}

/// Takes the innermost thing at the beginning of `span` out of `table`: an item of a list, else a key with its value.
/// What it was called, if there was one.
fn leave_out(table: &mut Spanned<DeTable<'_>>, span: &Range<usize>) -> Option<String> {
    out_of_table(table.get_mut(), span.start)
}

fn out_of_table(table: &mut DeTable<'_>, at: usize) -> Option<String> {
    if let Some(name) = table.iter_mut().find_map(|(_, value)| out_of_value(value, at)) {
        return Some(name);
    }
    let here = table.iter().find(|(key, value)| key.span().contains(&at) || value.span().contains(&at));
    let key = here.map(|(key, _)| key.get_ref().clone().into_owned())?;
    table.remove(key.as_str()).map(|_| key)
}

fn out_of_value(value: &mut Spanned<DeValue<'_>>, at: usize) -> Option<String> {
    match value.get_mut() {
        DeValue::Table(table) => out_of_table(table, at),
        DeValue::Array(items) => {
            if let Some(name) = items.iter_mut().find_map(|item| out_of_value(item, at)) {
                return Some(name);
            }
            let n = items.iter().position(|item| item.span().contains(&at))?;
            let kept = items.iter().enumerate().filter(|(other, _)| *other != n).map(|(_, item)| item.clone());
            *items = kept.collect();
            Some(String::new())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(kind: FileKind, text: &str) -> Vec<String> {
        let faults = faults(kind, Source { file: "f", text }, &|_| None);
        faults.iter().map(|fault| fault.to_string().lines().next().unwrap_or_default().to_owned()).collect()
    }

    #[test]
    fn every_fault_of_a_text_is_told_with_its_own_place() {
        let text = "sever = 1\n[pool]\nmax_wait = 5\nmax_wiat = \"1m\"\n[limits]\nqueue = 0\nbody = \"${NOT_SET}\"\n\
                    [server]\nlisten = [\"127.0.0.1:1\", \"nowhere\", 7]\n[[device]]\nid = \"a\"\n[[device]]\nid = \"b\"\ntotal = \"1\"\n";
        assert_eq!(
            shown(FileKind::Config, text),
            [
                "f:1:1: unknown key `sever`, did you mean `server`?",
                "f:3:12: wrong type: integer `5`, expected a duration such as \"90s\"",
                "f:4:1: unknown key `max_wiat`, did you mean `max_wait`?",
                "f:6:9: `0` is not between 1 and 1000000",
                "f:7:9: the environment variable `NOT_SET` is not set; `${NOT_SET:-value}` would give a default",
                "f:9:26: `nowhere` is no address: an IP address and a port, or `unix:` and a path",
                "f:9:37: wrong type: integer `7`, expected an address such as \"127.0.0.1:8790\"",
                "f:10:1: the key `total` is missing",
                "f:14:9: the size `1` has no unit: `1GiB` is 1 × 2^30 bytes",
            ]
        );
    }

    #[test]
    fn what_only_follows_from_another_fault_is_not_told() {
        let text =
            "id = 5\nsource = { pypi = { packages = [\"no name\"], version = \"1\", file = \"f\", sha256 = \"0\" } }\n";
        let told = shown(FileKind::Model, text);
        assert_eq!(told.len(), 3, "{told:#?}");
        assert!(
            told[0].starts_with("f:1:6: ") && told[1].contains("no name") && told[2].contains("SHA-256"),
            "{told:#?}"
        );
    }

    #[test]
    fn what_shows_across_keys_is_told_when_all_else_is_right() {
        assert_eq!(
            shown(FileKind::Host, "[host]\nram = \"1GiB\"\n[capacity]\nreserve = \"2GiB\"\n"),
            ["f:4:11: this leaves nothing of 1.0 GiB"]
        );
        assert_eq!(shown(FileKind::Host, "[host]\nram = \"1GiB\"\n"), Vec::<String>::new());
    }

    proptest! {
        #[test]
        fn what_a_reader_stumbles_over_is_among_the_faults(text in "(\\[?\\[?(server|pool|external|device|x)\\]?\\]?\n|(id|listen|kind|max_wait) = (5|\"a\"|\"\\$\\{A\\}\"|\\[1, \"b\"\\]|\\{ a = 1 \\})\n){0,8}") {
            let source = Source { file: "f", text: &text };
            let (first, all) = (crate::parse_config(source, &|_| None).err(), faults(FileKind::Config, source, &|_| None));
            prop_assert_eq!(first.is_some(), !all.is_empty());
            prop_assert!(first.is_none_or(|first| all.contains(&first)));
        }
    }
}
