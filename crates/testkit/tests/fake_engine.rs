//! The fake engine, driven directly: what a supervisor and a client of llama-server would see.
use motorpool_testkit::{
    Aborts, Behaviour, Bind, Client, Deaf, End, Exit, FakeModel, Flood, Gate, Grandchild, LineEnd, Load, Moment,
    Session, Switch, TokenGate, Tokens, eventually, text,
};
use motorpool_vocab::Endpoint;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use std::{
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdin, Command},
};

/// An engine of this test; killed when dropped.
struct Engine {
    child: Child,
    stdin: Option<ChildStdin>,
    client: Client,
    model: FakeModel,
    dir: TempDir,
}

impl Engine {
    /// With `behaviour`, which may name files in the given directory.
    fn start(behaviour: impl FnOnce(&Path) -> Behaviour) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let model = FakeModel::write(dir.path(), "m", &behaviour(dir.path())).expect("written");
        Self::of(dir, model)
    }

    fn of(dir: TempDir, model: FakeModel) -> Self {
        Self::with(dir, model, &[])
    }

    fn with(dir: TempDir, model: FakeModel, arguments: &[&str]) -> Self {
        let socket = dir.path().join("e.sock");
        let mut child = Command::new(env!("CARGO_BIN_EXE_motorpool-fake-engine"))
            .args(["-np", "1", "-fit", "off", "--host"])
            .arg(&socket)
            .arg("-m")
            .arg(model.path())
            .args(arguments)
            .env("LLAMA_SERVER_ROUTER_PORT", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("started");
        let stdin = child.stdin.take();
        Self { child, stdin, client: Client::new(Endpoint::Unix(socket)), model, dir }
    }

    async fn ready(behaviour: impl FnOnce(&Path) -> Behaviour) -> Self {
        let engine = Self::start(behaviour);
        engine.await_health(200).await;
        engine
    }

    async fn await_health(&self, status: u16) {
        eventually("health", async || (self.client.get("/health").await.ok()?.status == status).then_some(())).await;
    }

    /// Waits until `/fake/requests` counts so many.
    async fn await_count(&self, name: &str, n: u64) {
        eventually(name, async || {
            (self.client.get("/fake/requests").await.ok()?.json()[name] == json!(n)).then_some(())
        })
        .await;
    }

    fn signal(&self, which: Signal) {
        let pid = self.child.id().expect("running").try_into().expect("a process id");
        kill(Pid::from_raw(pid), which).expect("signalled");
    }

    async fn end(&mut self) -> ExitStatus {
        self.child.wait().await.expect("its end")
    }

    /// All of stderr, up to the end.
    async fn log(&mut self) -> String {
        let mut log = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut log).await.expect("text");
        log
    }

    fn start_again(self) -> Self {
        std::fs::remove_file(self.dir.path().join("e.sock")).expect("left behind");
        Self::of(self.dir, self.model)
    }
}

fn chat(prompt: &str, n: u32) -> serde_json::Value {
    json!({"model": "m", "messages": [{"role": "user", "content": prompt}], "max_tokens": n})
}

fn streamed(prompt: &str, n: u32) -> serde_json::Value {
    let mut request = chat(prompt, n);
    request["stream"] = json!(true);
    request
}

fn held_at(dir: &Path, before: u32) -> Tokens {
    Tokens { gates: vec![TokenGate { before, file: dir.join("gate") }], ..Tokens::default() }
}

