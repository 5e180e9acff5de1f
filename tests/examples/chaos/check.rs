//! What must hold after each cycle.
use motorpool_tests::e2e::{
    Daemon, House, Status, journal,
    processes::{Process, left_of, n_descriptors, zombies_of},
};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    time::{Duration, Instant},
};

/// What is on its way when all requests have ended: a stop, a reap, a reading of a card.
const COMES_TRUE_WITHIN: Duration = Duration::from_secs(40);
const PAUSE: Duration = Duration::from_millis(5);

/// Looks again until `look` finds nothing wrong.
async fn comes_true(mut look: impl AsyncFnMut() -> Result<(), String>) -> Result<(), String> {
    let until = Instant::now() + COMES_TRUE_WITHIN;
    loop {
        match look().await {
            Err(wrong) if Instant::now() >= until => return Err(wrong),
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(()) => return Ok(()),
        }
    }
}

async fn ps(daemon: &Daemon<'_>) -> Result<Status, String> {
    let shown = daemon.cli(&["ps", "--json"]).await;
    serde_json::from_str(&shown.stdout).map_err(|error| format!("ps --json: {error}: {shown:?}"))
}

/// The ledger is what its lines say, and its lines are what runs.
pub(crate) async fn ledger(house: &House, daemon: &Daemon<'_>) -> Result<(), String> {
    comes_true(async || {
        let status = ps(daemon).await?;
        let lines: u64 = status.engines.iter().map(|engine| engine.reserved_bytes).sum();
        let pools: u64 = status.pool.memory.iter().map(|memory| memory.committed_bytes).sum();
        if status.pool.committed_bytes != lines || pools != lines {
            let of = |engine: &motorpool_tests::e2e::Engine| format!("{} {}", engine.key, engine.reserved_bytes);
            let each: Vec<_> = status.engines.iter().map(of).collect();
            return Err(format!(
                "{} bytes are reserved, {pools} by pool of memory, and the lines say {lines}: {each:?}",
                status.pool.committed_bytes
            ));
        }
        let shown: BTreeSet<u32> = status.engines.iter().filter_map(|engine| engine.pid).collect();
        let left = left_of(house, Some(daemon.pid()));
        let keepers: BTreeSet<u32> = left.iter().filter(|p| p.parent == daemon.pid()).map(|p| p.pid).collect();
        let first = |process: &&Process| keepers.contains(&process.parent);
        let running: BTreeSet<u32> = left.iter().filter(first).map(|process| process.pid).collect();
        let missing: Vec<_> = shown.difference(&running).collect();
        // A stray that its keeper adopted is a child of it too.
        if missing.is_empty() && keepers.len() == shown.len() {
            return Ok(());
        }
        Err(format!("shown as running: {shown:?}; keepers {keepers:?} with {running:?}; all: {left:#?}"))
    })
    .await
}

/// What was before.
#[derive(Debug, Default)]
pub(crate) struct Before {
    /// How many descriptors the daemon may have.
    pub(crate) descriptors: usize,
    /// Control groups of earlier supervisors, of which the journal may tell no more.
    pub(crate) groups: Vec<PathBuf>,
}

/// With everything unloaded nothing is left of it.
pub(crate) async fn at_rest(house: &House, daemon: &Daemon<'_>, before: &Before) -> Result<(), String> {
    comes_true(async || {
        let status = ps(daemon).await?;
        if status.pool.committed_bytes != 0 {
            // What was stopped for a load in vain comes back by itself, and while it is admitted it cannot be unloaded.
            for engine in status.engines.iter().filter(|engine| engine.reserved_bytes > 0) {
                let model = engine.key.split(':').nth(1).unwrap_or_default();
                let path = format!("/api/motorpool/v1/models/{model}/unload");
                let _ = daemon.control().post(&path, &serde_json::json!({"mode": "force"})).await;
            }
            return Err(format!(
                "all is unloaded, and {} bytes are reserved: {status:#?}",
                status.pool.committed_bytes
            ));
        }
        let left = left_of(house, Some(daemon.pid()));
        let zombies = zombies_of(daemon.pid());
        if !left.is_empty() || !zombies.is_empty() {
            return Err(format!("left running: {left:#?}; not reaped: {zombies:#?}"));
        }
        let groups = journal::groups(&house.state("journal.jsonl"));
        if let Some(group) = groups.iter().chain(&before.groups).find(|group| group.exists()) {
            return Err(format!("a control group is left: {}", group.display()));
        }
        let n = n_descriptors(daemon.pid());
        if n > before.descriptors { Err(format!("{n} descriptors, {} before", before.descriptors)) } else { Ok(()) }
    })
    .await
}
