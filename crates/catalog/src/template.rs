//! [`Template`]: a text with placeholders; [`Arg`]: one entry of an argument list.
//!
//! `{name}` stands for a value of the launch, `{{` and `}}` for plain braces. A name that does not exist is an error when
//! the manifest is read, so that a launch cannot fail on it.
use crate::{names::nearest, quantity::checked};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use std::{ffi::OsString, fmt};

macro_rules! values {
    ($($(#[$doc:meta])* $item:ident = $name:literal),+ $(,)?) => {
        /// A value of a launch that a manifest can name.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Value {
            $($(#[$doc])* $item),+
        }

        impl Value {
            pub(crate) const NAMES: &[&str] = &[$($name),+];

            fn from_name(name: &str) -> Option<Self> {
                match name { $($name => Some(Self::$item),)+ _ => None }
            }

            pub(crate) const fn name(self) -> &'static str {
                match self { $(Self::$item => $name),+ }
            }
        }
    };
}

values! {
    ModelPath = "model.path",
    ModelId = "model.id",
    /// Only when the endpoint is a unix socket.
    Socket = "endpoint.socket",
    /// Only when the endpoint is a port.
    Port = "endpoint.port",
    /// Tokens of all slots together.
    ContextTotal = "context.total",
    ContextPerSlot = "context.per_slot",
    Slots = "slots",
    KvType = "kv_type",
    /// `on`, `off` or `auto`.
    FlashAttention = "flash_attention",
    /// Only when configured or planned.
    GpuLayers = "gpu_layers",
    /// Layers whose experts stay in system memory. Only when there are some.
    CpuMoe = "n_cpu_moe",
    /// The engine's own names of devices, separated by commas. Only when planned.
    Devices = "devices",
    /// Shares of these devices, in the same order. Only when planned over several.
    TensorSplit = "tensor_split",
    /// The projector's file. Only when there is one.
    ProjectorPath = "projector.path",
    /// The engine's name of the device that the projector is for, or `none`. Only when planned.
    ProjectorDevice = "projector.device",
    /// The draft model's file. Only when there is one.
    DraftPath = "draft.path",
    /// Tokens that the draft model guesses at a time. Only when there is one.
    DraftTokens = "draft.tokens",
    /// `0` or `all`, as the model itself. Only when there is one, and configured or planned.
    DraftLayers = "draft.gpu_layers",
    /// The engine's name of the device that the draft model is for, or `none`. Only when there is one and that is planned.
    DraftDevice = "draft.device",
    /// Files of adapters, separated by commas. Only when there are some.
    Adapters = "adapters",
    /// Patterns of tensors that stay in system memory, each with `=CPU`, separated by commas. Only when there are some.
    CpuTensors = "cpu_tensors",
    BatchLogical = "batch.logical",
    BatchPhysical = "batch.physical",
    /// Whole MiB, rounded down.
    PromptCacheMib = "prompt_cache.mib",
    Checkpoints = "checkpoints",
    EmptyConfigDir = "empty_config_dir",
    /// Where contexts of sessions are kept. Only when they are.
    SessionsDir = "session_state.dir",
    /// Only when windows of attention are kept whole; nothing to print.
    WholeWindows = "whole_windows",
    /// Only for models with that capability; nothing to print.
    Embeddings = "embeddings",
    /// Only for models with that capability; nothing to print.
    Rerank = "rerank",
}

/// A text with placeholders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Value(Value),
}

/// One entry of an argument list: a string, or `{ when = "gpu_layers", args = ["-ngl", "{gpu_layers}"] }`, whose arguments
/// are there only when the value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arg {
    pub(crate) when: Option<Value>,
    pub(crate) templates: Vec<Template>,
}

/// Arguments that are there only when a value is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Group {
    /// The value.
    #[schemars(with = "String", extend("enum" = Value::NAMES))]
    when: Value,
    /// The arguments.
    args: Vec<Template>,
}

impl Template {
    /// The text with every value in its place; `None` when one is absent.
    pub(crate) fn render(&self, value: &dyn Fn(Value) -> Option<OsString>) -> Option<OsString> {
        self.0.iter().try_fold(OsString::new(), |mut out, piece| {
            match piece {
                Piece::Text(text) => out.push(text),
                Piece::Value(name) => out.push(value(*name)?),
            }
            Some(out)
        })
    }

