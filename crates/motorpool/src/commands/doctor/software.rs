//! What of ours is here: directories, budget, engines, models, addresses, the daemon.
use super::{ANSWERS_WITHIN, finding::Finding};
use crate::{
    client::{Client, ClientError},
    dirs::Dirs,
    disk,
    engine::{self, cure_of_absence, discover, install, record::installed, smoke},
    exit::{Exit, Failure},
    listen,
    model::store::{self, Presence, Store},
    prerequisites,
    settings::{self, Settings, SettingsError},
};
use motorpool_catalog::{Listen, Manifest, ModelSource};
use motorpool_devices::Graphics;
use motorpool_pool::{Budget, Host};
use motorpool_vocab::Bytes;
use serde_json::Value;
use std::{fs, io, net::TcpListener, path::Path};
use tokio::time::timeout;

/// Below this much free disk neither an engine nor a model fits.
const LITTLE_DISK: Bytes = Bytes::gib(2);

/// The directories: whose they are, whether sockets fit, what room there is.
pub(super) fn places(dirs: &Dirs) -> Vec<Finding> {
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

/// The bound on what engines take, where it comes from, and what is odd about it.
pub(super) fn budget((bound, origin): (Bytes, &str), machine: Option<Bytes>) -> Finding {
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
pub(super) fn budget_of(settings: &Settings, host: &Host) -> Result<(Bytes, &'static str), SettingsError> {
    Ok(match (settings.config.capacity.budget, settings::budget_of_environment()?) {
        (motorpool_catalog::Budget::Bytes(bytes), _) => (bytes, "configured"),
        (motorpool_catalog::Budget::Auto, Some(bytes)) => (bytes, "by MOTORPOOL_CAPACITY_BUDGET_GB"),
        (motorpool_catalog::Budget::Auto, None) => (host.bounds().automatic, "a share of the usable memory"),
    })
}

/// Each engine that is here: its version, its program, what devices it sees, whether it was measured.
pub(super) async fn engine(
    (dirs, settings): (&Dirs, &Settings),
    manifest: &Manifest,
    graphics: Option<&Graphics>,
) -> Option<Finding> {
    let configured = settings.config.engines.get(&manifest.name).and_then(|engine| engine.program.as_deref());
    if let Some(failure) = configured.and_then(|path| super::super::engine::no_program(&manifest.name, path)) {
        return Some(Finding::fault("engine", failure));
    }
    let used = settings.catalog.models().any(|model| model.engine == manifest.name);
    Some(match discover::find(dirs, manifest, configured).first() {
        Some(found) => {
            let dir = dirs.data.ancestors().find(|dir| dir.is_dir()).unwrap_or(Path::new("/"));
            match smoke::version_by(manifest, &found.program, dir).await {
                Ok(version) => {
                    let build = build_of(dirs, &found.program, graphics);
                    let version = version.unwrap_or_else(|| "of an unknown version".to_owned());
                    let name = &manifest.name;
                    Finding::good("engine", format_args!("{name} {version} ({}), {build}", found.program.display()))
                }
                Err(error) => Finding::fault("engine", super::super::engine::not_ours(error.into(), manifest, found)),
            }
        }
        None if used => missing_engine(&manifest.name),
        // What nobody uses may be absent.
        None => return None,
    })
}

/// The devices that it lists, and whether its memory was measured when it was installed.
fn build_of(dirs: &Dirs, program: &Path, graphics: Option<&Graphics>) -> String {
    let gpus: Vec<_> = graphics.into_iter().flat_map(|graphics| graphics.gpus_for(program)).collect();
    let listed: Vec<_> = gpus.iter().flat_map(|gpu| gpu.listed_as.iter().map(String::as_str)).collect();
    let sees = match (listed.as_slice(), gpus.is_empty()) {
        ([], true) => "processor only".to_owned(),
        ([], false) => engine::CPU_ONLY.to_owned(),
        (listed, _) => listed.join(", "),
    };
    let install = installed(dirs).into_iter().find(|install| install.program == program && install.is_unchanged());
    let measured = match install.map(|install| install.calibration.is_some()) {
        Some(true) => "measured",
        Some(false) => "not measured: it reports no buffers",
        None => "not measured: not installed by us",
    };
    format!("{sees}, {measured}")
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

pub(super) fn models(dirs: &Dirs, settings: &Settings, budget: Option<Bytes>) -> Vec<Finding> {
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

/// An address to serve on, and what came of trying it.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) listen: Listen,
    pub(super) bound: io::Result<()>,
    /// Who has it, when it is taken and that can be seen.
    pub(super) holder: Option<(u32, String)>,
}

/// Tries each address. Only done when no daemon of ours may have them.
pub(super) fn read_addresses(settings: &Settings) -> Vec<Address> {
    let of = |listen: &Listen| {
        let (Listen::Tcp(socket) | Listen::Tls(socket)) = listen else {
            return Address { listen: listen.clone(), bound: Ok(()), holder: None };
        };
        let bound = TcpListener::bind(socket).map(drop);
        let is_taken = matches!(&bound, Err(error) if error.kind() == io::ErrorKind::AddrInUse);
        let holder = if is_taken { holder_of(socket.port()) } else { None };
        Address { listen: listen.clone(), bound, holder }
    };
    settings.config.server.listen.iter().map(of).collect()
}

/// Processes of other users are not seen.
fn holder_of(port: u16) -> Option<(u32, String)> {
    let pid = motorpool_devices::pids().ok()?.into_iter().find(|pid| motorpool_devices::listens(port, &[*pid]))?;
    let program = motorpool_devices::executable(pid);
    let name = program.as_deref().and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    Some((pid, name.unwrap_or_else(|| "a program".to_owned())))
}

pub(super) fn address(address: &Address) -> Finding {
    match (&address.bound, &address.holder) {
        (Ok(()), _) => Finding::good("address", &address.listen),
        (Err(error), holder) => {
            let failure = listen::cannot(&address.listen, error);
            let what = match holder {
                Some((pid, name)) => format!("{}: {name} (process {pid})", failure.what),
                None => failure.what,
            };
            Finding::fault("address", Failure { what, ..failure })
        }
    }
}

pub(super) async fn daemon(dirs: &Dirs) -> Option<Finding> {
    let client = Client::new(&dirs.live_control_socket());
    match timeout(ANSWERS_WITHIN, client.get::<Value>("/health")).await {
        Ok(Ok(_)) => Some(Finding::good("daemon", "running")),
        Ok(Err(ClientError::NoDaemon { .. })) => None,
        Ok(Err(error)) => Some(Finding::fault("daemon", error.into())),
        Err(_) => Some(Finding::fault("daemon", hangs(dirs))),
    }
}

/// It holds its socket and says nothing: it is stopped, or hangs.
fn hangs(dirs: &Dirs) -> Failure {
    let what = format!("it is there, and does not answer within {} s", ANSWERS_WITHIN.as_secs());
    let pid = fs::read_to_string(dirs.state.join("lock")).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let pid = pid.map_or_else(|| "its process id".to_owned(), |pid| pid.to_string());
    let cure = format!(
        "run `kill -CONT {pid}` if it was stopped; else `kill -ABRT {pid}`, which ends its engines too, and start it again"
    );
    Failure::new(Exit::Findings, what, cure)
}

#[cfg(test)]
mod tests {
    use super::{super::finding::State, *};

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
