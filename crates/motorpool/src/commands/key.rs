//! `motorpool key`: access keys, made, listed and revoked in the file of `[keys]`, or in the state directory; a running pool reads them there.
use crate::{
    args::{Key, NewKey, Scope},
    dirs::{self, Dirs},
    exit::{Exit, Failure, chain},
    out::Out,
    settings::Settings,
};
use motorpool_gateway::keys::file::{self, KeyRecord, KeysError, Strength};
use serde_json::json;
use std::{
    io::{self, BufRead as _, Read as _},
    path::Path,
};

pub(super) fn perform(dirs: &Dirs, out: Out, (config, command): (Option<&Path>, Key)) -> Result<(), Failure> {
    // A key must be revocable whatever is wrong with a model's file.
    let path = dirs.keys(&Settings::configuration(dirs, config)?);
    match command {
        Key::New(wanted) => make((dirs, &path), out, wanted),
        Key::List => list(&path, out),
        Key::Revoke { name } => {
            if !file::remove(&path, &name)? {
                let what = format!("there is no key `{name}`");
                return Err(Failure::new(Exit::NotFound, what, "`motorpool key list` shows those there are"));
            }
            out.data(&json!({ "revoked": name }), || format!("`{name}` opens nothing any more\n"))
        }
    }
}

fn make((dirs, path): (&Dirs, &Path), out: Out, wanted: NewKey) -> Result<(), Failure> {
    dirs::make_private(&dirs.state)?;
    let NewKey { name, scope, model, concurrent, per_minute, waiting, own } = wanted;
    if !model.is_empty() && scope.iter().any(|scope| !matches!(scope, Scope::Inference)) {
        let what = "a key that sees or manages the pool is for all models";
        return Err(Failure::new(Exit::Usage, what, "leave --model out, or the scopes `read` and `manage`"));
    }
    let (key, strength) = if own { read_own()? } else { (made()?, Strength::Whole) };
    let scopes = scope.into_iter().map(|scope| match scope {
        Scope::Inference => file::Scope::Inference,
        Scope::Read => file::Scope::Read,
        Scope::Manage => file::Scope::Manage,
    });
    let (scopes, hash) = (scopes.collect(), file::hash_of(&key));
    file::add(path, KeyRecord { name, hash, scopes, models: model, concurrent, per_minute, waiting, strength })?;
    out.data(&json!({ "key": key }), || format!("{key}\n"))
}

fn made() -> Result<String, Failure> {
    file::new_key().map_err(|error| Failure::new(Exit::Failed, error, "check that /dev/urandom is there"))
}

/// One that somebody made by hand.
fn read_own() -> Result<(String, Strength), Failure> {
    let mut line = String::new();
    let read = io::stdin().lock().take(4096).read_line(&mut line);
    read.map_err(|error| Failure::new(Exit::Usage, error, "write the key to standard input, as one line"))?;
    let key = line.trim_end();
    let strength = file::strength_of(key).ok_or_else(|| {
        let what = "what came by standard input is no key";
        Failure::new(Exit::Usage, what, "write 8 visible ASCII characters or more without spaces, as one line")
    })?;
    Ok((key.to_owned(), strength))
}

fn list(path: &Path, out: Out) -> Result<(), Failure> {
    let mut keys = file::load(path)?;
    // A hash helps nobody but who wants to guess.
    for key in &mut keys {
        key.hash.truncate(8);
    }
    out.data(&json!({ "keys": keys }), || {
        let line = |key: &KeyRecord| {
            let scopes = key.scopes.iter().map(|scope| format!("{scope:?}").to_lowercase());
            let of = if key.models.is_empty() { "all models".to_owned() } else { key.models.join(", ") };
            format!("{}  {}  {}  {of}\n", key.hash, key.name, scopes.collect::<Vec<_>>().join(","))
        };
        keys.iter().map(line).collect()
    })
}

impl From<KeysError> for Failure {
    fn from(error: KeysError) -> Self {
        let what = chain(&error);
        match error {
            KeysError::Taken(_) => Self::new(Exit::Usage, what, "choose another name, or revoke that one first"),
            KeysError::Garbled { .. } => {
                Self::new(Exit::Config, what, "correct it, or remove it: then there are no keys")
            }
            KeysError::File { .. } => Self::new(Exit::Denied, what, "make the state directory writable for you"),
        }
    }
}
