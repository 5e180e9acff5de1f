//! Access keys: who holds one may do what its scopes say, as often as its limits say.
//!
//! Only the SHA-256 of a key is kept, in a file of ours that `motorpool key` writes and `Keyring` reads again when it
//! changes: a key that was revoked opens nothing a second later. Hashes are compared whole, whatever they begin with.
//!
//! * **K1** as soon as there is one key, every request over an address needs one; where other machines reach it, even
//!   before, unless the operator said otherwise. The control socket needs none. A file that cannot be read opens nothing.
//! * **K2** what one key may have at a time and in a minute is counted for it alone.
//! * **K3** an address that showed too many wrong keys is not answered what another one is worth for a while.
//! * **K4** a key that could be guessed opens nothing to another machine, nor to whoever came through a proxy.
mod counts;
pub mod file;

use crate::{
    errors::Failure,
    need::{Need, need_of},
    origin::came_by_proxy,
};
use counts::{Counts, Wrong};
use file::{KeyRecord, Scope, Strength};
use http::{HeaderMap, Method, header};
use motorpool_catalog::Model;
use std::{
    collections::HashMap,
    fs,
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

pub(crate) use counts::Place;

/// The file is looked at again after so long.
const FRESH_FOR: Duration = Duration::from_secs(1);

/// All keys.
#[derive(Debug)]
pub(crate) struct Keyring {
    /// `None`: there are no keys here, and never will be.
    path: Option<PathBuf>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    looked_at: Option<Instant>,
    stamp: Option<(SystemTime, u64)>,
    keys: Keys,
    counts: HashMap<String, Arc<Counts>>,
    wrong: Wrong,
}

#[derive(Debug, Default)]
enum Keys {
    #[default]
    None,
    Some(Vec<Arc<KeyRecord>>),
    /// The file is there and cannot be used.
    Unknown,
}

/// When a key is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysNeeded {
    /// As soon as there is one.
    OnceThereAre,
    /// Also while there is none: then nobody gets in.
    Always,
}

/// Who comes in over an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor {
    pub(crate) peer: IpAddr,
    pub(crate) keys: KeysNeeded,
}

/// Whose key a request came with.
#[derive(Clone, Debug)]
pub(crate) struct Rights {
    key: Arc<KeyRecord>,
    counts: Arc<Counts>,
}

impl Keyring {
    pub(crate) fn new(path: Option<PathBuf>) -> Self {
        Self { path, inner: Mutex::default() }
    }

    /// Whose request this is at `now`; `None`: there are no keys, and none is needed.
    pub(crate) fn admit(
        &self,
        headers: &HeaderMap,
        Visitor { peer, keys: needed }: Visitor,
        now: Instant,
    ) -> Result<Option<Rights>, Failure> {
        let without = match needed {
            KeysNeeded::OnceThereAre => Ok(None),
            KeysNeeded::Always => Err(Failure::InvalidKey("this address needs a key, and this server has none yet")),
        };
        let Some(path) = &self.path else { return without };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.refresh(path, now);
        let Inner { keys, counts, wrong, .. } = &mut *inner;
        let keys = match keys {
            Keys::None => return without,
            Keys::Unknown => return Err(Failure::InvalidKey("the keys of this server cannot be read")),
            Keys::Some(keys) => keys,
        };
        wrong.check(peer, now)?;
        let shown = shown_key(headers)?
            .ok_or(Failure::InvalidKey("this server needs a key: `Authorization: Bearer`, `x-api-key` or `api-key`"))?;
        let hash = file::hash_of(shown);
        // Every one is compared, so that how long it takes tells nothing.
        let same = |found: Option<Arc<KeyRecord>>, key: &Arc<KeyRecord>| {
            if is_same(&key.hash, &hash) { Some(Arc::clone(key)) } else { found }
        };
        let found = keys.iter().fold(None, same);
        let is_far = || !peer.is_loopback() || came_by_proxy(headers);
        let found = found.filter(|key| key.strength == Strength::Whole || !is_far());
        if let Some(key) = found {
            let counts = Arc::clone(counts.entry(key.hash.clone()).or_default());
            Ok(Some(Rights { key, counts }))
        } else {
            wrong.count(peer, now);
            Err(Failure::InvalidKey("this key is not one of this server's"))
        }
    }
}

