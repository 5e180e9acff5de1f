//! A keeper killed at each step of its protocol: whoever started it hears of it, and nothing is left.
//!
//! ```text
//! intent ─ started ─ launch received ─ forked ─ born ─ go ─ running ─ asked to end ─ being ended
//! ```
use crate::support::{House, is_alive, keeper_of, kill, line, marked, nonce_of, open_again, pid, rest, signal, until};
use motorpool_devices::observe_process;
use motorpool_supervisor::{KeeperProgram, LaunchError, Polite};
use nix::{
    sys::{signal::Signal, stat::Mode},
    unistd::mkfifo,
};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Nothing bears a mark that this house has given, and each start has its end in the journal.
fn assert_nothing_left(house: &House) {
    let journal = house.journal();
    let nonces = journal.lines().filter_map(|line| line.split("\"nonce\":\"").nth(1)?.get(..32));
    for nonce in nonces {
        assert_eq!(marked(nonce), [0; 0]);
    }
    let count = |record: &str| journal.matches(&format!("\"record\":\"{record}\"")).count();
    assert_eq!(count("intent"), count("gone"), "{journal}");
}

/// The mark that was given last.
fn last_nonce(journal: &str) -> Option<&str> {
    journal.rsplit("\"nonce\":\"").next()?.get(..32).filter(|_| journal.contains("nonce"))
}

/// Our child with this mark.
fn keeper_with(nonce: &str) -> Option<u32> {
    let is_ours = |pid: &u32| observe_process(*pid).is_some_and(|process| process.ppid == std::process::id());
    marked(nonce).into_iter().find(is_ours)
}

#[tokio::test]
async fn one_that_dies_before_its_first_order_costs_a_start() {
    let dies = KeeperProgram { program: "/bin/sh".into(), args: ["-c", "kill -KILL $$"].map(Into::into).to_vec() };
    let house = House::with_keeper(dies);
    let failed = house.launcher.launch(house.script("sleep 1000")).await;
    assert!(matches!(failed, Err(LaunchError::KeeperLost)), "{failed:?}");
    assert_nothing_left(&house);
}

#[tokio::test]
async fn one_that_dies_with_its_order_in_hand_costs_a_start() {
    let house = House::new();
    // It opens the log before it forks; nobody reads this one, so it waits there.
    let log = house.path("log");
    mkfifo(&log, Mode::S_IRWXU).expect("made");
    let mut order = house.script("sleep 1000");
    order.log = Some(log);
    let launcher = house.launcher.clone();
    let start = tokio::spawn(async move { launcher.launch(order).await.map(drop) });
    let keeper = || keeper_with(last_nonce(&house.journal())?);
    until("it is started", || keeper().is_some()).await;
    kill(keeper().expect("just seen"));
    let failed = start.await.expect("no panic");
    assert!(matches!(failed, Err(LaunchError::KeeperLost)), "{failed:?}");
    assert_nothing_left(&house);
}

#[tokio::test]
async fn one_whose_engine_is_not_wanted_any_more_lets_nothing_run() {
    let house = House::new();
    // It waits there until somebody reads.
    let log = house.path("log");
    mkfifo(&log, Mode::S_IRWXU).expect("made");
    let mut order = house.script("touch ran; sleep 1000");
    order.log = Some(log.clone());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let launcher = house.launcher.clone();
    let start =
        tokio::spawn(async move { launcher.launch_unless(order, async { drop(stopped.await) }).await.map(drop) });
    until("it is started", || last_nonce(&house.journal()).and_then(keeper_with).is_some()).await;
    drop(stop);
    let _reads = tokio::fs::File::open(log).await.expect("it writes");
    let failed = start.await.expect("no panic");
    assert!(matches!(failed, Err(LaunchError::NotWanted)), "{failed:?}");
    assert!(!house.path("ran").exists());
    assert_nothing_left(&house);
}

