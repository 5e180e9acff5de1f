use super::{
    ask::{check_scheme, resolve},
    *,
};
use crate::progress::Unit;
use std::sync::{Arc, Mutex};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// A server that gives each connection the next answer of its script, and keeps the request heads.
struct Scripted {
    base: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Scripted {
    async fn start(answers: Vec<String>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&heads);
        tokio::spawn(async move {
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("accepted");
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(stream.read_u8().await.expect("a request head"));
                }
                kept.lock().expect("unpoisoned").push(String::from_utf8(head).expect("text").to_ascii_lowercase());
                stream.write_all(answer.as_bytes()).await.expect("written");
            }
        });
        Self { base, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().expect("unpoisoned").clone()
    }
}

fn answer(status: &str, headers: &[&str], body: &str) -> String {
    let head = [&[&format!("HTTP/1.1 {status}"), "connection: close"], headers].concat().join("\r\n");
    format!("{head}\r\n\r\n{body}")
}

async fn fetch_to(server: &Scripted, partial: &Path) -> Result<(), FetchError> {
    fetch_sized(server, partial, None).await
}

async fn fetch_sized(server: &Scripted, partial: &Path, size: Option<Bytes>) -> Result<(), FetchError> {
    let (caller, url) = (Caller::new(None)?, format!("{}/d/m.gguf", server.base));
    let remote = Remote { caller: &caller, url: &url, name: &url, size };
    fetch(remote, partial, &mut Progress::begin("m.gguf", Unit::Bytes)).await.map(drop)
}

fn partial() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("m.gguf.partial");
    (dir, path)
}

#[tokio::test]
async fn a_lost_connection_is_continued_with_the_version_it_began_with() {
    let server = Scripted::start(vec![
        answer("200 OK", &["content-length: 10", "etag: \"v1\""], "01234"),
        answer("206 Partial Content", &["content-length: 5", "content-range: bytes 5-9/10"], "56789"),
    ])
    .await;
    let (_dir, path) = partial();
    fetch_to(&server, &path).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "0123456789");
    let heads = server.heads();
    assert!(!heads[0].contains("range:"), "{heads:?}");
    assert!(heads[1].contains("range: bytes=5-") && heads[1].contains("if-range: \"v1\""), "{heads:?}");
    assert!(!origin_path(&path).exists());
}

#[tokio::test]
async fn a_changed_file_begins_again() {
    let server = Scripted::start(vec![
        answer("200 OK", &["content-length: 10", "etag: \"v1\""], "01234"),
        answer("200 OK", &["content-length: 3", "etag: \"v2\""], "new"),
    ])
    .await;
    let (_dir, path) = partial();
    fetch_to(&server, &path).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "new");
}

#[tokio::test]
async fn what_tells_no_versions_apart_is_continued_only_where_its_name_is_its_content() {
    let begun = || answer("200 OK", &["content-length: 10", "etag: W/\"weak\""], "01234");
    let other = answer("200 OK", &["content-length: 10"], "abcdefghij");
    let server = Scripted::start(vec![begun(), other]).await;
    let (_dir, path) = partial();
    fetch_to(&server, &path).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "abcdefghij");
    assert!(!server.heads()[1].contains("range:"), "{:?}", server.heads());

    let rest = answer("206 Partial Content", &["content-length: 5", "content-range: bytes 5-9/10"], "56789");
    let server = Scripted::start(vec![begun(), rest]).await;
    let (caller, url) = (Caller::new(None).expect("made"), format!("{}/m.gguf", server.base));
    let name = format!("{BY_CONTENT}{}", "0".repeat(64));
    let remote = Remote { caller: &caller, url: &url, name: &name, size: None };
    let (_dir, path) = partial();
    fetch(remote, &path, &mut Progress::begin("m.gguf", Unit::Bytes)).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "0123456789");
}

#[tokio::test]
async fn what_belongs_to_another_address_is_not_continued() {
    let server = Scripted::start(vec![answer("200 OK", &["content-length: 3"], "abc")]).await;
    let (_dir, path) = partial();
    fs::write(&path, "zzzzz").expect("written");
    disk::write_record(&origin_path(&path), &Origin { url: "http://127.0.0.1/x".into(), validator: None })
        .expect("written");
    fetch_to(&server, &path).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "abc");
}

#[tokio::test]
async fn a_whole_partial_file_is_recognised() {
    let server = Scripted::start(vec![answer(
        "416 Range Not Satisfiable",
        &["content-range: bytes */3", "content-length: 0"],
        "",
    )])
    .await;
    let (_dir, path) = partial();
    fs::write(&path, "abc").expect("written");
    let url = format!("{}/d/m.gguf", server.base);
    disk::write_record(&origin_path(&path), &Origin { url, validator: Some("\"v1\"".into()) }).expect("written");
    fetch_to(&server, &path).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "abc");
}

#[tokio::test]
async fn redirects_are_followed_and_a_missing_file_is_not_retried() {
    let server = Scripted::start(vec![
        answer("302 Found", &["location: ../e/n.gguf", "content-length: 0"], ""),
        answer("404 Not Found", &["content-length: 0"], ""),
    ])
    .await;
    let (_dir, path) = partial();
    let error = fetch_to(&server, &path).await.expect_err("not there");
    assert!(matches!(error, FetchError::Status { status: StatusCode::NOT_FOUND, .. }), "{error}");
    assert!(server.heads()[1].starts_with("get /d/../e/n.gguf"), "{:?}", server.heads());
}

