//! `motorpool doctor`: what could go wrong here, each finding with its cure.
//!
//! It looks, and changes nothing. Devices and drivers join when they are read.
use crate::{
    client::{Client, ClientError},
    dirs::Dirs,
    disk,
    engine::{discover, smoke},
    exit::{Exit, Failure},
    listen,
    model::store::{self, Presence, Store},
    out::{self, Out},
    prerequisites,
    settings::{self, Settings},
};
use motorpool_catalog::{Listen, Manifest};
use motorpool_vocab::Bytes;
use serde::Serialize;
use serde_json::Value;
use std::{net::TcpListener, path::Path};

/// Below this much free disk neither an engine nor a model fits.
const LITTLE_DISK: Bytes = Bytes::gib(2);
/// Each connection and each engine takes a few descriptors.
const FEW_DESCRIPTORS: u64 = 1024;

/// One thing that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    what: &'static str,
    state: State,
    found: String,
    /// What to do; absent when nothing is.
    cure: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Good,
    /// It works, with less.
    Note,
    /// Something will fail.
    Fault,
}

impl Finding {
    fn good(what: &'static str, found: impl std::fmt::Display) -> Self {
        Self { what, state: State::Good, found: found.to_string(), cure: None }
    }

    fn note(what: &'static str, found: impl std::fmt::Display, cure: impl std::fmt::Display) -> Self {
        Self { what, state: State::Note, found: found.to_string(), cure: Some(cure.to_string()) }
    }

    fn fault(what: &'static str, failure: Failure) -> Self {
        Self { what, state: State::Fault, found: failure.what, cure: Some(failure.cure) }
    }
}

pub(super) async fn perform(dirs: &Dirs, out: Out, config: Option<&Path>) -> Result<(), Failure> {
    let mut findings = places(dirs);
    findings.push(memory());
    findings.push(descriptors());
    let daemon = daemon(dirs).await;
    match Settings::load(dirs, config) {
        Ok(settings) => {
            let file = settings
                .file
                .as_ref()
                .map_or_else(|| "no file: defaults".to_owned(), |path| path.display().to_string());
            findings.push(Finding::good("configuration", file));
            findings.push(budget(&settings));
            for manifest in settings.catalog.manifests() {
                findings.push(engine(dirs, &settings, manifest).await);
            }
            findings.extend(models(dirs, &settings));
            if daemon.is_none() {
                findings.extend(addresses(&settings));
            }
        }
        Err(error) => findings.push(Finding::fault("configuration", error.into())),
    }
    findings.push(daemon.unwrap_or_else(|| Finding::note("daemon", "none is running", "run `motorpool up`")));
    out.data(&findings, || for_people(&findings))?;
    let n_faults = findings.iter().filter(|finding| finding.state == State::Fault).count();
    if n_faults == 0 { Ok(()) } else { Err(Failure::silent(Exit::Findings)) }
}

fn for_people(findings: &[Finding]) -> String {
    let colours = out::colours(&std::io::stdout());
    let line = |Finding { what, state, found, cure }: &Finding| {
        let (mark, colour) = match state {
            State::Good => ("ok   ", "\x1b[32m"),
            State::Note => ("note ", "\x1b[33m"),
            State::Fault => ("FAULT", "\x1b[1;31m"),
        };
        let (colour, plain) = if colours { (colour, "\x1b[0m") } else { ("", "") };
        let cure =
            cure.as_ref().filter(|cure| !cure.is_empty()).map_or_else(String::new, |cure| format!("      {cure}\n"));
        format!("{colour}{mark}{plain} {what}: {found}\n{cure}")
    };
    findings.iter().map(line).collect()
}

/// The directories: whose they are, whether sockets fit, what room there is.
fn places(dirs: &Dirs) -> Vec<Finding> {
    let run = match dirs.check() {
        Ok(()) => Finding::good("directories", format_args!("{}, {}", dirs.data.display(), dirs.state.display())),
        Err(error) => Finding::fault("directories", error.into()),
    };
    let existing = dirs.data.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let disk = match disk::free_at(existing) {
        Ok(free) if free < LITTLE_DISK => {
            Finding::note("disk", format_args!("{free} free"), prerequisites::line_for_room(existing))
        }
        Ok(free) => Finding::good("disk", format_args!("{free} free")),
        Err(error) => Finding::note("disk", error, "check the file system of the data directory"),
    };
    vec![run, disk]
}

