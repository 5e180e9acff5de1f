//! Files that an engine loads beside a model's own: [`SideFile`], [`DraftModel`]; and [`cpu_tensor`], the pattern of
//! tensors that stay in system memory.
//!
//! They are files of this machine, read in place: none of them is fetched. Paths and patterns go to engines in lists
//! separated by commas, so they hold none.
use crate::{form, quantity::checked};
use regex::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer};
use std::path::PathBuf;

/// Tokens that a draft model guesses at a time when a model does not say; llama.cpp's own number.
pub(crate) const DEFAULT_GUESSES: u32 = 3;

/// A file beside the model's own.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SideFile {
    /// A file of this machine, never written: an absolute path without a comma.
    #[serde(deserialize_with = "plain_path")]
    pub file: PathBuf,
}

/// A smaller model that guesses what the model will say.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DraftModel {
    /// Its file: a file of this machine, never written, an absolute path without a comma.
    #[serde(deserialize_with = "plain_path")]
    pub file: PathBuf,
    /// Tokens that it guesses at a time, 1 to 64 (3); logits of each are kept.
    #[serde(default = "default_guesses", with = "form::Whole::<1, 64>")]
    pub tokens: u32,
}

const fn default_guesses() -> u32 {
    DEFAULT_GUESSES
}

fn plain_path<'de, D: Deserializer<'de>>(reader: D) -> Result<PathBuf, D::Error> {
    checked(reader, "an absolute path", |text| match text {
        _ if !text.starts_with('/') || text.contains('\0') => {
            Err(format!("the path `{text}` must begin with `/`; `${{HOME}}` can stand in it"))
        }
        _ if text.contains(',') => Err(format!("the path `{text}` holds a comma, which separates files for engines")),
        _ => Ok(text.into()),
    })
}

pub(crate) fn cpu_tensors<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    #[derive(Deserialize)]
    struct Pattern(#[serde(deserialize_with = "cpu_tensor")] String);
    Ok(Vec::<Pattern>::deserialize(reader)?.into_iter().map(|pattern| pattern.0).collect())
}

/// An expression that finds a tensor's name, as the engine will: anywhere in it.
fn cpu_tensor<'de, D: Deserializer<'de>>(reader: D) -> Result<String, D::Error> {
    checked(reader, "an expression such as \"ffn_down\"", |text| {
        if text.is_empty() || text.contains([',', '=']) {
            return Err(format!(
                "`{text}` is no pattern of tensors: engines take none that is empty or holds `,` or `=`"
            ));
        }
        // Of the syntax, what both sides know: the engine's has no groups with `(?`, which are not plain.
        match Regex::new(text) {
            Ok(_) if !text.contains("(?") => Ok(text.to_owned()),
            _ => Err(format!("`{text}` is no expression that both we and the engine understand")),
        }
    })
}

/// Whether a tensor of a name stays in system memory by one of `patterns`, as `cpu_tensors` of a model has them.
pub fn tensors_that_stay(patterns: &[String]) -> impl Fn(&str) -> bool + use<> {
    let patterns: Vec<Regex> = patterns.iter().filter_map(|pattern| Regex::new(pattern).ok()).collect();
    move |name: &str| patterns.iter().any(|pattern| pattern.is_match(name))
}
