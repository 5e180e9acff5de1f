//! [`Settings`]: the configuration and the catalog, from the first place that has them.
//!
//! ```text
//! motorpool.toml   --config ─► ./motorpool.toml, when it is safe ─► <config>/ ─► /etc/motorpool/ ─► defaults
//! engines/*.toml   embedded, then those beside motorpool.toml
//! catalog/*.toml   embedded, then pulled ones in the data directory, then those beside motorpool.toml
//! ```
//!
//! A later file replaces an earlier one of the same name. A folder that somebody else can write to could make us run
//! their programs, so what lies in the working directory is used only when it is the user's and nobody else's.
//!
//! What is absent counts for nothing; what cannot be looked at, or may not be used any more, is an error: else a disk that
//! fails for a moment would remove every model from a pool that reads its files again.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure, chain},
    out,
};
use motorpool_catalog::{
    BudgetText, Catalog, Config, ConfigError, DescribedHost, Source, UnknownModel, overlay_manifests, overlay_models,
    parse_config, parse_host, parse_manifest, parse_model, shipped,
};
use motorpool_pool::LoadSlots;
use motorpool_supervisor::Panics;
use motorpool_vocab::ModelId;
use std::{
    fs, io,
    num::NonZeroU32,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

const FILE: &str = "motorpool.toml";
const SYSTEM: &str = "/etc/motorpool";
const UNREADABLE: &str = "it cannot be read";
pub(crate) const BUDGET: &str = "MOTORPOOL_CAPACITY_BUDGET_GB";
pub(crate) const SERIALIZE: &str = "MOTORPOOL_SERIALIZE_GPU_LOADS";
const PANIC_GUARD: &str = "MOTORPOOL_GPU_PANIC_GUARD";
const PANIC_COOLDOWN: &str = "MOTORPOOL_GPU_PANIC_COOLDOWN_HOURS";

/// Everything that files say.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The configuration file; `None` when the defaults serve.
    pub(crate) file: Option<PathBuf>,
    pub(crate) config: Config,
    pub(crate) catalog: Arc<Catalog>,
    /// The folder whose `engines/` and `catalog/` count.
    pub(crate) beside: PathBuf,
    /// What `--config` says.
    explicit: Option<PathBuf>,
    /// The model that is meant by `default` whatever the files say.
    called: Option<ModelId>,
    /// Every file that they are from.
    read: Vec<PathBuf>,
}

