//! What a client reads when there is no reply: an ordinary status before the first byte, an event of the API's after it.
use crate::support::{
    assert_event, assert_refused, assert_serves, gate, header, loading_until, pausing, retry_after, stream_until,
};
use motorpool_testkit::{Behaviour, Bind, End, Exit, Inference, Load, Moment, Switch};
use motorpool_tests::e2e::{
    Daemon, House,
    raw::Raw,
    talk::{CHAT, Said, ask, chat, until_count},
};
use serde_json::{Value, json};

async fn post(daemon: &Daemon<'_>, body: &Value) -> motorpool_testkit::Answer {
    daemon.http().post(CHAT, body).await.expect("an answer")
}

#[tokio::test]
async fn nothing_is_written_before_the_engine_says_something() {
    let mut house = House::new();
    let (load, go_on) = (gate(&house, "load"), gate(&house, "go-on"));
    let behaviour = Behaviour { load: loading_until(&load).load, ..pausing(8, 0, &go_on) };
    let model = house.fake("a", &behaviour);
    let daemon = house.start().await;
    let mut clients = Vec::new();
    for body in [chat("a", "hello"), ask("a", "hello")] {
        let mut client = Raw::connect(daemon.address()).await.expect("connected");
        client.post(CHAT, body.to_string().as_bytes()).await.expect("sent");
        clients.push(client);
    }
    daemon.until_phase("a", &["starting"]).await;
    assert!(clients.iter_mut().all(Raw::is_silent), "while it loads");
    load.open().expect("opened");
    until_count(&model, "active", 2).await;
    assert!(clients.iter_mut().all(Raw::is_silent), "while it reads the prompt");
    go_on.open().expect("opened");
    for mut client in clients {
        let head = client.until("\r\n\r\n").await.expect("a head");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    }
    daemon.until_quiet().await;
    daemon.stop().await;
}

#[tokio::test]
async fn a_load_that_takes_long_shows_comments_and_its_failure_is_an_event_then() {
    let mut house = House::new();
    let load = gate(&house, "load");
    let fails = Exit { at: Moment::Ready, how: End::Code(1), log: vec![], first_starts: None };
    let behaviour =
        Behaviour { exit: Some(fails), load: Load { steps: 2, ..loading_until(&load).load }, ..Behaviour::default() };
    house.fake("a", &behaviour);
    house.set("loading.commit_after", "100ms");
    let daemon = house.start().await;
    let mut stream = daemon.http().open(CHAT, &chat("a", "hello")).await.expect("a head");
    assert_eq!(
        (stream.status.as_u16(), &stream.headers["content-type"]),
        (200, &"text/event-stream".parse().expect("valid"))
    );
    let comment = stream.until("\n\n").await.expect("a comment");
    assert!(comment.starts_with(": loading"), "{comment}");
    load.open().expect("opened");
    let events = stream.whole().await.expect("an orderly end").text();
    let error = Said::read(&events).error.expect("an event");
    assert_event(&json!({"error": error}));
    assert_eq!(error["code"], "engine_start_failed", "{events}");
    let whole = post(&daemon, &ask("a", "hello")).await;
    assert_refused(&whole, 502, "engine_start_failed");
    daemon.stop().await;
}

#[tokio::test]
async fn a_failed_start_says_whether_it_is_worth_another_try() {
    let mut house = House::new();
    let exit = |log: &str| Behaviour {
        exit: Some(Exit { at: Moment::Loading, how: End::Code(1), log: vec![log.into()], first_starts: None }),
        ..Behaviour::default()
    };
    house.fake("unsupported", &exit("error loading model: unknown model architecture: 'x'"));
    house.fake("unknown", &exit("something else"));
    house.fake("cannot-bind", &Behaviour { bind: Bind::Refused, ..Behaviour::default() });
    let daemon = house.start().await;
    for (model, status, class, again) in [
        ("unsupported", 500, "model-unsupported", "false"),
        ("unknown", 502, "unknown", "true"),
        ("cannot-bind", 502, "bind-failed", "true"),
    ] {
        let answer = post(&daemon, &chat(model, "hello")).await;
        let error = assert_refused(&answer, status, "engine_start_failed");
        assert!(error["message"].as_str().is_some_and(|message| message.contains(class)), "{error}");
        assert_eq!(header(&answer, "x-should-retry"), again);
    }
    daemon.stop().await;
}

