//! A machine that gives no more: no room on the disk, no descriptor. What cannot be is refused with the reason, what runs
//! goes on, and when there is room again everything is as before.
use crate::support::{assert_refused, assert_serves, deaf, with_wrapper};
use motorpool_testkit::{Behaviour, eventually};
use motorpool_tests::e2e::{
    Daemon, House,
    daemon::send,
    journal,
    processes::{self, is_alive, left_of, n_descriptors},
    raw::Raw,
    talk::{CHAT, chat},
};
use nix::sys::signal::Signal;
use serde_json::json;
use tokio::process::Command;

/// Sets limits of a running process, as `prlimit` takes them.
async fn set_limit(daemon: &Daemon<'_>, limit: &str) {
    let done = Command::new("prlimit").args(["--pid", &daemon.pid().to_string(), limit]).status().await;
    assert!(done.expect("util-linux is there").success(), "{limit}");
}

async fn unload(daemon: &Daemon<'_>, model: &str) {
    let path = format!("/api/motorpool/v1/models/{model}/unload");
    let answer = daemon.control().post(&path, &json!({})).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Two models that fit side by side.
fn house() -> House {
    let mut house = House::new();
    for id in ["a", "b"] {
        house.fake_with(id, &Behaviour::default(), "declared = \"100MiB\"\n");
    }
    house
}

#[tokio::test]
async fn a_disk_that_takes_no_more_refuses_starts_with_the_reason_and_costs_nothing_that_runs() {
    let house = house();
    // Told by an error instead of a signal, as a full disk tells it.
    let daemon = house.start_through("trap '' XFSZ; exec \"$@\"").await;
    assert_serves(&daemon, "a").await;
    set_limit(&daemon, "--fsize=0:unlimited").await;
    for _ in 0..2 {
        let answer = daemon.http().post(CHAT, &chat("b", "hello")).await.expect("an answer");
        let error = assert_refused(&answer, 502, "engine_start_failed");
        let message = error["message"].as_str().expect("a text");
        assert!(message.contains("cannot use the journal") && message.contains("File too large"), "{message}");
        assert_serves(&daemon, "a").await;
    }
    unload(&daemon, "a").await;
    assert_eq!(daemon.status().await.pool.committed_bytes, 0);
    assert_eq!(left_of(&house, Some(daemon.pid())), []);
    set_limit(&daemon, "--fsize=unlimited:unlimited").await;
    eventually("b is served again", async || {
        let answer = daemon.http().post(CHAT, &chat("b", "hello")).await.expect("an answer");
        (answer.status == 200).then_some(())
    })
    .await;
    assert_serves(&daemon, "a").await;
    daemon.kill().await;
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
    let path = house.state("journal.jsonl");
    assert_eq!(journal::count(&path, "intent"), journal::count(&path, "gone"), "{:#?}", journal::records(&path));
}

#[tokio::test]
async fn without_a_free_descriptor_starts_are_refused_clients_wait_and_nothing_leaks() {
    let house = house();
    let daemon = house.start().await;
    for model in ["a", "b"] {
        assert_serves(&daemon, model).await;
        unload(&daemon, model).await;
    }
    // One is for the client, and a start takes several. Where more than those were on their way out when they were counted,
    // it starts, and they are counted anew.
    let refused = async || {
        daemon.until_quiet().await;
        let before = n_descriptors(daemon.pid());
        set_limit(&daemon, &format!("--nofile={}:", before + 1)).await;
        let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
        if answer.status == 200 {
            unload(&daemon, "a").await;
            return None;
        }
        Some((before, answer))
    };
    let (before, answer) = eventually("a start is refused", refused).await;
    let error = assert_refused(&answer, 502, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|message| message.contains("Too many open files")), "{error}");
    assert_eq!(left_of(&house, Some(daemon.pid())), []);
    set_limit(&daemon, "--nofile=8:").await;
    let waits = tokio::spawn({
        let http = daemon.http();
        async move { http.post(CHAT, &chat("b", "hello")).await }
    });
    set_limit(&daemon, "--nofile=512:").await;
    assert_eq!(waits.await.expect("no panic").expect("an answer").status, 200);
    eventually("a is served again", async || {
        let answer = daemon.http().post(CHAT, &chat("a", "hello")).await.expect("an answer");
        (answer.status == 200).then_some(())
    })
    .await;
    for model in ["a", "b"] {
        unload(&daemon, model).await;
    }
    eventually(&format!("{before} descriptors"), async || {
        daemon.until_quiet().await;
        (n_descriptors(daemon.pid()) <= before).then_some(())
    })
    .await;
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_cannot_be_looked_for_is_not_taken_for_gone() {
    let mut house = with_wrapper("\"$ENGINE\" \"$@\"; exit $?");
    let model = house.fake_with("a", &Behaviour { stop: deaf(), ..Behaviour::default() }, "declared = \"100MiB\"\n");
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let engine = model.starts()[0].pid;
    let parent = |pid| processes::one(pid).expect("it runs").parent;
    let keeper = parent(parent(engine));
    let path = house.state("journal.jsonl");
    // Open before nothing more can be.
    let mut client = Raw::connect(daemon.address()).await.expect("it listens");
    client.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("open");
    client.until("200 OK").await.expect("an answer");
    set_limit(&daemon, "--nofile=8:").await;
    send(keeper, Signal::SIGKILL);
    eventually("somebody tried", async || daemon.log().contains("cannot be looked for").then_some(())).await;
    assert!(is_alive(engine));
    assert_eq!(journal::count(&path, "gone"), 0, "{:#?}", journal::records(&path));
    client.write(b"GET /api/motorpool/v1/status HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("open");
    let status = client.until("\"committedBytes\":").await.expect("an answer");
    assert!(!status.contains("\"committedBytes\":0"), "{status}");
    set_limit(&daemon, "--nofile=512:").await;
    eventually("its end is written down", async || (journal::count(&path, "gone") == 1).then_some(())).await;
    assert!(!is_alive(engine));
    eventually("its bytes are back", async || (daemon.status().await.pool.committed_bytes == 0).then_some(())).await;
    assert_eq!(left_of(&house, Some(daemon.pid())), []);
    assert_serves(&daemon, "a").await;
    daemon.stop().await;
}
