//! [`Footprint`]: what one launch of a model takes, by part, before anybody decides where it goes.
//!
//! Parts that can be on a graphics device stand apart from those that are always in system memory, and everything that
//! moves with a layer stands with that layer. Placing is the broker's: it sums what it put where.
use motorpool_vocab::Bytes;

/// What one launch takes. Sizes are what the engine reserves, touched or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The repeating layers, in order; a device gets the last ones first.
    pub layers: Vec<LayerBytes>,
    /// What comes after the last repeating layer: norm and output weights. Goes to a device before any layer does.
    pub output: Weights,
    /// Token embeddings that serve as output too: a copy on the device that has the output, none in system memory.
    pub output_copy: Bytes,
    /// Weights that are always in system memory: token embeddings and their like.
    pub input: Bytes,
    /// The compute buffer of system memory when every layer is there.
    pub compute_host: Bytes,
    /// The compute buffer of each device that has a layer.
    pub compute_device: Bytes,
    /// The compute buffer of system memory when at least one layer is on a device.
    pub compute_beside_device: Bytes,
    /// Results of the last layer: logits or embeddings of every slot. Always system memory.
    pub results: Bytes,
    /// Most that finished prompts may take. Always system memory.
    pub prompt_cache: Bytes,
    /// Most that checkpoints of all slots may take. Always system memory.
    pub checkpoints: Bytes,
    /// What a process takes beside its buffers. Always system memory.
    pub baseline: Bytes,
    /// What the driver takes on each device that has a layer.
    pub device_overhead: Bytes,
    /// Image or audio projector: weights and compute. On the first device when there is one.
    pub projector: Bytes,
    /// What adapters have for no layer: beside the output.
    pub adapters: Bytes,
    /// Draft model: all of it on the first device when there is one, but for what is always in system memory.
    pub draft: Option<Box<Footprint>>,
    /// Logits of the tokens that a draft model guesses, made when they are first checked. Always system memory.
    pub guesses: Bytes,
}

/// What moves with one repeating layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerBytes {
    /// Everything but experts.
    pub dense: Weights,
    /// Weights of experts, which can stay in system memory while the rest of the layer is on a device.
    pub experts: Weights,
    /// Weights that stay in system memory though the rest of the layer is on a device.
    pub kept: Weights,
    /// KV cache or recurrent state, of all slots.
    pub cache: Bytes,
    /// What adapters add.
    pub adapters: Bytes,
}

/// Weights, and what they cost more in system memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weights {
    /// As they stand in the file.
    pub file: Bytes,
    /// A second copy in the processor's preferred order, made only of weights in system memory.
    pub repacked: Bytes,
}

impl Footprint {
    /// KV cache and recurrent state of all layers.
    pub fn cache(&self) -> Bytes {
        Bytes::sum(self.layers.iter().map(|layer| layer.cache))
    }

    /// Everything, when all of it is in system memory.
    pub fn on_processor(&self) -> Bytes {
        let weights = |weights: Weights| weights.file.saturating_add(weights.repacked);
        let layer = |l: &LayerBytes| [weights(l.dense), weights(l.experts), weights(l.kept), l.cache, l.adapters];
        let layers = self.layers.iter().map(|l| Bytes::sum(layer(l)));
        let rest = [
            weights(self.output),
            self.input,
            self.compute_host,
            self.results,
            self.prompt_cache,
            self.checkpoints,
            self.baseline,
            self.projector,
            self.adapters,
            self.draft.as_ref().map_or(Bytes::ZERO, |draft| draft.on_processor()),
            self.guesses,
        ];
        Bytes::sum(layers.chain(rest))
    }

    /// All weights of the model's own files, without second copies.
    pub fn weights(&self) -> Bytes {
        let layers = self.layers.iter().flat_map(|layer| [layer.dense.file, layer.experts.file, layer.kept.file]);
        Bytes::sum(layers.chain([self.output.file, self.input]))
    }
}
