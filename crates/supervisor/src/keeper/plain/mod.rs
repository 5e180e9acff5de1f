//! What every Unix has: macOS's way to hold a tree. Compiled and tested on Linux too; nothing here is one system's own.
//!
//! ```text
//!                    ┌── pipe, nobody else holds its end ──► guard (a session of its own)
//!  supervisor ─────► keeper (leads a session)                  │ end of file: the keeper is no more
//!              socket  └── fork ──► engine (leads a group)     ▼
//!                                     └── its descendants ◄── kills all of them, then leaves
//! ```
//!
//! **S1**, three times over: the keeper ends the tree in order; a keeper that is killed lets go of the pipe, and the guard
//! ends the tree; the supervisor, or the next one, looks for the nonce. A guard that is killed alone costs nothing yet and is
//! not replaced. Keeper and guard bear the nonce themselves, so that what is frozen of them ends with the rest.
//!
//! What is weaker than on Linux: a process that at once leaves group and session, hides or clears its environment *and* has
//! lost its parent is nobody's to find. An engine may end by itself when its keeper is killed, since its input ends then:
//! what only descended from it has lost its parent. Between the look at a process and the signal to it lies the gap that `sys` describes.
mod guard;
mod tree;
mod wakes;

use super::means::Means;
use crate::protocol::Launch;
use guard::Guard;
use nix::sys::signal::SigSet;
use std::{io, os::fd::BorrowedFd};
use tree::{Net, Number, Tree};
use wakes::Wakes;

pub(super) struct Plain {
    wakes: Wakes,
    /// From right before the engine's fork to the end of its tree.
    guard: Option<Guard>,
}

impl Means for Plain {
    type Tree = Tree;

    fn prepare(signals: SigSet) -> io::Result<Self> {
        Ok(Self { wakes: Wakes::listen(signals)?, guard: None })
    }

    fn wakes(&self) -> BorrowedFd<'_> {
        self.wakes.interest()
    }

    fn forget_wakes(&self) {
        self.wakes.forget();
    }

    fn before_fork(&mut self, launch: &Launch) -> io::Result<()> {
        self.guard = Some(Guard::post(&launch.nonce)?);
        Ok(())
    }

    fn in_engine(&mut self) -> nix::Result<()> {
        // Whoever holds the pipe keeps the guard waiting.
        self.guard = None;
        Ok(())
    }

    fn tree(&mut self, engine: u32, launch: &Launch) -> Tree {
        if let Some(guard) = &mut self.guard {
            guard.watch_over(engine);
        }
        let spared = self.guard.as_ref().map(Guard::pid);
        let net = Net {
            keeper: Number::of(std::process::id()),
            leader: Some(Number::of(engine)),
            mark: launch.nonce.entry(),
        };
        Tree::new(engine, net, spared)
    }

    fn over(&mut self) {
        if let Some(guard) = self.guard.take() {
            guard.relieve();
        }
    }
}
