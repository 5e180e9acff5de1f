//! What engines hold of sessions and outlives them (supervisor.md §7): what goes wrong there costs time, never a request.
use crate::support::assert_serves;
use http::{Request, header};
use motorpool_testkit::{Behaviour, State, Switch, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    talk::{CHAT, chat},
};
use std::{fs, path::PathBuf};

const WRITTEN: &str = "the context of a session is written";
const NOT_WRITTEN: &str = "the context of a session could not be written";
const BACK: &str = "the context of a session is read back";
const NOT_BACK: &str = "the context of a session could not be read back";

/// Model `a`, whose engine has this to say of its slots' files, and little time to stop.
fn house(state: State) -> House {
    let mut house = House::new();
    house.fake_with("a", &Behaviour { state, ..Behaviour::default() }, "slots = 2\n");
    house.set("stop.polite", "300ms");
    house
}

fn sized(bytes: u64) -> State {
    State { bytes, ..State::default() }
}

/// A request of a session, answered.
async fn turn(daemon: &Daemon<'_>, session: &str) {
    let request = Request::post(CHAT)
        .header(header::HOST, "localhost")
        .header("x-motorpool-session", session)
        .body(chat("a", "hello").to_string().into())
        .expect("a request");
    let answer = daemon.http().send(request).await.expect("a head").whole().await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

async fn unload(daemon: &Daemon<'_>) {
    let unloaded = daemon.cli(&["unload", "a"]).await;
    assert!(unloaded.code == Some(0), "{unloaded:?}");
}

fn n_said(daemon: &Daemon<'_>, line: &str) -> usize {
    daemon.log().matches(line).count()
}

/// Every file that is kept.
fn files(house: &House) -> Vec<PathBuf> {
    let folders = fs::read_dir(house.state("slots")).into_iter().flatten().flatten();
    let mut files: Vec<_> =
        folders.flat_map(|folder| fs::read_dir(folder.path()).into_iter().flatten()).flatten().collect();
    files.sort_by_key(fs::DirEntry::file_name);
    files.into_iter().map(|file| file.path()).collect()
}

#[tokio::test]
async fn a_session_finds_its_context_in_the_next_engine_and_in_the_next_run() {
    let house = house(sized(1000));
    let daemon = house.start().await;
    turn(&daemon, "a name that nobody is to read").await;
    turn(&daemon, "another").await;
    unload(&daemon).await;
    assert_eq!((n_said(&daemon, WRITTEN), files(&house).len()), (2, 2));
    assert!(files(&house).iter().all(|file| !file.display().to_string().contains("name")), "{:?}", files(&house));
    turn(&daemon, "another").await;
    assert_eq!(n_said(&daemon, BACK), 1);
    daemon.stop().await;
    let daemon = house.start().await;
    turn(&daemon, "another").await;
    turn(&daemon, "a name that nobody is to read").await;
    turn(&daemon, "unheard of").await;
    turn(&daemon, "unheard of").await;
    assert_eq!((n_said(&daemon, BACK), n_said(&daemon, NOT_BACK)), (2, 0));
    daemon.stop().await;
}

#[tokio::test]
async fn a_context_that_cannot_be_written_leaves_nothing_and_is_not_waited_for() {
    let fails = State { write_fails: Switch::ON, ..sized(1000) };
    let hangs = State { write_hangs: Switch::ON, ..sized(1000) };
    for state in [fails, hangs] {
        let house = house(state);
        let daemon = house.start().await;
        turn(&daemon, "s").await;
        unload(&daemon).await;
        eventually("it says so", async || (n_said(&daemon, NOT_WRITTEN) == 1).then_some(())).await;
        eventually("what is half written is deleted", async || files(&house).is_empty().then_some(())).await;
        turn(&daemon, "s").await;
        assert_eq!((n_said(&daemon, WRITTEN), n_said(&daemon, BACK)), (0, 0));
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_context_that_cannot_be_read_back_is_forgotten_and_its_request_is_served() {
    let house = house(sized(1000));
    let daemon = house.start().await;
    for spoil in [|file: &PathBuf| fs::write(file, "half"), |file: &PathBuf| fs::remove_file(file)] {
        turn(&daemon, "s").await;
        unload(&daemon).await;
        spoil(&files(&house)[0]).expect("ours");
        let before = n_said(&daemon, NOT_BACK);
        turn(&daemon, "s").await;
        assert_eq!((n_said(&daemon, NOT_BACK), files(&house)), (before + 1, vec![]));
    }
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_dies_of_a_context_costs_one_start_and_no_request() {
    let mut house = House::new();
    let switch = house.path("dies");
    let state = State { read_dies: Switch::WhileFile(switch.clone()), ..sized(1000) };
    let model = house.fake_with("a", &Behaviour { state, ..Behaviour::default() }, "slots = 2\n");
    let daemon = house.start().await;
    turn(&daemon, "s").await;
    unload(&daemon).await;
    fs::write(&switch, "").expect("writable");
    turn(&daemon, "s").await;
    assert_eq!((crate::support::n_starts(&model), n_said(&daemon, NOT_BACK)), (3, 1));
    assert_eq!(files(&house), Vec::<PathBuf>::new());
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_least_recently_used_contexts_go_when_the_disk_budget_is_full_and_zero_keeps_none() {
    let mut house = house(sized(1 << 20));
    house.set("session_state.disk", "2500KiB");
    let daemon = house.start().await;
    for session in ["s", "t"] {
        turn(&daemon, session).await;
    }
    unload(&daemon).await;
    turn(&daemon, "s").await;
    turn(&daemon, "u").await;
    unload(&daemon).await;
    assert_eq!((n_said(&daemon, WRITTEN), files(&house).len()), (4, 2));
    for (session, n_back) in [("t", 1), ("s", 2), ("u", 3)] {
        turn(&daemon, session).await;
        assert_eq!(n_said(&daemon, BACK), n_back, "{session}");
    }
    daemon.stop().await;
    house.set("session_state.disk", "0B");
    let daemon = house.start().await;
    turn(&daemon, "s").await;
    unload(&daemon).await;
    assert_eq!((n_said(&daemon, WRITTEN), files(&house)), (0, vec![]));
    daemon.stop().await;
}
