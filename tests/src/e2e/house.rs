//! [`House`]: directories, configuration and catalog of one test, and the command line in it.
use crate::e2e::{Daemon, daemon::LISTENING, processes};
use motorpool_testkit::{Behaviour, FakeModel, binary};
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
};
use tempfile::TempDir;
use tokio::{process::Command, sync::MutexGuard};

/// Variables of the tester that could lead the program under test to their own pool, models or secrets.
const OURS: [&str; 19] = [
    "XDG_RUNTIME_DIR",
    "XDG_STATE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "MOTORPOOL_STATE_DIR",
    "MOTORPOOL_CAPACITY_BUDGET_GB",
    "MOTORPOOL_SERIALIZE_GPU_LOADS",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "RUST_LOG",
    "HF_ENDPOINT",
    "HF_HOME",
    "HF_HUB_CACHE",
    "HF_TOKEN",
    "HF_TOKEN_PATH",
    "HUGGING_FACE_HUB_TOKEN",
    "LLAMA_CACHE",
    "OLLAMA_MODELS",
    "XDG_CACHE_HOME",
];

/// Everything a daemon needs, below one folder.
#[derive(Debug)]
pub struct House {
    folder: TempDir,
    config: toml::Table,
    catalog: Vec<(String, String)>,
    data: PathBuf,
    state: PathBuf,
    environment: Vec<(String, String)>,
    turn: Option<MutexGuard<'static, ()>>,
}

/// How a command ended and what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// What it printed.
    pub stdout: String,
    /// What it said about it.
    pub stderr: String,
}

impl House {
    /// With the fake engine as llama-server, and a budget of 1 GiB.
    pub fn new() -> Self {
        let mut house = Self::without_engine();
        house.set("engine.llama-server.program", program("motorpool-fake-engine"));
        house
    }

    /// With whatever engine its data directory holds.
    pub fn without_engine() -> Self {
        // Sockets lie below, and their paths must be short.
        let folder = tempfile::Builder::new().prefix("mp-").tempdir_in("/tmp").expect("a temporary directory");
        let (data, state) = (folder.path().join("data"), folder.path().join("state"));
        let mut house = Self {
            folder,
            config: toml::Table::new(),
            catalog: Vec::new(),
            data,
            state,
            environment: Vec::new(),
            turn: None,
        };
        for name in ["config/catalog", "config/engines", "models", "home"] {
            fs::create_dir_all(house.path(name)).expect("made");
        }
        house.set("server.listen", vec!["127.0.0.1:0"]);
        house.set("capacity.budget", "1GiB");
        house.set("pool.min_residency", "0s");
        house.set("stop.polite", "5s");
        house.set("shutdown.grace", "10s");
        house
    }

    /// Uses engines and models of this directory.
    pub fn use_data(&mut self, data: &Path) {
        data.clone_into(&mut self.data);
    }

    /// Sets a variable for whatever runs in this house.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Uses this state directory.
    pub fn use_state(&mut self, state: &Path) {
        state.clone_into(&mut self.state);
    }

    /// Keeps a turn until it is dropped.
    pub(crate) fn hold(&mut self, turn: MutexGuard<'static, ()>) {
        self.turn = Some(turn);
    }

    /// `<folder>/<name>`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The folder of all.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where engines and models are.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Sets a key of the configuration, named with its tables: `pool.max_wait`.
    pub fn set(&mut self, key: &str, value: impl Into<toml::Value>) {
        let (tables, key) = key.rsplit_once('.').expect("a table and a key");
        let mut table = &mut self.config;
        for name in tables.split('.') {
            let entry = table.entry(name).or_insert_with(|| toml::Table::new().into());
            table = entry.as_table_mut().expect("a table");
        }
        table.insert(key.into(), value.into());
    }

    /// Adds a `[[device]]`.
    ///
    /// # Panics
    /// When `device` is something else.
    pub fn add_device(&mut self, id: &str, total: &str) {
        self.add("device", [("id", id.into()), ("total", total.into())]);
    }

