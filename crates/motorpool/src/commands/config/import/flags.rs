//! What llama-server's arguments say in the words of the catalog.
//!
//! Those that the engine's manifest refuses are left out with its reason; what it knows nothing of goes along as
//! `extra_args`.
use super::draft::{Draft, Projector, Wish};
use motorpool_catalog::{KV_TYPES, Manifest, shipped};
use toml::Value;

/// One argument: where it stands, its flag, and what follows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag {
    pub(super) line: usize,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

impl Flag {
    fn wish(&self, value: &str) -> Wish {
        Wish { line: self.line, shown: format!("{} {value}", self.name), value: value.to_owned() }
    }
}

/// What is known only when all arguments were seen.
#[derive(Default)]
struct Seen {
    /// Tokens of all slots together.
    context: Option<u64>,
    slots: u64,
    cache: Vec<(usize, String)>,
    draft: Option<String>,
    guesses: Option<i64>,
}

/// Flags of `args`, each with the values behind it. What no flag stands before is a flag without a name.
pub(super) fn flags_of(args: &[(usize, String)]) -> Vec<Flag> {
    let mut flags: Vec<Flag> = Vec::new();
    for (line, arg) in args {
        if is_flag(arg) {
            let (name, value) = match arg.split_once('=').filter(|_| arg.starts_with("--")) {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (arg.clone(), None),
            };
            flags.push(Flag { line: *line, name, value });
        } else if let Some(open) = flags.last_mut().filter(|flag| flag.value.is_none()) {
            open.value = Some(arg.clone());
        } else {
            flags.push(Flag { line: *line, name: String::new(), value: Some(arg.clone()) });
        }
    }
    flags
}

/// A number below zero is a value.
fn is_flag(arg: &str) -> bool {
    arg.starts_with('-') && arg.len() > 1 && arg.parse::<f64>().is_err()
}

/// The manifest of the engine whose program is called so.
pub(super) fn engine_of(program: &str) -> Option<Manifest> {
    let name = program.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".exe").unwrap_or(name);
    shipped().0.into_iter().find(|manifest| manifest.program.names.iter().any(|known| known == name))
}

/// Puts what `flags` say into `draft`.
pub(super) fn take(draft: &mut Draft, flags: Vec<Flag>, manifest: &Manifest) {
    let mut seen = Seen { slots: 1, ..Seen::default() };
    for flag in flags {
        let known = match &flag.value {
            Some(value) => with_value((draft, &mut seen), &flag, value),
            None => alone(draft, &flag.name),
        };
        if !known {
            pass_on(draft, flag, manifest);
        }
    }
    finish(draft, seen);
}

/// Whether the catalog has a word for it.
fn with_value((draft, seen): (&mut Draft, &mut Seen), flag: &Flag, value: &str) -> bool {
    let whole: Option<i64> = value.parse().ok();
    match (flag.name.as_str(), whole) {
        ("-m" | "--model", _) => draft.source = Some(value.to_owned()),
        ("-hf" | "-hfr" | "--hf-repo" | "-mu" | "--model-url", _) => draft.wishes.model = Some(flag.wish(value)),
        ("-hff" | "--hf-file", _) => draft.wishes.file = Some(flag.wish(value)),
        ("-hfd" | "-hfrd" | "--hf-repo-draft" | "--spec-draft-hf", _) => draft.wishes.draft = Some(flag.wish(value)),
        ("-a" | "--alias", _) => draft
            .aliases
            .extend(value.split(',').map(str::trim).filter(|a| *a != draft.id).map(str::to_owned).collect::<Vec<_>>()),
        ("-c" | "--ctx-size", Some(n)) => seen.context = u64::try_from(n).ok(),
        ("-np" | "--parallel", Some(n)) if n > 0 => seen.slots = n.unsigned_abs(),
        ("-ctk" | "--cache-type-k" | "-ctv" | "--cache-type-v", _) => seen.cache.push((flag.line, value.to_owned())),
        ("-ngl" | "--gpu-layers" | "--n-gpu-layers", Some(n @ 0..)) => draft.set("gpu_layers", n.min(10_000)),
        ("-ngl" | "--gpu-layers" | "--n-gpu-layers", None) if value == "all" => draft.set("gpu_layers", 10_000),
        ("-ngl" | "--gpu-layers" | "--n-gpu-layers", _) if value == "auto" || whole == Some(-1) => {}
        ("-ncmoe" | "--n-cpu-moe", Some(n @ 0..)) => draft.set("n_cpu_moe", n),
        ("-dev" | "--device", None) => draft.set("devices", list(value)),
        ("-cram" | "--cache-ram", Some(n @ 0..)) => draft.set("prompt_cache", format!("{n}MiB")),
        ("-ctxcp" | "--ctx-checkpoints" | "--swa-checkpoints", Some(n @ 0..=32)) => draft.set("checkpoints", n),
        ("--sleep-idle-seconds", Some(n)) => draft.idle(u64::try_from(n).unwrap_or(0)),
        ("-mm" | "--mmproj", _) => draft.set("projector", file(value)),
        // Of these two llama-server takes all that it is given; of others the last.
        ("--lora", _) => draft.add("adapters", value.split(',').map(file)),
        ("-md" | "--model-draft" | "--spec-draft-model", _) => seen.draft = Some(value.to_owned()),
        ("--draft" | "--draft-max" | "--draft-n" | "--spec-draft-n-max", Some(n @ 1..=64)) => seen.guesses = Some(n),
        ("-ot" | "--override-tensor", _) => match stays(value) {
            Some(patterns) => draft.add("cpu_tensors", patterns),
            None => return false,
        },
        _ => return false,
    }
    true
}

