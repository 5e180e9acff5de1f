//! [`Parameters`]: what is changed in requests to a model, member by member of their JSON body.
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use std::collections::BTreeMap;

/// Members by which requests are routed: no rule touches them.
const ROUTED: &[&str] = &["model", "stream", "stream_options", "keep_alive", "id_slot"];

/// What is changed in requests to a model. No member is in two of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Members that are taken out.
    pub strip: Vec<String>,
    /// Members that are always so, whatever the request says; values are JSON.
    pub set: BTreeMap<String, String>,
    /// Members of requests that do not have them; values are JSON.
    pub default: BTreeMap<String, String>,
}

/// As it is written.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WrittenParameters {
    /// Members that are taken out.
    #[serde(default)]
    strip: Vec<String>,
    /// Members that are always so, whatever the request says.
    #[serde(default)]
    set: BTreeMap<String, Value>,
    /// Members of requests that do not have them.
    #[serde(default)]
    default: BTreeMap<String, Value>,
}

impl Parameters {
    /// All members that a rule names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.strip.iter().chain(self.set.keys()).chain(self.default.keys()).map(String::as_str)
    }

    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.names().next().is_none()
    }
}

impl<'de> Deserialize<'de> for Parameters {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        let WrittenParameters { strip, set, default } = WrittenParameters::deserialize(reader)?;
        let json = |members: BTreeMap<String, Value>| members.into_iter().map(|(k, v)| (k, v.to_string())).collect();
        let rules = Self { strip, set: json(set), default: json(default) };
        let mut names: Vec<&str> = rules.names().collect();
        names.sort_unstable();
        if let Some(routed) = names.iter().find(|name| ROUTED.contains(name)) {
            return Err(D::Error::custom(format!("`{routed}` routes requests: no rule changes it")));
        }
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(D::Error::custom(format!("there are two rules for `{}`", pair[0]))),
            None => Ok(rules),
        }
    }
}