    pub(crate) fn mentions(&self, wanted: Value) -> bool {
        self.0.contains(&Piece::Value(wanted))
    }
}

fn parse_template(text: &str) -> Result<Template, String> {
    let (mut pieces, mut plain, mut rest) = (Vec::new(), String::new(), text);
    while let Some(at) = rest.find(['{', '}']) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        if let Some(after) = from.strip_prefix("{{").or_else(|| from.strip_prefix("}}")) {
            plain.push_str(&from[..1]);
            rest = after;
            continue;
        }
        let end = from.find('}').filter(|end| *end > 0);
        let end = end.ok_or_else(|| format!("`{text}` has a brace without its other half; `{{{{` is a plain brace"))?;
        if !plain.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut plain)));
        }
        pieces.push(Piece::Value(parse_value(&from[1..end])?));
        rest = &from[end + 1..];
    }
    plain.push_str(rest);
    if !plain.is_empty() {
        pieces.push(Piece::Text(plain));
    }
    Ok(Template(pieces))
}

fn parse_value(name: &str) -> Result<Value, String> {
    Value::from_name(name).ok_or_else(|| match nearest(name, Value::NAMES) {
        Some(near) => format!("unknown placeholder `{{{name}}}`, did you mean `{{{near}}}`?"),
        None => format!("unknown placeholder `{{{name}}}`; known are: {}", Value::NAMES.join(", ")),
    })
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        checked(reader, "the name of a placeholder", parse_value)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        checked(reader, "a string", parse_template)
    }
}

impl<'de> Deserialize<'de> for Arg {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(ArgVisitor)
    }
}

struct ArgVisitor;

impl<'de> de::Visitor<'de> for ArgVisitor {
    type Value = Arg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string, or a table with `when` and `args`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Arg, E> {
        let template = parse_template(text).map_err(E::custom)?;
        Ok(Arg { when: None, templates: vec![template] })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Arg, A::Error> {
        let Group { when, args } = Group::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Arg { when: Some(when), templates: args })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rendered(text: &str) -> Option<String> {
        let value = |value: Value| (value != Value::GpuLayers).then(|| format!("<{}>", value.name()).into());
        let out = parse_template(text).expect(text).render(&value)?;
        Some(out.into_string().expect("the parts are UTF-8"))
    }

    #[test]
    fn placeholders_are_filled_in() {
        assert_eq!(rendered("-c").as_deref(), Some("-c"));
        assert_eq!(rendered("{slots}").as_deref(), Some("<slots>"));
        assert_eq!(rendered("a{slots}{model.path}é").as_deref(), Some("a<slots><model.path>é"));
        assert_eq!(rendered("").as_deref(), Some(""));
    }

    #[test]
    fn a_doubled_brace_is_a_plain_one() {
        assert_eq!(rendered("{{\"n\": {slots}}}").as_deref(), Some("{\"n\": <slots>}"));
        assert_eq!(rendered("{{{slots}").as_deref(), Some("{<slots>"));
    }

    #[test]
    fn a_text_with_an_absent_value_is_absent() {
        assert_eq!(rendered("--layers={gpu_layers}"), None);
    }

    #[test]
    fn a_wrong_placeholder_is_told_with_the_right_one() {
        let wrong = |text: &str| parse_template(text).expect_err(text);
        assert_eq!(wrong("{modle.path}"), "unknown placeholder `{modle.path}`, did you mean `{model.path}`?");
        assert_eq!(wrong("a{slots"), "`a{slots` has a brace without its other half; `{{` is a plain brace");
        assert_eq!(wrong("a}b"), "`a}b` has a brace without its other half; `{{` is a plain brace");
        assert!(wrong("{}").starts_with("unknown placeholder `{}`; known are: model.path, model.id, "));
    }

    proptest! {
        #[test]
        fn every_text_is_a_template_or_refused(text in ".*", braces in "(\\{|\\}|slots|é){0,12}") {
            let _ = (parse_template(&text), parse_template(&braces));
        }

        #[test]
        fn a_text_without_braces_stays_as_it_is(text in "[^{}]*") {
            prop_assert_eq!(rendered(&text), Some(text));
        }
    }
}
