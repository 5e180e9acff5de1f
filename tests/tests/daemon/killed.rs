//! SIGKILL of the supervisor, in every phase: its engines are gone within 2 s, and the next one begins where nothing is.
use crate::support::{Blockade, assert_serves, deaf, gate, loading_until, pausing, stream_until};
use motorpool_testkit::{Behaviour, Environment, FakeModel, Flood, Grandchild, LineEnd, Session, Stop, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    daemon::send,
    journal,
    processes::{self, is_alive},
    talk::{CHAT, ask, chat, start_number},
};
use nix::sys::signal::Signal;
use std::time::Duration;

/// Asks in the background; nobody minds that the answer never comes.
fn ask_behind(daemon: &Daemon<'_>, model: &'static str) {
    let http = daemon.http();
    tokio::spawn(async move { drop(http.post(CHAT, &chat(model, "hello")).await) });
}

/// A new supervisor finds nothing unsettled, and serves.
async fn assert_starts_anew(house: &House, model: &str) {
    let daemon = house.start().await;
    eventually("ready", async || daemon.http().get("/ready").await.ok().filter(|a| a.status == 200)).await;
    let path = house.state("journal.jsonl");
    assert_eq!(journal::count(&path, "intent"), journal::count(&path, "gone"), "{:#?}", journal::records(&path));
    assert_serves(&daemon, model).await;
    daemon.stop().await;
}

#[tokio::test]
async fn killed_with_nothing_to_do_it_leaves_nothing() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    house.start().await.kill().await;
    assert_starts_anew(&house, "a").await;
}

#[tokio::test]
async fn killed_while_it_checks_a_model_it_leaves_nothing() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let blockade = Blockade::of_check(&house, "a");
    let daemon = house.start().await;
    ask_behind(&daemon, "a");
    daemon.until_phase("a", &["validating"]).await;
    daemon.kill().await;
    assert_eq!(model.starts(), []);
    drop(blockade);
    std::fs::remove_dir_all(house.data()).expect("ours");
    assert_starts_anew(&house, "a").await;
}

/// Kills as soon as the journal has so many records of this kind. The engine is not let go before `born` is on the
/// disk, which takes longer than to see it there.
async fn kill_at_record(house: &House, kind: &str) {
    let daemon = house.start().await;
    ask_behind(&daemon, "a");
    let path = house.state("journal.jsonl");
    while journal::count(&path, kind) == 0 {
        tokio::task::yield_now().await;
    }
    daemon.kill().await;
}

#[tokio::test]
async fn killed_between_what_it_writes_down_and_what_it_does_it_leaves_nothing() {
    for kind in ["intent", "born"] {
        for _ in 0..4 {
            let mut house = House::new();
            house.fake("a", &Behaviour { stop: deaf(), ..Behaviour::default() });
            kill_at_record(&house, kind).await;
            assert_starts_anew(&house, "a").await;
        }
    }
}

#[tokio::test]
async fn killed_while_an_engine_loads_it_leaves_nothing() {
    let mut house = House::new();
    let load = gate(&house, "load");
    let model = house.fake("a", &Behaviour { stop: deaf(), ..loading_until(&load) });
    let daemon = house.start().await;
    ask_behind(&daemon, "a");
    daemon.until_phase("a", &["starting"]).await;
    let pid = start_number(&model, 1).await.pid;
    daemon.kill().await;
    assert!(!is_alive(pid));
    load.open().expect("opened");
    assert_starts_anew(&house, "a").await;
}

#[tokio::test]
async fn a_journal_that_was_torn_or_damaged_keeps_nobody_from_starting() {
    let mut house = House::new();
    house.fake("a", &Behaviour { stop: deaf(), ..Behaviour::default() });
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.kill().await;
    let damage = "not a record\n\u{0}\u{0}\u{0}\n{\"v\":1,\"record\":\"intent\",\"spawn\":7,\"non";
    let path = house.state("journal.jsonl");
    std::fs::write(&path, std::fs::read_to_string(&path).expect("there") + damage).expect("written");
    assert_starts_anew(&house, "a").await;
}

#[tokio::test]
async fn killed_with_an_engine_ready_it_leaves_nothing() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour { stop: deaf(), ..Behaviour::default() });
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.kill().await;
    assert!(!is_alive(model.starts()[0].pid));
    assert_starts_anew(&house, "a").await;
}

