//! Graphics devices: their nodes, drivers, figures, and whether an engine here can compute on them. Pure judgements over
//! [`Seen`].
use super::{finding::Finding, system::PidSpace};
use crate::exit::{Exit, Failure};
use motorpool_devices::{DeviceKind, DeviceReading, DeviceSource, Driver, NoFigures};
use motorpool_supervisor::Sighted;
use nix::unistd::{AccessFlags, access};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// What was seen of graphics devices.
#[derive(Debug)]
pub(super) struct Seen {
    /// What drivers said; `None`: nobody asked them.
    pub(super) sighted: Option<Sighted>,
    pub(super) nodes: Vec<Node>,
    /// Devices that no engine here can compute on, as people call them.
    pub(super) useless: Vec<String>,
    pub(super) pid_space: PidSpace,
}

/// A device file that engines open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) path: PathBuf,
    pub(super) maker: Maker,
    pub(super) access: Access,
}

/// Whose driver a node belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Nvidia,
    /// `/dev/dri/renderD*` and `/dev/kfd`.
    Kernel,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Granted,
    Refused,
}

/// The nodes of this machine, by path.
pub(super) fn read_nodes() -> Vec<Node> {
    let in_folder = |folder: &str| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let number = |path: &Path, prefix: &str| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.and_then(|name| name.strip_prefix(prefix)).is_some_and(|rest| rest.parse::<u32>().is_ok())
    };
    let nvidia = in_folder("/dev").filter(|path| number(path, "nvidia")).map(|path| (path, Maker::Nvidia));
    let render = in_folder("/dev/dri").filter(|path| number(path, "renderD"));
    let kernel = render.chain(Some(PathBuf::from("/dev/kfd")).filter(|path| path.exists()));
    let of = |(path, maker): (PathBuf, Maker)| {
        let granted = access(&path, AccessFlags::R_OK | AccessFlags::W_OK).is_ok();
        Node { path, maker, access: if granted { Access::Granted } else { Access::Refused } }
    };
    let mut nodes: Vec<_> = nvidia.chain(kernel.map(|path| (path, Maker::Kernel))).map(of).collect();
    nodes.sort_by(|a, b| a.path.cmp(&b.path));
    nodes
}

impl Seen {
    /// Everything about them, in order.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings: Vec<_> = self.nodes.iter().filter_map(refused).collect();
        let Some(sighted) = &self.sighted else {
            let cure = "end some of what runs here: no thread could be started to ask the drivers";
            findings.push(Finding::note("graphics", "drivers could not be asked", cure));
            return findings;
        };
        findings.extend(self.nvidia(sighted));
        if sighted.amd.is_none() {
            findings.push(silent("AMD"));
        }
        let devices = sighted.devices();
        let has_instances = |one: &DeviceReading| one.kind == DeviceKind::Instance && one.memory.is_ok();
        let cut = if devices.iter().any(has_instances) { Cut::Read } else { Cut::Unread };
        findings.extend(devices.iter().map(|one| device(one, cut)));
        findings.extend(devices.iter().filter_map(|device| self.processes(device)));
        let useless = self.useless.iter().map(|name| {
            let cure = "install an engine that is built for it, and name it with `program` in [engine.llama-server]";
            Finding::note("device", format_args!("{name}: no engine here can compute on it"), cure)
        });
        findings.extend(useless);
        if findings.is_empty() {
            findings.push(Finding::good("graphics", "no device: engines compute on the processor"));
        }
        findings
    }

    fn nvidia(&self, sighted: &Sighted) -> Vec<Finding> {
        let Some(reading) = &sighted.nvidia else { return vec![silent("NVIDIA")] };
        let has_node = self.nodes.iter().any(|node| node.maker == Maker::Nvidia);
        match &reading.driver {
            Driver::NoLibrary { why } if has_node => vec![Finding::note(
                "driver",
                format_args!("there is an NVIDIA device and no libnvidia-ml.so.1: {why}"),
                "install the libraries of its driver; in a container, run it with the NVIDIA container toolkit (--gpus all)",
            )],
            Driver::NoLibrary { .. } => vec![],
            Driver::Failed(why) => vec![Finding::note(
                "driver",
                format_args!("NVIDIA's fails: {why}"),
                "restart the machine after an update of the driver; `nvidia-smi` must answer",
            )],
            Driver::Loaded { version } => {
                let version = version.as_deref().unwrap_or("of an unknown version");
                let loaded = Finding::good("driver", format_args!("NVIDIA {version}"));
                [loaded].into_iter().chain(reading.unnamed.iter().map(unnamed)).collect()
            }
        }
    }

    /// What others hold there is known by process only where the driver says so, by ids that are ours.
    fn processes(&self, device: &DeviceReading) -> Option<Finding> {
        device.memory.as_ref().ok()?;
        let called = called(device);
        match (&device.by_process, self.pid_space) {
            (None, _) => Some(Finding::note(
                "device",
                format_args!("{called}: who holds how much is not told; what is not ours is taken for others'"),
                "nothing needs it; a newer driver tells it (amdgpu: Linux 5.14 or later)",
            )),
            (Some(_), PidSpace::Container) => Some(Finding::note(
                "device",
                format_args!("{called}: in a container the driver's process ids may be the machine's, not ours"),
                "nothing needs them; to have them, run the container with --pid=host",
            )),
            (Some(_), PidSpace::Machine | PidSpace::Unknown) => None,
        }
    }
}

