//! `motorpool key`: access keys, made, listed and revoked in the state directory; a running pool reads them there.
use crate::{
    args::{Key, NewKey, Scope},
    dirs::{self, Dirs},
    exit::{Exit, Failure, chain},
    out::Out,
};
use motorpool_gateway::keys::file::{self, KeyRecord, KeysError};
use serde_json::json;

pub(super) fn perform(dirs: &Dirs, out: Out, command: Key) -> Result<(), Failure> {
    match command {
        Key::New(wanted) => make(dirs, out, wanted),
        Key::List => list(dirs, out),
        Key::Revoke { name } => {
            if !file::remove(&dirs.keys(), &name)? {
                let what = format!("there is no key `{name}`");
                return Err(Failure::new(Exit::NotFound, what, "`motorpool key list` shows those there are"));
            }
            out.data(&json!({ "revoked": name }), || format!("`{name}` opens nothing any more\n"))
        }
    }
}

fn make(dirs: &Dirs, out: Out, wanted: NewKey) -> Result<(), Failure> {
    dirs::make_private(&dirs.state)?;
    let key = file::new_key().map_err(|error| Failure::new(Exit::Failed, error, "check that /dev/urandom is there"))?;
    let NewKey { name, scope, model, concurrent, per_minute } = wanted;
    let scopes = scope.into_iter().map(|scope| match scope {
        Scope::Inference => file::Scope::Inference,
        Scope::Read => file::Scope::Read,
        Scope::Manage => file::Scope::Manage,
    });
    let (scopes, hash) = (scopes.collect(), file::hash_of(&key));
    file::add(&dirs.keys(), KeyRecord { name, hash, scopes, models: model, concurrent, per_minute })?;
    out.data(&json!({ "key": key }), || format!("{key}\n"))
}

fn list(dirs: &Dirs, out: Out) -> Result<(), Failure> {
    let mut keys = file::load(&dirs.keys())?;
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
