//! [`Journal`]: what is ours on other people's servers, written down so that the next start gives it back after a crash.
//!
//! One JSON object a line, the whole file written anew beside the old one and put in its place, so that a kill at any
//! moment leaves one or the other. A line that cannot be read is passed over: what it named stays where it is.
//!
//! ```text
//!   want(all) ─► the newest text ─► one writer at a time, on a thread that may block ─► attempted
//!       never waits                       texts that were overtaken are skipped             │
//!   written() ──────────────────────────────────────────────────────────────────────────────┴─► those who must not go on before
//! ```
use motorpool_residency::{By, Owned};
use motorpool_vocab::ServerUrl;
use serde_json::{Value, json};
use std::{
    fs, io,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{runtime::Handle, sync::watch};

/// A file, and what it is to hold.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    path: Option<PathBuf>,
    state: Mutex<State>,
    /// The newest version that was written, or could not be.
    attempted: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    text: String,
    /// Grows with each text that is to be written.
    version: u64,
    is_writing: bool,
    trouble: Option<String>,
}

impl Journal {
    /// The file at `path`, with what an earlier run left in it.
    pub(crate) fn open(path: Option<PathBuf>) -> io::Result<(Self, Vec<Owned>)> {
        let text = match path.as_deref().map(fs::read) {
            None => String::new(),
            // What is not UTF-8 spoils its own line only.
            Some(Ok(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            Some(Err(error)) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Some(Err(error)) => return Err(error),
        };
        let left = text.lines().filter_map(|line| read(&serde_json::from_str(line).ok()?)).collect();
        let state = Mutex::new(State { text, ..State::default() });
        Ok((Self { path, state, attempted: watch::Sender::default() }, left))
    }

    /// From now on it is to hold `all`; when that changes anything, it is written soon. A disk that takes nothing costs no
    /// request anything, and is tried again the next time.
    pub(crate) fn want<'a>(self: &Arc<Self>, all: impl Iterator<Item = &'a Owned>) {
        if self.path.is_none() {
            return;
        }
        let mut text = String::new();
        for owned in all {
            text.push_str(&line(owned).to_string());
            text.push('\n');
        }
        let mut state = self.state();
        if text == state.text && state.trouble.is_none() {
            return;
        }
        state.text = text;
        state.version += 1;
        self.begin(&mut state);
    }

    /// Has somebody write what is wanted. Who does already looks again before it ends.
    fn begin(self: &Arc<Self>, state: &mut State) {
        let (Some(path), Ok(runtime)) = (self.path.clone(), Handle::try_current()) else { return };
        if !state.is_writing && *self.attempted.borrow() != state.version {
            state.is_writing = true;
            let this = Arc::clone(self);
            runtime.spawn_blocking(move || this.catch_up(&path));
        }
    }

    /// Waits until what is wanted now is on the disk, or cannot be written.
    pub(crate) async fn written(self: &Arc<Self>) {
        let version = {
            let mut state = self.state();
            self.begin(&mut state);
            state.version
        };
        // The sender is ours: it does not go.
        let _ = self.attempted.subscribe().wait_for(|attempted| *attempted >= version).await;
    }

    /// Why the last writing failed.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state().trouble.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // What a panic left is still a text.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes what is newest until nothing newer is wanted.
    fn catch_up(&self, path: &Path) {
        while let Some((text, version)) = self.next() {
            let done = replace(path, &text);
            if let Some(why) = self.on_attempt(version, path, done) {
                tracing::warn!("what is ours on external servers cannot be written down, a crash would lose it: {why}");
            }
        }
    }

    fn next(&self) -> Option<(String, u64)> {
        let mut state = self.state();
        if *self.attempted.borrow() == state.version {
            state.is_writing = false;
            return None;
        }
        Some((state.text.clone(), state.version))
    }

    /// The first failure in a row is answered, to be told.
    fn on_attempt(&self, version: u64, path: &Path, done: io::Result<()>) -> Option<String> {
        let why = done.err().map(|error| format!("{}: {error}", path.display()));
        let before = std::mem::replace(&mut self.state().trouble, why.clone());
        self.attempted.send_replace(version);
        why.filter(|_| before.is_none())
    }
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    file.write_all(text.as_bytes())?;
    // Not on disk before it is in its place, a power cut would leave an empty one.
    file.sync_data()?;
    fs::rename(&beside, path)
}

fn line(owned: &Owned) -> Value {
    let by = match owned.by {
        By::Us => "us",
        By::Worker => "worker",
    };
    json!({
        "target": owned.key.as_str(), "model": owned.model, "instance": owned.instance, "since": owned.since, "by": by,
    })
}

fn read(line: &Value) -> Option<Owned> {
    Some(Owned {
        key: line.get("target")?.as_str()?.parse::<ServerUrl>().ok()?.key(),
        model: line.get("model")?.as_str()?.to_owned(),
        instance: line.get("instance")?.as_str().map(str::to_owned),
        since: line.get("since")?.as_u64()?,
        by: match line.get("by")?.as_str()? {
            "us" => By::Us,
            "worker" => By::Worker,
            _ => return None,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(model: &str, instance: Option<&str>) -> Owned {
        let key = "http://h:1".parse::<ServerUrl>().expect("an address").key();
        Owned { key, model: model.into(), instance: instance.map(str::to_owned), since: 7, by: By::Worker }
    }

    fn open(path: &Path) -> (Arc<Journal>, Vec<Owned>) {
        let (journal, left) = Journal::open(Some(path.to_owned())).expect("readable, or nothing there");
        (Arc::new(journal), left)
    }

    async fn write(journal: &Arc<Journal>, all: &[Owned]) {
        journal.want(all.iter());
        journal.written().await;
    }

    #[tokio::test]
    async fn what_is_written_is_read_again_and_half_a_line_costs_only_itself() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("residency.jsonl");
        let (journal, left) = open(&path);
        assert!(left.is_empty());
        let all = [owned("a \"quoted\"\nname", Some("i")), owned("b", None)];
        write(&journal, &all).await;
        assert_eq!((open(&path).1, journal.trouble()), (all.to_vec(), None));
        let text = fs::read_to_string(&path).expect("readable");
        fs::write(&path, format!("{{\"target\":\n[]\n{text}{{\"tar")).expect("written");
        assert_eq!(open(&path).1, all);
        let mut bytes = b"{\"target\": \"\xff\"}\n".to_vec();
        bytes.extend(text.as_bytes());
        fs::write(&path, bytes).expect("written");
        assert_eq!(open(&path).1, all, "not UTF-8, and readable");
        write(&journal, &[]).await;
        assert_eq!(fs::read_to_string(&path).expect("readable"), "");
    }

    #[tokio::test]
    async fn the_newest_of_many_is_what_stays() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("residency.jsonl");
        let (journal, _) = open(&path);
        for n in 0..100 {
            journal.want([owned(&n.to_string(), None)].iter());
        }
        journal.written().await;
        assert_eq!(open(&path).1, [owned("99", None)]);
    }

    #[tokio::test]
    async fn a_disk_that_takes_nothing_is_told_once_and_tried_again() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("later/residency.jsonl");
        let (journal, _) = open(&path);
        let all = [owned("a", None)];
        write(&journal, &all).await;
        assert!(journal.trouble().is_some_and(|why| why.contains("residency.jsonl")));
        let again = journal.on_attempt(1, &path, Err(io::Error::other("full")));
        assert!(again.is_none(), "it was told: {again:?}");
        fs::create_dir(folder.path().join("later")).expect("a folder");
        write(&journal, &all).await;
        assert_eq!((journal.trouble(), open(&path).1), (None, all.to_vec()));
        assert!(journal.on_attempt(2, &path, Err(io::Error::other("full"))).is_some(), "it is news again");
    }
}
