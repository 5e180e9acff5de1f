//! llama-swap's configuration: models with a command each, and groups of them.
//!
//! Macros are replaced as llama-swap replaces them; `${env.NAME}` becomes `${NAME}`, which the catalog knows.
use super::{
    Found, Remark,
    draft::{Draft, Written},
    flags, shell,
};
use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};
use std::collections::BTreeMap;
use toml::Value;

/// Macros by name, with what they stand for.
type Macros = BTreeMap<String, String>;

/// What is said for all models.
struct Common {
    macros: Macros,
    /// Seconds without a request after which those stop that do not say; zero: never.
    idle: u64,
}

/// Longest text that macros may make, and most of them that are replaced in one: they can double or name each other.
const LONGEST: usize = 1 << 16;

/// Longest file, in bytes.
const MOST_BYTES: usize = 4 << 20;

/// Most blanks before a line, and most marks of a list or a key in one.
const DEEPEST: usize = 128;

pub(super) fn read(text: &str) -> Result<Found, Remark> {
    bounded(text)?;
    let documents = MarkedYaml::load_from_str(text)
        .map_err(|error| Remark::new(error.marker().line(), format!("no valid YAML: {}", error.info())))?;
    let Some(top) = documents.first() else { return Ok(Found::default()) };
    if !matches!(top.data, YamlData::Mapping(_)) {
        return Err(Remark::new(1, "no configuration of llama-swap: there are no `models`"));
    }
    let mut found = Found::default();
    let idle = member(top, "globalTTL").and_then(seconds).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    let common = Common { macros: macros_of(member(top, "macros"), &Macros::new()), idle };
    for (name, model) in members(member(top, "models")) {
        found.drafts.push(draft(name, model, &common));
    }
    for (name, node) in members(Some(top)) {
        match name.as_str() {
            "models" | "macros" => {}
            "globalTTL" if seconds(node).is_some_and(|n| n >= 0) => {}
            "groups" => members(Some(node)).iter().for_each(|(name, group)| join(&mut found, name, group)),
            "hooks" => preload(&mut found, node),
            other => {
                found.remarks.push(Remark::new(line(node), format!("`{other}` is not taken over: {}", why_not(other))));
            }
        }
    }
    Ok(found)
}

/// The parser calls itself for every level, and would end the program where there are too many. A level of blocks needs a
/// column of blanks or a mark with a blank behind it, and levels in brackets are counted by the parser.
fn bounded(text: &str) -> Result<(), Remark> {
    if text.len() > MOST_BYTES {
        return Err(Remark::new(1, format!("it is longer than {} MiB", MOST_BYTES >> 20)));
    }
    let is_deep = |line: &str| {
        let blanks = line.len() - line.trim_start_matches(' ').len();
        let marks = line.split([' ', '\t']).filter(|word| word.ends_with(['-', '?', ':'])).count();
        blanks > DEEPEST || marks > DEEPEST
    };
    // A lone carriage return ends a line too, but is none that people count.
    match text.split('\n').position(|line| line.split('\r').any(is_deep)) {
        Some(before) => Err(Remark::new(before + 1, format!("it is nested more than {DEEPEST} levels deep"))),
        None => Ok(()),
    }
}

/// What stands in the place of a key at the top.
fn why_not(key: &str) -> &'static str {
    match key {
        "healthCheckTimeout" => "`cap` and `stall` of [load] in motorpool.toml say how long a load may take",
        "logLevel" => "`level` of [log] in motorpool.toml says it",
        "startPort" => "engines get sockets of their own",
        "globalTTL" => "it is no number of seconds",
        "apiKeys" => "`motorpool key new NAME --own` takes a key as it is, from standard input",
        "matrix" => "which models are there together follows from their memory, `pinned` and `priority`",
        "peers" => "[[external]] of motorpool.toml names servers of others",
        _ => "it has no counterpart here",
    }
}

