//! The guard: nothing outlives a keeper that is killed, though nobody else looks.
//!
//! While a test does not await, nobody hears that the keeper's socket has ended: what dies meanwhile, the guard has killed.
use crate::support::{House, is_alive, keeper_of, kill, line, marked, nonce_of, pid, rest, until};
use motorpool_devices::{ProcessFacts, observe_process, processes};
use motorpool_supervisor::{Engine, LaunchError, Polite};
use std::time::{Duration, Instant};

fn children(of: u32) -> Vec<ProcessFacts> {
    processes().into_iter().filter(|process| process.ppid == of).collect()
}

/// The keeper's other child.
fn guard_of(engine: &Engine) -> u32 {
    let others = children(keeper_of(engine)).into_iter().filter(|child| child.pid != engine.process().pid);
    let others: Vec<u32> = others.map(|child| child.pid).collect();
    let [guard] = others[..] else { panic!("one guard, not {others:?}") };
    guard
}

/// Waits without letting anybody else of us do anything.
fn blocked_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// An engine that starts a process which tells its number. It does not end with its keeper by itself: then nobody could
/// tell any more what descended from it.
async fn member(house: &House, script: &str) -> (Engine, u32) {
    let mut engine = house.run(&format!("{script}\nexec sleep 1000")).await;
    let member = pid(&mut engine).await;
    (engine, member)
}

#[tokio::test]
async fn it_ends_what_only_one_net_holds_when_the_keeper_is_killed() {
    let sleeper = "env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000'";
    for (net, script) in [
        ("the mark", "(setsid /bin/sh -c 'echo $$; exec /bin/sleep 1000' &)".to_owned()),
        ("descent", format!("setsid {sleeper} &")),
        ("the group", format!("({sleeper} &)")),
        // `timeout` makes a group of its own.
        ("the session", format!("({} &)", sleeper.replace("-i", "-i /usr/bin/timeout 1000"))),
    ] {
        let house = House::new();
        let (engine, member) = member(&house, &script).await;
        let (keeper, leader, guard) = (keeper_of(&engine), engine.process().pid, guard_of(&engine));
        let nonce = nonce_of(leader);
        let facts = observe_process(member).expect("it lives");
        assert_eq!(facts.pgid == leader, net == "the group", "{net}");
        assert_eq!(facts.sid == keeper, matches!(net, "the group" | "the session"), "{net}");
        assert_eq!(marked(&nonce).contains(&member), net == "the mark", "{net}");
        assert_eq!(facts.ppid == leader, net == "descent", "{net}");
        kill(keeper);
        blocked_until(net, || ![leader, member, guard].into_iter().any(is_alive));
        assert_eq!(marked(&nonce), [0; 0], "{net}");
    }
}

#[tokio::test]
async fn it_lets_nothing_run_when_the_keeper_dies_before_go() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran; sleep 1000")).await.expect("a shell");
    let (keeper, engine) = (blocked.keeper().pid, blocked.engine().pid);
    let all: Vec<u32> = children(keeper).into_iter().map(|child| child.pid).collect();
    assert!(all.len() == 2 && all.contains(&engine), "{all:?}");
    kill(keeper);
    blocked_until("both are dead", || !all.iter().any(|pid| is_alive(*pid)));
    assert!(!house.path("ran").exists());
    assert!(matches!(blocked.go().await, Err(LaunchError::KeeperLost)));
}

#[tokio::test]
async fn it_leaves_with_the_tree_and_before_the_end_is_told() {
    let house = House::new();
    let mut engine = house.run("echo ready; read x; exit 6").await;
    line(&mut engine).await;
    let (guard, keeper) = (guard_of(&engine), keeper_of(&engine));
    let is_out = || observe_process(guard).is_some_and(|facts| (facts.sid, facts.pgid) == (guard, guard));
    until("it is out of the session that it is to end", is_out).await;
    engine.ask_to_end(Polite::Line(String::new())).await;
    assert_eq!(rest(&mut engine).await.1.code, Some(6));
    assert_eq!(observe_process(guard), None, "reaped too");
    until("the keeper is reaped", || observe_process(keeper).is_none()).await;
}

#[tokio::test]
async fn one_that_is_killed_costs_nothing() {
    let house = House::new();
    let mut engine = house.run("echo ready; read x; exit 6").await;
    line(&mut engine).await;
    let guard = guard_of(&engine);
    kill(guard);
    until("it is reaped", || observe_process(guard).is_none()).await;
    assert!(is_alive(engine.process().pid));
    engine.ask_to_end(Polite::Line(String::new())).await;
    assert_eq!(rest(&mut engine).await.1.code, Some(6));
}

#[tokio::test]
async fn it_holds_no_file_of_the_keeper_so_that_the_end_of_that_is_heard_at_once() {
    let house = House::new();
    let mut engine = house.run("echo ready; read x").await;
    line(&mut engine).await;
    let guard = guard_of(&engine);
    // It takes a moment to let go of what it was forked with.
    let held = || {
        let fds = std::fs::read_dir(format!("/proc/{guard}/fd")).expect("ours").flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|path| !path.ends_with("null"))
            .collect::<Vec<_>>()
    };
    // Its pipe twice, and the engine's process.
    let is_its_own = |path: &std::path::PathBuf| {
        ["pipe:", "anon_inode:[pidfd]"].iter().any(|own| path.to_string_lossy().starts_with(own))
    };
    until("it holds its own alone", || held().len() == 3 && held().iter().all(is_its_own)).await;
}
