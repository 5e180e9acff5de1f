//! [`Turns`]: whether the loop ran all the time, told from the gaps between its turns.
//!
//! It turns at least once a second, so that a long gap means that it could not: the machine slept, or we were stopped. The
//! pool is told so before whatever came next, once a gap.
use motorpool_pool::Input;
use motorpool_vocab::Now;
use std::time::Duration;

/// A loop that did not turn for so long did not run.
const ASLEEP: Duration = Duration::from_secs(10);

/// When the loop turned last.
#[derive(Debug)]
pub(crate) struct Turns {
    last: Now,
}

impl Turns {
    pub(crate) const fn since(now: Now) -> Self {
        Self { last: now }
    }

    /// One more turn, and what the pool is to be told before its own news.
    #[must_use]
    pub(crate) fn turn(&mut self, now: Now) -> Option<Input> {
        let gap = now.since(self.last);
        self.last = now;
        (gap >= ASLEEP).then_some(Input::Woke)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_told_once_of_each_gap_that_is_longer_than_any_turn_takes() {
        let mut turns = Turns::since(Now::ZERO);
        let mut told = |secs| matches!(turns.turn(Now::ZERO.after(Duration::from_secs(secs))), Some(Input::Woke));
        let trace = [1, 2, 11, 21, 21, 22, 31, 8_000, 8_001, 8_011];
        let woke: Vec<u64> = trace.into_iter().filter(|secs| told(*secs)).collect();
        assert_eq!(woke, [21, 8_000, 8_011]);
    }
}
