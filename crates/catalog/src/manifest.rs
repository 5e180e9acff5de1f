//! [`Manifest`]: an engine described by a file, `engines/<name>.toml`, never by code.
//!
//! What the file says is checked when it is read: expressions compile, placeholders exist, the argument list names the
//! address the engine is to serve on, and nothing that must not reach an engine is on its allow-lists.
use crate::{
    Arg, Capability, ConfigError, Fault, OnDisconnect, RefusedArg, Template,
    document::{Origin, Step},
    names::nearest,
    quantity::{self, checked},
    sandbox::Sandbox,
    state::StateCalls,
    template::Value,
};
use motorpool_vocab::{FailureClass, ModelId};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::{collections::BTreeMap, path::PathBuf};

/// Variables that no engine inherits: they configure an engine behind our back, or speak to our own service manager.
const NEVER_INHERITED: &[&str] = &["LLAMA_ARG_*", "HF_*", "AIP_*", "NOTIFY_SOCKET", "LISTEN_*", "WATCHDOG_*"];

/// Headers of a request that every engine may see.
const ALWAYS_PASS: &[&str] = &[
    "content-type",
    "content-length",
    "accept",
    "user-agent",
    "anthropic-*",
    "openai-*",
    "x-stainless-*",
    "traceparent",
    "x-request-id",
];

/// Headers that no engine sees, whatever its manifest says: secrets, what came before us, our own, and what belongs to
/// one connection. `x-conversation-id` would let a generation outlive its client.
const NEVER_PASS: &[&str] = &[
    "authorization",
    "proxy-*",
    "x-api-key",
    "api-key",
    "cookie",
    "origin",
    "referer",
    "forwarded",
    "x-forwarded-*",
    "via",
    "x-motorpool-*",
    "x-conversation-id",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "host",
    "expect",
];

/// An engine, as its manifest describes it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The provider part of engine keys: ASCII letters, digits, `.`, `_`, `-`.
    #[serde(deserialize_with = "engine_name")]
    pub name: String,
    /// How its program is found and asked for its version.
    pub program: Program,
    /// What it serves on.
    pub transport: Transport,
    /// Its argument list, without the program.
    pub args: Vec<Arg>,
    /// Flags that a model's `extra_args` may not hold, because we set them or because they open what must stay shut.
    #[serde(default)]
    pub refused_args: Vec<RefusedArg>,
    /// Variables it inherits from us when they are set. Nothing else is inherited.
    #[serde(default, deserialize_with = "inherited")]
    pub env_allow: Vec<String>,
    /// Variables it is given. They win over inherited ones; one whose value is absent is left out.
    #[serde(default)]
    pub env_set: BTreeMap<String, Template>,
    /// How it shows that it is ready.
    pub ready: Ready,
    /// One real inference by capability.
    #[serde(default, rename = "probe")]
    pub probes: Probes,
    /// How it is asked to stop.
    pub stop: Stop,
    /// How it reports the progress of a load, when it does.
    pub progress: Option<Progress>,
    /// Where it shows its slots, when it does.
    pub slots: Option<SlotsView>,
    /// Where its own metrics are, when it has any.
    pub metrics: Option<MetricsView>,
    /// How what a model takes is estimated from its file, when one of ours fits it. Without it a model counts as its
    /// `declared`, else as the size of its files until a load taught more.
    pub estimator: Option<Estimator>,
    /// How it writes what a slot holds to a file and reads it back, when it can.
    pub session_state: Option<StateCalls>,
    /// What it may do to the machine, where the kernel has Landlock; without it, what its user may.
    pub sandbox: Option<Sandbox>,
    /// What becomes of a reply when its client has gone (`abort`).
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// What requests call its model there, when that is not the model's id.
    #[serde(default, deserialize_with = "served_as")]
    pub served_as: Option<String>,
    /// The requests that a caller with the right to inference may send it.
    pub paths: Vec<PathRule>,
    /// Headers of requests that it may see beside those that every engine may.
    #[serde(default)]
    pub headers: Vec<HeaderRule>,
    /// Classes of failures by what it logs, in the order in which they are tried.
    #[serde(default, rename = "log_class")]
    pub classes: Vec<LogClass>,
    #[serde(skip)]
    pub(crate) origin: Origin,
}

