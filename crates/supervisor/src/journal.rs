//! The journal: which engines may be running, written down before they can.
//!
//! One JSON object a line in `<state>/journal.jsonl`, each with the version `v`:
//!
//! ```text
//! {"v":1,"record":"next","spawn":8}                    the first number that was never given out
//! {"v":1,"record":"intent","spawn":8,"nonce":…,"boot":…,"executable":…,"key":…,"socket":…,"group":…,
//!  "claim":…}
//! {"v":1,"record":"born","spawn":8,"keeper":{"pid":…,"start_time":…},"engine":{…}}        synced to the disk
//! {"v":1,"record":"gone","spawn":8}
//! ```
//!
//! An intent reaches the kernel before the keeper is started, `born` the disk before the engine is let go, `gone`
//! comes after the last process is reaped. So a supervisor that was killed at any point left a record of whatever
//! it left running. A torn last line is what a crash leaves, and is ignored; another line that cannot be read is
//! skipped with a warning. Opening compacts: what is gone is left out.
//!
//! A disk that is full refuses an intent, and with it the start. What was not written, or only half, is not appended
//! to: the next record writes the journal anew from what is known.
use crate::protocol::ProcessId;
use motorpool_vocab::{Claim, Spawn};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

const VERSION: u32 = 1;
/// Records after which a running journal is compacted too.
const MAX_RECORDS: usize = 4096;

/// Why there is no journal.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read or written.
    #[error("cannot use the journal {}", path.display())]
    Unusable {
        /// The journal.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A newer version of this program wrote it, and may have left engines that this one cannot find.
    #[error("the journal {} has version {version}, this program knows {VERSION}", path.display())]
    Newer {
        /// The journal.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
}

#[derive(Debug, Serialize, Deserialize)]
struct Line {
    v: u32,
    #[serde(flatten)]
    record: Record,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "lowercase")]
enum Record {
    Next { spawn: u64 },
    Intent(Intent),
    Born { spawn: u64, keeper: ProcessId, engine: ProcessId },
    Gone { spawn: u64 },
}

/// What will be started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Intent {
    pub(crate) spawn: u64,
    /// The mark of its tree.
    pub(crate) nonce: String,
    /// The boot that its process ids belong to.
    pub(crate) boot: String,
    pub(crate) executable: String,
    pub(crate) key: String,
    pub(crate) socket: Option<String>,
    /// The control group that its keeper was to make.
    #[serde(default)]
    pub(crate) group: Option<String>,
    pub(crate) claim: Charge,
}

/// What it was charged, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Charge {
    pub(crate) devices: BTreeMap<String, u64>,
    pub(crate) ram: u64,
}

impl From<&Claim> for Charge {
    fn from(claim: &Claim) -> Self {
        let devices = claim.device.iter().map(|(id, bytes)| (id.to_string(), bytes.get())).collect();
        Self { devices, ram: claim.ram_private.get() }
    }
}

/// An engine of which no end is written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unsettled {
    pub(crate) intent: Intent,
    /// Its keeper and its first process, once they were there.
    pub(crate) born: Option<(ProcessId, ProcessId)>,
}

/// The open journal. Writing blocks for as long as the disk takes.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    n_records: usize,
    /// The last write failed: the file may end in half a line, and lacks what happened.
    is_behind: bool,
    next: u64,
    unsettled: BTreeMap<u64, Unsettled>,
}

impl Journal {
    /// Reads and compacts `path`, or begins it.
    pub(crate) fn open(path: &Path) -> Result<Self, JournalError> {
        let text = match fs::read(path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(source) => return Err(JournalError::Unusable { path: path.to_owned(), source }),
        };
        let (next, unsettled) = replay(&text, path)?;
        let file = rewrite(path, next, &unsettled)
            .map_err(|source| JournalError::Unusable { path: path.to_owned(), source })?;
        let inner = Inner { file, n_records: unsettled.len(), is_behind: false, next, unsettled };
        Ok(Self { path: path.to_owned(), inner: Mutex::new(inner) })
    }

    /// The first number that was never given out.
    pub(crate) fn next_spawn(&self) -> Spawn {
        Spawn(self.inner.lock().next)
    }

    /// Engines of which no end is written down.
    pub(crate) fn unsettled(&self) -> Vec<Unsettled> {
        self.inner.lock().unsettled.values().cloned().collect()
    }

    /// Before anything is started.
    pub(crate) fn intent(&self, intent: Intent) -> Result<(), JournalError> {
        self.write(Record::Intent(intent))
    }

