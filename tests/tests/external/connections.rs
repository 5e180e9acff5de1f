//! Connections to other people's servers are kept, and one that dies costs no request its answer.
use crate::{
    fakes::{chat, target},
    support::Visit,
};
use motorpool_external::Target;
use motorpool_residency::Kind;
use motorpool_testkit::eventually;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinHandle,
};

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    /// It answers, and goes on.
    Answer,
    /// It answers, and closes the connection without a word about it.
    AnswerAndClose,
    /// It closes the connection.
    Close,
}

/// Whoever asks for a load gets no answer.
const LOAD: &str = "/api/generate";

/// An Ollama with `a` in its memory that does as it is told, and answers when nothing more is told.
struct Moody {
    port: u16,
    state: Arc<State>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    does: Mutex<VecDeque<Does>>,
    /// The number of the connection that each request came on, and its path.
    came: Mutex<Vec<(usize, String)>>,
    /// How many connections their clients closed.
    ended: watch::Sender<usize>,
}

impl Drop for Moody {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Moody {
    async fn open(does: &[Does]) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(State { does: Mutex::new(does.iter().copied().collect()), ..State::default() });
        let of_it = Arc::clone(&state);
        let task = tokio::spawn(async move {
            for n in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                let state = Arc::clone(&of_it);
                // A client that breaks off is an everyday event.
                tokio::spawn(async move { drop(state.serve(n, stream).await) });
            }
        });
        Self { port, state, task }
    }

    fn target(&self) -> Target {
        let url = format!("http://127.0.0.1:{}", self.port).parse().expect("an address");
        Target { url, ..target(Kind::Ollama, self.port) }
    }

    fn visit(&self) -> Visit {
        Visit::at::<0>(vec![self.target()])
    }

    /// By which connection each request came.
    fn came(&self) -> Vec<usize> {
        self.state.came.lock().expect("no panic").iter().map(|(n, _)| *n).collect()
    }

    /// By which connection each request for a load came.
    fn loads(&self) -> Vec<usize> {
        let came = self.state.came.lock().expect("no panic");
        came.iter().filter(|(_, path)| path == LOAD).map(|(n, _)| *n).collect()
    }
}

impl State {
    async fn serve(&self, n: usize, mut stream: TcpStream) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            while !is_whole(&bytes) {
                if stream.read_buf(&mut bytes).await? == 0 {
                    self.ended.send_modify(|n| *n += 1);
                    return Ok(());
                }
            }
            let path = String::from_utf8_lossy(&bytes).split(' ').nth(1).unwrap_or_default().to_owned();
            bytes.clear();
            self.came.lock().expect("no panic").push((n, path.clone()));
            let does = self.does.lock().expect("no panic").pop_front().unwrap_or(Does::Answer);
            if does == Does::Close || path == LOAD {
                return Ok(());
            }
            let body = if path == "/api/ps" { r#"{"models": [{"model": "a"}]}"# } else { "{}" };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).await?;
            if does == Does::AnswerAndClose {
                return Ok(());
            }
        }
    }
}

/// Whether a whole request is there.
fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes).to_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok());
    body.len() >= length.unwrap_or(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn looks_and_requests_come_by_one_connection() {
    let server = Moody::open(&[]).await;
    let visit = server.visit();
    let mut stay = visit.guest.prepare("a").await.expect("it is there");
    for _ in 0..3 {
        assert_eq!(chat(&mut stay).await.expect("an answer").0, 200);
        visit.guest.look().await.expect("it answers");
    }
    assert_eq!(server.came(), [0; 7]);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_targets_share_no_connection() {
    let server = Moody::open(&[]).await;
    let targets = ["one", "two"].map(|id| Target { id: id.to_owned(), ..server.target() });
    let visit = Visit::at::<0>(targets.to_vec());
    for _ in 0..2 {
        for guest in visit.guests.iter() {
            guest.look().await.expect("it answers");
        }
    }
    assert_eq!(server.came(), [0, 1, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_closes_what_is_idle_costs_no_request_its_answer() {
    let server = Moody::open(&[Does::AnswerAndClose; 7]).await;
    let visit = server.visit();
    let mut stay = visit.guest.prepare("a").await.expect("it is there");
    for _ in 0..6 {
        assert_eq!(chat(&mut stay).await.expect("an answer").0, 200);
    }
    assert_eq!(server.came(), [0, 1, 2, 3, 4, 5, 6]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_kept_connection_dies_goes_once_more_on_a_new_one() {
    let server = Moody::open(&[Does::Answer, Does::Close, Does::Answer]).await;
    let visit = server.visit();
    let mut stay = visit.guest.prepare("a").await.expect("it is there");
    assert_eq!(chat(&mut stay).await.expect("an answer").0, 200);
    assert_eq!(server.came(), [0, 0, 1], "the look, the request, and the request again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_goes_once_more_at_most() {
    let server = Moody::open(&[Does::Answer, Does::Close, Does::Close]).await;
    let visit = server.visit();
    visit.guest.look().await.expect("it answers");
    visit.guest.look().await.expect_err("both connections died");
    assert_eq!(server.came(), [0, 0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_connection_that_dies_speaks_for_its_server() {
    let server = Moody::open(&[Does::Close]).await;
    server.visit().guest.look().await.expect_err("it died");
    assert_eq!(server.came(), [0], "and nobody asks again");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_connection_is_closed_by_us_and_the_next_look_makes_another() {
    let server = Moody::open(&[]).await;
    let visit = server.visit();
    visit.guest.look().await.expect("it answers");
    eventually("it is closed", async || (*server.state.ended.borrow() == 1).then_some(())).await;
    visit.guest.look().await.expect("it answers");
    assert_eq!(server.came(), [0, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_is_asked_for_on_a_new_connection_and_once() {
    let server = Moody::open(&[]).await;
    let visit = server.visit();
    visit.guest.look().await.expect("it answers");
    visit.guest.prepare("b").await.expect_err("nobody knows what became of the load");
    let (loads, came) = (server.loads(), server.came());
    assert!(loads.len() == 1 && came.iter().filter(|n| **n == loads[0]).count() == 1, "{loads:?} of {came:?}");
}