/// How an engine's program is found and asked for its version.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Program {
    /// File names to look for, in this order.
    pub names: Vec<String>,
    /// Arguments that make it print its version and end with code 0.
    pub version_args: Vec<String>,
    /// Finds the version in what that prints, on either stream: the first group, else the whole match.
    #[serde(deserialize_with = "expression")]
    #[schemars(with = "String")]
    pub version_pattern: Regex,
    /// Arguments that make it list the graphics devices it can use, as llama-server's `--list-devices` does, and end
    /// with code 0; empty: it cannot.
    #[serde(default)]
    pub devices_args: Vec<String>,
    /// Where this machine's configuration says it is.
    #[serde(skip)]
    pub configured: Option<PathBuf>,
}

/// What an engine serves on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// A unix socket of ours.
    Unix,
    /// An ephemeral port of the loopback address.
    Tcp,
}

/// How an engine shows that it is ready: it answers this path with this status.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// A path to `GET`.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// The status that means ready, 100 to 599.
    #[serde(deserialize_with = "status")]
    #[schemars(range(min = 100, max = 599))]
    pub status: u16,
}

/// One real inference by capability.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Probes {
    /// For models that generate text.
    pub chat: Option<Probe>,
    /// For models that embed.
    pub embeddings: Option<Probe>,
    /// For models that rank.
    pub rerank: Option<Probe>,
}

/// A request that takes one slot for a moment; any 2xx is a success.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// A path to `POST` to.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// The body, JSON.
    #[serde(deserialize_with = "json")]
    pub body: String,
}

/// How an engine is asked to stop.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Stop {
    /// A line for its standard input, tried first.
    pub stdin_line: Option<String>,
    /// Sent when there is no such line.
    pub signal: StopSignal,
}

/// A signal that asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum StopSignal {
    /// `SIGTERM`.
    #[serde(rename = "SIGTERM")]
    Term,
    /// `SIGINT`.
    #[serde(rename = "SIGINT")]
    Int,
}

/// How an engine reports the progress of a load.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Progress {
    /// What a report begins with, at the beginning of a line of standard output.
    pub prefix: String,
    /// The form of what follows.
    pub kind: ReportKind,
}

/// The form of a progress report, or of a list of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ReportKind {
    /// llama-server's.
    LlamaServer,
}

/// Where an engine shows its slots. Asked at most once a second: each question delays its work.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SlotsView {
    /// A path to `GET`.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// The form of the answer.
    pub kind: ReportKind,
}

/// Where an engine's own metrics are. They are read once for each scrape of ours, and told with its model and replica.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MetricsView {
    /// A path to `GET`.
    #[serde(deserialize_with = "path")]
    pub path: String,
    /// The form of the answer.
    pub kind: MetricsKind,
}

/// The form of an engine's metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MetricsKind {
    /// Prometheus' text, version 0.0.4.
    Prometheus,
}

/// How what a model takes is estimated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Estimator {
    /// From the header of a GGUF file, as llama.cpp allocates.
    LlamaCpp,
}

/// A request that is allowed: `POST /v1/chat/completions`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// The method, upper case. `GET` allows `HEAD` too.
    pub method: String,
    /// The whole path, compared byte by byte; the query is not part of it.
    pub path: String,
}

/// A header by its lower-case name, or all that begin with what stands before a final `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderRule(String);

