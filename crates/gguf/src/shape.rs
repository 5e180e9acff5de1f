//! [`ModelShape`]: everything of a model's headers that decides what it takes, read once.
//!
//! Sizes come from the tensors themselves (`stored.rs`), what is kept for each token from the hyperparameters
//! (`hyper.rs`), and which layer is of which kind from the table in `architecture.rs`. Numbers of hostile headers saturate or are refused; work is
//! proportional to tensors and layers, both of which have limits.
use crate::{
    GgufError, Header,
    architecture::Memory,
    check_shards,
    hyper::Keys,
    stored::{Blocks, LayerStored, Stored},
};
use motorpool_vocab::Bytes;

/// Elements of a block of every quantised cache type.
const CACHE_BLOCK: u64 = 32;

/// A model as far as its memory is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelShape {
    pub(crate) layers: Vec<Layer>,
    pub(crate) output: Stored,
    /// Token embeddings that serve as output too.
    pub(crate) tied_output: Option<Stored>,
    pub(crate) input: Bytes,
    /// Tokens that windowed layers see; 0 without such layers.
    pub(crate) window: u64,
    pub(crate) n_vocab: u64,
    pub(crate) widths: Widths,
    /// Elements of one head of keys.
    pub(crate) head: u64,
    /// Elements of one head of keys or values, wherever a layer has a cache.
    pub(crate) cached_heads: Vec<u64>,
    pub(crate) widest_values: u64,
    /// Encoders: no cache, and attention within the batch.
    pub(crate) keeps_nothing: bool,
    context_length: Option<u64>,
}

/// One repeating layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) stored: LayerStored,
    pub(crate) attention: Option<Attention>,
    /// Numbers of a sequence's state.
    pub(crate) state: u64,
}

/// What a layer keeps of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attention {
    /// Elements of keys in a cell.
    pub(crate) keys: u64,
    /// Elements of values in a cell.
    pub(crate) values: u64,
    pub(crate) reach: Reach,
}

/// How far back a layer sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Everything,
    Window,
}

/// The widest of each part over all layers, in numbers for each token unless said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Widths {
    pub(crate) embedding: u64,
    /// Embeddings that a token has for every layer, all together.
    pub(crate) embeddings_of_layers: u64,
    pub(crate) feed: u64,
    /// Two times the queries, the keys and the values.
    pub(crate) attention: u64,
    /// Heads of layers that see everything; 0 without such layers.
    pub(crate) heads: u64,
    /// Heads of layers that see a window; 0 without such layers.
    pub(crate) window_heads: u64,
    /// Projections of a state.
    pub(crate) state: u64,
    /// Numbers for each sequence, however few tokens.
    pub(crate) state_fixed: u64,
}

impl ModelShape {
    /// Whether some layers see a window of the context only.
    pub fn has_windows(&self) -> bool {
        self.layers.iter().filter_map(|layer| layer.attention.as_ref()).any(|a| a.reach == Reach::Window)
    }

    /// Reads the shape from the headers of all shards, in the order of their files.
    pub fn of(headers: &[Header]) -> Result<Self, GgufError> {
        Self::with_kept(headers, &|_| false)
    }

    /// The same where layers' tensors whose names `stays` knows are kept in system memory wherever their layer is
    /// (`-ot <pattern>=CPU`).
    pub fn with_kept(headers: &[Header], stays: &dyn Fn(&str) -> bool) -> Result<Self, GgufError> {
        check_shards(headers)?;
        let Some(first) = headers.first() else { return Err(nothing_given()) };
        let keys = Keys::of(first)?;
        let mut blocks = Blocks::of(headers, keys.n_blocks, stays);
        let layers = (0..keys.n_blocks).map(|n| keys.layer(n, &mut blocks)).collect::<Vec<_>>();
        let mut shape = Self {
            window: keys.window,
            n_vocab: blocks.n_vocab.max(keys.n_vocab),
            head: keys.key_length,
            cached_heads: if layers.iter().any(|l| l.attention.is_some()) { keys.head_lengths() } else { vec![] },
            widest_values: layers.iter().filter_map(|l| l.attention).map(|a| a.values).max().unwrap_or(0),
            keeps_nothing: keys.rules.memory == Memory::Nothing,
            context_length: first.context_length(),
            widths: Widths {
                embedding: keys.n_embd,
                embeddings_of_layers: keys.embeddings_of_layers,
                ..Widths::default()
            },
            output: blocks.output,
            tied_output: blocks.tied_output,
            input: blocks.input,
            layers,
        };
        for (n, widths) in blocks.widths.into_iter().enumerate() {
            keys.widen(&mut shape, n, widths);
        }
        Ok(shape)
    }

    /// Whether the engine stores its cache in blocks of 32 elements: it refuses heads that these do not divide.
    pub fn takes_quantised_cache(&self) -> bool {
        self.cached_heads.iter().all(|head| head.is_multiple_of(CACHE_BLOCK))
    }

    /// Repeating layers.
    pub fn n_layers(&self) -> usize {
        self.layers.len()
    }

    /// Tokens of context it was trained for.
    pub fn context_length(&self) -> Option<u64> {
        self.context_length
    }

    /// Whether it computes vectors only: an encoder without a cache.
    pub fn is_encoder(&self) -> bool {
        self.keeps_nothing
    }

    /// Whether layers have experts, which can stay in system memory.
    pub fn has_experts(&self) -> bool {
        self.layers.iter().any(|layer| !layer.stored.experts.file.is_zero())
    }

    /// All weights of all shards.
    pub fn weights(&self) -> Bytes {
        let layers = self.layers.iter().flat_map(|layer| layer.stored.files());
        Bytes::sum(layers.chain([self.output.file, self.input]))
    }
}

fn nothing_given() -> GgufError {
    GgufError::Shards { shard: 0, problem: "no file was given".into() }
}

/// What one layer's tensors say about the widths of its activations.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LayerWidths {
    pub(crate) gate: u64,
    pub(crate) up: u64,
    pub(crate) down: u64,
    /// The same of one expert.
    pub(crate) expert: [u64; 3],
    /// The same of the experts that are always asked.
    pub(crate) shared: [u64; 3],
    /// What a state is projected from, where that is a matrix of its own.
    pub(crate) state_in: u64,
}
