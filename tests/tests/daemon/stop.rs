//! How engines and the daemon end when they are asked to.
use crate::support::{
    Blockade, assert_refused, assert_serves, gate, loading_until, pausing, retry_after, stream_until,
};
use motorpool_testkit::{Behaviour, Deaf, Environment, Flood, Grandchild, LineEnd, Session, Stop, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    house::read,
    journal,
    processes::{self, is_alive},
    talk::{CHAT, Said, chat, peek, start_number},
};
use nix::sys::signal::Signal;
use serde_json::json;

#[tokio::test]
async fn an_engine_is_asked_by_its_own_line_first_and_exits_by_itself() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let outcome = daemon.cli(&["unload", "a"]).await;
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(!is_alive(model.starts()[0].pid), "gone when the command says so");
    let exit = daemon.until_phase("a", &["idle"]).await.last_exit.expect("a record");
    assert_eq!((&exit["code"], &exit["reason"]), (&json!(0), &json!("user")), "{exit}");
    let log = read(&house.state("logs/llama-server:a:0.log"));
    assert!(log.contains("exit command received"), "{log}");
    assert_eq!(daemon.cli(&["logs", "a"]).await.stdout.trim(), log.trim());
    let never = daemon.cli(&["logs", "llama-server:b:0"]).await;
    assert!(never.code == Some(4) && never.stderr.contains("there is no log of llama-server:b:0"), "{never:?}");
    daemon.stop().await;
    assert_eq!(house.run(&["logs", "a"]).await.stdout.trim(), log.trim(), "the file is where it was");
}

#[tokio::test]
async fn one_that_is_told_to_end_before_it_runs_never_does() {
    let mut house = House::new();
    let model = house.fake("a", &Behaviour::default());
    // Its keeper opens the log before it forks, and waits there until somebody reads.
    let log = house.state("logs/llama-server:a:0.log");
    std::fs::create_dir_all(log.parent().expect("a folder")).expect("made");
    nix::unistd::mkfifo(&log, nix::sys::stat::Mode::S_IRWXU).expect("made");
    let daemon = house.start().await;
    let (http, control) = (daemon.http(), daemon.control());
    let asks = tokio::spawn(async move { http.post(CHAT, &chat("a", "hello")).await });
    daemon.until_phase("a", &["starting"]).await;
    let path = house.state("journal.jsonl");
    eventually("it is about to be started", async || (journal::count(&path, "intent") == 1).then_some(())).await;
    let evict = json!({"mode": "force"});
    let unload = tokio::spawn(async move { control.post("/api/motorpool/v1/models/a/unload", &evict).await });
    daemon.until_phase("a", &["stopping"]).await;
    let reader = tokio::task::spawn_blocking(move || std::fs::File::open(log)).await;
    let _reader = reader.expect("no panic").expect("it writes");
    assert_eq!(unload.await.expect("no panic").expect("an answer").status, 200);
    assert_eq!((model.starts(), journal::count(&path, "gone")), (vec![], 1));
    asks.abort();
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_hears_nothing_is_killed_with_all_that_it_left() {
    let mut house = House::new();
    house.set("stop.polite", "300ms");
    let stop = Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand, Deaf::EndOfStdin], ..Stop::default() };
    for (id, environment) in [("a", Environment::Inherited), ("b", Environment::Cleared)] {
        let grandchild = Some(Grandchild { session: Session::Own, environment, memory: 1 << 20 });
        house.fake(id, &Behaviour { stop: stop.clone(), grandchild, ..Behaviour::default() });
    }
    let daemon = house.start().await;
    for id in ["a", "b"] {
        assert_serves(&daemon, id).await;
        assert_eq!(daemon.cli(&["unload", id]).await.code, Some(0));
        let exit = daemon.until_phase(id, &["idle"]).await.last_exit.expect("a record");
        assert_eq!((&exit["signal"], &exit["reason"]), (&json!(9), &json!("user")), "{exit}");
        assert_eq!(processes::left_of(&house, Some(daemon.pid())), []);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_exits_but_leaves_a_grandchild_is_not_gone_before_that_is() {
    let mut house = House::new();
    let grandchild = Some(Grandchild { session: Session::Own, environment: Environment::Cleared, memory: 0 });
    let model = house.fake("a", &Behaviour { grandchild, ..Behaviour::default() });
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert!(is_alive(model.strays()[0]));
    assert_eq!(daemon.cli(&["unload", "a"]).await.code, Some(0));
    assert!(!is_alive(model.strays()[0]));
    daemon.stop().await;
}

const MIB: u64 = 1 << 20;

#[tokio::test]
async fn a_flood_of_output_blocks_neither_the_engine_nor_the_disk() {
    let mut house = House::new();
    let mut models = Vec::new();
    let floods =
        [("lines", LineEnd::Lf, 128 * MIB), ("returns", LineEnd::Cr, 16 * MIB), ("endless", LineEnd::None, 16 * MIB)];
    for (id, line_end, bytes) in floods {
        let flood = Some(Flood { bytes: Some(bytes), bytes_per_second: None, line_end });
        models.push((id, bytes, house.fake(id, &Behaviour { flood, ..Behaviour::default() })));
    }
    let daemon = house.start().await;
    for (id, bytes, model) in &models {
        assert_serves(&daemon, id).await;
        eventually("all of it was read", async || {
            peek(model, "/fake/process").await.filter(|process| process["flooded"] == json!(bytes))
        })
        .await;
        assert_serves(&daemon, id).await;
    }
    assert!(processes::memory_kib(daemon.pid(), "VmHWM") < 100 << 10, "lines are not hoarded");
    daemon.stop().await;
    let logs = std::fs::read_dir(house.state("logs")).expect("there").flatten();
    let bytes: u64 = logs.map(|file| file.metadata().expect("there").len()).sum();
    assert!(bytes < 128 * MIB, "what is old goes: {bytes}");
}

async fn until_stopping(daemon: &Daemon<'_>) {
    eventually("it says that it stops", async || daemon.log().contains("stopping").then_some(())).await;
}

#[tokio::test]
async fn asked_to_end_it_takes_nothing_new_and_lets_what_runs_come_to_its_end() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("a", &pausing(20, 10, &go_on));
    let mut daemon = house.start().await;
    let (stream, mut bytes) = stream_until(&daemon, ("a", "hello"), 9).await;
    daemon.signal(Signal::SIGTERM);
    until_stopping(&daemon).await;
    eventually("it says so", async || daemon.status().await.closing.then_some(())).await;
    for client in [daemon.http(), daemon.control()] {
        let late = client.post(CHAT, &chat("a", "late")).await.expect("an answer");
        assert_refused(&late, 503, "shutting_down");
        assert!(retry_after(&late) > 0);
        let ready = client.get("/ready").await.expect("an answer");
        assert_eq!((ready.status.as_u16(), ready.json()), (503, json!({"status": "stopping"})));
    }
    let ps = daemon.cli(&["ps"]).await;
    assert!(ps.stdout.contains("stopping: 1 running request left"), "{ps:?}");
    assert_eq!(daemon.cli(&["load", "a"]).await.code, Some(10));
    go_on.open().expect("opened");
    bytes += &stream.whole().await.expect("its end").text();
    assert_eq!(Said::read(&bytes), Said::whole("hello", 20));
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    processes::assert_none(&house);
}

