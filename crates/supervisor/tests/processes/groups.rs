//! Control groups: where they can be made they hold what has lost every other mark; where not, the other nets do.
use crate::support::{House, is_alive, keeper_of, kill, line, nonce_of, open_again, pid, rest, signal};
use motorpool_devices::own_group;
use motorpool_supervisor::{Engine, Polite};
use nix::sys::signal::Signal;
use std::{
    fs,
    path::{Path, PathBuf},
};

/// Forked twice, in another session, without environment: once its keeper is dead, only a control group tells of it.
const STRAY: &str = "(setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' &); read x";

/// Where this machine lets us make control groups.
fn writable() -> Option<PathBuf> {
    let own = own_group(Path::new("/"))?;
    let probe = own.join(format!("motorpool-probe-{}", std::process::id()));
    let is_one = fs::create_dir(&probe).is_ok() && probe.join("cgroup.kill").exists();
    let _ = fs::remove_dir(&probe);
    is_one.then_some(own)
}

/// The control group of this engine, if it has one.
fn group_of(engine: &Engine) -> Option<PathBuf> {
    let folder = own_group(Path::new("/"))?.join(format!("motorpool-{}", nonce_of(engine.process().pid)));
    folder.exists().then_some(folder)
}

impl House {
    /// Whose control groups are made below this folder, or nowhere.
    pub(crate) fn with_groups_below(self, group: Option<PathBuf>) -> Self {
        Self { launcher: self.launcher.with_groups_below(group), ..self }
    }
}

#[tokio::test]
async fn an_engine_is_in_a_group_of_its_own_wherever_one_can_be_made_its_keeper_is_not_and_none_is_left() {
    let house = House::new();
    let mut engine = house.run("setsid sleep 1000 & echo $!; read x").await;
    let child = pid(&mut engine).await;
    let group = group_of(&engine);
    assert_eq!(group.is_some(), writable().is_some());
    if let Some(group) = &group {
        let members = motorpool_devices::group_members(group).expect("readable");
        assert!(members.contains(&child) && members.contains(&engine.process().pid), "{members:?}");
        assert!(!members.contains(&keeper_of(&engine)));
    }
    engine.kill().await;
    rest(&mut engine).await;
    assert!(!is_alive(child));
    assert!(group.is_none_or(|group| !group.exists()));
}

#[tokio::test]
async fn a_group_that_an_engine_divides_is_ended_and_removed_as_a_whole() {
    let house = House::new();
    let mut engine = house.run("read group; mkdir -p $group/a/b; sleep 1000 & echo $!; echo $! >$group/a/b/cgroup.procs; echo done; read x").await;
    let group = group_of(&engine);
    assert_eq!(group.is_some(), writable().is_some());
    let folder = group.clone().unwrap_or_else(|| house.path("no group here"));
    engine.ask_to_end(Polite::Line(folder.display().to_string())).await;
    let child = pid(&mut engine).await;
    assert_eq!(line(&mut engine).await, "done");
    let inside = motorpool_devices::group_members(&folder.join("a/b")).expect("readable");
    assert_eq!(inside.contains(&child), group.is_some(), "{inside:?}");
    engine.ask_to_end(Polite::Line(String::new())).await;
    rest(&mut engine).await;
    assert!(!is_alive(child));
    assert!(group.is_none() || !folder.exists(), "a group is left");
}

#[tokio::test]
async fn what_a_killed_keeper_loses_sight_of_is_ended_exactly_where_a_group_holds_it() {
    for group in [writable(), None] {
        let house = House::new().with_groups_below(group.clone());
        let mut engine = house.run(STRAY).await;
        let stray = pid(&mut engine).await;
        let folder = group_of(&engine);
        assert_eq!(folder.is_some(), group.is_some());
        kill(keeper_of(&engine));
        rest(&mut engine).await;
        assert_eq!(is_alive(stray), group.is_none());
        assert!(folder.is_none_or(|folder| !folder.exists()));
        if is_alive(stray) {
            kill(stray);
        }
    }
}

#[test]
fn what_a_dead_supervisor_and_a_dead_keeper_lost_sight_of_is_ended_by_the_next_where_a_group_holds_it() {
    for group in [writable(), None] {
        // All of the first supervisor ends with its runtime.
        let first = tokio::runtime::Runtime::new().expect("a runtime");
        let (state, stray, keeper, folder) = first.block_on(async {
            let house = House::new().with_groups_below(group.clone());
            let mut engine = house.run(STRAY).await;
            let (stray, keeper, folder) = (pid(&mut engine).await, keeper_of(&engine), group_of(&engine));
            // Frozen, so that it cannot do its work when we are gone.
            signal(keeper, Signal::SIGSTOP);
            (house.state, stray, keeper, folder)
        });
        drop(first);
        kill(keeper);
        while is_alive(keeper) {
            std::thread::yield_now();
        }
        assert!(is_alive(stray));
        assert_eq!(open_again(state.path()).settle().expect("writable"), []);
        assert_eq!(is_alive(stray), group.is_none());
        assert!(folder.is_none_or(|folder| !folder.exists()));
        if is_alive(stray) {
            kill(stray);
        }
    }
}

#[tokio::test]
async fn where_no_group_can_be_made_nothing_else_is_different() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for group in [None, Some(folder.path().to_owned()), Some(folder.path().join("absent"))] {
        let house = House::new().with_groups_below(group);
        let mut engine = house.run("setsid sleep 1000 & echo $!; echo ready; read x").await;
        let child = pid(&mut engine).await;
        assert_eq!(line(&mut engine).await, "ready");
        engine.kill().await;
        assert_eq!(rest(&mut engine).await.1.signal, Some(9));
        assert!(!is_alive(child));
        assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0, "a folder is no group, and none is left");
    }
}