/// A class of failures by what an engine logs.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LogClass {
    /// The class.
    #[serde(deserialize_with = "class")]
    #[schemars(with = "String", extend("enum" = class_names()))]
    pub class: FailureClass,
    /// Matches a line that proves it.
    #[serde(deserialize_with = "expression")]
    #[schemars(with = "String")]
    pub pattern: Regex,
}

/// Whether a header of a request may reach whoever answers it, whatever that is. `name` is in lower case.
pub fn always_passes(name: &str) -> bool {
    ALWAYS_PASS.iter().any(|rule| matches(rule, name)) && !NEVER_PASS.iter().any(|rule| matches(rule, name))
}

impl Manifest {
    /// The probe for a model with these capabilities.
    pub fn probe(&self, capabilities: &[Capability]) -> Option<&Probe> {
        let of = |capability: &Capability| match capability {
            Capability::Chat => self.probes.chat.as_ref(),
            Capability::Embeddings => self.probes.embeddings.as_ref(),
            Capability::Rerank => self.probes.rerank.as_ref(),
            // What they make takes long: that the engine answers must do.
            Capability::Transcription | Capability::Speech | Capability::Images => None,
        };
        capabilities.iter().find_map(of)
    }

    /// Whether a caller with the right to inference may send this. `path` is raw and without query.
    pub fn allows(&self, method: &str, path: &str) -> bool {
        let method = if method == "HEAD" { "GET" } else { method };
        self.paths.iter().any(|rule| rule.method == method && rule.path == path)
    }

    /// What requests call `model` when they reach this engine.
    pub fn name_of<'a>(&'a self, model: &'a ModelId) -> &'a str {
        self.served_as.as_deref().unwrap_or(model.as_str())
    }

    /// Whether a header of a request may reach this engine. `name` is in lower case.
    pub fn passes_header(&self, name: &str) -> bool {
        let named =
            self.headers.iter().any(|h| matches(&h.0, name)) && !NEVER_PASS.iter().any(|rule| matches(rule, name));
        named || always_passes(name)
    }

    /// Why a flag of a model's `extra_args` is refused, if it is.
    pub fn refuses(&self, arg: &str) -> Option<&RefusedArg> {
        let flag = arg.split_once('=').map_or(arg, |(flag, _)| flag);
        self.refused_args.iter().find(|refused| refused.args.iter().any(|arg| arg == flag))
    }

    /// Whether an argument says `value`.
    pub(crate) fn says(&self, value: Value) -> bool {
        self.args.iter().flat_map(|arg| &arg.templates).any(|template| template.mentions(value))
    }

    /// What shows only across keys.
    pub(crate) fn checked(mut self, origin: Origin) -> Result<Self, ConfigError> {
        self.origin = origin;
        let address = match self.transport {
            Transport::Unix => Value::Socket,
            Transport::Tcp => Value::Port,
        };
        if !self.says(address) {
            let fault =
                Fault::Value(format!("no argument mentions `{{{}}}`, so nobody could reach it", address.name()));
            return Err(self.origin.fault(&[Step::Key("transport")], fault));
        }
        if self.program.names.is_empty() {
            let fault = Fault::Value("a program needs a name to be found by".into());
            return Err(self.origin.fault(&[Step::Key("program"), Step::Key("names")], fault));
        }
        Ok(self)
    }
}

impl Program {
    /// The version in `output`, trimmed.
    pub fn version<'a>(&self, output: &'a str) -> Option<&'a str> {
        let found = self.version_pattern.captures(output)?;
        found.get(1).or_else(|| found.get(0)).map(|part| part.as_str().trim())
    }
}

/// Whether `name` is `rule`, or begins with what stands before its final `*`.
fn matches(rule: &str, name: &str) -> bool {
    rule.strip_suffix('*').map_or(rule == name, |prefix| name.starts_with(prefix))
}

fn engine_name<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a name such as \"llama-server\"", |text| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        if !text.is_empty() && text.chars().all(fits) {
            return Ok(text.to_owned());
        }
        Err(format!("`{text}` is no engine name: ASCII letters, digits, `.`, `_`, `-`"))
    })
}