fn memory() -> Finding {
    match motorpool_devices::observe_ram(Path::new("/")) {
        Ok(ram) => Finding::good("memory", format_args!("{} usable of {}", ram.usable(), ram.total)),
        Err(error) => Finding::note("memory", error, "set capacity.budget, as it cannot be measured here"),
    }
}

fn descriptors() -> Finding {
    use nix::sys::resource::{Resource, getrlimit};
    match getrlimit(Resource::RLIMIT_NOFILE) {
        Ok((_, hard)) if hard < FEW_DESCRIPTORS => {
            Finding::note("descriptors", format_args!("at most {hard}"), "raise it with `ulimit -Hn 65536` as root")
        }
        Ok((_, hard)) => Finding::good("descriptors", format_args!("at most {hard}")),
        Err(error) => Finding::note("descriptors", error, "check `ulimit -Hn`"),
    }
}

fn budget(settings: &Settings) -> Finding {
    match settings::budget_of_environment() {
        Ok(_) => Finding::good("budget", format_args!("{:?}", settings.config.capacity.budget)),
        Err(error) => Finding::fault("budget", error.into()),
    }
}

async fn engine(dirs: &Dirs, settings: &Settings, manifest: &Manifest) -> Finding {
    let configured = settings.config.engines.get(&manifest.name).and_then(|engine| engine.program.as_deref());
    if let Some(path) = configured.filter(|path| !disk::is_executable(path)) {
        let what = format!("{}: {} is no program", manifest.name, path.display());
        let cure = format!("correct `program` in [engine.{}]", manifest.name);
        return Finding::fault("engine", Failure::new(Exit::Config, what, cure));
    }
    let used = settings.catalog.models().any(|model| model.engine == manifest.name);
    match discover::find(dirs, manifest, configured).first() {
        Some(found) => match smoke::version(&found.program, dirs.data.parent().unwrap_or(Path::new("/"))).await {
            Ok(version) => {
                Finding::good("engine", format_args!("{} {version} ({})", manifest.name, found.program.display()))
            }
            Err(error) => Finding::fault("engine", error.into()),
        },
        None if used => missing_engine(&manifest.name),
        None => Finding::note("engine", format_args!("{} is not here", manifest.name), "no model uses it"),
    }
}

/// A missing engine, with whatever building one lacks.
fn missing_engine(name: &str) -> Finding {
    let missing = prerequisites::missing_for_build();
    let cure = match missing.as_slice() {
        [] => format!("run `motorpool engine install {name}`"),
        missing => format!("{}, then `motorpool engine install {name}`", prerequisites::line_for(missing)),
    };
    Finding::fault("engine", Failure::new(Exit::NotFound, format_args!("{name} is not here"), cure))
}

fn models(dirs: &Dirs, settings: &Settings) -> Vec<Finding> {
    let store = Store::new(dirs);
    let finding = |model: &motorpool_catalog::Model| match store.presence(model) {
        Presence::Ready => match store::header_of(&store.path_of(model)) {
            Ok(_) => Finding::good("model", &model.id),
            Err(error) => Finding::fault("model", error.into()),
        },
        presence => Finding::note(
            "model",
            format_args!("{} is {}", model.id, presence.as_str()),
            format_args!("run `motorpool model pull {}`", model.id),
        ),
    };
    settings.catalog.models().map(|model| finding(model)).collect()
}

/// Whether the addresses to serve on are free. Only asked when no daemon of ours may have them.
fn addresses(settings: &Settings) -> Vec<Finding> {
    let finding = |address: &Listen| match address {
        Listen::Tcp(socket) => match TcpListener::bind(socket) {
            Ok(_) => Finding::good("address", address),
            Err(error) => Finding::fault("address", listen::cannot(address, &error)),
        },
        Listen::Unix(_) => Finding::good("address", address),
    };
    settings.config.server.listen.iter().map(finding).collect()
}

async fn daemon(dirs: &Dirs) -> Option<Finding> {
    match Client::new(&dirs.live_control_socket()).get::<Value>("/health").await {
        Ok(_) => Some(Finding::good("daemon", "running")),
        Err(ClientError::NoDaemon { .. }) => None,
        Err(error) => Some(Finding::fault("daemon", error.into())),
    }
}
