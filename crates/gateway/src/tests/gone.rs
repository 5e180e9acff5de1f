//! Clients that go, whatever they sent before that nobody has read yet.
use super::*;

/// How a client goes.
#[derive(Clone, Copy, Debug)]
enum Way {
    Closes,
    /// It would still read.
    ClosesItsSide,
}

const WAYS: [Way; 2] = [Way::Closes, Way::ClosesItsSide];

async fn sends(server: &Server, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.expect("it listens");
    stream.write_all(text.as_bytes()).await.expect("it reads");
    stream
}

async fn goes(stream: &mut Option<TcpStream>, way: Way) {
    match way {
        Way::Closes => drop(stream.take()),
        Way::ClosesItsSide => stream.as_mut().expect("open").shutdown().await.expect("open until now"),
    }
}

fn request() -> String {
    let body = json!({"model": "m"}).to_string();
    format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn bytes_behind_a_request_do_not_hide_that_its_client_has_gone() {
    let next = "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n";
    for behind in ["\r\n", next, "x"] {
        for way in WAYS {
            let engine = Engine::start();
            let pool = Pool::of(&engine);
            let server = Server::start(&pool, |_| {}).await;
            engine.hangs_after(&[]);
            let mut one = Some(sends(&server, &(request() + behind)).await);
            engine.heard().await;
            goes(&mut one, way).await;
            engine.closed().await;
            assert_eq!(engine.leases().await, 0, "{behind:?} {way:?}");

            pool.never_grants();
            let mut waits = Some(sends(&server, &(request() + behind)).await);
            pool.asked().await;
            goes(&mut waits, way).await;
            pool.cancelled().await;
        }
    }
}

#[tokio::test]
async fn the_rest_of_a_form_does_not_hide_that_its_client_has_gone() {
    for way in WAYS {
        let pool = Pool::of(&Engine::start());
        let server = Server::start(&pool, |_| {}).await;
        pool.never_grants();
        let model = "--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nhearing\r\n--b\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n";
        let head = "POST /v1/audio/transcriptions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9999999\r\n\
            content-type: multipart/form-data; boundary=b\r\n\r\n";
        let mut waits = Some(sends(&server, &format!("{head}{model}")).await);
        pool.asked().await;
        let stream = waits.as_mut().expect("open");
        stream.write_all("RIFF".repeat(1000).as_bytes()).await.expect("it fits");
        goes(&mut waits, way).await;
        pool.cancelled().await;
    }
}