#[tokio::test]
async fn it_listens_first_answers_503_while_loading_and_200_when_ready() {
    let mut engine = Engine::start(|dir| Behaviour {
        load: Load { gates: vec![dir.join("half"), dir.join("whole")], ..Load::default() },
        ..Behaviour::default()
    });
    engine.await_health(503).await;
    let answer = engine.client.post("/v1/chat/completions", &chat("a", 1)).await.expect("an answer");
    assert_eq!(answer.json()["error"]["message"], "Loading model");
    Gate::closed(engine.dir.path(), "half").open().expect("opened");
    let mut lines = BufReader::new(engine.child.stdout.take().expect("a pipe")).lines();
    let mut values = Vec::new();
    while values.last() != Some(&json!(0.5)) {
        let line = lines.next_line().await.expect("read").expect("a line");
        let state = line.strip_prefix("cmd_child_to_router:state:").expect("the protocol");
        let state: serde_json::Value = serde_json::from_str(state).expect("JSON");
        assert_eq!(state["state"], "loading");
        values.push(state["payload"]["value"].clone());
    }
    assert_eq!(values, [json!(0.0), json!(0.5)]);
    assert_eq!(engine.client.get("/health").await.expect("an answer").status, 503);
    Gate::closed(engine.dir.path(), "whole").open().expect("opened");
    engine.await_health(200).await;
    assert!(lines.next_line().await.expect("read").expect("a line").contains("\"value\":1.0"));
    assert!(lines.next_line().await.expect("read").expect("a line").contains("\"state\":\"ready\""));
}

