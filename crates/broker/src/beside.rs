//! [`Beside`]: what an engine loads beside a model's own files, and what that adds to a launch.
//!
//! A projector is counted by its size (its tensors say little about what it computes), a draft model like a model of its
//! own that runs with the same slots and context, adapters layer by layer.
use motorpool_gguf::{
    Adapter, Calibration, Footprint, LaunchSettings, ModelShape, estimate, estimate_draft, estimate_projector,
    estimate_unreadable,
};
use motorpool_vocab::Bytes;
use std::sync::Arc;

/// What an engine loads beside a model's own files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// The size of an image or audio projector's file.
    pub projector: Option<Bytes>,
    /// A smaller model that guesses.
    pub draft: Option<DraftModel>,
    /// What is added to layers.
    pub adapters: Vec<Arc<Adapter>>,
}

/// A smaller model that guesses what a model will say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DraftModel {
    /// What its header says; `None` leaves the size of its files.
    pub shape: Option<Arc<ModelShape>>,
    /// The size of its files.
    pub size: Bytes,
    /// Tokens that it guesses at a time.
    pub tokens: u32,
}

impl Beside {
    /// What a launch takes with all of this.
    pub(crate) fn estimate(
        &self,
        shape: &ModelShape,
        settings: &LaunchSettings,
        calibration: &Calibration,
    ) -> Footprint {
        let own = estimate(shape, settings, calibration).with_adapters(self.adapters.iter().map(AsRef::as_ref));
        let projector = self.projector.map_or(Bytes::ZERO, estimate_projector);
        let whole = Footprint { projector, ..own };
        match &self.draft {
            None => whole,
            Some(draft) => whole.with_draft(draft.estimate(settings, calibration), draft.tokens),
        }
    }

    /// What of it a whole does not hold whose parts are not known; the draft model's files are among that one's own.
    pub(crate) fn adapters(&self) -> Bytes {
        Bytes::sum(self.adapters.iter().map(|adapter| adapter.beside(0)))
    }
}

impl DraftModel {
    fn estimate(&self, settings: &LaunchSettings, calibration: &Calibration) -> Footprint {
        self.shape.as_ref().map_or_else(
            || {
                let all = estimate_unreadable(self.size, None);
                Footprint { compute_host: all, compute_device: all, ..Footprint::default() }
            },
            |shape| estimate_draft(shape, settings, calibration),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Parts, draft, pick_placement,
        testing::{ledger, shape, subject},
    };
    use motorpool_gguf::{read_header, write};
    use std::io::Cursor;

    fn total(beside: Beside) -> (Bytes, Footprint) {
        let subject = crate::Subject { beside, ..subject() };
        let ledger = ledger(Bytes::gib(8));
        let drafted = draft(&ledger, &[], &subject);
        let total = pick_placement(&ledger, &drafted.load).expect("it fits").claim.total();
        let Parts::Known { footprint, .. } = drafted.load.parts else { panic!("its parts are known") };
        (total, footprint)
    }

    fn more(beside: Beside) -> Bytes {
        total(beside).0.saturating_sub(total(Beside::default()).0)
    }

    #[test]
    fn a_projector_costs_what_the_formula_says() {
        let projector = Some(Bytes::mib(100));
        assert_eq!(more(Beside { projector, ..Beside::default() }), Bytes::mib(110 + 384));
    }

    #[test]
    fn a_draft_model_costs_what_it_would_alone_but_for_the_process_and_the_prompts() {
        let draft = |shape| Some(DraftModel { shape, size: Bytes::mib(300), tokens: 3 });
        let (whole, footprint) = total(Beside { draft: draft(Some(Arc::new(shape()))), ..Beside::default() });
        let inner = footprint.draft.as_deref().expect("a draft model");
        assert!(inner.baseline.is_zero() && inner.prompt_cache.is_zero() && inner.device_overhead.is_zero());
        assert!(inner.cache() > footprint.cache(), "16 bits, whatever the model's own are");
        assert_eq!(footprint.guesses, footprint.results.saturating_mul(3));
        let added = inner.on_processor().saturating_add(footprint.guesses);
        assert_eq!(whole.saturating_sub(total(Beside::default()).0), added);
        let unread = more(Beside { draft: draft(None), ..Beside::default() });
        assert!(unread > Bytes::mib(330 + 256), "by its size: {unread}");
    }

    #[test]
    fn an_adapter_is_added_to_the_layers_that_it_changes() {
        let tensor = write::Writer::new()
            .set("general.architecture", "llama")
            .set("general.type", "adapter")
            .tensor("blk.1.ffn_up.weight.lora_a", motorpool_gguf::TensorType::F32, &[64, 4], vec![0; 1024])
            .tensor("blk.7.ffn_up.weight.lora_a", motorpool_gguf::TensorType::F32, &[64, 8], vec![0; 2048])
            .tensor("output.weight.lora_a", motorpool_gguf::TensorType::F32, &[64, 1], vec![0; 256]);
        let bytes = tensor.finish();
        let header = read_header(Cursor::new(&bytes), u64::try_from(bytes.len()).expect("small")).expect("whole");
        let adapter = Arc::new(Adapter::of(&header).expect("an adapter"));
        let (_, footprint) = total(Beside { adapters: vec![adapter.clone(), adapter.clone()], ..Beside::default() });
        let of_layers: Vec<u64> = footprint.layers.iter().map(|layer| layer.adapters.get()).collect();
        assert_eq!((of_layers, footprint.adapters), (vec![0, 2048], Bytes::new(2 * (2048 + 256))));
        assert_eq!(more(Beside { adapters: vec![adapter], ..Beside::default() }), Bytes::new(1024 + 2048 + 256));
        let model = write::Smoke::default().writer().finish();
        let header = read_header(Cursor::new(&model), u64::try_from(model.len()).expect("small")).expect("whole");
        assert!(Adapter::of(&header).is_err(), "a model is no adapter");
    }
}
