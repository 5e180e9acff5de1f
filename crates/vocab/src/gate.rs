//! [`Gate`]: the atomic word that lets a request into a ready engine without asking the pool.
//!
//! One gate per spawn, made when the engine is ready and dropped with it. The word holds how many leases are
//! granted, whether the gate is closed, and whether tickets wait at it:
//!
//! ```text
//! bit 63: closed   bit 62: queued   bits 0..32: granted leases, never more than `width`
//!
//!            try_enter (anyone)              leave (the lease's drop)
//!   open ───────────────────────► granted+1 ────────────────────────► granted-1
//!    │ close_if_idle / close (pool only)
//!    ▼
//!   closed: nobody enters by themselves; the pool may still `grant`, and may `reopen`
//! ```
//!
//! Invariants: **G1** granted ≤ width. **G2** after `close_if_idle` answered [`CloseIfIdle::Closed`] nobody holds
//! a lease and nobody gets one but by the pool's `grant`. **G3** nobody enters past waiting tickets by themselves.
use crate::Vital;
#[cfg(loom)]
use loom::sync::atomic::{AtomicU64, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU64, Ordering};

const CLOSED: u64 = 1 << 63;
const QUEUED: u64 = 1 << 62;
const GRANTED: u64 = (1 << 32) - 1;

/// The door of one spawn. See the module's documentation.
#[derive(Debug)]
pub struct Gate {
    word: AtomicU64,
    width: u32,
    vital: Vital,
}

/// Whether somebody got in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum TryEnter {
    /// In: give it back with [`Gate::leave`], once.
    Entered,
    /// The engine drains or stops.
    Closed,
    /// Every slot is taken.
    Full,
    /// Tickets wait; only the pool lets the next one in.
    Queued,
}

/// What [`Gate::close_if_idle`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum CloseIfIdle {
    /// Nobody was in; the gate is closed now.
    Closed,
    /// So many are in; nothing changed.
    Busy(u32),
}

impl Gate {
    /// An open gate for `width` leases at a time.
    pub fn new(width: u32) -> Self {
        Self { word: AtomicU64::new(0), width, vital: Vital::new() }
    }

    /// How many leases there can be: the slots the process really has.
    pub fn width(&self) -> u32 {
        self.width
    }

    /// What requests behind it tell of its engine.
    pub fn vital(&self) -> &Vital {
        &self.vital
    }

    /// How many leases there are.
    pub fn granted(&self) -> u32 {
        granted_in(self.word.load(Ordering::Acquire))
    }

    /// Whether it is closed.
    pub fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Whether somebody waits for leases to end here: tickets at the gate, or a drain.
    pub fn is_awaited(&self) -> bool {
        self.word.load(Ordering::Acquire) & (CLOSED | QUEUED) != 0
    }

    /// The warm path: one compare-exchange when nobody contends.
    pub fn try_enter(&self) -> TryEnter {
        self.enter_unless(CLOSED | QUEUED)
    }

    /// The pool's own way in, past waiting tickets and past a closed gate; never past the width.
    pub fn grant(&self) -> TryEnter {
        self.enter_unless(0)
    }

    fn enter_unless(&self, barred: u64) -> TryEnter {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if word & barred & CLOSED != 0 {
                return TryEnter::Closed;
            }
            if word & barred & QUEUED != 0 {
                return TryEnter::Queued;
            }
            if granted_in(word) >= self.width {
                return TryEnter::Full;
            }
            match self.word.compare_exchange_weak(word, word + 1, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return TryEnter::Entered,
                Err(seen) => word = seen,
            }
        }
    }

    /// Gives one lease back. Called once for each entry, by the guard that holds it.
    pub fn leave(&self) {
        let before = self.word.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(granted_in(before) > 0, "G1: more leases came back than were granted");
    }

    /// Closes the gate if nobody is in, in one step.
    pub fn close_if_idle(&self) -> CloseIfIdle {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if granted_in(word) > 0 {
                return CloseIfIdle::Busy(granted_in(word));
            }
            match self.word.compare_exchange_weak(word, word | CLOSED, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return CloseIfIdle::Closed,
                Err(seen) => word = seen,
            }
        }
    }

    /// Closes the gate and says how many are still in.
    pub fn close(&self) -> u32 {
        granted_in(self.word.fetch_or(CLOSED, Ordering::AcqRel))
    }

    /// Opens it again, when a drain was given up.
    pub fn reopen(&self) {
        self.word.fetch_and(!CLOSED, Ordering::AcqRel);
    }

    /// From now on tickets wait here.
    pub fn mark_queued(&self) {
        self.word.fetch_or(QUEUED, Ordering::AcqRel);
    }

    /// No ticket waits here any more.
    pub fn clear_queued(&self) {
        self.word.fetch_and(!QUEUED, Ordering::AcqRel);
    }
}

