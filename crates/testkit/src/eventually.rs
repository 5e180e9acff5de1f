//! Waiting for what another process will do, where no event tells.
use std::{future::Future, time::Duration};
use tokio::time::{Instant, sleep, timeout_at};

const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(10);

/// Asks `look` again and again until it sees something, and returns that.
///
/// # Panics
/// After 30 s without it. That is a bound on a broken test, not a measurement.
pub async fn eventually<T, F: Future<Output = Option<T>>>(what: &str, mut look: impl FnMut() -> F) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        // A look that hangs is a look in vain.
        if let Ok(Some(seen)) = timeout_at(until, look()).await {
            return seen;
        }
        assert!(Instant::now() < until, "waited {PATIENCE:?} in vain for: {what}");
        sleep(PAUSE).await;
    }
}
