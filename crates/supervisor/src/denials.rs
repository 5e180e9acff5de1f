//! The last denials with their proof, for whoever asks later: [`Denied`].
use motorpool_pool::Denial;
use std::{collections::VecDeque, time::SystemTime};

/// Denials that are kept.
const KEPT: usize = 64;

/// A refused build, and when that was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied {
    /// By the clock on the wall.
    pub at: SystemTime,
    /// Its arithmetic.
    pub denial: Denial,
}

/// The last ones, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Denials(VecDeque<Denied>);

impl Denials {
    pub(crate) fn keep(&mut self, denied: Denied) {
        if self.0.len() == KEPT {
            self.0.pop_front();
        }
        self.0.push_back(denied);
    }

    /// The newest first.
    pub(crate) fn newest(&self) -> Vec<Denied> {
        self.0.iter().rev().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{Excess, Host, Proof, Which};
    use motorpool_vocab::{Bytes, Claim};
    use std::time::{Duration, UNIX_EPOCH};

    #[test]
    fn only_the_latest_are_kept_and_the_newest_is_first() {
        let excess = Excess { would_commit: Bytes::gib(9), bound: Bytes::gib(8), which: Which::Total };
        let proof = Proof { claim: Claim::private(Bytes::gib(9)), excess };
        let denial = Denial::new("llama-server:m:0".parse().expect("a key"), proof, &Host::default().bounds());
        let mut denials = Denials::default();
        for n in 0..100 {
            denials.keep(Denied { at: UNIX_EPOCH + Duration::from_secs(n), denial: denial.clone() });
        }
        let seconds = |denied: &Denied| denied.at.duration_since(UNIX_EPOCH).expect("later").as_secs();
        let kept: Vec<u64> = denials.newest().iter().map(seconds).collect();
        assert_eq!(kept, (36..100).rev().collect::<Vec<_>>());
    }
}
