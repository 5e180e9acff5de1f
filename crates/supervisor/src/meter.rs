//! [`Meter`]: what the trees of our engines hold, and what others use of system memory: every 5 s, and at once when an
//! engine became ready.
//!
//! ```text
//!  Driver ── watch, ready ─► table of trees
//!                │ nudge          ▲ read
//!                ▼                │
//!        run (a task) ── start ─► a thread that may block: /proc
//!                ▲                │
//!                └── answer ◄─────┘
//!                │  or none in time
//!                ▼
//!        Input::Measured for each engine that serves, Input::Memory
//! ```
//!
//! One reading for all trees: others' use is what is left when everything of ours is taken away, loading, stopping and
//! stuck ones included. Trees are read before the machine and after it, and the larger figure counts, so that what one
//! of ours takes or gives back meanwhile is not taken for others'. A tree that cannot be read is not nothing: there is
//! no reading then.
//!
//! Graphics cards are read beside this, in `lookout.rs`; which processes are whose is asked here. A driver may show the
//! processes of an engine for a while after their end: for so long they are remembered.
use crate::{
    cards::{Held, Ours},
    drivers::answer,
    handle::Post,
    protocol::{ProcessId, Source},
    servers::LocalServers,
    shell::post,
    toll::Toll,
};
use motorpool_devices::{
    Prober, ProcessFacts, descendants_in, foreign_ram, now, observe_mapped_files, observe_memory_pressure,
    observe_oom_kills, observe_private, observe_ram, processes,
};
use motorpool_gguf::Reported;
use motorpool_pool::{Input, Measured, MemorySight};
use motorpool_vocab::{Bytes, FileId, Now, Spawn};
use parking_lot::Mutex;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc},
    time::{MissedTickBehavior, interval},
};

/// How often everything is read.
pub(crate) const EVERY: Duration = Duration::from_secs(5);
/// A reading that takes longer is none; the next one waits until it is over.
const PATIENCE: Duration = Duration::from_secs(4);
/// For so long after its end the pool waits for a driver to show no more of an engine (capacity.md B4).
const DEPARTS_WITHIN: Duration = Duration::from_secs(5);

/// The trees to read.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    trees: Mutex<BTreeMap<Spawn, Tree>>,
    departed: Mutex<BTreeMap<Spawn, Departed>>,
    toll: Mutex<Toll>,
    /// Model servers of others here.
    servers: OnceLock<LocalServers>,
    nudge: Notify,
}

/// The processes of a tree that is gone.
#[derive(Debug)]
struct Departed {
    at: Now,
    pids: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
struct Tree {
    leader: ProcessId,
    files: Vec<FileId>,
    stage: Stage,
    /// Its processes when they were last looked at.
    seen: BTreeSet<u32>,
}

#[derive(Clone, Debug)]
enum Stage {
    Loading,
    /// With the buffers that it reported, when it reported all of them.
    Ready(Option<Reported>),
}

/// A tree that is read for as long as this lives.
#[derive(Debug)]
pub(crate) struct Watched {
    meter: Arc<Meter>,
    spawn: Spawn,
}

/// What one reading gave.
#[derive(Debug, Default)]
struct Round {
    measured: Vec<(Spawn, Measured)>,
    memory: MemorySight,
}

/// The processes of one tree, and their anonymous memory.
#[derive(Debug)]
struct Seen {
    pids: Vec<u32>,
    resident: Option<Bytes>,
    swapped: Option<Bytes>,
}

impl Meter {
    /// From now on the tree below `leader` is ours; `files` are those of its model.
    pub(crate) fn watch(self: &Arc<Self>, spawn: Spawn, leader: ProcessId, files: Vec<FileId>) -> Watched {
        let seen = [leader.pid].into();
        self.trees.lock().insert(spawn, Tree { leader, files, stage: Stage::Loading, seen });
        Watched { meter: Arc::clone(self), spawn }
    }

    /// From now on tells what these hold of system memory, too.
    pub(crate) fn tells_of(&self, servers: LocalServers) {
        // Whoever came first is told of.
        let _ = self.servers.set(servers);
    }

    /// How often the kernel had killed for want of memory before a death whose news comes now.
    pub(crate) fn kills_before_now(&self) -> Option<u64> {
        self.toll.lock().before(now())
    }

