//! A router that only plays one scene: somebody else's load of `a` begins just before ours, and never gets on.
use crate::{fakes::hasty, fakes::visit, support::target_at};
use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
};

/// What it was told to do, in order.
type Asked = Arc<Mutex<Vec<String>>>;

fn open() -> (u16, Asked) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let asked = Asked::default();
    let of_it = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let asked = Arc::clone(&of_it);
            std::thread::spawn(move || answer(stream, &asked));
        }
    });
    (port, asked)
}

/// One request to a connection. `None`: its client broke off.
fn answer(mut stream: TcpStream, asked: &Asked) -> Option<()> {
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
    let (status, body) = reply(path, asked);
    let n = body.len();
    let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\nconnection: close\r\n");
    write!(stream, "{head}content-length: {n}\r\n\r\n{body}").ok()
}

fn reply(path: &str, asked: &Asked) -> (u16, String) {
    let mut asked = asked.lock().expect("no panic");
    let state = if asked.is_empty() { "unloaded" } else { "loading" };
    match path {
        "/v1/models" => (200, format!(r#"{{"data": [{{"id": "a", "status": {{"value": "{state}"}}}}]}}"#)),
        "/props" => (200, r#"{"max_instances": 2}"#.to_owned()),
        "/models/load" | "/models/unload" => {
            asked.push(path.to_owned());
            (400, r#"{"error": {"message": "model is already running"}}"#.to_owned())
        }
        _ => (404, "{}".to_owned()),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_of_somebody_else_that_stands_still_is_not_unloaded() {
    let (port, asked) = open();
    let visit = visit(hasty(target_at(port, &[])));
    let refused = visit.guest.prepare("a").await.expect_err("it stands still");
    assert!(refused.to_string().contains("somebody else's load"), "{refused}");
    assert_eq!(*asked.lock().expect("no panic"), ["/models/load"]);
    assert!(visit.owned().is_empty());
}
