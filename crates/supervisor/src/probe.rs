//! Asks an engine whether it is ready, on its own address.
//!
//! A probe proves what was answered and no more: 503 that something is bound there, the ready status that the
//! model is loaded. On TCP the listener must belong to the engine's own tree, else a stranger on the port would
//! pass for it.
use crate::exchange::exchange;
use motorpool_devices::{descendants, listens};
use motorpool_vocab::Endpoint;
use std::time::Duration;
use tokio::{
    sync::Notify,
    time::{sleep, timeout},
};

/// The pause after the first probe that was not ready.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
/// The longest pause.
const MAX_PAUSE: Duration = Duration::from_millis(250);
/// How long one probe may take.
const PROBE_WITHIN: Duration = Duration::from_secs(2);

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It answered as a ready engine does.
    Ready,
    /// It is bound and says that it is not ready (503).
    NotYet,
    /// It is bound and answered with another status.
    Odd(u16),
    /// Nothing there, or nothing that speaks HTTP in time.
    Silent,
    /// Somebody else listens on its port.
    Stranger,
}

/// How an engine is asked.
#[derive(Clone, Debug)]
pub struct Question {
    /// Where.
    pub endpoint: Endpoint,
    /// Such as `/health`.
    pub path: String,
    /// The status of a ready engine.
    pub ready_status: u16,
    /// Its first process.
    pub pid: u32,
}

impl Question {
    /// Asks again and again until the answer is `Ready`, at once after a nudge. Whoever waits sets the limit, and drops
    /// this at its end.
    pub(crate) async fn until_ready(&self, nudge: &Notify) {
        let mut pause = FIRST_PAUSE;
        while self.ask(PROBE_WITHIN).await != Readiness::Ready {
            tokio::select! {
                () = sleep(pause) => {}
                () = nudge.notified() => {}
            }
            pause = longer(pause);
        }
    }

    /// Asks once.
    pub async fn ask(&self, within: Duration) -> Readiness {
        let answered = timeout(within, exchange(&self.endpoint, &self.path, None)).await;
        let Ok(Ok((status, _))) = answered else { return Readiness::Silent };
        match status {
            _ if !self.is_its_own() => Readiness::Stranger,
            status if status == self.ready_status => Readiness::Ready,
            503 => Readiness::NotYet,
            other => Readiness::Odd(other),
        }
    }

    /// A unix socket lies in a directory of our own, so who answers there is ours.
    fn is_its_own(&self) -> bool {
        match self.endpoint {
            Endpoint::Unix(_) => true,
            Endpoint::Tcp(port) => {
                let mut tree = descendants(self.pid);
                tree.push(self.pid);
                listens(port, &tree)
            }
        }
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 2).min(MAX_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{net::Ipv4Addr, path::Path};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::{TcpListener, UnixListener},
    };

    fn question(endpoint: Endpoint) -> Question {
        Question { endpoint, path: "/health".into(), ready_status: 200, pid: std::process::id() }
    }

    fn at(path: &Path) -> Question {
        question(Endpoint::Unix(path.to_owned()))
    }

    /// Answers each connection with the next of `answers`, then is gone.
    fn answering(listener: UnixListener, answers: Vec<&'static str>) -> tokio::task::JoinHandle<Vec<String>> {
        tokio::spawn(async move {
            let mut heard = Vec::new();
            for answer in answers {
                let (mut stream, _) = listener.accept().await.expect("a probe");
                let mut request = [0; 512];
                let n = stream.read(&mut request).await.expect("a request");
                heard.push(String::from_utf8_lossy(&request[..n]).into_owned());
                stream.write_all(answer.as_bytes()).await.expect("a listener");
            }
            heard
        })
    }

    const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{\"status\":\"ok\"}";
    const LOADING: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n";

    #[tokio::test]
    async fn an_answer_means_what_it_says_and_no_more() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        assert_eq!(at(&path).ask(PROBE_WITHIN).await, Readiness::Silent, "nobody is there");
        let listener = UnixListener::bind(&path).expect("a free path");
        let odd = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n";
        let server = answering(listener, vec![LOADING, OK, odd, "SSH-2.0-x\r\n", ""]);
        for expected in [Readiness::NotYet, Readiness::Ready, Readiness::Odd(404), Readiness::Silent, Readiness::Silent]
        {
            assert_eq!(at(&path).ask(PROBE_WITHIN).await, expected);
        }
        let heard = server.await.expect("no panic");
        assert!(heard.iter().all(|head| head.starts_with("GET /health HTTP/1.1\r\n")), "{heard:?}");
    }

    #[tokio::test]
    async fn one_that_never_answers_is_silent_in_time() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        let _listener = UnixListener::bind(&path).expect("a free path");
        assert_eq!(at(&path).ask(Duration::from_millis(20)).await, Readiness::Silent);
    }

    #[tokio::test]
    async fn it_is_asked_until_it_is_ready() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("e.sock");
        let server = answering(UnixListener::bind(&path).expect("a free path"), vec![LOADING, LOADING, OK]);
        at(&path).until_ready(&Notify::new()).await;
        assert_eq!(server.await.expect("no panic").len(), 3);
    }

    #[tokio::test]
    async fn a_strangers_port_is_not_ready_whatever_it_answers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 512]).await;
                let _ = stream.write_all(OK.as_bytes()).await;
            }
        });
        let ours = question(Endpoint::Tcp(port));
        assert_eq!(ours.ask(PROBE_WITHIN).await, Readiness::Ready);
        assert_eq!(Question { pid: u32::MAX, ..ours }.ask(PROBE_WITHIN).await, Readiness::Stranger);
    }

    #[test]
    fn pauses_double_up_to_a_quarter_of_a_second() {
        let pauses: Vec<u128> = std::iter::successors(Some(FIRST_PAUSE), |pause| Some(longer(*pause)))
            .map(|pause| pause.as_millis())
            .take(7)
            .collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 250, 250]);
    }
}
