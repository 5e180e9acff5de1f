//! The graphics devices that engines list (`llama-server --list-devices`), kept for as long as it is the same program
//! on the same devices.
//!
//! `<state>/device-lists.json` is only a memory: without it, or when it cannot be understood, programs are asked again.
use crate::{
    dirs::Dirs,
    disk::{self, Stamp},
    process::Job,
};
use motorpool_catalog::Manifest;
use motorpool_devices::{EngineDevice, parse_device_list};
use serde::{Deserialize, Serialize};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};

/// Starting a driver takes a while where nothing keeps it started; a program that takes longer has no list.
const LISTS_WITHIN: Duration = Duration::from_secs(10);
/// Lists that are kept, the latest last.
const MOST_KEPT: usize = 16;

/// Whether what was asked is written down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keep {
    Yes,
    No,
}

/// What one program printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Printed {
    program: PathBuf,
    stamp: Stamp,
    /// The devices that drivers told of at that time.
    machine: String,
    text: String,
}

/// The list of `program`; `None` when it prints none. `machine` changes with the machine's devices and their drivers.
pub(crate) async fn list_of(
    dirs: &Dirs,
    (manifest, program): (&Manifest, &Path),
    (machine, keep): (&str, Keep),
) -> Option<Vec<EngineDevice>> {
    if manifest.program.devices_args.is_empty() {
        return None;
    }
    let stamp = Stamp::of(program).ok()?;
    let path = dirs.state.join("device-lists.json");
    let mut kept: Vec<Printed> = disk::read_record(&path).unwrap_or_default();
    let is_it = |printed: &&Printed| printed.program == program && printed.stamp == stamp && printed.machine == machine;
    if let Some(printed) = kept.iter().find(is_it) {
        return parse_device_list(&printed.text);
    }
    let text = ask(program, &manifest.program.devices_args).await?;
    let devices = parse_device_list(&text)?;
    if keep == Keep::Yes {
        kept.retain(|printed| printed.program != program);
        kept.push(Printed { program: program.to_owned(), stamp, machine: machine.to_owned(), text });
        let n_over = kept.len().saturating_sub(MOST_KEPT);
        kept.drain(..n_over);
        // The next start asks again.
        let _ = disk::write_record(&path, &kept);
    }
    Some(devices)
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

    fn printed(n: usize) -> Printed {
        let program: PathBuf = format!("/e{n}").into();
        let stamp = Stamp { size: 1, mtime: 2, mtime_nanos: 3 };
        Printed { program, stamp, machine: "m".into(), text: "Available devices:\n  (none)\n".into() }
    }

    #[test]
    fn what_was_printed_is_read_back() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("device-lists.json");
        disk::write_record(&path, &vec![printed(1), printed(2)]).expect("written");
        assert_eq!(disk::read_record::<Vec<Printed>>(&path), Some(vec![printed(1), printed(2)]));
    }

    #[tokio::test]
    async fn a_program_is_not_asked_again_while_it_and_the_devices_are_the_same() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: "/d".into(), state: top.path().into(), run: "/r".into(), config: "/c".into() };
        let program = top.path().join("no-program-at-all");
        std::fs::write(&program, "x").expect("written");
        let (mut manifests, _) = motorpool_catalog::shipped();
        let manifest = manifests.swap_remove(0);
        let kept = Printed {
            program: program.clone(),
            stamp: Stamp::of(&program).expect("there"),
            text: "Available devices:\n  CUDA0: A card (8 MiB, 7 MiB free)\n".into(),
            ..printed(0)
        };
        disk::write_record(&top.path().join("device-lists.json"), &vec![kept]).expect("written");
        let list = list_of(&dirs, (&manifest, &program), ("m", Keep::No)).await;
        assert_eq!(list.map(|devices| devices.len()), Some(1));
        let mut silent = manifest.clone();
        silent.program.devices_args.clear();
        assert_eq!(list_of(&dirs, (&silent, &program), ("m", Keep::No)).await, None, "it cannot be asked");
    }
}
