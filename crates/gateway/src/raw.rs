//! `/m/<model>/<path>`: a path for an engine, byte for byte.
//!
//! The model is matched on the raw path: the longest known id or alias, `/` and `%2F` alike. What follows its slash is the
//! engine's path, untouched, so that `%2F` stays `%2F`.
use motorpool_catalog::{Capability, Catalog, Model, UnknownModel};
use std::sync::Arc;

/// A path under `/m/`, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct RawPath<'a> {
    /// The model.
    pub(crate) model: Arc<Model>,
    /// As it is named there.
    pub(crate) name: String,
    /// The engine's own path, `/` first.
    pub(crate) path: &'a str,
}

/// Takes apart what follows `/m/`.
pub(crate) fn take_apart<'a>(catalog: &Catalog, rest: &'a str) -> Result<RawPath<'a>, UnknownModel> {
    let whole = Decoded::of(rest);
    let named =
        catalog.models().flat_map(|m| m.aliases.iter().map(String::as_str).chain([m.id.as_str()]).map(move |n| (n, m)));
    let longest = named
        .filter_map(|(name, model)| whole.after(name.as_bytes()).map(|end| (end, model)))
        .max_by_key(|(end, _)| *end);
    let (end, model) = if let Some((end, model)) = longest {
        (end, Arc::clone(model))
    } else {
        // No plain name fits: an alias with a `*` may, for the first part.
        let end = rest.find('/').unwrap_or(rest.len());
        (end, Arc::clone(catalog.resolve(&decoded(&rest[..end]))?))
    };
    let path = &rest[end..];
    let name = decoded(&rest[..end]);
    Ok(RawPath { model, name, path: if path.is_empty() { "/" } else { path } })
}

/// What a model must be for to be asked this path of llama-server's; `None` where any model answers, or is not known.
pub(crate) fn purpose(path: &str) -> Option<Capability> {
    match path.strip_prefix("/v1").unwrap_or(path) {
        "/chat/completions" | "/completion" | "/completions" | "/responses" | "/messages" | "/infill" => {
            Some(Capability::Chat)
        }
        "/embedding" | "/embeddings" => Some(Capability::Embeddings),
        "/rerank" | "/reranking" => Some(Capability::Rerank),
        "/audio/transcriptions" => Some(Capability::Transcription),
        _ => None,
    }
}

/// The name that a query gives as `model`.
pub(crate) fn named_in(query: Option<&str>) -> Option<String> {
    let value = query?.split('&').find_map(|pair| pair.strip_prefix("model="))?;
    Some(decoded(&value.replace('+', " "))).filter(|name| !name.is_empty())
}

/// A path with its escapes decoded, and where each byte's spelling ended in the raw one.
struct Decoded {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Decoded {
    fn of(raw: &str) -> Self {
        let raw = raw.as_bytes();
        let mut decoded = Self { bytes: Vec::with_capacity(raw.len()), ends: Vec::with_capacity(raw.len()) };
        let mut at = 0;
        while at < raw.len() {
            let escape = raw[at..].strip_prefix(b"%").and_then(|digits| hex_byte(digits.get(..2)?));
            at += if escape.is_some() { 3 } else { 1 };
            decoded.bytes.push(escape.unwrap_or(raw[at - 1]));
            decoded.ends.push(at);
        }
        decoded
    }

    /// Where the raw path goes on after `name`, if it begins with it as a whole: at a plain slash, or at its end.
    fn after(&self, name: &[u8]) -> Option<usize> {
        let fits = !name.is_empty() && self.bytes.starts_with(name);
        let whole = self.bytes.get(name.len()).is_none_or(|next| *next == b'/' && self.is_plain(name.len()));
        (fits && whole).then(|| self.ends[name.len() - 1])
    }

    /// Whether this byte is spelled as itself.
    fn is_plain(&self, i: usize) -> bool {
        self.ends[i] - i.checked_sub(1).map_or(0, |before| self.ends[before]) == 1
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

fn hex_byte(digits: &[u8]) -> Option<u8> {
    let text = str::from_utf8(digits).ok().filter(|t| t.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u8::from_str_radix(text, 16).ok()
}

/// The text of a part of a path, its escapes decoded.
pub(crate) fn decoded(part: &str) -> String {
    Decoded::of(part).text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::catalog;

    #[test]
    fn the_longest_known_name_is_the_model_and_the_rest_stays_raw() {
        let catalog = catalog(&[("a", &["org/a", "x*"]), ("org", &["a b"]), ("org/a/b", &[])]);
        for (rest, model, path) in [
            ("a/v1/models", "a", "/v1/models"),
            ("a", "a", "/"),
            ("a/", "a", "/"),
            ("a/x%2Fy/%2e%2e?", "a", "/x%2Fy/%2e%2e?"),
            ("org/a/v1", "a", "/v1"),
            ("org%2Fa/v1", "a", "/v1"),
            ("org%2fa%2Fb/v1", "org/a/b", "/v1"),
            ("org/a/b", "org/a/b", "/"),
            ("org/v1", "org", "/v1"),
            ("a%20b/v1", "org", "/v1"),
            ("%61/v1", "a", "/v1"),
            ("xyz/v1", "a", "/v1"),
        ] {
            let found = take_apart(&catalog, rest).expect("a model");
            assert_eq!((found.model.id.as_str(), found.path), (model, path), "{rest}");
        }
    }

    #[test]
    fn the_model_is_named_in_the_query() {
        for (query, want) in [
            (None, None),
            (Some(""), None),
            (Some("model="), None),
            (Some("autoload=false&model=org%2Fm"), Some("org/m")),
            (Some("model=a+b"), Some("a b")),
            (Some("models=a"), None),
        ] {
            assert_eq!(named_in(query).as_deref(), want, "{query:?}");
        }
    }

    #[test]
    fn what_names_no_model_is_refused() {
        let catalog = catalog(&[("a", &[]), ("org/a", &[])]);
        for (rest, name) in [("ab/v1", "ab"), ("org%2Fb/v1", "org/b"), ("", ""), ("a%2Fv1", "a/v1"), ("%zz/a", "%zz")] {
            assert_eq!(take_apart(&catalog, rest).expect_err("no model").name, name, "{rest}");
        }
    }
}
