//! What a build of llama-server takes where the law of `motorpool-gguf` has constants: measured once, after its smoke
//! test, from what it reports about generated models.
//!
//! ```text
//! for each type of weights that some build repacks: start with a probe of that type, read its buffers, stop
//!   activations = reported compute buffer : law       from the first probe
//!   repacked    = types with a second copy
//! ```
//!
//! A build whose log says nothing of buffers is not measured and is estimated with the cautious defaults.
use super::record::{Install, installed};
use crate::{dirs::Dirs, process::Job};
use motorpool_gguf::{
    Calibration, LaunchSettings, ModelShape, Part, Reported, TensorType, measured_activations, read_header,
    write::{PROBED_TYPES, probe_model},
};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeSet, ffi::OsStr, fs, io::Cursor, path::Path, time::Duration};
use tokio::sync::Notify;

/// For one probe of a few hundred KB. A build that takes longer is not measured.
const REPORTS_WITHIN: Duration = Duration::from_secs(30);

/// What was measured of one build, as its record keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// Activations in thousandths of the law.
    pub(crate) activations_per_mille: u64,
    /// ggml's names of the types that are repacked.
    pub(crate) repacked: BTreeSet<String>,
}

impl Measured {
    /// As estimates take it.
    pub(crate) fn calibration(&self) -> Calibration {
        let is_repacked = |kind: &&TensorType| kind.name().is_some_and(|name| self.repacked.contains(name));
        let repacked = TensorType::ALL.iter().filter(is_repacked).copied().collect();
        Calibration { activations_per_mille: self.activations_per_mille, repacked, ..Calibration::default() }
    }
}

/// What was measured of `program` when we installed it; the cautious defaults for any other program.
pub(crate) fn calibration_of(dirs: &Dirs, program: &Path) -> Calibration {
    let ours = installed(dirs).into_iter().find(|install| install.program == program && install.is_unchanged());
    ours.and_then(|Install { calibration, .. }| calibration).map_or_else(Calibration::default, |m| m.calibration())
}

/// Measures `program`; `None` when it does not report, or nothing like the law.
pub(crate) async fn measure(program: &Path, dir: &Path) -> Option<Measured> {
    let mut measured = Measured { activations_per_mille: 0, repacked: BTreeSet::new() };
    for kind in PROBED_TYPES {
        let file = probe_model(*kind).finish();
        let reported = tokio::time::timeout(REPORTS_WITHIN, probe(program, dir, &file)).await.ok()??;
        if !reported.part(Part::Repacked).is_zero() {
            measured.repacked.extend(kind.name().map(str::to_owned));
        }
        if measured.activations_per_mille == 0 {
            measured.activations_per_mille = activations(&file, &reported)?;
        }
    }
    Some(measured)
}

/// How a probe is started; the arguments below say the same.
fn settings() -> LaunchSettings {
    LaunchSettings { context_per_slot: 512, batch: 512, ..LaunchSettings::default() }
}

const ARGS: &[&str] = &[
    "-c",
    "512",
    "-np",
    "1",
    "-b",
    "512",
    "-ub",
    "512",
    "-ctk",
    "f16",
    "-ctv",
    "f16",
    "-fa",
    "on",
    "--no-kv-unified",
    "-ngl",
    "0",
    "-t",
    "1",
    "-cram",
    "0",
    "-fit",
    "off",
    "--offline",
    "--no-warmup",
    "-lv",
    "4",
];

fn activations(file: &[u8], reported: &Reported) -> Option<u64> {
    let header = read_header(Cursor::new(file), u64::try_from(file.len()).ok()?).ok()?;
    let shape = ModelShape::of(&[header]).ok()?;
    measured_activations(&shape, &settings(), reported.part(Part::Compute))
}

/// The buffers that `program` makes for a model; it is stopped as soon as it has said so.
async fn probe(program: &Path, dir: &Path, file: &[u8]) -> Option<Reported> {
    let place = tempfile::Builder::new().prefix("motorpool-").tempdir().ok()?;
    let (model, socket) = (place.path().join("probe.gguf"), place.path().join("s.sock"));
    fs::write(&model, file).ok()?;
    let mut args: Vec<&OsStr> = vec![OsStr::new("-m"), model.as_os_str(), OsStr::new("--host"), socket.as_os_str()];
    args.extend(ARGS.iter().map(OsStr::new));
    let job = Job::new(program, &args, dir).with_env("XDG_CONFIG_HOME", place.path());
    let (mut reported, whole) = (Reported::default(), Notify::new());
    let mut on_line = |line: &str| {
        reported.on_line(line);
        if reported.is_whole() {
            whole.notify_one();
        }
    };
    tokio::select! {
        _ended = job.run(&mut on_line) => {}
        () = whole.notified() => {}
    }
    Some(reported).filter(Reported::is_whole)
}