#[tokio::test]
async fn who_cannot_get_the_room_of_a_busy_engine_is_told_in_the_contracts_words() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake("a", &pausing(20, 10, &go_on));
    house.fake("b", &Behaviour::default());
    house.set("pool.drain_wait", "1s");
    let daemon = house.start().await;
    let (stream, mut bytes) = stream_until(&daemon, ("a", "hello"), 9).await;
    let answer = post(&daemon, &chat("b", "hello")).await;
    let error = assert_refused(&answer, 503, "engine_busy");
    assert_eq!(
        error["message"],
        "engine llama-server:a:0 is busy serving requests and did not drain within 1s — not evicting. Retry shortly, or wait for current turns to finish."
    );
    assert!((1..=60).contains(&retry_after(&answer)));
    go_on.open().expect("opened");
    bytes += &stream.whole().await.expect("its end").text();
    assert_eq!(Said::read(&bytes), Said::whole("hello", 20), "live work is untouched");
    assert_serves(&daemon, "b").await;
    daemon.stop().await;
}

#[tokio::test]
async fn who_waits_too_long_for_a_slot_is_told_so() {
    let mut house = House::new();
    let go_on = gate(&house, "go-on");
    house.fake_with("a", &pausing(20, 10, &go_on), "declared = \"600MiB\"\nslots = 1\n");
    house.set("pool.queue_wait", "1s");
    let daemon = house.start().await;
    let (stream, _) = stream_until(&daemon, ("a", "hello"), 9).await;
    assert_refused(&post(&daemon, &chat("a", "second")).await, 504, "queue_timeout");
    go_on.open().expect("opened");
    stream.whole().await.expect("its end");
    daemon.stop().await;
}

#[tokio::test]
async fn an_engine_that_says_nothing_for_too_long_is_given_up_before_its_first_byte_and_after_it() {
    let mut house = House::new();
    let (first, later) = (gate(&house, "first"), gate(&house, "later"));
    house.fake_with("mute", &pausing(8, 0, &first), "declared = \"100MiB\"\n");
    house.fake_with("stuck", &pausing(8, 5, &later), "declared = \"100MiB\"\n");
    house.set("limits.first_result", "1s");
    house.set("limits.between_frames", "1s");
    let daemon = house.start().await;
    for body in [chat("mute", "hello"), ask("mute", "hello")] {
        assert_refused(&post(&daemon, &body).await, 504, "engine_timeout");
    }
    let answer = post(&daemon, &chat("stuck", "hello")).await;
    let said = Said::read(&answer.text());
    assert_eq!((said.text, said.is_done), (motorpool_testkit::text("hello", 5), false));
    assert_eq!(assert_event(&json!({"error": said.error.expect("an event")}))["code"], "engine_timeout");
    assert_refused(&post(&daemon, &ask("stuck", "hello")).await, 504, "engine_timeout");
    daemon.until_quiet().await;
    daemon.stop().await;
}

#[tokio::test]
async fn the_engines_own_refusals_reach_the_client_as_they_are_and_its_failures_as_errors() {
    let mut house = House::new();
    let broken = gate(&house, "broken");
    let inference = Inference { fails: Switch::WhileFile(broken.file()), ..Inference::default() };
    let model = house.fake("a", &Behaviour { inference, ..Behaviour::default() });
    let daemon = house.start().await;
    assert_serves(&daemon, "a").await;
    let itself = motorpool_testkit::Client::new(model.starts()[0].endpoint());
    let nonsense = json!({"model": "a", "messages": 7});
    let (through, direct) = (post(&daemon, &nonsense).await, itself.post(CHAT, &nonsense).await.expect("an answer"));
    assert_eq!((through.status, through.text()), (direct.status, direct.text()));
    assert_eq!(through.status, 400);
    broken.open().expect("opened");
    let failed = post(&daemon, &chat("a", "hello")).await;
    assert_eq!(failed.status, 500);
    assert!(failed.json()["error"]["message"].is_string(), "{}", failed.text());
    broken.close().expect("closed");
    let late = Inference { error_after: Some(3), ..Inference::default() };
    model.behave(&Behaviour { inference: late, ..Behaviour::default() }).expect("written");
    daemon.cli(&["unload", "a"]).await;
    let events = post(&daemon, &chat("a", "hello")).await.text();
    let said = Said::read(&events);
    assert_eq!((said.text, said.is_done), (motorpool_testkit::text("hello", 3), false), "{events}");
    assert!(said.error.expect("an event")["message"].is_string());
    daemon.stop().await;
}

