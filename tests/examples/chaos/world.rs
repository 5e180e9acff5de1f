//! [`World`]: one daemon, its models and cards, and how a step is performed on them.
use crate::{
    check::{self, Before},
    dice::Dice,
    note,
    requests::{Ended, Kind, Requests, WasCut},
    steps::{How, Mood, Step, draw},
};
use motorpool_testkit::FakeModel;
use motorpool_tests::e2e::{
    Daemon, House,
    cards::{CARDS, Cards},
    journal,
    processes::{is_alive, memory_kib, n_descriptors, one},
    talk::{CHAT, ask, chat},
};
use motorpool_vocab::GIB;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::{
    fmt, fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

const API: &str = "/api/motorpool/v1/models";
/// Fake engines: id, and MiB of a card, or none: then it takes system memory.
const FAKES: [(&str, Option<u64>); 5] = [
    ("card-a", Some(20 << 10)),
    ("card-b", Some(14 << 10)),
    ("card-c", Some(9 << 10)),
    ("ram-a", None),
    ("ram-b", None),
];
const REAL: &str = "real";
/// A daemon of the tests lives three minutes; a new one comes before.
const DAEMON_LIVES: Duration = Duration::from_mins(2);

/// Of the log, when something is violated.
const LOG_LINES: usize = 120;
const MOMENT: Duration = Duration::from_millis(10);

/// What has been done so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    steps: u64,
    well: u64,
    typed: u64,
    left: u64,
    cut: u64,
    killed: [u64; 3],
}

/// Whether a keeper was killed in this cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keepers {
    Whole,
    Killed,
}

pub(crate) struct World<'a> {
    house: &'a House,
    cards: Cards,
    fakes: Vec<FakeModel>,
    models: Vec<String>,
    /// `None` only while one takes another's place.
    daemon: Option<Daemon<'a>>,
    born_at: Instant,
    before: Before,
    requests: Requests,
    was_cut: WasCut,
    keepers: Keepers,
    frozen: Vec<u32>,
    pub(crate) tally: Tally,
}

impl<'a> World<'a> {
    /// The house of the daemon; its models are entered by [`Self::start`].
    pub(crate) fn house() -> (House, Cards, Vec<FakeModel>, Vec<String>) {
        let mut house = House::new();
        for (key, value) in [
            ("pool.drain_wait", "1s"),
            ("pool.max_wait", "1s"),
            ("pool.queue_wait", "4s"),
            ("load.stall", "3s"),
            ("stop.polite", "300ms"),
            ("stop.kill", "1s"),
            ("shutdown.grace", "1s"),
            ("session_state.disk", "4MiB"),
            ("limits.first_result", "2s"),
            ("limits.between_frames", "1s"),
            ("log.level", "debug"),
        ] {
            house.set(key, value);
        }
        // What fails so often would be given up for a while, and nothing of it be seen.
        house.set("breaker.failures", 0);
        let fakes = FAKES.map(|(id, mib)| {
            let lines = mib.map_or("declared = \"300MiB\"\ngpu_layers = 0\nslots = 2\n".to_owned(), |mib| {
                format!("declared = \"{mib}MiB\"\nslots = 2\n")
            });
            house.fake_with(id, &Mood::Well.behaviour(mib), &lines)
        });
        let cards = Cards::put_in(&mut house, [24 * GIB, 16 * GIB], "");
        let mut models: Vec<String> = FAKES.iter().map(|(id, _)| (*id).to_owned()).collect();
        if let Some((program, file)) = real() {
            let manifest = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../engines/llama-server.toml"));
            let manifest = manifest.expect("shipped").replacen("name = \"llama-server\"", "name = \"real\"", 1);
            fs::write(house.path("config/engines/real.toml"), manifest).expect("written");
            house.set("engine.real.program", program.to_str().expect("UTF-8"));
            house.add_model(REAL, &file, "engine = \"real\"\ngpu_layers = 0\nslots = 1\n");
            models.push(REAL.to_owned());
        }
        (house, cards, fakes.to_vec(), models)
    }

    pub(crate) async fn start((house, cards, fakes, models): &'a (House, Cards, Vec<FakeModel>, Vec<String>)) -> Self {
        crate::say(&format!("models: {}", models.join(", ")));
        let mut world = Self {
            house,
            cards: cards.clone(),
            fakes: fakes.clone(),
            models: models.clone(),
            daemon: None,
            born_at: Instant::now(),
            before: Before::default(),
            requests: Requests::default(),
            was_cut: WasCut::No,
            keepers: Keepers::Whole,
            frozen: Vec::new(),
            tally: Tally::default(),
        };
        world.renew().await;
        world
    }

