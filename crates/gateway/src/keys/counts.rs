//! What is counted for a key, and for an address that shows wrong ones. Time comes in as a value.
use crate::errors::Failure;
use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_mins(1);
/// Wrong keys that an address may show in a minute.
const MOST_WRONG: u32 = 10;
/// Addresses that are remembered; with more of them, all of a past minute go.
const MOST_ADDRESSES: usize = 4096;

/// Requests of one key.
#[derive(Debug, Default)]
pub(super) struct Counts(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    running: u32,
    minute: Window,
}

#[derive(Clone, Copy, Debug, Default)]
struct Window {
    since: Option<Instant>,
    n: u32,
}

/// One of the requests that a key may have at a time. Clones are the same one, which is free when the last of them is dropped.
#[derive(Clone, Debug)]
#[expect(dead_code, reason = "what it holds is let go by its drop")]
pub(crate) struct Place(Arc<Taken>);

#[derive(Debug)]
struct Taken(Arc<Counts>);

impl Drop for Taken {
    fn drop(&mut self) {
        let mut numbers = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        numbers.running = numbers.running.saturating_sub(1);
    }
}

impl Window {
    /// So many so far in this minute, and when it ends.
    fn at(&mut self, now: Instant) -> (u32, Duration) {
        let passed = self.since.map_or(MINUTE, |since| now.saturating_duration_since(since));
        if passed >= MINUTE {
            *self = Self { since: Some(now), n: 0 };
            return (0, MINUTE);
        }
        (self.n, MINUTE.saturating_sub(passed))
    }
}

impl Counts {
    pub(super) fn place(
        this: &Arc<Self>,
        (concurrent, per_minute): (Option<u32>, Option<u32>),
        now: Instant,
    ) -> Result<Place, Failure> {
        let mut numbers = this.0.lock().unwrap_or_else(PoisonError::into_inner);
        if concurrent.is_some_and(|most| numbers.running >= most) {
            return Err(limited("this key has as many requests at a time as it may have", MINUTE / 60));
        }
        let (n, left) = numbers.minute.at(now);
        if per_minute.is_some_and(|most| n >= most) {
            return Err(limited("this key has made as many requests in this minute as it may make", left));
        }
        numbers.minute.n = n.saturating_add(1);
        numbers.running = numbers.running.saturating_add(1);
        Ok(Place(Arc::new(Taken(Arc::clone(this)))))
    }
}

/// Wrong keys by address.
#[derive(Debug, Default)]
pub(super) struct Wrong(HashMap<IpAddr, Window>);

impl Wrong {
    pub(super) fn check(&mut self, peer: IpAddr, now: Instant) -> Result<(), Failure> {
        let Some(window) = self.0.get_mut(&peer) else { return Ok(()) };
        match window.at(now) {
            (n, left) if n >= MOST_WRONG => Err(limited("this address has shown too many wrong keys", left)),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&mut self, peer: IpAddr, now: Instant) {
        if self.0.len() >= MOST_ADDRESSES {
            self.0.retain(|_, window| window.since.is_some_and(|at| now.saturating_duration_since(at) < MINUTE));
        }
        let window = self.0.entry(peer).or_default();
        window.n = window.at(now).0.saturating_add(1);
    }
}

fn limited(why: &'static str, left: Duration) -> Failure {
    let seconds = u8::try_from(left.as_secs().max(1)).unwrap_or(60);
    Failure::RateLimited { why, seconds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_runs_at_a_time_is_given_back_and_a_minute_ends() {
        let (counts, start) = (Arc::new(Counts::default()), Instant::now());
        let place = |concurrent, per_minute, at| Counts::place(&counts, (concurrent, per_minute), at);
        let first = place(Some(1), None, start).expect("free");
        assert!(matches!(place(Some(1), None, start), Err(Failure::RateLimited { seconds: 1, .. })), "K2");
        let same = first.clone();
        drop(first);
        assert!(place(Some(1), None, start).is_err(), "K2: its engine works on");
        drop(same);
        drop(place(Some(1), Some(2), start).expect("given back"));
        let later = start + Duration::from_secs(20);
        assert!(matches!(place(None, Some(2), later), Err(Failure::RateLimited { seconds: 40, .. })), "K2");
        assert!(place(None, Some(2), start + MINUTE).is_ok());
    }

    #[test]
    fn wrong_keys_of_one_address_are_not_held_against_another_nor_for_longer_than_a_minute() {
        let (mut wrong, start) = (Wrong::default(), Instant::now());
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        (0..MOST_WRONG).for_each(|_| wrong.count(one, start));
        assert!(wrong.check(one, start).is_err() && wrong.check(other, start).is_ok(), "K3");
        assert!(wrong.check(one, start + MINUTE).is_ok());
    }
}
