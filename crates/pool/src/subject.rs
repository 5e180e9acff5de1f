//! What the catalog and a look at the files say of a model, in the broker's terms.
use crate::{Facts, KvType};
use motorpool_broker::{Choice, ContextWish, FixedSettings, Profile, Purpose, SlidingWindow, Subject, Wishes};
use motorpool_catalog::{Batch, Capability, Model};

/// What is known of `model` before it is launched: what a build of it is planned from, and every plan without a build.
pub fn subject(model: &Model, facts: &Facts) -> Subject {
    Subject {
        wishes: wishes(model, facts),
        declared: model.declared,
        choice: Choice {
            devices: (!model.devices.is_empty()).then(|| model.devices.clone()),
            gpu_layers: model.gpu_layers,
            cpu_moe: model.n_cpu_moe,
        },
        files: facts.files.clone(),
        shape: facts.shape.clone(),
        calibration: facts.calibration.clone(),
        settings: settings(model, facts),
    }
}

fn wishes(model: &Model, facts: &Facts) -> Wishes {
    Wishes {
        context: match model.context {
            None => ContextWish::Unasked,
            Some(motorpool_catalog::ContextWish::Tokens(tokens)) => ContextWish::Tokens(tokens),
            Some(motorpool_catalog::ContextWish::Max) => ContextWish::Own,
        },
        context_min: model.context_min,
        slots: model.slots,
        kv: model.kv_type.as_deref().and_then(KvType::from_name),
        profile: match model.profile {
            None => Profile::General,
            Some(motorpool_catalog::Profile::Agent) => Profile::Agent,
        },
        context_own: facts.context_length,
        architecture: facts.architecture.clone(),
    }
}

fn settings(model: &Model, facts: &Facts) -> FixedSettings {
    // An embedding model's batch follows from its context; of a longer one than planned no more is computed at once.
    let context = model.context.and_then(motorpool_catalog::ContextWish::tokens).or(facts.context_length);
    let Batch { logical, physical } = Batch::for_model(&model.capabilities, context.unwrap_or(u32::MAX));
    let embeds = |c: &Capability| matches!(c, Capability::Embeddings | Capability::Rerank);
    FixedSettings {
        batch: logical,
        physical_batch: physical,
        purpose: if model.capabilities.iter().any(embeds) { Purpose::Embed } else { Purpose::Generate },
        sliding_window: if model.extra_args.iter().any(|arg| arg == "--swa-full") {
            SlidingWindow::Full
        } else {
            SlidingWindow::Window
        },
        checkpoints: model.checkpoints,
        prompt_cache: model.prompt_cache,
    }
}