    /// Before the engine is let go.
    pub(crate) fn born(&self, spawn: Spawn, keeper: ProcessId, engine: ProcessId) -> Result<(), JournalError> {
        self.write(Record::Born { spawn: spawn.0, keeper, engine })?;
        // Waited for outside the lock. A journal that is written anew meanwhile is synced by whoever does that.
        let file = self.inner.lock().file.try_clone();
        file.and_then(|file| file.sync_data()).map_err(|source| self.unusable(source))
    }

    /// After nothing of it is left.
    pub(crate) fn gone(&self, spawn: Spawn) -> Result<(), JournalError> {
        self.write(Record::Gone { spawn: spawn.0 })
    }

    pub(crate) fn unusable(&self, source: io::Error) -> JournalError {
        JournalError::Unusable { path: self.path.clone(), source }
    }

    fn write(&self, record: Record) -> Result<(), JournalError> {
        let mut inner = self.inner.lock();
        let written = inner.write(record, &self.path);
        inner.is_behind = written.is_err();
        written.map_err(|source| self.unusable(source))
    }
}

impl Inner {
    fn write(&mut self, record: Record, path: &Path) -> io::Result<()> {
        self.n_records += 1;
        if self.is_behind || self.n_records > MAX_RECORDS {
            return self.write_anew(record, path);
        }
        // One write, so that a crash tears at most the last line.
        let written = self.file.write_all(&line_of(&record)?);
        // An end is one whether it is written down or not; a beginning that is not is none.
        if written.is_ok() || matches!(record, Record::Gone { .. }) {
            self.apply(record);
        }
        written
    }

    /// With `record`, which is known afterwards only if it was written, but for an end.
    fn write_anew(&mut self, record: Record, path: &Path) -> io::Result<()> {
        let before = (self.next, self.unsettled.clone());
        let is_end = matches!(record, Record::Gone { .. });
        self.apply(record);
        match rewrite(path, self.next, &self.unsettled) {
            Ok(file) => {
                (self.file, self.n_records) = (file, self.unsettled.len());
                Ok(())
            }
            Err(error) => {
                if !is_end {
                    (self.next, self.unsettled) = before;
                }
                Err(error)
            }
        }
    }

    fn apply(&mut self, record: Record) {
        apply(record, &mut self.next, &mut self.unsettled);
    }
}

fn apply(record: Record, next: &mut u64, unsettled: &mut BTreeMap<u64, Unsettled>) {
    let after = match &record {
        Record::Next { spawn } => *spawn,
        Record::Intent(Intent { spawn, .. }) | Record::Born { spawn, .. } | Record::Gone { spawn } => {
            spawn.saturating_add(1)
        }
    };
    *next = after.max(*next);
    match record {
        Record::Next { .. } => {}
        Record::Intent(intent) => drop(unsettled.insert(intent.spawn, Unsettled { intent, born: None })),
        Record::Born { spawn, keeper, engine } => {
            if let Some(open) = unsettled.get_mut(&spawn) {
                open.born = Some((keeper, engine));
            }
        }
        Record::Gone { spawn } => drop(unsettled.remove(&spawn)),
    }
}

fn replay(text: &str, path: &Path) -> Result<(u64, BTreeMap<u64, Unsettled>), JournalError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    let (mut next, mut unsettled) = (1, BTreeMap::new());
    // A line without its newline is torn, even where it happens to be JSON (`"spawn":1` of `"spawn":12`).
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    for (n, line) in whole.lines().enumerate() {
        match serde_json::from_str::<Versioned>(line) {
            Ok(Versioned { v }) if v > VERSION => {
                return Err(JournalError::Newer { path: path.to_owned(), version: v });
            }
            _ => {}
        }
        match serde_json::from_str::<Line>(line) {
            Ok(line) => apply(line.record, &mut next, &mut unsettled),
            Err(error) => tracing::warn!(line = n + 1, %error, "a line of the journal cannot be read"),
        }
    }
    Ok((next, unsettled))
}

/// Writes a new journal beside the old one and puts it in its place; either is whole at any time.
fn rewrite(path: &Path, next: u64, unsettled: &BTreeMap<u64, Unsettled>) -> io::Result<File> {
    let fresh = path.with_extension("new");
    let _ = fs::remove_file(&fresh);
    // Half a new one must not keep a full disk full.
    put_in_place(&fresh, path, next, unsettled).inspect_err(|_| drop(fs::remove_file(&fresh)))
}

