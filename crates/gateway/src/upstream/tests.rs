use super::*;
use http_body_util::BodyExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::mpsc,
    time::Instant,
};

/// What each connection of an engine sees.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Request(u32),
    End(u32),
}

/// An engine that answers each request with `reply`, and tells which connection saw what.
struct Engine {
    endpoint: Endpoint,
    seen: mpsc::UnboundedReceiver<(Seen, Instant)>,
    _dir: tempfile::TempDir,
}

impl Engine {
    fn that_replies(reply: &'static str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("e.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (tell, seen) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            for n in 1.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                tokio::spawn(answer((stream, n), reply, tell.clone()));
            }
        });
        Self { endpoint: Endpoint::Unix(socket), seen, _dir: dir }
    }

    async fn ask(&self, upstream: &Upstream) -> Response<Inflow> {
        upstream.send((Spawn(1), &self.endpoint), ("/x?y", Often::OnceMore), plain).await.expect("it answers")
    }

    async fn next(&mut self) -> (Seen, Instant) {
        self.seen.recv().await.expect("it lives")
    }
}

async fn answer((mut stream, n): (UnixStream, u32), reply: &'static str, tell: mpsc::UnboundedSender<(Seen, Instant)>) {
    let mut heard = Vec::new();
    loop {
        match stream.read_u8().await {
            Ok(byte) => heard.push(byte),
            Err(_) => return drop(tell.send((Seen::End(n), Instant::now()))),
        }
        if heard.ends_with(b"\r\n\r\n") {
            assert!(heard.starts_with(b"GET /x?y HTTP/1.1\r\n"), "{heard:?}");
            heard.clear();
            tell.send((Seen::Request(n), Instant::now())).expect("the test lives");
            stream.write_all(reply.as_bytes()).await.expect("it reads");
        }
    }
}

fn plain(uri: Uri) -> Request<ReplyBody> {
    let mut request = Request::new(crate::body::empty());
    *request.uri_mut() = uri;
    request
}

fn upstream() -> Upstream {
    Upstream::new(Duration::from_secs(5), Duration::from_secs(5))
}

const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nab";
const CHUNKS: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
const OPEN: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nab\r\n";

#[tokio::test]
async fn a_connection_is_kept_once_its_reply_was_read_to_the_end() {
    let empty = "HTTP/1.1 204 No\r\n\r\n";
    for (reply, text) in [(WHOLE, "ab"), (CHUNKS, "ab"), (empty, "")] {
        let (mut engine, upstream) = (Engine::that_replies(reply), upstream());
        for _ in 0..3 {
            let body = engine.ask(&upstream).await.into_body().collect().await.expect("it is whole").to_bytes();
            assert_eq!(body, text);
            assert_eq!(engine.next().await.0, Seen::Request(1), "{reply}");
        }
    }
}

#[tokio::test]
async fn who_knows_that_nothing_follows_keeps_the_connection_without_reading_the_end() {
    let (mut engine, upstream) = (Engine::that_replies(CHUNKS), upstream());
    for _ in 0..2 {
        let mut body = engine.ask(&upstream).await.into_body();
        let frame = body.frame().await.expect("a frame").expect("it is whole");
        assert_eq!(frame.into_data().expect("data"), "ab");
        body.skip_to_end();
        drop(body);
        assert_eq!(engine.next().await.0, Seen::Request(1));
    }
}

#[tokio::test]
async fn a_reply_that_nobody_reads_any_more_closes_its_connection() {
    let (mut engine, upstream) = (Engine::that_replies(OPEN), upstream());
    for n in 1..3 {
        let mut body = engine.ask(&upstream).await.into_body();
        assert!(body.frame().await.expect("a frame").is_ok());
        drop(body);
        assert_eq!(engine.next().await.0, Seen::Request(n));
        assert_eq!(engine.next().await.0, Seen::End(n));
    }
}

#[tokio::test]
async fn a_connection_that_is_said_to_close_is_not_kept() {
    let reply = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nab";
    let (mut engine, upstream) = (Engine::that_replies(reply), upstream());
    for n in 1..3 {
        engine.ask(&upstream).await.into_body().collect().await.expect("it is whole");
        assert_eq!(engine.next().await.0, Seen::Request(n));
        assert_eq!(engine.next().await.0, Seen::End(n));
    }
}

