//! Looks at program and model file before anything is evicted for them. Touches nothing; blocks.
use crate::{Notebook, beside, identity};
use motorpool_catalog::{Estimator, Manifest, Model, tensors_that_stay};
use motorpool_gguf::{Calibration, Format, GgufError, Header, ModelShape, check_shards, read_header, shard_names};
use motorpool_pool::{Build, Facts, Lessons, StartFault};
use motorpool_vocab::{Bytes, FailureClass, FileId};
use parking_lot::Mutex;
use std::{
    collections::{BTreeSet, HashMap},
    error::Error,
    fmt,
    fs::{self, File},
    io::{self, BufReader, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Finds the programs of an engine: every build of it that is here, the preferred one first.
pub type Discover = Box<dyn Fn(&Manifest) -> Result<Vec<PathBuf>, StartFault> + Send + Sync>;
/// Finds the file of a model.
pub type Locate = Box<dyn Fn(&Model) -> Result<PathBuf, StartFault> + Send + Sync>;

/// What was measured of the engine that a program is.
pub type Calibrate = Box<dyn Fn(&Path) -> Calibration + Send + Sync>;

/// Files whose verdicts are remembered.
const MAX_VERDICTS: usize = 1024;

/// What a model's header says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Judged {
    context_length: Option<u32>,
    architecture: Option<String>,
    pub(crate) shape: Option<Arc<ModelShape>>,
}

type Verdict = Result<Judged, StartFault>;

/// Files, and which of their tensors stay in system memory.
type Question = (Vec<FileId>, Vec<String>);

/// The files of one model.
#[derive(Debug)]
pub(crate) struct Seen {
    paths: Vec<PathBuf>,
    files: Vec<FileId>,
}

impl Seen {
    pub(crate) fn sizes(&self) -> impl Iterator<Item = (FileId, Bytes)> + '_ {
        self.files.iter().map(|id| (*id, Bytes::new(id.size)))
    }

    pub(crate) fn size(&self) -> Bytes {
        Bytes::sum(self.sizes().map(|(_, size)| size))
    }
}

/// Looks at programs and model files; remembers what it read of a file for as long as that is the same file.
pub struct Checker {
    discover: Discover,
    locate: Locate,
    calibrate: Calibrate,
    notebook: Option<Notebook>,
    verdicts: Mutex<HashMap<Question, Verdict>>,
}

impl fmt::Debug for Checker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").field("verdicts", &self.verdicts.lock().len()).finish_non_exhaustive()
    }
}

impl Checker {
    /// Looks where these say.
    pub fn new(discover: Discover, locate: Locate, calibrate: Calibrate) -> Self {
        Self { discover, locate, calibrate, notebook: None, verdicts: Mutex::new(HashMap::new()) }
    }

    /// The same, and what it finds comes with what earlier loads taught.
    #[must_use]
    pub fn with_lessons(self, notebook: Notebook) -> Self {
        Self { notebook: Some(notebook), ..self }
    }

    /// Whether a start could succeed with a build that is none of `avoid`, and what it would be given.
    pub fn check(&self, manifest: &Manifest, model: &Model, avoid: &BTreeSet<Build>) -> Result<Facts, StartFault> {
        let (program, build) = first_of((self.discover)(manifest)?, manifest, avoid)?;
        let model_path = (self.locate)(model)?;
        let format = if model_path.is_dir() { Format::Folder } else { Format::Files };
        let own = seen(&model_path)?;
        let Judged { context_length, architecture, shape } = self.verdict(&own, &model.cpu_tensors)?;
        let shape = shape.filter(|_| manifest.estimator == Some(Estimator::LlamaCpp));
        let (beside, more) = beside::look(model, &|seen| self.verdict(seen, &[]))?;
        let files: Vec<_> = own.sizes().chain(more).collect();
        let calibration = (self.calibrate)(&program);
        let about = identity::about((manifest, &program), model, &every_file(&files, model)?);
        let learned = match &self.notebook {
            Some(notebook) => notebook.lessons(&about),
            None => Lessons { about, ..Lessons::default() },
        };
        Ok(Facts {
            program,
            build,
            model_path,
            files,
            context_length,
            architecture,
            shape,
            format,
            beside,
            calibration,
            learned,
        })
    }

