//! What of a request's body would load a model anew, or say how long it stays: that is ours to say, or its server's, and
//! does not travel.
//!
//! Ollama loads a model again when a request of its own API wants another context, batch, offload or thread count than it
//! is loaded with, or wants none and that is not what it is loaded with. That would be a load behind the plan, and would
//! unload what others loaded. So those options are taken out on the way there, as they are for models of ours, and the
//! context goes as the model is loaded. More than that is told (`stress`). LM Studio takes a time from each request (`ttl`),
//! after which it unloads a model.
use super::Outside;
use crate::{
    errors::Failure,
    scan::{Findings, Key},
};
use motorpool_catalog::{ExternalKind, Parameters};
use serde_json::{Map, Value};

const OPTIONS: &str = "options";
const CONTEXT: &str = "num_ctx";
const KEEP_ALIVE: &str = Key::KeepAlive.as_str();
const TTL: &str = "ttl";

/// Options by which Ollama tells loads apart, those of older versions too.
const LOADS: [&str; 16] = [
    CONTEXT,
    "num_batch",
    "num_gpu",
    "num_thread",
    "main_gpu",
    "use_mmap",
    "use_mlock",
    "low_vram",
    "numa",
    "vocab_only",
    "logits_all",
    "f16_kv",
    "embedding_only",
    "num_gqa",
    "rope_frequency_base",
    "rope_frequency_scale",
];

/// What becomes of a body on its way to somebody else's server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Loads {
    /// Members that say how long a model stays there. That is ours to say: a client's word would unload what others loaded,
    /// or pin it for ever.
    stays: &'static [&'static str],
    /// Its options without those that load.
    options: Options,
    /// Tokens of context that the request wanted.
    pub(super) context: Option<u32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Options {
    /// As they came.
    AsTheyAre,
    /// These instead.
    Other(Map<String, Value>),
    /// These, with the context that the model is loaded with.
    WithContext(Map<String, Value>),
}

/// Whose paths a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    /// Ollama's own.
    Ollama,
    /// Anybody else's: Ollama takes no options there.
    Other,
}

/// Members that must be found in bodies for these servers.
pub(crate) fn watched(outside: &[Outside]) -> Vec<&'static str> {
    let has = |kind| outside.iter().any(|one| one.config.kind == kind);
    let watched = [(ExternalKind::Ollama, OPTIONS), (ExternalKind::LmStudio, TTL)];
    watched.into_iter().filter_map(|(kind, name)| has(kind).then_some(name)).collect()
}

/// See [`Loads::stays`].
fn stays(kind: ExternalKind) -> &'static [&'static str] {
    match kind {
        ExternalKind::LmStudio => &[KEEP_ALIVE, TTL],
        ExternalKind::Ollama | ExternalKind::LlamaCppRouter => &[KEEP_ALIVE],
    }
}

impl Loads {
    /// Of a body for a server of this kind in which `found` was found.
    pub(super) fn of((kind, api): (ExternalKind, Api), found: &Findings) -> Result<Self, Failure> {
        let stays = stays(kind);
        if kind != ExternalKind::Ollama {
            return Ok(Self { stays, options: Options::AsTheyAre, context: None });
        }
        if let Some(name) = found.respelled {
            let message = format!("`{name}` is written in small letters");
            return Err(Failure::InvalidRequest { message, param: Some(name) });
        }
        let mut options = asked(found)?;
        let context = options.get(CONTEXT).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let n_options = options.len();
        options.retain(|name, _| !LOADS.contains(&name.as_str()));
        let options = match api {
            Api::Ollama => Options::WithContext(options),
            Api::Other if options.len() < n_options => Options::Other(options),
            Api::Other => Options::AsTheyAre,
        };
        Ok(Self { stays, options, context })
    }

