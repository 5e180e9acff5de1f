//! What a killed supervisor or a killed keeper left behind is found and killed, and nothing else is.
//!
//! A process is ours when its environment holds the nonce that was drawn for its tree, or when it is a journaled
//! process (same id, same start time, same boot) that hides its environment and runs the journaled program. A
//! different program alone acquits nobody: wrappers exec others. What descends from ours, is in a process group that one of
//! ours leads, or is in the control group that bears the nonce, is ours. Each one is held by a [`Hold`] that was taken
//! *before* it was checked, so the signal meets the process that was checked, whatever becomes of its id. Where keeper and
//! first process are both dead, whoever is still in the group of the one and the session of the other is ours, too: no
//! process gets a number that a group or a session bears.
//!
//! **S1** nobody is gone because nobody could look: where processes cannot be listed, held or read for want of anything of
//! ours, what is wanted is [`Remains::Unseen`], and stays so until a look finds it gone.
use crate::{
    cgroup::Cgroup,
    journal::{Journal, JournalError, Unsettled},
    nonce::Nonce,
    protocol::ProcessId,
    sys::Hold,
};
use motorpool_devices::{
    ProcessFacts, descendants_in, executable, look_at_process, look_at_processes, look_for_environment, pids,
};
use motorpool_vocab::Spawn;
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

/// Between two looks when nobody was found to wait for.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// By what the processes of one engine are known.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) nonce: Nonce,
    /// What was written down of it, once it was there.
    pub(crate) known: Option<Known>,
    /// The control group that may have been made for it.
    pub(crate) group: Option<Cgroup>,
}

/// An engine as it was written down.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) keeper: ProcessId,
    /// Its first process.
    pub(crate) engine: ProcessId,
    /// What that was to run.
    pub(crate) program: PathBuf,
}

/// An engine that is not known to be gone. It may still hold its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its number.
    pub spawn: Spawn,
    /// Its key, as text.
    pub key: String,
    /// What there is of it.
    pub remains: Remains,
}

/// What there is of an engine that is not known to be gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remains {
    /// These processes could not be ended. Empty when its control group has some that have no number here.
    Left(Vec<u32>),
    /// It could not be looked for, for this reason.
    Unseen(String),
}

/// What became of the engines that the journal knew no end of.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// What could not be ended. It stays in the journal.
    pub(crate) left: Vec<Leftover>,
    /// What is gone and ran since this boot: cards may not have its memory back yet.
    pub(crate) gone: Vec<Past>,
    /// The first end that could not be written down. The next supervisor looks for it again.
    pub(crate) unwritten: Option<JournalError>,
}

/// An engine of an earlier supervisor that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Past {
    /// Its first process, once that was there.
    pub(crate) pid: Option<u32>,
    /// Bytes that it was charged, by device.
    pub(crate) held: BTreeMap<String, u64>,
}

/// Ends every engine that the journal knows no end of, each within `within`, whatever becomes of the others. Blocks.
pub(crate) fn settle(journal: &Journal, boot: &str, within: Duration) -> Settled {
    let mut settled = Settled::default();
    for unsettled in journal.unsettled() {
        settle_one(journal, (unsettled, boot), within, &mut settled);
    }
    settled
}

/// The same with one engine. Blocks.
pub(crate) fn settle_one(
    journal: &Journal,
    (unsettled, boot): (Unsettled, &str),
    within: Duration,
    settled: &mut Settled,
) {
    let Unsettled { intent, born } = unsettled;
    let spawn = Spawn(intent.spawn);
    // Of another boot nothing can live. A nonce that is none was never given to a process by us.
    let remains = match Nonce::of(&intent.nonce).filter(|_| intent.boot == boot) {
        None => None,
        Some(nonce) => {
            let program = PathBuf::from(&intent.executable);
            let known = born.map(|(keeper, engine)| Known { keeper, engine, program });
            let group = intent.group.as_ref().and_then(|folder| Cgroup::written_down(Path::new(folder), &nonce));
            sweep(&Wanted { nonce, known, group }, within)
        }
    };
    if let Some(remains) = remains {
        return settled.left.push(Leftover { spawn, key: intent.key, remains });
    }
    if let Some(socket) = &intent.socket {
        // Usually gone with its engine; the next start removes it in any case.
        let _ = std::fs::remove_file(socket);
    }
    if let Err(error) = journal.gone(spawn) {
        settled.unwritten.get_or_insert(error);
    }
    if intent.boot == boot {
        let pid = born.map(|(_, engine)| engine.pid);
        settled.gone.push(Past { pid, held: intent.claim.devices });
    }
}

