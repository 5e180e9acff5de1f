//! [`Notebook`]: what loads taught, kept in the state directory from one supervisor to the next (capacity.md §5).
//!
//! ```text
//!  Checker ── lessons(about) ──┐                                   ┌── file.rs: SQLite, WAL
//!  loop ───── learn(…) ────────┼─► one thread that may block: Book ┤
//!  end ────── flush() ─────────┘   in order of arrival             └── row.rs: a lesson as text
//! ```
//!
//! * Nothing here can keep the pool from starting: a file that is damaged is set aside and begun anew, one that cannot
//!   be used is done without. What is lost is an estimate.
//! * What was learned before a question is in its answer.
//! * At most [`MOST_ROWS`] lessons are kept; the ones that were not used for longest go.
//! * What a death by memory said holds for an hour: who had the memory then is not known, and where it keeps a plan from
//!   being tried, nothing else could ever take it back.
mod book;
mod file;
mod row;

use book::Book;
use file::File;
use motorpool_pool::{Experience, Lessons};
use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A disk that takes longer is done without.
const PATIENCE: Duration = Duration::from_secs(2);
/// Lessons that are kept.
const MOST_ROWS: usize = 1024;

/// Speaks with the thread that has the lessons. When the last one is gone, it writes what it was told and ends.
#[derive(Clone, Debug)]
pub struct Notebook {
    thread: mpsc::Sender<Message>,
}

enum Message {
    Ask { about: Arc<str>, answer: mpsc::Sender<Lessons> },
    Learn { about: Arc<str>, experience: Experience },
    Flush { done: mpsc::Sender<()> },
}

/// Whose file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Ours,
    /// Somebody else's: only looked at.
    Theirs,
}

impl Notebook {
    /// The one of this state directory, which is ours. Does not wait for the disk.
    pub fn open(state: &Path) -> Self {
        Self::begin(state, Access::Ours)
    }

    /// The one of a state directory that may be somebody else's: nothing in it is changed.
    pub fn look_at(state: &Path) -> Self {
        Self::begin(state, Access::Theirs)
    }

    fn begin(state: &Path, access: Access) -> Self {
        let path = state.join("learned.sqlite");
        let (thread, messages) = mpsc::channel();
        let work = move || {
            let mut book = match access {
                Access::Ours => Book::new(File::open_or_anew(&path)),
                Access::Theirs => Book::new(File::look_at(&path)),
            };
            for message in messages {
                answer(&mut book, message);
            }
        };
        if let Err(error) = thread::Builder::new().name("learned".into()).spawn(work) {
            tracing::warn!(%error, "nothing is learned from loads: there is no thread to keep it");
        }
        Self { thread }
    }

    /// What earlier loads taught of it. Blocks, at most for 2 s.
    pub fn lessons(&self, about: &Arc<str>) -> Lessons {
        let (answer, answered) = mpsc::channel();
        let nothing = || Lessons { about: Arc::clone(about), ..Lessons::default() };
        let asked = self.thread.send(Message::Ask { about: Arc::clone(about), answer });
        asked.ok().and_then(|()| answered.recv_timeout(PATIENCE).ok()).unwrap_or_else(nothing)
    }

    /// Takes what a child taught.
    pub(crate) fn learn(&self, about: Arc<str>, experience: Experience) {
        // Without a thread nothing is kept, as was said.
        let _ = self.thread.send(Message::Learn { about, experience });
    }

    /// Everything that was learned so far is in the file, or never will be. Blocks, at most for 2 s.
    pub(crate) fn flush(&self) {
        let (done, flushed) = mpsc::channel();
        if self.thread.send(Message::Flush { done }).is_ok() {
            let _ = flushed.recv_timeout(PATIENCE);
        }
    }
}

/// Nobody may wait for the answer any more.
fn answer(book: &mut Book, message: Message) {
    match message {
        Message::Ask { about, answer } => drop(answer.send(book.lessons(&about, today()))),
        Message::Learn { about, experience } => book.learn(&about, &experience, today()),
        Message::Flush { done } => drop(done.send(())),
    }
}

/// Seconds since the epoch.
fn today() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
