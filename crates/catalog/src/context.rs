//! [`ContextWish`] and [`Profile`]: how long a context a model is to have, as the catalog says it.
use crate::quantity::Within;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use std::fmt;

/// The shortest context, in tokens, that a model may name.
pub(crate) const SHORTEST_CONTEXT: u32 = 256;
/// The longest context, in tokens, that a model may name.
pub(crate) const LONGEST_CONTEXT: u32 = 1 << 24;

/// Tokens per slot, as the catalog says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContextWish {
    /// So many, 256 to 16,777,216.
    Tokens(u32),
    /// All that the model was made for, or it is not loaded: `"max"`.
    Max,
}

impl ContextWish {
    /// The number, when it is one.
    pub const fn tokens(self) -> Option<u32> {
        match self {
            Self::Tokens(n) => Some(n),
            Self::Max => None,
        }
    }
}

/// What kind of work a context is planned for when the model names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Long work with tools: 65,536 tokens or no load; 32,768 on small hosts.
    Agent,
}

struct Wish(Within);

impl de::Visitor<'_> for Wish {
    type Value = ContextWish;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)?;
        f.write_str(", or \"max\"")
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<ContextWish, E> {
        self.visit_i128(number.into())
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<ContextWish, E> {
        self.visit_i128(number.into())
    }

    fn visit_i128<E: de::Error>(self, number: i128) -> Result<ContextWish, E> {
        let tokens = u32::try_from(self.0.visit_i128(number)?).expect("between two u32");
        Ok(ContextWish::Tokens(tokens))
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<ContextWish, E> {
        match text {
            "max" => Ok(ContextWish::Max),
            _ => Err(E::custom(format!("`{text}` is no context: a number of tokens, or \"max\""))),
        }
    }
}

/// A context that may be left out.
pub(crate) fn optional_context<'de, D: Deserializer<'de>>(reader: D) -> Result<Option<ContextWish>, D::Error> {
    let within = Within { lo: SHORTEST_CONTEXT.into(), hi: LONGEST_CONTEXT.into() };
    reader.deserialize_any(Wish(within)).map(Some)
}
