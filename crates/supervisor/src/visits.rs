//! What is told by those who enter ready engines by themselves, and by all who leave: [`Visits`].
//!
//! A word to the loop's inbox wakes it. Two for each request would cost more than the request's own way through here, for
//! news that the pool needs soon, not at once. So words are left here; the first one rings, and while more keep coming the
//! loop looks by itself every [`LOOKS_EVERY`]:
//!
//! ```text
//!          a word: rings                       a look finds words
//!   quiet ───────────────► watched ──────────────────────────────┐
//!     ▲                      │  ▲ └── a word: lies there; urgent: rings
//!     └──────────────────────┘  └────────────────────────────────┘
//!        a look finds none
//! ```
//!
//! **V1** A word is heard within [`LOOKS_EVERY`], and before any post that was sent after it: the loop looks before each
//! post that it takes. **V2** A word somebody may be waiting for rings in any state.
use motorpool_pool::Input;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::sync::Notify;

/// The longest that a word lies unheard.
pub(crate) const LOOKS_EVERY: Duration = Duration::from_millis(10);

/// Words for the loop that do not wake it each.
#[derive(Debug, Default)]
pub(crate) struct Visits {
    left: Mutex<Left>,
    bell: Notify,
}

#[derive(Debug, Default)]
struct Left {
    words: Vec<Input>,
    watched: bool,
}

/// Whether somebody may be waiting for a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    Soon,
    AtOnce,
}

impl Visits {
    /// Leaves a word.
    pub(crate) fn tell(&self, word: Input, haste: Haste) {
        let mut left = self.left.lock();
        left.words.push(word);
        let was_watched = std::mem::replace(&mut left.watched, true);
        drop(left);
        if !was_watched || haste == Haste::AtOnce {
            self.bell.notify_one();
        }
    }

    /// The words since the last look, in their order. One that finds none is the last until it rings again.
    pub(crate) fn look(&self) -> Vec<Input> {
        let mut left = self.left.lock();
        left.watched = !left.words.is_empty();
        std::mem::take(&mut left.words)
    }

    /// Whether the loop is to look by itself.
    pub(crate) fn are_watched(&self) -> bool {
        self.left.lock().watched
    }

    /// Returns when it rings.
    pub(crate) async fn ring(&self) {
        self.bell.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::RequestId;
    use motorpool_vocab::Spawn;
    use std::{
        pin::pin,
        task::{Context, Waker},
    };

    fn word(n: u64) -> Input {
        Input::Left { id: RequestId(n), spawn: Spawn(1) }
    }

    fn ids(words: &[Input]) -> Vec<u64> {
        let id = |word: &Input| match word {
            Input::Left { id, .. } => id.0,
            _ => panic!("only these were told"),
        };
        words.iter().map(id).collect()
    }

    /// Whether it has rung since it was last asked.
    fn rings(visits: &Visits) -> bool {
        pin!(visits.ring()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn the_first_word_rings_and_those_behind_it_are_found_by_looking() {
        let visits = Visits::default();
        assert!(!rings(&visits) && !visits.are_watched());
        visits.tell(word(1), Haste::Soon);
        assert!(rings(&visits) && visits.are_watched());
        visits.tell(word(2), Haste::Soon);
        assert!(!rings(&visits));
        assert_eq!(ids(&visits.look()), [1, 2]);
        visits.tell(word(3), Haste::Soon);
        assert!(!rings(&visits) && visits.are_watched(), "it is still looked for");
        assert_eq!(ids(&visits.look()), [3]);
        assert_eq!(ids(&visits.look()), [0_u64; 0]);
        assert!(!visits.are_watched());
        visits.tell(word(4), Haste::Soon);
        assert!(rings(&visits), "nobody looks any more");
    }

    #[test]
    fn a_word_that_somebody_waits_for_rings_in_any_state() {
        let visits = Visits::default();
        visits.tell(word(1), Haste::Soon);
        assert!(rings(&visits));
        visits.tell(word(2), Haste::AtOnce);
        assert!(rings(&visits), "V2");
        assert_eq!(ids(&visits.look()), [1, 2]);
    }
}