fn alone(draft: &mut Draft, name: &str) -> bool {
    match name {
        "--embedding" | "--embeddings" => draft.set("capabilities", list("embeddings")),
        "--rerank" | "--reranking" => draft.set("capabilities", list("rerank")),
        "--no-mmproj" | "--no-mmproj-auto" => draft.wishes.projector = Projector::Left,
        _ => return false,
    }
    true
}

/// As the model's own argument, or not at all.
fn pass_on(draft: &mut Draft, Flag { line, name, value }: Flag, manifest: &Manifest) {
    let shown = [name.as_str(), value.as_deref().unwrap_or_default()].join(" ").trim().to_owned();
    if name.is_empty() {
        return draft.leave(line, &shown, "no flag stands before it");
    }
    if let Some(refused) = manifest.refuses(&name) {
        return draft.leave(line, &shown, &refused.instead.to_string());
    }
    draft.extra_args.extend([Some(name), value].into_iter().flatten());
}

fn finish(draft: &mut Draft, Seen { context, slots, cache, draft: small, guesses }: Seen) {
    if slots > 1 {
        draft.set("slots", i64::try_from(slots).unwrap_or(i64::MAX));
    }
    match context {
        Some(0) => draft.set("context", "max"),
        // There it is for all slots together, here for each.
        Some(n) => draft.set("context", i64::try_from(n / slots).unwrap_or(i64::MAX)),
        None => {}
    }
    match cache.as_slice() {
        [] => {}
        [(_, kind), rest @ ..] if KV_TYPES.contains(&kind.as_str()) && rest.iter().all(|(_, other)| other == kind) => {
            draft.set("kv_type", kind.clone());
        }
        [(line, kind), ..] => {
            let why = format!("keys and values have one type here, one of {}", KV_TYPES.join(", "));
            draft.leave(*line, &format!("a cache of {kind}"), &why);
        }
    }
    draft.wishes.guesses = guesses;
    if let Some(path) = small {
        draft.set("draft", guessing(&path, guesses));
        draft.wishes.draft = None;
    }
}

/// A draft model, and how many tokens it guesses.
pub(super) fn guessing(path: &str, guesses: Option<i64>) -> Value {
    let tokens = guesses.map(|n| ("tokens".to_owned(), n.into()));
    Value::Table([("file".to_owned(), path.into())].into_iter().chain(tokens).collect())
}

fn list(text: &str) -> Vec<String> {
    text.split(',').map(|part| part.trim().to_owned()).collect()
}

pub(super) fn file(path: &str) -> Value {
    Value::Table([("file".to_owned(), path.trim().into())].into_iter().collect())
}

/// The patterns, when all of them keep tensors in system memory.
fn stays(value: &str) -> Option<Vec<String>> {
    value.split(',').map(|part| part.trim().strip_suffix("=CPU").map(str::to_owned)).collect()
}
