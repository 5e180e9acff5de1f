//! What is too long, or takes too long.
use super::*;

#[tokio::test]
async fn a_path_that_no_engine_could_be_asked_for_is_refused_in_words() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let target = |length: usize| {
        let path = "/m/m/tokenize?";
        path.to_owned() + &"x".repeat(length - path.len())
    };
    // The longest that a URI takes is longer by a socket's path than what is sent here.
    for length in [65_534, 65_450, (32 << 10) + 1] {
        let reply = server.post(&target(length), "", &json!({})).await;
        assert_eq!((reply.status, reply.code()), (400, json!(400)), "{length} {reply:?}");
        assert!(reply.body.contains("longer than 32 KiB"), "{reply:?}");
    }
    engine.json(200, "{}");
    assert_eq!(server.post(&target(32 << 10), "", &json!({})).await.status, 200);
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stops_arriving_is_not_awaited_for_ever() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let ours = ["/api/motorpool/v1/plan", "/api/motorpool/v1/models/m/unload"];
    for path in ["/models/load", "/models/unload", "/api/show", "/api/pull", CHAT].into_iter().chain(ours) {
        let request = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 13\r\n\r\n{{");
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut status = [0; 12];
        let answered = tokio::time::timeout(Duration::from_hours(1), stream.read_exact(&mut status)).await;
        answered.expect("within that time").expect("it answers");
        assert_eq!(&status, b"HTTP/1.1 400", "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_bytes_of_a_reply_have_the_time_of_a_first_result() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let messages = json!([{"role":"user","content":"x"}]);
    for path in [CHAT, "/api/chat"] {
        for (parts, within) in [(vec![":\n\n".to_owned()], "600 s"), (vec![delta("a")], "120 s")] {
            engine.hangs_after(&parts.iter().map(String::as_str).collect::<Vec<_>>());
            let reply = server.post(path, "", &json!({"model":"m","messages":messages,"stream":false})).await;
            assert_eq!(reply.status, 504, "{path} {reply:?}");
            assert!(reply.body.contains(within), "{path} {reply:?}");
        }
    }
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test(start_paused = true)]
async fn one_silence_is_enough_to_doubt_an_engine_and_one_break_is_not() {
    let messages = json!([{"role":"user","content":"x"}]);
    for path in [CHAT, "/api/chat", "/m/m/completion"] {
        for streams in [false, true] {
            let told = async |deed: fn(&Engine, &Pool)| {
                let engine = Engine::start();
                let pool = Pool::of(&engine);
                let server = Server::start(&pool, |_| {}).await;
                deed(&engine, &pool);
                server.post(path, "", &json!({"model":"m","messages":messages,"stream":streams})).await;
                assert_eq!(engine.leases().await, 0);
                pool.signs().failures
            };
            assert_eq!(told(|engine, _| engine.hangs_after(&[])).await, u32::MAX, "{path} {streams}: no head");
            assert_eq!(told(|engine, _| engine.hangs_after(&[":\n\n"])).await, u32::MAX, "{path} {streams}: no result");
            assert_eq!(
                told(|engine, _| engine.hangs_after(&[&delta("a")])).await,
                u32::MAX,
                "{path} {streams}: no more"
            );
            let breaks: fn(&Engine, &Pool) = |engine, pool| {
                pool.stops(motorpool_vocab::StopReason::Health);
                engine.breaks_after(&[&delta("a")]);
            };
            assert_eq!(told(breaks).await, 1, "{path} {streams}: it broke");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_engine_that_falls_silent_inside_a_reply_that_is_put_together_shows_no_life_by_that() {
    let engine = Engine::start();
    let pool = Pool::of(&engine);
    let server = Server::start(&pool, |_| {}).await;
    let messages = json!([{"role":"user","content":"x"}]);
    for path in [CHAT, "/api/chat"] {
        let before = pool.signs().moves;
        engine.hangs_after(&[&delta("a")]);
        let reply = server.post(path, "", &json!({"model":"m","messages":messages,"stream":false})).await;
        assert_eq!((reply.status, engine.leases().await), (504, 0), "{path} {reply:?}");
        assert_eq!(pool.signs().moves - before, 2, "{path}: its head and one frame");
    }
}

/// Takes the one place, and keeps it.
async fn take_the_place(server: &Server) -> TcpStream {
    let mut held = TcpStream::connect(server.address).await.expect("it listens");
    held.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.expect("it reads");
    held.read_exact(&mut [0]).await.expect("it answers");
    held
}

#[tokio::test]
async fn who_reads_only_when_it_has_sent_all_reads_why_it_was_refused_whole() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| {
        s.limits.connections = 1;
        s.limits.body = motorpool_vocab::Bytes::new(1000);
    })
    .await;
    let body = "x".repeat(1 << 20);
    let ask = async |path: &str| {
        let length = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n");
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        stream.write_all(head.as_bytes()).await.expect("it reads");
        // Let it answer before there is anything to read behind the head.
        stream.peek(&mut [0]).await.expect("it answers");
        for part in body.as_bytes().chunks(64 << 10) {
            stream.write_all(part).await.expect("it does not hang up");
        }
        let mut text = String::new();
        stream.read_to_string(&mut text).await.expect("an orderly end");
        Reply::of(&text)
    };
    for (path, status) in [(CHAT, 413), ("/none", 404), ("/health", 405)] {
        assert_eq!(ask(path).await.status, status, "{path}");
    }
    let _held = take_the_place(&server).await;
    let reply = ask(CHAT).await;
    assert_eq!((reply.status, reply.code()), (503, json!("overloaded")));
}

#[tokio::test(start_paused = true)]
async fn who_is_silent_past_the_limit_keeps_nobody_from_being_told_so_for_long() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| s.limits.connections = 1).await;
    let _held = take_the_place(&server).await;
    let mut silent = Vec::new();
    for _ in 0..64 {
        silent.push(TcpStream::connect(server.address).await.expect("it listens"));
    }
    let began = tokio::time::Instant::now();
    for mut stream in silent {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    assert_eq!(server.get("/health", "").await.status, 503);
}
