//! The file of keys: JSON, 0600, replaced as a whole.
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    fmt::Write as _,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

/// What a key may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Requests to models, and the list of those.
    Inference,
    /// Views of the pool.
    Read,
    /// Everything that changes it; views, too.
    Manage,
}

/// Whether a key could be guessed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strength {
    /// Not in any time.
    #[default]
    Whole,
    /// It was made by hand and has fewer than [`GUESSABLE_BELOW`] characters: it opens to this machine only.
    Short,
}

/// Characters of a key made by hand that is as good as ours.
pub const GUESSABLE_BELOW: usize = 32;
/// The fewest that are taken.
const FEWEST: usize = 8;

/// How strong a key is that somebody made by hand; `None`: it is none. A key has no spaces and 8 visible ASCII characters
/// at least.
pub fn strength_of(key: &str) -> Option<Strength> {
    let is_key = key.len() >= FEWEST && key.bytes().all(|byte| byte.is_ascii_graphic());
    is_key.then_some(if key.len() < GUESSABLE_BELOW { Strength::Short } else { Strength::Whole })
}

/// One key, as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRecord {
    /// Its name for people; none is given twice.
    pub name: String,
    /// SHA-256 of the key, 64 hexadecimal digits.
    pub hash: String,
    /// What it is for.
    pub scopes: Vec<Scope>,
    /// Ids of the models it may use; empty: all.
    #[serde(default)]
    pub models: Vec<String>,
    /// Requests to models at a time.
    #[serde(default)]
    pub concurrent: Option<u32>,
    /// Requests to models in a minute.
    #[serde(default)]
    pub per_minute: Option<u32>,
    /// Whether it could be guessed.
    #[serde(default)]
    pub strength: Strength,
}

/// Why the file of keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// It cannot be read or written.
    #[error("the keys in {} cannot be used", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What it holds is no list of keys.
    #[error("{} holds no list of keys", path.display())]
    Garbled {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong.
        source: serde_json::Error,
    },
    /// There is one of this name.
    #[error("there is a key `{0}` already")]
    Taken(String),
}

/// The keys in `path`; none where there is no file.
pub fn load(path: &Path) -> Result<Vec<KeyRecord>, KeysError> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(source) => return Err(KeysError::File { path: path.to_owned(), source }),
    };
    serde_json::from_slice(&text).map_err(|source| KeysError::Garbled { path: path.to_owned(), source })
}

/// A new key of 256 random bits. It is shown once; `record` gets its hash.
pub fn new_key() -> io::Result<String> {
    let mut bytes = [0; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(format!("mp_{}", hex(&bytes)))
}

/// Adds `record`.
pub fn add(path: &Path, record: KeyRecord) -> Result<(), KeysError> {
    let mut keys = load(path)?;
    if keys.iter().any(|key| key.name == record.name) {
        return Err(KeysError::Taken(record.name));
    }
    keys.push(record);
    store(path, &keys)
}

/// Removes the key called `name`. Whether there was one.
pub fn remove(path: &Path, name: &str) -> Result<bool, KeysError> {
    let mut keys = load(path)?;
    let before = keys.len();
    keys.retain(|key| key.name != name);
    if keys.len() == before {
        return Ok(false);
    }
    store(path, &keys).map(|()| true)
}

fn store(path: &Path, keys: &[KeyRecord]) -> Result<(), KeysError> {
    let text = serde_json::to_vec_pretty(keys).expect("plain values are JSON");
    let beside = path.with_extension("new");
    let written = (|| {
        let _ = fs::remove_file(&beside);
        let mut file = File::options().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&beside, path)
    })();
    written.map_err(|source| KeysError::File { path: path.to_owned(), source })
}

/// SHA-256 as 64 hexadecimal digits.
pub fn hash_of(key: &str) -> String {
    hex(&Sha256::digest(key.as_bytes()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a text takes everything");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn record(name: &str, key: &str) -> KeyRecord {
        let (name, hash) = (name.to_owned(), hash_of(key));
        let (scopes, strength) = (vec![Scope::Inference], Strength::Whole);
        KeyRecord { name, hash, scopes, models: vec![], concurrent: None, per_minute: None, strength }
    }

    #[test]
    fn keys_are_kept_as_hashes_alone_for_us_alone_and_gone_when_revoked() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("keys.json");
        assert_eq!(load(&path).expect("none is no error"), []);
        let key = new_key().expect("random bits");
        assert_ne!(key, new_key().expect("random bits"));
        assert_eq!(key.len(), 3 + 64);
        add(&path, record("a", &key)).expect("writable");
        assert!(matches!(add(&path, record("a", "other")), Err(KeysError::Taken(_))));
        let text = fs::read_to_string(&path).expect("there");
        assert!(!text.contains(&key) && !text.contains(&key[3..]));
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&path).expect("our own"), [record("a", &key)]);
        assert!(remove(&path, "a").expect("writable") && !remove(&path, "a").expect("writable"));
        assert_eq!(load(&path).expect("our own"), []);
    }

    #[test]
    fn what_is_no_list_of_keys_is_named_and_not_taken_for_none() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("keys.json");
        fs::write(&path, "{").expect("writable");
        assert!(matches!(load(&path), Err(KeysError::Garbled { .. })));
    }
}
