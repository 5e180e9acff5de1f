//! What a killed supervisor or a killed keeper left behind is found and killed, and nothing else is.
//!
//! A process is ours when its environment holds the nonce that was drawn for its tree, or when it is a journaled
//! process (same id, same start time, same boot) that hides its environment and runs the journaled program. A
//! different program alone acquits nobody: wrappers exec others. What descends from ours, is in a process group that one of
//! ours leads, or is in the control group that bears the nonce, is ours. Each one is held by a [`Hold`] that was taken
//! *before* it was checked, so the signal meets the process that was checked, whatever becomes of its id.
use crate::{
    cgroup::Cgroup,
    journal::{Journal, JournalError, Unsettled},
    nonce::Nonce,
    protocol::ProcessId,
    sys::Hold,
};
use motorpool_devices::{ProcessFacts, descendants_in, executable, has_environment, observe_process, pids, processes};
use motorpool_vocab::Spawn;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// By what the processes of one engine are known.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) nonce: Nonce,
    /// The first process as it was written down, and the program that it was to run.
    pub(crate) known: Option<(ProcessId, PathBuf)>,
    /// The control group that may have been made for it.
    pub(crate) group: Option<Cgroup>,
}

/// An engine of an earlier supervisor that could not be killed. It still holds its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Its number.
    pub spawn: Spawn,
    /// Its key, as text.
    pub key: String,
    /// Its processes.
    pub pids: Vec<u32>,
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
    let pids = match Nonce::of(&intent.nonce).filter(|_| intent.boot == boot) {
        None => Vec::new(),
        Some(nonce) => {
            let known = born.map(|(_, engine)| (engine, PathBuf::from(&intent.executable)));
            let group = intent.group.as_ref().and_then(|folder| Cgroup::written_down(Path::new(folder), &nonce));
            sweep(&Wanted { nonce, known, group }, within)
        }
    };
    if !pids.is_empty() {
        return settled.left.push(Leftover { spawn, key: intent.key, pids });
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
pub(crate) fn sweep(wanted: &Wanted, within: Duration) -> Vec<u32> {
    let until = Instant::now() + within;
    loop {
        wanted.group.iter().for_each(Cgroup::kill);
        let found = find(wanted);
        for (pid, held) in &found {
            if let Err(error) = held.signal(libc::SIGKILL) {
                tracing::warn!(pid, %error, "an engine's process that was left behind cannot be killed");
            }
        }
        let ended = |(_, held): &&(u32, Hold)| held.has_ended_within(until.saturating_duration_since(Instant::now()));
        let alive: Vec<u32> = found.iter().filter(|one| !ended(one)).map(|(pid, _)| *pid).collect();
        let is_over = found.is_empty() && !wanted.group.as_ref().is_some_and(Cgroup::is_left);
        if is_over || !alive.is_empty() || Instant::now() >= until {
            return alive;
        }
        std::thread::yield_now();
    }
}

/// Every living process that is wanted, held.
fn find(wanted: &Wanted) -> Vec<(u32, Hold)> {
    let mark = wanted.nonce.entry();
    let mut ours: Vec<(u32, Hold)> =
        pids().into_iter().filter_map(|pid| hold_if(pid, |pid| is_wanted(pid, &mark, wanted))).collect();
    let mut seen: BTreeSet<u32> = ours.iter().map(|(pid, _)| *pid).collect();
    let members = wanted.group.iter().flat_map(Cgroup::members).filter(|pid| seen.insert(*pid));
    ours.extend(members.filter_map(|pid| hold_if(pid, |pid| is_member(pid, wanted))));
    let table = processes();
    let with_them = |(pid, _): &(u32, Hold)| below_or_led(&table, *pid);
    for pid in ours.iter().flat_map(with_them).collect::<Vec<_>>() {
        if seen.insert(pid)
            && let Some(before) = table.iter().find(|process| process.pid == pid)
            && let Some(held) = hold_if(pid, |pid| is_still(pid, before))
        {
            ours.push(held);
        }
    }
    ours
}

/// What descends from `pid`, and the group that it leads: nobody comes into that from elsewhere.
fn below_or_led(table: &[ProcessFacts], pid: u32) -> Vec<u32> {
    let led = table.iter().filter(|process| process.pgid == pid && process.pid != pid).map(|process| process.pid);
    descendants_in(table, pid).into_iter().chain(led).collect()
}

/// The hold comes first: what `check` then sees is the process that is held.
fn hold_if(pid: u32, check: impl FnOnce(u32) -> bool) -> Option<(u32, Hold)> {
    let held = Hold::open(pid).ok()?;
    (pid != std::process::id() && check(pid)).then_some((pid, held))
}

fn is_member(pid: u32, wanted: &Wanted) -> bool {
    wanted.group.as_ref().is_some_and(|group| group.members().contains(&pid))
}

fn is_wanted(pid: u32, mark: &str, wanted: &Wanted) -> bool {
    match has_environment(pid, mark) {
        Some(marked) => marked,
        None => wanted.known.as_ref().is_some_and(|(known, program)| {
            known.pid == pid
                && executable(pid).is_some_and(|runs| is_program(&runs, program))
                && observe_process(pid).is_some_and(|now| now.start_time == known.start_time && !now.is_zombie())
        }),
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

fn is_still(pid: u32, before: &ProcessFacts) -> bool {
    observe_process(pid).is_some_and(|now| now.start_time == before.start_time && !now.is_zombie())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Intent, tests};
    use std::process::{Child, Command};

    /// A process that bears this nonce.
    fn marked(nonce: &str) -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("1000").env_clear().env("MOTORPOOL_NONCE", nonce).spawn().expect("sleep")
    }

    fn drawn() -> String {
        Nonce::draw().expect("random bits").as_str().to_owned()
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
