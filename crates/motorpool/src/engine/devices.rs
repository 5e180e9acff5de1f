//! The graphics devices that engines list (`llama-server --list-devices`), kept for as long as it is the same build on
//! the same devices.
//!
//! `<state>/device-lists.json` is only a memory: without it, or when it cannot be understood, programs are asked again.
//! A list that lacks a device of which a driver tells is never kept: what is in the way (a group, a library, a setting of
//! the driver) goes without a trace in anything that we could compare.
use crate::{dirs::Dirs, disk, machine::is_of_use, process::Job};
use motorpool_catalog::Manifest;
use motorpool_devices::{DeviceReading, EngineDevice, Graphics, parse_device_list};
use motorpool_supervisor::build_of;
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Starting a driver takes a while where nothing keeps it started; a program that takes longer has no list.
const LISTS_WITHIN: Duration = Duration::from_secs(10);
/// Lists that are kept, the latest last.
const MOST_KEPT: usize = 16;

/// What is done with lists of earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    /// They are used, and what is asked is kept.
    Yes,
    /// They are used, and nothing is written.
    No,
    /// Every program is asked, and nothing is written.
    AskAnew,
}

/// What is known of the machine when programs are asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told<'a> {
    /// Changes with the machine's devices and their drivers.
    pub(crate) machine: &'a str,
    /// The devices of which drivers tell.
    pub(crate) devices: &'a [DeviceReading],
    pub(crate) keep: Keep,
}

/// What one program printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Printed {
    program: PathBuf,
    /// With the libraries beside it.
    build: String,
    /// The devices that drivers told of at that time.
    machine: String,
    text: String,
}

/// The list of `program`; `None` when it prints none.
pub(crate) async fn list_of(
    dirs: &Dirs,
    (manifest, program): (&Manifest, &Path),
    told: Told<'_>,
) -> Option<Vec<EngineDevice>> {
    if manifest.program.devices_args.is_empty() {
        return None;
    }
    let (build, machine) = (build_of(program), told.machine);
    let path = dirs.state.join("device-lists.json");
    let mut kept: Vec<Printed> = disk::read_record(&path).unwrap_or_default();
    let is_it = |printed: &&Printed| printed.program == program && printed.build == build && printed.machine == machine;
    if let Some(printed) = kept.iter().find(is_it).filter(|_| told.keep != Keep::AskAnew) {
        return parse_device_list(&printed.text);
    }
    let text = ask(program, &manifest.program.devices_args).await?;
    let devices = parse_device_list(&text)?;
    if told.keep == Keep::Yes {
        kept.retain(|printed| printed.program != program);
        if is_whole(&devices, told.devices) {
            kept.push(Printed { program: program.to_owned(), build, machine: machine.to_owned(), text });
        }
        let n_over = kept.len().saturating_sub(MOST_KEPT);
        kept.drain(..n_over);
        // The next start asks again.
        let _ = disk::write_record(&path, &kept);
    }
    Some(devices)
}

/// Whether it lists every device of which drivers tell, and any at all: who is asked has signs of some.
fn is_whole(list: &[EngineDevice], told: &[DeviceReading]) -> bool {
    let graphics = Graphics::new(told.to_vec(), [(PathBuf::new(), list.to_vec())].into());
    let gpus = graphics.gpus(None);
    !list.is_empty() && gpus.iter().all(|gpu| is_of_use(gpu, &gpus))
}