#[tokio::test]
async fn an_engine_that_waits_for_its_clients_is_not_kept_by_idle_connections_of_ours() {
    let mut house = House::new();
    // Less than an idle connection is kept for.
    house.set("stop.polite", "2s");
    let stop = Stop { to_last_connection: true, ..Stop::default() };
    house.fake("a", &Behaviour { stop, ..Behaviour::default() });
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    assert_eq!(daemon.cli(&["unload", "a"]).await.code, Some(0));
    let exit = daemon.until_phase("a", &["idle"]).await.last_exit.expect("a record");
    assert_eq!((&exit["code"], &exit["signal"]), (&json!(0), &json!(null)), "{exit}");
    daemon.stop().await;
}

#[tokio::test]
async fn while_it_ends_what_holds_it_up_can_be_cut() {
    let mut house = House::new();
    house.set("shutdown.grace", "10m");
    let never = gate(&house, "never");
    house.fake("a", &pausing(20, 10, &never));
    let mut daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    daemon.signal(Signal::SIGTERM);
    eventually("it says so", async || daemon.status().await.closing.then_some(())).await;
    let forced = daemon.cli(&["unload", "a", "--force"]).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    let cut = Said::read(&stream.whole().await.expect("an orderly end").text());
    assert_eq!(cut.error.expect("an event")["code"], "evicted");
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    processes::assert_none(&house);
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_leaves_nothing() {
    let mut house = House::new();
    house.set("shutdown.grace", "10m");
    let never = gate(&house, "never");
    house.fake("a", &pausing(20, 10, &never));
    let mut daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    daemon.signal(Signal::SIGINT);
    until_stopping(&daemon).await;
    daemon.signal(Signal::SIGINT);
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    processes::assert_none(&house);
    let rest = stream.whole().await;
    assert!(rest.is_err() || Said::read(&rest.expect("just seen").text()).error.is_some(), "a cut does not look whole");
}

#[tokio::test]
async fn asked_to_end_while_it_loads_or_checks_it_ends() {
    let mut house = House::new();
    let never = gate(&house, "never");
    let model = house.fake("a", &loading_until(&never));
    house.fake("b", &Behaviour::default());
    let _blockade = Blockade::of_check(&house, "b");
    house.set("shutdown.grace", "300ms");
    let daemon = house.start().await;
    for id in ["a", "b"] {
        let http = daemon.http();
        tokio::spawn(async move { drop(http.post(CHAT, &chat(id, "hello")).await) });
    }
    daemon.until_phase("b", &["validating"]).await;
    start_number(&model, 1).await;
    daemon.stop().await;
}

#[tokio::test]
async fn shutdown_over_the_control_socket_is_a_stop_and_over_the_network_it_is_refused() {
    let mut house = House::new();
    house.fake("a", &Behaviour::default());
    let mut daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let path = "/api/motorpool/v1/shutdown";
    let over_network = daemon.http().post(path, &json!({})).await.expect("an answer");
    assert!(over_network.status.is_client_error(), "{}", over_network.text());
    assert_serves(&daemon, "a").await;
    let answer = daemon.control().post(path, &json!({})).await.expect("an answer");
    assert!(answer.status.is_success(), "{}", answer.text());
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    processes::assert_none(&house);
}

/// Its first signal has an engine that hears nothing asked to end, and the second does not wait for it.
#[tokio::test]
async fn a_second_signal_kills_what_was_asked_to_end() {
    let mut house = House::new();
    house.set("stop.polite", "1h");
    let deaf = Stop { deaf_to: vec![Deaf::Sigterm, Deaf::ExitCommand, Deaf::EndOfStdin], ..Stop::default() };
    let model = house.fake("a", &Behaviour { stop: deaf, ..Behaviour::default() });
    let mut daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.signal(Signal::SIGTERM);
    daemon.until_phase("a", &["stopping"]).await;
    assert!(is_alive(model.starts()[0].pid));
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.ended().await.code(), Some(0), "{}", daemon.log());
    assert!(daemon.log().contains("stopping at once"), "{}", daemon.log());
    processes::assert_none(&house);
}
