//! [`survey`]: what this machine is, from its drivers, its engines and its operator.
//!
//! ```text
//! drivers ──────────────────────► devices ─┐
//!   │ any device, or a node of one         ├─► each once ─► those an engine can use ─► host
//!   └─► engines' own lists (kept) ─────────┘
//! ```
//!
//! A machine without any driver is asked nothing more: its start takes no longer. A driver that does not answer in time
//! is said, and taken up when it does.
use crate::{
    daemon::{is_used, locate_program},
    dirs::Dirs,
    engine::devices::{Keep, Told, list_of},
    exit::{Exit, Failure, chain},
    host,
    settings::{self, Settings},
};
use motorpool_devices::{DeviceKind, DeviceSource, Driver, EngineDevice, Gpu, Graphics, NoFigures, ToldBy};
use motorpool_pool::Host;
use motorpool_supervisor::{Drivers, Found, Sighted};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

/// What a survey found.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) host: Host,
    pub(crate) graphics: Graphics,
    /// Devices that no engine here can compute on.
    pub(crate) useless: Vec<Gpu>,
    /// What its operator should know of it.
    pub(crate) notes: Vec<Note>,
}

/// One thing to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Note {
    Found(String),
    /// Something is not used, or not as it could be.
    Amiss(String),
}

impl Machine {
    /// For the log.
    pub(crate) fn say(&self) {
        for note in &self.notes {
            match note {
                Note::Found(text) => tracing::info!("{text}"),
                Note::Amiss(text) => tracing::warn!("{text}"),
            }
        }
    }

    /// For whoever looks at the devices from now on.
    pub(crate) fn found(self) -> Found {
        Found { host: self.host, graphics: self.graphics }
    }
}

/// Asks the drivers, and then whatever else there is. Takes some seconds where one of them hangs.
pub(crate) async fn look(dirs: &Dirs, settings: &Settings, keep: Keep) -> Result<(Option<Drivers>, Machine), Failure> {
    let drivers = match Drivers::new() {
        Ok(drivers) => Some(drivers),
        Err(error) => {
            tracing::warn!(%error, "graphics drivers are not asked: there is no thread to do it");
            None
        }
    };
    let sighted = match &drivers {
        Some(drivers) => drivers.look().await,
        None => Sighted { begun_at: motorpool_devices::now(), nvidia: None, amd: None },
    };
    let machine = survey((dirs, settings), sighted, keep).await?;
    Ok((drivers, machine))
}

/// This machine, as its drivers just told and as it is configured.
pub(crate) async fn survey(
    (dirs, settings): (&Dirs, &Settings),
    sighted: Sighted,
    keep: Keep,
) -> Result<Machine, Failure> {
    let config = &settings.config;
    let ram = motorpool_devices::observe_ram(Path::new("/"))
        .map_err(|error| Failure::new(Exit::Failed, chain(&error), "check that /proc is mounted"))?
        .usable();
    let devices = sighted.devices();
    let lists = match fingerprint(&sighted) {
        Some(machine) => lists(dirs, settings, Told { machine: &machine, devices: &devices, keep }).await,
        None => BTreeMap::new(),
    };
    // Whoever was not asked may see them all.
    let all_told = !lists.is_empty() && lists.values().all(Option::is_some);
    let lists = lists.into_iter().filter_map(|(program, list)| Some((program, list?))).collect();
    let mut notes = notes_of(&sighted);
    let graphics = Graphics::new(devices, lists);
    let gpus = graphics.gpus(std::env::var("CUDA_VISIBLE_DEVICES").ok().as_deref());
    let (usable, useless): (Vec<Gpu>, Vec<Gpu>) =
        gpus.iter().cloned().partition(|gpu| !all_told || is_of_use(gpu, &gpus));
    let memory = host::Memory {
        ram,
        automatic: settings::budget_of_environment()?,
        platform: host::PLATFORM,
        working_set: motorpool_devices::observe_working_set(),
    };
    let host = host::of(&config.capacity, &config.devices, memory, &usable);
    notes.extend(usable.iter().map(|gpu| note_of(gpu, &host)));
    notes.extend(host::named_twice(&config.devices, &usable).into_iter().map(|(again, first)| {
        Note::Amiss(format!("`{again}` in [[device]] is the card `{first}` once more: what is said of it first counts"))
    }));
    notes.extend(useless.iter().map(|gpu| {
        Note::Amiss(format!(
            "{} is not used: no engine here can compute on it; install one that is built for it",
            called(gpu)
        ))
    }));
    Ok(Machine { host, graphics, useless, notes })
}