#[tokio::test]
async fn killed_while_engines_stream_it_leaves_nothing() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    let behaviour = Behaviour { stop: deaf(), ..pausing(20, 10, &go_on) };
    for id in ["a", "b"] {
        house.fake_with(id, &behaviour, "declared = \"100MiB\"\n");
    }
    let daemon = house.start().await;
    let mut streams = Vec::new();
    for model in ["a", "b"] {
        streams.push(stream_until(&daemon, (model, "hello"), 9).await.0);
    }
    daemon.kill().await;
    for stream in streams {
        assert!(stream.whole().await.is_err(), "a stream that broke off does not look whole");
    }
    go_on.open().expect("opened");
    assert_starts_anew(&house, "b").await;
}

#[tokio::test]
async fn killed_while_an_engine_stops_it_leaves_nothing() {
    let mut house = House::new();
    let exit = gate(&house, "may-exit");
    let stop = Stop { gate: Some(exit.file()), ..Stop::default() };
    let model = house.fake("a", &Behaviour { stop, ..Behaviour::default() });
    house.set("stop.polite", "10m");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let control = daemon.control();
    tokio::spawn(async move { drop(control.post("/api/motorpool/v1/models/a/unload", &serde_json::json!({})).await) });
    daemon.until_phase("a", &["stopping"]).await;
    assert!(is_alive(model.starts()[0].pid), "it waits for its gate");
    daemon.kill().await;
    exit.open().expect("opened");
    assert_starts_anew(&house, "a").await;
}

#[tokio::test]
async fn killed_it_takes_along_what_left_its_engines_session_and_forgot_its_mark() {
    for environment in [Environment::Inherited, Environment::Cleared] {
        let mut house = House::new();
        let grandchild = Some(Grandchild { session: Session::Own, environment, memory: 1 << 20 });
        let flood = Some(Flood { bytes: None, bytes_per_second: None, line_end: LineEnd::None });
        let model = house.fake("a", &Behaviour { grandchild, flood, stop: deaf(), ..Behaviour::default() });
        let daemon = house.start().await;
        assert_serves(&daemon, "a").await;
        let stray = model.strays()[0];
        assert!(is_alive(stray));
        daemon.kill().await;
        assert!(!is_alive(stray), "{environment:?}");
        assert_starts_anew(&house, "a").await;
    }
}

/// The keeper of the newest engine of `model`.
fn keeper_of(model: &FakeModel) -> u32 {
    processes::one(model.starts().pop().expect("started").pid).expect("it runs").parent
}

#[tokio::test]
async fn what_a_frozen_keeper_could_not_end_is_ended_by_the_next_supervisor_before_it_serves() {
    let mut house = House::new();
    let grandchild = Some(Grandchild { session: Session::Own, ..Grandchild::default() });
    let model = house.fake("a", &Behaviour { grandchild, stop: deaf(), ..Behaviour::default() });
    let mut daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let (engine, stray) = (model.starts()[0].pid, model.strays()[0]);
    send(keeper_of(&model), Signal::SIGSTOP);
    daemon.signal(Signal::SIGKILL);
    daemon.ended().await;
    assert!(is_alive(engine) && is_alive(stray), "its keeper cannot act");
    assert_starts_anew(&house, "a").await;
    assert!(!is_alive(engine) && !is_alive(stray));
}

#[tokio::test]
async fn a_killed_keeper_costs_its_engine_and_nobody_else() {
    let mut house = House::new();
    let grandchild = Some(Grandchild { session: Session::Own, ..Grandchild::default() });
    let behaviour = Behaviour { grandchild, ..Behaviour::default() };
    let a = house.fake_with("a", &behaviour, "declared = \"100MiB\"\n");
    let b = house.fake_with("b", &Behaviour::default(), "declared = \"100MiB\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert_serves(&daemon, "b").await;
    let (engine, stray) = (a.starts()[0].pid, a.strays()[0]);
    send(keeper_of(&a), Signal::SIGKILL);
    eventually("its tree is gone", async || (!is_alive(engine) && !is_alive(stray)).then_some(())).await;
    daemon.until_phase("a", &["idle"]).await;
    assert_serves(&daemon, "a").await;
    assert_eq!((a.starts().len(), b.starts().len()), (2, 1));
    daemon.stop().await;
}

#[tokio::test]
async fn killed_again_and_again_at_any_moment_it_leaves_nothing() {
    let mut house = House::new();
    house.fake("a", &Behaviour { stop: deaf(), ..Behaviour::default() });
    house.fake("b", &Behaviour::default());
    for n in 0..10 {
        let daemon = house.start().await;
        ask_behind(&daemon, "a");
        ask_behind(&daemon, "b");
        // Not waited for anything in particular: another moment each time.
        let _ = tokio::time::timeout(Duration::from_millis(n * 15), daemon.http().post(CHAT, &ask("a", "hello"))).await;
        daemon.kill().await;
    }
    assert_starts_anew(&house, "a").await;
}
