//! `motorpool model pull | list | show | verify | rm`.
use crate::{
    args::Model as Command,
    client::Client,
    dirs::Dirs,
    disk::Sum,
    exit::Failure,
    model::{
        ModelError,
        pull::{self, Wanted},
        store::{self, Presence, Store},
    },
    out::{self, Out},
    progress::{Progress, Unit},
    settings::Settings,
};
use motorpool_catalog::{Model, ModelSource};
use motorpool_vocab::Bytes;
use serde::Serialize;
use std::{fs, path::PathBuf};

/// What the commands work on.
struct Shelf<'a> {
    dirs: &'a Dirs,
    out: Out,
    settings: Settings,
    store: Store,
}

pub(super) async fn perform(dirs: &Dirs, out: Out, (settings, command): (Settings, Command)) -> Result<(), Failure> {
    let shelf = Shelf { dirs, out, settings, store: Store::new(dirs) };
    match command {
        Command::Pull { model } => shelf.pull(&model).await,
        Command::List => shelf.list(),
        Command::Show { model } => shelf.show(&model),
        Command::Verify { model } => shelf.verify(model.as_deref()),
        Command::Rm { model } => shelf.rm(&model).await,
    }
}

/// A row of `model list`.
#[derive(Serialize)]
struct Row {
    id: String,
    source: &'static str,
    state: Presence,
    bytes: Option<u64>,
    file: PathBuf,
}

/// What `model show` prints.
#[derive(Serialize)]
struct Card {
    #[serde(flatten)]
    row: Row,
    aliases: Vec<String>,
    engine: String,
    capabilities: Vec<&'static str>,
    tags: Vec<String>,
    sha256: Option<String>,
    architecture: Option<String>,
    trained_context: Option<u64>,
    terms: Option<String>,
}