    /// What the files say where tensors of these names stay in system memory.
    fn verdict(&self, seen: &Seen, cpu_tensors: &[String]) -> Verdict {
        let key = (seen.files.clone(), cpu_tensors.to_vec());
        if let Some(known) = self.verdicts.lock().get(&key) {
            return known.clone();
        }
        let first = seen.paths.first().map_or(Path::new(""), PathBuf::as_path);
        let verdict = match judge(seen, cpu_tensors) {
            // What the disk did not give is no property of the file.
            Err(error @ GgufError::Io { .. }) => return Err(fault(FailureClass::Unknown, about(first, &error))),
            // An engine may know a type that we do not; it decides.
            Err(GgufError::UnknownSize { .. }) => Ok(Judged::default()),
            Err(error) => Err(fault(error.class(), about(first, &error))),
            Ok(judged) => Ok(judged),
        };
        let mut verdicts = self.verdicts.lock();
        if verdicts.len() >= MAX_VERDICTS {
            verdicts.clear();
        }
        verdicts.insert(key, verdict.clone());
        verdict
    }
}

/// The first program of a chain that is none of `avoid`.
fn first_of(chain: Vec<PathBuf>, manifest: &Manifest, avoid: &BTreeSet<Build>) -> Result<(PathBuf, Build), StartFault> {
    let n_known = chain.len();
    // One that cannot be looked at is started all the same: that tells what is wrong with it.
    let with_build = chain.into_iter().map(|program| {
        let build = build_of(&program).unwrap_or_default();
        (program, build)
    });
    with_build.into_iter().find(|(_, build)| !avoid.contains(build)).ok_or_else(|| {
        let message = match n_known {
            0 => format!("{} is not on this machine", manifest.name),
            n => format!("none of the {n} builds of {} that are here runs on this processor", manifest.name),
        };
        fault(if n_known == 0 { FailureClass::EngineMissing } else { FailureClass::IllegalInstruction }, message)
    })
}

fn build_of(program: &Path) -> io::Result<Build> {
    let metadata = fs::metadata(program)?;
    Ok(Build { size: metadata.len(), mtime_nanos: mtime_nanos(&metadata) })
}

fn mtime_nanos(metadata: &fs::Metadata) -> i128 {
    i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec())
}

/// The model whose first file is `path`.
pub(crate) fn seen(path: &Path) -> Result<Seen, StartFault> {
    let paths = files_of(path)?;
    let files = paths.iter().map(|path| identify(path)).collect::<Result<_, _>>()?;
    Ok(Seen { paths, files })
}

