//! What a launch takes: from the header, or where it cannot be read from the file's size alone.
use crate::{
    Adapter, Calibration, Footprint, LaunchSettings, LayerBytes, ModelShape, Purpose, TensorType, Weights,
    cache::{checkpoint, layer_cache},
    compute::compute,
};
use motorpool_vocab::Bytes;

/// What a launch takes, by part. Projector and draft model are other files: [`estimate_projector`] and
/// [`estimate_draft`] say what they add.
///
/// Proportional to the number of layers. Every size saturates.
pub fn estimate(shape: &ModelShape, settings: &LaunchSettings, calibration: &Calibration) -> Footprint {
    let compute = compute(shape, settings, calibration);
    let layers = shape.layers.iter().map(|layer| LayerBytes {
        dense: layer.stored.dense.weights(calibration),
        experts: layer.stored.experts.weights(calibration),
        kept: layer.stored.kept.weights(calibration),
        cache: layer_cache(layer, shape, settings),
        adapters: Bytes::ZERO,
    });
    let tied = shape.tied_output.as_ref();
    // Embeddings that serve twice are repacked for their second service only.
    let twice = tied.filter(|_| !shape.keeps_nothing).map_or(Bytes::ZERO, |tied| tied.repacked(calibration));
    let Weights { file, repacked } = shape.output.weights(calibration);
    Footprint {
        layers: layers.collect(),
        output: Weights { file, repacked: repacked.saturating_add(twice) },
        output_copy: tied.map_or(Bytes::ZERO, |tied| tied.file),
        input: shape.input,
        compute_host: compute.main,
        compute_device: compute.main,
        compute_beside_device: compute.beside_device,
        results: results(shape, settings),
        prompt_cache: settings.prompt_cache,
        checkpoints: checkpoint(shape, settings)
            .saturating_mul(settings.checkpoints.into())
            .saturating_mul(settings.n_slots()),
        baseline: calibration.baseline,
        device_overhead: calibration.device_overhead,
        projector: Bytes::ZERO,
        adapters: Bytes::ZERO,
        draft: None,
        guesses: Bytes::ZERO,
    }
}

/// A row of logits for each slot, and a vector when vectors are wanted (llama-server.md §4.3).
fn results(shape: &ModelShape, settings: &LaunchSettings) -> Bytes {
    let vector = match settings.purpose {
        Purpose::Generate => 0,
        Purpose::Embed => shape.widths.embedding,
    };
    Bytes::new(4).saturating_mul(shape.n_vocab.saturating_add(vector)).saturating_mul(settings.n_slots())
}

/// What a draft model adds, in the process of the model it guesses for: weights, cache of 16 bits, compute, results. It
/// runs with that model's slots, context and batches (`settings`); prompts are kept in that model's cache.
///
/// Held against llama-server 11434 with `--spec-draft-model`: the buffers of the same model started alone.
pub fn estimate_draft(shape: &ModelShape, settings: &LaunchSettings, calibration: &Calibration) -> Footprint {
    let settings = LaunchSettings {
        kv_keys: TensorType::F16,
        kv_values: TensorType::F16,
        purpose: Purpose::Generate,
        prompt_cache: Bytes::ZERO,
        ..settings.clone()
    };
    Footprint { baseline: Bytes::ZERO, device_overhead: Bytes::ZERO, ..estimate(shape, &settings, calibration) }
}

impl Footprint {
    /// The same with adapters beside the tensors that they change.
    #[must_use]
    pub fn with_adapters<'a>(mut self, adapters: impl IntoIterator<Item = &'a Adapter>) -> Self {
        for adapter in adapters {
            self.adapters = self.adapters.saturating_add(adapter.beside(self.layers.len()));
            for (n, layer) in self.layers.iter_mut().enumerate() {
                layer.adapters = layer.adapters.saturating_add(adapter.layer(n));
            }
        }
        self
    }

    /// The same with a draft model that guesses so many tokens at a time: each needs logits of its own.
    #[must_use]
    pub fn with_draft(self, draft: Self, n_tokens: u32) -> Self {
        Self { guesses: self.results.saturating_mul(n_tokens.into()), draft: Some(Box::new(draft)), ..self }
    }
}

/// What an image or audio projector adds: `round(size × 1.1) + 384 MiB`, as in [`estimate_unreadable`].
pub fn estimate_projector(size: Bytes) -> Bytes {
    with_tenth(size.get().into()).saturating_add(Bytes::mib(384))
}

/// `round((size + projector) × 1.1) + 256 MiB`, and 384 MiB more with a projector; saturating.
///
/// The formula is the specification's (capacity §6): weights and a tenth for the cache of a short context, then what
/// every process takes.
pub fn estimate_unreadable(size: Bytes, projector: Option<Bytes>) -> Bytes {
    let files = u128::from(size.get()) + u128::from(projector.unwrap_or(Bytes::ZERO).get());
    let overhead = if projector.is_some() { Bytes::mib(256 + 384) } else { Bytes::mib(256) };
    with_tenth(files).saturating_add(overhead)
}

/// How the weights of a model lie on disk, where no header of ours tells what they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One file, or its shards.
    #[default]
    Files,
    /// A folder of files, as MLX and vLLM read it.
    Folder,
}

/// A folder of weights: `round(size × 1.02) + 1 GiB` (capacity §6, for MLX), saturating.
pub fn estimate_folder(size: Bytes) -> Bytes {
    let whole = (u128::from(size.get()) * 102 + 50) / 100;
    u64::try_from(whole).map_or(Bytes::MAX, Bytes::new).saturating_add(Bytes::gib(1))
}

fn with_tenth(size: u128) -> Bytes {
    u64::try_from((size * 11 + 5) / 10).map_or(Bytes::MAX, Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_added_rounded_and_the_overhead_after_it() {
        let overhead = Bytes::mib(256).get();
        for (size, expected) in [(0, 0), (4, 4), (5, 6), (10, 11), (14, 15), (15, 17), (1_000_000, 1_100_000)] {
            assert_eq!(estimate_unreadable(Bytes::new(size), None), Bytes::new(expected + overhead), "{size}");
        }
    }

    #[test]
    fn a_projector_adds_its_file_and_its_own_overhead() {
        let with = estimate_unreadable(Bytes::new(1000), Some(Bytes::new(500)));
        assert_eq!(with, Bytes::new(1650).saturating_add(Bytes::mib(640)));
    }

    #[test]
    fn the_largest_sizes_do_not_wrap() {
        assert_eq!(estimate_unreadable(Bytes::MAX, Some(Bytes::MAX)), Bytes::MAX);
        assert_eq!(estimate_folder(Bytes::MAX), Bytes::MAX);
    }

    #[test]
    fn a_folder_adds_a_fiftieth_rounded_and_a_gibibyte() {
        for (size, expected) in [(0, 0), (24, 24), (25, 26), (1_000_000, 1_020_000)] {
            assert_eq!(estimate_folder(Bytes::new(size)), Bytes::gib(1).saturating_add(Bytes::new(expected)), "{size}");
        }
    }
}
