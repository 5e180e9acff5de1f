//! The `options` of a request: those that say how is generated, under the names that llama-server gives them.
use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use std::{borrow::Cow, fmt};

/// Ollama's name, and the engine's. Others concern the load of a model, or are not known: they change nothing.
const KNOWN: &[(&str, &str)] = &[
    ("frequency_penalty", "frequency_penalty"),
    ("min_p", "min_p"),
    ("mirostat", "mirostat"),
    ("mirostat_eta", "mirostat_eta"),
    ("mirostat_tau", "mirostat_tau"),
    ("num_keep", "n_keep"),
    ("num_predict", "max_tokens"),
    ("presence_penalty", "presence_penalty"),
    ("repeat_last_n", "repeat_last_n"),
    ("repeat_penalty", "repeat_penalty"),
    ("seed", "seed"),
    ("stop", "stop"),
    ("temperature", "temperature"),
    ("top_k", "top_k"),
    ("top_p", "top_p"),
    ("typical_p", "typical_p"),
];

/// Members for the engine's request, each named once.
#[derive(Debug, Default)]
pub(super) struct Options<'a>(pub(super) Vec<(&'static str, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Options<'a> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(Members)
    }
}

struct Members;

impl<'de> de::Visitor<'de> for Members {
    type Value = Options<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of options")
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Options<'de>, A::Error> {
        let mut found: Vec<(&'static str, &'de RawValue)> = Vec::new();
        while let Some(name) = map.next_key::<Cow<'de, str>>()? {
            let value: &'de RawValue = map.next_value()?;
            let Some((_, engines)) = KNOWN.iter().find(|(known, _)| *known == name) else { continue };
            if value.get() == "null" || is_without_end(engines, value) {
                continue;
            }
            match found.iter_mut().find(|(known, _)| known == engines) {
                Some(earlier) => earlier.1 = value,
                None => found.push((engines, value)),
            }
        }
        Ok(Options(found))
    }
}

/// Below zero, `num_predict` sets no limit.
fn is_without_end(name: &str, value: &RawValue) -> bool {
    name == "max_tokens" && value.get().starts_with('-')
}