/// Why there are no settings.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error("cannot read {}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("{} was used until now: {why}", path.display())]
    Distrusted { path: PathBuf, why: &'static str },
    #[error(transparent)]
    Wrong(#[from] ConfigError),
    #[error("{BUDGET} cannot be used")]
    Budget(#[source] BudgetText),
    #[error("{SERIALIZE} is `{0}`")]
    Serialize(String),
    #[error("{PANIC_GUARD} is `{0}`")]
    PanicGuard(String),
    #[error("{PANIC_COOLDOWN} is `{0}`")]
    PanicCooldown(String),
    #[error("defaults.model names no model")]
    Default(#[source] UnknownModel),
}

impl From<SettingsError> for Failure {
    fn from(error: SettingsError) -> Self {
        let what = chain(&error);
        match error {
            SettingsError::Read { .. } => Self::new(Exit::Config, what, "check the path and its permissions"),
            SettingsError::Distrusted { .. } => Self::new(Exit::Config, what, "or take it away, and reload"),
            SettingsError::Wrong(error) => {
                Self::new(Exit::Config, what, format_args!("correct {} and run this again", error.file()))
            }
            SettingsError::Budget(_) => {
                Self::new(Exit::Config, what, "set it to a number of GiB such as 24, or unset it")
            }
            SettingsError::Serialize(_) | SettingsError::PanicGuard(_) => {
                Self::new(Exit::Config, what, "set it to `on` or `off`, or unset it")
            }
            SettingsError::PanicCooldown(_) => {
                Self::new(Exit::Config, what, "set it to a number of hours, 0 to 8760, or unset it")
            }
            SettingsError::Default(_) => {
                Self::new(Exit::Config, what, "correct it; `motorpool model list` shows the names")
            }
        }
    }
}

impl Settings {
    /// Reads them all. `explicit` is what `--config` says.
    pub(crate) fn load(dirs: &Dirs, explicit: Option<&Path>) -> Result<Self, SettingsError> {
        Self::of(Files::find(dirs, explicit)?, explicit)
    }

    /// The configuration by itself, whatever is wrong with engines and models.
    pub(crate) fn configuration(dirs: &Dirs, explicit: Option<&Path>) -> Result<Config, SettingsError> {
        let file = match explicit {
            Some(path) => Some(path.to_owned()),
            None => discover(dirs, &mut Vec::new())?.0,
        };
        file.map_or_else(|| Ok(Config::default()), |path| read_with(&path, parse_config))
    }

    fn of(files: Files, explicit: Option<&Path>) -> Result<Self, SettingsError> {
        let config = match &files.config {
            Some(path) => read_with(path, parse_config)?,
            None => Config::default(),
        };
        let (manifests, models) = shipped();
        let manifests = overlay_manifests(manifests, read_all(&files.engines, parse_manifest)?);
        let models = overlay_models(models, read_all(&files.pulled, parse_model)?);
        let models = overlay_models(models, read_all(&files.models, parse_model)?);
        let catalog = Catalog::new(manifests, models)?;
        config.check_engines(&catalog)?;
        let catalog = catalog.configured_by(&config);
        let default = match &config.defaults.model {
            Some(name) => Some(catalog.resolve(name).map_err(SettingsError::Default)?.id.clone()),
            None => None,
        };
        let (catalog, explicit) = (Arc::new(catalog), explicit.map(Path::to_owned));
        let Files { config: file, engines, pulled, models, beside, .. } = files;
        let read = file.iter().cloned().chain(engines).chain(pulled).chain(models).collect();
        let mut settings = Self { file, config, catalog, beside, explicit, called: None, read };
        if let Some(id) = default {
            settings.call_default(&id);
        }
        Ok(settings)
    }

    /// What the files say now, found in the same way. A file that may not be used any more is not one that is gone.
    pub(crate) fn read_again(&self, dirs: &Dirs) -> Result<Self, SettingsError> {
        let files = Files::find(dirs, self.explicit.as_deref())?;
        self.still(&files)?;
        let mut again = Self::of(files, self.explicit.as_deref())?;
        if let Some(id) = self.called.as_ref().filter(|id| again.catalog.model(id).is_some()) {
            again.call_default(id);
        }
        again.called.clone_from(&self.called);
        Ok(again)
    }

    /// The configuration file, or where it would lie.
    pub(crate) fn file_or_its_place(&self) -> PathBuf {
        self.file.clone().unwrap_or_else(|| self.beside.join(FILE))
    }

    /// Nothing that we are from is ignored now.
    fn still(&self, files: &Files) -> Result<(), SettingsError> {
        match files.ignored.iter().find(|(path, _)| self.read.contains(path)) {
            Some((path, why)) => Err(SettingsError::Distrusted { path: path.clone(), why }),
            None => Ok(()),
        }
    }

    /// [`Settings::call_default`] that holds whatever the files say, as long as the model is there.
    pub(crate) fn keep_default(&mut self, id: &ModelId) {
        self.called = Some(id.clone());
        self.call_default(id);
    }

    /// This model is meant by `default`, and by a request that names none.
    pub(crate) fn call_default(&mut self, id: &ModelId) {
        self.config.defaults.model = Some(id.to_string());
        Arc::make_mut(&mut self.catalog).call_default(id);
    }
}

/// The files that settings are read from.
#[derive(Debug, Default)]
pub(crate) struct Files {
    pub(crate) config: Option<PathBuf>,
    /// `engines/*.toml` beside it.
    pub(crate) engines: Vec<PathBuf>,
    /// Entries of models that were pulled from a source that no catalog names.
    pub(crate) pulled: Vec<PathBuf>,
    /// `catalog/*.toml` beside it.
    pub(crate) models: Vec<PathBuf>,
    /// The folder of both.
    pub(crate) beside: PathBuf,
    /// What is there and not used.
    ignored: Vec<Ignored>,
}

/// A file that is not used, and why.
type Ignored = (PathBuf, &'static str);

impl Files {
    /// Those of a daemon. `explicit` is what `--config` says.
    pub(crate) fn find(dirs: &Dirs, explicit: Option<&Path>) -> Result<Self, SettingsError> {
        let mut ignored = Vec::new();
        let (config, beside) = match explicit {
            Some(path) => (Some(path.to_owned()), folder_of(path)),
            None => discover(dirs, &mut ignored)?,
        };
        let around = Self::around(&beside)?;
        ignored.extend(around.ignored);
        Ok(Self { config, pulled: pulled(dirs)?, ignored, ..around })
    }

    /// Those of a folder, whoever uses them.
    pub(crate) fn in_folder(folder: &Path) -> Result<Self, SettingsError> {
        let config = folder.join(FILE);
        let config = is_there(&config)?.then_some(config);
        Ok(Self { config, ..Self::around(folder)? })
    }

    /// This configuration, and what lies beside it.
    pub(crate) fn beside(config: &Path) -> Result<Self, SettingsError> {
        Ok(Self { config: Some(config.to_owned()), ..Self::around(&folder_of(config))? })
    }

    fn around(folder: &Path) -> Result<Self, SettingsError> {
        let mut ignored = Vec::new();
        let mut of = |name| -> Result<Vec<PathBuf>, SettingsError> {
            let (paths, passed) = toml_files(&folder.join(name))?;
            ignored.extend(passed);
            Ok(paths)
        };
        let (engines, models) = (of("engines")?, of("catalog")?);
        Ok(Self { engines, models, beside: folder.to_owned(), ignored, ..Self::default() })
    }
}

/// The configuration file, and the folder whose `engines/` and `catalog/` count.
fn discover(dirs: &Dirs, ignored: &mut Vec<Ignored>) -> Result<(Option<PathBuf>, PathBuf), SettingsError> {
    let here = Path::new(".").join(FILE);
    if is_shown(&here, ignored)? {
        match distrust(&here) {
            None => return Ok((Some(here), PathBuf::from("."))),
            Some(why) => {
                out::say(format_args!("ignoring ./{FILE}: {why}"));
                ignored.push((here, why));
            }
        }
    }
    let (own, system) = (dirs.config.join(FILE), Path::new(SYSTEM).join(FILE));
    Ok(if is_there(&own)? {
        (Some(own), dirs.config.clone())
    } else if is_shown(&system, ignored)? {
        (Some(system), PathBuf::from(SYSTEM))
    } else {
        (None, dirs.config.clone())
    })
}

/// Whether it is there and we may see it: others may keep the working directory and the system's to themselves.
fn is_shown(path: &Path, ignored: &mut Vec<Ignored>) -> Result<bool, SettingsError> {
    match is_there(path) {
        Err(SettingsError::Read { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            ignored.push((path.to_owned(), UNREADABLE));
            Ok(false)
        }
        other => other,
    }
}

fn is_there(path: &Path) -> Result<bool, SettingsError> {
    Ok(unless_absent(path, fs::metadata(path))?.is_some())
}

/// `None` when nothing is there, which a failure to look does not say.
fn unless_absent<T>(path: &Path, looked: io::Result<T>) -> Result<Option<T>, SettingsError> {
    match looked {
        Ok(found) => Ok(Some(found)),
        // The second: in what is no folder there is nothing.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(source) => Err(SettingsError::Read { path: path.to_owned(), source }),
    }
}

fn folder_of(path: &Path) -> PathBuf {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
}

/// Why a file in a folder that may be anybody's is not to be used.
fn distrust(path: &Path) -> Option<&'static str> {
    match fs::metadata(path) {
        Ok(meta) if meta.uid() != nix::unistd::geteuid().as_raw() => {
            Some("it is not yours; name it with --config to use it")
        }
        Ok(meta) if meta.mode() & 0o022 != 0 => Some("others can write to it; `chmod go-w` it to use it"),
        Ok(_) => None,
        Err(_) => Some(UNREADABLE),
    }
}

pub(crate) type Parse<T> = fn(Source<'_>, &dyn Fn(&str) -> Option<String>) -> Result<T, ConfigError>;

fn read_with<T>(path: &Path, parse: Parse<T>) -> Result<T, SettingsError> {
    let text = fs::read_to_string(path).map_err(|source| SettingsError::Read { path: path.to_owned(), source })?;
    let file = path.display().to_string();
    Ok(parse(Source { file: &file, text: &text }, &|name| std::env::var(name).ok())?)
}

fn read_all<T>(paths: &[PathBuf], parse: Parse<T>) -> Result<Vec<T>, SettingsError> {
    paths.iter().map(|path| read_with(path, parse)).collect()
}

/// Every `*.toml` of a folder that is used, by name, and those that are not; nothing when there is no such folder.
pub(crate) fn toml_files(dir: &Path) -> Result<(Vec<PathBuf>, Vec<Ignored>), SettingsError> {
    let is_toml = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "toml");
    let (mut used, mut ignored) = (Vec::new(), Vec::new());
    for path in files(entries(dir)?.into_iter().filter(is_toml))? {
        match distrust(&path).filter(|_| !dir.is_absolute()) {
            None => used.push(path),
            Some(why) => {
                out::say(format_args!("ignoring {}: {why}", path.display()));
                ignored.push((path, why));
            }
        }
    }
    Ok((used, ignored))
}

/// The entries of models that were pulled from a source that no catalog names.
fn pulled(dirs: &Dirs) -> Result<Vec<PathBuf>, SettingsError> {
    files(entries(&dirs.data.join("models"))?.into_iter().map(|home| home.join("model.toml")))
}

/// What is in a folder, by name.
fn entries(dir: &Path) -> Result<Vec<PathBuf>, SettingsError> {
    let Some(entries) = unless_absent(dir, fs::read_dir(dir))? else { return Ok(Vec::new()) };
    let paths: io::Result<Vec<_>> = entries.map(|entry| entry.map(|entry| entry.path())).collect();
    let mut paths = paths.map_err(|source| SettingsError::Read { path: dir.to_owned(), source })?;
    paths.sort();
    Ok(paths)
}

/// Those of them that are files.
fn files(paths: impl Iterator<Item = PathBuf>) -> Result<Vec<PathBuf>, SettingsError> {
    let mut files = Vec::new();
    for path in paths {
        if unless_absent(&path, fs::metadata(&path))?.is_some_and(|meta| meta.is_file()) {
            files.push(path);
        }
    }
    Ok(files)
}

/// The machine that a file describes.
pub(crate) fn described_host(path: &Path) -> Result<DescribedHost, SettingsError> {
    read_with(path, parse_host)
}

/// What the environment says about the automatic budget.
pub(crate) fn budget_of_environment() -> Result<Option<motorpool_vocab::Bytes>, SettingsError> {
    match std::env::var(BUDGET) {
        Ok(text) if !text.trim().is_empty() => {
            motorpool_catalog::budget_from_env(&text).map(Some).map_err(SettingsError::Budget)
        }
        _ => Ok(None),
    }
}

/// How many engines load at a time: the environment overrides the platform, on some of which two loads at once have
/// brought the machine down.
pub(crate) fn load_slots(parallel: u32) -> Result<LoadSlots, SettingsError> {
    load_slots_of(std::env::var(SERIALIZE).ok().as_deref(), parallel)
}

fn load_slots_of(serialize: Option<&str>, parallel: u32) -> Result<LoadSlots, SettingsError> {
    let one_for_all = match serialize.map(str::trim) {
        None | Some("") => cfg!(target_os = "macos"),
        Some("on") => true,
        Some("off") => false,
        Some(other) => return Err(SettingsError::Serialize(other.to_owned())),
    };
    let per_device = LoadSlots::PerDevice(NonZeroU32::new(parallel).unwrap_or(NonZeroU32::MIN));
    Ok(if one_for_all { LoadSlots::OneForAll } else { per_device })
}

/// Where panics of the graphics driver are reported, and for how long one keeps engines off the GPU: on macOS, unless the
/// environment says otherwise.
pub(crate) fn panics() -> Result<Panics, SettingsError> {
    let var = |name| std::env::var(name).ok();
    let home = var("HOME").map(PathBuf::from);
    let system = [PathBuf::from("/"), home.unwrap_or_default()].map(|top| top.join("Library/Logs/DiagnosticReports"));
    let folders = if cfg!(target_os = "macos") { system.to_vec() } else { vec![] };
    panics_of((var(PANIC_GUARD).as_deref(), var(PANIC_COOLDOWN).as_deref()), folders)
}

fn panics_of((guard, hours): (Option<&str>, Option<&str>), folders: Vec<PathBuf>) -> Result<Panics, SettingsError> {
    let folders = match guard.map(str::trim) {
        None | Some("" | "on") => folders,
        Some("off") => vec![],
        Some(other) => return Err(SettingsError::PanicGuard(other.to_owned())),
    };
    let within = |text: &str| {
        let hours = text.parse().ok().filter(|hours: &f64| (0.0..=8760.0).contains(hours))?;
        Duration::try_from_secs_f64(hours * 3600.0).ok()
    };
    let pause = match hours.map(str::trim) {
        None | Some("") => Duration::from_hours(1),
        Some(text) => within(text).ok_or_else(|| SettingsError::PanicCooldown(text.to_owned()))?,
    };
    Ok(Panics { folders, pause })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn dirs(top: &Path) -> Dirs {
        Dirs { data: top.join("data"), state: top.join("state"), run: top.join("run"), config: top.join("config") }
    }

    #[test]
    fn loads_are_one_at_a_time_where_the_environment_or_the_platform_says_so() {
        let two = LoadSlots::PerDevice(NonZeroU32::new(2).expect("not zero"));
        assert_eq!(load_slots_of(Some("on"), 2).ok(), Some(LoadSlots::OneForAll));
        assert_eq!(load_slots_of(Some("off"), 2).ok(), Some(two));
        let by_platform = if cfg!(target_os = "macos") { LoadSlots::OneForAll } else { two };
        assert_eq!(load_slots_of(None, 2).ok(), Some(by_platform));
        assert!(matches!(load_slots_of(Some("yes"), 2), Err(SettingsError::Serialize(_))));
    }

    #[test]
    fn the_pause_after_a_panic_of_the_graphics_driver_is_an_hour_or_what_the_environment_says() {
        let of = |guard, hours| panics_of((guard, hours), vec!["/reports".into()]);
        let panics = of(None, None).expect("the default");
        assert_eq!((panics.folders.len(), panics.pause), (1, Duration::from_hours(1)));
        assert!(of(Some("off"), None).expect("off").folders.is_empty());
        assert_eq!(of(Some("on"), Some("0.5")).expect("half").pause, Duration::from_mins(30));
        assert!(matches!(of(Some("no"), None), Err(SettingsError::PanicGuard(_))));
        for hours in ["-1", "NaN", "inf", "soon", "9000"] {
            assert!(matches!(of(None, Some(hours)), Err(SettingsError::PanicCooldown(_))), "{hours}");
        }
    }

    #[test]
    fn with_no_file_the_defaults_serve() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let settings = Settings::load(&dirs(top.path()), None).expect("loaded");
        assert_eq!(settings.config, Config::default());
        assert!(settings.catalog.resolve("gemma3-270m").is_ok());
    }

    #[test]
    fn the_keys_of_the_documentation_are_valid_and_have_their_defaults() {
        let documentation = include_str!("../../../docs/configuration.md");
        let (_, rest) = documentation.split_once("```toml\n").expect("a block");
        let (text, _) = rest.split_once("```").expect("its end");
        let mut config = parse_config(Source { file: "configuration.md", text }, &|_| None).expect("valid");
        assert_eq!(config.engines.remove("llama-server"), Some(motorpool_catalog::EngineSettings::default()));
        assert_eq!(config, Config::default());
    }

    #[test]
    fn files_beside_the_configuration_replace_shipped_ones_by_id() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        fs::create_dir_all(dirs.config.join("catalog")).expect("made");
        fs::write(dirs.config.join(FILE), "[defaults]\nmodel = \"mine\"\n").expect("written");
        let entry = "id = \"gemma3-270m\"\naliases = [\"mine\"]\nsource = { file = \"/m.gguf\" }\n";
        fs::write(dirs.config.join("catalog/a.toml"), entry).expect("written");
        let settings = Settings::load(&dirs, None).expect("loaded");
        assert_eq!(settings.file, Some(dirs.config.join(FILE)));
        assert_eq!(settings.catalog.resolve("mine").expect("there").id.as_str(), "gemma3-270m");
        assert_eq!(settings.catalog.models().count(), 1);
    }

    #[test]
    fn the_default_model_is_what_default_means_and_an_own_file_takes_a_shipped_alias() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        fs::create_dir_all(dirs.config.join("catalog")).expect("made");
        let write = |name: &str, text: &str| fs::write(dirs.config.join(name), text).expect("written");
        let meant = || Settings::load(&dirs, None).map(|s| s.catalog.resolve("default").expect("known").id.to_string());
        write("catalog/a.toml", "id = \"a\"\nsource = { file = \"/a.gguf\" }\n");
        write("catalog/b.toml", "id = \"b\"\naliases = [\"default\"]\nsource = { file = \"/b.gguf\" }\n");
        assert_eq!(meant().expect("loaded"), "b");
        write(FILE, "[defaults]\nmodel = \"a\"\n");
        assert_eq!(meant().expect("loaded"), "a");
        write("catalog/a.toml", "id = \"a\"\naliases = [\"default\"]\nsource = { file = \"/a.gguf\" }\n");
        assert!(meant().expect_err("two of one layer").to_string().contains("already taken"));
    }

    #[test]
    fn a_wrong_file_is_shown_with_its_place_and_code() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("x.toml");
        fs::write(&path, "[server]\nlisen = []\n").expect("written");
        let failure = Failure::from(Settings::load(&dirs(top.path()), Some(&path)).expect_err("wrong"));
        assert_eq!(failure.exit, Exit::Config);
        assert!(failure.what.contains("x.toml:2:1") && failure.what.contains("`listen`"), "{}", failure.what);
    }

    #[test]
    fn settings_of_an_engine_that_does_not_exist_are_an_error_with_the_nearest_name() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join("x.toml");
        fs::write(&path, "[engine.llama-sever]\nprogram = \"/bin/sh\"\n").expect("written");
        let failure = Failure::from(Settings::load(&dirs(top.path()), Some(&path)).expect_err("wrong"));
        assert_eq!(failure.exit, Exit::Config);
        assert!(
            failure.what.contains("x.toml:1:1: ") && failure.what.contains("mean `llama-server`?"),
            "{}",
            failure.what
        );
    }

    #[test]
    fn a_file_that_others_can_write_to_is_distrusted() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = top.path().join(FILE);
        fs::write(&path, "").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("ours");
        assert_eq!(distrust(&path), None);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
        assert!(distrust(&path).is_some());
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_gone() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        fs::create_dir_all(&dirs.config).expect("made");
        fs::create_dir_all(dirs.data.join("models/m")).expect("made");
        fs::write(dirs.data.join("models/stray"), "").expect("written");
        fs::write(dirs.config.join("engines"), "no folder").expect("written");
        std::os::unix::fs::symlink("/no/such", dirs.config.join("dangling.toml")).expect("made");
        let settings = Settings::load(&dirs, None).expect("nothing is there");
        // Whoever follows one that leads to itself fails, also with all rights.
        let places = ["config/motorpool.toml", "config/catalog", "config/catalog/a.toml", "data/models/m/model.toml"];
        for place in places.map(|place| top.path().join(place)) {
            fs::create_dir_all(place.parent().expect("a folder")).expect("made");
            std::os::unix::fs::symlink(&place, &place).expect("made");
            let again = settings.read_again(&dirs).expect_err("it cannot be read");
            assert!(matches!(&again, SettingsError::Read { path, .. } if *path == place), "{again:?}");
            fs::remove_file(&place).expect("ours");
        }
    }

    #[test]
    fn a_file_that_was_used_and_may_not_be_any_more_is_not_gone() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = dirs(top.path());
        let mut settings = Settings::load(&dirs, None).expect("loaded");
        // The working directory of a test is nobody's: what lies there is given by hand.
        let passed = (PathBuf::from("./motorpool.toml"), "others can write to it");
        let files = Files { ignored: vec![passed.clone()], ..Files::default() };
        assert!(settings.still(&files).is_ok(), "it was not used before either");
        settings.read.push(passed.0);
        let why = settings.still(&files).expect_err("it was used");
        assert!(matches!(why, SettingsError::Distrusted { .. }), "{why:?}");
    }
}
