//! Figures of samples and of processes.
use super::BenchError;
use motorpool_devices::{observe_cpu_time, observe_memory};
use std::{io, time::Duration};

/// The middle one, the lower of two; zero of none.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len().saturating_sub(1) / 2).copied().unwrap_or_default()
}

/// The time that `per_mille` of these did not pass, in microseconds; zero of none.
pub(crate) fn percentile_us(times: &mut [Duration], per_mille: usize) -> f64 {
    times.sort_unstable();
    let at = (times.len().saturating_sub(1) * per_mille).div_ceil(1000);
    times.get(at).map_or(0.0, |time| us(*time))
}

/// In microseconds.
pub(crate) fn us(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// In milliseconds.
pub(crate) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A process that is watched from outside.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watched(u32);

impl Watched {
    pub(crate) fn new(pid: u32) -> Self {
        Self(pid)
    }

    /// The processor time that all its threads took so far, theirs and the kernel's for them.
    pub(crate) fn cpu(self) -> Result<Duration, BenchError> {
        observe_cpu_time(self.0).ok_or_else(unread)
    }

    /// What of it lies in memory, in KiB.
    pub(crate) fn resident_kib(self) -> Result<u64, BenchError> {
        let memory = observe_memory(self.0).ok_or_else(unread)?;
        Ok(memory.anonymous.saturating_add(memory.file).get() / 1024)
    }
}

fn unread() -> BenchError {
    BenchError::Prepare(io::Error::other("the process is gone, or not ours to look into"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_percentiles_are_members_of_what_was_measured() {
        assert_eq!(median(&[3.0, 1.0, 2.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]).to_bits(), 2.0_f64.to_bits());
        assert_eq!(median(&[]).to_bits(), 0.0_f64.to_bits());
        let mut times: Vec<_> = (1..=100).rev().map(Duration::from_micros).collect();
        for (per_mille, want) in [(0, 1.0), (500, 51.0), (990, 100.0), (1000, 100.0)] {
            assert!((percentile_us(&mut times, per_mille) - want).abs() < 0.01, "{per_mille}");
        }
    }

    #[test]
    fn a_process_that_works_takes_time_and_memory() {
        let own = Watched::new(std::process::id());
        let before = own.cpu().expect("we live");
        let mut sum = 0_u64;
        while own.cpu().expect("we live").saturating_sub(before) < Duration::from_millis(1) {
            sum = sum.wrapping_add(1);
        }
        assert!(own.resident_kib().expect("we live") > 1000, "{sum}");
    }
}
