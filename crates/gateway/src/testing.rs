//! Values for the tests of this crate.
use motorpool_catalog::{Capability, Catalog, Manifest, Model, ModelSource, shipped};
use motorpool_vocab::{EntryView, ExitRecord, FailureClass, ModelId, Now, PhaseView, Spawn, StopReason};
use std::sync::Arc;

fn model(id: &str, aliases: &[&str]) -> Model {
    let id = ModelId::new(id).expect("a model's id");
    let aliases = aliases.iter().map(|&a| a.to_owned()).collect();
    let mut model = Model::new(id, "llama-server", ModelSource::File("/models/x.gguf".into()));
    model.aliases = aliases;
    model
}

/// A catalog of the shipped engines with these models and aliases. One called `vectors` is for those, one
/// called `hearing` writes speech down, too, and the engine of one called `stranger` is no llama-server.
pub(crate) fn catalog(models: &[(&str, &[&str])]) -> Arc<Catalog> {
    catalog_of(models, |_| {})
}

/// The same, with engines that are otherwise.
pub(crate) fn catalog_of(models: &[(&str, &[&str])], change: impl Fn(&mut Manifest)) -> Arc<Catalog> {
    let mut models: Vec<Model> = models.iter().map(|(id, aliases)| model(id, aliases)).collect();
    let vectors = models.iter_mut().filter(|model| model.id.as_str() == "vectors");
    vectors.for_each(|model| model.capabilities = vec![Capability::Embeddings]);
    let hearing = models.iter_mut().filter(|model| model.id.as_str() == "hearing");
    hearing.for_each(|model| model.capabilities = vec![Capability::Chat, Capability::Transcription]);
    // One engine more, of which nothing is known but that it speaks OpenAI's API, and has its own word for its model.
    let mut manifests = shipped().0;
    let mut plain = manifests[0].clone();
    (plain.name, plain.slots, plain.served_as) = ("plain".into(), None, Some("its-own".into()));
    manifests.push(plain);
    let strangers = models.iter_mut().filter(|model| model.id.as_str() == "stranger");
    strangers.for_each(|model| model.engine = "plain".into());
    manifests.iter_mut().for_each(change);
    Arc::new(Catalog::new(manifests, models).expect("names are unique"))
}

/// An engine in this phase, its last child ended with `class`.
pub(crate) fn entry(key: &str, phase: PhaseView, class: Option<FailureClass>) -> EntryView {
    let last_exit = class.map(|class| ExitRecord {
        plan: None,
        spawn: Spawn(1),
        pid: Some(7),
        started_at: Now::ZERO,
        ended_at: Now::ZERO,
        code: Some(1),
        signal: None,
        reason: StopReason::Crash,
        class: Some(class),
        ever_ready: false,
        tail: vec!["the last line".into()],
    });
    EntryView { phase, last_exit, ..EntryView::idle(key.parse().expect("a key"), Now::ZERO) }
}

mod engine;
mod pool;
pub(crate) use engine::Engine;
pub(crate) use pool::{Pool, SLOT};