#[tokio::test]
async fn a_file_larger_than_the_disk_is_refused_before_a_byte_is_written() {
    let server = Scripted::start(vec![answer("200 OK", &["content-length: 9000000000000000000"], "")]).await;
    let (_dir, path) = partial();
    assert!(matches!(fetch_to(&server, &path).await, Err(FetchError::NoRoom(_))));
    assert!(!path.exists());
}

#[tokio::test]
async fn what_ends_before_its_size_is_continued_though_the_server_thinks_it_whole() {
    let server = Scripted::start(vec![
        answer("200 OK", &["content-length: 5", "etag: \"v1\""], "01234"),
        answer("206 Partial Content", &["content-length: 5", "content-range: bytes 5-9/10"], "56789"),
    ])
    .await;
    let (_dir, path) = partial();
    fetch_sized(&server, &path, Some(Bytes::new(10))).await.expect("fetched");
    assert_eq!(fs::read_to_string(&path).expect("there"), "0123456789");
}

#[tokio::test]
async fn what_is_longer_than_it_should_be_is_not_listened_to_and_not_kept() {
    let endless = "x".repeat(100);
    let chunk = format!("64\r\n{endless}\r\n");
    for told in [
        answer("200 OK", &["content-length: 100"], &endless),
        answer("200 OK", &["transfer-encoding: chunked"], &chunk.repeat(3)),
        answer("200 OK", &["x-linked-size: 10", "transfer-encoding: chunked"], &chunk.repeat(3)),
    ] {
        let size = (!told.contains("x-linked-size")).then(|| Bytes::new(10));
        let server = Scripted::start(vec![told]).await;
        let (_dir, path) = partial();
        let error = fetch_sized(&server, &path, size).await.expect_err("too long");
        assert!(matches!(error, FetchError::Size { wanted: 10, found: 100, .. }), "{error}");
        assert!(!path.exists());
    }
}

#[tokio::test]
async fn a_partial_file_that_the_server_calls_whole_must_have_its_size() {
    let all_there = answer("416 Range Not Satisfiable", &["content-range: bytes */3", "content-length: 0"], "");
    let server = Scripted::start(vec![all_there]).await;
    let (_dir, path) = partial();
    fs::write(&path, "abc").expect("written");
    let url = format!("{}/d/m.gguf", server.base);
    disk::write_record(&origin_path(&path), &Origin { url, validator: Some("\"v1\"".into()) }).expect("written");
    let error = fetch_sized(&server, &path, Some(Bytes::new(9))).await.expect_err("too short");
    assert!(matches!(error, FetchError::Size { wanted: 9, found: 3, .. }), "{error}");
}

#[tokio::test]
async fn redirects_that_do_not_end_are_given_up() {
    let again = answer("302 Found", &["location: m.gguf", "content-length: 0"], "");
    let server = Scripted::start(vec![again; N_REDIRECTS + 1]).await;
    let (_dir, path) = partial();
    assert!(matches!(fetch_to(&server, &path).await, Err(FetchError::Redirects(_))));
    assert_eq!(server.heads().len(), N_REDIRECTS + 1);
}

#[tokio::test]
async fn a_secret_is_for_the_host_that_was_asked_and_stays_there() {
    let elsewhere = Scripted::start(vec![answer("200 OK", &["content-length: 2"], "{}")]).await;
    let away = format!("location: {}/x", elsewhere.base);
    let server = Scripted::start(vec![
        answer("307 Temporary Redirect", &["location: /y", "content-length: 0"], ""),
        answer("302 Found", &[&away, "content-length: 0"], ""),
    ])
    .await;
    let caller = Caller::new(Token::parse("secret\n")).expect("made");
    caller.document(&server.base, 100).await.expect("fetched");
    assert!(server.heads().iter().all(|head| head.contains("authorization: bearer secret")), "{:?}", server.heads());
    assert!(!elsewhere.heads()[0].contains("secret"), "{:?}", elsewhere.heads());
    assert_eq!(format!("{:?}", Token::parse("secret")), "Some(Token(…))");
    assert!(["", "\nsecret", "two words", "é"].map(Token::parse).iter().all(Option::is_none));
}

#[tokio::test]
async fn a_document_longer_than_asked_for_is_refused() {
    let server = Scripted::start(vec![answer("200 OK", &["content-length: 6"], "{\"a\":1")]).await;
    let error = Caller::new(None).expect("made").document(&server.base, 5).await.expect_err("too long");
    assert!(matches!(error, FetchError::TooLong { .. }), "{error}");
}

#[test]
fn encryption_is_never_left() {
    let base: Uri = "https://a.example/b/c".parse().expect("an address");
    assert_eq!(resolve(&base, "http://a.example/b"), None);
    assert_eq!(resolve(&base, "//c.example/d").map(|uri| uri.to_string()).as_deref(), Some("https://c.example/d"));
    assert_eq!(resolve(&base, "/d?e").map(|uri| uri.to_string()).as_deref(), Some("https://a.example/d?e"));
    for (to, expected) in [
        ("/login?next=https://b.example/x", "https://a.example/login?next=https://b.example/x"),
        ("d?next=https://b.example/x", "https://a.example/b/d?next=https://b.example/x"),
        ("HTTPS://c.example/d", "https://c.example/d"),
    ] {
        assert_eq!(resolve(&base, to).map(|uri| uri.to_string()).as_deref(), Some(expected), "{to}");
    }
    assert_eq!(resolve(&base, "d").map(|uri| uri.to_string()).as_deref(), Some("https://a.example/b/d"));
    let plain: Uri = "http://a.example/".parse().expect("an address");
    assert!(matches!(check_scheme(&plain), Err(FetchError::Plain(_))));
    let file: Uri = "ftp://a.example/b".parse().expect("an address");
    assert!(check_scheme(&file).is_err());
}