impl Inner {
    fn refresh(&mut self, path: &std::path::Path, now: Instant) {
        if self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < FRESH_FOR) {
            return;
        }
        self.looked_at = Some(now);
        let stamp = fs::metadata(path).ok().and_then(|found| Some((found.modified().ok()?, found.len())));
        if stamp.is_some() && stamp == self.stamp {
            return;
        }
        self.stamp = stamp;
        self.keys = match file::load(path) {
            Ok(keys) if keys.is_empty() => Keys::None,
            Ok(keys) => Keys::Some(keys.into_iter().map(Arc::new).collect()),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "nobody is let in");
                // What helps it may leave its time and length as they are.
                self.stamp = None;
                Keys::Unknown
            }
        };
    }
}

impl Rights {
    /// Whether this may be asked at all.
    pub(crate) fn check(&self, method: &Method, path: &str, headers: &HeaderMap) -> Result<(), Failure> {
        let has = |scope| self.key.scopes.contains(&scope);
        let sees = self.sees();
        let may = match need_of(method, path) {
            Need::Inference => has(Scope::Inference),
            Need::List => has(Scope::Inference) || sees,
            Need::See => sees,
            Need::Change => has(Scope::Manage),
        };
        let urgent = headers.contains_key("x-motorpool-priority") && !has(Scope::Manage);
        match (may, urgent) {
            (true, false) => Ok(()),
            (false, _) => Err(Failure::NotAllowed("this key has no right to that")),
            (true, true) => Err(Failure::NotAllowed("`X-Motorpool-Priority` needs a key with the scope `manage`")),
        }
    }

    /// Whether it may look into the pool.
    pub(crate) fn sees(&self) -> bool {
        self.key.scopes.iter().any(|scope| matches!(scope, Scope::Read | Scope::Manage))
    }

    /// Whether it may change everything.
    pub(crate) fn manages(&self) -> bool {
        self.key.scopes.contains(&Scope::Manage)
    }

    /// Whether it is for some models only.
    pub(crate) fn is_for_some(&self) -> bool {
        !self.key.models.is_empty()
    }

    /// Its name.
    pub(crate) fn name(&self) -> Arc<str> {
        self.key.name.as_str().into()
    }

    /// How many of its requests may wait at a time, if that was said.
    pub(crate) fn most_waiting(&self) -> Option<u32> {
        self.key.waiting
    }

    /// Whether the model is one of its own.
    pub(crate) fn may_use(&self, model: &Model) -> bool {
        self.key.models.is_empty() || self.key.models.iter().any(|id| id == model.id.as_str())
    }

    /// Whether a model that goes by these names is one of its own.
    pub(crate) fn may_use_any<S: AsRef<str>>(&self, names: &[S]) -> bool {
        let is = |id: &String| names.iter().any(|name| name.as_ref() == id);
        self.key.models.is_empty() || self.key.models.iter().any(is)
    }

    /// K2. Given back when its last clone is dropped.
    pub(crate) fn place(&self, now: Instant) -> Result<Place, Failure> {
        Counts::place(&self.counts, (self.key.concurrent, self.key.per_minute), now)
    }
}

/// The key of a request; two that are not the same are none.
fn shown_key(headers: &HeaderMap) -> Result<Option<&str>, Failure> {
    let bearer = headers.get_all(header::AUTHORIZATION).iter().filter_map(|value| {
        let (scheme, key) = value.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| key.trim())
    });
    let named = ["x-api-key", "api-key"].into_iter().flat_map(|name| headers.get_all(name));
    let mut keys = bearer.chain(named.filter_map(|value| value.to_str().ok()));
    let first = keys.next();
    if keys.any(|other| Some(other) != first) {
        return Err(Failure::InvalidKey("this request shows two keys"));
    }
    Ok(first)
}

/// In the same time wherever they differ.
fn is_same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
}
