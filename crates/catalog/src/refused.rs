//! [`RefusedArg`]: flags that a model's `extra_args` may not hold, and what its author can do instead.
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};
use std::fmt;

/// One entry of `refused_args`: a flag, `{ args = ["-c", "--ctx-size"], key = "context" }`, or
/// `{ args = ["--rpc"], why = "memory of other machines is not counted" }`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedArg {
    /// The flag, and other names of it.
    pub args: Vec<String>,
    /// What its author is told.
    pub instead: Instead,
}

/// What takes the place of a flag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Instead {
    /// Nothing that the manifest tells.
    Nothing,
    /// The key of the catalog that says the same.
    Key(String),
    /// The manifest's own words, after a colon.
    Why(String),
}

impl fmt::Display for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("motorpool sets it, or keeps it from being set"),
            Self::Key(key) => write!(f, "`{key}` in the catalog entry says it, so that its memory is counted"),
            Self::Why(why) => f.write_str(why),
        }
    }
}

/// Beside `args` there is either `key` or `why`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RefusedGroup {
    /// The flag, and other names of it.
    args: Vec<String>,
    /// The key of the catalog that says the same.
    key: Option<String>,
    /// What its author is told.
    why: Option<String>,
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
        f.write_str("a flag, or a table with `args` and either `key` or `why`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<RefusedArg, E> {
        Ok(RefusedArg { args: vec![text.to_owned()], instead: Instead::Nothing })
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<RefusedArg, A::Error> {
        let RefusedGroup { args, key, why } = RefusedGroup::deserialize(de::value::MapAccessDeserializer::new(map))?;
        let instead = match (key, why) {
            (Some(key), None) => Instead::Key(key),
            (None, Some(why)) => Instead::Why(why),
            _ => return Err(de::Error::custom("beside `args` there is either `key` or `why`")),
        };
        Ok(RefusedArg { args, instead })
    }
}