    /// Adds a `[[list]]` with these keys.
    ///
    /// # Panics
    /// When `list` is something else.
    pub fn add<'a>(&mut self, list: &str, keys: impl IntoIterator<Item = (&'a str, toml::Value)>) {
        let table: toml::Table = keys.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let tables = self.config.entry(list).or_insert_with(|| toml::Value::Array(vec![]));
        tables.as_array_mut().expect("a list").push(table.into());
    }

    /// Sets a key of the last `[[list]]`.
    ///
    /// # Panics
    /// When there is none.
    pub fn add_to_last(&mut self, list: &str, key: &str, value: toml::Value) {
        let table = self.config[list].as_array_mut().and_then(|tables| tables.last_mut()).expect("one");
        table.as_table_mut().expect("a table").insert(key.to_owned(), value);
    }

    /// Leaves a key to its default.
    pub fn unset(&mut self, key: &str) {
        let (table, key) = key.split_once('.').expect("a table and a key");
        self.config[table].as_table_mut().expect("a table").remove(key);
    }

    /// A model of 600 MiB with two slots that the fake engine serves like this: the budget holds one of the kind.
    pub fn fake(&mut self, id: &str, behaviour: &Behaviour) -> FakeModel {
        self.fake_with(id, behaviour, "declared = \"600MiB\"\nslots = 2\n")
    }

    /// A model that the fake engine serves, with these lines in its catalog entry.
    pub fn fake_with(&mut self, id: &str, behaviour: &Behaviour, lines: &str) -> FakeModel {
        let model = FakeModel::write(&self.path("models"), id, behaviour).expect("written");
        self.add_model(id, model.path(), lines);
        model
    }

    /// A model of this file, with these lines in its catalog entry.
    pub fn add_model(&mut self, id: &str, file: &Path, lines: &str) {
        let text = format!("id = \"{id}\"\ncontext = 512\n{lines}\n[source]\nfile = \"{}\"\n", file.display());
        self.catalog.push((id.to_owned(), text));
    }

    /// A file beside the configuration: `engines/mine.toml`.
    pub fn write_beside(&self, name: &str, text: &str) {
        fs::write(self.path("config").join(name), text).expect("written");
    }

    /// The configuration file, as it is for the next start.
    pub fn write_config(&self) -> PathBuf {
        for (id, text) in &self.catalog {
            self.write_beside(&format!("catalog/{}.toml", id.replace('/', "-")), text);
        }
        let path = self.path("config/motorpool.toml");
        fs::write(&path, self.config.to_string()).expect("written");
        path
    }

    /// `motorpool <args>` in this house; its standard streams are nobody's.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary("motorpool"));
        for name in OURS {
            command.env_remove(name);
        }
        command.arg("--state-dir").arg(&self.state);
        command.arg("--config").arg(self.path("config/motorpool.toml")).args(args);
        command.env("HOME", self.path("home"));
        command.envs(self.environment.iter().cloned());
        command.env("XDG_DATA_HOME", &self.data).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        command
    }

    /// The same, started by a shell script that ends with `exec "$@"`.
    pub fn command_through(&self, script: &str, args: &[&str]) -> Command {
        let plain = self.command(args);
        let plain = plain.as_std();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, "sh"]).arg(plain.get_program()).args(plain.get_args());
        for (name, value) in plain.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Runs `motorpool <args>` to its end.
    pub async fn run(&self, args: &[&str]) -> Outcome {
        outcome(self.command(args)).await
    }

    /// A daemon that listens.
    pub async fn start(&self) -> Daemon<'_> {
        self.write_config();
        Daemon::start(self).await
    }

    /// A daemon that listens, started by a shell script that ends with `exec "$@"`.
    pub async fn start_through(&self, script: &str) -> Daemon<'_> {
        self.write_config();
        Daemon::run(self, self.command_through(script, &["serve"]), LISTENING).await
    }

    /// A daemon that must not start, and how it ended. Nothing of it may be left.
    pub async fn start_in_vain(&self) -> Outcome {
        let outcome = self.run(&["serve"]).await;
        processes::assert_none(self);
        outcome
    }

    /// What a daemon of this house writes in its state directory.
    pub fn state(&self, name: &str) -> PathBuf {
        self.state.join(name)
    }

    /// The socket on which a daemon of this house is controlled.
    pub fn control_socket(&self) -> PathBuf {
        self.state("run/control.sock")
    }
}

impl Default for House {
    fn default() -> Self {
        Self::new()
    }
}

/// A test that failed half way leaves nothing running, whatever the program under test did wrong.
impl Drop for House {
    fn drop(&mut self) {
        processes::end_all(self);
    }
}

impl Outcome {
    /// The one JSON document on its standard output.
    ///
    /// # Panics
    /// When there is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }
}

/// Runs `command` to its end.
pub async fn outcome(mut command: Command) -> Outcome {
    let output = command.stdout(Stdio::piped()).stderr(Stdio::piped()).output().await.expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Outcome { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

fn program(name: &str) -> String {
    let path = OsString::from(binary(name));
    path.into_string().expect("the target directory is named in UTF-8")
}

/// Reads a file that may not be there yet, or be something else.
pub fn read(path: &Path) -> String {
    use io::ErrorKind::{IsADirectory, NotADirectory, NotFound};
    match fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if matches!(error.kind(), NotFound | NotADirectory | IsADirectory) => String::new(),
        Err(error) => panic!("{}: {error}", path.display()),
    }
}