    /// Whose processes are whose among all of `table`, those of engines that ended just now included.
    pub(crate) fn ours(&self, table: &[ProcessFacts], at: Now) -> BTreeMap<Spawn, Ours> {
        let mut trees = self.trees.lock();
        let mut departed = self.departed.lock();
        departed.retain(|_, departed| at.since(departed.at) < DEPARTS_WITHIN);
        let gone = departed.iter().map(|(spawn, Departed { pids, .. })| {
            (*spawn, Ours { pids: pids.iter().copied().collect(), held: Some(Held::new()) })
        });
        let mut ours: BTreeMap<Spawn, Ours> = gone.collect();
        for (spawn, tree) in trees.iter_mut() {
            let pids = tree.pids(table);
            // Of one that has ended the driver may still show what it held.
            let held = if pids.is_empty() { Some(Held::new()) } else { tree.held() };
            if !pids.is_empty() {
                tree.seen = pids.into_iter().collect();
            }
            ours.insert(*spawn, Ours { pids: tree.seen.iter().copied().collect(), held });
        }
        ours
    }

    /// Reads and tells until the loop is gone, or this is dropped.
    pub(crate) async fn run(self: Arc<Self>, inbox: mpsc::WeakUnboundedSender<Post>) {
        let answered = Arc::new(Notify::new());
        let (of_thread, on_answer) = (Arc::clone(&self), Arc::clone(&answered));
        let prober = Prober::new("meter", PATIENCE, move || of_thread.observe(), move || on_answer.notify_one());
        let prober = match prober {
            Ok(prober) => prober,
            Err(error) => return tracing::error!(%error, "nothing is measured: there is no thread to do it"),
        };
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while inbox.strong_count() > 0 {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.nudge.notified() => {}
            }
            let _ = prober.start(now());
            let round = answer(&prober, &answered, PATIENCE).await.unwrap_or_default();
            for (spawn, measured) in round.measured {
                post(&inbox, Input::Measured { spawn, measured });
            }
            post(&inbox, Input::Memory(round.memory));
        }
    }

    /// Reads everything. Blocks.
    fn observe(&self) -> Round {
        if let Ok(Some(kills)) = observe_oom_kills(root()) {
            self.toll.lock().count(now(), kills);
        }
        let trees = self.trees.lock().clone();
        let before = observe_trees(&trees);
        let ram = observe_ram(root()).inspect_err(|error| tracing::debug!(%error, "system memory cannot be read"));
        let after = observe_trees(&trees);
        let ours = ours(&before, &after);
        let measured = after.into_iter().filter_map(|(spawn, seen)| Some((spawn, trees.get(&spawn)?.measured(&seen)?)));
        let ram = ram.ok();
        let memory = MemorySight {
            foreign: ram.zip(ours).map(|(ram, ours)| foreign_ram(&ram, ours)),
            available: ram.map(|ram| ram.available),
            stalled: stalled(),
            servers: self.servers.get().map(holding).unwrap_or_default(),
        };
        Round { measured: measured.collect(), memory }
    }
}

/// Processes are looked through only where there is somebody to be found.
fn holding(servers: &LocalServers) -> Vec<(String, Bytes)> {
    let mut servers = servers.all();
    if servers.is_empty() { Vec::new() } else { servers.holding(now(), &processes()) }
}

impl Watched {
    /// It serves, and this is what it reported: it is measured at once.
    pub(crate) fn ready(&self, reported: Option<Reported>) {
        if let Some(tree) = self.meter.trees.lock().get_mut(&self.spawn) {
            tree.stage = Stage::Ready(reported);
        }
        self.meter.nudge.notify_one();
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(tree) = self.meter.trees.lock().remove(&self.spawn) {
            let (at, mut departed) = (now(), self.meter.departed.lock());
            departed.retain(|_, departed| at.since(departed.at) < DEPARTS_WITHIN);
            departed.insert(self.spawn, Departed { at, pids: tree.seen });
        }
    }
}

impl Tree {
    /// What was seen of it, if it serves and lives.
    fn measured(&self, seen: &Seen) -> Option<Measured> {
        let Stage::Ready(reported) = &self.stage else { return None };
        if seen.pids.is_empty() {
            return None;
        }
        Some(Measured {
            reported: reported.clone(),
            private: seen.resident.zip(seen.swapped).map(|(resident, swapped)| resident.saturating_add(swapped)),
            files: observe_mapped(&seen.pids, &self.files),
        })
    }

    /// What it says that it holds on graphics devices, once it has said all. `CUDA_Host` is system memory.
    fn held(&self) -> Option<Held> {
        let Stage::Ready(Some(reported)) = &self.stage else { return None };
        let mut held = Held::new();
        for (_, place, bytes) in reported.iter() {
            if !place.starts_with("CPU") && !place.ends_with("_Host") {
                let sum = held.entry(place.to_owned()).or_default();
                *sum = sum.saturating_add(bytes);
            }
        }
        Some(held)
    }