impl Shelf<'_> {
    async fn pull(&self, name: &str) -> Result<(), Failure> {
        let wanted = Wanted::parse(name, (&self.store, &self.settings.catalog))?;
        let pulled = pull::pull(self.dirs, &self.settings.catalog, wanted).await?;
        self.out.data(&pulled, || format!("{} is ready: {}\n", pulled.id, pulled.file.display()))
    }

    fn row(&self, model: &Model) -> Row {
        let (file, state) = (self.store.path_of(model), self.store.presence(model));
        let bytes = (state != Presence::Absent).then(|| store::size_of(&file)).filter(|size| !size.is_zero());
        Row { id: model.id.to_string(), source: source_kind(&model.source), state, bytes: bytes.map(Bytes::get), file }
    }

    fn list(&self) -> Result<(), Failure> {
        let rows: Vec<_> = self.settings.catalog.models().map(|model| self.row(model)).collect();
        self.out.data(&rows, || {
            let cells = |row: &Row| {
                let size = row.bytes.map_or_else(|| "-".to_owned(), |n| Bytes::new(n).to_string());
                let file = row.file.display().to_string();
                vec![row.id.clone(), row.state.as_str().to_owned(), size, row.source.to_owned(), file]
            };
            out::table(&["MODEL", "STATE", "SIZE", "SOURCE", "FILE"], rows.iter().map(cells).collect())
        })
    }

    fn show(&self, name: &str) -> Result<(), Failure> {
        let model = self.settings.catalog.resolve(name).map_err(ModelError::from)?;
        let row = self.row(model);
        let header = store::header_of(&row.file).ok();
        let card = Card {
            aliases: model.aliases.clone(),
            engine: model.engine.clone(),
            capabilities: model.capabilities.iter().map(|capability| capability.as_str()).collect(),
            tags: model.tags.clone(),
            sha256: self.store.record(&model.id).map(|pulled| pulled.sha256.to_string()),
            architecture: header.as_ref().and_then(|header| header.architecture().map(str::to_owned)),
            trained_context: header.as_ref().and_then(motorpool_gguf::Header::context_length),
            terms: model.license.as_ref().map(|terms| format!("{}\n{}", terms.name, terms.text.trim())),
            row,
        };
        self.out.data(&card, || card.for_people())
    }

    fn verify(&self, name: Option<&str>) -> Result<(), Failure> {
        let models: Vec<_> = match name {
            Some(name) => vec![self.settings.catalog.resolve(name).map_err(ModelError::from)?],
            None => self.settings.catalog.models().filter(|model| self.should_be_here(model)).collect(),
        };
        let (mut whole, mut bad) = (Vec::new(), Vec::new());
        for model in models {
            match self.verify_one(model) {
                Ok(id) => whole.push(id),
                Err(error) => bad.push(Failure::from(error)),
            }
        }
        self.out.data(&whole, || match whole.as_slice() {
            [] => String::new(),
            ids => format!("{} whole\n", ids.join(", ")),
        })?;
        let Some(last) = bad.pop() else { return Ok(()) };
        bad.iter().for_each(out::say_failure);
        Err(last)
    }

    /// A file of the user's always should be; another only once it was pulled.
    fn should_be_here(&self, model: &Model) -> bool {
        matches!(model.source, ModelSource::File(_)) || self.store.record(&model.id).is_some()
    }

    fn verify_one(&self, model: &Model) -> Result<String, ModelError> {
        let file = self.store.path_of(model);
        match self.store.record(&model.id) {
            None if !matches!(model.source, ModelSource::File(_)) => return Err(ModelError::Absent(model.id.clone())),
            None => {}
            Some(pulled) => {
                let mut progress = Progress::begin(&format!("checking {}", model.id), Unit::BytesRead);
                progress.set_total(pulled.stamp.size);
                let found = Sum::of_file(&file, |n| progress.set(n))
                    .map_err(|source| ModelError::Disk { path: file.clone(), source })?;
                progress.done("read");
                if found != pulled.sha256 {
                    return Err(ModelError::Hash { path: file, wanted: pulled.sha256, found });
                }
            }
        }
        store::header_of(&file)?;
        Ok(model.id.to_string())
    }

    async fn rm(&self, name: &str) -> Result<(), Failure> {
        let model = self.settings.catalog.resolve(name).map_err(ModelError::from)?;
        let home = self.store.home(&model.id);
        if !home.is_dir() {
            let mine = matches!(model.source, ModelSource::File(_));
            let why = if mine { ModelError::Yours } else { ModelError::Absent };
            return Err(why(model.id.clone()).into());
        }
        let client = Client::new(&self.dirs.live_control_socket());
        if super::ps::in_use(&client, |key| key.model() == &model.id).await?.is_some() {
            return Err(ModelError::InUse(model.id.clone()).into());
        }
        fs::remove_dir_all(&home).map_err(|source| ModelError::Disk { path: home.clone(), source })?;
        out::say(format_args!("removed {}", home.display()));
        Ok(())
    }
}

impl Card {
    fn for_people(&self) -> String {
        let size = self.row.bytes.map_or_else(String::new, |n| Bytes::new(n).to_string());
        let context = self.trained_context.map_or_else(String::new, |n| format!("{n} tokens"));
        let lines = [
            ("model", self.row.id.clone()),
            ("aliases", self.aliases.join(", ")),
            ("engine", self.engine.clone()),
            ("for", self.capabilities.join(", ")),
            ("tags", self.tags.join(", ")),
            ("state", self.row.state.as_str().to_owned()),
            ("file", self.row.file.display().to_string()),
            ("size", size),
            ("sha256", self.sha256.clone().unwrap_or_default()),
            ("architecture", self.architecture.clone().unwrap_or_default()),
            ("trained on", context),
            ("terms", self.terms.clone().unwrap_or_default().replace('\n', "\n              ")),
        ];
        let shown = lines.iter().filter(|(_, value)| !value.is_empty());
        shown.map(|(name, value)| [&format!("{name:<13} "), value.as_str(), "\n"].concat()).collect()
    }
}

fn source_kind(source: &ModelSource) -> &'static str {
    match source {
        ModelSource::Pypi { .. } => "pypi",
        ModelSource::Https { .. } => "https",
        ModelSource::File(_) => "file",
    }
}
