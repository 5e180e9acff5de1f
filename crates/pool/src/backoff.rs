//! [`Backoff`]: how long a key whose last starts failed stops nobody for its next one.
//!
//! 1, 2, 4 … 60 s after each failure in a row, less up to a quarter by jitter, so that several do not come back at
//! once. It protects others only: a start for which there is room is tried at any time.
use motorpool_vocab::Now;
use std::time::Duration;

const LONGEST: Duration = Duration::from_mins(1);

/// What failed starts cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backoff {
    failures: u32,
    until: Now,
}

impl Backoff {
    /// One more start failed. `jitter` is any number.
    pub(crate) fn failed(&mut self, now: Now, jitter: u64) {
        let whole = Duration::from_secs(1 << self.failures.min(6)).min(LONGEST);
        let less = whole * u32::try_from(jitter % 251).unwrap_or(0) / 1000;
        self.failures = self.failures.saturating_add(1);
        self.until = now.after(whole.saturating_sub(less));
    }

    /// A start succeeded.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// Whether nobody may be stopped yet.
    pub(crate) fn holds(&self, now: Now) -> bool {
        now < self.until
    }

    /// Until when.
    pub(crate) fn until(&self) -> Now {
        self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_in_a_row_doubles_it_up_to_a_minute_and_a_success_ends_it() {
        let (now, mut backoff) = (Now::from_nanos(7), Backoff::default());
        let waits: Vec<u64> = (0..9)
            .map(|_| {
                backoff.failed(now, 0);
                backoff.until().since(now).as_secs()
            })
            .collect();
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        backoff.succeeded();
        assert!(!backoff.holds(now));
    }

    #[test]
    fn jitter_takes_a_quarter_at_most() {
        let (now, mut backoff) = (Now::from_nanos(7), Backoff::default());
        backoff.failed(now, 250);
        assert_eq!(backoff.until().since(now), Duration::from_millis(750));
        assert!(backoff.holds(now));
        backoff.failed(now, u64::MAX);
        assert!(backoff.until().since(now) >= Duration::from_millis(1500));
    }
}