    /// Its processes; none when its first one is gone, whoever has its id now.
    fn pids(&self, table: &[ProcessFacts]) -> Vec<u32> {
        let ProcessId { pid, start_time } = self.leader;
        if !table.iter().any(|process| process.pid == pid && process.start_time == start_time) {
            return vec![];
        }
        descendants_in(table, pid).into_iter().chain([pid]).collect()
    }
}

fn root() -> &'static Path {
    Path::new("/")
}

/// Hundredths of a percent, of thousandths.
fn stalled() -> Option<u16> {
    let pressure = observe_memory_pressure(root()).ok().flatten()?;
    u16::try_from(pressure.some_avg10.saturating_mul(10)).ok()
}

fn observe_trees(trees: &BTreeMap<Spawn, Tree>) -> BTreeMap<Spawn, Seen> {
    let table = if trees.is_empty() { vec![] } else { processes() };
    let of = |tree: &Tree| {
        let pids = tree.pids(&table);
        let memory = observe_private(root(), &pids);
        Seen { pids, resident: memory.anonymous, swapped: memory.swapped }
    };
    trees.iter().map(|(spawn, tree)| (*spawn, of(tree))).collect()
}

/// What each tree holds of memory at most, of two looks; `None` when one of them could not be read.
fn ours(before: &BTreeMap<Spawn, Seen>, after: &BTreeMap<Spawn, Seen>) -> Option<Vec<Bytes>> {
    let larger = |(spawn, after): (&Spawn, &Seen)| Some(before.get(spawn)?.resident?.max(after.resident?));
    after.iter().map(larger).collect()
}

/// How much of each of `files` is mapped, by whatever path: engines open them through links.
fn observe_mapped(pids: &[u32], files: &[FileId]) -> Option<BTreeMap<FileId, Bytes>> {
    let mapped = observe_mapped_files(root(), pids)?;
    let of = |(path, bytes): (PathBuf, Bytes)| {
        let found = fs::metadata(path).ok()?;
        let id = files.iter().find(|id| id.device == found.dev() && id.inode == found.ino())?;
        // The last page reaches past the end.
        Some((*id, bytes.min(Bytes::new(id.size))))
    };
    Some(mapped.into_iter().filter_map(of).collect())
}

/// The buffers that an engine reports while it loads. A report with a gap is none: less would be reserved than is there.
#[derive(Debug, Default)]
pub(crate) struct Report {
    reported: Reported,
    has_gap: HasGap,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum HasGap {
    #[default]
    No,
    Yes,
}

impl Report {
    /// Takes one line of output, before which so many were missed.
    pub(crate) fn on_line(&mut self, source: Source, text: &str, n_dropped: u32) {
        if n_dropped > 0 {
            self.has_gap = HasGap::Yes;
        }
        if source == Source::Stderr {
            self.reported.on_line(text);
        }
    }

