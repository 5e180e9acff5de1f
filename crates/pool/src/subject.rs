//! What the catalog and a look at the files say of a model, in the broker's terms.
use crate::{Facts, KvType, keeping::keeps_windows_whole};
use motorpool_broker::{
    Adapter, BatchRule, Beside, Choice, ContextWish, FixedSettings, Profile, Purpose, SlidingWindow, Subject, Wishes,
};
use motorpool_catalog::{Batch, Capability, Model};
use std::sync::Arc;

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
        format: facts.format,
        beside: beside(model, facts),
        calibration: facts.calibration.clone(),
        settings: settings(model),
        lessons: facts.learned.lessons.clone(),
    }
}

fn wishes(model: &Model, facts: &Facts) -> Wishes {
    Wishes {
        context: context(model.context),
        context_min: model.context_min,
        context_target: context(model.context_target),
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

/// Control vectors are arguments of the model; what they take follows from its shape.
fn beside(model: &Model, facts: &Facts) -> Beside {
    let mut beside = facts.beside.clone();
    if model.extra_args.iter().any(|arg| arg.starts_with("--control-vector")) {
        beside.adapters.extend(facts.shape.as_deref().map(|shape| Arc::new(Adapter::control_vectors(shape))));
    }
    beside
}

fn context(wish: Option<motorpool_catalog::ContextWish>) -> ContextWish {
    match wish {
        None => ContextWish::Unasked,
        Some(motorpool_catalog::ContextWish::Tokens(tokens)) => ContextWish::Tokens(tokens),
        Some(motorpool_catalog::ContextWish::Max) => ContextWish::Own,
    }
}

fn settings(model: &Model) -> FixedSettings {
    let embeds = model.capabilities.iter().any(|c| matches!(c, Capability::Embeddings | Capability::Rerank));
    let Batch { logical, physical } = Batch::for_model(&[], 0);
    FixedSettings {
        batch: if embeds {
            BatchRule::WholeInput { most: Batch::WHOLE_INPUT }
        } else {
            BatchRule::Fixed { logical, physical }
        },
        purpose: if embeds { Purpose::Embed } else { Purpose::Generate },
        sliding_window: if keeps_windows_whole(model) { SlidingWindow::Full } else { SlidingWindow::Window },
        checkpoints: model.checkpoints,
        prompt_cache: model.prompt_cache,
    }
}
