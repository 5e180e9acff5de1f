//! What the catalog of a trace says now: [`Edit`] changes it, and every child remembers what it was launched for.
use super::{
    trace::{Edit, Setting, SettingModel},
    world::{ENGINE, MANIFESTS, World, host_of},
};
use crate::{Action, Input, OnDeadline, PoolConfig, Reload, RequestId};
use motorpool_catalog::{Catalog, Model, ModelSource, Replicas};
use motorpool_vocab::{Bytes, EngineKey, ModelId, Spawn};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// How often a model was changed, and how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Edition {
    launch: u32,
    live: u32,
    width: Width,
    place: Place,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Width {
    #[default]
    AsSet,
    /// One engine at most.
    Narrow,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    There,
    Gone,
}

/// What every model is now, and what every child was launched for.
#[derive(Clone, Debug, Default)]
pub(super) struct Editions {
    now: BTreeMap<String, Edition>,
    launched: BTreeMap<Spawn, String>,
    on_deadline: OnDeadline,
}

impl Editions {
    /// A child is launched for this model.
    pub(super) fn launches(&mut self, spawn: Spawn, model: &Model) {
        self.launched.insert(spawn, model.extra_args.join(" "));
    }

    /// Whether a child is what would be launched now.
    pub(super) fn is_of_now(&self, spawn: Spawn, key: &EngineKey) -> bool {
        let edition = self.of(key.model().as_str());
        edition.place == Place::There && self.launched.get(&spawn) == Some(&edition.argument())
    }

    /// Whether engines that do not drain in time are cut.
    pub(super) fn cuts(&self) -> bool {
        self.on_deadline == OnDeadline::Cut
    }

    fn of(&self, model: &str) -> Edition {
        self.now.get(model).copied().unwrap_or_default()
    }

    /// The models of `setting` as they are now; names that are no ids are left out.
    pub(super) fn catalog(&self, setting: &Setting) -> Arc<Catalog> {
        let models = setting.models.iter().filter(|model| self.of(&model.id).place == Place::There);
        let models = models.filter_map(|model| self.of(&model.id).model(model)).collect();
        Arc::new(Catalog::new(MANIFESTS.clone(), models).unwrap_or_default())
    }
}

impl Edition {
    fn argument(self) -> String {
        format!("--edition={}", self.launch)
    }

    fn model(self, of: &SettingModel) -> Option<Model> {
        let source = ModelSource::File(format!("/models/{}.gguf", of.id).into());
        let mut made = Model::new(ModelId::new(&of.id).ok()?, ENGINE, source);
        made.declared = Some(Bytes::mib(of.mib));
        made.priority = of.priority;
        [made.pinned, made.home] = of.stays;
        made.replicas = match self.width {
            Width::AsSet => Replicas { min: of.replicas.0, max: of.replicas.1 },
            Width::Narrow => Replicas { min: 1, max: 1 },
        };
        made.extra_args = vec![self.argument()];
        made.idle_ttl = Duration::from_mins(if self.live.is_multiple_of(2) { 10 } else { 5 });
        Some(made)
    }
}

impl World {
    /// The catalog says something else of a model.
    pub(super) fn reload(&mut self, id: RequestId, model: &str, edit: Edit) -> Vec<Action> {
        if !self.closing {
            let edition = self.editions.now.entry(model.to_owned()).or_default();
            match edit {
                Edit::Launch => edition.launch += 1,
                Edit::Live => edition.live += 1,
                Edit::Narrow => edition.width = Width::Narrow,
                Edit::Gone => edition.place = Place::Gone,
                Edit::Back => *edition = Edition::default(),
                Edit::Cut => {
                    let cuts = self.editions.cuts();
                    self.editions.on_deadline = if cuts { OnDeadline::default() } else { OnDeadline::Cut };
                }
            }
        }
        let on_deadline = self.editions.on_deadline;
        let terms = PoolConfig { host: host_of(&self.setting), on_deadline, ..PoolConfig::default() };
        let reload = Reload { catalog: self.editions.catalog(&self.setting), terms: Box::new(terms) };
        self.operate(id, Input::Reload { id, reload })
    }
}
