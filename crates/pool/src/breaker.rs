//! [`Breaker`]: how many failed starts in a row of time stop further ones for a while (supervisor.md §4).
//!
//! ```text
//!             three failures in 60 s                60 s                one more start
//!   Closed ───────────────────────────► Open ────────────► half-open ──────────────────► ready: Closed
//!      ▲                                 ▲                                   └─ failed ─► Open again
//!      └── ready, reset                  └─ nothing is started, who asks is told until when
//! ```
//!
//! * Only failures of children that were started count, and of those only such as may pass: what must fail again is
//!   held for that (`failure.rs`), and what is refused for want of room was never started.
//! * Half-open lets one start, because a key has one build at a time (P1).
use motorpool_vocab::Now;
use std::{collections::VecDeque, time::Duration};

/// When starts are given up for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerTerms {
    /// So many failed starts (3); 0: never.
    pub failures: u32,
    /// Within so long (60 s).
    pub within: Duration,
    /// Nothing is started for so long then (60 s).
    pub pause: Duration,
}

impl Default for BreakerTerms {
    fn default() -> Self {
        Self { failures: 3, within: Duration::from_mins(1), pause: Duration::from_mins(1) }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Breaker {
    failed_at: VecDeque<Now>,
    /// It was opened and nothing became ready since; until then nothing is started.
    open_until: Option<Now>,
}

/// What one more failure made of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Tripped {
    No,
    Yes,
}

impl Breaker {
    /// One more start failed.
    pub(crate) fn failed(&mut self, now: Now, terms: &BreakerTerms) -> Tripped {
        while self.failed_at.front().is_some_and(|at| now.since(*at) >= terms.within) {
            self.failed_at.pop_front();
        }
        self.failed_at.push_back(now);
        let many = u32::try_from(self.failed_at.len()).is_ok_and(|n| n >= terms.failures) || self.open_until.is_some();
        if terms.failures == 0 || !many {
            return Tripped::No;
        }
        self.failed_at.clear();
        self.open_until = Some(now.after(terms.pause));
        Tripped::Yes
    }

    /// Something became ready. What failed lately still counts: it may end before it served anybody.
    pub(crate) fn succeeded(&mut self) {
        self.open_until = None;
    }

    /// Until when nothing is started, if that is so.
    pub(crate) fn open_until(&self, now: Now) -> Option<Now> {
        self.open_until.filter(|until| now < *until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: BreakerTerms =
        BreakerTerms { failures: 3, within: Duration::from_mins(1), pause: Duration::from_mins(1) };

    fn at(seconds: u64) -> Now {
        Now::from_nanos(seconds * 1_000_000_000)
    }

    fn after(failures: &[u64]) -> (Breaker, Vec<Tripped>) {
        let mut breaker = Breaker::default();
        let tripped = failures.iter().map(|seconds| breaker.failed(at(*seconds), &TERMS)).collect();
        (breaker, tripped)
    }

    #[test]
    fn the_third_failure_within_a_minute_opens_it_for_a_minute() {
        let (breaker, tripped) = after(&[100, 130, 159]);
        assert_eq!(tripped, [Tripped::No, Tripped::No, Tripped::Yes]);
        assert_eq!(breaker.open_until(at(218)), Some(at(219)));
        assert_eq!(breaker.open_until(at(219)), None, "half-open");
    }

    #[test]
    fn failures_further_apart_never_open_it() {
        let (_, tripped) = after(&[100, 130, 160, 190, 220, 250]);
        assert_eq!(tripped, [Tripped::No; 6]);
    }

    #[test]
    fn half_open_one_failure_opens_it_again_and_a_success_closes_it() {
        let (mut breaker, _) = after(&[100, 101, 102]);
        assert_eq!(breaker.failed(at(500), &TERMS), Tripped::Yes);
        assert_eq!(breaker.open_until(at(559)), Some(at(560)));
        breaker.succeeded();
        assert_eq!(breaker.open_until(at(501)), None);
        assert_eq!(breaker.failed(at(561), &TERMS), Tripped::No);
    }

    #[test]
    fn without_a_number_it_never_opens() {
        let never = BreakerTerms { failures: 0, ..TERMS };
        let mut breaker = Breaker::default();
        assert!((0..9).all(|_| breaker.failed(at(1), &never) == Tripped::No));
    }
}