    fn daemon(&self) -> &Daemon<'a> {
        self.daemon.as_ref().expect("between cycles there is one")
    }

    /// A new daemon, warmed up, so that its pools and caches have what they keep.
    async fn renew(&mut self) {
        let daemon = self.house.start().await;
        self.born_at = Instant::now();
        let ready = async || daemon.http().get("/ready").await.ok().filter(|answer| answer.status == 200);
        motorpool_testkit::eventually("ready", ready).await;
        let control = daemon.control();
        for _ in 0..2 {
            let _ = daemon.http().post(CHAT, &chat("ram-a", "hello")).await;
            let _ = control.post(&format!("{API}/ram-a/unload"), &json!({"mode": "force"})).await;
        }
        daemon.until_quiet().await;
        // Connections of a client and to an engine come and go; those that stay are found by their number.
        self.before.descriptors = n_descriptors(daemon.pid()) + 2;
        self.daemon = Some(daemon);
    }

    /// Draws and performs the steps of one cycle, and looks at what must hold.
    pub(crate) async fn cycle(&mut self, dice: &mut Dice) -> Result<(), String> {
        if self.born_at.elapsed() > DAEMON_LIVES {
            self.perform(Step::StopSupervisor).await?;
        }
        for step in draw(dice, self.models.len(), self.fakes.len()) {
            note(format!("{step:?} {}", self.name(step)));
            self.tally.steps += 1;
            self.perform(step).await?;
        }
        self.heal()?;
        for ended in self.requests.all(self.was_cut).await? {
            *match ended {
                Ended::Well => &mut self.tally.well,
                Ended::Typed => &mut self.tally.typed,
                Ended::Left => &mut self.tally.left,
                Ended::CutOff => &mut self.tally.cut,
            } += 1;
        }
        self.was_cut = WasCut::No;
        let daemon = self.daemon.as_ref().expect("between cycles there is one");
        check::ledger(self.house, daemon).await?;
        let control = daemon.control();
        for model in &self.models {
            let unloaded = control.post(&format!("{API}/{model}/unload"), &json!({"mode": "force"})).await;
            unloaded.map_err(|error| format!("unload {model}: {error}"))?;
        }
        check::at_rest(self.house, daemon, &self.before).await?;
        self.keepers = Keepers::Whole;
        self.before.groups.clear();
        Ok(())
    }

    async fn perform(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::Load(model) => self.manage(model, "load", json!({})),
            Step::Unload(model, How::AfterWork) => self.manage(model, "unload", json!({})),
            Step::Unload(model, How::IfIdle) => self.manage(model, "unload", json!({"mode": "idle"})),
            Step::Unload(model, How::AtOnce) => self.manage(model, "unload", json!({"mode": "force"})),
            Step::Stream(model) => self.ask(Kind::Stream, chat(&self.models[model], "hello")),
            Step::Ask(model) => self.ask(Kind::Whole, ask(&self.models[model], "hello")),
            Step::Leave(model) => {
                let pieces = u8::try_from(self.tally.steps % 4).unwrap_or(0);
                self.ask(Kind::Leaves(pieces), chat(&self.models[model], "hello"));
            }
            Step::Behave(model, mood) => {
                self.fakes[model].behave(&mood.behaviour(FAKES[model].1)).map_err(|error| error.to_string())?;
            }
            Step::KillEngine(model) => self.signal(0, self.engine(model).await, Signal::SIGKILL),
            Step::KillKeeper(model) => {
                let keeper = self.keeper(model).await;
                self.keepers = Keepers::Killed;
                self.signal(1, keeper, Signal::SIGKILL);
            }
            Step::FreezeKeeper(model) => {
                let keeper = self.keeper(model).await;
                self.frozen.extend(keeper);
                self.signal(1, keeper, Signal::SIGSTOP);
            }
            Step::LoseCard(card) => self.cards.set(&format!("fault all {} lost\n", CARDS[card])),
            Step::KillSupervisor => self.kill_supervisor().await,
            Step::StopSupervisor => self.stop_supervisor().await,
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(ms.into())).await,
        }
        Ok(())
    }

    /// A frozen keeper cannot end its tree; the next supervisor does, which is another promise. And the fake engine lists a
    /// card that its driver has lost, as no real one does: a supervisor that starts meanwhile would count it by that.
    fn before_another(&mut self) {
        self.thaw();
        self.cards.set("");
    }

    async fn kill_supervisor(&mut self) {
        self.before_another();
        self.was_cut = WasCut::Yes;
        self.tally.killed[2] += 1;
        self.before.groups.extend(journal::groups(&self.house.state("journal.jsonl")));
        let mut daemon = self.daemon.take().expect("between cycles there is one");
        match self.keepers {
            Keepers::Whole => drop(daemon.kill().await),
            // What an engine started ends by its keeper, else by the supervisor, else by the next one: with both killed at
            // once the end of the cycle finds whether that did.
            Keepers::Killed => {
                daemon.signal(Signal::SIGKILL);
                daemon.ended().await;
            }
        }
        self.renew().await;
    }

    async fn stop_supervisor(&mut self) {
        self.before_another();
        self.was_cut = WasCut::Yes;
        self.daemon.take().expect("between cycles there is one").stop().await;
        self.renew().await;
    }

    fn manage(&mut self, model: usize, what: &str, body: Value) {
        let path = format!("{API}/{}/{what}", self.models[model]);
        self.requests.send(self.daemon().control(), Kind::Management, path, body);
    }

    fn ask(&mut self, kind: Kind, mut body: Value) {
        body["max_tokens"] = json!(24);
        // Most go on with a conversation: what its slot holds is written and read back around it.
        if !self.tally.steps.is_multiple_of(4) {
            body["user"] = json!(format!("u{}", self.tally.steps % 4));
        }
        self.requests.send(self.daemon().http(), kind, CHAT.to_owned(), body);
    }

    /// The process of a model's engine, or of another one when that has none; a start under way is given a moment.
    async fn engine(&self, model: usize) -> Option<u32> {
        for _ in 0..30 {
            if let Some(pid) = self.engine_now(model).await {
                return Some(pid);
            }
            tokio::time::sleep(MOMENT).await;
        }
        None
    }

    async fn engine_now(&self, model: usize) -> Option<u32> {
        let answer = self.daemon().control().get("/api/motorpool/v1/status").await.ok()?;
        let engines = answer.json()["engines"].as_array()?.clone();
        let is_its =
            |engine: &Value| engine["key"].as_str().and_then(|k| k.split(':').nth(1)) == Some(&self.models[model]);
        let pid = |engine: &Value| engine["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        let its = engines.iter().find(|engine| is_its(engine)).and_then(pid);
        its.or_else(|| engines.iter().find_map(pid))
    }

    /// The keeper of such an engine.
    async fn keeper(&self, model: usize) -> Option<u32> {
        let keeper = self.engine(model).await.and_then(one).map(|engine| engine.parent);
        // One that just died has another parent.
        keeper.filter(|pid| one(*pid).is_some_and(|keeper| keeper.parent == self.daemon().pid()))
    }

    fn signal(&mut self, whose: usize, pid: Option<u32>, signal: Signal) {
        // Seen a moment ago, as a child of ours; a recycled number is not to be feared within it.
        if let Some(pid) = pid.filter(|pid| is_alive(*pid)) {
            self.tally.killed[whose] += u64::from(signal == Signal::SIGKILL);
            send_if_there(pid, signal);
        }
    }

    fn thaw(&mut self) {
        for pid in self.frozen.drain(..) {
            if is_alive(pid) {
                send_if_there(pid, Signal::SIGCONT);
            }
        }
    }

    /// Everything that was broken by a step works again.
    fn heal(&mut self) -> Result<(), String> {
        self.thaw();
        self.cards.set("");
        for (model, (_, mib)) in self.fakes.iter().zip(FAKES) {
            model.behave(&Mood::Well.behaviour(mib)).map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    fn name(&self, step: Step) -> &str {
        match step {
            Step::Load(model)
            | Step::Stream(model)
            | Step::Ask(model)
            | Step::Leave(model)
            | Step::Unload(model, _)
            | Step::Behave(model, _)
            | Step::KillEngine(model)
            | Step::KillKeeper(model)
            | Step::FreezeKeeper(model) => &self.models[model],
            Step::LoseCard(_) | Step::KillSupervisor | Step::StopSupervisor | Step::Wait(_) => "",
        }
    }

    /// The end of the supervisor's log.
    pub(crate) fn log(&self) -> String {
        let log = self.daemon().log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }

    pub(crate) fn memory(&self) -> String {
        let pid = self.daemon().pid();
        format!("the last supervisor's RSS {} MiB", memory_kib(pid, "VmRSS") >> 10)
    }

    pub(crate) async fn stop(mut self) {
        self.daemon.take().expect("between cycles there is one").stop().await;
    }
}

fn send_if_there(pid: u32, signal: Signal) {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).expect("a process id"));
    // It may end at any moment.
    let _ = nix::sys::signal::kill(pid, signal);
}

/// The real engine's program and a model file, where the cache of the tests holds them.
pub(crate) fn real() -> Option<(PathBuf, PathBuf)> {
    let data = PathBuf::from(std::env::var_os("MOTORPOOL_TEST_CACHE")?).join("motorpool");
    let mut versions = fs::read_dir(data.join("engines/llama-server")).ok()?;
    let program = versions.by_ref().flatten().find_map(|version| program_of(&version.path()))?;
    let mut files = fs::read_dir(data.join("models/gemma3-270m")).ok()?.flatten().map(|file| file.path());
    let file = files.find(|path| path.extension().is_some_and(|ending| ending == "gguf"))?;
    Some((program, file))
}

fn program_of(version: &Path) -> Option<PathBuf> {
    let record: Value = serde_json::from_str(&fs::read_to_string(version.join("install.json")).ok()?).ok()?;
    Some(record["program"].as_str()?.into())
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { steps, well, typed, left, cut, killed: [engines, keepers, supervisors] } = self;
        write!(
            f,
            "{steps} steps; requests: {well} answered, {typed} with a typed error, {left} left by their client, \
             {cut} cut with their supervisor; killed: {engines} engines, {keepers} keepers, {supervisors} supervisors"
        )
    }
}
