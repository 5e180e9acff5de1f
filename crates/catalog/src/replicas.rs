//! [`Replicas`]: how many engines of one model there are to be, side by side.
use crate::form;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

/// Most engines of one model.
pub const MOST_REPLICAS: u32 = 64;

/// How many engines of one model there are to be. The least is kept once the model was used, as far as there is room
/// without stopping others; up to the most are added while requests wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Replicas {
    /// At least so many, 1 to 64 (1).
    pub min: u32,
    /// At most so many, 1 to 64, not below `min` (as `min`).
    pub max: u32,
}

/// As it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenReplicas {
    /// At least so many (1).
    #[serde(default = "one", with = "form::Whole::<1, MOST_REPLICAS>")]
    min: u32,
    /// At most so many, not below `min` (as `min`).
    #[serde(default, with = "form::MaybeWhole::<1, MOST_REPLICAS>")]
    max: Option<u32>,
}

impl Default for Replicas {
    fn default() -> Self {
        Self { min: 1, max: 1 }
    }
}

impl<'de> Deserialize<'de> for Replicas {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let WrittenReplicas { min, max } = WrittenReplicas::deserialize(reader)?;
        let max = max.unwrap_or(min);
        if min > max {
            return Err(D::Error::custom(format!("the least, {min}, is more than the most, {max}")));
        }
        Ok(Self { min, max })
    }
}

const fn one() -> u32 {
    1
}
