//! Everything that belongs to the engine on Linux.
//!
//! Four nets, because each has a hole: the control group (it cannot be made everywhere), the process group (a `setsid`
//! leaves it), descent from the keeper (as subreaper it adopts orphans, but another subreaper may too), and the nonce in
//! the environment (a program may clear it). They are cast again and again until nothing is caught.
use crate::{
    cgroup::Cgroup,
    keeper::{
        leader::Leader,
        means::{self, Swept},
    },
    nonce::Nonce,
    sys::{self, Hold},
};
use motorpool_devices::{ProcessFacts, descendants_in, has_environment, look_at_processes, observe_process};
use std::io;

pub(crate) struct Tree {
    keeper: u32,
    leader: Leader,
    group: Option<Cgroup>,
    /// The environment entry that marks the tree.
    mark: String,
    /// How many of its group the kernel killed for want of memory, as last read: the count goes with the group.
    oom_kills: Option<u64>,
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

    /// An error says that they could not be looked for, which does not say that there are none.
    fn members(&self) -> io::Result<Vec<ProcessFacts>> {
        let all = look_at_processes()?;
        let mut below = descendants_in(&all, self.keeper);
        if let Some(group) = &self.group {
            below.extend(group.members()?);
        }
        let is_member = |process: &ProcessFacts| {
            process.pid != self.keeper
                && (below.contains(&process.pid) || has_environment(process.pid, &self.mark) == Some(true))
        };
        Ok(all.into_iter().filter(is_member).collect())
    }

    fn end_member(&self, member: &ProcessFacts) -> Member {
        if member.is_zombie() {
            // One with another parent waits for that parent, which is dying, and then comes to us.
            let reaped = member.ppid == self.keeper && (self.leader.is(member.pid) || sys::reap(member.pid).is_ok());
            return if reaped { Member::Over } else { Member::Alive };
        }
        if let Ok(held) = Hold::open(member.pid)
            && observe_process(member.pid).is_some_and(|now| now.start_time == member.start_time)
        {
            // Not ours to kill (set-user-id)? Then it stays, and we say so by not ending.
            let _ = held.signal(libc::SIGKILL);
        }
        Member::Alive
    }
}

#[derive(PartialEq, Eq)]
enum Member {
    Alive,
    Over,
}

impl means::Tree for Tree {
    fn leader(&self) -> &Leader {
        &self.leader
    }

    fn oom_kills(&self) -> Option<u64> {
        self.oom_kills
    }

    fn sweep(&mut self) -> Swept {
        if let Some(group) = &self.group {
            group.kill();
        }
        self.leader.kill_group();
        self.oom_kills = self.group.as_ref().and_then(Cgroup::oom_kills).or(self.oom_kills);
        let Ok(members) = self.members() else { return Swept::Remains };
        let n_alive = members.iter().filter(|member| self.end_member(member) == Member::Alive).count();
        if n_alive > 0 {
            return Swept::Remains;
        }
        let Some(ended) = self.leader.reap() else { return Swept::Remains };
        match sys::peek_ended_child() {
            // Nobody's parent any more: what was forked behind our back while we looked would be our child now.
            Err(error) if error.raw_os_error() == Some(libc::ECHILD) => {
                // Somebody came into the control group from elsewhere, or is just leaving it.
                if self.group.as_ref().is_some_and(Cgroup::is_left) { Swept::Remains } else { Swept::Over(ended) }
            }
            _ => Swept::Remains,
        }
    }
}
