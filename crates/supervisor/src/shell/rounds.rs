//! What is done beside the loop now and then, and ends with it.
use super::HEARTBEAT;
use crate::{
    handle::{Post, Shared},
    rotate::remove_unused,
};
use motorpool_vocab::Snapshot;
use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::{mpsc, watch},
    task::spawn_blocking,
    time::{Instant, interval, sleep},
};

/// How often logs are looked through.
const A_DAY: Duration = Duration::from_hours(24);

/// Sends the loop something to measure how far behind it is.
pub(super) async fn echo(inbox: mpsc::WeakUnboundedSender<Post>) {
    loop {
        sleep(HEARTBEAT).await;
        let Some(inbox) = inbox.upgrade() else { return };
        let _ = inbox.send(Post::Echo { sent: Instant::now() });
    }
}

/// Logs of engines that are not started any more go by time, at once and each day.
pub(super) async fn remove_old_logs(shared: Arc<Shared>, snapshots: watch::Receiver<Arc<Snapshot>>) {
    let mut days = interval(A_DAY);
    loop {
        days.tick().await;
        let living = {
            let snapshot = snapshots.borrow();
            let with_child = snapshot.entries.iter().filter(|entry| entry.spawn.is_some());
            with_child.map(|entry| shared.log_path(&entry.key)).collect()
        };
        let shared = Arc::clone(&shared);
        let _ = spawn_blocking(move || remove_unused(shared.logs(), &living, SystemTime::now())).await;
    }
}