/// The file and its further shards; of a folder, all files that lie in it and are not hidden. Hubs link to them.
fn files_of(path: &Path) -> Result<Vec<PathBuf>, StartFault> {
    if path.is_dir() {
        return files_in(path);
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shards = shard_names(name).map_err(|error| fault(error.class(), about(path, &error)))?;
    let beside = |names: Vec<String>| names.into_iter().map(|name| path.with_file_name(name)).collect();
    Ok(shards.map_or_else(|| vec![path.to_owned()], beside))
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>, StartFault> {
    let read = |error: io::Error| fault(FailureClass::Unknown, about(folder, &error));
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(read)? {
        let entry = entry.map_err(read)?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !is_hidden && entry.path().is_file() {
            files.push(entry.path());
        }
    }
    if files.is_empty() {
        return Err(fault(FailureClass::ModelMissing, format!("the folder {} has no files", folder.display())));
    }
    files.sort();
    Ok(files)
}

/// What a launch reads: `files`, and what is charged as a part of its own.
fn every_file(files: &[(FileId, Bytes)], model: &Model) -> Result<Vec<FileId>, StartFault> {
    let sides = model.projector.iter().chain(&model.adapters).map(|side| identify(&side.file));
    files.iter().map(|(id, _)| Ok(*id)).chain(sides).collect()
}

pub(crate) fn identify(path: &Path) -> Result<FileId, StartFault> {
    let metadata = fs::metadata(path).map_err(|error| {
        let class = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => FailureClass::ModelMissing,
            _ => FailureClass::Unknown,
        };
        fault(class, about(path, &error))
    })?;
    if !metadata.is_file() {
        return Err(fault(FailureClass::ModelCorrupt, format!("model file {}: not a file", path.display())));
    }
    let mtime_nanos = mtime_nanos(&metadata);
    Ok(FileId { device: metadata.dev(), inode: metadata.ino(), size: metadata.len(), mtime_nanos })
}

/// Reads headers where there are any: engines of other formats judge their own files.
fn judge(Seen { paths, files }: &Seen, cpu_tensors: &[String]) -> Result<Judged, GgufError> {
    if !paths.first().is_some_and(|first| is_gguf(first)) {
        return Ok(Judged::default());
    }
    let headers: Vec<Header> =
        paths.iter().zip(files).map(|(path, id)| read_one(path, id.size)).collect::<Result<_, _>>()?;
    check_shards(&headers)?;
    let header = headers.first();
    Ok(Judged {
        context_length: header.and_then(Header::context_length).and_then(|n| u32::try_from(n).ok()),
        architecture: header.and_then(Header::architecture).map(str::to_owned),
        // A header that the engine may load and we cannot estimate leaves the size of the files.
        shape: ModelShape::with_kept(&headers, &tensors_that_stay(cpu_tensors)).ok().map(Arc::new),
    })
}

pub(crate) fn read_one(path: &Path, size: u64) -> Result<Header, GgufError> {
    let file = File::open(path).map_err(|source| GgufError::Io { at: 0, source })?;
    read_header(BufReader::with_capacity(1 << 16, file), size)
}

/// By name, or by the first bytes for files that are named by their hash.
fn is_gguf(path: &Path) -> bool {
    let named = path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
    let begins = || {
        let mut magic = [0; 4];
        File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"GGUF"
    };
    named || begins()
}

pub(crate) fn about(path: &Path, error: &dyn Error) -> String {
    format!("model file {}: {}", path.display(), sentence(error))
}

pub(crate) fn fault(class: FailureClass, message: String) -> StartFault {
    StartFault { class, message, tail: vec![] }
}

/// An error and its causes in one line.
pub(crate) fn sentence(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::{DraftModel, ModelSource, SideFile};
    use motorpool_gguf::write::{Smoke, Writer};
    use motorpool_vocab::ModelId;

    fn manifest() -> Manifest {
        let (manifests, _) = motorpool_catalog::shipped();
        manifests.into_iter().next().expect("one is shipped")
    }

    fn model(path: &Path) -> Model {
        Model::new(ModelId::new("m").expect("no colon"), "llama-server", ModelSource::File(path.to_owned()))
    }

    fn checker() -> Checker {
        let locate: Locate = Box::new(|model| match &model.source {
            ModelSource::File(path) => Ok(path.clone()),
            _ => Err(fault(FailureClass::ModelMissing, "not pulled".into())),
        });
        Checker::new(Box::new(|_| Ok(vec!["/bin/engine".into()])), locate, Box::new(|_| Calibration::default()))
    }

    fn check(path: &Path) -> Result<Facts, FailureClass> {
        checker().check(&manifest(), &model(path), &BTreeSet::new()).map_err(|fault| fault.class)
    }

    #[test]
    fn a_whole_model_is_described() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("a.gguf");
        let bytes = motorpool_gguf::write::smoke_model();
        fs::write(&path, &bytes).expect("writable");
        let facts = check(&path).expect("a model");
        assert_eq!(facts.program, PathBuf::from("/bin/engine"));
        assert_eq!(facts.model_path, path);
        assert_eq!(facts.files.len(), 1);
        assert_eq!(facts.files[0].1.get(), u64::try_from(bytes.len()).expect("small"));
        assert!(facts.architecture.is_some() && facts.context_length.is_some());
        fs::rename(&path, folder.path().join("sha256-abc")).expect("ours");
        assert!(check(&folder.path().join("sha256-abc")).expect("a model").architecture.is_some());
    }

    #[test]
    fn a_folder_of_weights_is_all_files_in_it_and_one_without_any_is_no_model() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let folder = top.path().join("Qwen3-8B-4bit");
        fs::create_dir_all(folder.join("more")).expect("writable");
        assert_eq!(check(&folder), Err(FailureClass::ModelMissing));
        fs::write(top.path().join("blob"), [1; 70]).expect("writable");
        std::os::unix::fs::symlink(top.path().join("blob"), folder.join("model.safetensors")).expect("writable");
        fs::write(folder.join("config.json"), [2; 30]).expect("writable");
        fs::write(folder.join(".lock"), [3; 500]).expect("writable");
        let facts = check(&folder).expect("a model");
        assert_eq!((facts.format, facts.shape), (Format::Folder, None));
        assert_eq!(Bytes::sum(facts.files.iter().map(|(_, size)| *size)), Bytes::new(100));
    }

    #[test]
    fn the_first_build_that_is_not_to_be_avoided_is_the_one_and_a_copy_is_the_same() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let write = |name: &str, bytes: &str| {
            fs::write(folder.path().join(name), bytes).expect("writable");
            folder.path().join(name)
        };
        let chain = vec![write("one", "1"), write("two", "22")];
        let first = |avoid: &[Build]| first_of(chain.clone(), &manifest(), &avoid.iter().copied().collect());
        let (one, bad) = first(&[]).expect("one");
        assert_eq!(one, chain[0]);
        assert_eq!(first(&[bad]).expect("the next").0, chain[1]);
        let copy = folder.path().join("copy");
        fs::hard_link(&chain[0], &copy).expect("linked");
        assert_eq!(
            first_of(vec![copy], &manifest(), &[bad].into()).expect_err("none").class,
            FailureClass::IllegalInstruction
        );
        write("one", "another build");
        assert_eq!(first(&[bad]).expect("a changed input").0, chain[0]);
    }

    #[test]
    fn what_cannot_be_loaded_is_classed() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        let bytes = motorpool_gguf::write::smoke_model();
        fs::write(path("cut.gguf"), &bytes[..bytes.len() / 2]).expect("writable");
        fs::write(path("empty.gguf"), "").expect("writable");
        fs::write(path("other.gguf"), "not a model at all").expect("writable");
        fs::write(path("big-00001-of-00002.gguf"), &bytes).expect("writable");
        assert_eq!(check(&path("absent.gguf")), Err(FailureClass::ModelMissing));
        for name in ["cut.gguf", "empty.gguf", "other.gguf"] {
            assert_eq!(check(&path(name)), Err(FailureClass::ModelCorrupt), "{name}");
        }
        assert_eq!(check(&path("big-00001-of-00002.gguf")), Err(FailureClass::ModelMissing), "its second shard");
    }

    #[test]
    fn an_engine_without_an_estimator_is_taken_as_large_as_its_files() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("a.gguf");
        fs::write(&path, motorpool_gguf::write::smoke_model()).expect("writable");
        let shape = |manifest: &Manifest| {
            checker().check(manifest, &model(&path), &BTreeSet::new()).expect("a model").shape.is_some()
        };
        let (estimated, mut foreign) = (manifest(), manifest());
        foreign.estimator = None;
        assert!(shape(&estimated) && !shape(&foreign), "what llama.cpp would take says nothing of another engine");
    }

    #[test]
    fn another_format_is_its_engines_business() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("model.bin");
        fs::write(&path, "12345").expect("writable");
        let facts = check(&path).expect("a file");
        assert_eq!((facts.files[0].1.get(), facts.architecture), (5, None));
    }

    #[test]
    fn an_engine_that_is_not_there_is_said_before_the_model_is_looked_at() {
        let missing = || fault(FailureClass::EngineMissing, "install it first".into());
        let checker = Checker::new(
            Box::new(move |_| Err(missing())),
            Box::new(|_| panic!("looked at")),
            Box::new(|_| Calibration::default()),
        );
        assert_eq!(checker.check(&manifest(), &model(Path::new("/m")), &BTreeSet::new()), Err(missing()));
    }

    type Change<'a> = &'a dyn Fn(&mut Model);

    #[test]
    fn files_beside_a_model_are_checked_and_told_like_it() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| folder.path().join(name);
        let write = |name: &str, writer: Writer| fs::write(path(name), writer.finish()).expect("writable");
        write("a.gguf", Smoke { n_blocks: 4, ..Smoke::default() }.writer());
        write("small.gguf", Smoke::default().writer());
        write("clip.gguf", Writer::new().set("general.architecture", "clip"));
        write("lora.gguf", Writer::new().set("general.architecture", "llama").set("general.type", "adapter"));
        let side = |name: &str| Some(SideFile { file: path(name) });
        let draft = |name: &str| Some(DraftModel { file: path(name), tokens: 2 });
        let with = |change: &dyn Fn(&mut Model)| {
            let mut model = model(&path("a.gguf"));
            change(&mut model);
            checker().check(&manifest(), &model, &BTreeSet::new())
        };
        let facts = with(&|model| {
            model.projector = side("clip.gguf");
            model.draft = draft("small.gguf");
            model.adapters.extend(side("lora.gguf"));
            model.cpu_tensors = vec!["ffn_(up|down)".into()];
        });
        let facts = facts.expect("all are there");
        let bytes = |name: &str| Bytes::new(fs::metadata(path(name)).expect("there").len());
        assert_eq!(facts.beside.projector, Some(bytes("clip.gguf")));
        let read = facts.beside.draft.as_ref().expect("a draft model");
        assert_eq!((read.tokens, read.size, read.shape.is_some()), (2, bytes("small.gguf"), true));
        assert_eq!(
            facts.files.iter().map(|(_, size)| *size).collect::<Vec<_>>(),
            [bytes("a.gguf"), bytes("small.gguf")]
        );
        assert_eq!(facts.beside.adapters.len(), 1);
        let mut whole = model(&path("a.gguf"));
        (whole.projector, whole.adapters) = (side("clip.gguf"), side("lora.gguf").into_iter().collect());
        let known_by = every_file(&facts.files, &whole).expect("all are there");
        assert_eq!(known_by.len(), 4, "another projector teaches other lessons: {known_by:?}");
        assert_ne!(facts.shape, with(&|_| {}).expect("the same file").shape, "what stays is told apart");
        let wrong: [(Change<'_>, _); 4] = [
            (&|model| model.projector = side("a.gguf"), FailureClass::ModelUnsupported),
            (&|model| model.projector = side("gone.gguf"), FailureClass::ModelMissing),
            (&|model| model.adapters.extend(side("a.gguf")), FailureClass::ModelCorrupt),
            (&|model| model.draft = draft("gone.gguf"), FailureClass::ModelMissing),
        ];
        for (change, class) in wrong {
            let fault = with(change).expect_err("no such file");
            assert_eq!(fault.class, class, "{fault:?}");
        }
    }

    #[test]
    fn a_verdict_holds_for_as_long_as_the_file_is_the_same() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("a.gguf");
        fs::write(&path, "not a model").expect("writable");
        let checker = checker();
        let class = || checker.check(&manifest(), &model(&path), &BTreeSet::new()).err().map(|fault| fault.class);
        assert_eq!(class(), Some(FailureClass::ModelCorrupt));
        assert_eq!(class(), Some(FailureClass::ModelCorrupt));
        assert_eq!(checker.verdicts.lock().len(), 1);
        fs::write(&path, motorpool_gguf::write::smoke_model()).expect("writable");
        assert_eq!(class(), None, "a replaced file is looked at anew");
    }
}
