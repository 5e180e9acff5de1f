//! Linux: a signalfd, the subreaper of all below, and the parent-death signal.
mod tree;

use super::means::Means;
use crate::{cgroup::Cgroup, protocol::Launch};
use nix::sys::{
    prctl,
    signal::{SigSet, Signal},
    signalfd::{SfdFlags, SignalFd},
};
use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd},
};
use tree::Tree;

pub(super) struct Linux {
    signals: SignalFd,
}

impl Means for Linux {
    type Tree = Tree;

    fn prepare(signals: SigSet) -> io::Result<Self> {
        prctl::set_child_subreaper(true)?;
        signals.thread_block()?;
        Ok(Self { signals: SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)? })
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }

    fn forget_wakes(&self) {
        while matches!(self.signals.read_signal(), Ok(Some(_))) {}
    }

    fn before_fork(&mut self, _: &Launch) -> io::Result<()> {
        Ok(())
    }

    fn in_engine(&mut self) -> nix::Result<()> {
        // A keeper that died before this line sends nothing; whoever forks looks at the parent after it.
        prctl::set_pdeathsig(Signal::SIGKILL)
    }

    fn tree(&mut self, engine: u32, launch: &Launch) -> Tree {
        // It waits for `go`, so that nothing of it can be outside.
        let group = launch.group.as_deref().and_then(|folder| Cgroup::written_down(folder, &launch.nonce));
        Tree::new(engine, &launch.nonce, group.filter(|group| group.make_for(engine).is_ok()))
    }

    fn over(&mut self) {}
}
