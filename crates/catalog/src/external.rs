//! [`External`] and [`Protect`]: model servers that somebody else started, as the operator names them.
//!
//! Only files add servers: no request names one. Nothing is called or resolved here; an address that no model server may
//! have (link-local, or where clouds hand out credentials) is refused where it is written.
use crate::{
    ConfigError, Fault,
    catalog::fits,
    document::{Origin, Step},
    form,
    names::nearest,
    quantity,
    secret::Secret,
};
use motorpool_vocab::ServerUrl;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{collections::BTreeMap, path::PathBuf, time::Duration};

/// Longest id of a server, in bytes.
const ID_BYTES: usize = 64;
/// What a request's framing says, or what is ours to say: no operator sets it.
const NOT_HEADERS: [&str; 9] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "te",
    "transfer-encoding",
    "upgrade",
];

/// `[[external]]`: one model server that somebody else runs.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// What it is called here: 1 to 64 ASCII letters, digits, `-`, `_` and `.`. No two servers have the same.
    #[serde(deserialize_with = "server_id")]
    pub id: String,
    /// What it is.
    pub kind: ExternalKind,
    /// Where it is: `http://` or `https://`, a host, perhaps a port and a path; a final `/v1` may be left out.
    #[serde(deserialize_with = "server_url", serialize_with = "form::shown")]
    #[schemars(with = "String")]
    pub url: ServerUrl,
    /// Absolute path of a file whose first line is the key that it wants.
    #[serde(default, deserialize_with = "key_file")]
    pub key_file: Option<PathBuf>,
    /// The variable of the environment that holds the key that it wants.
    #[serde(default, deserialize_with = "key_env")]
    pub key_env: Option<String>,
    /// Headers that go along with every request to it.
    #[serde(default)]
    pub headers: BTreeMap<HeaderName, HeaderText>,
    /// Who says what is loaded there (`managed`).
    #[serde(default)]
    pub lifecycle: ExternalLifecycle,
    /// The model of requests that name the server alone; it is protected.
    #[serde(default, deserialize_with = "optional_model")]
    pub default_model: Option<String>,
    /// Tokens of context that requests want there, 1 to 16,777,216.
    #[serde(default, with = "form::MaybeWhole::<1, 16_777_216>")]
    pub context: Option<u32>,
    /// How long Ollama keeps what we loaded after its last use.
    #[serde(default)]
    pub keep_alive: Option<KeptFor>,
    /// Whose model a name means that both we and this server have (`own`).
    #[serde(default)]
    pub prefer: Prefer,
    /// Which of its models are offered, by id or alias; none: all.
    #[serde(default)]
    pub models: Vec<Glob>,
    /// What LM Studio loads models with; nothing: it decides by itself.
    #[serde(default)]
    pub load: ExternalLoad,
    /// How long calls to it may take.
    #[serde(default)]
    pub timeouts: ExternalTimeouts,
}

/// What a server is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExternalKind {
    /// llama-server without a model of its own.
    LlamaCppRouter,
    /// LM Studio.
    #[serde(rename = "lmstudio")]
    LmStudio,
    /// Ollama.
    Ollama,
}

/// Who says what is loaded there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ExternalLifecycle {
    /// We may load, and evict what we loaded.
    #[default]
    Managed,
    /// The user alone: we only look.
    UserManaged,
}

/// Whose model a name means that both sides have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Prefer {
    /// Ours.
    #[default]
    Own,
    /// The server's.
    External,
}

/// How long a model is kept after its last use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptFor {
    /// So long.
    Time(Duration),
    /// Until somebody unloads it: our death leaks it.
    Ever,
}

/// What LM Studio loads models with: what is left out, it decides.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalLoad {
    /// Tokens of context, 1 to 16,777,216.
    #[serde(with = "form::MaybeWhole::<1, 16_777_216>")]
    pub context_length: Option<u32>,
    /// Tokens of one batch, 1 to 16,777,216.
    #[serde(with = "form::MaybeWhole::<1, 16_777_216>")]
    pub eval_batch_size: Option<u32>,
    /// Whether attention is computed the fast way.
    pub flash_attention: Option<bool>,
    /// Experts of one token, 1 to 1,024.
    #[serde(with = "form::MaybeWhole::<1, 1_024>")]
    pub num_experts: Option<u32>,
    /// Whether what it remembers of a conversation lies on the graphics card.
    pub offload_kv_cache_to_gpu: Option<bool>,
    /// Most tokens of context beside other models, 1 to 16,777,216.
    #[serde(with = "form::MaybeWhole::<1, 16_777_216>")]
    pub context_ceiling: Option<u32>,
}

