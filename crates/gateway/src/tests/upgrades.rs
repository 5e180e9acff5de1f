//! Connections that become something else, over `/m/`.
use super::*;
use crate::usage::Outcome;

const SWITCHING: &str = "HTTP/1.1 101 Switching Protocols\r\nserver: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: k2\r\n\r\n";

fn request(path: &str) -> String {
    format!(
        "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: Upgrade\r\nconnection: x-private\r\nx-private: 1\r\nupgrade: websocket\r\nsec-websocket-key: k1\r\ncookie: secret\r\n\r\n"
    )
}

async fn upgraded(server: &Server) -> (TcpStream, String) {
    let mut client = TcpStream::connect(server.address).await.expect("it listens");
    client.write_all(request("/m/m/health").as_bytes()).await.expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("it answers"));
    }
    (client, String::from_utf8(head).expect("text").to_ascii_lowercase())
}

#[tokio::test]
async fn an_upgraded_connection_passes_whatever_is_said_and_ends_with_its_client() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.says(SWITCHING);
    let (mut client, head) = upgraded(&server).await;
    assert!(head.starts_with("http/1.1 101 ") && head.contains("sec-websocket-accept: k2\r\n"), "{head}");
    assert!(head.contains("upgrade: websocket\r\n") && !head.contains("server:"), "{head}");
    let asked = engine.heard().await.head;
    assert!(asked.starts_with("get /health http/1.1\r\n") && asked.contains("sec-websocket-key: k1\r\n"), "{asked}");
    assert!(asked.contains("upgrade: websocket\r\n") && !asked.contains("secret"), "{asked}");
    assert!(asked.contains("connection: upgrade\r\n") && !asked.contains("x-private"), "{asked}");
    assert_eq!(*engine.n_leases.borrow(), 1);

    // What no request could contain: it is none of ours any more.
    let said = "get / http/1.1\nno: \u{1}request\n\r\n\r\n";
    engine.says("\u{2}pong");
    client.write_all(said.as_bytes()).await.expect("it reads");
    assert_eq!(engine.heard().await.head, said);
    let mut pong = [0; 5];
    client.read_exact(&mut pong).await.expect("it answers");
    assert_eq!(&pong, b"\x02pong");

    engine.hangs_after(&[]);
    client.write_all(b"wait\r\n\r\n").await.expect("it reads");
    assert_eq!(engine.heard().await.head, "wait\r\n\r\n");
    client.shutdown().await.expect("it is open");
    engine.closed().await;
    assert_eq!(engine.leases().await, 0);
    let record = server.record().await;
    assert_eq!((record.model.as_deref(), record.outcome), (Some("m"), Outcome::Finished));
}

#[tokio::test]
async fn an_upgraded_connection_ends_with_its_engine() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.says(SWITCHING);
    let (mut client, _) = upgraded(&server).await;
    engine.heard().await;
    engine.closes();
    client.write_all(b"go\r\n\r\n").await.expect("it reads");
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).await.expect("it ends");
    assert_eq!((rest.len(), engine.leases().await), (0, 0));
}

#[tokio::test]
async fn an_engine_that_does_not_go_along_gives_a_reply_like_any_other() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.json(200, "{\"status\":\"ok\"}");
    let mut client = TcpStream::connect(server.address).await.expect("it listens");
    let asked = request("/m/m/health").replace("Upgrade\r\n", "Upgrade, close\r\n");
    client.write_all(asked.as_bytes()).await.expect("it reads");
    let mut text = String::new();
    client.read_to_string(&mut text).await.expect("it answers");
    let reply = Reply::of(&text);
    assert_eq!((reply.status, reply.json()), (200, json!({"status":"ok"})));
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn an_offer_of_another_http_or_of_encryption_is_ignored_and_no_engine_hears_of_it() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    for offer in [
        // As Java's client and curl send it.
        "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAA\r\n",
        "connection: upgrade\r\nupgrade: HTTP/2.0\r\n",
        "connection: upgrade\r\nupgrade: TLS/1.0, HTTP/1.1\r\n",
        "connection: upgrade\r\nupgrade: websocket, h2c\r\n",
        // Not said to be for this connection.
        "upgrade: websocket\r\n",
        "connection: upgrade\r\n",
    ] {
        for path in [CHAT, "/m/m/completion"] {
            engine.json(200, "{}");
            let reply = server.post(path, offer, &json!({"model":"m","echo":true})).await;
            assert_eq!((reply.status, reply.body.as_str()), (200, "{}"), "{offer} {path} {reply:?}");
            let heard = engine.heard().await.head;
            assert!(!["upgrade", "http2-settings"].iter().any(|name| heard.contains(name)), "{offer} {path} {heard}");
        }
    }
}

#[tokio::test]
async fn other_paths_are_not_upgraded() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    let headers = "connection: Upgrade\r\nupgrade: websocket\r\n";
    let reply = server.post(CHAT, headers, &json!({"model":"m"})).await;
    assert_eq!((reply.status, reply.code()), (501, json!("not_supported")));
    let unlisted = server.raw(&request("/m/m/shell").replace("Upgrade\r\n", "Upgrade, close\r\n")).await;
    assert_eq!(Reply::of(&unlisted).status, 403);
}

#[tokio::test]
async fn an_upgraded_connection_has_its_place_until_it_ends() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |s| s.limits.connections = 1).await;
    engine.says(SWITCHING);
    let (mut client, _) = upgraded(&server).await;
    engine.heard().await;
    assert_eq!(server.get("/health", "").await.status, 503);
    engine.hangs_after(&[]);
    client.write_all(b"wait\r\n\r\n").await.expect("it reads");
    engine.heard().await;
    client.shutdown().await.expect("it is open");
    engine.closed().await;
    assert_eq!(client.read_to_end(&mut Vec::new()).await.expect("an orderly end"), 0);
    while server.get("/health", "").await.status != 200 {}
}

#[tokio::test]
async fn a_client_that_breaks_an_upgraded_connection_off_has_not_come_to_its_end() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.says(SWITCHING);
    let (mut client, _) = upgraded(&server).await;
    engine.heard().await;
    engine.says("unread");
    client.write_all(b"go\r\n\r\n").await.expect("it reads");
    client.peek(&mut [0]).await.expect("it answers");
    // What lies there unread makes this a reset.
    drop(client);
    assert_eq!(server.record().await.outcome, Outcome::Aborted);
    assert_eq!(engine.leases().await, 0);
}

#[tokio::test]
async fn an_operator_ends_an_upgraded_connection_too() {
    let engine = Engine::start();
    let server = Server::start(&Pool::of(&engine), |_| {}).await;
    engine.says(SWITCHING);
    let mut client = TcpStream::connect(server.address).await.expect("it listens");
    let named = request("/m/m/health").replace("cookie:", "x-request-id: mine\r\ncookie:");
    client.write_all(named.as_bytes()).await.expect("it reads");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.expect("it answers"));
    }
    engine.heard().await;
    engine.hangs_after(&[]);
    client.write_all(b"wait\r\n\r\n").await.expect("it reads");
    engine.heard().await;
    let cancel = "/api/motorpool/v1/requests/mine/cancel";
    assert_eq!(server.post(cancel, "", &json!({})).await.status, 200);
    engine.closed().await;
    assert_eq!(client.read_to_end(&mut Vec::new()).await.expect("an orderly end"), 0);
    let record = server.record().await;
    assert_eq!((record.outcome, engine.leases().await), (Outcome::Failed("cancelled"), 0));
    assert_eq!(server.post(cancel, "", &json!({})).await.status, 404, "it is over");
}
