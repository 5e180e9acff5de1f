//! [`Toll`]: how often the kernel killed for want of memory in all our control groups, as it was counted lately. What a
//! death is compared with, where the dead engine had no group of its own that counts.
//!
//! Not with the count at its start: whatever of ours died for want of memory since then would make a kill by hand look
//! like one of those. Not with the newest either: that may have been read between the death and its news.
use motorpool_vocab::Now;
use std::time::Duration;

/// From a death to its news it takes no longer: the tree is swept meanwhile.
const NEWS_WITHIN: Duration = Duration::from_secs(1);

/// The last two counts, at least [`NEWS_WITHIN`] apart.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Toll {
    older: Option<(Now, u64)>,
    newer: Option<(Now, u64)>,
}

impl Toll {
    /// Takes what was read; one that comes too soon after another tells nothing.
    pub(crate) fn count(&mut self, at: Now, kills: u64) {
        if self.newer.is_none_or(|(newer_at, _)| at.since(newer_at) >= NEWS_WITHIN) {
            self.older = self.newer.replace((at, kills));
        }
    }

    /// How many there were before a death whose news comes at `now`. `None`: nobody has counted for so long.
    pub(crate) fn before(&self, now: Now) -> Option<u64> {
        let old_enough = |(at, _): &(Now, u64)| now.since(*at) >= NEWS_WITHIN;
        self.newer.filter(old_enough).or(self.older).map(|(_, kills)| kills)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Now {
        Now::from_nanos(millis * 1_000_000)
    }

    #[test]
    fn a_death_is_compared_with_the_last_count_that_is_surely_of_before_it() {
        let mut toll = Toll::default();
        assert_eq!(toll.before(at(0)), None);
        toll.count(at(1000), 3);
        assert_eq!((toll.before(at(1500)), toll.before(at(2000))), (None, Some(3)));
        toll.count(at(6000), 4);
        assert_eq!(toll.before(at(6500)), Some(3), "read between the death and its news");
        assert_eq!(toll.before(at(7000)), Some(4));
    }

    #[test]
    fn a_count_in_quick_succession_does_not_push_out_the_one_before() {
        let mut toll = Toll::default();
        toll.count(at(1000), 3);
        toll.count(at(6000), 4);
        toll.count(at(6100), 4);
        assert_eq!(toll.before(at(6200)), Some(3));
    }
}
