//! Names with a meaning of equality: [`EngineKey`], [`ModelId`], [`Spawn`], [`DeviceId`].
use std::{fmt, str::FromStr, sync::Arc};

/// Which engine: `<provider>:<model>:<replica>`. Parsed once, at the edge.
///
/// The provider is an engine manifest's name or an external target's id. Neither provider nor model may hold a
/// `:` or be empty; the replica is a canonical non-negative decimal. Aliases resolve to a key before this.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineKey {
    provider: Arc<str>,
    model: ModelId,
    replica: u32,
}

/// The id of a model in the catalog: not empty, no `:`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ModelId(Arc<str>);

/// One child process, from its reservation to its release. Never reused, across restarts too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Spawn(pub u64);

/// A device by an id that outlives reboots and reordering (GPU UUID, PCI address); never an index.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub Arc<str>);

impl DeviceId {
    /// Whether it is an instance of a card that is cut up (NVIDIA's MIG), by its UUID: a process sees one of those at a
    /// time, and no other device of that driver beside it.
    pub fn is_instance(&self) -> bool {
        self.0.starts_with("MIG-")
    }
}

/// Why a text is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    /// Not two `:` between three parts.
    Parts,
    /// Provider or model is empty.
    Empty,
    /// A `:` inside the provider or the model.
    Colon,
    /// The replica is not a canonical non-negative decimal.
    Replica,
}

impl EngineKey {
    /// A key of its parts.
    pub fn new(provider: &str, model: ModelId, replica: u32) -> Result<Self, KeyError> {
        if provider.contains(':') {
            return Err(KeyError::Colon);
        }
        if provider.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { provider: provider.into(), model, replica })
    }

    /// The engine manifest's name, or an external target's id.
    pub fn provider(&self) -> &str {
        &self.provider
    }

    /// The model's id in the catalog.
    pub fn model(&self) -> &ModelId {
        &self.model
    }

    /// Which copy, from 0.
    pub fn replica(&self) -> u32 {
        self.replica
    }
}

impl ModelId {
    /// Checks `text` and takes it.
    pub fn new(text: &str) -> Result<Self, KeyError> {
        if text.is_empty() {
            return Err(KeyError::Empty);
        }
        if text.contains(':') {
            return Err(KeyError::Colon);
        }
        Ok(Self(text.into()))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for EngineKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let mut parts = text.split(':');
        let (Some(provider), Some(model), Some(replica), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(KeyError::Parts);
        };
        let number: u32 = replica.parse().map_err(|_| KeyError::Replica)?;
        if number.to_string() != replica {
            return Err(KeyError::Replica);
        }
        Self::new(provider, ModelId::new(model)?, number)
    }
}

impl fmt::Display for EngineKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.provider, self.model, self.replica)
    }
}

impl fmt::Display for ModelId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for Spawn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Parts => "an engine key is <provider>:<model>:<replica>",
            Self::Empty => "provider and model may not be empty",
            Self::Colon => "no `:` inside provider or model",
            Self::Replica => "the replica is a decimal without sign or leading zero",
        })
    }
}

impl std::error::Error for KeyError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_key_that_is_not_canonical_is_refused() {
        for (text, why) in [
            ("a:b", KeyError::Parts),
            ("a:b:c:0", KeyError::Parts),
            (":b:0", KeyError::Empty),
            ("a::0", KeyError::Empty),
            ("a:b:", KeyError::Replica),
            ("a:b:00", KeyError::Replica),
            ("a:b:+1", KeyError::Replica),
            ("a:b:-1", KeyError::Replica),
            ("a:b:4294967296", KeyError::Replica),
        ] {
            assert_eq!(text.parse::<EngineKey>(), Err(why), "{text}");
        }
    }

    proptest! {
        #[test]
        fn keys_print_and_parse_alike(provider in "[^:]{1,12}", model in "[^:]{1,12}", replica: u32) {
            let key = EngineKey::new(&provider, ModelId::new(&model).expect("no colon"), replica).expect("no colon");
            prop_assert_eq!(key.to_string().parse::<EngineKey>(), Ok(key));
        }
    }
}