#[tokio::test]
async fn one_that_dies_with_a_blocked_engine_lets_nothing_run() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran; sleep 1000")).await.expect("a shell");
    let (keeper, engine) = (blocked.keeper().pid, blocked.engine().pid);
    kill(keeper);
    let failed = blocked.go().await;
    assert!(matches!(failed, Err(LaunchError::KeeperLost)), "{failed:?}");
    until("it is dead", || !is_alive(engine)).await;
    assert!(!house.path("ran").exists());
}

#[tokio::test]
async fn one_that_is_frozen_with_a_blocked_engine_is_ended_by_the_next_supervisor_and_the_engine_never_runs() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran; sleep 1000")).await.expect("a shell");
    let (keeper, engine) = (blocked.keeper().pid, blocked.engine().pid);
    signal(keeper, Signal::SIGSTOP);
    let House { state, launcher } = house;
    drop((blocked, launcher));
    assert!(is_alive(keeper) && is_alive(engine));
    let path = state.path().to_owned();
    let settled = tokio::task::spawn_blocking(move || open_again(&path).settle()).await.expect("no panic");
    assert_eq!(settled.expect("writable"), []);
    assert!(!is_alive(keeper) && !is_alive(engine) && !state.path().join("ran").exists());
}

#[tokio::test]
async fn one_that_dies_after_the_polite_stop_leaves_nothing() {
    let house = House::new();
    let mut engine =
        house.run("trap 'echo heard' TERM; setsid sleep 1000 & echo $!; while :; do sleep 0.01; done").await;
    let grandchild = pid(&mut engine).await;
    let leader = engine.process().pid;
    engine.ask_to_end(Polite::Signal(15)).await;
    assert_eq!(line(&mut engine).await, "heard");
    kill(keeper_of(&engine));
    rest(&mut engine).await;
    assert!(!is_alive(leader) && !is_alive(grandchild));
    assert_nothing_left(&house);
}

#[tokio::test]
async fn one_that_dies_while_it_ends_its_tree_leaves_nothing() {
    let house = House::new();
    for _ in 0..8 {
        let mut engine = house.run("for i in 1 2 3 4 5 6 7 8; do setsid sleep 1000 & done; echo ready; wait").await;
        line(&mut engine).await;
        let (nonce, keeper) = (nonce_of(engine.process().pid), keeper_of(&engine));
        engine.kill().await;
        until("it began", || marked(&nonce).len() < 10).await;
        if is_alive(keeper) {
            kill(keeper);
        }
        rest(&mut engine).await;
        assert_eq!(marked(&nonce), [0; 0]);
    }
    assert_nothing_left(&house);
}

/// Kills every keeper that starts in this house, when it has been seen for `age`, until told to stop.
fn kill_keepers(journal: PathBuf, age: Duration, stop: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut killed = BTreeSet::new();
        while !stop.load(Ordering::Relaxed) {
            let text = std::fs::read_to_string(&journal).expect("a journal");
            let Some(pid) = last_nonce(&text).and_then(keeper_with) else { continue };
            if killed.insert(pid) {
                let until = Instant::now() + age;
                while Instant::now() < until {
                    std::hint::spin_loop();
                }
                if is_alive(pid) {
                    kill(pid);
                }
            }
        }
    })
}

#[tokio::test]
async fn one_that_dies_at_any_moment_of_a_start_leaves_nothing() {
    let house = House::new();
    let mut n_lost = 0;
    for age in (0..12).map(|n| Duration::from_micros(n * 400)) {
        let stop = Arc::new(AtomicBool::new(false));
        let killer = kill_keepers(house.path("journal.jsonl"), age, &stop);
        for _ in 0..4 {
            match house.launcher.launch(house.script("setsid sleep 1000 & sleep 1000")).await {
                // Killed later, or just missed.
                Ok(mut engine) => {
                    engine.kill().await;
                    rest(&mut engine).await;
                }
                Err(LaunchError::KeeperLost) => n_lost += 1,
                Err(other) => panic!("{other}"),
            }
        }
        stop.store(true, Ordering::Relaxed);
        killer.join().expect("no panic");
        assert_nothing_left(&house);
    }
    assert!(n_lost > 0, "no keeper was met while it started");
}
