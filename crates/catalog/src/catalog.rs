//! [`Catalog`]: every model and every engine by name, and which model a name means.
//!
//! A name is tried as an id, then as an alias, then against the aliases with a `*`; of several that fit, the one with
//! the most plain characters wins, ties by id. Names are compared as they are, case included.
use crate::{
    Config, ConfigError, Confinement, Fault, Manifest, Model,
    document::{Origin, Step},
    names::{nearest, nearest_many},
    template::Value,
};
use motorpool_vocab::ModelId;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

/// How many names an error about an unknown one offers.
const OFFERED: usize = 3;
/// What clients call the model that they get when they do not care.
const DEFAULT: &str = "default";

/// Every model and every engine by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    manifests: BTreeMap<String, Arc<Manifest>>,
    models: BTreeMap<ModelId, Arc<Model>>,
    aliases: BTreeMap<String, ModelId>,
    globs: Vec<(String, ModelId)>,
}

/// A name that no model answers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownModel {
    /// The name.
    pub name: String,
    /// Up to three ids and aliases like it, the likest first.
    pub nearest: Vec<String>,
}

impl Catalog {
    /// A catalog in which every name means one thing and every model has an engine.
    pub fn new(manifests: Vec<Manifest>, models: Vec<Model>) -> Result<Self, ConfigError> {
        let mut catalog = Self::default();
        for manifest in manifests {
            catalog.add_manifest(manifest)?;
        }
        for model in &models {
            catalog.check_engine(model)?;
        }
        // All ids come before any alias, so that an alias never hides an id of a later file.
        let models: Vec<Arc<Model>> = models.into_iter().map(Arc::new).collect();
        for model in &models {
            catalog.add_id(model)?;
        }
        for model in &models {
            catalog.add_aliases(model)?;
        }
        catalog.globs.sort_by_key(|(glob, id)| (usize::MAX - plain_chars(glob), id.clone()));
        Ok(catalog)
    }

    /// Everything that keeps these from being a catalog: whatever is at fault is left out, and the rest looked at again.
    pub fn faults(mut manifests: Vec<Manifest>, mut models: Vec<Model>) -> Vec<ConfigError> {
        let mut faults = Vec::new();
        while let Err(fault) = Self::new(manifests.clone(), models.clone()) {
            let n_before = manifests.len() + models.len();
            let is_it = |origin: &Origin| origin.file() == fault.file();
            manifests.retain(|manifest| !is_it(&manifest.origin));
            models.retain(|model| !is_it(&model.origin));
            faults.push(fault);
            if manifests.len() + models.len() == n_before {
                break;
            }
        }
        faults
    }

    /// The same with what `config` says of engines on this machine in their manifests: where the program is, whether they
    /// are held to a sandbox, and whether they can bear that a client goes.
    #[must_use]
    pub fn configured_by(mut self, config: &Config) -> Self {
        for (name, settings) in &config.engines {
            let Some(manifest) = self.manifests.get_mut(name).map(Arc::make_mut) else { continue };
            manifest.program.configured.clone_from(&settings.program);
            if settings.sandbox == Confinement::Off {
                manifest.sandbox = None;
            }
            if let Some(on_disconnect) = settings.on_disconnect {
                manifest.on_disconnect = on_disconnect;
            }
        }
        self
    }

    fn add_manifest(&mut self, manifest: Manifest) -> Result<(), ConfigError> {
        if let Some(other) = self.manifests.get(&manifest.name) {
            let name = format!("the engine name `{}`", manifest.name);
            let fault = Fault::Taken { name, by: format!("{:?}", other.origin) };
            return Err(manifest.origin.fault(&[Step::Key("name")], fault));
        }
        self.manifests.insert(manifest.name.clone(), Arc::new(manifest));
        Ok(())
    }

    fn check_engine(&self, model: &Model) -> Result<(), ConfigError> {
        let Some(manifest) = self.manifests.get(&model.engine) else {
            let known: Vec<String> = self.manifests.keys().cloned().collect();
            let nearest = nearest(&model.engine, &known);
            let fault = Fault::UnknownEngine { engine: model.engine.clone(), nearest, known };
            return Err(model.origin.fault(&[Step::Key("engine")], fault));
        };
        if let Some((key, value)) = unheard(model, manifest) {
            let fault = format!("{} takes none: its manifest has no argument with `{{{value}}}`", model.engine);
            return Err(model.origin.fault(&[Step::Key(key)], Fault::Value(fault)));
        }
        let refused = model.extra_args.iter().enumerate().find_map(|(at, arg)| Some((at, arg, manifest.refuses(arg)?)));
        let Some((at, arg, refused)) = refused else { return Ok(()) };
        let instead = &refused.instead;
        let fault = Fault::Value(format!("`{arg}` cannot be given to {} here: {instead}", model.engine));
        Err(model.origin.fault(&[Step::Key("extra_args"), Step::Item(at)], fault))
    }

    fn add_id(&mut self, model: &Arc<Model>) -> Result<(), ConfigError> {
        if let Some(other) = self.models.get(&model.id) {
            let fault = Fault::Taken { name: format!("the id `{}`", model.id), by: format!("{:?}", other.origin) };
            return Err(model.origin.fault(&[Step::Key("id")], fault));
        }
        self.models.insert(model.id.clone(), Arc::clone(model));
        Ok(())
    }