fn draft(id: String, node: &MarkedYaml<'_>, common: &Common) -> Draft {
    let mut draft = Draft { id: id.clone(), line: line(node), ..Draft::default() };
    let mut macros = common.macros.clone();
    macros.extend([("MODEL_ID".to_owned(), id), ("PORT".to_owned(), "PORT".to_owned())]);
    let macros = macros_of(member(node, "macros"), &macros);
    for (key, value) in members(Some(node)) {
        match key.as_str() {
            "cmd" => command(&mut draft, value, &macros),
            "macros" | "ttl" => {}
            "aliases" => draft.aliases.extend(texts(value)),
            "filters" => filters(&mut draft, value, &macros),
            "name" | "description" => draft.leave(line(value), &key, "`tags` are words for whoever chooses"),
            "proxy" | "checkEndpoint" | "cmdStop" => {
                draft.leave(
                    line(value),
                    &key,
                    "the engine's manifest says where it serves, when it is ready and how it ends",
                );
            }
            "env" => draft.leave(line(value), &key, "[env_set] of the engine's manifest gives variables to engines"),
            "useModelName" => draft.leave(line(value), &key, "the engine knows the model by its id"),
            "concurrencyLimit" => draft.leave(line(value), &key, "`slots` and `queue_model` of [limits] say how many"),
            "timeouts" => draft.leave(line(value), &key, "[limits] of motorpool.toml has them for all engines"),
            other => draft.leave(line(value), other, "it has no counterpart here"),
        }
    }
    time_to_live(&mut draft, member(node, "ttl"), common.idle);
    draft
}

/// The program decides which engine it is; its arguments are what the catalog says otherwise.
fn command(draft: &mut Draft, node: &MarkedYaml<'_>, macros: &Macros) {
    let Some(text) = text_of(node) else { return draft.leave(line(node), "cmd", "it is no text") };
    let Some(text) = replaced(&text, macros) else { return draft.leave(line(node), "cmd", "its macros never end") };
    let words = shell::words(&text, line(node));
    let Some((at, program)) = words.first() else { return draft.leave(line(node), "cmd", "it is empty") };
    let Some(manifest) = flags::engine_of(program) else {
        return draft.leave(
            *at,
            program,
            "no engine's manifest has a program of that name; engines/custom.toml.example shows how one is written",
        );
    };
    if manifest.name != "llama-server" {
        draft.engine.clone_from(&manifest.name);
    }
    if program.contains('/') {
        let why =
            format!("`program` of [engine.{}] in motorpool.toml names the program of all its models", manifest.name);
        draft.leave(*at, program, &why);
    }
    flags::take(draft, flags::flags_of(&words[1..]), &manifest);
}

/// Zero is never, and so is what nobody says; below zero, and not there at all, is what holds for all.
fn time_to_live(draft: &mut Draft, node: Option<&MarkedYaml<'_>>, for_all: u64) {
    let said = node.map(|node| (node, seconds(node)));
    if let Some((node, None)) = said {
        draft.leave(line(node), "ttl", "it is no number of seconds");
    }
    let own = said.and_then(|(_, seconds)| u64::try_from(seconds?).ok());
    draft.idle(own.unwrap_or(for_all));
}

fn seconds(node: &MarkedYaml<'_>) -> Option<i64> {
    text_of(node)?.parse().ok()
}

fn filters(draft: &mut Draft, node: &MarkedYaml<'_>, macros: &Macros) {
    let mut rules = toml::Table::new();
    for (key, value) in members(Some(node)) {
        match key.as_str() {
            "stripParams" | "strip_params" => {
                let names = texts(value).join(",");
                let names = replaced(&names, macros).unwrap_or(names);
                let names = names.split(',').map(str::trim).filter(|name| !matches!(*name, "" | "model"));
                rules.insert("strip".into(), names.map(Value::from).collect::<Vec<_>>().into());
            }
            "setParams" => {
                rules.insert("set".into(), toml_of(value, macros).unwrap_or_else(|| toml::Table::new().into()));
            }
            other => {
                draft.leave(
                    line(value),
                    other,
                    "parameters follow from the model alone; another entry may have others",
                );
            }
        }
    }
    if !rules.is_empty() {
        draft.keys.push(("parameters", Written(rules.into())));
    }
}

