//! What a manifest and the values of one launch make: the argument list and the environment.
//!
//! Paths stay what they are: an argument list is a list of `OsString`s, never a text for a shell.
use crate::{Capability, ContextWish, DraftModel, Manifest, Model, SessionState, template::Value};
use motorpool_vocab::{Bytes, Endpoint, MIB};
use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    path::PathBuf,
};

/// The values of one launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchValues {
    /// The model file, the first one of a split model.
    pub model_path: PathBuf,
    /// The model's id, by which the engine calls it in its answers.
    pub model_id: String,
    /// Where the engine is to serve; of the kind that the manifest's transport names.
    pub endpoint: Endpoint,
    /// Tokens per slot.
    pub context_per_slot: u32,
    /// Requests at a time.
    pub slots: u32,
    /// How the KV cache is stored, keys and values alike: one of [`crate::KV_TYPES`].
    pub kv_type: String,
    /// Whether attention is computed without its matrix. A quantised KV cache needs it.
    pub flash_attention: FlashAttention,
    /// Layers on graphics devices; `None` leaves it to the engine.
    pub gpu_layers: Option<u32>,
    /// Layers, from the first, whose experts stay in system memory.
    pub n_cpu_moe: u32,
    /// The devices it may use, by the engine's own names; empty leaves it to the engine.
    pub devices: Vec<String>,
    /// Layers on each of these devices, in the same order; empty leaves it to the engine.
    pub tensor_split: Vec<u32>,
    /// The variable that shows it these devices and no others, with its value. It counts where the manifest lets that
    /// variable through ([`Manifest::passes`]).
    pub visible: Option<(String, String)>,
    /// The projector's file.
    pub projector: Option<PathBuf>,
    /// The draft model; it goes where the model goes, on the first of its devices.
    pub draft: Option<DraftModel>,
    /// Files of adapters.
    pub adapters: Vec<PathBuf>,
    /// Patterns of tensors that stay in system memory.
    pub cpu_tensors: Vec<String>,
    /// Tokens of a batch.
    pub batch: Batch,
    /// Most memory that the engine keeps finished prompts in; charged in full. Whole MiB reach the engine.
    pub prompt_cache: Bytes,
    /// Most checkpoints of a context per slot; each holds the sliding-window or recurrent state of one slot.
    pub checkpoints: u32,
    /// An empty directory, so that no configuration of the user is read.
    pub empty_config_dir: PathBuf,
    /// Where the engine is to write contexts of sessions to, and to read them from; `None`: it does not.
    pub sessions_dir: Option<PathBuf>,
    /// Whether layers that see a window of the context keep all of it.
    pub whole_windows: bool,
    /// What the model is for.
    pub capabilities: Vec<Capability>,
    /// The model's own arguments, last.
    pub extra_args: Vec<String>,
}

/// Whether attention is computed without its matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    /// Yes, or the start fails.
    On,
    /// No.
    Off,
    /// As the engine finds possible.
    Auto,
}

/// Tokens of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Most tokens that are handed over at once.
    pub logical: u32,
    /// Most tokens that are computed at once; compute memory grows with it.
    pub physical: u32,
}

impl Batch {
    /// The most tokens that an embedding or ranking model computes at once.
    pub const WHOLE_INPUT: u32 = 2048;

    /// What suits a model: an embedding or ranking model must see its whole input in one batch, and fails on a longer
    /// one; so it gets its context, at most 2,048 tokens.
    pub fn for_model(capabilities: &[Capability], context_per_slot: u32) -> Self {
        if capabilities.iter().any(|c| matches!(c, Capability::Embeddings | Capability::Rerank)) {
            let whole = context_per_slot.clamp(1, Self::WHOLE_INPUT);
            return Self { logical: whole, physical: whole };
        }
        Self { logical: 2048, physical: 512 }
    }
}

impl FlashAttention {
    const fn as_str(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Auto => "auto",
        }
    }
}

impl LaunchValues {
    /// What `model` itself says about a launch; context, slots and KV type are those of a small start and are for the
    /// plan to set.
    pub fn new(model: &Model, model_path: PathBuf, endpoint: Endpoint, empty_config_dir: PathBuf) -> Self {
        let context_per_slot = model.context.and_then(ContextWish::tokens).unwrap_or(4096);
        Self {
            model_path,
            model_id: model.id.as_str().into(),
            endpoint,
            context_per_slot,
            slots: model.slots.unwrap_or(1),
            kv_type: model.kv_type.clone().unwrap_or_else(|| "f16".into()),
            flash_attention: FlashAttention::On,
            gpu_layers: model.gpu_layers,
            n_cpu_moe: model.n_cpu_moe.unwrap_or(0),
            devices: vec![],
            tensor_split: vec![],
            visible: None,
            projector: model.projector.as_ref().map(|side| side.file.clone()),
            draft: model.draft.clone(),
            adapters: model.adapters.iter().map(|side| side.file.clone()).collect(),
            cpu_tensors: model.cpu_tensors.clone(),
            batch: Batch::for_model(&model.capabilities, context_per_slot),
            prompt_cache: model.prompt_cache,
            checkpoints: model.checkpoints,
            empty_config_dir,
            sessions_dir: None,
            whole_windows: model.session_state == SessionState::On,
            capabilities: model.capabilities.clone(),
            extra_args: model.extra_args.clone(),
        }
    }

