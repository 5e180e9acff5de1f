//! What was found and seen of the machine: model files and programs, children, system memory, cards.
//!
//! Boundary: whoever looks fills these in; here nothing is read. What could not be had is said to be missing, and is
//! never taken for nothing.
use crate::{Beside, Calibration, Format, Lessons, ModelShape, Reported};
use motorpool_vocab::{Bytes, FileId, Spawn};
use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

/// Which build of an engine a program is, as far as a look at its file tells: a copy is the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Build {
    /// Of the file, in bytes.
    pub size: u64,
    /// When it was last written, in nanoseconds of the epoch.
    pub mtime_nanos: i128,
}

/// What was found when program and model file were looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The program to run.
    pub program: PathBuf,
    /// Which build of its engine that is.
    pub build: Build,
    /// The file it is given, the first shard, or the folder.
    pub model_path: PathBuf,
    /// Every shard with its size, then those of its draft model.
    pub files: Vec<(FileId, Bytes)>,
    /// The model's own context length.
    pub context_length: Option<u32>,
    /// The model's architecture.
    pub architecture: Option<String>,
    /// What its header says about what it takes; `None` when nothing can be read there.
    pub shape: Option<Arc<ModelShape>>,
    /// How its weights lie on disk.
    pub format: Format,
    /// What is loaded beside it.
    pub beside: Beside,
    /// What was measured of the program.
    pub calibration: Calibration,
    /// What earlier loads of it taught.
    pub learned: Lessons,
}

impl Facts {
    /// Of a program and a model of which nothing else is known.
    pub fn bare(program: impl Into<PathBuf>, model_path: impl Into<PathBuf>) -> Self {
        Self {
            program: program.into(),
            build: Build::default(),
            model_path: model_path.into(),
            files: Vec::new(),
            context_length: None,
            architecture: None,
            shape: None,
            format: Format::default(),
            beside: Beside::default(),
            calibration: Calibration::default(),
            learned: Lessons::default(),
        }
    }
}

/// What was seen of one child, by part. `None` is what could not be had: never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measured {
    /// The buffers that its engine reported while it loaded, all of them; `None` when it does not, or some were missed.
    pub reported: Option<Reported>,
    /// Anonymous memory of its tree, swapped or not.
    pub private: Option<Bytes>,
    /// Bytes of each of the model's files that its tree has mapped.
    pub files: Option<BTreeMap<FileId, Bytes>>,
}

/// What was seen of system memory at one look. `None` is what could not be had: never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemorySight {
    /// What others than our children use.
    pub foreign: Option<Bytes>,
    /// What can be had now without anybody swapping.
    pub available: Option<Bytes>,
    /// How much of the last 10 s some task stood still for want of memory (`some avg10` of the kernel's pressure stall
    /// information), in hundredths of a percent: 0 to 10,000.
    pub stalled: Option<u16>,
    /// What of that belongs to model servers that somebody else runs here, by the names their operator gave them.
    pub servers: Vec<(String, Bytes)>,
}

/// What was seen of one graphics card at one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CardSight {
    /// Its figures.
    Seen(CardFigures),
    /// None: the driver did not answer, or not in time.
    Missing,
    /// It fell off the bus, is gone, or must be reset.
    Lost,
}

impl CardSight {
    /// Its figures, when it was seen.
    pub fn figures(&self) -> Option<&CardFigures> {
        if let Self::Seen(figures) = self { Some(figures) } else { None }
    }
}

/// Figures of one graphics card.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CardFigures {
    /// All its memory.
    pub total: Bytes,
    /// What can be had now.
    pub free: Bytes,
    /// What the tree of each of our children holds there, loading, stopping and stuck ones included; a child that is
    /// left out holds nothing. `None`: the driver does not tell, or not by our process ids.
    pub by_spawn: Option<BTreeMap<Spawn, Bytes>>,
    /// Processes there that are not ours, the largest first; empty when they cannot be told apart.
    pub tenants: Vec<Tenant>,
}

/// A process that is not ours and holds graphics memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    /// Its process id.
    pub pid: u32,
    /// What it is called, when that can be read.
    pub name: Option<String>,
    /// What it holds.
    pub bytes: Bytes,
}