#[tokio::test(start_paused = true)]
async fn kept_connections_end_before_the_engine_ends_them_though_nobody_asks() {
    let (mut engine, upstream) = (Engine::that_replies(WHOLE), upstream());
    let (one, other) = (engine.ask(&upstream).await, engine.ask(&upstream).await);
    for reply in [one, other] {
        reply.into_body().collect().await.expect("it is whole");
    }
    let kept_at = Instant::now();
    let (first, second) = (engine.next().await.0, engine.next().await.0);
    assert_eq!([first, second], [Seen::Request(1), Seen::Request(2)]);
    for n in [1, 2] {
        let (seen, at) = engine.next().await;
        let after = at - kept_at;
        assert!(seen == Seen::End(n) && (4..5).contains(&after.as_secs()), "{seen:?} {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn connections_to_a_child_that_is_stopped_end_at_once_and_those_to_others_stay() {
    let (mut engine, upstream) = (Engine::that_replies(WHOLE), upstream());
    let (tell, events) = tokio::sync::broadcast::channel(4);
    let leaving = tokio::spawn(upstream.clone().leave_what_stops(events));
    let stops = |spawn| {
        let key = "e:m:0".parse().expect("a key");
        let kind = EventKind::Stopping { key, spawn: Spawn(spawn), reason: motorpool_vocab::StopReason::Evicted };
        tell.send(Event { seq: spawn, at: motorpool_vocab::Now::ZERO, kind }).expect("heard");
    };
    engine.ask(&upstream).await.into_body().collect().await.expect("it is whole");
    let kept_at = Instant::now();
    assert_eq!(engine.next().await.0, Seen::Request(1));
    stops(2);
    engine.ask(&upstream).await.into_body().collect().await.expect("it is whole");
    assert_eq!(engine.next().await.0, Seen::Request(1), "by the connection that was kept");
    stops(1);
    let (seen, at) = engine.next().await;
    assert_eq!((seen, at - kept_at), (Seen::End(1), std::time::Duration::ZERO));
    drop(tell);
    leaving.await.expect("it ends when nobody tells any more");
}

/// A body that never ends.
struct Endless;

impl http_body::Body for Endless {
    type Data = bytes::Bytes;
    type Error = crate::body::BodyError;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        std::task::Poll::Pending
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_request_has_not_ended_is_not_kept_though_its_reply_has() {
    let (mut engine, upstream) = (Engine::that_replies(WHOLE), upstream());
    let began = Instant::now();
    let request = |uri| {
        let mut request = plain(uri).map(|_| crate::body::boxed(Endless));
        request.headers_mut().insert("transfer-encoding", http::HeaderValue::from_static("chunked"));
        request
    };
    let reply = upstream.send((Spawn(1), &engine.endpoint), ("/x?y", Often::OnceMore), request).await;
    reply.expect("it answers").into_body().collect().await.expect("it is whole");
    assert_eq!(engine.next().await.0, Seen::Request(1));
    let (seen, at) = engine.next().await;
    assert_eq!((seen, (at - began).as_secs()), (Seen::End(1), 0));
}

#[tokio::test(start_paused = true)]
async fn an_engine_says_how_long_its_connections_are_kept_and_for_how_many_requests() {
    for (reply, seconds) in [
        ("HTTP/1.1 200 OK\r\nkeep-alive: timeout=30\r\ncontent-length: 2\r\n\r\nab", 29),
        ("HTTP/1.1 200 OK\r\nKeep-Alive: max=100, timeout=\"2\"\r\ncontent-length: 2\r\n\r\nab", 1),
        ("HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nab", 0),
        ("HTTP/1.1 200 OK\r\nkeep-alive: max=1\r\ncontent-length: 2\r\n\r\nab", 0),
        ("HTTP/1.1 200 OK\r\nkeep-alive: soon\r\ncontent-length: 2\r\n\r\nab", 4),
    ] {
        let (mut engine, upstream) = (Engine::that_replies(reply), upstream());
        engine.ask(&upstream).await.into_body().collect().await.expect("it is whole");
        assert_eq!(engine.next().await.0, Seen::Request(1));
        let kept_at = Instant::now();
        let (seen, at) = engine.next().await;
        assert_eq!((seen, (at - kept_at).as_secs()), (Seen::End(1), seconds), "{reply}");
    }
    let twice = "HTTP/1.1 200 OK\r\nkeep-alive: timeout=9, max=2\r\ncontent-length: 2\r\n\r\nab";
    let (mut engine, upstream) = (Engine::that_replies(twice), upstream());
    for n in [1, 1, 2] {
        engine.ask(&upstream).await.into_body().collect().await.expect("it is whole");
        let (mut seen, _) = engine.next().await;
        if seen == Seen::End(1) {
            (seen, _) = engine.next().await;
        }
        assert_eq!(seen, Seen::Request(n));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_to_come_back_and_the_first_to_grow_old_may_be_one() {
    let (short, long) = (
        "HTTP/1.1 200 OK\r\nkeep-alive: timeout=3\r\ncontent-length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nkeep-alive: timeout=30\r\ncontent-length: 2\r\n\r\nab",
    );
    let (mut lasting, mut brief, upstream) = (Engine::that_replies(long), Engine::that_replies(short), upstream());
    lasting.ask(&upstream).await.into_body().collect().await.expect("it is whole");
    let asked = upstream.send((Spawn(2), &brief.endpoint), ("/x?y", Often::OnceMore), plain).await;
    asked.expect("it answers").into_body().collect().await.expect("it is whole");
    let kept_at = Instant::now();
    brief.next().await;
    assert_eq!((brief.next().await.1 - kept_at).as_secs(), 2);
    lasting.next().await;
    assert_eq!((lasting.next().await.1 - kept_at).as_secs(), 29);
}

#[tokio::test]
async fn where_nobody_listens_there_is_no_reply() {
    let dir = tempfile::tempdir().expect("a directory");
    let upstream = upstream();
    let nowhere = Endpoint::Unix(dir.path().join("none.sock"));
    let sent = upstream.send((Spawn(1), &nowhere), ("/", Often::OnceMore), plain);
    assert!(matches!(sent.await, Err(SendError::Connect(_))));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_accept_is_given_five_seconds() {
    // A queue that is full: the kernel lets further clients wait.
    let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    let listener = socket.listen(0).expect("it listens");
    let address = listener.local_addr().expect("bound");
    let mut queued = Vec::new();
    while let Ok(Ok(stream)) = tokio::time::timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queued.push(stream);
    }
    let limits = motorpool_catalog::Limits::default();
    let upstream = Upstream::new(limits.connect, limits.first_result);
    let began = tokio::time::Instant::now();
    let sent = upstream.send((Spawn(1), &Endpoint::Tcp(address.port())), ("/", Often::OnceMore), plain).await;
    let within = Duration::from_secs(5);
    assert!(matches!(sent, Err(SendError::Timeout(Awaited::Connection, after)) if after == within), "{sent:?}");
    let waited = began.elapsed();
    assert!(within <= waited && waited < within + Duration::from_secs(1), "{waited:?}");
}