/// Whether an engine can compute on it: one lists it, or would. Where a card is cut up, CUDA lists one instance and no
/// whole card beside it, and never the card that is cut.
pub(crate) fn is_of_use(gpu: &Gpu, all: &[Gpu]) -> bool {
    let is_cut = |gpu: &Gpu| matches!(gpu.told_by, ToldBy::Driver(_, DeviceKind::Partitioned | DeviceKind::Instance));
    let is_cuda = |gpu: &Gpu| gpu.listed_as.iter().any(|name| name.starts_with("CUDA"));
    let hides = matches!(gpu.told_by, ToldBy::Driver(DeviceSource::Nvml, _)) && all.iter().any(is_cut);
    !gpu.listed_as.is_empty() || (hides && all.iter().any(is_cuda))
}

/// The list of each program that is used, `None` where it has none.
async fn lists(dirs: &Dirs, settings: &Settings, told: Told<'_>) -> BTreeMap<PathBuf, Option<Vec<EngineDevice>>> {
    let mut lists = BTreeMap::new();
    for manifest in settings.catalog.manifests().filter(|manifest| is_used(settings, manifest)) {
        if let Ok(program) = locate_program(dirs, manifest) {
            let list = list_of(dirs, (manifest, &program), told).await;
            lists.insert(program, list);
        }
    }
    lists
}

/// What changes when devices or drivers do; `None` where no engine is to be asked: there is no sign of any device, or a
/// driver hangs, beside which an engine would hang too.
fn fingerprint(sighted: &Sighted) -> Option<String> {
    if sighted.nvidia.is_none() || sighted.amd.is_none() {
        return None;
    }
    let mut text = String::new();
    if let Some(Driver::Loaded { version }) = sighted.nvidia.as_ref().map(|reading| &reading.driver) {
        let _ = write!(text, "{} ", version.as_deref().unwrap_or("nvidia"));
    }
    let mut devices: Vec<_> = sighted.devices().into_iter().map(|device| device.id.to_string()).collect();
    devices.sort();
    let nodes = nodes(Path::new("/"));
    (!devices.is_empty() || !nodes.is_empty()).then(|| text + &[devices, nodes].concat().join(" "))
}