    /// All of them, once the last was reported.
    pub(crate) fn whole(&self) -> Option<Reported> {
        (self.has_gap == HasGap::No && self.reported.is_whole()).then(|| self.reported.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::observe_process;
    use std::{
        fs::File,
        process::{self, Command},
    };

    fn me() -> ProcessId {
        let facts = observe_process(process::id()).expect("it runs");
        ProcessId { pid: facts.pid, start_time: facts.start_time }
    }

    #[test]
    fn a_tree_that_serves_is_measured_and_one_that_loads_only_is_ours() {
        let meter = Arc::new(Meter::default());
        let watched = meter.watch(Spawn(1), me(), vec![]);
        let round = meter.observe();
        assert!(
            round.measured.is_empty() && round.memory.foreign.is_some() && round.memory.available.is_some(),
            "{round:?}"
        );
        watched.ready(None);
        let round = meter.observe();
        let [(Spawn(1), measured)] = round.measured.as_slice() else { panic!("one: {round:?}") };
        assert!(measured.private.is_some_and(|bytes| !bytes.is_zero()));
        assert_eq!((&measured.reported, &measured.files), (&None, &Some(BTreeMap::new())));
        drop(watched);
        assert!(meter.observe().measured.is_empty());
    }

    #[test]
    fn what_a_tree_takes_or_gives_back_during_a_look_is_ours_and_one_that_hides_is_not_nothing() {
        let look = |sizes: [Option<u64>; 2]| -> BTreeMap<Spawn, Seen> {
            let seen = |mib: Option<u64>| Seen { pids: vec![], resident: mib.map(Bytes::mib), swapped: None };
            (1..).zip(sizes).map(|(n, mib)| (Spawn(n), seen(mib))).collect()
        };
        let found = ours(&look([Some(10), Some(300)]), &look([Some(200), Some(0)]));
        assert_eq!(found, Some(vec![Bytes::mib(200), Bytes::mib(300)]));
        assert_eq!(ours(&look([Some(10), None]), &look([Some(10), Some(20)])), None);
    }

    #[test]
    fn a_process_that_only_has_the_id_of_ours_is_not_ours() {
        let meter = Arc::new(Meter::default());
        let other = ProcessId { start_time: me().start_time + 1, ..me() };
        let watched = meter.watch(Spawn(1), other, vec![]);
        watched.ready(None);
        assert!(meter.observe().measured.is_empty());
    }

    #[test]
    fn what_a_child_has_mapped_is_found_through_a_link_and_never_more_than_the_file() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let program = folder.path().join("sleep");
        let link = folder.path().join("link");
        fs::copy("/bin/sleep", &program).expect("a program");
        std::os::unix::fs::symlink(&program, &link).expect("writable");
        let mut child = Command::new(&link).arg("1000").spawn().expect("executable");
        let found = File::open(&program).and_then(|file| file.metadata()).expect("there");
        let id = FileId { device: found.dev(), inode: found.ino(), size: found.len(), mtime_nanos: 0 };
        let other = FileId { inode: id.inode + 1_000_000, ..id };
        let mapped = |child: u32| observe_mapped(&[child], &[other, id]).expect("ours");
        // It may not have been executed yet.
        while mapped(child.id()).is_empty() {}
        let mapped = mapped(child.id());
        assert!(mapped.len() == 1 && mapped[&id] <= Bytes::new(id.size), "{mapped:?}");
        child.kill().expect("ours");
        child.wait().expect("ours");
    }

    #[test]
    fn processes_of_a_tree_are_remembered_for_a_while_after_its_end() {
        let meter = Arc::new(Meter::default());
        let watched = meter.watch(Spawn(1), me(), vec![]);
        let mut reported = Reported::default();
        for line in [
            "x: CUDA0 model buffer size = 8.00 MiB",
            "x: CUDA0 KV buffer size = 1.00 MiB",
            "x: CUDA_Host compute buffer size = 4.00 MiB",
        ] {
            reported.on_line(line);
        }
        let at = now();
        let table = processes();
        assert_eq!(meter.ours(&table, at)[&Spawn(1)].held, None, "it loads");
        watched.ready(Some(reported));
        let ours = &meter.ours(&table, at)[&Spawn(1)];
        assert_eq!(ours.held, Some([("CUDA0".to_owned(), Bytes::mib(9))].into()));
        assert!(ours.pids.contains(&process::id()));
        drop(watched);
        let ours = &meter.ours(&[], at)[&Spawn(1)];
        assert!(ours.pids.contains(&process::id()) && ours.held == Some(Held::new()));
        assert!(meter.ours(&[], now().after(DEPARTS_WITHIN)).is_empty());
    }

    #[test]
    fn trees_that_ended_long_ago_are_forgotten_though_nobody_asks_whose_processes_are_whose() {
        let meter = Arc::new(Meter::default());
        let ends = |spawn: u64| drop(meter.watch(Spawn(spawn), me(), vec![]));
        ends(1);
        meter.departed.lock().get_mut(&Spawn(1)).expect("remembered").at = Now::ZERO;
        ends(2);
        ends(3);
        let left: Vec<Spawn> = meter.departed.lock().keys().copied().collect();
        assert_eq!(left, [Spawn(2), Spawn(3)], "those of just now");
    }

    #[test]
    fn a_process_that_left_its_tree_is_not_ours_whoever_has_its_id_next() {
        let meter = Arc::new(Meter::default());
        let _watched = meter.watch(Spawn(1), me(), vec![]);
        let mut child = Command::new("/bin/sleep").arg("1000").spawn().expect("executable");
        let id = child.id();
        let is_ours = || meter.ours(&processes(), now())[&Spawn(1)].pids.contains(&id);
        assert!(is_ours());
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert!(!is_ours());
    }

    #[test]
    fn a_report_is_whole_with_its_last_buffer_and_none_when_a_line_was_missed() {
        let (kv, compute) = ("x: CPU KV buffer size = 8.00 MiB", "x: CPU compute buffer size = 4.00 MiB");
        let mut report = Report::default();
        report.on_line(Source::Stderr, kv, 0);
        report.on_line(Source::Stdout, compute, 0);
        assert_eq!(report.whole(), None, "only its log counts");
        report.on_line(Source::Stderr, compute, 0);
        let sizes: Vec<_> = report.whole().expect("whole").iter().map(|(.., bytes)| bytes).collect();
        assert_eq!(sizes, [Bytes::mib(8), Bytes::mib(4)]);
        report.on_line(Source::Stderr, "anything", 1);
        assert_eq!(report.whole(), None);
    }
}