#[tokio::test]
async fn paths_and_methods_that_are_not_there_are_errors_in_shape() {
    let house = House::new();
    let daemon = house.start().await;
    let request = |method: &str, path: &str| {
        http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .body(http_body_util::Full::default())
            .expect("valid")
    };
    for (method, path, status, code) in [
        ("GET", "/no/such/path", 404, "not_found"),
        ("POST", "/v1/v1/chat/completions", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
    ] {
        let answer =
            daemon.http().send(request(method, path)).await.expect("an answer").whole().await.expect("its end");
        assert_refused(&answer, status, code);
    }
    let mut old = Raw::connect(daemon.address()).await.expect("connected");
    old.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("sent");
    let answer = old.rest().await.expect("its end");
    assert!(answer.starts_with("HTTP/1.") && answer[8..].starts_with(" 505 "), "{answer}");
    daemon.stop().await;
}

#[tokio::test]
async fn what_can_be_served_is_listed_with_its_state() {
    let mut house = House::new();
    house.fake_with("a", &Behaviour::default(), "declared = \"600MiB\"\nslots = 2\naliases = [\"first\"]\n");
    let daemon = house.start().await;
    let state = async || {
        let answer = daemon.http().get("/v1/models").await.expect("an answer").json();
        let rows = answer["data"].as_array().expect("rows").clone();
        rows.into_iter().find(|row| row["id"] == "a").expect("its row")
    };
    let row = state().await;
    assert_eq!((&row["object"], &row["aliases"]), (&json!("model"), &json!(["first"])), "{row}");
    assert!(row.to_string().contains("\"unloaded\""), "{row}");
    assert_serves(&daemon, "first").await;
    let row = state().await;
    assert!(row.to_string().contains("\"loaded\""), "{row}");
    assert_eq!(daemon.http().get("/health").await.expect("an answer").json(), json!({"status": "ok"}));
    daemon.stop().await;
}

#[tokio::test]
async fn what_a_model_is_not_for_is_refused_before_anything_is_loaded() {
    let mut house = House::new();
    let mut models = Vec::new();
    for capability in ["chat", "embeddings", "rerank"] {
        let lines = format!("declared = \"100MiB\"\ncapabilities = [\"{capability}\"]\n");
        models.push(house.fake_with(capability, &Behaviour::default(), &lines));
    }
    let daemon = house.start().await;
    let http = daemon.http();
    for (path, model) in [
        (CHAT, "embeddings"),
        ("/v1/completions", "rerank"),
        ("/v1/embeddings", "chat"),
        ("/v1/embeddings", "rerank"),
        ("/m/chat/rerank", "chat"),
        ("/m/rerank/v1/messages", "rerank"),
    ] {
        let body = json!({"model": model, "input": "x", "prompt": "x", "messages": []});
        let answer = http.post(path, &body).await.expect("an answer");
        assert_eq!((answer.status.as_u16(), header(&answer, "x-motorpool-code")), (400, "invalid_request"), "{path}");
        let text = answer.text();
        assert!(text.contains(&format!("the model `{model}` is for {model}, not for")), "{text}");
        assert!(text.contains("`capabilities`"), "{text}");
    }
    let refused = http.post(CHAT, &chat("embeddings", "x")).await.expect("an answer");
    assert_eq!(assert_refused(&refused, 400, "invalid_request")["param"], "model");
    assert!(models.iter().all(|model| model.starts().is_empty()), "nothing was loaded");
    let answer = http.post("/v1/embeddings", &json!({"model": "embeddings", "input": "x"})).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = http.post("/m/rerank/v1/rerank", &json!({"query": "x", "documents": ["y"]})).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    daemon.stop().await;
}

#[tokio::test]
async fn a_model_that_cannot_embed_as_clients_ask_does_not_start_and_says_why() {
    let mut house = House::new();
    let lines = "declared = \"100MiB\"\ncapabilities = [\"embeddings\"]\nextra_args = [\"--pooling\", \"none\"]\n";
    house.fake_with("e", &Behaviour::default(), lines);
    let daemon = house.start().await;
    let body = json!({"model": "e", "input": "x"});
    let answer = daemon.http().post("/v1/embeddings", &body).await.expect("an answer");
    let error = assert_refused(&answer, 502, "engine_start_failed");
    assert!(error["message"].as_str().is_some_and(|text| text.contains("Pooling type 'none'")), "{error}");
    daemon.stop().await;
}
