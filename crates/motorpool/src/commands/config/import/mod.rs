//! `motorpool config import`: entries of the catalog from what others configured.
//!
//! ```text
//! llama-swap's YAML ─ swap.rs ──┐
//!                               ├─► flags.rs ─► Draft ─► names.rs, hub.rs ─► read as the catalog reads it ─► printed, or written
//! llama.cpp's presets ─ preset.rs ┘              draft.rs                                                      where nothing is
//! ```
//!
//! Nothing is guessed: what has no counterpart is said with its line and its reason, in the report and in the entry. An
//! entry that could not be made at all is said at the end too, by the exit code.
mod draft;
mod flags;
mod hub;
mod names;
mod preset;
mod shell;
mod swap;

use crate::{
    dirs::Dirs,
    exit::{Exit, Failure},
    model::here::Here,
    out::{self, Out},
};
use clap::Args;
use draft::Draft;
use motorpool_catalog::{Catalog, Source, parse_model, shipped};
use serde::Serialize;
use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct Import {
    /// llama-swap's config.yaml, or an .ini of presets
    file: PathBuf,
    /// The folder to write entries to: the catalog/ beside motorpool.toml
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
}

/// What was found in a file: entries, and what belongs to none of them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Found {
    drafts: Vec<Draft>,
    remarks: Vec<Remark>,
}

/// What was not taken over, where it stood, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Remark {
    line: usize,
    text: String,
}

impl Remark {
    fn new(line: usize, text: impl Into<String>) -> Self {
        Self { line, text: text.into() }
    }
}

/// What becomes of one entry.
#[derive(Debug, Serialize)]
struct Row {
    id: String,
    file: String,
    text: String,
    remarks: Vec<Remark>,
    outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    Printed,
    Written,
    /// There is a file already.
    Stays,
    /// It would be no valid entry.
    Invalid,
}

/// Why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
enum ImportError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{file}:{line}: {why}")]
    Wrong { file: String, line: usize, why: String },
}

impl From<ImportError> for Failure {
    fn from(error: ImportError) -> Self {
        let what = crate::exit::chain(&error);
        match error {
            ImportError::Read { .. } => Self::new(Exit::NotFound, what, "check the path and its permissions"),
            ImportError::Write { .. } => Self::new(Exit::Denied, what, "name a folder that you can write to with --to"),
            ImportError::Wrong { .. } => {
                Self::new(Exit::Config, what, "give it llama-swap's YAML, or an .ini of llama.cpp's presets")
            }
        }
    }
}

pub(super) fn perform(dirs: &Dirs, out: Out, Import { file, to }: &Import) -> Result<(), Failure> {
    let text = fs::read_to_string(file).map_err(|source| ImportError::Read { path: file.clone(), source })?;
    let name = file.display().to_string();
    let is_preset = file.extension().is_some_and(|ext| ext == "ini");
    let read = if is_preset { preset::read(&text) } else { swap::read(&text) };
    let Found { mut drafts, remarks } =
        read.map_err(|Remark { line, text }| ImportError::Wrong { file: name.clone(), line, why: text })?;
    names::settle(&mut drafts);
    if drafts.iter().any(hub::is_needed) {
        let here = Here::look(dirs, &|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
        for draft in &mut drafts {
            hub::find(draft, &here);
        }
    }
    let rows = drafts.into_iter().map(|draft| row(draft, &name, to.as_deref())).collect::<Result<Vec<_>, _>>()?;
    let about = rows.iter().flat_map(|row| row.remarks.iter().map(|remark| (row.id.as_str(), remark)));
    for (id, Remark { line, text }) in about {
        out::say(format_args!("{name}:{line}: {id}: {text}"));
    }
    for Remark { line, text } in &remarks {
        out::say(format_args!("{name}:{line}: {text}"));
    }
    out.data(&serde_json::json!({ "entries": rows, "remarks": remarks }), || rows.iter().map(for_people).collect())?;
    whole(&rows)
}

/// Whether nothing was left out; whoever imports in a script hears it too.
fn whole(rows: &[Row]) -> Result<(), Failure> {
    let ids = |wanted: Outcome| {
        let such = rows.iter().filter(|row| row.outcome == wanted);
        such.map(|row| format!("`{}`", row.id)).collect::<Vec<_>>().join(", ")
    };
    let stays = match ids(Outcome::Stays) {
        none if none.is_empty() => None,
        ids => Some(format!("{ids} had a file there already, which stays as it is")),
    };
    match (ids(Outcome::Invalid), stays) {
        (none, None) if none.is_empty() => Ok(()),
        (none, Some(stays)) if none.is_empty() => {
            Err(Failure::new(Exit::InUse, stays, "move it away, or write to another folder with --to"))
        }
        (ids, stays) => {
            let what = [Some(format!("{ids}: no entry could be made")), stays].into_iter().flatten();
            let cure = "what is said above of each says why; the other entries are right";
            Err(Failure::new(Exit::Findings, what.collect::<Vec<_>>().join("; "), cure))
        }
    }
}

/// One draft, judged as the catalog would and written if that is wanted and nothing is there.
fn row(mut draft: Draft, from: &str, to: Option<&Path>) -> Result<Row, ImportError> {
    let file = draft.file_name();
    let mut outcome = match fault_of(&draft.text(from)) {
        Some(why) => {
            draft.remarks.push(Remark::new(draft.line, format!("nothing is written for it: {why}")));
            Outcome::Invalid
        }
        None => Outcome::Printed,
    };
    let text = draft.text(from);
    if let Some(folder) = to.filter(|_| outcome == Outcome::Printed) {
        let path = folder.join(&file);
        let written = fs::create_dir_all(folder)
            .and_then(|()| File::create_new(&path))
            .and_then(|mut f| f.write_all(text.as_bytes()));
        outcome = match written {
            Ok(()) => Outcome::Written,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Outcome::Stays,
            Err(source) => return Err(ImportError::Write { path, source }),
        };
    }
    let file = to.map_or_else(|| file.clone(), |folder| folder.join(&file).display().to_string());
    Ok(Row { id: draft.id, file, text, remarks: draft.remarks, outcome })
}

/// Why the catalog would not take it; what a variable holds is not known here.
fn fault_of(text: &str) -> Option<String> {
    let source = Source { file: "entry", text };
    let first_line = |error: &dyn std::error::Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    match parse_model(source, &|_| Some("/".to_owned())) {
        Err(error) => Some(first_line(error.fault())),
        Ok(model) => Catalog::faults(shipped().0, vec![model]).first().map(|error| first_line(error.fault())),
    }
}

fn for_people(row: &Row) -> String {
    let Row { file, text, .. } = row;
    match row.outcome {
        Outcome::Printed => format!("# ---- {file}\n{text}\n"),
        Outcome::Written => format!("{file}: written\n"),
        Outcome::Stays => format!("{file}: was there already\n"),
        Outcome::Invalid => format!("{file}: not written\n"),
    }
}

#[cfg(test)]
mod tests;
