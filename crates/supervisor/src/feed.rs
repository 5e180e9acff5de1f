//! [`Feed`]: every state change in order, from any number on, and how many were missed.
//!
//! The last [`KEPT`] events are kept for whoever comes late or comes back. Nobody who reads slowly holds up the loop:
//! what it was too slow for is a gap between two numbers, and it is told how wide that is.
use crate::handle::Shared;
use motorpool_vocab::Event;
use std::{collections::VecDeque, sync::Arc};
use tokio::sync::broadcast;

/// Events that are kept; who falls farther behind misses some.
pub(crate) const KEPT: usize = 1024;

/// What comes out of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The next event.
    Event(Event),
    /// So many events before the next one are not there any more.
    Missed(u64),
}

/// Where a feed begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// With the next event.
    Now,
    /// With the first event that is kept.
    Kept,
    /// With the event after this one. A number that was not given yet is one of an earlier run.
    Event(u64),
}

/// Every state change, in order.
#[derive(Debug)]
pub struct Feed {
    kept: VecDeque<Event>,
    live: broadcast::Receiver<Event>,
    /// The number of the next event.
    next: u64,
}

impl Feed {
    pub(crate) fn open(shared: &Arc<Shared>, since: Since) -> Self {
        // In this order: what is published meanwhile comes twice, and is told once.
        let live = shared.events.subscribe();
        let kept = shared.kept_events();
        let end = kept.back().map_or(1, |event| event.seq + 1);
        let first = kept.front().map_or(end, |event| event.seq);
        let next = match since {
            Since::Now => end,
            Since::Event(seq) if seq < end => seq + 1,
            Since::Kept | Since::Event(_) => first,
        };
        Self { kept, live, next }
    }

    /// What is there already; `None` when nothing more is kept.
    pub fn take_kept(&mut self) -> Option<News> {
        while let Some(event) = self.kept.front() {
            if event.seq > self.next {
                return Some(self.miss_until(event.seq));
            }
            let event = self.kept.pop_front()?;
            if event.seq == self.next {
                self.next += 1;
                return Some(News::Event(event));
            }
        }
        None
    }

    /// The next news; `None` when the pool is gone.
    pub async fn next(&mut self) -> Option<News> {
        loop {
            if let Some(news) = self.take_kept() {
                return Some(news);
            }
            match self.live.recv().await {
                Ok(event) => self.kept.push_back(event),
                // The next one's number tells how many.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }

    fn miss_until(&mut self, seq: u64) -> News {
        let missed = seq - self.next;
        self.next = seq;
        News::Missed(missed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::{EventKind, Now};

    fn publish(shared: &Arc<Shared>, seqs: std::ops::RangeInclusive<u64>) {
        seqs.for_each(|seq| shared.publish(Event { seq, at: Now::ZERO, kind: EventKind::Closing }));
    }

    fn seqs(feed: &mut Feed) -> Vec<Result<u64, u64>> {
        let read = |news| match news {
            News::Event(event) => Ok(event.seq),
            News::Missed(n) => Err(n),
        };
        std::iter::from_fn(|| feed.take_kept()).map(read).collect()
    }

    #[tokio::test]
    async fn a_feed_begins_where_it_is_wanted_and_goes_on_without_a_gap() {
        let (shared, _snapshots) = Shared::new("/logs".into());
        publish(&shared, 1..=5);
        assert_eq!(seqs(&mut Feed::open(&shared, Since::Kept)), [Ok(1), Ok(2), Ok(3), Ok(4), Ok(5)]);
        assert_eq!(seqs(&mut Feed::open(&shared, Since::Event(3))), [Ok(4), Ok(5)]);
        assert_eq!(seqs(&mut Feed::open(&shared, Since::Event(99))).len(), 5, "99 was of an earlier run");
        let mut feed = Feed::open(&shared, Since::Now);
        assert_eq!(seqs(&mut feed), []);
        publish(&shared, 6..=7);
        for seq in 6..=7 {
            let Some(News::Event(event)) = feed.next().await else { panic!("an event") };
            assert_eq!(event.seq, seq);
        }
    }

    #[tokio::test]
    async fn who_is_too_slow_is_told_how_many_it_missed() {
        let (shared, _snapshots) = Shared::new("/logs".into());
        let mut feed = Feed::open(&shared, Since::Now);
        let many = u64::try_from(KEPT).expect("few") * 2;
        publish(&shared, 1..=many);
        let missed = many - u64::try_from(KEPT).expect("few");
        assert_eq!(feed.next().await, Some(News::Missed(missed)));
        let Some(News::Event(event)) = feed.next().await else { panic!("an event") };
        assert_eq!(event.seq, missed + 1);
        let mut late = Feed::open(&shared, Since::Event(3));
        assert_eq!(late.take_kept(), Some(News::Missed(missed - 3)));
        assert_eq!(seqs(&mut late).len(), KEPT);
    }
}
