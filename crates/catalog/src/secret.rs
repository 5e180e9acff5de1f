//! [`Secret`]: a text that is nobody's to see.
use serde::{Serialize, Serializer};
use std::fmt;

/// What stands where a secret is.
const HIDDEN: &str = "(hidden)";

/// A text that is used and never shown: neither for debugging nor in what is written for people or programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for its use.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(HIDDEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_used_and_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!((format!("{secret:?}"), serde_json::json!(secret)), (HIDDEN.into(), serde_json::json!(HIDDEN)));
    }
}