fn served_as<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<String>, D::Error> {
    checked(reader, "a model's name", |text| {
        if text.is_empty() { Err("a model's name is not empty".to_owned()) } else { Ok(Some(text.to_owned())) }
    })
}

/// An expression; its error is the last line of what the library says, which shows the rest of the text again.
fn expression<'de, D: Deserializer<'de>>(reader: D) -> Result<Regex, D::Error> {
    checked(reader, "an expression", |text| {
        Regex::new(text).map_err(|e| {
            let why = e.to_string();
            let why = why.lines().last().unwrap_or_default().trim_start_matches("error: ");
            format!("the expression does not compile: {why}")
        })
    })
}

fn class<'de, D: Deserializer<'de>>(reader: D) -> Result<FailureClass, D::Error> {
    checked(reader, "a failure class", |text| {
        FailureClass::from_name(text).ok_or_else(|| {
            let names = class_names();
            match nearest(text, &names) {
                Some(near) => format!("unknown failure class `{text}`, did you mean `{near}`?"),
                None => format!("unknown failure class `{text}`; known are: {}", names.join(", ")),
            }
        })
    })
}

/// What a log can prove.
fn class_names() -> Vec<&'static str> {
    FailureClass::ALL.iter().map(|class| class.as_str()).collect()
}

fn path<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "a path such as \"/health\"", check_path)
}

fn check_path(text: &str) -> Result<String, String> {
    let plain = text.starts_with('/') && text.bytes().all(|b| b.is_ascii_graphic() && b != b'#');
    if plain { Ok(text.to_owned()) } else { Err(format!("`{text}` is no path: it begins with `/` and holds no space")) }
}

fn status<'de, D: Deserializer<'de>>(reader: D) -> Result<u16, D::Error> {
    let status = quantity::whole::<D, 100, 599>(reader)?;
    Ok(u16::try_from(status).expect("between 100 and 599"))
}

fn json<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "JSON", |text| match serde_json::from_str::<serde::de::IgnoredAny>(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(e) => Err(format!("no valid JSON: {e}")),
    })
}

fn inherited<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Name(#[serde(deserialize_with = "inherited_name")] String);
    Ok(Vec::<Name>::deserialize(reader)?.into_iter().map(|name| name.0).collect())
}

fn inherited_name<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "the name of a variable", |text| {
        if NEVER_INHERITED.iter().any(|rule| matches(rule, text)) {
            return Err(format!("`{text}` is never inherited by an engine; `[env_set]` can give it a value"));
        }
        if text.is_empty() || text.contains(['=', '*', '\0']) {
            return Err(format!("`{text}` is no name of a variable"));
        }
        Ok(text.to_owned())
    })
}

impl<'de> Deserialize<'de> for PathRule {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];
        checked(reader, "a method and a path such as \"POST /v1/completions\"", |text| {
            let (method, path) = text.split_once(' ').unwrap_or((text, ""));
            if !METHODS.contains(&method) {
                return Err(format!("`{text}` is no request: one of {}, a space, a path", METHODS.join(", ")));
            }
            if path.contains(['?', '%']) {
                return Err(format!("the path `{path}` is compared as it is: no query, nothing encoded"));
            }
            Ok(Self { method: method.into(), path: check_path(path)? })
        })
    }
}

impl<'de> Deserialize<'de> for HeaderRule {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        checked(reader, "a header name such as \"x-trace-*\"", |text| {
            let name = text.strip_suffix('*').unwrap_or(text);
            let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_');
            if name.is_empty() || !name.chars().all(fits) {
                return Err(format!("`{text}` is no header name in lower case"));
            }
            if NEVER_PASS.iter().any(|rule| matches(rule, name)) {
                return Err(format!("the header `{text}` never reaches an engine"));
            }
            Ok(Self(text.into()))
        })
    }
}
