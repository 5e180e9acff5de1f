//! Everything that belongs to the engine, and how it is brought to an end.
//!
//! Four nets, because each has a hole: the control group (it cannot be made everywhere), the process group (a `setsid`
//! leaves it), descent from the keeper (as subreaper it adopts orphans, but another subreaper may too), and the nonce in
//! the environment (a program may clear it). They are cast again and again until nothing is caught.
use crate::{
    cgroup::Cgroup,
    nonce::Nonce,
    sys::{self, Ended, PidFd},
};
use motorpool_devices::{ProcessFacts, descendants_in, has_environment, observe_process, processes};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

pub(super) struct Tree {
    keeper: u32,
    leader: Leader,
    group: Option<Cgroup>,
    /// The environment entry that marks the tree.
    mark: String,
    /// How many of its group the kernel killed for want of memory, as last read: the count goes with the group.
    oom_kills: Option<u64>,
}

/// The engine's first process, which leads its group.
#[derive(Clone, Copy)]
enum Leader {
    /// Alive or a zombie: number and group are its own.
    Unreaped(u32),
    /// Its number may be anybody's.
    Reaped(Ended),
}

pub(super) enum Swept {
    /// Look again.
    Remains,
    /// Nothing is left, and this is how the first process ended.
    Over(Ended),
}

impl Tree {
    pub(super) fn new(leader: u32, nonce: &Nonce, group: Option<Cgroup>) -> Self {
        Self {
            keeper: std::process::id(),
            leader: Leader::Unreaped(leader),
            group,
            mark: nonce.entry(),
            oom_kills: None,
        }
    }

    pub(super) fn is_leader(&self, pid: u32) -> bool {
        matches!(self.leader, Leader::Unreaped(leader) if leader == pid)
    }

    /// How many of it the kernel killed for want of memory; `None`: nobody counted.
    pub(super) fn oom_kills(&self) -> Option<u64> {
        self.oom_kills
    }

    /// Signals the first process alone.
    pub(super) fn signal_leader(&self, signal: i32) {
        if let Leader::Unreaped(leader) = self.leader
            && let Ok(leader) = PidFd::open(leader)
        {
            // An odd number in the frame signals nothing; the kill that follows does.
            let _ = leader.signal(signal);
        }
    }

    /// Kills and reaps what it finds.
    pub(super) fn sweep(&mut self) -> Swept {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.kill_process_group();
        self.oom_kills = self.group.as_ref().and_then(Cgroup::oom_kills).or(self.oom_kills);
        let n_alive = self.members().iter().filter(|member| self.end_member(member) == Member::Alive).count();
        if n_alive > 0 {
            return Swept::Remains;
        }
        if let Leader::Unreaped(leader) = self.leader {
            match sys::reap(leader) {
                Ok(Some(ended)) => self.leader = Leader::Reaped(ended),
                _ => return Swept::Remains,
            }
        }
        match (self.leader, sys::peek_ended_child()) {
            // Nobody's parent any more: what was forked behind our back while we looked would be our child now.
            (Leader::Reaped(ended), Err(error)) if error.raw_os_error() == Some(libc::ECHILD) => {
                // Somebody came into the control group from elsewhere, or is just leaving it.
                if self.group.as_ref().is_some_and(Cgroup::is_left) { Swept::Remains } else { Swept::Over(ended) }
            }
            _ => Swept::Remains,
        }
    }

    /// A signal to a group reaches all of it at once, so nobody forks away from under it.
    fn kill_process_group(&self) {
        if let Leader::Unreaped(leader) = self.leader
            && let Ok(leader) = i32::try_from(leader)
        {
            // The group can be empty but for a zombie.
            let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
        }
    }

    fn members(&self) -> Vec<ProcessFacts> {
        let all = processes();
        let mut below = descendants_in(&all, self.keeper);
        below.extend(self.group.iter().flat_map(Cgroup::members));
        let is_member = |process: &ProcessFacts| {
            process.pid != self.keeper
                && (below.contains(&process.pid) || has_environment(process.pid, &self.mark) == Some(true))
        };
        all.into_iter().filter(is_member).collect()
    }

    fn end_member(&self, member: &ProcessFacts) -> Member {
        if member.is_zombie() {
            // One with another parent waits for that parent, which is dying, and then comes to us.
            let reaped = member.ppid == self.keeper && (self.is_leader(member.pid) || sys::reap(member.pid).is_ok());
            return if reaped { Member::Over } else { Member::Alive };
        }
        if let Ok(pidfd) = PidFd::open(member.pid)
            && observe_process(member.pid).is_some_and(|now| now.start_time == member.start_time)
        {
            // Not ours to kill (set-user-id)? Then it stays, and we say so by not ending.
            let _ = pidfd.signal(libc::SIGKILL);
        }
        Member::Alive
    }
}

#[derive(PartialEq, Eq)]
enum Member {
    Alive,
    Over,
}