fn silent(maker: &str) -> Finding {
    Finding::note(
        "driver",
        format_args!("{maker}'s does not answer: its devices are unknown"),
        "look for errors of the card in `dmesg`, and restart the machine if it stays so",
    )
}

/// One that tells not even its name, at this place in the driver's order.
fn unnamed((index, why): &(u32, NoFigures)) -> Finding {
    if let NoFigures::Lost(why) = why {
        return lost(&format!("device {index}"), why, DeviceSource::Nvml);
    }
    let cure = "look for `Xid` in `dmesg`, and restart the machine";
    Finding::note("device", format_args!("device {index} does not tell its name: {why}"), cure)
}

fn lost(called: &str, why: &str, source: DeviceSource) -> Finding {
    let cure = match source {
        DeviceSource::Nvml => "reset it with `nvidia-smi --gpu-reset` as root, or restart the machine",
        DeviceSource::Amdgpu => "restart the machine",
    };
    Finding::fault("device", Failure::new(Exit::Findings, format_args!("{called} is lost: {why}"), cure))
}

fn called(device: &DeviceReading) -> String {
    if device.name.is_empty() { device.id.to_string() } else { format!("{} ({})", device.name, device.id) }
}

/// What is known of the instances of cards that are cut up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cut {
    Read,
    Unread,
}

fn device(device: &DeviceReading, cut: Cut) -> Finding {
    const WHAT: &str = "device";
    let called = called(device);
    let sized = |found: String| {
        let cure = format!(
            "give its size in [[device]] of motorpool.toml to use it: id = \"{}\", total = \"…GiB\"",
            device.id
        );
        Finding::note(WHAT, found, cure)
    };
    match (&device.memory, device.kind) {
        (Err(NoFigures::Lost(why)), _) => lost(&called, why, device.source),
        (Err(NoFigures::NotPermitted(why)), _) => Finding::note(
            WHAT,
            format_args!("{called} is unknown, as we may not read it: {why}"),
            "let this user read it: the groups `video` and `render`",
        ),
        (Err(NoFigures::Partitioned), _) | (_, DeviceKind::Partitioned) => match cut {
            Cut::Read => Finding::good(WHAT, format_args!("{called} is cut into instances (MIG), which count instead")),
            Cut::Unread => sized(format!("{called} is cut into instances (MIG), whose memory is not read")),
        },
        (Err(NoFigures::SharesRam), _) | (_, DeviceKind::SharesRam) => {
            Finding::good(WHAT, format_args!("{called} shares the system's memory"))
        }
        (Err(why @ NoFigures::Other(_)), _) => sized(format!("{called} does not tell its memory: {why}")),
        (Ok(memory), DeviceKind::Card | DeviceKind::Instance | DeviceKind::Unknown) => {
            Finding::good(WHAT, format_args!("{called}: {} free of {}", memory.free, memory.total))
        }
    }
}

