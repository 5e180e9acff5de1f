//! [`find`]: files that are named by where they come from become files of this machine, where they are on it.
//!
//! An engine fetches nothing here, and an entry of the catalog has no source on the hub: `motorpool model pull` fetches from
//! there. Whoever used the name before has the file already, in a cache that `motorpool model scan` knows.
use super::{
    Remark,
    draft::{Draft, Projector, Wish},
    flags,
};
use crate::model::{
    here::{Here, Kept},
    hub::{Reference, Unchosen},
};
use std::path::Path;

/// Whether anything of it is named by where it comes from.
pub(super) fn is_needed(draft: &Draft) -> bool {
    let wishes = &draft.wishes;
    wishes.model.is_some() || wishes.file.is_some() || wishes.draft.is_some()
}

/// Puts the files that are here into `draft`; of others, says how they get here.
pub(super) fn find(draft: &mut Draft, here: &Here) {
    let wishes = std::mem::take(&mut draft.wishes);
    if let Some(Wish { line, shown, .. }) = wishes.model.as_ref().filter(|_| draft.source.is_some()) {
        draft.leave(*line, shown, "the file that the model's path names is taken");
    } else if let Some(wish) = &wishes.model {
        let found = if wish.value.starts_with("http") {
            at(draft, wish, here)
        } else {
            model(draft, wish, (wishes.file.as_ref(), here))
        };
        let projector = found.as_ref().and_then(|(_, projector)| projector.clone());
        draft.source = found.map(|(file, _)| file);
        let has_own = draft.keys.iter().any(|(key, _)| *key == "projector");
        if let Some(projector) = projector.filter(|_| !has_own && wishes.projector == Projector::Taken) {
            draft.set("projector", flags::file(&projector));
        }
    }
    if let (None, Some(Wish { line, shown, .. })) = (&wishes.model, &wishes.file) {
        draft.leave(*line, shown, "no repository stands beside it");
    }
    if let Some(wish) = &wishes.draft
        && let Some((file, _)) = model(draft, wish, (None, here))
    {
        draft.set("draft", flags::guessing(&file, wishes.guesses));
    }
}

/// A file, and the projector beside it, as they are written into an entry.
type Files = (String, Option<String>);

fn model(draft: &mut Draft, wish: &Wish, (file, here): (Option<&Wish>, &Here)) -> Option<Files> {
    let Some(reference) = reference(&wish.value, file) else {
        draft.leave(wish.line, &wish.shown, "it is no repository of the hub: ORG/NAME, or ORG/NAME:QUANT");
        return None;
    };
    match here.find(&reference) {
        Ok(Kept { file, projector, .. }) => {
            let files = (written(file)?, projector.as_ref().and_then(written).filter(|path| !path.contains(',')));
            say_where(draft, wish, file);
            Some(files)
        }
        Err(why) => {
            let other = match why {
                Unchosen::Empty => String::new(),
                other => format!(" ({other})"),
            };
            let why = format!(
                "it is not on this machine{other}; `motorpool model pull {reference}` fetches it, then import again"
            );
            draft.leave(wish.line, &wish.shown, &why);
            None
        }
    }
}

fn at(draft: &mut Draft, wish: &Wish, here: &Here) -> Option<Files> {
    if let Some(file) = here.at(&wish.value) {
        say_where(draft, wish, file);
        return Some((written(file)?, None));
    }
    let why = format!("it is not on this machine; `motorpool model pull {}` fetches it, then import again", wish.value);
    draft.leave(wish.line, &wish.shown, &why);
    None
}

fn say_where(draft: &mut Draft, wish: &Wish, file: &Path) {
    let text = format!("`{}` is on this machine already: {}", wish.shown, file.display());
    draft.remarks.push(Remark::new(wish.line, text));
}

/// As llama.cpp reads it: a file that is named counts more than a quantisation, and `latest` is what nobody names.
fn reference(value: &str, file: Option<&Wish>) -> Option<Reference> {
    let parsed = Reference::parse(value)?;
    let wanted = parsed.wanted.filter(|wanted| !wanted.eq_ignore_ascii_case("latest"));
    let text = match file.map(|file| &file.value).or(wanted.as_ref()) {
        Some(wanted) => format!("{}:{wanted}", parsed.repo),
        None => parsed.repo,
    };
    Reference::parse(&text)
}

/// A path in which nothing stands for a variable.
fn written(path: impl AsRef<Path>) -> Option<String> {
    path.as_ref().to_str().map(|path| path.replace("${", "$${"))
}
