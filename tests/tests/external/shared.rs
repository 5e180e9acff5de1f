//! What holds on each kind of server: the lock that all of us share, what is written down, and what helpers load.
use crate::{
    fakes::{chat, target, visit},
    support::Visit,
};
use motorpool_external::{
    CallError, Guests, LockError, OpenError, Refusal, Report, ServerError, Target, TargetLock, Told,
};
use motorpool_residency::{Adoption, Kind, NoticeKind};
use motorpool_testkit::{
    eventually,
    servers::{FakeLmStudio, FakeOllama, Tier},
};
use nix::{sys::stat::Mode, unistd::mkfifo};
use std::{fs, sync::Arc, time::Duration};

async fn server() -> FakeOllama {
    FakeOllama::open(&["a", "b"]).await.expect("a free port")
}

fn ollama(server: &FakeOllama) -> Target {
    target(Kind::Ollama, server.port())
}

fn names(server: &FakeOllama) -> Vec<String> {
    server.residents().into_iter().map(|(model, _)| model).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn while_another_one_of_us_changes_the_server_only_what_is_there_is_used() {
    let server = server().await;
    server.load("b");
    let visit = Visit::impatient(vec![ollama(&server)]);
    let held = TargetLock::take(&visit.run(), visit.guest.key(), Duration::ZERO).await.expect("free");
    drop(visit.guest.prepare("b").await.expect("it is there"));
    let refused = visit.guest.prepare("a").await.expect_err("nothing is changed without the lock");
    assert!(matches!(refused, Refusal::Lock(LockError::Busy(_))), "{refused:?}");
    assert!(server.asked("/api/generate").is_empty() && visit.told().is_empty());
    drop(held);
    drop(visit.guest.prepare("a").await.expect("it is free now"));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_nothing_is_taken_over_where_loads_cannot_be_told_apart() {
    let first = server().await;
    let second = FakeLmStudio::open(Tier::V1, &["a", "b"]).await.expect("a free port");
    let folder = tempfile::tempdir().expect("a temporary directory");
    let load = serde_json::Map::from_iter([("flash_attention".to_owned(), true.into())]);
    let studio = || Target { id: "second".into(), load: load.clone(), ..target(Kind::LmStudio, second.port()) };
    let targets = || vec![ollama(&first), studio()];
    let crashed = Visit::below(folder.path(), targets());
    for guest in crashed.guests.iter() {
        for model in ["a", "b"] {
            drop(guest.prepare(model).await.expect("it loads"));
        }
    }
    // A crash says nothing to the servers: the next start has other books. Meanwhile others load the same anew.
    first.unload("a");
    first.load("a");
    second.unload("a");
    second.load("a");
    let next = Visit::below(folder.path(), targets());
    assert!(next.owned().is_empty(), "nothing was looked at yet");
    let text = fs::read_to_string(folder.path().join("residency.jsonl")).expect("a journal");
    assert_eq!(text.lines().count(), 4);
    next.guests.take_over().await;
    assert!(next.guests.iter().all(|guest| guest.owned().is_empty()));
    next.guests.leave_all(Duration::from_secs(20)).await;
    assert_eq!((names(&first), second.residents().len()), (vec!["b:latest".to_owned(), "a:latest".to_owned()], 2));
    assert_eq!(fs::read_to_string(folder.path().join("residency.jsonl")).expect("a journal"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_takes_its_time_is_waited_for_by_whoever_loaded_and_by_nobody_else() {
    let (folder, server) = (tempfile::tempdir().expect("a temporary directory"), server().await);
    server.load("b");
    let visit = Visit::below(folder.path(), vec![ollama(&server)]);
    // Opened for writing, it waits for whoever reads.
    let disk = folder.path().join("residency.new");
    mkfifo(&disk, Mode::S_IRWXU).expect("a pipe");
    let guest = visit.guest.clone();
    let loading = tokio::spawn(async move { guest.prepare("a").await });
    let (guest, others) = (visit.guest.clone(), visit.guest.clone());
    let others = tokio::spawn(async move {
        eventually("it is ours", async || (guest.owned().len() == 1).then_some(())).await;
        drop(others.prepare("b").await.expect("it is there"));
        others.look().await.expect("it answers").residents.len()
    });
    assert_eq!(others.await.expect("nobody waits for the disk"), 2);
    assert!(!loading.is_finished(), "a crash would lose whose it is");
    let path = disk.clone();
    let written = tokio::task::spawn_blocking(move || fs::read_to_string(path)).await.expect("no panic");
    assert!(written.expect("a text").contains("a:latest"));
    // What could not be brought to the disk is written once more, and that is to wait for nobody.
    fs::remove_file(disk).expect("it is there");
    drop(loading.await.expect("no panic").expect("it is loaded"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_earlier_run_left_on_a_server_that_is_away_stays_written_down() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let server = server().await;
    drop(Visit::below(folder.path(), vec![ollama(&server)]).guest.prepare("a").await.expect("it loads"));
    let away = Target { id: "away".into(), ..target(Kind::Ollama, 1) };
    let written = fs::read_to_string(folder.path().join("residency.jsonl")).expect("a journal");
    let moved = written.replace(&server.port().to_string(), "1");
    fs::write(folder.path().join("residency.jsonl"), format!("{moved}{written}")).expect("written");
    let next = Visit::below(folder.path(), vec![away, ollama(&server)]);
    next.guests.take_over().await;
    next.guests.leave_all(Duration::from_secs(20)).await;
    assert_eq!(fs::read_to_string(folder.path().join("residency.jsonl")).expect("a journal"), moved);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_helpers_load_is_adopted_protected_and_given_back_and_a_strangers_is_refused() {
    let server = server().await;
    server.load("a");
    let visit = Visit::at::<7>(vec![ollama(&server)]);
    let report = |kind: &str, port: u16| Report {
        kind: kind.to_owned(),
        url: format!("http://127.0.0.1:{port}").parse().expect("an address"),
        model: "a:latest".into(),
        instance: None,
    };
    for (kind, port) in [("lmstudio", server.port()), ("vllm", server.port()), ("ollama", 1)] {
        assert_eq!(visit.guests.adopt(&report(kind, port)).await, Adoption::Refused, "{kind} {port}");
    }
    assert_eq!(visit.guests.adopt(&report("ollama", server.port())).await, Adoption::Taken);
    assert_eq!(visit.owned(), ["a:latest"]);
    visit.tomorrow();
    drop(visit.guest.prepare("b").await.expect("it loads"));
    assert_eq!(names(&server), ["a:latest", "b:latest"], "a helper's is no straggler");
    visit.guests.leave_all(Duration::from_secs(20)).await;
    assert!(names(&server).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_releases_what_is_ours_and_idle_and_a_probe_only_what_came_since() {
    let server = server().await;
    server.load("b");
    let visit = visit(ollama(&server));
    let before = visit.guest.stamp();
    let stay = visit.guest.prepare("a").await.expect("it loads");
    assert!(matches!(visit.guest.release("a").await, Err(Refusal::InUse(_))));
    assert!(matches!(visit.guest.release("b").await, Err(Refusal::NotOurs)));
    drop(stay);
    visit.guest.leave_probe((visit.guest.stamp(), "a:latest"), Duration::from_secs(20)).await;
    visit.guest.leave_probe((before, "b:latest"), Duration::from_secs(20)).await;
    assert_eq!(names(&server), ["b:latest", "a:latest"]);
    visit.guest.leave_probe((before, "a:latest"), Duration::from_secs(20)).await;
    assert_eq!(names(&server), ["b:latest"]);
    drop(visit.guest.prepare("a").await.expect("it loads"));
    visit.guest.release("a").await.expect("ours and idle");
    assert_eq!((names(&server), visit.owned()), (vec!["b:latest".to_owned()], vec![]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_gives_too_few_tokens_is_told_once() {
    let server = server().await;
    let visit = Visit::at::<6>(vec![ollama(&server)]);
    let mut stay = visit.guest.prepare("a").await.expect("it loads");
    chat(&mut stay).await.expect("it answers");
    visit.told();
    stay.on_tokens(3);
    visit.later(Duration::from_secs(31));
    for _ in 0..2 {
        stay.on_tokens(60);
    }
    let slow: Vec<_> = visit.news().into_iter().map(|one| one.what).collect();
    assert!(matches!(&slow[..], [Told::Notice(one)] if one.kind == NoticeKind::Degraded), "{slow:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_until_the_first_result_is_no_slowness_of_a_stream_and_all_time_counts_of_a_whole_answer() {
    let server = server().await;
    let visit = Visit::at::<9>(vec![ollama(&server)]);
    let mut stay = visit.guest.prepare("a").await.expect("it loads");
    chat(&mut stay).await.expect("it answers");
    visit.told();
    // As if that had come only now.
    visit.later(Duration::from_secs(31));
    stay.on_first_result().await;
    stay.on_tokens(1);
    assert!(visit.told().is_empty(), "a slow start");
    stay.on_whole(62);
    assert!(visit.told().is_empty(), "fast enough in all");
    let mut stay = visit.guest.prepare("a").await.expect("it is there");
    chat(&mut stay).await.expect("it answers");
    visit.later(Duration::from_secs(31));
    stay.on_first_result().await;
    stay.on_whole(61);
    assert_eq!(visit.told(), ["degraded"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_no_model_server_has_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    for url in ["http://169.254.169.254/v1", "http://[fe80::1]:8080", "https://metadata.google.internal"] {
        let bad = Target::new("bad", Kind::Router, url.parse().expect("an address"));
        let opened = Guests::open(vec![bad], crate::support::setting(folder.path(), &Arc::default()));
        assert!(matches!(opened, Err(OpenError::Target { source: CallError::OffLimits, .. })), "{url}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_spoken_to_over_tls_is_never_asked_in_the_clear() {
    let server = server().await;
    let url = format!("https://localhost:{}/v1", server.port()).parse().expect("an address");
    let visit = visit(Target { url, ..ollama(&server) });
    let refused = visit.guest.look().await.expect_err("it speaks no TLS");
    assert!(matches!(refused, ServerError::Call(CallError::Network(_))), "{refused:?}");
    drop(visit.guest.prepare("a").await.expect("unlisted, so it is sent as it is"));
    assert!(server.asked("/api/ps").is_empty() && server.asked("/api/generate").is_empty());
}
