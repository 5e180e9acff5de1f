//! `motorpool doctor`: what could go wrong here, each finding with its cure.
//!
//! It looks, and changes nothing. Devices and drivers join when they are read.
use crate::{
    client::{Client, ClientError},
    dirs::Dirs,
    disk,
    engine::{cure_of_absence, discover, install, smoke},
    exit::{Exit, Failure},
    host, listen,
    model::store::{self, Presence, Store},
    out::{self, Out},
    prerequisites,
    settings::{self, Settings, SettingsError},
};
use motorpool_catalog::{Listen, Manifest, ModelSource};
use motorpool_pool::Budget;
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
            let ram = motorpool_devices::observe_ram(Path::new("/")).ok();
            let bound = budget_of(&settings, ram.as_ref().map_or(Bytes::ZERO, motorpool_devices::Ram::usable));
            let bound = bound.map_err(|error| findings.push(Finding::fault("budget", error.into()))).ok();
            let cards = Bytes::sum(settings.config.devices.iter().map(|device| device.total));
            findings.extend(bound.map(|bound| budget(bound, ram.map(|ram| ram.total.saturating_add(cards)))));
            for manifest in settings.catalog.manifests() {
                findings.push(engine(dirs, &settings, manifest).await);
            }
            findings.extend(models(dirs, &settings, bound.and_then(|(bytes, _)| Budget::of(bytes).bound())));
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

/// The bound on what engines take, where it comes from, and what is odd about it.
fn budget((bound, origin): (Bytes, &str), machine: Option<Bytes>) -> Finding {
    let found = format!("{bound} ({origin})");
    match Budget::of(bound).bound() {
        None => {
            Finding::note("budget", format!("{found}: under 1 GiB it is not enforced"), "set capacity.budget higher")
        }
        Some(_) if machine.is_some_and(|total| bound > total) => {
            let cure = "set capacity.budget to what engines may really take";
            Finding::note("budget", format!("{found}: more memory than this machine has"), cure)
        }
        Some(_) => Finding::good("budget", found),
    }
}

/// What the configuration, else the environment, else the machine says of the budget.
fn budget_of(settings: &Settings, usable: Bytes) -> Result<(Bytes, &'static str), SettingsError> {
    let config = &settings.config;
    Ok(match (config.capacity.budget, settings::budget_of_environment()?) {
        (motorpool_catalog::Budget::Bytes(bytes), _) => (bytes, "configured"),
        (motorpool_catalog::Budget::Auto, Some(bytes)) => (bytes, "by MOTORPOOL_CAPACITY_BUDGET_GB"),
        (motorpool_catalog::Budget::Auto, None) => {
            let bounds = host::of(&config.capacity, &config.devices, (usable, None), &[]).bounds();
            (bounds.automatic, "a share of the usable memory")
        }
    })
}

async fn engine(dirs: &Dirs, settings: &Settings, manifest: &Manifest) -> Finding {
    let configured = settings.config.engines.get(&manifest.name).and_then(|engine| engine.program.as_deref());
    if let Some(failure) = configured.and_then(|path| super::engine::no_program(&manifest.name, path)) {
        return Finding::fault("engine", failure);
    }
    let used = settings.catalog.models().any(|model| model.engine == manifest.name);
    match discover::find(dirs, manifest, configured).first() {
        Some(found) => {
            let dir = dirs.data.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
            match smoke::version_by(manifest, &found.program, dir).await {
                Ok(version) => {
                    let version = version.unwrap_or_else(|| "of an unknown version".to_owned());
                    Finding::good("engine", format_args!("{} {version} ({})", manifest.name, found.program.display()))
                }
                Err(error) => Finding::fault("engine", super::engine::not_ours(error.into(), manifest, found)),
            }
        }
        None if used => missing_engine(&manifest.name),
        None => Finding::note("engine", format_args!("{} is not here", manifest.name), "no model uses it"),
    }
}

/// A missing engine, with whatever building one lacks.
fn missing_engine(name: &str) -> Finding {
    let cure = cure_of_absence(name);
    let cure = match prerequisites::missing_for_build().as_slice() {
        missing if !missing.is_empty() && name == install::LLAMA_SERVER => {
            format!("{}, then {cure}", prerequisites::line_for(missing))
        }
        _ => cure,
    };
    Finding::fault("engine", Failure::new(Exit::NotFound, format_args!("{name} is not here"), cure))
}

fn models(dirs: &Dirs, settings: &Settings, budget: Option<Bytes>) -> Vec<Finding> {
    let store = Store::new(dirs);
    let too_large = |path: &Path| Some(store::size_of(path)).filter(|size| budget.is_some_and(|bound| *size > bound));
    let finding = |model: &motorpool_catalog::Model| match store.presence(model) {
        Presence::Ready => match store::header_of(&store.path_of(model)) {
            Ok(_) => match too_large(&store.path_of(model)) {
                Some(size) => Finding::note(
                    "model",
                    format_args!("{}: its file of {size} alone is more than the budget", model.id),
                    "it is never loaded: set capacity.budget higher, or take a smaller model",
                ),
                None => Finding::good("model", &model.id),
            },
            Err(error) => Finding::fault("model", error.into()),
        },
        presence => {
            let cure = match &model.source {
                ModelSource::File(path) if presence == Presence::Absent => {
                    format!("put {} there, or correct `source` in its catalog entry", path.display())
                }
                _ => format!("run `motorpool model pull {}`", model.id),
            };
            Finding::note("model", format_args!("{} is {}", model.id, presence.as_str()), cure)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_told_in_units_with_what_is_odd_about_it() {
        let found = |bound, machine| {
            let finding = budget((bound, "configured"), Some(machine));
            (finding.state, finding.found)
        };
        assert_eq!(found(Bytes::gib(12), Bytes::gib(16)), (State::Good, "12.0 GiB (configured)".into()));
        let (state, text) = found(Bytes::mib(512), Bytes::gib(16));
        assert!(state == State::Note && text.contains("not enforced"), "{text}");
        let (state, text) = found(Bytes::gib(32), Bytes::gib(16));
        assert!(state == State::Note && text.contains("more memory than this machine has"), "{text}");
    }
}
