//! [`about`]: what two launches must have in common to take the same, beside their plans (capacity.md §5).
//!
//! Model files and the engine's build are known by device, inode, size and time of change. Of an engine its libraries
//! count too: nearly all of it is in them. What the engine is told beside its plan is known by its hash, as arguments may
//! hold secrets.
use crate::check::identify;
use motorpool_catalog::{Batch, LaunchValues, Manifest, Model, Transport};
use motorpool_vocab::{Endpoint, FileId};
use sha2::{Digest as _, Sha256};
use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Names what `model` in `files`, those that are loaded beside it included, is to `program`, however it is planned and
/// wherever it goes.
pub(crate) fn about(engine: (&Manifest, &Path), model: &Model, files: &[FileId]) -> Arc<str> {
    let (manifest, program) = engine;
    let files: Vec<String> = files.iter().map(text_of).collect();
    format!("files={} build={} told={}", files.join(","), build_of(program), told(manifest, model)).into()
}

fn text_of(id: &FileId) -> String {
    let FileId { device, inode, size, mtime_nanos } = id;
    format!("{device}:{inode}:{size}:{mtime_nanos}")
}

/// Names the build of an engine: its program and the libraries beside it, by device, inode, size and time of change.
pub fn build_of(program: &Path) -> String {
    let program = fs::canonicalize(program).unwrap_or_else(|_| program.to_owned());
    let mut files: Vec<PathBuf> = libraries_beside(&program);
    files.sort();
    files.insert(0, program);
    let mut sum = Sha256::new();
    for file in files {
        add(&mut sum, file.as_os_str());
        add(&mut sum, OsStr::new(&identify(&file).map_or_else(|_| "none".to_owned(), |id| text_of(&id))));
    }
    short(sum)
}

fn libraries_beside(program: &Path) -> Vec<PathBuf> {
    let Some(entries) = program.parent().and_then(|folder| fs::read_dir(folder).ok()) else { return vec![] };
    // `libggml.so.1`, and on macOS `libggml.1.dylib`.
    let is_library = |path: &PathBuf| {
        let name = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        [".so", ".dylib"].iter().any(|ending| name.contains(ending))
    };
    entries.flatten().map(|entry| entry.path()).filter(is_library).collect()
}

/// Its command line and environment with everything that differs from launch to launch held fast.
fn told(manifest: &Manifest, model: &Model) -> String {
    let endpoint = match manifest.transport {
        Transport::Unix => Endpoint::Unix("socket".into()),
        Transport::Tcp => Endpoint::Tcp(1),
    };
    let values = LaunchValues {
        model_id: "model".into(),
        context_per_slot: 4096,
        slots: 1,
        kv_type: "f16".into(),
        batch: Batch::for_model(&model.capabilities, 4096),
        ..LaunchValues::new(model, "file".into(), endpoint, "empty".into())
    };
    let mut sum = Sha256::new();
    add(&mut sum, OsStr::new(&manifest.name));
    for argument in manifest.command(&values) {
        add(&mut sum, &argument);
    }
    for (name, value) in manifest.environment(&|_| None, &values) {
        add(&mut sum, OsStr::new(&name));
        add(&mut sum, &value);
    }
    short(sum)
}

/// With an end, so that two words are not one.
pub(crate) fn add(sum: &mut Sha256, word: &OsStr) {
    sum.update(word.as_bytes());
    sum.update([0]);
}

/// The first 64 bits, which tell apart all that one machine ever launches.
fn short(sum: Sha256) -> String {
    hex(sum, 8)
}

/// The first bytes of a hash, two digits each.
pub(crate) fn hex(sum: Sha256, n_bytes: usize) -> String {
    let mut text = String::new();
    for byte in sum.finalize().iter().take(n_bytes) {
        write!(text, "{byte:02x}").expect("a text takes everything");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::{ContextWish, ModelSource};
    use motorpool_vocab::{Bytes, ModelId};

    fn manifest() -> Manifest {
        let (manifests, _) = motorpool_catalog::shipped();
        manifests.into_iter().find(|manifest| manifest.name == "llama-server").expect("shipped")
    }

    fn model() -> Model {
        Model::new(ModelId::new("m").expect("an id"), "llama-server", ModelSource::File("/m.gguf".into()))
    }

    const FILE: FileId = FileId { device: 1, inode: 2, size: 3, mtime_nanos: 4 };

    fn of(program: &Path, model: &Model) -> Arc<str> {
        about((&manifest(), program), model, &[FILE])
    }

    #[test]
    fn what_the_plan_decides_and_the_name_are_no_part_of_it_and_other_arguments_are() {
        let program = Path::new("/no/such");
        let same = of(program, &model());
        let with = |change: fn(&mut Model)| {
            let mut model = model();
            change(&mut model);
            of(program, &model)
        };
        let alike: [fn(&mut Model); 5] = [
            |m| m.id = ModelId::new("n").expect("an id"),
            |m| m.slots = Some(7),
            |m| m.declared = Some(Bytes::gib(1)),
            |m| m.context = Some(ContextWish::Tokens(1024)),
            |m| m.kv_type = Some("q8_0".into()),
        ];
        for change in alike {
            assert_eq!(with(change), same);
        }
        let others: [fn(&mut Model); 4] = [
            |m| m.extra_args = vec!["--swa-full".into()],
            |m| m.prompt_cache = Bytes::gib(1),
            |m| m.checkpoints = 0,
            |m| m.gpu_layers = Some(3),
        ];
        for change in others {
            assert_ne!(with(change), same);
        }
        assert!(!with(|m| m.extra_args = vec!["--api-key=hush".into()]).contains("hush"));
        assert_ne!(about((&manifest(), program), &model(), &[FileId { mtime_nanos: 5, ..FILE }]), same);
    }

    #[test]
    fn another_program_or_library_is_another_build_whatever_path_leads_there() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("bin")).expect("writable");
        fs::write(path("bin/engine"), "1").expect("writable");
        fs::write(path("bin/libggml.so.1"), "1").expect("writable");
        std::os::unix::fs::symlink(path("bin/engine"), path("link")).expect("writable");
        let before = of(&path("bin/engine"), &model());
        assert_eq!(of(&path("link"), &model()), before);
        fs::write(path("bin/notes.txt"), "no library").expect("writable");
        assert_eq!(of(&path("bin/engine"), &model()), before);
        fs::write(path("bin/libggml.so.1"), "22").expect("writable");
        let library = of(&path("bin/engine"), &model());
        assert_ne!(library, before);
        fs::write(path("bin/libggml.1.dylib"), "1").expect("writable");
        let another = of(&path("bin/engine"), &model());
        assert_ne!(another, library);
        fs::write(path("bin/engine"), "22").expect("writable");
        assert_ne!(of(&path("bin/engine"), &model()), another);
    }
}