fn granted_in(word: u64) -> u32 {
    (word & GRANTED) as u32
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn nobody_enters_a_full_a_queued_or_a_closed_gate() {
        let gate = Gate::new(1);
        assert_eq!(gate.try_enter(), TryEnter::Entered);
        assert_eq!(gate.try_enter(), TryEnter::Full);
        assert_eq!(gate.grant(), TryEnter::Full);
        gate.leave();
        gate.mark_queued();
        assert_eq!(gate.try_enter(), TryEnter::Queued);
        assert_eq!(gate.grant(), TryEnter::Entered);
        gate.leave();
        gate.clear_queued();
        assert_eq!(gate.close(), 0);
        assert_eq!(gate.try_enter(), TryEnter::Closed);
        assert_eq!(gate.grant(), TryEnter::Entered);
        gate.leave();
        gate.reopen();
        assert_eq!(gate.try_enter(), TryEnter::Entered);
    }

    #[test]
    fn a_busy_gate_is_not_closed_by_an_idle_check() {
        let gate = Gate::new(2);
        assert_eq!(gate.try_enter(), TryEnter::Entered);
        assert_eq!(gate.close_if_idle(), CloseIfIdle::Busy(1));
        assert!(!gate.is_closed());
        gate.leave();
        assert_eq!(gate.close_if_idle(), CloseIfIdle::Closed);
        assert!(gate.is_closed());
    }
}

#[cfg(all(test, loom))]
mod interleavings {
    use super::*;
    use loom::{sync::Arc, thread};

    #[test]
    fn an_idle_close_and_an_entry_never_both_succeed() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1));
            let other = Arc::clone(&gate);
            let enters = thread::spawn(move || other.try_enter());
            let closed = gate.close_if_idle();
            let entered = enters.join().expect("no panic");
            let both = closed == CloseIfIdle::Closed && entered == TryEnter::Entered;
            assert!(!both, "G2");
            assert_eq!(gate.granted(), u32::from(entered == TryEnter::Entered));
        });
    }

    #[test]
    fn two_entries_and_a_grant_never_pass_the_width() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(2));
            let others: Vec<_> = (0..2)
                .map(|_| {
                    let gate = Arc::clone(&gate);
                    thread::spawn(move || gate.try_enter() == TryEnter::Entered)
                })
                .collect();
            let ours = gate.grant() == TryEnter::Entered;
            let n = others.into_iter().map(|t| u32::from(t.join().expect("no panic"))).sum::<u32>() + u32::from(ours);
            assert_eq!((n, gate.granted()), (2, 2), "G1");
        });
    }

    #[test]
    fn a_drain_sees_the_last_lease_leave() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1));
            assert_eq!(gate.try_enter(), TryEnter::Entered);
            let other = Arc::clone(&gate);
            let leaves = thread::spawn(move || other.leave());
            let still_in = gate.close();
            leaves.join().expect("no panic");
            assert!(still_in <= 1 && gate.granted() == 0 && gate.is_closed());
            assert_eq!(gate.try_enter(), TryEnter::Closed, "G2");
        });
    }

    #[test]
    fn who_leaves_a_gate_that_closes_was_not_counted_or_knows_that_somebody_waits() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1));
            assert_eq!(gate.try_enter(), TryEnter::Entered);
            let other = Arc::clone(&gate);
            let leaves = thread::spawn(move || {
                other.leave();
                other.is_awaited()
            });
            let still_in = gate.close();
            let knows = leaves.join().expect("no panic");
            assert!(still_in == 0 || knows, "nobody would tell the pool in time");
        });
    }

    #[test]
    fn nobody_passes_a_waiting_ticket() {
        loom::model(|| {
            let gate = Arc::new(Gate::new(1));
            assert_eq!(gate.try_enter(), TryEnter::Entered);
            gate.mark_queued();
            let other = Arc::clone(&gate);
            let late = thread::spawn(move || other.try_enter());
            gate.leave();
            assert_ne!(late.join().expect("no panic"), TryEnter::Entered, "G3");
            assert_eq!(gate.grant(), TryEnter::Entered);
        });
    }
}
