//! The folder of a pool of our own, and its process.
use super::{
    super::{
        BenchError,
        way::{Address, Way},
    },
    program::Running,
};
use crate::client::Client;
use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

/// The model of small requests and streams.
pub(crate) const TRIVIAL: &str = "trivial";
/// Two models of which one fits beside it.
pub(crate) const TWINS: [&str; 2] = ["twin-a", "twin-b"];
/// A model of a few hundred kilobytes for llama-server.
pub(crate) const SMOKE: &str = "smoke";

/// Limits above whatever is measured.
const CONFIG: &str = r#"
[server]
listen = ["127.0.0.1:0"]
[capacity]
budget = "2GiB"
[pool]
min_residency = "0s"
[limits]
connections = 200_000
queue_model = 100_000
queue = 1_000_000
"#;

const MANIFEST: &str = r#"
name = "trivial"
transport = "unix"
args = ["--socket", "{endpoint.socket}"]
paths = ["GET /health", "POST /v1/chat/completions"]
[program]
names = ["motorpool-trivial-engine"]
version_args = ["--version"]
version_pattern = '\d+\.\d+\.\d+'
[ready]
path = "/health"
status = 200
[stop]
signal = "SIGTERM"
"#;

/// Everything of a pool below one folder, which goes with it.
#[derive(Debug)]
pub(crate) struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    /// Writes it.
    pub(crate) fn make(engine: &Path, llama_server: Option<&Path>) -> io::Result<Self> {
        // A short path: the name of a socket has room for little more than a hundred bytes.
        let folder = tempfile::Builder::new().prefix("mpb-").tempdir()?;
        let home = Self { folder };
        for name in ["config/engines", "config/catalog", "models"] {
            fs::create_dir_all(home.path().join(name))?;
        }
        fs::write(home.model_file(), motorpool_gguf::write::smoke_model())?;
        let program = |name: &str, path: &Path| {
            let path = std::path::absolute(path)?;
            Ok::<_, io::Error>(format!(
                "[engine.{name}]\nprogram = {}\n",
                toml::Value::from(path.to_string_lossy().as_ref())
            ))
        };
        let mut config = CONFIG.to_owned() + &program(TRIVIAL, engine)?;
        if let Some(path) = llama_server {
            config += &program("llama-server", path)?;
            home.write_model(SMOKE, "context = 256\nslots = 64\nkv_type = \"f16\"\n")?;
        }
        fs::write(home.config(), config)?;
        fs::write(home.path().join("config/engines/trivial.toml"), MANIFEST)?;
        home.write_model(
            TRIVIAL,
            "engine = \"trivial\"\ncontext = 256\nslots = 16384\ndeclared = \"1MiB\"\npinned = true\n",
        )?;
        for twin in TWINS {
            home.write_model(twin, "engine = \"trivial\"\ncontext = 256\nslots = 2\ndeclared = \"1200MiB\"\n")?;
        }
        Ok(home)
    }

    fn write_model(&self, id: &str, lines: &str) -> io::Result<()> {
        let file = toml::Value::from(self.model_file().to_string_lossy().as_ref());
        let text = format!("id = \"{id}\"\n{lines}[source]\nfile = {file}\n");
        fs::write(self.path().join(format!("config/catalog/{id}.toml")), text)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    fn config(&self) -> PathBuf {
        self.path().join("config/motorpool.toml")
    }

    fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    fn model_file(&self) -> PathBuf {
        self.path().join(format!("models/{SMOKE}.gguf"))
    }

    pub(crate) fn control(&self) -> PathBuf {
        self.state().join("run/control.sock")
    }

    /// Of a llama-server that serves the folder of models as a router.
    pub(crate) fn router_arguments(&self, port: u16) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec!["--models-dir".into(), self.path().join("models").into()];
        let port = port.to_string();
        let rest = ["--host", "127.0.0.1", "--port", &port, "--models-max", "1", "-c", "16384", "-np", "64"];
        words.extend(rest.map(OsString::from));
        words.extend(["-fit", "off", "--no-warmup", "--offline", "--no-ui"].map(OsString::from));
        words
    }
}

/// A pool that listens.
#[derive(Debug)]
pub(crate) struct Pool {
    address: String,
    running: Running,
}

impl Pool {
    /// Starts this program again, to serve `home`.
    pub(crate) async fn start(home: &Home) -> Result<Self, BenchError> {
        let program = std::env::current_exe().map_err(BenchError::Prepare)?;
        let mut words: Vec<OsString> = vec!["--state-dir".into(), home.state().into()];
        words.extend(["--config".into(), home.config().into(), "serve".into()]);
        let mut running = Running::start(&program, &words, home.path())?;
        let address = running.says("listening on http://").await?;
        let address = address.split(['/', ' ']).next().unwrap_or_default().to_owned();
        Ok(Self { address, running })
    }

    /// Asks it to end, and waits until it has: its folder can go then.
    pub(crate) async fn end(self, home: &Home) {
        // One that does not hear is killed when it is dropped.
        let _ = Client::new(&home.control()).post("/api/motorpool/v1/shutdown", &serde_json::json!({})).await;
        self.running.ended().await;
    }

    /// To a model of it.
    pub(crate) fn way(&self, name: &str, model: &str) -> Way {
        Way { name: name.into(), address: Address::Tcp(self.address.clone()), model: model.into() }
    }
}
