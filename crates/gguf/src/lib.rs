//! GGUF model files: what the header says, checked before anybody relies on it.
//!
//! An engine that is handed a damaged file ends with exit code 1 seconds later, perhaps after another model was
//! stopped to make room for it. This crate finds the damage first, from the header alone: [`read_header`] reads
//! metadata and tensor descriptions, never the tensors, and accepts what llama.cpp accepts.
//!
//! ```text
//! magic "GGUF", version, n_tensors, n_keys       scan.rs      bytes in order, checked against the file's length
//! n_keys    × key, type, value                   metadata.rs  small values kept, token lists skipped
//! n_tensors × name, dimensions, type, offset     tensor.rs    sizes, and offsets as running sums
//! padding to `general.alignment`
//! tensor data                                    not read; its bounds are
//! ```
//!
//! Boundary: input only through `Read + Seek`; no clock, no async, no unsafe. [`mod@write`] is the inverse, for tests
//! and tiny models. Files in several shards are named and compared in `split.rs`.
//!
//! A checked header becomes a [`ModelShape`], and [`estimate`] says what a launch of it takes, part by part:
//!
//! ```text
//! headers ─► shape.rs (hyper.rs, stored.rs, architecture.rs) ─► ModelShape ─┐
//!                      settings.rs: LaunchSettings, Calibration ──┴─► cache.rs + compute.rs ─► Footprint
//! adapter.rs: what `LoRA` files add to layers; projector and draft model are footprints beside the model's
//! an engine's log ─► reported.rs ─► the same parts as the engine made them
//! ```
//!
//! Limits, so that a hostile header costs neither time nor memory: the numbers in [`limits`].
mod adapter;
mod architecture;
mod cache;
mod compute;
mod error;
mod estimate;
mod footprint;
mod header;
mod hyper;
mod metadata;
mod reported;
mod scan;
mod settings;
mod shape;
mod split;
mod stored;
mod tensor;
mod value;
pub mod write;

pub use adapter::Adapter;
pub use compute::measured_activations;
pub use error::GgufError;
pub use estimate::{Format, estimate, estimate_draft, estimate_folder, estimate_projector, estimate_unreadable};
pub use footprint::{Footprint, LayerBytes, Weights};
pub use header::{Header, read_header};
pub use metadata::Metadata;
pub use reported::{Part, Reported};
pub use settings::{Calibration, FlashAttention, KvLayout, LaunchSettings, Purpose, SlidingWindow};
pub use shape::ModelShape;
pub use split::{Split, check_shards, shard_names};
pub use tensor::{Tensor, TensorType};
pub use value::{Scalar, Value};

/// The most of everything that a header may hold. Real headers stay far below; a header above is refused.
pub mod limits {
    /// Bytes before the tensor data. The largest vocabularies take about 20 MiB.
    pub const HEADER: u64 = 128 << 20;
    /// Metadata keys.
    pub const KEYS: u64 = 1 << 16;
    /// Tensors in one file.
    pub const TENSORS: u64 = 1 << 16;
    /// Bytes of a key, as the format says.
    pub const KEY_BYTES: u64 = (1 << 16) - 1;
    /// Bytes of a tensor's name: llama.cpp keeps 64 with the closing zero.
    pub const NAME_BYTES: u64 = 63;
    /// Bytes of a text value that is kept; a longer one is skipped.
    pub const KEPT_TEXT: u64 = 256 << 10;
    /// Elements of an array that is kept; a longer one is skipped, and so is every array of texts.
    pub const KEPT_ELEMENTS: u64 = 1 << 16;
    /// Bytes of all kept values and their keys together.
    pub const KEPT_TOTAL: u64 = 8 << 20;
    /// Layers of a model (`<architecture>.block_count`); llama.cpp holds 512.
    pub const BLOCKS: u64 = 4096;
}
