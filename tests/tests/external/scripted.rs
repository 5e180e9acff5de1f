//! Routers that only play one scene: somebody else's load of `a` that begins just before ours and never gets on; and builds
//! that say, show or do not know that they are to load for no request.
use crate::{fakes::hasty, fakes::visit, support::target_at};
use motorpool_external::Autoload;
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// What it was asked beside its listing, its size and its news, in order.
type Asked = Arc<Mutex<Vec<String>>>;
/// What it answers at a path, after it was asked all that.
type Scene = fn(&str, &[String]) -> (u16, String);

fn open(scene: Scene) -> (u16, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Asked::default();
    let of_it = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let asked = Arc::clone(&of_it);
            std::thread::spawn(move || answer(stream, scene, &asked));
        }
    });
    (port, asked)
}

/// One request to a connection. `None`: its client broke off.
fn answer(mut stream: TcpStream, scene: Scene, asked: &Asked) -> Option<()> {
    let mut reader = BufReader::new(stream.try_clone().ok()?);
    let (mut first, mut n_bytes) = (String::new(), 0);
    reader.read_line(&mut first).ok()?;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            n_bytes = n.trim().parse().ok()?;
        }
    }
    reader.read_exact(&mut vec![0; n_bytes]).ok()?;
    let path = first.split(' ').nth(1)?;
    let (status, body) = {
        let mut asked = asked.lock().expect("no panic");
        if !["/v1/models", "/props", "/models/sse"].contains(&path) {
            asked.push(path.to_owned());
        }
        scene(path, &asked)
    };
    let n = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {n}\r\n\r\n{body}").ok()
}

fn listing(state: &str) -> (u16, String) {
    (200, format!(r#"{{"data": [{{"id": "a", "status": {{"value": "{state}"}}}}]}}"#))
}

fn refusal(message: &str) -> (u16, String) {
    (400, format!(r#"{{"error": {{"message": "{message}"}}}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_somebody_else_that_stands_still_is_not_unloaded() {
    let (port, asked) = open(|path, asked| match path {
        "/v1/models" => listing(if asked.is_empty() { "unloaded" } else { "loading" }),
        "/props" => (200, r#"{"max_instances": 2, "models_autoload": true}"#.to_owned()),
        "/models/load" | "/models/unload" => refusal("model is already running"),
        _ => (404, "{}".to_owned()),
    });
    let visit = visit(hasty(target_at(port, &[])));
    let refused = visit.guest.prepare("a").await.expect_err("it stands still");
    assert!(refused.to_string().contains("somebody else's load"), "{refused}");
    assert_eq!(*asked.lock().expect("no panic"), ["/models/load"]);
    assert!(visit.owned().is_empty());
}

/// What a router that does not say so does when it is asked about a model that is not there, and is to load for no request.
const QUESTION: &str = "/props?model=a&autoload=0";

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_loads_whatever_a_request_says_is_found_out_by_our_own_load() {
    let (port, asked) = open(|path, asked| match path {
        "/v1/models" => listing(if asked.is_empty() { "unloaded" } else { "loaded" }),
        "/props" => (200, r#"{"max_instances": 2}"#.to_owned()),
        QUESTION => (200, "{}".to_owned()),
        "/models/load" => refusal("model is already running"),
        _ => (404, "{}".to_owned()),
    });
    let visit = visit(target_at(port, &[]));
    assert_eq!(visit.guest.look().await.expect("it answers").autoload, Some(Autoload::Untold));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!(visit.guest.look().await.expect("it answers").autoload, Some(Autoload::Ignored));
    assert_eq!(*asked.lock().expect("no panic"), [QUESTION, "/models/load"]);
    assert_eq!(visit.owned(), ["a"], "what our question loaded is ours");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_router_that_refuses_to_load_for_a_request_is_known_to_and_not_asked_again() {
    let (port, asked) = open(|path, asked| match path {
        "/v1/models" => {
            listing(if asked.last().is_some_and(|last| last == "/models/load") { "loaded" } else { "unloaded" })
        }
        "/props" => (200, r#"{"max_instances": 2}"#.to_owned()),
        QUESTION => refusal("model is not loaded"),
        "/models/load" | "/models/unload" => (200, r#"{"success": true}"#.to_owned()),
        _ => (404, "{}".to_owned()),
    });
    let visit = visit(target_at(port, &[]));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!(visit.guest.look().await.expect("it answers").autoload, Some(Autoload::Heeded));
    visit.guest.release("a").await.expect("ours and idle");
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!(*asked.lock().expect("no panic"), [QUESTION, "/models/load", "/models/unload", "/models/load"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_a_router_does_not_understand_says_nothing() {
    let (port, _) = open(|path, asked| match path {
        "/v1/models" => {
            listing(if asked.last().is_some_and(|last| last == "/models/load") { "loaded" } else { "unloaded" })
        }
        "/models/load" => (200, r#"{"success": true}"#.to_owned()),
        // It has one answer for all who ask.
        _ => (200, r#"{"max_instances": 2}"#.to_owned()),
    });
    let visit = visit(target_at(port, &[]));
    drop(visit.guest.prepare("a").await.expect("it loads"));
    assert_eq!(visit.guest.look().await.expect("it answers").autoload, Some(Autoload::Untold));
    assert_eq!(visit.owned(), ["a"]);
}