/// What `program` prints of all devices, in the order of their addresses.
async fn ask(program: &Path, args: &[String]) -> Option<String> {
    let mut text = String::new();
    let mut hear = |line: &str| {
        text.push_str(line);
        text.push('\n');
    };
    let job = Job::new(program, args, Path::new("/")).within(LISTS_WITHIN);
    let job = job.with_env("CUDA_DEVICE_ORDER", "PCI_BUS_ID").without_env("CUDA_VISIBLE_DEVICES");
    match job.run(&mut hear).await {
        Ok(()) => Some(text),
        Err(error) => {
            tracing::warn!("{} does not list its graphics devices: {error}", program.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::{DeviceKind, DeviceSource, NoFigures};
    use motorpool_vocab::{DeviceId, Now};

    fn printed(n: usize) -> Printed {
        let program: PathBuf = format!("/e{n}").into();
        Printed { program, build: "b".into(), machine: "m".into(), text: "Available devices:\n  (none)\n".into() }
    }

    fn told(keep: Keep) -> Told<'static> {
        Told { machine: "m", devices: &[], keep }
    }

    fn reading(id: &str, kind: DeviceKind) -> DeviceReading {
        DeviceReading {
            id: DeviceId(id.into()),
            source: DeviceSource::Nvml,
            kind,
            name: format!("Card {id}"),
            index: None,
            pci: None,
            visible_as: Some(id.into()),
            taken_at: Now::ZERO,
            memory: Err(NoFigures::Other("not asked".into())),
            by_process: None,
            shared: None,
        }
    }

    #[test]
    fn a_list_that_lacks_a_device_of_which_a_driver_tells_is_not_whole() {
        let list = |names: &[&str]| {
            let lines = (0..).zip(names).map(|(n, name): (u32, _)| format!("  CUDA{n}: {name} (8 MiB, 7 MiB free)\n"));
            parse_device_list(&format!("Available devices:\n{}", lines.collect::<String>())).expect("a list")
        };
        let both = [reading("GPU-a", DeviceKind::Card), reading("GPU-b", DeviceKind::Card)];
        assert!(is_whole(&list(&["Card GPU-a", "Card GPU-b"]), &both));
        assert!(!is_whole(&list(&["Card GPU-b"]), &both));
        assert!(!is_whole(&list(&[]), &both));
        assert!(!is_whole(&list(&[]), &[]), "there are signs of a device of which no driver tells");
        let cut = [reading("GPU-a", DeviceKind::Partitioned), reading("GPU-b", DeviceKind::Card)];
        assert!(is_whole(&list(&["Card GPU-b"]), &cut));
        let instances =
            [cut.to_vec(), ["MIG-1", "MIG-2"].map(|id| reading(id, DeviceKind::Instance)).to_vec()].concat();
        assert!(is_whole(&list(&["Card MIG-1"]), &instances), "CUDA shows one instance, and nothing beside it");
        assert!(!is_whole(&list(&[]), &instances));
    }

    #[test]
    fn what_was_printed_is_read_back() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("device-lists.json");
        disk::write_record(&path, &vec![printed(1), printed(2)]).expect("written");
        assert_eq!(disk::read_record::<Vec<Printed>>(&path), Some(vec![printed(1), printed(2)]));
    }

    /// No program can be asked here: what is told was kept.
    #[tokio::test]
    async fn a_program_is_not_asked_again_while_it_its_libraries_and_the_devices_are_the_same_but_by_who_wants_to_know()
    {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: "/d".into(), state: top.path().into(), run: "/r".into(), config: "/c".into() };
        let program = top.path().join("no-program-at-all");
        std::fs::write(&program, "x").expect("written");
        let (mut manifests, _) = motorpool_catalog::shipped();
        let manifest = manifests.swap_remove(0);
        let kept = Printed {
            program: program.clone(),
            build: build_of(&program),
            text: "Available devices:\n  CUDA0: A card (8 MiB, 7 MiB free)\n".into(),
            ..printed(0)
        };
        disk::write_record(&top.path().join("device-lists.json"), &vec![kept]).expect("written");
        let n_listed = async |manifest: &Manifest, told| {
            let list = list_of(&dirs, (manifest, &program), told).await;
            list.map(|devices| devices.len())
        };
        assert_eq!(n_listed(&manifest, told(Keep::No)).await, Some(1));
        assert_eq!(n_listed(&manifest, told(Keep::AskAnew)).await, None);
        assert_eq!(n_listed(&manifest, Told { machine: "n", ..told(Keep::No) }).await, None);
        let mut silent = manifest.clone();
        silent.program.devices_args.clear();
        assert_eq!(n_listed(&silent, told(Keep::No)).await, None, "it cannot be asked");
        std::fs::write(top.path().join("libggml-cuda.so"), "x").expect("written");
        assert_eq!(n_listed(&manifest, told(Keep::No)).await, None, "it may see more by a library");
    }
}
