//! `motorpool config check`: everything that would keep the daemon from using its files, all at once.
//!
//! Files are read one by one; what shows only beside others is looked at among those that read, so that no fault is told
//! that only follows from another one.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure, chain},
    external,
    out::{self, Out},
    settings::{self, Files},
};
use clap::Args;
use motorpool_catalog::{
    Catalog, Config, ConfigError, FileKind, Manifest, Model, Source, faults, overlay_manifests, overlay_models,
    parse_config, parse_manifest, parse_model, shipped, without_userinfo,
};
use serde::Serialize;
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Debug, Args)]
pub(crate) struct Check {
    /// One file, or a folder with motorpool.toml, engines/ and catalog/; without it, what `serve` would use
    #[arg(value_name = "FILE|DIR")]
    path: Option<PathBuf>,
}

/// One thing that is wrong.
#[derive(Debug, Serialize)]
struct Trouble {
    file: Option<String>,
    line: Option<usize>,
    column: Option<usize>,
    message: String,
    /// The known name most like what was written.
    nearest: Option<String>,
    /// A line that is right there.
    example: Option<&'static str>,
    cure: Option<String>,
    /// All of it, for people.
    #[serde(skip)]
    shown: String,
}

#[derive(Debug, Default, Serialize)]
struct Report {
    files: Vec<Looked>,
    troubles: Vec<Trouble>,
}

#[derive(Debug, Serialize)]
struct Looked {
    kind: &'static str,
    path: String,
}

pub(super) fn perform(dirs: &Dirs, out: Out, (explicit, check): (Option<&Path>, &Check)) -> Result<(), Failure> {
    let report = match check.path.as_deref() {
        None => Report::of(&Files::find(dirs, explicit)?),
        Some(folder) if folder.is_dir() => Report::of(&Files::in_folder(folder)?),
        Some(path) => match kind_of(path) {
            FileKind::Config => Report::of(&Files::beside(path)?),
            kind => Report::of_one(kind, path)?,
        },
    };
    let Report { files, troubles } = &report;
    let outcome = match troubles.len() {
        0 => Ok(()),
        n => {
            let what = format!("{n} fault{} in {} file{}", plural(n), files.len(), plural(files.len()));
            Err(Failure::new(Exit::Config, what, "correct them and run this again"))
        }
    };
    for trouble in troubles {
        out::say(format_args!("{}\n", trouble.shown));
    }
    out.data(&report, || {
        let line = |looked: &Looked| format!("{:<7} {}\n", looked.kind, looked.path);
        let listed = files.iter().map(line).collect::<String>();
        match (files.as_slice(), &outcome) {
            ([], Ok(())) => "there are no files: the defaults serve\n".to_owned(),
            (_, Ok(())) => format!("{listed}nothing is wrong\n"),
            (_, Err(_)) => listed,
        }
    })?;
    outcome
}

const fn plural(n: usize) -> &'static str {
    if n == 1 { "" } else { "s" }
}

impl Report {
    /// All of these, as the daemon would read them.
    fn of(files: &Files) -> Self {
        let mut report = Self::default();
        let config = match &files.config {
            Some(path) => report.read(FileKind::Config, path, parse_config),
            None => Some(Config::default()),
        };
        let engines: Vec<Option<Manifest>> =
            files.engines.iter().map(|path| report.read(FileKind::Engine, path, parse_manifest)).collect();
        let mut models = |paths: &[PathBuf]| -> Vec<Option<Model>> {
            paths.iter().map(|path| report.read(FileKind::Model, path, parse_model)).collect()
        };
        let (pulled, own) = (models(&files.pulled), models(&files.models));
        let paths = files.pulled.iter().chain(&files.models).zip(pulled.iter().chain(&own));
        let unread: Vec<&PathBuf> = paths.filter(|(_, model)| model.is_none()).map(|(path, _)| path).collect();
        let whole = engines.iter().all(Option::is_some) && pulled.iter().chain(&own).all(Option::is_some);
        let (manifests, base) = shipped();
        let manifests = overlay_manifests(manifests, engines.into_iter().flatten().collect());
        let models = overlay_models(base, pulled.into_iter().flatten().collect());
        let models = overlay_models(models, own.into_iter().flatten().collect());
        let conflicts = if whole { Catalog::faults(manifests.clone(), models.clone()) } else { vec![] };
        report.add(&conflicts);
        if let Some(config) = config {
            match Catalog::new(manifests, models.clone()) {
                Ok(catalog) if whole => report.across(&config, &catalog),
                Ok(_) | Err(_) => report.default_model(&config, &models, &unread),
            }
            report.external(&config);
        }
        report.environment();
        report
    }