#[cfg(test)]
mod tests {
    use super::{super::record::sums_in, *};
    use crate::disk::Stamp;
    use motorpool_vocab::Bytes;

    #[test]
    fn what_was_measured_is_read_back_by_the_names_of_types() {
        let repacked = ["Q4_K", "MXFP4", "of tomorrow"].map(str::to_owned).into();
        let measured = Measured { activations_per_mille: 987, repacked };
        let text = serde_json::to_string(&measured).expect("JSON");
        let read: Measured = serde_json::from_str(&text).expect("the same");
        let calibration = read.calibration();
        assert_eq!(calibration.activations_per_mille, 987);
        assert_eq!(calibration.repacked, [TensorType::Q4_K, TensorType::MXFP4].into());
        assert_eq!(calibration.baseline, Calibration::default().baseline);
    }

    #[test]
    fn only_an_unchanged_program_of_ours_is_calibrated() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: top.path().into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
        let home = top.path().join("engines/e/1");
        fs::create_dir_all(&home).expect("made");
        let program = home.join("p");
        fs::write(&program, "x").expect("written");
        let install = Install {
            engine: "e".into(),
            version: "1".into(),
            reported: String::new(),
            stamp: Stamp::of(&program).expect("there"),
            files: sums_in(&home).expect("read"),
            program: program.clone(),
            build: String::new(),
            installed: String::new(),
            calibration: Some(Measured { activations_per_mille: 900, repacked: BTreeSet::new() }),
        };
        install.write(&home).expect("written");
        assert_eq!(calibration_of(&dirs, &program).activations_per_mille, 900);
        assert_eq!(calibration_of(&dirs, Path::new("/usr/bin/p")), Calibration::default());
        Install { calibration: None, ..install.clone() }.write(&home).expect("written");
        assert_eq!(calibration_of(&dirs, &program), Calibration::default());
        install.write(&home).expect("written");
        fs::write(&program, "another").expect("written");
        assert_eq!(calibration_of(&dirs, &program), Calibration::default());
    }

    #[test]
    fn a_record_of_before_is_read_without_a_calibration() {
        let record = r#"{"engine":"e","version":"1","reported":"v","program":"/p","stamp":STAMP,"files":{},"build":"","installed":""}"#;
        let program = std::env::current_exe().expect("this test");
        let stamp = serde_json::to_string(&Stamp::of(&program).expect("there")).expect("JSON");
        let install: Install = serde_json::from_str(&record.replace("STAMP", &stamp)).expect("a record");
        assert_eq!(install.calibration, None);
    }

    #[test]
    fn the_arguments_say_what_the_settings_say() {
        let of = |flag: &str| ARGS.iter().skip_while(|arg| **arg != flag).nth(1).copied();
        let settings = settings();
        assert_eq!(of("-c"), Some(settings.context_per_slot.to_string().as_str()));
        assert_eq!(of("-np"), Some(settings.slots.to_string().as_str()));
        assert_eq!(of("-b"), Some(settings.batch.to_string().as_str()));
        assert_eq!(of("-ub"), Some(settings.physical_batch.to_string().as_str()));
        for (flag, kind) in [("-ctk", settings.kv_keys), ("-ctv", settings.kv_values)] {
            assert_eq!(of(flag).map(str::to_uppercase).as_deref(), kind.name());
        }
    }

    #[test]
    fn the_law_is_measured_against_what_was_reported_for_the_probe() {
        let file = probe_model(TensorType::F16).finish();
        let mut reported = Reported::default();
        // 512 tokens × (5 × 256 + 3 × 768 + 12) × 4 bytes, and a mask of 512 × 512 × 2.
        reported.on_line("sched_reserve: CPU compute buffer size = 7.52 MiB");
        let found = activations(&file, &reported).expect("plausible");
        assert!(found.abs_diff(1000) < 5, "{found}");
        let far = Reported::default();
        assert_eq!((activations(&file, &far), far.part(Part::Compute)), (None, Bytes::ZERO));
    }
}
