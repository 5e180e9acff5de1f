//! [`RefusedArg`]: flags that a model's `extra_args` may not hold, and which key of the catalog says the same.
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// One entry of `refused_args`: a flag, or `{ args = ["-c", "--ctx-size"], key = "context" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedArg {
    /// The flag, and other names of it.
    pub args: Vec<String>,
    /// The key of the catalog that says it instead; `None`: nothing does.
    pub key: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    args: Vec<String>,
    key: String,
}

impl<'de> Deserialize<'de> for RefusedArg {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_any(Visitor)
    }
}

struct Visitor;

impl<'de> de::Visitor<'de> for Visitor {
    type Value = RefusedArg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a flag, or a table with `args` and `key`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RefusedArg, E> {
        Ok(RefusedArg { args: vec![text.to_owned()], key: None })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RefusedArg, A::Error> {
        let Group { args, key } = Group::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(RefusedArg { args, key: Some(key) })
    }
}
