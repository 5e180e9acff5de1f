//! [`Leader`]: the engine's first process, which leads its process group.
use crate::sys::{self, Ended, Hold};
use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

#[derive(Clone, Copy)]
pub(super) enum Leader {
    /// Our child, alive or a zombie: number and group are its own.
    Unreaped(u32),
    /// Its number may be anybody's.
    Reaped(Ended),
}

impl Leader {
    pub(super) fn is(self, pid: u32) -> bool {
        matches!(self, Self::Unreaped(leader) if leader == pid)
    }

    /// Signals it alone.
    pub(super) fn signal(self, signal: i32) {
        if let Self::Unreaped(leader) = self
            && let Ok(leader) = Hold::open(leader)
        {
            // An odd number in the frame signals nothing; the kill that follows does.
            let _ = leader.signal(signal);
        }
    }

    /// A signal to a group reaches all of it at once, so nobody forks away from under it.
    pub(super) fn kill_group(self) {
        if let Self::Unreaped(leader) = self {
            kill_group(leader);
        }
    }

    /// Reaps it when it has ended: how it did.
    pub(super) fn reap(&mut self) -> Option<Ended> {
        if let Self::Unreaped(pid) = *self
            && let Ok(Some(ended)) = sys::reap(pid)
        {
            *self = Self::Reaped(ended);
        }
        match *self {
            Self::Unreaped(_) => None,
            Self::Reaped(ended) => Some(ended),
        }
    }
}

/// Of a number that is known to be still that of this group.
pub(super) fn kill_group(leader: u32) {
    if let Ok(leader) = i32::try_from(leader) {
        // The group can be empty but for a zombie.
        let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
    }
}