/// How long calls to a server may take; what is left out depends on its kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ExternalTimeouts {
    /// A look at what it has (a router: 1.5 s, others: 5 s).
    #[serde(with = "form::MaybeTime")]
    pub look: Option<Duration>,
    /// A load without progress (120 s).
    #[serde(with = "form::MaybeTime")]
    pub load: Option<Duration>,
    /// From an unload until the model is gone (15 s).
    #[serde(with = "form::MaybeTime")]
    pub unload: Option<Duration>,
}

/// `[[protect]]`: a model that goes last, on every server or on one.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protect {
    /// By id or alias.
    #[serde(deserialize_with = "some_model")]
    pub model: String,
    /// For what (`chat`).
    #[serde(default)]
    pub role: ProtectRole,
    /// On which server, by id; none: on all.
    #[serde(default)]
    pub target: Option<String>,
}

/// For what a model is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectRole {
    /// People talk with it.
    #[default]
    Chat,
    /// It keeps what agents remember.
    Memory,
    /// It works in the background.
    Worker,
}

/// Names in which every `*` stands for any characters, none included.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Glob(String);

/// The name of a header, in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct HeaderName(String);

/// What a header says; it may be a key, so it is not shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HeaderText(Secret);

impl External {
    /// The server at `url`, with nothing else said of it.
    pub fn new(id: &str, kind: ExternalKind, url: ServerUrl) -> Self {
        Self {
            id: id.to_owned(),
            kind,
            url,
            key_file: None,
            key_env: None,
            headers: BTreeMap::new(),
            lifecycle: ExternalLifecycle::default(),
            default_model: None,
            context: None,
            keep_alive: None,
            prefer: Prefer::default(),
            models: Vec::new(),
            load: ExternalLoad::default(),
            timeouts: ExternalTimeouts::default(),
        }
    }

    /// Whether a model with these names is offered.
    pub fn offers<'a>(&self, mut names: impl Iterator<Item = &'a str>) -> bool {
        self.models.is_empty() || names.any(|name| self.models.iter().any(|glob| glob.fits(name)))
    }

    fn check(&self) -> Result<(), (&'static str, String)> {
        let kind = self.kind.as_str();
        if self.key_file.is_some() && self.key_env.is_some() {
            return Err(("key_env", "a key comes from `key_file` or from `key_env`, not from both".into()));
        }
        if self.keep_alive.is_some() && self.kind != ExternalKind::Ollama {
            return Err(("keep_alive", format!("only Ollama is told how long to keep a model, and this is `{kind}`")));
        }
        if self.load != ExternalLoad::default() && self.kind != ExternalKind::LmStudio {
            return Err(("load", format!("only LM Studio is told what to load with, and this is `{kind}`")));
        }
        Ok(())
    }
}

impl ExternalKind {
    /// As it stands in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::LlamaCppRouter => "llama-cpp-router",
            Self::LmStudio => "lmstudio",
            Self::Ollama => "ollama",
        }
    }
}

impl Glob {
    /// Whether `name` is one of them.
    pub fn fits(&self, name: &str) -> bool {
        fits(&self.0, name)
    }
}

impl HeaderName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl HeaderText {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.reveal()
    }
}

/// One server for each id, keys that its kind obeys, and no protection on a server that is not there.
pub(crate) fn check_external(
    (servers, protected): (&[External], &[Protect]),
    origin: &Origin,
) -> Result<(), ConfigError> {
    for (at, server) in servers.iter().enumerate() {
        let fault = |key, fault| Err(origin.fault(&[Step::Key("external"), Step::Item(at), Step::Key(key)], fault));
        if servers[..at].iter().any(|other| other.id == server.id) {
            let name = format!("the server id `{}`", server.id);
            return fault("id", Fault::Taken { name, by: "an [[external]] above".into() });
        }
        if let Err((key, why)) = server.check() {
            return fault(key, Fault::Value(why));
        }
    }
    let known: Vec<String> = servers.iter().map(|server| server.id.clone()).collect();
    for (at, protect) in protected.iter().enumerate() {
        let Some(target) = protect.target.as_ref().filter(|target| !known.contains(target)) else { continue };
        let fault = Fault::UnknownValue { value: target.clone(), nearest: nearest(target, &known), known };
        return Err(origin.fault(&[Step::Key("protect"), Step::Item(at), Step::Key("target")], fault));
    }
    Ok(())
}