    /// The value as text; `None` when this launch has no such value.
    fn value(&self, value: Value) -> Option<OsString> {
        Some(match value {
            Value::ModelPath => self.model_path.clone().into(),
            Value::ModelId => self.model_id.clone().into(),
            Value::Socket => self.socket()?.to_owned(),
            Value::Port => number(self.port()?),
            Value::ContextTotal => number(u64::from(self.context_per_slot) * u64::from(self.slots)),
            Value::ContextPerSlot => number(self.context_per_slot),
            Value::Slots => number(self.slots),
            Value::KvType => self.kv_type.clone().into(),
            Value::FlashAttention => self.flash_attention.as_str().into(),
            Value::GpuLayers => number(self.gpu_layers?),
            Value::CpuMoe => number((self.n_cpu_moe > 0).then_some(self.n_cpu_moe)?),
            Value::Devices => list(&self.devices)?,
            Value::TensorSplit => list(&self.tensor_split)?,
            Value::ProjectorPath => self.projector.clone()?.into(),
            Value::ProjectorDevice => self.devices.first().filter(|_| self.projector.is_some())?.into(),
            Value::DraftPath => self.draft.as_ref()?.file.clone().into(),
            Value::DraftTokens => number(self.draft.as_ref()?.tokens),
            Value::DraftLayers => {
                let layers = self.gpu_layers.filter(|_| self.draft.is_some())?;
                if layers == 0 { "0" } else { "all" }.into()
            }
            Value::DraftDevice => self.devices.first().filter(|_| self.draft.is_some())?.into(),
            Value::Adapters => paths(&self.adapters)?,
            Value::CpuTensors => {
                list(&self.cpu_tensors.iter().map(|pattern| format!("{pattern}=CPU")).collect::<Vec<_>>())?
            }
            Value::BatchLogical => number(self.batch.logical),
            Value::BatchPhysical => number(self.batch.physical),
            Value::PromptCacheMib => number(self.prompt_cache.get() / MIB),
            Value::Checkpoints => number(self.checkpoints),
            Value::EmptyConfigDir => self.empty_config_dir.clone().into(),
            Value::SessionsDir => self.sessions_dir.clone()?.into(),
            Value::WholeWindows => self.whole_windows.then(OsString::new)?,
            Value::Embeddings => self.has(Capability::Embeddings)?,
            Value::Rerank => self.has(Capability::Rerank)?,
        })
    }

    fn has(&self, wanted: Capability) -> Option<OsString> {
        self.capabilities.contains(&wanted).then(OsString::new)
    }

    fn socket(&self) -> Option<&OsStr> {
        match &self.endpoint {
            Endpoint::Unix(path) => Some(path.as_os_str()),
            Endpoint::Tcp(_) => None,
        }
    }

    fn port(&self) -> Option<u16> {
        match &self.endpoint {
            Endpoint::Unix(_) => None,
            Endpoint::Tcp(port) => Some(*port),
        }
    }
}

/// Separated by commas; `None` when there is nothing.
fn list<T: ToString>(items: &[T]) -> Option<OsString> {
    let texts: Vec<_> = items.iter().map(T::to_string).collect();
    (!texts.is_empty()).then(|| texts.join(",").into())
}

/// Separated by commas, which no path holds; `None` when there is none.
fn paths(paths: &[PathBuf]) -> Option<OsString> {
    paths.iter().map(|path| path.clone().into_os_string()).reduce(|mut all, path| {
        all.push(",");
        all.push(path);
        all
    })
}

fn number(n: impl Into<u64>) -> OsString {
    n.into().to_string().into()
}

impl Manifest {
    /// The arguments of a launch, without the program. An argument whose value is absent is left out.
    pub fn command(&self, values: &LaunchValues) -> Vec<OsString> {
        let value = |name: Value| values.value(name);
        let ours = self.args.iter().flat_map(|arg| {
            let absent = arg.when.is_some_and(|when| value(when).is_none());
            if absent { &[] } else { arg.templates.as_slice() }
        });
        let ours = ours.filter_map(|template| template.render(&value));
        ours.chain(values.extra_args.iter().map(OsString::from)).collect()
    }

    /// Whether the variable `name` reaches the engine as we set it: the manifest lets it through and has no value of its own.
    pub fn passes(&self, name: &str) -> bool {
        self.env_allow.iter().any(|allowed| allowed == name) && !self.env_set.contains_key(name)
    }

    /// Whether a launch names the engine's devices to it.
    fn is_told_devices(&self) -> bool {
        let mut templates = self.args.iter().flat_map(|arg| &arg.templates).chain(self.env_set.values());
        templates.any(|template| template.mentions(Value::Devices))
    }

    /// The whole environment of a launch, by name. `parent` looks up our own.
    pub fn environment(
        &self,
        parent: &dyn Fn(&str) -> Option<OsString>,
        values: &LaunchValues,
    ) -> Vec<(String, OsString)> {
        let inherited = self.env_allow.iter().filter_map(|name| Some((name.clone(), parent(name)?)));
        let mut all: BTreeMap<String, OsString> = inherited.collect();
        if let Some((name, value)) = values.visible.as_ref().filter(|(name, _)| self.passes(name)) {
            // It would count within what we show.
            all.remove("HIP_VISIBLE_DEVICES");
            all.insert(name.clone(), value.into());
        }
        // Planned for the processor, one that cannot be told so would compute on a card, in memory that nobody charged.
        if values.devices == ["none"] && !self.is_told_devices() {
            let hiding = ["CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"].into_iter();
            all.extend(hiding.filter(|name| self.passes(name)).map(|name| (name.to_owned(), "-1".into())));
        }
        for (name, template) in &self.env_set {
            match template.render(&|name| values.value(name)) {
                Some(value) => all.insert(name.clone(), value),
                None => all.remove(name),
            };
        }
        all.into_iter().collect()
    }
}
