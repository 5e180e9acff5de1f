//! Engines that are more than one process, or less than obedient: wrappers, and one that cannot be killed.
use crate::support::{assert_refused, assert_serves, deaf, with_wrapper};
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    daemon::send,
    processes::{self, is_alive, left_of},
    talk::{CHAT, chat},
};
use nix::sys::signal::Signal;
use serde_json::json;

const MIB: u64 = 1 << 20;

async fn post(daemon: &Daemon<'_>, what: &str) {
    let answer = daemon.control().post(&format!("/api/motorpool/v1/models/{what}"), &json!({})).await;
    let answer = answer.expect("an answer");
    assert_eq!(answer.status, 200, "{}\n{}", answer.text(), daemon.log());
}

#[tokio::test]
async fn an_engine_behind_a_script_serves_and_ends_with_it() {
    for script in ["\"$ENGINE\" \"$@\"; exit $?", "exec 3<&0; \"$ENGINE\" \"$@\" <&3 3<&- & wait $!"] {
        let mut house = with_wrapper(script);
        let model = house.fake("a", &Behaviour::default());
        let daemon = house.start().await;
        assert_serves(&daemon, "a").await;
        let engine = model.starts()[0].pid;
        post(&daemon, "a/unload").await;
        assert!(!is_alive(engine), "{script}");
        assert_eq!(left_of(&house, Some(daemon.pid())), [], "{script}");
        assert_eq!(daemon.status().await.pool.committed_bytes, 0);
        assert_serves(&daemon, "a").await;
        daemon.stop().await;
    }
}

#[tokio::test]
async fn a_script_that_leaves_its_engine_behind_has_failed_and_the_engine_goes_with_it() {
    let mut house = with_wrapper("\"$ENGINE\" \"$@\" & exit 0");
    let model = house.fake("a", &Behaviour { stop: deaf(), ..Behaviour::default() });
    let daemon = house.start().await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    let error = assert_refused(&answer, 502, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("code 0")), "{error}");
    // Who waited is told as soon as the script has ended.
    daemon.until_phase("a", &["idle"]).await;
    assert!(model.starts().iter().all(|start| !is_alive(start.pid)));
    assert_eq!(left_of(&house, Some(daemon.pid())), []);
    daemon.stop().await;
}

#[tokio::test]
async fn one_that_cannot_be_killed_is_charged_and_shown_and_blocks_nobody_until_it_is_gone() {
    let mut house = House::new();
    house.set("stop.polite", "100ms");
    house.set("stop.kill", "300ms");
    let a = house.fake_with("a", &Behaviour { stop: deaf(), ..Behaviour::default() }, "declared = \"600MiB\"\n");
    house.fake_with("b", &Behaviour::default(), "declared = \"100MiB\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let engine = a.starts()[0].pid;
    let keeper = processes::one(engine).expect("it runs").parent;
    // A frozen keeper performs no kill: to the supervisor its engine is one that SIGKILL does not end.
    send(keeper, Signal::SIGSTOP);
    let http = daemon.control();
    let unload = tokio::spawn(async move { http.post("/api/motorpool/v1/models/a/unload", &json!({})).await });
    eventually("it is said to be stuck", async || daemon.log().contains("cannot be killed").then_some(())).await;
    let charged = daemon.status().await.pool.committed_bytes;
    assert!(is_alive(engine) && charged >= 600 * MIB, "{charged}");
    assert_serves(&daemon, "b").await;
    let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
    assert!(answer.status.is_server_error(), "no room for another beside it: {}", answer.text());
    send(keeper, Signal::SIGCONT);
    drop(unload.await.expect("no panic"));
    eventually("its bytes are back", async || {
        (!is_alive(engine) && daemon.status().await.pool.committed_bytes < 600 * MIB).then_some(())
    })
    .await;
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}
