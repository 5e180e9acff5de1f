//! A pool that runs already, measured with one of its models.
use super::{
    Bench, BenchError,
    figures::Watched,
    frames::Run,
    machine::Machine,
    relay::Relay,
    report::Report,
    rounds::Subject,
    way::{Address, Beside, Question, Way},
};
use crate::{client::Client, dirs::Dirs, exit::Failure, settings::Settings};
use motorpool_catalog::{Listen, Manifest, Transport};
use serde_json::{Value, json};
use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::net::UnixStream;

const STATUS: &str = "/api/motorpool/v1/status";

/// Measures it. Nothing of it is changed but that the model is loaded.
pub(super) async fn measure(dirs: &Dirs, (settings, command): (&Settings, &Bench)) -> Result<Report, Failure> {
    let named = command.model.as_deref().or(settings.config.defaults.model.as_deref());
    let named = named.ok_or_else(|| BenchError::Unfit("no model is named, and there is no default one".into()))?;
    let unknown = |error: motorpool_catalog::UnknownModel| BenchError::Unfit(error.to_string());
    let model = settings.catalog.resolve(named).map_err(unknown)?;
    let manifest = settings.catalog.manifest(&model.engine).expect("a catalog holds no model without its engine");
    if manifest.transport != Transport::Unix {
        return Err(BenchError::Unfit(format!("{} serves on a port, which only the pool knows", manifest.name)).into());
    }
    let control = dirs.live_control_socket();
    let client = Client::new(&control);
    client
        .post(&format!("/api/motorpool/v1/models/{}/load", crate::client::escaped(model.id.as_str())), &json!({}))
        .await?;
    let status: Value = client.get(STATUS).await?;
    let daemon = daemon_at(&control).await?;
    let resident_kib = daemon.resident_kib()?;
    let direct = direct_of(&status, (model.id.as_str(), &control))?;
    let relay = Relay::before(&direct)?;
    let ours = Way { name: "motorpool".into(), address: door(dirs, settings, &control)?, model: model.id.to_string() };
    let question = question_for(manifest);
    let ways = (direct, relay, ours, others(&command.beside, model.id.as_str()));
    let subject = Subject::new(manifest.name.clone(), ways, daemon, question);
    let requests = subject.small(command).await?;
    let run = Run { n_streams: 1, n_frames: command.frames, pace: Duration::ZERO };
    let streams = subject.streams_of(command.rounds, &stream_of(command.frames), run).await?;
    Ok(Report {
        version: env!("CARGO_PKG_VERSION"),
        machine: Machine::here(),
        rounds: command.rounds,
        requests,
        streams,
        open_streams: None,
        swap: None,
        resident_kib,
        listening_ms: None,
        limits: Vec::new(),
    }
    .with_limits())
}

/// What an engine answers at once: llama-server counts tokens without its slots.
fn question_for(manifest: &Manifest) -> Question {
    if manifest.allows("POST", "/tokenize") {
        return Question { path: "/tokenize", rest: "\"content\":\"hello\"}".into() };
    }
    Question {
        path: "/v1/chat/completions",
        rest: "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"max_tokens\":1}".into(),
    }
}

fn stream_of(n_tokens: u32) -> Question {
    let rest = format!(
        "\"messages\":[{{\"role\":\"user\",\"content\":\"Count.\"}}],\"stream\":true,\"max_tokens\":{n_tokens},\"ignore_eos\":true}}"
    );
    Question { path: "/v1/chat/completions", rest }
}

/// Where its users ask it; the control socket where that needs a key.
fn door(dirs: &Dirs, settings: &Settings, control: &Path) -> Result<Address, Failure> {
    let tcp = settings.config.server.listen.iter().find_map(|listen| match listen {
        Listen::Tcp(address) if address.port() != 0 => Some(Address::Tcp(address.to_string())),
        _ => None,
    });
    let has_keys = !motorpool_gateway::keys::file::load(&dirs.keys(&settings.config))?.is_empty();
    Ok(tcp.filter(|_| !has_keys).unwrap_or_else(|| Address::Unix(control.to_owned())))
}

/// The servers that somebody named.
pub(super) fn others(beside: &[Beside], model: &str) -> Vec<Way> {
    let way = |one: &Beside| Way {
        name: one.name.clone(),
        address: Address::Tcp(one.address.clone()),
        model: one.model.clone().unwrap_or_else(|| model.to_owned()),
    };
    beside.iter().map(way).collect()
}

/// The process behind a control socket.
pub(super) async fn daemon_at(control: &Path) -> Result<Watched, BenchError> {
    let unreachable = |source| BenchError::Unreachable { way: "motorpool".into(), source };
    let peer = UnixStream::connect(control).await.and_then(|stream| stream.peer_cred()).map_err(unreachable)?;
    peer.pid()
        .and_then(|pid| u32::try_from(pid).ok())
        .map(Watched::new)
        .ok_or_else(|| BenchError::Prepare(io::ErrorKind::Unsupported.into()))
}

/// The way past the pool, to the engine that it has of `model`: engines' folders lie beside the control socket.
pub(super) fn direct_of(status: &Value, (model, control): (&str, &Path)) -> Result<Way, BenchError> {
    let engines = status["engines"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_its = |engine: &&Value| engine["key"].as_str().and_then(|key| key.split(':').nth(1)) == Some(model);
    let spawn = engines.iter().filter(is_its).find_map(|engine| engine["spawn"].as_u64());
    let spawn = spawn.ok_or_else(|| BenchError::Unfit(format!("no engine of `{model}` runs")))?;
    let socket: PathBuf = control.with_file_name(format!("e{spawn}")).join("e.sock");
    Ok(Way { name: "direct".into(), address: Address::Unix(socket), model: model.to_owned() })
}
