//! [`Means`]: what an operating system gives a keeper to hold a tree by.
//!
//! | | [`Linux`](super::linux) | [`Plain`](super::plain), as on macOS |
//! | --- | --- | --- |
//! | a child's end wakes the keeper | signalfd | a handler writes to a pipe |
//! | the keeper is killed | the kernel kills the engine's first process, the supervisor the rest | the guard, a second process, kills the tree; the supervisor too |
//! | orphans | are the keeper's: it is their subreaper | are those of the system's first process, which reaps them |
//! | the tree is | control group, process group, descent, nonce | process group, session, descent, nonce |
//! | nothing is left | the keeper has no child any more | twice nobody was found |
//!
//! The second needs nothing but what every Unix has and a list of processes, so on Linux it is compiled too and its
//! tests run there.
use super::leader::Leader;
use crate::{protocol::Launch, sys::Ended};
use nix::sys::signal::SigSet;
use std::{io, os::fd::BorrowedFd};

pub(super) trait Means: Sized {
    type Tree: Tree;

    /// Makes this process, which leads its session by now, a keeper that hears none of `signals`.
    fn prepare(signals: SigSet) -> io::Result<Self>;

    /// What can be read from when a child has ended.
    fn wakes(&self) -> BorrowedFd<'_>;

    /// Reads it empty: the state of the children says what happened.
    fn forget_wakes(&self);

    /// Right before the engine's process is forked.
    fn before_fork(&mut self, launch: &Launch) -> io::Result<()>;

    /// In the engine's process, right after.
    fn in_engine(&mut self) -> nix::Result<()>;

    /// The engine's process is forked, waits, and leads a group of its own.
    fn tree(&mut self, engine: u32, launch: &Launch) -> Self::Tree;

    /// Nothing of the tree is left.
    fn over(&mut self);
}

/// Everything that belongs to the engine, and how it is brought to an end.
pub(super) trait Tree {
    /// The engine's first process.
    fn leader(&self) -> &Leader;

    /// How many of it the kernel killed for want of memory; `None`: nobody counted.
    fn oom_kills(&self) -> Option<u64>;

    /// Kills and reaps what it finds.
    fn sweep(&mut self) -> Swept;
}

pub(super) enum Swept {
    /// Look again.
    Remains,
    /// Nothing is left, and this is how the first process ended.
    Over(Ended),
}