/// Members of a group that stays are pinned.
fn join(found: &mut Found, name: &str, group: &MarkedYaml<'_>) {
    let is = |key: &str| member(group, key).and_then(text_of).is_some_and(|text| text == "true");
    let names = member(group, "members").map(texts).unwrap_or_default();
    let mut why = "which models are there together follows from their memory";
    if is("persistent") {
        why = "its members are pinned; beside that, which models are there together follows from their memory";
        for draft in found.drafts.iter_mut().filter(|draft| names.contains(&draft.id)) {
            draft.set("pinned", true);
        }
    }
    found.remarks.push(Remark::new(line(group), format!("the group `{name}` is not taken over: {why}")));
}

/// What is loaded at the start.
fn preload(found: &mut Found, hooks: &MarkedYaml<'_>) {
    let names = member(hooks, "on_startup").and_then(|hook| member(hook, "preload")).map(texts).unwrap_or_default();
    for draft in found.drafts.iter_mut().filter(|draft| names.contains(&draft.id)) {
        draft.set("home", true);
    }
}

fn macros_of(node: Option<&MarkedYaml<'_>>, known: &Macros) -> Macros {
    let mut macros = known.clone();
    for (name, value) in members(node) {
        macros.insert(name, text_of(value).unwrap_or_default());
    }
    macros
}

/// `text` with its macros replaced; nothing when that does not end.
fn replaced(text: &str, macros: &Macros) -> Option<String> {
    let (mut out, mut rest, mut n_left) = (String::new(), text.to_owned(), LONGEST / 16);
    while let Some(at) = rest.find("${") {
        n_left = n_left.checked_sub(1)?;
        let after = rest.split_off(at);
        out.push_str(&rest);
        let (name, behind) = after[2..].split_once('}').map(|(name, behind)| (name.to_owned(), behind.to_owned()))?;
        match (name.strip_prefix("env."), macros.get(&name)) {
            (Some(variable), _) => {
                out.extend(["${", variable, "}"]);
                rest = behind;
            }
            // What it stands for may hold macros too.
            (None, Some(text)) => rest = format!("{text}{behind}"),
            (None, None) => {
                out.extend(["$${", &name, "}"]);
                rest = behind;
            }
        }
        if out.len() + rest.len() > LONGEST {
            return None;
        }
    }
    Some(out + &rest)
}

fn line(node: &MarkedYaml<'_>) -> usize {
    node.span.start.line()
}

fn members<'a, 'i>(node: Option<&'a MarkedYaml<'i>>) -> Vec<(String, &'a MarkedYaml<'i>)> {
    let Some(YamlData::Mapping(members)) = node.map(|node| &node.data) else { return vec![] };
    members.iter().filter_map(|(key, value)| Some((text_of(key)?, value))).collect()
}

fn member<'a, 'i>(node: &'a MarkedYaml<'i>, name: &str) -> Option<&'a MarkedYaml<'i>> {
    members(Some(node)).into_iter().find(|(key, _)| key == name).map(|(_, value)| value)
}

/// A single value as it is written.
fn text_of(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(n)) => Some(n.to_string()),
        YamlData::Value(Scalar::Boolean(is)) => Some(is.to_string()),
        YamlData::Value(Scalar::FloatingPoint(n)) => Some(n.to_string()),
        _ => None,
    }
}

/// Texts of a list, or the only one; an item that has an `id` is called so.
fn texts(node: &MarkedYaml<'_>) -> Vec<String> {
    match &node.data {
        YamlData::Sequence(items) => {
            items.iter().filter_map(|item| text_of(item).or_else(|| member(item, "id").and_then(text_of))).collect()
        }
        _ => text_of(node).into_iter().collect(),
    }
}

fn toml_of(node: &MarkedYaml<'_>, macros: &Macros) -> Option<Value> {
    match &node.data {
        YamlData::Value(Scalar::Integer(n)) => Some((*n).into()),
        YamlData::Value(Scalar::Boolean(is)) => Some((*is).into()),
        YamlData::Value(Scalar::FloatingPoint(n)) => Some(n.into_inner().into()),
        YamlData::Value(Scalar::String(text)) => Some(replaced(text, macros)?.into()),
        YamlData::Sequence(items) => {
            Some(items.iter().filter_map(|item| toml_of(item, macros)).collect::<Vec<_>>().into())
        }
        YamlData::Mapping(_) => {
            let table = members(Some(node)).into_iter().filter_map(|(key, value)| Some((key, toml_of(value, macros)?)));
            Some(Value::Table(table.collect()))
        }
        _ => None,
    }
}