    fn add_aliases(&mut self, model: &Arc<Model>) -> Result<(), ConfigError> {
        for (at, alias) in model.aliases.iter().enumerate() {
            let owner =
                self.exact(alias).or_else(|| self.globs.iter().find(|(glob, _)| glob == alias).map(|(_, id)| id));
            if let Some(owner) = owner {
                let fault = Fault::Taken { name: format!("the alias `{alias}`"), by: format!("the model `{owner}`") };
                return Err(model.origin.fault(&[Step::Key("aliases"), Step::Item(at)], fault));
            }
            if alias.contains('*') {
                self.globs.push((alias.clone(), model.id.clone()));
            } else {
                self.aliases.insert(alias.clone(), model.id.clone());
            }
        }
        Ok(())
    }

    /// Moves the name `default` to the model with this id, from whichever had it. It stays with a model of which it is
    /// the id; an id that is not there changes nothing.
    pub fn call_default(&mut self, id: &ModelId) {
        if !self.models.contains_key(id) || self.models.keys().any(|known| known.as_str() == DEFAULT) {
            return;
        }
        for (known, model) in &mut self.models {
            let has = model.aliases.iter().any(|alias| alias == DEFAULT);
            if has && known != id {
                Arc::make_mut(model).aliases.retain(|alias| alias != DEFAULT);
            } else if !has && known == id {
                Arc::make_mut(model).aliases.push(DEFAULT.into());
            }
        }
        self.aliases.insert(DEFAULT.into(), id.clone());
    }

    /// Whether `name` is an id or an alias as it is, not by a `*`.
    pub fn has_name(&self, name: &str) -> bool {
        self.exact(name).is_some()
    }

    fn exact(&self, name: &str) -> Option<&ModelId> {
        let by_id = ModelId::new(name).ok().and_then(|id| self.models.get_key_value(&id)).map(|(id, _)| id);
        by_id.or_else(|| self.aliases.get(name))
    }

    /// The model that `name` means.
    pub fn resolve(&self, name: &str) -> Result<&Arc<Model>, UnknownModel> {
        let by_glob = || self.globs.iter().find(|(glob, _)| fits(glob, name)).map(|(_, id)| id);
        let id = self.exact(name).or_else(by_glob);
        id.and_then(|id| self.models.get(id)).ok_or_else(|| self.unknown(name))
    }

    fn unknown(&self, name: &str) -> UnknownModel {
        UnknownModel { name: name.into(), nearest: self.nearest(name, |_| true) }
    }

    /// Names like `name` of models that `may_be` told, the likest first.
    pub fn nearest(&self, name: &str, may_be: impl Fn(&Model) -> bool) -> Vec<String> {
        let told = |id: &ModelId| self.models.get(id).is_some_and(|model| may_be(model));
        let ids = self.models.keys().filter(|id| told(id)).map(ModelId::as_str);
        let aliases = self.aliases.iter().filter(|(_, id)| told(id)).map(|(alias, _)| alias.as_str());
        nearest_many(name, ids.chain(aliases), OFFERED)
    }

    /// The model with this id.
    pub fn model(&self, id: &ModelId) -> Option<&Arc<Model>> {
        self.models.get(id)
    }

    /// Every model, by id.
    pub fn models(&self) -> impl Iterator<Item = &Arc<Model>> {
        self.models.values()
    }

    /// The manifest of the engine with this name.
    pub fn manifest(&self, name: &str) -> Option<&Arc<Manifest>> {
        self.manifests.get(name)
    }

    /// Every manifest, by name.
    pub fn manifests(&self) -> impl Iterator<Item = &Arc<Manifest>> {
        self.manifests.values()
    }
}

/// A key of `model` of which its engine would never hear, and the placeholder that would tell it.
fn unheard(model: &Model, manifest: &Manifest) -> Option<(&'static str, &'static str)> {
    let keys = [
        ("projector", Value::ProjectorPath, model.projector.is_some()),
        ("draft", Value::DraftPath, model.draft.is_some()),
        ("adapters", Value::Adapters, !model.adapters.is_empty()),
        ("cpu_tensors", Value::CpuTensors, !model.cpu_tensors.is_empty()),
    ];
    keys.into_iter()
        .find(|(_, value, is_there)| *is_there && !manifest.says(*value))
        .map(|(key, value, _)| (key, value.name()))
}

/// `base` with each manifest of `over` added, or put in the place of the one with its name.
pub fn overlay_manifests(base: Vec<Manifest>, over: Vec<Manifest>) -> Vec<Manifest> {
    let kept = base.into_iter().filter(|b| !over.iter().any(|o| o.name == b.name)).collect::<Vec<_>>();
    kept.into_iter().chain(over).collect()
}

/// `base` with each model of `over` added, or put in the place of the one with its id. What is an id or an alias in
/// `over` is no alias in `base` any more: a user's own file may take a name that came with the program.
pub fn overlay_models(base: Vec<Model>, over: Vec<Model>) -> Vec<Model> {
    let names: BTreeSet<&str> =
        over.iter().flat_map(|o| o.aliases.iter().map(String::as_str).chain([o.id.as_str()])).collect();
    let mut models: Vec<Model> = base.into_iter().filter(|b| !over.iter().any(|o| o.id == b.id)).collect();
    for model in &mut models {
        model.aliases.retain(|alias| !names.contains(alias.as_str()));
    }
    models.extend(over);
    models
}

fn plain_chars(glob: &str) -> usize {
    glob.chars().filter(|c| *c != '*').count()
}

/// Whether `name` fits `glob`, in which every `*` stands for any characters, none included.
pub(crate) fn fits(glob: &str, name: &str) -> bool {
    let mut parts = glob.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        // The earliest place leaves the most for the parts behind it.
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

impl fmt::Display for UnknownModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no model is called `{}`", self.name)?;
        match self.nearest.as_slice() {
            [] => Ok(()),
            names => write!(f, "; did you mean `{}`?", names.join("`, `")),
        }
    }
}

impl std::error::Error for UnknownModel {}
