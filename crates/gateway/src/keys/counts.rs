//! What is counted for a key, and for an address that shows wrong ones. Time comes in as a value.
use crate::errors::Failure;
use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_mins(1);
/// Wrong keys that an address may show in a minute.
const MOST_WRONG: u32 = 10;
/// Addresses that are remembered; with more of them, all of a past minute go, and then any one.
const MOST_ADDRESSES: usize = 4096;
/// Those of a past minute are looked for no more often: a flood would have all of them looked at for each of its own.
const SWEEP_EVERY: Duration = Duration::from_secs(1);

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
pub(super) struct Wrong {
    by_address: HashMap<IpAddr, Window>,
    swept_at: Option<Instant>,
}

impl Wrong {
    pub(super) fn check(&mut self, peer: IpAddr, now: Instant) -> Result<(), Failure> {
        let Some(window) = self.by_address.get_mut(&counted_as(peer)) else { return Ok(()) };
        match window.at(now) {
            (n, left) if n >= MOST_WRONG => Err(limited("this address has shown too many wrong keys", left)),
            _ => Ok(()),
        }
    }

    pub(super) fn count(&mut self, peer: IpAddr, now: Instant) {
        let peer = counted_as(peer);
        if self.by_address.len() >= MOST_ADDRESSES && !self.by_address.contains_key(&peer) {
            self.make_room(now);
        }
        let window = self.by_address.entry(peer).or_default();
        window.n = window.at(now).0.saturating_add(1);
    }

    fn make_room(&mut self, now: Instant) {
        let is_past = |at: Option<Instant>, span| at.is_none_or(|at| now.saturating_duration_since(at) >= span);
        if is_past(self.swept_at, SWEEP_EVERY) {
            self.swept_at = Some(now);
            self.by_address.retain(|_, window| !is_past(window.since, MINUTE));
        }
        if self.by_address.len() >= MOST_ADDRESSES {
            // In a map's order, which is secret: whoever floods cannot say whom it has forgotten.
            let any = self.by_address.keys().next().copied();
            any.and_then(|any| self.by_address.remove(&any));
        }
    }
}

/// Whose count it is: one customer of an IPv6 network has 64 bits of addresses at least.
fn counted_as(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
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

    #[test]
    fn a_flood_of_addresses_is_not_remembered_whole_and_a_network_of_version_six_is_one_of_them() {
        let (mut wrong, start) = (Wrong::default(), Instant::now());
        for n in 0..10_000_u32 {
            wrong.count(IpAddr::from((0x0a00_0000 + n).to_be_bytes()), start);
            assert!(wrong.by_address.len() <= MOST_ADDRESSES);
        }
        let later = start + MINUTE;
        wrong.count(IpAddr::from([192, 168, 0, 1]), later);
        assert_eq!(wrong.by_address.len(), 1, "those of a past minute are gone");

        let of = |network: u16, host: u16| IpAddr::from([0x2001, 0xdb8, 0, network, 0, 0, 0, host]);
        (0..10).for_each(|host| wrong.count(of(1, host), later));
        assert!(wrong.check(of(1, 99), later).is_err() && wrong.check(of(2, 1), later).is_ok(), "K3");
        // An address of version four is none of those that begin alike.
        let mapped = |last: u8| IpAddr::from(std::net::Ipv4Addr::from([10, 9, 9, last]).to_ipv6_mapped());
        (0..10).for_each(|_| wrong.count(mapped(1), later));
        assert!(
            wrong.check(IpAddr::from([10, 9, 9, 1]), later).is_err() && wrong.check(mapped(2), later).is_ok(),
            "K3"
        );
    }
}
