//! An engine that does as it is told, one connection after another.
use std::{path::PathBuf, sync::Arc};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{Mutex, mpsc, watch},
};

/// What it does with the next request.
#[derive(Debug)]
enum Deed {
    Reply(String),
    /// Closes without a reply, or inside it.
    Break(String),
    /// Sends this and then nothing until the other side closes.
    Hang(String),
}

/// A request it heard.
#[derive(Debug)]
pub(crate) struct Heard {
    /// In lower case.
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).expect("JSON")
    }
}

#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) socket: PathBuf,
    pub(crate) n_leases: watch::Sender<u32>,
    deeds: mpsc::UnboundedSender<Deed>,
    heard: Mutex<mpsc::UnboundedReceiver<Heard>>,
    closed: Mutex<mpsc::UnboundedReceiver<()>>,
    _dir: tempfile::TempDir,
}

impl Engine {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let socket = dir.path().join("e.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (deeds, told) = mpsc::unbounded_channel();
        let (ear, heard) = mpsc::unbounded_channel();
        let (end, closed) = mpsc::unbounded_channel();
        let told = Arc::new(Mutex::new(told));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(converse(stream, Arc::clone(&told), ear.clone(), end.clone()));
            }
        });
        Self {
            socket,
            n_leases: watch::Sender::new(0),
            deeds,
            heard: Mutex::new(heard),
            closed: Mutex::new(closed),
            _dir: dir,
        }
    }

    fn will(&self, deed: Deed) {
        self.deeds.send(deed).expect("the engine lives");
    }

    pub(crate) fn stream(&self, parts: &[&str]) {
        self.will(Deed::Reply(streamed(parts) + "0\r\n\r\n"));
    }

    /// Byte for byte.
    pub(crate) fn says(&self, text: &str) {
        self.will(Deed::Reply(text.to_owned()));
    }

    pub(crate) fn json(&self, status: u16, body: &str) {
        let length = body.len();
        self.will(Deed::Reply(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )));
    }

    pub(crate) fn text(&self, status: u16, text: &str) {
        let length = text.len();
        self.will(Deed::Reply(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: text/html\r\ncontent-length: {length}\r\n\r\n{text}"
        )));
    }

    pub(crate) fn closes(&self) {
        self.will(Deed::Break(String::new()));
    }

    /// Closes inside an error document.
    pub(crate) fn breaks_in_document(&self, status: u16, begin: &str) {
        self.will(Deed::Break(format!(
            "HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: 999\r\n\r\n{begin}"
        )));
    }

    pub(crate) fn breaks_after(&self, parts: &[&str]) {
        self.will(Deed::Break(streamed(parts)));
    }

    /// Without parts it sends no head either.
    pub(crate) fn hangs_after(&self, parts: &[&str]) {
        self.will(Deed::Hang(if parts.is_empty() { String::new() } else { streamed(parts) }));
    }

    /// The next request that it heard.
    pub(crate) async fn heard(&self) -> Heard {
        self.heard.lock().await.recv().await.expect("the engine lives")
    }

    /// The other side closed while it hung.
    pub(crate) async fn closed(&self) {
        self.closed.lock().await.recv().await.expect("the engine lives");
    }

    /// How many leases there are once those on their way back are back.
    pub(crate) async fn leases(&self) -> u32 {
        *self.n_leases.subscribe().wait_for(|n| *n == 0).await.expect("the engine lives")
    }
}

fn streamed(parts: &[&str]) -> String {
    let head = "HTTP/1.1 200 OK\r\nserver: llama.cpp\r\naccess-control-allow-origin: *\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    parts.iter().fold(head.to_owned(), |text, part| text + &format!("{:x}\r\n{part}\r\n", part.len()))
}

async fn converse(
    mut stream: UnixStream,
    told: Arc<Mutex<mpsc::UnboundedReceiver<Deed>>>,
    ear: mpsc::UnboundedSender<Heard>,
    end: mpsc::UnboundedSender<()>,
) {
    while let Some(heard) = read_request(&mut stream).await {
        ear.send(heard).expect("the test lives");
        let Some(deed) = told.lock().await.recv().await else { return };
        match deed {
            Deed::Reply(text) => stream.write_all(text.as_bytes()).await.expect("it reads"),
            Deed::Break(text) => return stream.write_all(text.as_bytes()).await.expect("it reads"),
            Deed::Hang(text) => {
                stream.write_all(text.as_bytes()).await.expect("it reads");
                let mut byte = [0];
                assert_eq!(stream.read(&mut byte).await.unwrap_or(0), 0, "nothing was due");
                end.send(()).expect("the test lives");
                return;
            }
        }
    }
}

async fn read_chunks(stream: &mut UnixStream) -> Option<String> {
    let mut body = Vec::new();
    loop {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.push(stream.read_u8().await.ok()?);
        }
        let size = str::from_utf8(&line).expect("text").trim();
        let mut chunk = vec![0; usize::from_str_radix(size, 16).expect("a size") + 2];
        stream.read_exact(&mut chunk).await.ok()?;
        if chunk.len() == 2 {
            return Some(String::from_utf8(body).expect("text"));
        }
        body.extend_from_slice(&chunk[..chunk.len() - 2]);
    }
}

async fn read_request(stream: &mut UnixStream) -> Option<Heard> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).expect("text").to_ascii_lowercase();
    if head.contains("transfer-encoding: chunked") {
        let body = read_chunks(stream).await?;
        return Some(Heard { head, body });
    }
    let length = head
        .split("\r\n")
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |n| n.parse().expect("a length"));
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    Some(Heard { head, body: String::from_utf8(body).expect("text") })
}