/// Kills what is wanted with all below it, and waits until nothing of it is found. What is left after `within`.
/// Blocks.
pub(crate) fn sweep(wanted: &Wanted, within: Duration) -> Option<Remains> {
    let until = Instant::now() + within;
    let mut is_told = false;
    loop {
        wanted.group.iter().for_each(Cgroup::kill);
        let Found { held, unseen } = find(wanted);
        if let Some(error) = unseen.as_ref().filter(|_| !is_told) {
            tracing::warn!(%error, "what an engine left behind cannot be looked for: it counts as running until it can be");
            is_told = true;
        }
        let alive = end(&held, until);
        if !alive.is_empty() {
            return Some(Remains::Left(alive));
        }
        let is_late = Instant::now() >= until;
        let look = Look { n_held: held.len(), unseen, group: GroupIs::of(wanted.group.as_ref()) };
        match look.verdict() {
            Verdict::Gone => return None,
            Verdict::There(remains) if is_late => return Some(remains),
            Verdict::There(_) if held.is_empty() => sleep(LOOK_EVERY),
            Verdict::There(_) => {}
        }
    }
}

/// What one look showed, when whom it found has died.
struct Look {
    n_held: usize,
    unseen: Option<io::Error>,
    group: GroupIs,
}

#[derive(Clone, Copy)]
enum GroupIs {
    Gone,
    Left,
}

impl GroupIs {
    fn of(group: Option<&Cgroup>) -> Self {
        if group.is_some_and(Cgroup::is_left) { Self::Left } else { Self::Gone }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    Gone,
    /// Or may be, and what to say of it if no later look shows more.
    There(Remains),
}

impl Look {
    /// Only a look that saw everything and found nobody says that nobody is there: what died in another may have forked.
    fn verdict(self) -> Verdict {
        match (self.unseen, self.group, self.n_held) {
            (Some(error), ..) => Verdict::There(Remains::Unseen(error.to_string())),
            (None, GroupIs::Gone, 0) => Verdict::Gone,
            (None, ..) => Verdict::There(Remains::Left(Vec::new())),
        }
    }
}

/// Kills them and waits for their ends. Who lives on.
fn end(held: &[(u32, Hold)], until: Instant) -> Vec<u32> {
    for (pid, held) in held {
        if let Err(error) = held.signal(libc::SIGKILL) {
            tracing::warn!(pid, %error, "an engine's process that was left behind cannot be killed");
        }
    }
    let ended = |(_, held): &&(u32, Hold)| held.has_ended_within(until.saturating_duration_since(Instant::now()));
    held.iter().filter(|one| !ended(one)).map(|(pid, _)| *pid).collect()
}

/// What one look found.
#[derive(Default)]
struct Found {
    /// Every living process that is wanted and could be seen.
    held: Vec<(u32, Hold)>,
    /// Why there may be others.
    unseen: Option<io::Error>,
}

impl Found {
    /// The hold comes first: what `check` then sees is the process that is held.
    fn hold_if(&mut self, pid: u32, check: impl FnOnce(u32) -> io::Result<bool>) {
        if pid == std::process::id() || self.held.iter().any(|(known, _)| *known == pid) {
            return;
        }
        match Hold::open(pid) {
            Ok(held) => {
                if self.or(check(pid)) == Some(true) {
                    self.held.push((pid, held));
                }
            }
            // Gone, or a number that no process has.
            Err(error) if matches!(error.raw_os_error(), Some(libc::ESRCH | libc::EINVAL)) => {}
            Err(error) => self.unseen = Some(error),
        }
    }