#[tokio::test]
async fn equal_requests_get_equal_bytes_in_one_piece_or_streamed() {
    let engine = Engine::ready(|_| Behaviour::default()).await;
    let first = engine.client.post("/v1/chat/completions", &chat("why?", 5)).await.expect("an answer");
    let again = engine.client.post("/v1/chat/completions", &chat("why?", 5)).await.expect("an answer");
    assert_eq!(first.body, again.body);
    assert_eq!(first.json()["choices"][0]["message"]["content"], text("why?", 5));
    assert_eq!(first.json()["choices"][0]["finish_reason"], "length");
    let mut request = streamed("why?", 50);
    request["stream_options"] = json!({"include_usage": true});
    let stream = engine.client.post("/v1/chat/completions", &request).await.expect("an answer");
    assert_eq!(stream.headers["content-type"], "text/event-stream");
    let events: Vec<String> = stream
        .text()
        .split_terminator("\n\n")
        .map(|e| e.strip_prefix("data: ").expect("an event").to_owned())
        .collect();
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    let chunks: Vec<serde_json::Value> =
        events[..events.len() - 1].iter().map(|e| serde_json::from_str(e).expect("JSON")).collect();
    let said: String = chunks.iter().filter_map(|c| c["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(said, text("why?", 8), "the natural length is 8");
    assert_eq!(chunks[chunks.len() - 1]["usage"]["completion_tokens"], 8);
    let completion = json!({"prompt": "why?", "max_tokens": 3});
    let answer = engine.client.post("/v1/completions", &completion).await.expect("an answer");
    assert_eq!(answer.json()["choices"][0]["text"], text("why?", 3));
    let seen = engine.client.get("/fake/requests").await.expect("an answer").json();
    assert_eq!((&seen["received"], &seen["finished"], &seen["active"]), (&json!(4), &json!(4), &json!(0)));
    assert_eq!(seen["last"]["target"], "/v1/completions");
}

#[tokio::test]
async fn every_family_says_the_same_text_in_its_own_shape() {
    let engine = Engine::ready(|_| Behaviour::default()).await;
    let messages = json!({"messages": [{"role": "user", "content": "a b"}], "max_tokens": 3});
    for (path, request, text_at, n_at) in [
        ("/v1/chat/completions", &messages, "/choices/0/message/content", "/usage/completion_tokens"),
        ("/v1/completions", &json!({"prompt": "a b", "max_tokens": 3}), "/choices/0/text", "/usage/completion_tokens"),
        ("/completion", &json!({"prompt": "a b", "n_predict": 3}), "/content", "/tokens_predicted"),
        ("/v1/messages", &messages, "/content/0/text", "/usage/output_tokens"),
        (
            "/v1/responses",
            &json!({"input": "a b", "max_output_tokens": 3}),
            "/output/0/content/0/text",
            "/usage/output_tokens",
        ),
    ] {
        let whole = engine.client.post(path, request).await.expect("an answer").json();
        assert_eq!(whole.pointer(text_at), Some(&json!(text("a b", 3))), "{path}");
        assert_eq!(whole.pointer(n_at), Some(&json!(3)), "{path}");
        let mut request = request.clone();
        request["stream"] = json!(true);
        let stream = engine.client.post(path, &request).await.expect("an answer").text();
        let said: String = stream.lines().filter_map(|line| token_of(line.strip_prefix("data: ")?)).collect();
        assert_eq!(said, text("a b", 3), "{path}");
    }
}

/// The text that an event of any family adds.
fn token_of(event: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(event).ok()?;
    ["/choices/0/delta/content", "/choices/0/text", "/content", "/delta/text", "/delta"]
        .iter()
        .find_map(|at| event.pointer(at)?.as_str().map(str::to_owned))
}

#[tokio::test]
async fn embeddings_and_rankings_are_served_only_by_an_engine_that_was_started_for_them() {
    let engine = Engine::ready(|_| Behaviour::default()).await;
    let request = json!({"input": ["a", "b"]});
    assert_eq!(engine.client.post("/v1/embeddings", &request).await.expect("an answer").status, 501);
    let Engine { dir, model, child, .. } = engine;
    drop(child);
    std::fs::remove_file(dir.path().join("e.sock")).expect("left behind");
    let engine = Engine::with(dir, model, &["--embeddings", "--reranking", "-a", "e"]);
    engine.await_health(200).await;
    let answer = engine.client.post("/v1/embeddings", &request).await.expect("an answer").json();
    assert_eq!(answer["data"][1]["embedding"], json!(motorpool_testkit::embedding("b")));
    assert_eq!(answer["model"], "e");
    let answer = engine.client.post("/embedding", &json!({"content": "1"})).await.expect("an answer").json();
    assert_eq!(answer[0]["embedding"], json!([motorpool_testkit::embedding("1")]));
    let answer = engine.client.post("/rerank", &json!({"query": "1", "documents": ["1"]})).await.expect("an answer");
    assert_eq!(answer.json()["results"][0]["index"], 0);
}

#[tokio::test]
async fn a_client_that_leaves_its_stream_frees_the_slot_and_one_that_waits_for_the_whole_does_not() {
    let engine = Engine::ready(|dir| Behaviour { tokens: held_at(dir, 2), ..Behaviour::default() }).await;
    let mut stream = engine.client.open("/v1/chat/completions", &streamed("a", 8)).await.expect("an answer");
    stream.until(&motorpool_testkit::token("a", 1)).await.expect("two tokens");
    assert_eq!(engine.client.get("/slots").await.expect("an answer").json()[0]["is_processing"], true);
    drop(stream);
    engine.await_count("aborted", 1).await;
    assert_eq!(engine.client.get("/slots").await.expect("an answer").json()[0]["is_processing"], false);

    let (client, request) = (engine.client.clone(), chat("b", 8));
    let whole = tokio::spawn(async move { client.post("/v1/chat/completions", &request).await });
    engine.await_count("tokens", 4).await;
    whole.abort();
    whole.await.expect_err("aborted");
    Gate::closed(engine.dir.path(), "gate").open().expect("opened");
    engine.await_count("finished", 1).await;
    engine.await_count("aborted", 1).await;
}

#[tokio::test]
async fn abort_sensitivity_and_switches_are_read_from_the_sidecar_at_each_start() {
    let engine = Engine::ready(|_| Behaviour::default()).await;
    let mut behaviour = Behaviour { tokens: held_at(engine.dir.path(), 1), ..Behaviour::default() };
    behaviour.inference.aborts = Aborts::AtOnce;
    let ill = Gate::closed(engine.dir.path(), "ill");
    behaviour.inference.fails = Switch::WhileFile(ill.file());
    engine.model.behave(&behaviour).expect("written");
    let engine = engine.start_again();
    engine.await_health(200).await;
    let (client, request) = (engine.client.clone(), chat("b", 8));
    let whole = tokio::spawn(async move { client.post("/v1/chat/completions", &request).await });
    engine.await_count("tokens", 1).await;
    whole.abort();
    engine.await_count("aborted", 1).await;
    ill.open().expect("opened");
    let answer = engine.client.post("/v1/chat/completions", &chat("b", 1)).await.expect("an answer");
    assert_eq!(answer.status, 500);
    assert_eq!(engine.client.get("/health").await.expect("an answer").status, 200);
    ill.close().expect("closed");
    let answer = engine.client.post("/v1/chat/completions", &chat("b", 1)).await.expect("an answer");
    assert_eq!(answer.status, 200);
    assert_eq!(engine.model.starts().len(), 2);
}

#[tokio::test]
async fn a_silent_stream_gets_comments_and_requests_beyond_the_slots_wait() {
    let engine = Engine::ready(|dir| Behaviour {
        tokens: Tokens { ping_ms: Some(1), ..held_at(dir, 1) },
        ..Behaviour::default()
    })
    .await;
    let mut first = engine.client.open("/v1/completions", &json!({"prompt": "a", "stream": true})).await.expect("open");
    first.until("\n:\n\n").await.expect("a comment");
    let (client, request) = (engine.client.clone(), chat("b", 1));
    let second = tokio::spawn(async move { client.post("/v1/chat/completions", &request).await });
    engine.await_count("active", 2).await;
    let metrics = engine.client.get("/metrics").await.expect("an answer").text();
    assert!(metrics.contains("requests_deferred 1"), "{metrics}");
    drop(first);
    assert_eq!(second.await.expect("no panic").expect("an answer").status, 200);
}

#[tokio::test]
async fn an_error_in_a_stream_ends_it_without_the_usual_end() {
    let engine = Engine::ready(|_| {
        let mut behaviour = Behaviour::default();
        behaviour.inference.error_after = Some(2);
        behaviour
    })
    .await;
    let stream = engine.client.post("/v1/chat/completions", &streamed("a", 8)).await.expect("an answer").text();
    assert!(stream.contains("data: {\"error\":") && !stream.contains("[DONE]"), "{stream}");
}

#[tokio::test]
async fn an_idle_engine_exits_with_0_on_every_polite_request() {
    let mut engine = Engine::ready(|_| Behaviour::default()).await;
    engine.signal(Signal::SIGTERM);
    assert_eq!(engine.end().await.code(), Some(0));
    let mut engine = engine.start_again();
    engine.await_health(200).await;
    let mut stdin = engine.stdin.take().expect("a pipe");
    stdin.write_all(b"cmd_router_to_child:exit\n").await.expect("written");
    assert_eq!(engine.end().await.code(), Some(0));
    let mut engine = engine.start_again();
    engine.await_health(200).await;
    drop(engine.stdin.take());
    assert_eq!(engine.end().await.code(), Some(1));
    assert!(engine.log().await.contains("EOF on stdin detected"));
}

#[tokio::test]
async fn a_stopping_engine_makes_no_token_and_waits_for_its_clients() {
    let mut engine = Engine::ready(|dir| Behaviour { tokens: held_at(dir, 1), ..Behaviour::default() }).await;
    let mut stream = engine.client.open("/v1/chat/completions", &streamed("a", 8)).await.expect("an answer");
    stream.until(&motorpool_testkit::token("a", 0)).await.expect("one token");
    engine.signal(Signal::SIGTERM);
    let mut log = BufReader::new(engine.child.stderr.take().expect("a pipe")).lines();
    while !log.next_line().await.expect("read").expect("a line").contains("cleaning up before exit") {}
    Gate::closed(engine.dir.path(), "gate").open().expect("opened");
    assert_eq!(engine.client.get("/fake/requests").await.expect("an answer").json()["active"], 1);
    drop(stream);
    assert_eq!(engine.end().await.code(), Some(0));
}

#[tokio::test]
async fn a_signal_while_loading_kills_and_a_second_one_while_stopping_exits_with_1() {
    let mut engine = Engine::start(|dir| Behaviour {
        load: Load { gates: vec![dir.join("never")], ..Load::default() },
        ..Behaviour::default()
    });
    engine.await_health(503).await;
    engine.signal(Signal::SIGTERM);
    assert_eq!(engine.end().await.signal(), Some(Signal::SIGTERM as i32));
    let mut behaviour = Behaviour::default();
    behaviour.stop.gate = Some(engine.dir.path().join("never"));
    engine.model.behave(&behaviour).expect("written");
    let mut engine = engine.start_again();
    engine.await_health(200).await;
    engine.signal(Signal::SIGTERM);
    let mut log = BufReader::new(engine.child.stderr.take().expect("a pipe")).lines();
    while !log.next_line().await.expect("read").expect("a line").contains("cleaning up before exit") {}
    engine.signal(Signal::SIGTERM);
    assert_eq!(engine.end().await.code(), Some(1));
}

#[tokio::test]
async fn a_deaf_engine_ends_only_when_killed() {
    let mut engine = Engine::ready(|_| {
        let mut behaviour = Behaviour::default();
        behaviour.stop.deaf_to = vec![Deaf::Sigterm, Deaf::ExitCommand, Deaf::EndOfStdin];
        behaviour
    })
    .await;
    let mut stdin = engine.stdin.take().expect("a pipe");
    stdin.write_all(b"cmd_router_to_child:exit\n").await.expect("written");
    drop(stdin);
    engine.signal(Signal::SIGTERM);
    engine.await_health(200).await;
    engine.signal(Signal::SIGKILL);
    assert_eq!(engine.end().await.signal(), Some(Signal::SIGKILL as i32));
}

#[tokio::test]
async fn it_ends_by_itself_at_the_moment_it_was_told_and_only_as_often() {
    for at in [Moment::Start, Moment::Bound, Moment::Loading, Moment::Ready] {
        let exit = Exit { at, how: End::Code(7), log: vec!["CUDA error".into()], first_starts: Some(1) };
        let mut engine = Engine::start(|_| Behaviour { exit: Some(exit), ..Behaviour::default() });
        assert_eq!(engine.end().await.code(), Some(7), "{at:?}");
        assert!(engine.log().await.contains("CUDA error"), "{at:?}");
        let engine = match at {
            // Nothing was bound, nothing is left.
            Moment::Start => Engine::of(engine.dir, engine.model),
            _ => engine.start_again(),
        };
        engine.await_health(200).await;
    }
}

#[tokio::test]
async fn it_crashes_after_the_tokens_it_was_told() {
    for signal in [Signal::SIGABRT, Signal::SIGKILL, Signal::SIGSEGV] {
        let how = End::Signal(signal.as_str().into());
        let exit = Exit { at: Moment::Token(3), how, log: Vec::new(), first_starts: None };
        let mut engine = Engine::ready(|_| Behaviour { exit: Some(exit), ..Behaviour::default() }).await;
        let mut stream = engine.client.open("/v1/chat/completions", &streamed("a", 8)).await.expect("an answer");
        stream.until(&json!(motorpool_testkit::token("a", 2)).to_string()).await.expect("three tokens");
        assert!(stream.next().await.is_err());
        assert_eq!(engine.end().await.signal(), Some(signal as i32));
    }
}

#[tokio::test]
async fn an_address_in_use_and_a_model_without_sense_are_told_apart_by_the_log_only() {
    let mut engine = Engine::ready(|_| Behaviour::default()).await;
    engine.signal(Signal::SIGKILL);
    engine.end().await;
    let mut engine = Engine::of(engine.dir, engine.model);
    assert_eq!(engine.end().await.code(), Some(1));
    assert!(engine.log().await.contains("couldn't bind HTTP server socket"));
    std::fs::write(engine.model.path(), "garbage").expect("written");
    let mut engine = engine.start_again();
    assert_eq!(engine.end().await.code(), Some(1));
    assert!(engine.log().await.contains("invalid magic characters: 'garb'"));
    std::fs::remove_file(engine.model.path()).expect("removed");
    let mut engine = engine.start_again();
    assert_eq!(engine.end().await.code(), Some(1));
    assert!(engine.log().await.contains("failed to open GGUF file"));
    let mut engine = Engine::start(|_| Behaviour { bind: Bind::Refused, ..Behaviour::default() });
    assert_eq!(engine.end().await.code(), Some(1));
}

#[tokio::test]
async fn a_health_that_lies_says_200_while_inference_says_503() {
    let engine = Engine::start(|dir| {
        let mut behaviour = Behaviour::default();
        behaviour.health.lies = Switch::ON;
        behaviour.load.gates = vec![dir.join("never")];
        behaviour
    });
    engine.await_health(200).await;
    let answer = engine.client.post("/v1/completions", &json!({"prompt": "a"})).await.expect("an answer");
    assert_eq!(answer.status, 503);
}

#[tokio::test]
async fn a_flood_is_as_fast_as_its_reader_and_needs_no_line_end() {
    for (line_end, n_lines) in [(LineEnd::Lf, 4000..=4096), (LineEnd::None, 0..=50)] {
        let flood = Flood { bytes: Some(1 << 18), bytes_per_second: None, line_end };
        let mut engine = Engine::start(|_| Behaviour { flood: Some(flood), ..Behaviour::default() });
        let mut pipe = engine.child.stderr.take().expect("a pipe");
        let mut all = vec![0; 1 << 18];
        pipe.read_exact(&mut all).await.expect("that much");
        let lines = all.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"0123456789abcdef")).count();
        assert!(n_lines.contains(&lines), "{lines}, not {n_lines:?}");
        let rest = tokio::spawn(async move { tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await });
        eventually("the whole flood", async || {
            let seen = engine.client.get("/fake/process").await.ok()?.json();
            (seen["flooded"] == json!(1 << 18)).then_some(())
        })
        .await;
        rest.abort();
    }
}