fn refused(node: &Node) -> Option<Finding> {
    if node.access == Access::Granted {
        return None;
    }
    let cure = match node.maker {
        Maker::Nvidia => format!("let this user read and write it: `chmod 666 {}` as root", node.path.display()),
        Maker::Kernel => {
            "put this user into the groups that own it: `usermod -aG render,video $USER` as root, then log in anew"
                .into()
        }
    };
    Some(Finding::note("permissions", format_args!("{} is closed to this user", node.path.display()), cure))
}

#[cfg(test)]
pub(super) mod tests {
    use super::{super::finding::State, *};
    use motorpool_devices::{DeviceMemory, NvidiaReading};
    use motorpool_vocab::{Bytes, DeviceId, Now};
    use std::collections::BTreeMap;

    fn reading(kind: DeviceKind, memory: Result<DeviceMemory, NoFigures>) -> DeviceReading {
        DeviceReading {
            id: DeviceId("GPU-1".into()),
            source: DeviceSource::Nvml,
            kind,
            name: "A card".into(),
            index: Some(0),
            pci: None,
            visible_as: None,
            taken_at: Now::ZERO,
            memory,
            by_process: Some(BTreeMap::new()),
            shared: None,
        }
    }

    fn card() -> DeviceReading {
        let [total, used, free] = [24, 1, 23].map(Bytes::gib);
        reading(DeviceKind::Card, Ok(DeviceMemory { total, used, free }))
    }

    fn loaded() -> Driver {
        Driver::Loaded { version: Some("570.86".into()) }
    }

    fn seen(driver: Driver, devices: Vec<DeviceReading>) -> Seen {
        let nvidia = Some(NvidiaReading { driver, devices, unnamed: vec![] });
        let sighted = Some(Sighted { begun_at: Now::ZERO, nvidia, amd: Some(vec![]) });
        Seen { sighted, nodes: vec![], useless: vec![], pid_space: PidSpace::Machine }
    }

    fn no_library() -> Driver {
        Driver::NoLibrary { why: "not found".into() }
    }

    fn node(maker: Maker, access: Access) -> Node {
        Node { path: "/dev/x0".into(), maker, access }
    }

    /// Every kind of sight there is.
    pub(in super::super) fn all() -> Vec<Seen> {
        let why = || "because".to_owned();
        let none = [
            NoFigures::Lost(why()),
            NoFigures::NotPermitted(why()),
            NoFigures::SharesRam,
            NoFigures::Partitioned,
            NoFigures::Other(why()),
        ];
        let mut all: Vec<_> =
            none.map(|why| seen(loaded(), vec![reading(DeviceKind::Unknown, Err(why))])).into_iter().collect();
        all.push(seen(
            loaded(),
            vec![DeviceReading {
                source: DeviceSource::Amdgpu,
                ..reading(DeviceKind::Card, Err(NoFigures::Lost(why())))
            }],
        ));
        for kind in [DeviceKind::Card, DeviceKind::SharesRam, DeviceKind::Partitioned, DeviceKind::Unknown] {
            all.push(seen(loaded(), vec![DeviceReading { kind, ..card() }]));
        }
        all.push(seen(loaded(), vec![DeviceReading { by_process: None, ..card() }]));
        all.push(Seen { pid_space: PidSpace::Container, ..seen(loaded(), vec![card()]) });
        all.push(seen(no_library(), vec![]));
        all.push(Seen { nodes: vec![node(Maker::Nvidia, Access::Granted)], ..seen(no_library(), vec![]) });
        all.push(seen(Driver::Failed(NoFigures::Other(why())), vec![]));
        all.push(seen(Driver::Loaded { version: None }, vec![]));
        let nodes = [Maker::Nvidia, Maker::Kernel].map(|maker| node(maker, Access::Refused)).to_vec();
        all.push(Seen { nodes, useless: vec!["A card".into()], ..seen(loaded(), vec![card()]) });
        let unnamed = vec![(1, NoFigures::Other(why())), (2, NoFigures::Lost(why()))];
        let nvidia = Some(NvidiaReading { driver: loaded(), devices: vec![], unnamed });
        all.push(Seen {
            sighted: Some(Sighted { begun_at: Now::ZERO, nvidia, amd: Some(vec![]) }),
            ..seen(loaded(), vec![])
        });
        all.push(Seen {
            sighted: Some(Sighted { begun_at: Now::ZERO, nvidia: None, amd: None }),
            ..seen(loaded(), vec![])
        });
        all.push(Seen { sighted: None, ..seen(loaded(), vec![]) });
        all
    }

