//! Forms with files over the whole server.
use super::*;

const PATH: &str = "/v1/audio/transcriptions";
const KIND: &str = "content-type: multipart/form-data; boundary=b\r\n";

fn part(name: &str, more: &str, content: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{content}\r\n")
}

fn file() -> String {
    part("file", "; filename=\"a.wav\"\r\nContent-Type: audio/wav", &"RIFF\r\n".repeat(2000))
}

#[tokio::test]
async fn a_form_goes_to_the_model_it_names_wherever_that_stands() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let (model, asked) = (part("model", "", "hearing:latest"), part("model", "", "hearing"));
    for (sent, want) in [
        (format!("{model}{}--b--\r\n", file()), format!("{asked}{}--b--\r\n", file())),
        (format!("{}{model}--b--\r\n", file()), format!("{}{asked}--b--\r\n", file())),
    ] {
        engine.json(200, r#"{"text":"hello"}"#);
        let reply = server.post_text(PATH, KIND, &sent).await;
        assert_eq!((reply.status, reply.json()), (200, json!({"text":"hello"})), "{reply:?}");
        let heard = engine.heard().await;
        assert_eq!(heard.body, want);
        assert!(heard.head.contains("content-type: multipart/form-data; boundary=b"), "{}", heard.head);
    }
    engine.json(200, "{}");
    let nameless = format!("{}--b--", file());
    let reply = server.post_text(PATH, &format!("{KIND}x-motorpool-model: hearing\r\n"), &nameless).await;
    assert_eq!((reply.status, engine.heard().await.body), (200, nameless), "{reply:?}");
    assert_eq!(server.record().await.model.as_deref(), Some("hearing"));
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn a_form_whose_model_a_header_names_passes_from_its_first_byte_on_and_names_what_the_engine_knows() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let header = format!("{KIND}x-motorpool-model: hearing\r\n");
    let model = |name: &str| part("model", "", name);
    for (sent, want) in [
        (format!("{}{}--b--\r\n", model("hearing:latest"), file()), format!("{}{}--b--\r\n", model("hearing"), file())),
        (format!("{}{}--b--\r\n", file(), model("hearing:latest")), format!("{}{}--b--\r\n", file(), model("hearing"))),
        (format!("{}--b--", file()), format!("{}--b--", file())),
    ] {
        engine.json(200, "{}");
        let reply = server.post_text(PATH, &header, &sent).await;
        assert_eq!((reply.status, engine.heard().await.body), (200, want), "{reply:?}");
    }
    let reply = server.post_text(PATH, &header, &format!("{}{}--b--", file(), model("m"))).await;
    assert_eq!((reply.status, reply.code()), (400, json!("model_conflict")), "{reply:?}");
    assert_eq!(engine.leases().await, 0);
    // Before anything of it has come.
    pool.never_grants();
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\n{header}content-length: 99999\r\n\r\n");
    stream.write_all(head.as_bytes()).await.expect("it reads");
    pool.asked().await;
}

