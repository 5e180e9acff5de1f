//! SIGKILL of the real engine and of its supervisor.
use motorpool_testkit::{Incoming, eventually};
use motorpool_tests::e2e::{
    Daemon,
    daemon::send,
    installed::{MODEL, engine_itself, engine_pid, house, model_file},
    processes::is_alive,
    talk::{CHAT, Said},
};
use nix::sys::signal::Signal;
use serde_json::json;

/// A stream that goes on for as long as the context lasts, seen to begin.
async fn endless(daemon: &Daemon<'_>) -> (Incoming, String) {
    let body = json!({
        "model": MODEL, "stream": true, "ignore_eos": true, "stop": ["no such text"], "temperature": 0,
        "messages": [{"role": "user", "content": "Count."}],
    });
    let mut stream = daemon.http().open(CHAT, &body).await.expect("a head");
    let seen = stream.until("\"content\":\"").await.expect("a token");
    (stream, seen)
}

async fn assert_serves(daemon: &Daemon<'_>) {
    let body = json!({"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    let answer = daemon.http().post(CHAT, &body).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[tokio::test]
async fn a_stream_whose_engine_is_killed_ends_with_a_typed_error_and_the_next_request_is_served() {
    let house = house().await;
    let daemon = house.start().await;
    let (stream, mut events) = endless(&daemon).await;
    let pid = engine_pid(&daemon, MODEL).await;
    send(pid, Signal::SIGKILL);
    events += &stream.whole().await.expect("an orderly end").text();
    let said = Said::read(&events);
    assert!(!said.is_done && !said.text.is_empty(), "{said:?}");
    assert_eq!(said.error.expect("an event")["code"], "engine_crashed");
    assert_serves(&daemon).await;
    assert_ne!(engine_pid(&daemon, MODEL).await, pid);
    daemon.stop().await;
}

#[tokio::test]
async fn a_client_that_leaves_its_stream_frees_the_engine() {
    let house = house().await;
    let daemon = house.start().await;
    drop(endless(&daemon).await);
    daemon.until_quiet().await;
    let engine = engine_itself(&house);
    eventually("its slots are free", async || {
        let slots = engine.get("/slots").await.ok()?.json();
        slots.as_array()?.iter().all(|slot| slot["is_processing"] == json!(false)).then_some(())
    })
    .await;
    assert_serves(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_killed_supervisor_takes_a_loading_engine_along() {
    let house = house().await;
    let daemon = house.start().await;
    let http = daemon.http();
    tokio::spawn(async move { drop(http.post(CHAT, &json!({"model": MODEL, "messages": []})).await) });
    let pid = eventually("its engine runs", async || daemon.status().await.engine(MODEL).and_then(|e| e.pid)).await;
    daemon.kill().await;
    assert!(!is_alive(pid));
}

#[tokio::test]
async fn a_killed_supervisor_takes_a_streaming_engine_along_and_the_next_one_serves() {
    let house = house().await;
    let daemon = house.start().await;
    let (stream, _) = endless(&daemon).await;
    let pid = engine_pid(&daemon, MODEL).await;
    daemon.kill().await;
    assert!(!is_alive(pid) && stream.whole().await.is_err());
    let daemon = house.start().await;
    assert_serves(&daemon).await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_file_that_is_cut_while_it_is_mapped_ends_its_engine_and_is_not_loaded_again() {
    let mut house = house().await;
    let copy = house.path("models/copy.gguf");
    std::fs::copy(model_file(), &copy).expect("copied");
    house.add_model("copy", &copy, "slots = 1\n");
    let daemon = house.start().await;
    let body = json!({"model": "copy", "max_tokens": 4, "messages": [{"role": "user", "content": "Hello"}]});
    let answer = daemon.http().post(CHAT, &body).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let pid = engine_pid(&daemon, "copy").await;
    let file = std::fs::File::options().write(true).open(&copy).expect("there");
    file.set_len(file.metadata().expect("there").len() / 2).expect("cut");
    // Asked once more of another engine; for that the file is looked at first.
    let answer = daemon.http().post(CHAT, &body).await.expect("an answer");
    assert!(answer.status.is_server_error(), "{}", answer.text());
    eventually("it is gone", async || (!is_alive(pid)).then_some(())).await;
    let exit = eventually("its end is told", async || daemon.status().await.engine("copy")?.last_exit.clone()).await;
    assert_eq!((&exit["signal"], &exit["class"]), (&json!(7), &json!("assertion")), "{exit}");
    for _ in 0..2 {
        let again = daemon.http().post(CHAT, &body).await.expect("an answer");
        assert_eq!(again.status, 500, "{}", again.text());
        assert!(again.text().contains("model-corrupt"), "{}", again.text());
    }
    let log = daemon.log();
    assert_eq!(log.matches("[llama-server] launch").count(), 1, "{log}");
    assert_serves(&daemon).await;
    daemon.stop().await;
}
