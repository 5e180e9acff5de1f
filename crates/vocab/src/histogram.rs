//! [`Histogram`]: how often something took how long, counted in buckets.
use std::time::Duration;

/// Counts of times, by the first bound that they do not pass. Nothing in it wraps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram {
    bounds: &'static [Duration],
    /// One for each bound, and one for what passes all.
    counts: Vec<u64>,
    sum: Duration,
}

impl Histogram {
    /// An empty one with these upper bounds, which rise.
    pub fn new(bounds: &'static [Duration]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: Duration::ZERO }
    }

    /// Counts one that took so long.
    pub fn observe(&mut self, took: Duration) {
        let bucket = self.bounds.partition_point(|bound| *bound < took);
        self.counts[bucket] = self.counts[bucket].saturating_add(1);
        self.sum = self.sum.saturating_add(took);
    }

    /// How many took at most the bound, and more than the one before; the last is without a bound.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<Duration>, u64)> + '_ {
        let bounds = self.bounds.iter().copied().map(Some).chain([None]);
        bounds.zip(self.counts.iter().copied())
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    /// What all of them took.
    pub fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: &[Duration] = &[Duration::from_millis(1), Duration::from_millis(10)];

    #[test]
    fn a_time_is_counted_at_the_first_bound_that_it_does_not_pass() {
        let mut histogram = Histogram::new(BOUNDS);
        for micros in [0, 1000, 1001, 10_000, 10_001, 5_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let buckets: Vec<_> = histogram.buckets().collect();
        assert_eq!(buckets, [(Some(BOUNDS[0]), 2), (Some(BOUNDS[1]), 2), (None, 2)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, Duration::from_micros(5_022_002)));
        histogram.observe(Duration::MAX);
        assert_eq!(histogram.sum(), Duration::MAX);
    }
}
