//! Everything that belongs to the engine, where nobody adopts orphans and nothing marks a tree but its own.
//!
//! Four nets, because each has a hole: the process group (a `setsid` leaves it), the keeper's session (so does that),
//! descent (an orphan has none) and the nonce in the environment (a program may clear it, and on macOS the system's own hide
//! theirs). They are cast again and again until twice in a row nothing is caught: who was forked while its parent died under
//! our eyes is in the second look.
//!
//! Zombies are whose children they are; the system's first process reaps what is left of them.
use crate::{
    keeper::{
        leader::Leader,
        means::{self, Swept},
    },
    sys::Hold,
};
use motorpool_devices::{ProcessFacts, descendants_in, look_at_processes, look_for_environment, observe_process};
use std::io;

/// A process that was there: its number, and when it was forked.
#[derive(Clone, Copy)]
pub(super) struct Number {
    pid: u32,
    start_time: Option<u64>,
}

impl Number {
    /// The process that has it now.
    pub(super) fn of(pid: u32) -> Self {
        Self { pid, start_time: observe_process(pid).map(|facts| facts.start_time) }
    }

    pub(super) fn pid(self) -> u32 {
        self.pid
    }

    /// Whether it is nobody else's. A number that names a group or a session with somebody in it is not given anew.
    fn is_its_own(self, table: &[ProcessFacts]) -> bool {
        let now = table.iter().find(|process| process.pid == self.pid);
        now.is_none_or(|process| self.start_time == Some(process.start_time))
    }
}

/// By what a tree is known.
pub(super) struct Net {
    /// Leads the session.
    pub(super) keeper: Number,
    /// Leads the group. `None`: nobody does yet.
    pub(super) leader: Option<Number>,
    /// The environment entry.
    pub(super) mark: String,
}

impl Net {
    /// Everyone of the tree who runs; without `spared`. An error says that they could not be looked for, which does not say
    /// that there are none.
    fn cast(&self, spared: &[u32]) -> io::Result<Vec<ProcessFacts>> {
        let table = look_at_processes()?;
        let own = |root: Number| Some(root).filter(|root| root.is_its_own(&table));
        let (session, group) = (own(self.keeper), self.leader.and_then(own));
        let below: Vec<u32> =
            session.into_iter().chain(group).flat_map(|root| descendants_in(&table, root.pid)).collect();
        let is_member = |process: &ProcessFacts| -> io::Result<bool> {
            let is_near = session.is_some_and(|keeper| process.sid == keeper.pid)
                || group.is_some_and(|leader| process.pgid == leader.pid || process.pid == leader.pid)
                || below.contains(&process.pid);
            Ok(is_near || look_for_environment(process.pid, &self.mark)? == Some(true))
        };
        let mut found = Vec::new();
        for process in table.iter().filter(|process| !process.is_zombie() && !spared.contains(&process.pid)) {
            if is_member(process)? {
                found.push(process.clone());
            }
        }
        Ok(found)
    }

    /// Kills whom it finds. Whether it could look and nobody was there.
    pub(super) fn is_empty_or_kill(&self, spared: &[u32]) -> bool {
        let found = self.cast(spared);
        found.iter().flatten().for_each(end);
        found.is_ok_and(|found| found.is_empty())
    }
}

fn end(member: &ProcessFacts) {
    if let Ok(held) = Hold::open(member.pid)
        && observe_process(member.pid).is_some_and(|now| now.start_time == member.start_time)
    {
        // Not ours to kill (set-user-id)? Then it stays, and we say so by not ending.
        let _ = held.signal(libc::SIGKILL);
    }
}

pub(crate) struct Tree {
    leader: Leader,
    net: Net,
    /// The keeper itself, and its guard.
    spared: Vec<u32>,
}

impl Tree {
    pub(super) fn new(leader: u32, net: Net, guard: Option<u32>) -> Self {
        let spared = [std::process::id()].into_iter().chain(guard).collect();
        Self { leader: Leader::Unreaped(leader), net, spared }
    }
}

impl means::Tree for Tree {
    fn leader(&self) -> &Leader {
        &self.leader
    }

    fn oom_kills(&self) -> Option<u64> {
        None
    }

    fn sweep(&mut self) -> Swept {
        // Those whom descent alone tells are found before their parents die.
        let is_empty = self.net.is_empty_or_kill(&self.spared);
        self.leader.kill_group();
        if !is_empty || !self.net.is_empty_or_kill(&self.spared) {
            return Swept::Remains;
        }
        self.leader.reap().map_or(Swept::Remains, Swept::Over)
    }
}