#[tokio::test]
async fn a_grandchild_in_a_session_of_its_own_outlives_the_engine_and_holds_its_pipes() {
    let mut engine = Engine::ready(|_| Behaviour {
        grandchild: Some(Grandchild { session: Session::Own, ..Grandchild::default() }),
        ..Behaviour::default()
    })
    .await;
    let strays = engine.model.strays();
    let stray = Pid::from_raw(i32::try_from(strays[0]).expect("a process id"));
    let session = async || (nix::unistd::getsid(Some(stray)).ok()? == stray).then_some(());
    eventually("a session of its own", session).await;
    engine.signal(Signal::SIGKILL);
    engine.end().await;
    kill(stray, Signal::SIGTERM).expect("it is still there");
    kill(stray, None).expect("it is deaf");
    kill(stray, Signal::SIGKILL).expect("killed");
    // The pipe ends only now.
    engine.log().await;
}

#[tokio::test]
async fn it_listens_on_a_port_too() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = FakeModel::write(dir.path(), "m", &Behaviour::default()).expect("written");
    let mut child = Command::new(env!("CARGO_BIN_EXE_motorpool-fake-engine"))
        .args(["--host", "127.0.0.1", "--port", "0", "-m"])
        .arg(model.path())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("started");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let port = loop {
        let line = log.next_line().await.expect("read").expect("a line");
        if let Some((_, rest)) = line.split_once("listening on http://127.0.0.1:") {
            break rest.split(' ').next().and_then(|port| port.parse().ok()).expect("a port");
        }
    };
    let client = Client::new(Endpoint::Tcp(port));
    assert_eq!(client.get("/health").await.expect("an answer").headers["server"], "llama.cpp");
    assert_eq!(client.get("/nothing").await.expect("an answer").status, 404);
}
