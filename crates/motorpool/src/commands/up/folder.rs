//! `up DIR`, and what lies on this machine already when a model is about to be fetched.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure},
    model::scan::{self, Found, Owner, Passed, Place},
    out,
    settings::Settings,
};
use motorpool_catalog::Capability;
use motorpool_vocab::{Bytes, ModelId};
use std::path::Path;

/// Models of other programs that are named.
const OFFERED: usize = 5;

/// Enters all models of a folder; the one that is asked, and the others.
pub(super) fn enter(dirs: &Dirs, settings: &Settings, dir: &Path) -> Result<(ModelId, Vec<ModelId>), Failure> {
    let root = dir
        .canonicalize()
        .map_err(|error| Failure::new(Exit::NotFound, format_args!("{}: {error}", dir.display()), "check the path"))?;
    let scan = scan::scan(&[Place { owner: Owner::Folder, root }]);
    for Passed { file, why } in &scan.passed {
        out::say(format_args!("passed over {}: {why}", file.display()));
    }
    scan.say_where_it_was_cut();
    let ids = scan::enter(dirs, &settings.catalog, &scan.models.iter().collect::<Vec<_>>())?;
    for (found, id) in scan.models.iter().zip(&ids) {
        out::say(format_args!("found   {id}  {} ({})", found.file.display(), Bytes::new(found.bytes)));
    }
    let default = settings.config.defaults.model.as_deref();
    let asked = pick(&scan.models, &ids, default).cloned().ok_or_else(|| {
        let what = format!("there is no model in {}", dir.display());
        Failure::new(Exit::NotFound, what, "name a folder with GGUF files, or one of its files")
    })?;
    let others = ids.into_iter().filter(|id| *id != asked).collect();
    Ok((asked, others))
}

/// The default model when it is among them, else the first that chats, else the first.
fn pick<'a>(models: &[Found], ids: &'a [ModelId], default: Option<&str>) -> Option<&'a ModelId> {
    let is_default = |id: &&ModelId| default == Some(id.as_str());
    let chats = || models.iter().position(|found| found.capability == Capability::Chat).and_then(|at| ids.get(at));
    ids.iter().find(is_default).or_else(chats).or_else(|| ids.first())
}

/// Says what lies in other programs' caches; nothing of it is entered.
pub(super) fn offer() {
    let places = scan::caches(&|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let scan = scan::scan(&places);
    for found in scan.models.iter().take(OFFERED) {
        let (size, owner) = (Bytes::new(found.bytes), found.owner.as_str());
        out::say(format_args!(
            "        here already: {} ({size}, of {owner}): `motorpool up '{}'`",
            found.name,
            found.file.display()
        ));
    }
    match scan.models.len().saturating_sub(OFFERED) {
        0 => {}
        n => out::say(format_args!("        and {n} more: `motorpool model scan` shows all, `--add` enters them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_chats_is_asked_unless_the_default_model_is_there() {
        let found = |capability| Found {
            name: String::new(),
            owner: Owner::Folder,
            file: "/m".into(),
            files: 1,
            bytes: 0,
            projector: None,
            aliases: vec![],
            sha256: None,
            capability,
            hub: None,
        };
        let models = [Capability::Embeddings, Capability::Chat, Capability::Chat].map(found);
        let ids = ["a", "b", "c"].map(|id| ModelId::new(id).expect("an id"));
        let picked = |models: &[Found], default| pick(models, &ids[..models.len()], default).map(ModelId::as_str);
        assert_eq!(picked(&models, None), Some("b"));
        assert_eq!(picked(&models, Some("c")), Some("c"));
        assert_eq!(picked(&models, Some("x")), Some("b"));
        assert_eq!(picked(&models[..1], None), Some("a"));
        assert_eq!(picked(&[], None), None);
    }
}