fn put_in_place(fresh: &Path, path: &Path, next: u64, unsettled: &BTreeMap<u64, Unsettled>) -> io::Result<File> {
    let mut file = OpenOptions::new().create_new(true).append(true).mode(0o600).open(fresh)?;
    let mut text = line_of(&Record::Next { spawn: next })?;
    for Unsettled { intent, born } in unsettled.values() {
        text.extend(line_of(&Record::Intent(intent.clone()))?);
        if let Some((keeper, engine)) = *born {
            text.extend(line_of(&Record::Born { spawn: intent.spawn, keeper, engine })?);
        }
    }
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(fresh, path)?;
    if let Some(folder) = path.parent() {
        File::open(folder)?.sync_all()?;
    }
    Ok(file)
}

fn line_of(record: &Record) -> io::Result<Vec<u8>> {
    #[derive(Serialize)]
    struct Out<'a> {
        v: u32,
        #[serde(flatten)]
        record: &'a Record,
    }
    let mut line = serde_json::to_vec(&Out { v: VERSION, record })?;
    line.push(b'\n');
    Ok(line)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};
    use std::{
        sync::{Arc, mpsc},
        thread::{self, JoinHandle},
        time::Duration,
    };

    pub(crate) fn intent(spawn: u64) -> Intent {
        Intent {
            spawn,
            nonce: format!("{spawn:032x}"),
            boot: "boot".into(),
            executable: "/bin/engine".into(),
            key: "engine:model:0".into(),
            socket: None,
            group: None,
            claim: Charge::default(),
        }
    }

    fn process(pid: u32) -> ProcessId {
        ProcessId { pid, start_time: u64::from(pid) * 10 }
    }

    fn journal() -> (tempfile::TempDir, PathBuf, Journal) {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path).expect("writable");
        (folder, path, journal)
    }

    #[test]
    fn what_has_no_end_is_found_again() {
        let (_folder, path, journal) = journal();
        assert_eq!(journal.next_spawn(), Spawn(1));
        for spawn in 1..=3 {
            journal.intent(intent(spawn)).expect("writable");
        }
        for spawn in 1..=2 {
            journal.born(Spawn(spawn), process(1), process(2)).expect("writable");
        }
        journal.gone(Spawn(1)).expect("writable");
        drop(journal);
        let again = Journal::open(&path).expect("readable");
        let born = Some((process(1), process(2)));
        assert_eq!(
            again.unsettled(),
            [Unsettled { intent: intent(2), born }, Unsettled { intent: intent(3), born: None }]
        );
        assert_eq!(again.next_spawn(), Spawn(4));
    }

    #[test]
    fn numbers_go_on_when_all_is_gone() {
        let (_folder, path, journal) = journal();
        journal.intent(intent(7)).expect("writable");
        journal.gone(Spawn(7)).expect("writable");
        drop(journal);
        for _ in 0..2 {
            assert_eq!(Journal::open(&path).expect("readable").next_spawn(), Spawn(8));
        }
        assert_eq!(fs::read_to_string(&path).expect("there").lines().count(), 1, "compacted");
    }

    #[test]
    fn a_running_journal_stays_short() {
        let (_folder, path, journal) = journal();
        for spawn in 0..5000 {
            journal.intent(intent(spawn)).expect("writable");
            journal.gone(Spawn(spawn)).expect("writable");
        }
        assert!(fs::read_to_string(&path).expect("there").lines().count() <= MAX_RECORDS + 1);
        assert_eq!(Journal::open(&path).expect("readable").next_spawn(), Spawn(5000));
    }

    /// The disk hangs until it is told to go on. Whether it was told: it goes on by itself some time, so that a test that
    /// waits for it fails instead of hanging with it.
    pub(crate) fn hang(journal: &Arc<Journal>) -> (mpsc::Sender<()>, JoinHandle<bool>) {
        let (journal, (go_on, told), (hangs, does_hang)) = (Arc::clone(journal), mpsc::channel(), mpsc::channel());
        let disk = thread::spawn(move || {
            let _writing = journal.inner.lock();
            hangs.send(()).expect("awaited");
            told.recv_timeout(Duration::from_secs(10)).is_ok()
        });
        does_hang.recv().expect("it does");
        (go_on, disk)
    }

    /// The disk takes nothing more, until that is undone.
    pub(crate) fn fill_disk(path: &Path, journal: &Journal) {
        journal.inner.lock().file = File::options().write(true).open("/dev/full").expect("Linux");
        // In the way of a new one.
        fs::create_dir(path.with_extension("new")).expect("made");
    }

    #[test]
    fn a_disk_that_is_full_refuses_starts_forgets_no_end_and_tears_no_later_record() {
        let (_folder, path, journal) = journal();
        journal.intent(intent(1)).expect("writable");
        journal.intent(intent(2)).expect("writable");
        fill_disk(&path, &journal);
        for _ in 0..2 {
            assert!(matches!(journal.intent(intent(3)), Err(JournalError::Unusable { .. })));
            assert!(journal.born(Spawn(2), process(1), process(2)).is_err());
            assert!(journal.gone(Spawn(1)).is_err());
            assert_eq!(journal.unsettled().iter().map(|one| one.intent.spawn).collect::<Vec<_>>(), [2]);
        }
        assert_eq!(
            replay(&fs::read_to_string(&path).expect("there"), &path).expect("whole").1.len(),
            2,
            "nothing lost"
        );
        fs::remove_dir(path.with_extension("new")).expect("ours");
        journal.intent(intent(4)).expect("writable again");
        journal.gone(Spawn(4)).expect("writable again");
        let again = Journal::open(&path).expect("readable");
        assert_eq!(again.unsettled(), [Unsettled { intent: intent(2), born: None }]);
        assert_eq!(again.next_spawn(), Spawn(5));
    }

    #[test]
    fn half_a_record_does_not_swallow_the_next() {
        let (_folder, path, journal) = journal();
        {
            let mut inner = journal.inner.lock();
            inner.file.write_all(b"{\"v\":1,\"record\":\"int").expect("writable");
            inner.is_behind = true;
        }
        journal.intent(intent(1)).expect("writable");
        assert_eq!(Journal::open(&path).expect("readable").unsettled().len(), 1);
    }

    #[test]
    fn a_newer_journal_is_refused_and_left_alone() {
        let (_folder, path, journal) = journal();
        drop(journal);
        let newer = "{\"v\":2,\"record\":\"adopted\",\"spawn\":1}\n";
        fs::write(&path, newer).expect("writable");
        assert!(matches!(Journal::open(&path), Err(JournalError::Newer { version: 2, .. })));
        assert_eq!(fs::read_to_string(&path).expect("there"), newer);
    }

    #[test]
    fn a_line_that_cannot_be_read_hides_no_other() {
        let (_folder, path, journal) = journal();
        journal.intent(intent(1)).expect("writable");
        drop(journal);
        let mut text = fs::read(&path).expect("there");
        text.extend(b"\0\0\xff garbage\n");
        text.extend(line_of(&Record::Intent(intent(2))).expect("JSON"));
        fs::write(&path, text).expect("writable");
        assert_eq!(Journal::open(&path).expect("readable").unsettled().len(), 2);
    }

    #[test]
    fn a_claim_is_written_by_device() {
        let claim = Claim::private(motorpool_vocab::Bytes::gib(1));
        assert_eq!(Charge::from(&claim), Charge { ram: 1 << 30, ..Charge::default() });
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Intent,
        Born(u64),
        Gone(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![Just(Step::Intent), (1u64..9).prop_map(Step::Born), (1u64..9).prop_map(Step::Gone)]
    }

    fn written(steps: &[Step]) -> Vec<Vec<u8>> {
        let mut next = 0;
        let mut record = |step: &Step| match *step {
            Step::Intent => {
                next += 1;
                Record::Intent(intent(next))
            }
            Step::Born(spawn) => Record::Born { spawn, keeper: process(1), engine: process(2) },
            Step::Gone(spawn) => Record::Gone { spawn },
        };
        steps.iter().map(|step| line_of(&record(step)).expect("JSON")).collect()
    }

    proptest! {
        #[test]
        fn a_torn_last_line_costs_only_itself(steps in vec(step(), 1..20), cut: prop::sample::Index) {
            let lines = written(&steps);
            let (last, before) = lines.split_last().expect("one at least");
            let torn = [&before.concat(), &last[..cut.index(last.len())]].concat();
            let path = Path::new("journal");
            let whole = String::from_utf8(before.concat()).expect("JSON");
            let torn = String::from_utf8(torn).expect("ASCII");
            prop_assert_eq!(replay(&torn, path).expect("version 1"), replay(&whole, path).expect("version 1"));
        }

        #[test]
        fn compaction_changes_nothing(steps in vec(step(), 0..20)) {
            let folder = tempfile::tempdir().expect("a temporary directory");
            let path = folder.path().join("journal.jsonl");
            let text = String::from_utf8(written(&steps).concat()).expect("JSON");
            let before = replay(&text, &path).expect("version 1");
            rewrite(&path, before.0, &before.1).expect("writable");
            let compacted = fs::read_to_string(&path).expect("there");
            prop_assert_eq!(replay(&compacted, &path).expect("version 1"), before);
        }
    }
}
