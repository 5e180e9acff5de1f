//! [`FakeHub`]: a hub of model repositories, and the second server on which its large files lie.
//!
//! Written from what Hugging Face documents of its hub. Both are real HTTP servers on loopback ports: the hub is
//! `127.0.0.1`, the other `localhost`, so that one that is sent from the first to the second goes to another host. Lists
//! of files come in pages of two. What goes wrong with a file is a [`Trouble`], told beforehand.
mod content;
mod routes;

use super::{Asked, held};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use sha2::{Digest, Sha256};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex},
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};

/// The commit of every repository.
pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What goes wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The connection breaks behind this byte of the file, once. What comes before fits into a socket's buffer.
    CutAt(usize),
    /// Nothing comes behind this byte until [`FakeHub::release`].
    HeldAt(usize),
    /// Ranges are not understood: every answer is the whole file.
    NoRanges,
    /// Other bytes come than the hub says.
    OtherContent(Vec<u8>),
    /// The list of files tells this size.
    ToldSize(u64),
    /// It is always somewhere else.
    Elsewhere,
    /// The hub answers with this status and this word for it.
    Refused(u16, &'static str),
}

#[derive(Debug, Default)]
struct Repo {
    files: BTreeMap<String, Vec<u8>>,
    card: serde_json::Value,
    /// Who may have its files; `None`: everybody.
    token: Option<String>,
}

#[derive(Debug, Default)]
struct State {
    repos: Mutex<BTreeMap<String, Repo>>,
    troubles: Mutex<Vec<(String, Trouble)>>,
    asked: Mutex<Vec<Asked>>,
    ports: Mutex<(u16, u16)>,
    released: Mutex<Option<watch::Sender<bool>>>,
}

/// The two servers.
#[derive(Debug)]
pub struct FakeHub {
    state: Arc<State>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for FakeHub {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

impl FakeHub {
    /// Starts them.
    pub async fn open() -> io::Result<Self> {
        let state = Arc::new(State::default());
        let (hub, store) = (TcpListener::bind(("127.0.0.1", 0)).await?, TcpListener::bind(("127.0.0.1", 0)).await?);
        *held(&state.ports) = (hub.local_addr()?.port(), store.local_addr()?.port());
        *held(&state.released) = Some(watch::Sender::new(false));
        let tasks = [hub, store].map(|listener| tokio::spawn(serve(listener, Arc::clone(&state))));
        Ok(Self { state, tasks })
    }

    /// What `HF_ENDPOINT` is to be.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", held(&self.state.ports).0)
    }

    /// The address of a file on the second server, for whoever asks no hub.
    pub fn address_of(&self, repo: &str, path: &str) -> String {
        format!("http://localhost:{}/{repo}/{path}", held(&self.state.ports).1)
    }

    /// Puts a file into a repository, or in the place of another.
    pub fn put(&self, repo: &str, path: &str, content: impl Into<Vec<u8>>) {
        held(&self.state.repos).entry(repo.into()).or_default().files.insert(path.into(), content.into());
    }

    /// What the repository's card says.
    pub fn set_card(&self, repo: &str, card: serde_json::Value) {
        held(&self.state.repos).entry(repo.into()).or_default().card = card;
    }

    /// Its files are for those alone who show this token.
    pub fn gate(&self, repo: &str, token: &str) {
        held(&self.state.repos).entry(repo.into()).or_default().token = Some(token.into());
    }

    /// The file with this name has this trouble from now on.
    pub fn trouble(&self, path: &str, trouble: Trouble) {
        held(&self.state.troubles).push((path.into(), trouble));
    }

    /// Nothing is wrong any more.
    pub fn mend(&self) {
        held(&self.state.troubles).clear();
    }

    /// What was held comes.
    pub fn release(&self) {
        if let Some(released) = &*held(&self.state.released) {
            released.send_replace(true);
        }
    }

    /// Every request to either server, in order.
    pub fn asked(&self) -> Vec<Asked> {
        held(&self.state.asked).clone()
    }

    /// Requests to the second server for the bytes of `path`.
    pub fn fetched(&self, path: &str) -> Vec<Asked> {
        let is_it = |one: &Asked| is_store(one) && one.path.ends_with(&format!("/{path}"));
        self.asked().into_iter().filter(is_it).collect()
    }
}

/// Whether a request came to the second server.
pub fn is_store(asked: &Asked) -> bool {
    asked.headers.get("host").is_some_and(|host| host.as_bytes().starts_with(b"localhost"))
}

impl State {
    fn trouble_of(&self, path: &str) -> Option<Trouble> {
        held(&self.troubles).iter().find(|(name, _)| path.ends_with(name.as_str())).map(|(_, trouble)| trouble.clone())
    }

    /// The same; a cut happens once.
    fn take_trouble_of(&self, path: &str) -> Option<Trouble> {
        let trouble = self.trouble_of(path);
        if let Some(Trouble::CutAt(_)) = trouble {
            let mut troubles = held(&self.troubles);
            let at = troubles.iter().position(|(name, _)| path.ends_with(name.as_str()));
            at.map(|at| troubles.remove(at));
        }
        trouble
    }

    fn is_released(&self) -> watch::Receiver<bool> {
        held(&self.released).as_ref().map(watch::Sender::subscribe).expect("it was opened")
    }
}

/// As 64 hexadecimal digits.
fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

async fn serve(listener: TcpListener, state: Arc<State>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let state = Arc::clone(&state);
        let service = service_fn(move |request| std::future::ready(routes::answer(&state, &request)));
        // A client that breaks off is an everyday event.
        tokio::spawn(async move { drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await) });
    }
}