    fn states(seen: &Seen) -> Vec<(&'static str, State)> {
        seen.findings().iter().map(|finding| (finding.what, finding.state)).collect()
    }

    #[test]
    fn a_card_that_tells_everything_is_well_and_a_machine_without_one_too() {
        assert_eq!(states(&seen(loaded(), vec![card()])), [("driver", State::Good), ("device", State::Good)]);
        assert_eq!(states(&seen(no_library(), vec![])), [("graphics", State::Good)]);
        let text = seen(loaded(), vec![card()]).findings()[1].found.clone();
        assert_eq!(text, "A card (GPU-1): 23.0 GiB free of 24.0 GiB");
    }

    #[test]
    fn only_a_lost_card_is_a_fault_and_what_is_unknown_is_said_with_its_reason() {
        let of = |why: NoFigures| seen(loaded(), vec![reading(DeviceKind::Card, Err(why))]).findings().remove(1);
        assert_eq!(of(NoFigures::Lost("off the bus".into())).state, State::Fault);
        for why in [NoFigures::NotPermitted("root only".into()), NoFigures::Other("no such call".into())] {
            let found = of(why.clone());
            let (NoFigures::NotPermitted(text) | NoFigures::Other(text)) = why else { panic!("one of these") };
            assert!(found.state == State::Note && found.found.ends_with(&text), "{found:?}");
        }
        let sized = of(NoFigures::Partitioned).cure.expect("a note");
        assert!(sized.contains("[[device]]") && sized.contains("GPU-1"), "{sized}");
        assert_eq!(of(NoFigures::SharesRam).state, State::Good);
    }

    #[test]
    fn drivers_that_do_not_answer_and_libraries_that_are_missing_are_told() {
        let silent =
            Seen { sighted: Some(Sighted { begun_at: Now::ZERO, nvidia: None, amd: None }), ..seen(loaded(), vec![]) };
        assert_eq!(states(&silent), [("driver", State::Note), ("driver", State::Note)]);
        let missing = Seen { nodes: vec![node(Maker::Nvidia, Access::Granted)], ..seen(no_library(), vec![]) };
        assert_eq!(states(&missing), [("driver", State::Note)]);
    }

    #[test]
    fn nodes_that_are_closed_come_first_each_with_its_group_or_mode() {
        let nodes = [Maker::Nvidia, Maker::Kernel].map(|maker| node(maker, Access::Refused)).to_vec();
        let findings = Seen { nodes, ..seen(loaded(), vec![card()]) }.findings();
        let cures: Vec<_> = findings.iter().filter_map(|finding| finding.cure.as_deref()).collect();
        assert!(findings[0].what == "permissions" && findings[1].what == "permissions");
        assert!(cures[0].contains("chmod 666 /dev/x0") && cures[1].contains("render"), "{cures:?}");
    }

    #[test]
    fn in_a_container_the_ids_of_processes_are_doubted_only_where_there_are_any() {
        let of = |device| states(&Seen { pid_space: PidSpace::Container, ..seen(loaded(), vec![device]) }).len();
        assert_eq!(of(card()), 3);
        assert_eq!(of(reading(DeviceKind::Card, Err(NoFigures::SharesRam))), 2);
    }
}
