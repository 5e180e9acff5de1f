//! [`Looks`]: threads that look at programs and model files, of which only so many may hang at a time.
//!
//! A file system that does not answer keeps the thread that asks it until it answers or the machine restarts. The pool
//! gives such a look up after a while and begins another for the next request; here the threads that are lost so are
//! bounded, and whoever finds all of them taken is told so instead of taking one more.
use std::{sync::Arc, time::Duration};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

/// So many looks at a time; a wedged mount takes no more threads.
const MOST: usize = 16;
/// Whoever finds all of them taken waits so long for one.
const WAIT_WITHIN: Duration = Duration::from_mins(1);

/// The threads.
#[derive(Clone, Debug)]
pub(crate) struct Looks {
    free: Arc<Semaphore>,
    wait_within: Duration,
}

/// Why nothing was seen.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoLook {
    #[error("{MOST} looks at files do not come to their end, and no more are begun")]
    AllTaken,
    #[error("the look broke off")]
    BrokeOff(#[source] tokio::task::JoinError),
}

impl Default for Looks {
    fn default() -> Self {
        Self { free: Arc::new(Semaphore::new(MOST)), wait_within: WAIT_WITHIN }
    }
}

impl Looks {
    /// What `work` gives on a thread that may block.
    pub(crate) async fn at<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, NoLook> {
        let free = Arc::clone(&self.free).acquire_owned();
        let Ok(Ok(place)) = timeout(self.wait_within, free).await else { return Err(NoLook::AllTaken) };
        let looked = spawn_blocking(move || {
            // Given back by the thread, not by whoever waits for it: he may have left.
            let _place = place;
            work()
        });
        looked.await.map_err(NoLook::BrokeOff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[tokio::test]
    async fn looks_that_hang_take_so_many_threads_and_no_more_and_what_comes_back_is_free_again() {
        let looks = Looks { wait_within: Duration::ZERO, ..Looks::default() };
        let (begun, n_begun) = channel();
        let gates: Vec<_> = (0..MOST)
            .map(|_| {
                let (looks, begun, (gate, hangs)) = (looks.clone(), begun.clone(), channel::<()>());
                tokio::spawn(async move {
                    let hang = move || (begun.send(()), hangs.recv());
                    looks.at(hang).await.map(drop)
                });
                gate
            })
            .collect();
        let all = tokio::task::spawn_blocking(move || n_begun.iter().take(MOST).count());
        assert_eq!(all.await.expect("no panic"), MOST);
        assert!(matches!(looks.at(|| ()).await, Err(NoLook::AllTaken)));
        drop(gates);
        let patient = Looks { wait_within: Duration::from_mins(9), ..looks };
        assert!(patient.at(|| ()).await.is_ok());
    }

    #[tokio::test]
    async fn a_look_that_nobody_waits_for_any_more_keeps_its_place_until_its_thread_is_free() {
        let looks = Looks::default();
        let (gate, hangs) = channel::<()>();
        let (begun, begins) = tokio::sync::oneshot::channel();
        let hung = tokio::spawn({
            let looks = looks.clone();
            async move { looks.at(move || (begun.send(()), hangs.recv())).await.map(drop) }
        });
        begins.await.expect("it begins");
        hung.abort();
        assert!(hung.await.is_err_and(|error| error.is_cancelled()));
        assert_eq!(looks.free.available_permits(), MOST - 1);
        drop(gate);
        let _all = looks.free.acquire_many(u32::try_from(MOST).expect("few")).await.expect("open");
    }
}
