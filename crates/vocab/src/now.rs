//! [`Now`]: a point in time as pure crates see it.
use std::time::Duration;

/// Nanoseconds of a clock that counts suspend (`CLOCK_BOOTTIME`). Only the shell reads that clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Now(u64);

impl Now {
    /// The beginning of the clock.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` nanoseconds after the beginning of the clock.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the beginning of the clock.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The point `within` later, stopping at the end of the clock (584 years).
    #[must_use]
    pub fn after(self, within: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(within.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time passed since `earlier`, zero when that lies ahead.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_never_runs_backwards_or_over() {
        let at = Now::from_nanos(5);
        assert_eq!(at.since(Now::from_nanos(9)), Duration::ZERO);
        assert_eq!(at.after(Duration::MAX), Now::from_nanos(u64::MAX));
        assert_eq!(at.after(Duration::from_nanos(7)).since(at), Duration::from_nanos(7));
    }
}