    fn or<T>(&mut self, looked: io::Result<T>) -> Option<T> {
        looked.map_err(|error| self.unseen = Some(error)).ok()
    }
}

/// Every living process that is wanted, held.
fn find(wanted: &Wanted) -> Found {
    let mark = wanted.nonce.entry();
    let mut found = Found::default();
    for pid in found.or(pids()).unwrap_or_default() {
        found.hold_if(pid, |pid| is_wanted(pid, &mark, wanted));
    }
    if let Some(group) = &wanted.group {
        for pid in found.or(group.members()).unwrap_or_default() {
            found.hold_if(pid, |pid| Ok(group.members()?.contains(&pid)));
        }
    }
    let table = found.or(look_at_processes()).unwrap_or_default();
    let left = wanted.known.iter().flat_map(|known| left_in_its_group(&table, known));
    let near = found.held.iter().flat_map(|(pid, _)| below_or_led(&table, *pid)).chain(left);
    let near: BTreeSet<u32> = near.collect();
    for before in table.iter().filter(|process| near.contains(&process.pid)) {
        found.hold_if(before.pid, |pid| is_still(pid, before));
    }
    found
}

/// What descends from `pid`, and the group that it leads: nobody comes into that from elsewhere.
fn below_or_led(table: &[ProcessFacts], pid: u32) -> Vec<u32> {
    let led = table.iter().filter(|process| process.pgid == pid && process.pid != pid).map(|process| process.pid);
    descendants_in(table, pid).into_iter().chain(led).collect()
}

/// Who is in the group that the engine led and the session that its keeper led. Not if either number is a process's again.
fn left_in_its_group<'a>(table: &'a [ProcessFacts], known: &'a Known) -> impl Iterator<Item = u32> + 'a {
    let Known { keeper, engine, .. } = known;
    let is_another = |now: &ProcessFacts| {
        [keeper, engine].into_iter().any(|was| was.pid == now.pid && was.start_time != now.start_time)
    };
    let are_theirs = !table.iter().any(is_another);
    let is_left = move |now: &&ProcessFacts| {
        are_theirs && (now.pgid, now.sid) == (engine.pid, keeper.pid) && now.start_time >= engine.start_time
    };
    table.iter().filter(is_left).map(|now| now.pid)
}

fn is_wanted(pid: u32, mark: &str, wanted: &Wanted) -> io::Result<bool> {
    if let Some(is_marked) = look_for_environment(pid, mark)? {
        return Ok(is_marked);
    }
    match &wanted.known {
        Some(Known { engine, program, .. }) if engine.pid == pid => {
            let is_it =
                look_at_process(pid)?.is_some_and(|now| now.start_time == engine.start_time && !now.is_zombie());
            Ok(is_it && executable(pid).is_some_and(|runs| is_program(&runs, program)))
        }
        _ => Ok(false),
    }
}

/// A program that was replaced meanwhile shows as deleted.
fn is_program(runs: &Path, program: &Path) -> bool {
    let resolved = program.canonicalize();
    let runs = runs.as_os_str().as_encoded_bytes();
    let runs = runs.strip_suffix(b" (deleted)").unwrap_or(runs);
    [Some(program), resolved.as_deref().ok()]
        .into_iter()
        .flatten()
        .any(|path| path.as_os_str().as_encoded_bytes() == runs)
}

fn is_still(pid: u32, before: &ProcessFacts) -> io::Result<bool> {
    Ok(look_at_process(pid)?.is_some_and(|now| now.start_time == before.start_time && !now.is_zombie()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Intent, tests};
    use std::process::{Child, Command};

    #[test]
    fn who_is_in_the_group_and_session_of_the_dead_is_theirs_and_nobody_else_is() {
        let process = |pid, (pgid, sid), start_time| ProcessFacts {
            pid,
            name: "worker".into(),
            state: 'S',
            ppid: 1,
            pgid,
            sid,
            start_time,
            cpu_ticks: 0,
            rss_pages: 0,
        };
        let dead = |pid| ProcessId { pid, start_time: 50 };
        let known = Known { keeper: dead(10), engine: dead(11), program: "/e".into() };
        let left = |table: &[ProcessFacts]| left_in_its_group(table, &known).collect::<Vec<_>>();
        let ours = process(12, (11, 10), 51);
        assert_eq!(left(&[ours.clone(), process(13, (11, 9), 51), process(14, (9, 10), 51)]), [12]);
        assert_eq!(left(&[process(12, (11, 10), 49)]), [0; 0], "it is older than the engine");
        for again in [process(10, (10, 10), 60), process(11, (11, 10), 60)] {
            assert_eq!(left(&[ours.clone(), again]), [0; 0], "the number is another's");
        }
        assert_eq!(left(&[ours, process(11, (11, 10), 50)]), [12, 11], "one of them lives on");
    }

    /// A process that bears this nonce.
    fn marked(nonce: &str) -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").env_clear().env("MOTORPOOL_NONCE", nonce).spawn().expect("sleep")
    }

    fn drawn() -> String {
        Nonce::draw().expect("random bits").as_str().to_owned()
    }

    #[test]
    fn only_a_look_that_saw_everything_and_found_nobody_is_believed() {
        let verdict = |n_held, lacking: Option<i32>, group| {
            Look { n_held, unseen: lacking.map(io::Error::from_raw_os_error), group }.verdict()
        };
        assert_eq!(verdict(0, None, GroupIs::Gone), Verdict::Gone);
        let left = Verdict::There(Remains::Left(vec![]));
        assert_eq!(verdict(0, None, GroupIs::Left), left, "somebody is in its group who has no number here");
        assert_eq!(verdict(2, None, GroupIs::Gone), left, "who died may have forked");
        for group in [GroupIs::Gone, GroupIs::Left] {
            let unseen = verdict(0, Some(libc::EMFILE), group);
            assert!(
                matches!(&unseen, Verdict::There(Remains::Unseen(why)) if why.contains("open files")),
                "{unseen:?}"
            );
        }
    }

    #[test]
    fn every_engine_is_killed_although_the_end_of_none_can_be_written_down() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("journal.jsonl");
        let journal = Journal::open(&path).expect("writable");
        let nonces = [drawn(), drawn()];
        let mut children = nonces.each_ref().map(|nonce| marked(nonce));
        for (spawn, nonce) in (1..).zip(&nonces) {
            journal.intent(Intent { nonce: nonce.clone(), ..tests::intent(spawn) }).expect("writable");
        }
        tests::fill_disk(&path, &journal);
        let settled = settle(&journal, "boot", Duration::from_secs(10));
        assert!(settled.unwritten.is_some() && settled.left.is_empty(), "{settled:?}");
        assert_eq!(settled.gone.len(), 2, "cards may hold what they held");
        for child in &mut children {
            let ended = std::os::unix::process::ExitStatusExt::signal(&child.wait().expect("ours"));
            assert_eq!(ended, Some(libc::SIGKILL));
        }
    }
}
