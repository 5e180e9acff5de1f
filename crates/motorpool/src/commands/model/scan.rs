//! `motorpool model scan [DIR] [--add]`: models that lie on this machine already.
use super::Shelf;
use crate::{
    exit::{Exit, Failure},
    model::{
        pull::model_of,
        scan::{self, Found, Owner, Passed, Place},
    },
    out,
};
use clap::Args;
use motorpool_vocab::{Bytes, ModelId};
use serde::Serialize;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct Scan {
    /// The folder; without it, the caches of other programs
    pub(crate) dir: Option<PathBuf>,
    /// Enter what is found in the catalog, each by the path of its file
    #[arg(long)]
    pub(crate) add: bool,
}

/// A row.
#[derive(Serialize)]
struct Row<'a> {
    /// Its id in the catalog, when it is there.
    id: Option<String>,
    #[serde(flatten)]
    found: &'a Found,
}

#[derive(Serialize)]
struct Document<'a> {
    models: Vec<Row<'a>>,
    passed: &'a [Passed],
    cut: &'a [Passed],
}

pub(super) fn perform(shelf: &Shelf<'_>, command: &Scan) -> Result<(), Failure> {
    let scan = scan::scan(&places(command.dir.as_deref())?);
    let known = |found: &Found| model_of(&found.file, (&shelf.store, &shelf.settings.catalog));
    let mut ids: Vec<Option<ModelId>> = Vec::new();
    if command.add {
        let all: Vec<_> = scan.models.iter().collect();
        ids.extend(scan::enter(shelf.dirs, &shelf.settings.catalog, &all)?.into_iter().map(Some));
    } else {
        for found in &scan.models {
            ids.push(known(found)?.map(|model| model.id.clone()));
        }
    }
    for Passed { file, why } in scan.passed.iter().filter(|_| command.dir.is_some()) {
        out::say(format_args!("passed over {}: {why}", file.display()));
    }
    scan.say_where_it_was_cut();
    let n_new = ids.iter().filter(|id| id.is_none()).count();
    let rows = scan.models.iter().zip(&ids).map(|(found, id)| Row { id: id.as_ref().map(ToString::to_string), found });
    let document = Document { models: rows.collect(), passed: &scan.passed, cut: &scan.cut };
    shelf.out.data(&document, || for_people(&document))?;
    if n_new > 0 {
        out::say("`motorpool model scan --add` enters them all, `motorpool up FILE` one of them");
    }
    Ok(())
}

/// Where to look.
fn places(dir: Option<&Path>) -> Result<Vec<Place>, Failure> {
    let Some(dir) = dir else { return Ok(scan::caches(&|name| std::env::var(name).ok().filter(|v| !v.is_empty()))) };
    let no_folder = |why: &dyn std::fmt::Display| {
        Failure::new(Exit::NotFound, format_args!("{} cannot be looked into: {why}", dir.display()), "name a folder")
    };
    let root = dir.canonicalize().map_err(|error| no_folder(&error))?;
    std::fs::read_dir(&root).map_err(|error| no_folder(&error))?;
    Ok(vec![Place { owner: Owner::Folder, root }])
}

fn for_people(document: &Document<'_>) -> String {
    if document.models.is_empty() {
        return "no model was found\n".to_owned();
    }
    let cells = |row: &Row<'_>| {
        let found = row.found;
        let files = found.files + usize::from(found.projector.is_some());
        vec![
            found.name.clone(),
            Bytes::new(found.bytes).to_string(),
            files.to_string(),
            found.owner.as_str().to_owned(),
            row.id.clone().unwrap_or_else(|| "-".to_owned()),
            found.file.display().to_string(),
        ]
    };
    let head = ["MODEL", "SIZE", "FILES", "OF", "ID HERE", "FILE"];
    out::table(&head, document.models.iter().map(cells).collect())
}