    /// What changes in the body for a model that is loaded with so much context, where that is known.
    pub(super) fn rules(&self, loaded_with: Option<u32>) -> Parameters {
        let options = match (self.options.clone(), loaded_with) {
            (Options::AsTheyAre, _) => None,
            (Options::WithContext(mut options), Some(context)) => {
                options.insert(CONTEXT.to_owned(), context.into());
                Some(options)
            }
            (Options::Other(options) | Options::WithContext(options), _) => Some(options),
        };
        Parameters {
            strip: self.stays.iter().map(|&name| name.to_owned()).collect(),
            set: options.map(|options| (OPTIONS.to_owned(), Value::from(options).to_string())).into_iter().collect(),
            ..Parameters::default()
        }
    }
}

/// The options of a body; none where there are none, or something else stands there.
fn asked(found: &Findings) -> Result<Map<String, Value>, Failure> {
    let invalid = |message| Failure::InvalidRequest { message, param: Some(OPTIONS) };
    let Some(field) = found.named(OPTIONS).filter(|field| field.first == b'{') else { return Ok(Map::new()) };
    let raw = field.raw.as_ref().ok_or_else(|| invalid("`options` is longer than 4 KiB".to_owned()))?;
    serde_json::from_slice(raw).map_err(|e| invalid(format!("`options`: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scan::Scan;

    const OLLAMA: (ExternalKind, Api) = (ExternalKind::Ollama, Api::Ollama);

    fn of(to: (ExternalKind, Api), body: &str) -> Result<Loads, Failure> {
        let mut scan = Scan::new(&[]).watching(&[OPTIONS.into()]);
        scan.feed(body.as_bytes()).expect("an object");
        Loads::of(to, &scan.finish().expect("whole"))
    }

    fn set(to: (ExternalKind, Api), body: &str, loaded_with: Option<u32>) -> Option<String> {
        of(to, body).expect("a body that can be sent").rules(loaded_with).set.get(OPTIONS).cloned()
    }

    #[test]
    fn what_would_load_anew_is_taken_out_of_the_options_and_the_context_is_what_is_loaded() {
        let body = r#"{"options": {"num_ctx": 32768, "temperature": 0.5, "num_gpu": 0, "stop": ["a"], "main_gpu": 1}}"#;
        let others = r#"{"stop":["a"],"temperature":0.5}"#;
        assert_eq!(set(OLLAMA, body, None).as_deref(), Some(others));
        let with_context = r#"{"num_ctx":4096,"stop":["a"],"temperature":0.5}"#;
        assert_eq!(set(OLLAMA, body, Some(4096)).as_deref(), Some(with_context));
        assert_eq!(of(OLLAMA, body).expect("a body").context, Some(32768));
        assert_eq!(set(OLLAMA, "{}", Some(4096)).as_deref(), Some(r#"{"num_ctx":4096}"#));
        let elsewhere = (ExternalKind::Ollama, Api::Other);
        assert_eq!(set(elsewhere, body, Some(4096)).as_deref(), Some(others));
        for untouched in [r#"{"options": {"temperature": 1.0e0}}"#, r#"{"options": null}"#, "{}"] {
            assert_eq!(set(elsewhere, untouched, Some(4096)), None, "{untouched}");
        }
        assert_eq!(set((ExternalKind::LmStudio, Api::Other), body, None), None);
    }

    #[test]
    fn what_cannot_be_read_or_hides_behind_capital_letters_does_not_travel_to_ollama() {
        let long = format!(r#"{{"options": {{"num_ctx": 9, "stop": ["{}"]}}}}"#, "x".repeat(5000));
        for body in [
            r#"{"Options": {"num_ctx": 9}}"#,
            r#"{"option\u017f": {"num_ctx": 9}}"#,
            r#"{"model": "a", "Model": "b"}"#,
            r#"{"\u212aeep_alive": 0}"#,
            r#"{"options": {"num_ctx": 9, "a": 01}}"#,
            long.as_str(),
        ] {
            assert!(matches!(of(OLLAMA, body), Err(Failure::InvalidRequest { .. })), "{body}");
            assert!(of((ExternalKind::LlamaCppRouter, Api::Other), body).is_ok(), "{body}");
        }
    }
}