    /// This one; a model among the engines that lie beside it.
    fn of_one(kind: FileKind, path: &Path) -> Result<Self, settings::SettingsError> {
        let mut report = Self::default();
        match kind {
            FileKind::Config => return Ok(Self::of(&Files::beside(path)?)),
            FileKind::Engine => drop(report.read(kind, path, parse_manifest)),
            FileKind::Host => drop(report.read(kind, path, motorpool_catalog::parse_host)),
            FileKind::Model => {
                if let Some(model) = report.read(kind, path, parse_model) {
                    let (manifests, _) = shipped();
                    let beside = path.parent().and_then(Path::parent).unwrap_or(Path::new("."));
                    let (own, _) = settings::toml_files(&beside.join("engines"))?;
                    let own = own.iter().filter_map(|path| read(path, parse_manifest)).collect();
                    report.add(&Catalog::faults(overlay_manifests(manifests, own), vec![model]));
                }
            }
        }
        Ok(report)
    }

    fn read<T>(&mut self, kind: FileKind, path: &Path, parse: settings::Parse<T>) -> Option<T> {
        self.files.push(Looked { kind: kind.as_str(), path: path.display().to_string() });
        match fs::read_to_string(path) {
            Ok(text) => {
                let file = path.display().to_string();
                self.add(&faults(kind, Source { file: &file, text: &text }, &variable));
            }
            Err(source) => self.fail(settings::SettingsError::Read { path: path.to_owned(), source }.into()),
        }
        read(path, parse)
    }

    fn add(&mut self, faults: &[ConfigError]) {
        self.troubles.extend(faults.iter().map(Trouble::of));
    }

    fn fail(&mut self, Failure { what, cure, .. }: Failure) {
        let shown = format!("{what}\n  {cure}");
        let (file, line, column, nearest, example) = (None, None, None, None, None);
        self.troubles.push(Trouble { file, line, column, message: what, nearest, example, cure: Some(cure), shown });
    }

    /// What shows only when all files are there.
    fn across(&mut self, config: &Config, catalog: &Catalog) {
        self.add(config.check_engines(catalog).err().as_slice());
        if let Some(unknown) = config.defaults.model.as_ref().and_then(|name| catalog.resolve(name).err()) {
            self.fail(settings::SettingsError::Default(unknown).into());
        }
    }

    /// Whether the default model is one, where not all files could be taken. It may be that of a file that is wrong.
    fn default_model(&mut self, config: &Config, models: &[Model], unread: &[&PathBuf]) {
        let Some(name) = &config.defaults.model else { return };
        let means = |known: &str| known == name || known.contains('*');
        let is_called = |model: &Model| means(model.id.as_str()) || model.aliases.iter().any(|alias| means(alias));
        if models.iter().any(is_called) || unread.iter().any(|path| may_say(path, means)) {
            return;
        }
        if let Err(unknown) = Catalog::default().resolve(name) {
            self.fail(settings::SettingsError::Default(unknown).into());
        }
    }

    /// What is said of other servers needs no model of ours.
    fn external(&mut self, config: &Config) {
        for failure in external::check(config) {
            self.fail(failure);
        }
    }

    fn environment(&mut self) {
        let failures =
            [settings::budget_of_environment().err(), settings::load_slots(1).err(), settings::panics().err()];
        for error in failures.into_iter().flatten() {
            self.fail(error.into());
        }
    }
}

impl Trouble {
    fn of(error: &ConfigError) -> Self {
        Self {
            file: Some(error.file().to_owned()),
            line: error.line(),
            column: error.column(),
            message: without_userinfo(&chain(error.fault())).into_owned(),
            nearest: error.fault().nearest().map(str::to_owned),
            example: error.example(),
            cure: None,
            shown: error.to_string(),
        }
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn read<T>(path: &Path, parse: settings::Parse<T>) -> Option<T> {
    let (text, file) = (fs::read_to_string(path).ok()?, path.display().to_string());
    parse(Source { file: &file, text: &text }, &variable).ok()
}

/// Whether the model of this file, which is wrong, may have a name like that.
fn may_say(path: &Path, means: impl Fn(&str) -> bool) -> bool {
    let Some(table) = fs::read_to_string(path).ok().and_then(|text| text.parse::<toml::Table>().ok()) else {
        return true;
    };
    let names =
        table.get("id").into_iter().chain(table.get("aliases").and_then(toml::Value::as_array).into_iter().flatten());
    names.into_iter().any(|name| name.as_str().is_none_or(&means))
}

/// What kind of file this is: by its folder, else by what only one kind has.
fn kind_of(path: &Path) -> FileKind {
    let folder = std::path::absolute(path).ok();
    let folder = folder.as_deref().and_then(Path::parent).and_then(Path::file_name).and_then(|name| name.to_str());
    let table: toml::Table = fs::read_to_string(path).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
    let has = |key: &str| table.contains_key(key);
    match folder {
        _ if has("host") => FileKind::Host,
        Some("engines") => FileKind::Engine,
        Some("catalog") => FileKind::Model,
        _ if has("source") || has("id") => FileKind::Model,
        _ if has("transport") || has("program") => FileKind::Engine,
        _ => FileKind::Config,
    }
}
