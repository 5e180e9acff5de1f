use super::*;
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
    fetch(&format!("{}/d/m.gguf", server.base), partial, &mut Progress::begin("m.gguf", Unit::Bytes)).await
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
    disk::write_record(&origin_path(&path), &Origin { url, validator: None }).expect("written");
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

#[test]
fn encryption_is_never_left() {
    let base: Uri = "https://a.example/b/c".parse().expect("an address");
    assert_eq!(resolve(&base, "http://a.example/b"), None);
    assert_eq!(resolve(&base, "//c.example/d").map(|uri| uri.to_string()).as_deref(), Some("https://c.example/d"));
    assert_eq!(resolve(&base, "/d?e").map(|uri| uri.to_string()).as_deref(), Some("https://a.example/d?e"));
    assert_eq!(resolve(&base, "d").map(|uri| uri.to_string()).as_deref(), Some("https://a.example/b/d"));
    let plain: Uri = "http://a.example/".parse().expect("an address");
    assert!(matches!(check_scheme(&plain), Err(FetchError::Plain(_))));
    let file: Uri = "ftp://a.example/b".parse().expect("an address");
    assert!(check_scheme(&file).is_err());
}