/// What the kernel calls graphics devices, whoever made them; `dxg` is Windows' below its subsystem for Linux.
fn nodes(root: &Path) -> Vec<String> {
    let names = |folder: &str| fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    let names = names("sys/class/drm").chain(names("dev")).filter_map(|entry| entry.file_name().into_string().ok());
    let is_node = |name: &String| {
        let number = name.strip_prefix("card").or_else(|| name.strip_prefix("nvidia"));
        name == "dxg" || number.is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let mut found: Vec<_> = names.filter(is_node).collect();
    found.sort();
    found
}

/// What of the drivers themselves is amiss.
fn notes_of(sighted: &Sighted) -> Vec<Note> {
    let silent = |name: &str| {
        let text =
            format!("{name} graphics driver does not answer: we go on without it, and take up what it tells later");
        Note::Amiss(text)
    };
    let mut notes = vec![];
    match &sighted.nvidia {
        None => notes.push(silent("NVIDIA's")),
        Some(reading) => {
            if let Driver::Failed(why) = &reading.driver {
                notes.push(Note::Amiss(format!("NVIDIA's graphics driver fails: {why}")));
            }
            let unnamed = reading.unnamed.iter();
            notes.extend(
                unnamed.map(|(index, why)| Note::Amiss(format!("graphics device {index} cannot be used: {why}"))),
            );
        }
    }
    if sighted.amd.is_none() {
        notes.push(silent("AMD's"));
    }
    let why = sighted.devices().into_iter().filter_map(|device| {
        let why = device.memory.err()?;
        let is_news = !matches!(why, NoFigures::SharesRam | NoFigures::Partitioned);
        is_news.then(|| Note::Amiss(format!("{} ({}) cannot be read: {why}", device.name, device.id)))
    });
    notes.extend(why);
    notes
}

/// What became of a device.
fn note_of(gpu: &Gpu, host: &Host) -> Note {
    let card = host.cards.iter().find(|card| gpu.is_called(&card.id));
    match (card, gpu.told_by) {
        (Some(card), _) => Note::Found(format!("graphics card {} with {}", called(gpu), card.total)),
        (None, ToldBy::Driver(_, DeviceKind::Partitioned)) if host.cards.iter().any(|card| card.id.is_instance()) => {
            Note::Found(format!("{} is cut into instances (MIG), which count instead of it", called(gpu)))
        }
        (None, ToldBy::Driver(_, DeviceKind::Partitioned)) => Note::Amiss(format!(
            "{} is cut into instances (MIG) and none could be read: name one in [[device]] with its size to use it",
            called(gpu)
        )),
        (None, _)
            if gpu.total.is_none() && gpu.told_by != ToldBy::Driver(DeviceSource::Nvml, DeviceKind::SharesRam) =>
        {
            Note::Amiss(format!("{} does not tell its memory: give its size in [[device]] to use it", called(gpu)))
        }
        (None, _) => Note::Found(format!("{} shares the system's memory", called(gpu))),
    }
}

fn called(gpu: &Gpu) -> String {
    if gpu.name.is_empty() { gpu.id.to_string() } else { format!("{} ({})", gpu.name, gpu.id) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::{DeviceReading, NvidiaReading};
    use motorpool_vocab::{DeviceId, Now};

    #[test]
    fn only_numbered_nodes_of_devices_are_signs_of_one() {
        let root = tempfile::tempdir().expect("a temporary directory");
        for name in ["sys/class/drm/card0", "sys/class/drm/card0-DP-1", "sys/class/drm/version", "dev/nvidiactl"] {
            fs::create_dir_all(root.path().join(name)).expect("made");
        }
        assert_eq!(nodes(root.path()), ["card0"]);
        fs::create_dir_all(root.path().join("dev/nvidia1")).expect("made");
        assert_eq!(nodes(root.path()), ["card0", "nvidia1"]);
        assert!(nodes(&root.path().join("nowhere")).is_empty());
    }

    #[test]
    fn no_engine_is_asked_beside_a_driver_that_hangs() {
        let device = DeviceReading {
            id: DeviceId("0000:03:00.0".into()),
            source: DeviceSource::Amdgpu,
            kind: DeviceKind::Card,
            name: String::new(),
            index: None,
            pci: None,
            visible_as: None,
            taken_at: Now::ZERO,
            memory: Err(NoFigures::Other("not asked".into())),
            by_process: None,
            shared: None,
        };
        let driver = Driver::NoLibrary { why: "none".into() };
        let nvidia = NvidiaReading { driver, devices: vec![], unnamed: vec![] };
        let well = Sighted { begun_at: Now::ZERO, nvidia: Some(nvidia), amd: Some(vec![device]) };
        assert!(fingerprint(&well).is_some_and(|machine| machine.contains("0000:03:00.0")));
        assert_eq!(fingerprint(&Sighted { nvidia: None, ..well.clone() }), None);
        assert_eq!(fingerprint(&Sighted { amd: None, ..well }), None);
    }

    #[test]
    fn a_driver_that_does_not_answer_is_told() {
        let sighted = Sighted { begun_at: Now::ZERO, nvidia: None, amd: Some(vec![]) };
        let notes = notes_of(&sighted);
        assert!(matches!(&notes[..], [Note::Amiss(text)] if text.contains("NVIDIA's graphics driver does not answer")));
    }
}
