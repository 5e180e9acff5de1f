//! [`Adapter`]: what a `LoRA` file adds to a model, by the layer that it changes.
//!
//! An engine puts the two thin matrices of each changed tensor beside that tensor, so they move with its layer; it reads
//! them, maps nothing, and keeps them in buffers of their own.
use crate::{GgufError, Header, ModelShape, limits, stored::block_of};
use motorpool_vocab::Bytes;
use std::collections::BTreeMap;

/// A `LoRA` adapter as far as its memory is concerned.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Adapter {
    /// By layer; only layers that it changes.
    layers: BTreeMap<usize, Bytes>,
    /// What belongs to no layer: it is beside the output or the token embeddings.
    rest: Bytes,
}

impl Adapter {
    /// Reads what an adapter's header says. A file of something else is refused.
    pub fn of(header: &Header) -> Result<Self, GgufError> {
        const KIND: &str = "general.type";
        if header.metadata().str(KIND) != Some("adapter") {
            return Err(GgufError::Key { key: KIND.into(), problem: "is not `adapter`".into() });
        }
        let mut adapter = Self::default();
        for tensor in header.tensors() {
            let layer =
                block_of(&tensor.name).map(|(n, _)| n).filter(|n| u64::try_from(*n).is_ok_and(|n| n < limits::BLOCKS));
            let sum = layer.map_or(&mut adapter.rest, |n| adapter.layers.entry(n).or_default());
            *sum = sum.saturating_add(tensor.bytes);
        }
        Ok(adapter)
    }

    /// What control vectors take for a model of `shape`, however many they are: one vector for each layer.
    pub fn control_vectors(shape: &ModelShape) -> Self {
        let vector = Bytes::new(4).saturating_mul(shape.widths.embedding);
        Self { layers: (0..shape.n_layers()).map(|n| (n, vector)).collect(), rest: Bytes::ZERO }
    }

    /// What it adds to layer `n`.
    pub fn layer(&self, n: usize) -> Bytes {
        self.layers.get(&n).copied().unwrap_or_default()
    }

    /// What it adds to a model of `n_layers` beside its layers; what it has for layers that are not there is counted too.
    pub fn beside(&self, n_layers: usize) -> Bytes {
        Bytes::sum(self.layers.range(n_layers..).map(|(_, bytes)| *bytes).chain([self.rest]))
    }
}