#[tokio::test]
async fn a_form_that_cannot_be_served_is_refused_in_words() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |s| s.limits.body = motorpool_vocab::Bytes::new(60_000)).await;
    let model = |name: &str| part("model", "", name);
    let form = |name: &str| format!("{}{}--b--", model(name), file());
    let unfit = format!("{KIND}x-motorpool-model: m\r\n");
    for (headers, body, status, code) in [
        (KIND, form("m"), 400, "invalid_request"),
        (KIND, form("none"), 404, "model_not_found"),
        (&unfit, form("hearing"), 400, "invalid_request"),
        (KIND, format!("{}--b--", file()), 400, "invalid_request"),
        (KIND, "no form".into(), 400, "invalid_request"),
        ("content-type: multipart/form-data\r\n", form("hearing"), 400, "invalid_request"),
        ("", form("hearing"), 415, "unsupported_media_type"),
        ("content-type: application/json\r\n", json!({"model":"hearing"}).to_string(), 415, "unsupported_media_type"),
        (
            "content-type: multipart/form-data; boundary=b\r\ncontent-encoding: gzip\r\n",
            form("hearing"),
            415,
            "unsupported_media_type",
        ),
        (KIND, format!("{}{}--b--", model("hearing"), "x".repeat(60_000)), 413, "body_too_large"),
    ] {
        let reply = server.post_text(PATH, headers, &body).await;
        assert_eq!((reply.status, reply.code()), (status, json!(code)), "{headers} {reply:?}");
    }
    let wrong = server.post_text(PATH, KIND, &form("m")).await;
    assert!(wrong.body.contains("the model `m` is for chat, not for transcription"), "{wrong:?}");
    assert_eq!(pool.n_granted(), 0, "nobody was asked");
    let speech = server.post("/v1/audio/speech", "", &json!({"model":"m","input":"x"})).await;
    assert!(speech.status == 400 && speech.body.contains("not for speech"), "{speech:?}");
    let pictures = server.post("/v1/images/generations", "", &json!({"model":"m","prompt":"x"})).await;
    assert!(pictures.status == 400 && pictures.body.contains("not for images"), "{pictures:?}");
    let edits = server.post_text("/v1/images/edits", KIND, &form("m")).await;
    assert_eq!(edits.status, 400, "{edits:?}");
}

#[tokio::test]
async fn a_second_name_and_an_engine_that_dies_end_a_form_that_has_begun_to_pass() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let model = part("model", "", "hearing");
    let twice = format!("{model}{}{model}--b--", file().repeat(40));
    engine.json(200, "{}");
    let reply = server.post_text(PATH, KIND, &twice).await;
    assert_eq!((reply.status, reply.code()), (400, json!("invalid_request")), "{reply:?}");
    assert!(reply.body.contains("`model` is given twice"), "{reply:?}");
    let before = pool.n_granted();
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    pool.crashes(FailureClass::Killed);
    engine.closes();
    let reply = server.post_text(PATH, KIND, &format!("{model}{}--b--", file())).await;
    assert_eq!((reply.status, reply.code()), (502, json!("engine_crashed")), "{reply:?}");
    assert_eq!((before, pool.n_granted()), (1, 1), "what has passed is not sent again");
    assert_eq!(engine.leases().await, 0);
}

/// A form of which only the first half is sent, and what is left of it.
async fn half_sent(server: &Server) -> (TcpStream, String) {
    let form = format!("{}{}--b--", part("model", "", "hearing"), file());
    let (first, rest) = form.split_at(form.len() / 2);
    let head = format!("POST {PATH} HTTP/1.1\r\nhost: localhost\r\n{KIND}content-length: {}\r\n\r\n", form.len());
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    stream.write_all((head + first).as_bytes()).await.expect("it reads");
    (stream, rest.to_owned())
}

#[tokio::test]
async fn a_form_that_still_comes_is_a_sign_of_the_engines_life() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    engine.hangs_after(&[]);
    let (mut stream, rest) = half_sent(&server).await;
    engine.n_leases.subscribe().wait_for(|n| *n == 1).await.expect("it is granted");
    let before = pool.signs().moves;
    stream.write_all(rest.as_bytes()).await.expect("it reads");
    engine.heard().await;
    assert!(pool.signs().moves > before, "nothing was answered, but something passed");
    drop(stream);
    engine.closed().await;
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn only_a_form_that_has_come_whole_makes_silence_the_engines_failure() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |s| s.limits.first_result = s.limits.write_stall / 2).await;
    for (is_whole, failures) in [(false, 0), (true, u32::MAX)] {
        engine.hangs_after(&[]);
        let (mut stream, rest) = half_sent(&server).await;
        if is_whole {
            stream.write_all(rest.as_bytes()).await.expect("it reads");
        }
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.expect("it answers");
        assert_eq!(&status, b"HTTP/1.1 504", "{is_whole}");
        assert_eq!((engine.leases().await, pool.signs().failures), (0, failures), "{is_whole}");
    }
}
