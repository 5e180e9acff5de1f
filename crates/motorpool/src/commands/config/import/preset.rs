//! Presets of llama.cpp's router: an `.ini` whose sections are models and whose keys are arguments.
//!
//! `[*]` is for all models, a section wins over it. Keys are long flags without dashes, short flags, or names of
//! `LLAMA_ARG_…` variables.
use super::{
    Found, Remark,
    draft::{Draft, Wish},
    flags::{self, Flag},
};

/// A line of a section.
#[derive(Clone, Debug)]
struct Setting {
    line: usize,
    key: String,
    value: String,
}

pub(super) fn read(text: &str) -> Result<Found, Remark> {
    let (mut found, mut common) = (Found::default(), Vec::<Setting>::new());
    let Some(manifest) = flags::engine_of("llama-server") else { return Ok(found) };
    for (line, name, settings) in sections(text, &mut found.remarks)? {
        if name == "*" {
            common = settings;
            continue;
        }
        let own = |key: &str| settings.iter().any(|setting| flag_name(&setting.key) == flag_name(key));
        let inherited = common.iter().filter(|setting| !own(&setting.key)).cloned();
        let mut draft = Draft { id: name, line, ..Draft::default() };
        let all: Vec<Setting> = inherited.chain(settings.iter().cloned()).collect();
        let flags = all.into_iter().filter_map(|setting| flag_of(&mut draft, setting)).collect();
        flags::take(&mut draft, flags, &manifest);
        // A section without a model is of the one that is called so on the hub.
        if draft.source.is_none() && draft.wishes.model.is_none() && draft.id.contains('/') {
            let (shown, value) = (format!("[{}]", draft.id), draft.id.clone());
            draft.wishes.model = Some(Wish { line, shown, value });
        }
        found.drafts.push(draft);
    }
    Ok(found)
}

type Section = (usize, String, Vec<Setting>);

fn sections(text: &str, remarks: &mut Vec<Remark>) -> Result<Vec<Section>, Remark> {
    let mut sections: Vec<Section> = Vec::new();
    for (n, line) in text.lines().enumerate() {
        let (number, line) = (n + 1, line.trim());
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            sections.push((number, name.trim().to_owned(), vec![]));
            continue;
        }
        let (key, value) =
            line.split_once('=').ok_or_else(|| Remark::new(number, "neither a section nor a key with a value"))?;
        let (key, value) = (key.trim().to_owned(), value.trim().trim_matches('"').to_owned());
        match sections.last_mut() {
            Some((_, _, settings)) => settings.push(Setting { line: number, key, value }),
            None if key == "version" => {}
            None => remarks.push(Remark::new(number, format!("`{key}` is not taken over: it stands in no section"))),
        }
    }
    Ok(sections)
}

/// The flag that a key means.
fn flag_name(key: &str) -> String {
    let plain = key.trim_start_matches('-');
    if let Some(name) = plain.strip_prefix("LLAMA_ARG_") {
        return format!("--{}", name.to_ascii_lowercase().replace('_', "-"));
    }
    // Short flags have no dash inside and a handful of letters; long ones that short are written so as well.
    let long =
        ["lora", "host", "port", "path", "jinja", "embd", "seed", "temp", "mlock", "mmap", "rpc", "fit", "rerank"];
    let is_short =
        plain.len() <= 5 && !plain.contains('-') && !long.contains(&plain) && plain != "model" && plain != "alias";
    if is_short { format!("-{plain}") } else { format!("--{plain}") }
}

/// What a setting is as an argument; what only a router obeys is none.
fn flag_of(draft: &mut Draft, Setting { line, key, value }: Setting) -> Option<Flag> {
    match (key.as_str(), value.to_ascii_lowercase().as_str()) {
        ("load-on-startup", "true" | "1" | "on") => {
            draft.set("home", true);
            return None;
        }
        ("load-on-startup", _) => return None,
        ("stop-timeout", _) => {
            draft.leave(line, &key, "`polite` of [stop] in motorpool.toml says how long engines have to end");
            return None;
        }
        ("dedup-cache-models", _) => {
            draft.leave(line, &key, "no cache is searched for models");
            return None;
        }
        _ => {}
    }
    let name = flag_name(&key);
    // Those that take `on` and `off` themselves.
    let takes_word = ["--flash-attn", "-fa", "--fit", "-fit", "--cache-prompt"].contains(&name.as_str());
    let value = match value.as_str() {
        "true" | "on" if !takes_word => None,
        "false" | "off" if !takes_word => {
            draft.leave(line, &format!("{key} = {value}"), "engines are not told what they do not do");
            return None;
        }
        _ => Some(value),
    };
    Some(Flag { line, name, value })
}
