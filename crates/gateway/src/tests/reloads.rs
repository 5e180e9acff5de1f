//! Another catalog while requests run.
use super::*;
use crate::{NotReloaded, Pull, Reloads};
use motorpool_catalog::{Source, parse_config};

#[tokio::test]
async fn a_request_sees_the_catalog_that_it_began_with_and_the_next_one_sees_the_new_one() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let body = json!({"model":"alias","stream":true}).to_string();
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    let head = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.expect("it reads");
    // It is asked for the body once somebody has taken the request up.
    let mut said = vec![0; "HTTP/1.1 100 Continue\r\n\r\n".len()];
    stream.read_exact(&mut said).await.expect("it goes on");
    assert!(said.starts_with(b"HTTP/1.1 100"), "{}", String::from_utf8_lossy(&said));
    let text = "[server]\nhosts = [\"new.example\"]\n[defaults]\nmodel = \"n\"\n[limits]\nbody = \"64MiB\"\n";
    let config = parse_config(Source { file: "f", text }, &|_| None).expect("right");
    server.handover.reload(catalog(&[("n", &[])]), &config, vec![]);
    engine.stream(&[&delta("a"), END]);
    stream.write_all(body.as_bytes()).await.expect("it reads");
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.expect("it answers");
    assert_eq!(Reply::of(&rest).status, 200, "{rest}");
    let gone = server.post(CHAT, "", &json!({"model":"alias"})).await;
    assert_eq!(gone.status, 404, "{gone:?}");
    // The default of the new one, by a name of the host that only it has.
    engine.stream(&[&delta("a"), END]);
    let request = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: new.example\r\nconnection: close\r\ncontent-length: 15\r\n\r\n{{\"stream\":true}}"
    );
    let reply = Reply::of(&server.raw(&request).await);
    assert_eq!((reply.status, engine.leases().await), (200, 0), "{reply:?}");
    let models = server.get("/v1/models", "").await.json();
    assert_eq!(models["data"].as_array().map(Vec::len), Some(1), "{models}");
    let limits = &server.handover.0.now().context.settings.limits;
    assert_eq!(limits.body, Config::default().limits.body, "what cannot change while it runs is what it was");
}

#[tokio::test]
async fn a_request_that_was_made_for_another_engine_of_its_model_does_not_reach_the_new_one() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.becomes("other");
    for path in [CHAT, "/m/m/v1/chat/completions", "/api/chat"] {
        engine.stream(&[&delta("a"), END]);
        let ask = json!({"model":"m","messages":[{"role":"user","content":"x"}]});
        let reply = server.post(path, "", &ask).await;
        assert_eq!(reply.status, 503, "{path}: {reply:?}");
        assert!(
            reply.head.contains("retry-after: 5") && reply.head.contains("x-motorpool-code: engine_busy"),
            "{reply:?}"
        );
    }
    assert_eq!((pool.n_granted(), engine.leases().await), (3, 0), "what was leased is given back");
}

#[tokio::test]
async fn a_file_is_fetched_by_the_catalog_of_the_last_reload() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let pull = Pull::new(move |catalog, model| {
        let known: Vec<String> = catalog.models().map(|model| model.id.to_string()).collect();
        tell.send((model.id.to_string(), known)).expect("somebody listens");
        Box::pin(std::future::ready(Ok(())))
    });
    server.handover.0.now().context.pull.set(pull).expect("nobody did");
    server.handover.reload(catalog(&[("n", &[]), ("o", &[])]), &Config::default(), vec![]);
    let reply = server.post("/api/pull", "", &json!({"model": "o", "stream": false})).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(told.recv().await, Some(("o".into(), vec!["n".into(), "o".into()])));
}

#[tokio::test]
async fn a_pull_that_fails_is_told_whole_and_in_lines() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let pull = Pull::new(|_, _| Box::pin(std::future::ready(Err("the hub is gone".to_owned()))));
    server.handover.0.now().context.pull.set(pull).expect("nobody did");
    let whole = server.post("/api/pull", "", &json!({"model": "m", "stream": false})).await;
    assert_eq!((whole.status, whole.json()), (502, json!({"error": "the hub is gone"})));
    assert!(whole.head.contains("x-motorpool-code: pull_failed\r\n"), "{whole:?}");
    let lines = server.post("/api/pull", "", &json!({"model": "m"})).await;
    assert!(lines.status == 200 && lines.body.ends_with("{\"error\":\"the hub is gone\"}\n"), "{lines:?}");
}

#[tokio::test]
async fn nobody_reloads_where_nobody_can() {
    let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
    let reply = server.post("/api/motorpool/v1/reload", "", &json!({})).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (501, &json!("not_supported")), "{reply:?}");
}

#[tokio::test]
async fn only_what_a_file_says_is_the_fault_of_whoever_reloads() {
    let wrong =
        NotReloaded::Wrong { message: "x".into(), file: Some("f".into()), line: None, column: None, nearest: None };
    for (why, status, code, place) in [
        (wrong, 400, "invalid_configuration", json!("f")),
        (NotReloaded::Stopping, 503, "shutting_down", Value::Null),
        (NotReloaded::Broken, 500, "internal", Value::Null),
    ] {
        let server = Server::start(&Pool::of(&Engine::start()), |_| {}).await;
        let context = &server.handover.0.now().context;
        let fails = Reloads::new(move || Box::pin(std::future::ready(Err(why.clone()))));
        context.reloads.set(fails).expect("nobody did");
        let reply = server.post("/api/motorpool/v1/reload", "", &json!({})).await;
        let document = reply.json();
        assert_eq!(
            (reply.status, &document["error"]["code"], &document["place"]["file"]),
            (status, &json!(code), &place)
        );
    }
}