fn server_id<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    quantity::checked(reader, "a server's id such as \"desk\"", |text| {
        // A slash divides it from a model's name.
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if (1..=ID_BYTES).contains(&text.len()) && text.chars().all(fits) {
            Ok(text.to_owned())
        } else {
            Err(format!("`{text}` is no server's id: 1 to {ID_BYTES} ASCII letters, digits, `-`, `_` and `.`"))
        }
    })
}

fn server_url<'de, D: Deserializer<'de>>(reader: D) -> Result<ServerUrl, D::Error> {
    quantity::checked(reader, "an address such as \"http://127.0.0.1:8080\"", |text| {
        let url: ServerUrl = text.parse().map_err(|why| format!("`{text}` cannot be used: {why}"))?;
        if url.is_off_limits() {
            return Err(format!(
                "`{text}` is link-local, or where clouds hand out credentials: no model server is there"
            ));
        }
        Ok(url)
    })
}

fn key_file<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<PathBuf>, D::Error> {
    quantity::checked(reader, "an absolute path", |text| {
        if text.starts_with('/') {
            Ok(Some(text.into()))
        } else {
            Err(format!("the path `{text}` must begin with `/`"))
        }
    })
}

fn key_env<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<String>, D::Error> {
    quantity::checked(reader, "the name of a variable", |text| {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !text.is_empty() && text.chars().all(is_name) && !text.starts_with(|c: char| c.is_ascii_digit()) {
            Ok(Some(text.to_owned()))
        } else {
            Err("this is the name of a variable such as `DESK_KEY`, not the key".into())
        }
    })
}

fn some_model<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    quantity::checked(reader, "a model's name", |text| match text {
        "" => Err("a model's name may not be empty".into()),
        text if text.contains(char::is_control) => Err("a model's name holds no control characters".into()),
        text => Ok(text.to_owned()),
    })
}

fn optional_model<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<String>, D::Error> {
    some_model(reader).map(Some)
}

impl Serialize for KeptFor {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Ever => writer.serialize_str("-1"),
            Self::Time(time) => writer.serialize_str(&form::time_text(*time)),
        }
    }
}

impl<'de> Deserialize<'de> for KeptFor {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        quantity::checked(reader, "a duration such as \"5m\", or \"-1\"", |text| match text {
            "-1" => Ok(Self::Ever),
            text => {
                quantity::duration_from_text(text).map(Self::Time).map_err(|why| format!("{why}, or `-1`: for ever"))
            }
        })
    }
}

impl<'de> Deserialize<'de> for Glob {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        quantity::checked(reader, "a name such as \"qwen*\"", |text| {
            match text.chars().find(|c| "?[]{}".contains(*c)) {
                Some(c) => Err(format!("`{text}` holds `{c}`: only `*` stands for other characters")),
                None if text.trim().is_empty() => Err("a name may not be empty; `*` is every model".into()),
                None if text.contains(char::is_control) => Err("a name holds no control characters".into()),
                None => Ok(Self(text.to_owned())),
            }
        })
    }
}

impl<'de> Deserialize<'de> for HeaderName {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        quantity::checked(reader, "a header's name", |text| {
            let name = text.to_ascii_lowercase();
            let fits = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`|~".contains(c);
            if name.is_empty() || !name.chars().all(fits) {
                Err(format!("`{text}` is no header's name"))
            } else if NOT_HEADERS.contains(&name.as_str()) {
                Err(format!("`{text}` belongs to the request itself and cannot be set"))
            } else {
                Ok(Self(name))
            }
        })
    }
}

impl<'de> Deserialize<'de> for HeaderText {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        quantity::checked(reader, "what the header says", |text| {
            if text.chars().all(|c| c == ' ' || c.is_ascii_graphic()) {
                Ok(Self(Secret::new(text)))
            } else {
                Err("a header holds nothing but visible ASCII and blanks".into())
            }
        })
    }
}
