//! What the hub answers, as far as we read it. Nothing in it is believed to be safe: paths that lead out of their
//! repository, or cannot be shown, are not there.
use super::{choose::RemoteFile, reference::is_path};
use crate::disk::Sum;
use http::HeaderMap;
use motorpool_catalog::Terms;
use motorpool_vocab::Bytes;
use serde::Deserialize;
use serde_json::Value;

/// A model's card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Card {
    pub(super) commit: String,
    licence: Option<String>,
    link: Option<String>,
}

/// What a repository is at a revision.
pub(super) fn card(text: &[u8]) -> Option<Card> {
    let whole: Value = serde_json::from_slice(text).ok()?;
    let commit = whole["sha"].as_str()?.to_owned();
    let is_commit = (7..=64).contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    let card = &whole["cardData"];
    let text = |name: &str| {
        let value = &card[name];
        value.as_str().or_else(|| value[0].as_str()).map(str::to_owned)
    };
    let tags = whole["tags"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let tagged = || tags.clone().find_map(|tag| tag.strip_prefix("license:")).map(str::to_owned);
    let licence = text("license").or_else(tagged);
    let licence = if licence.as_deref() == Some("other") { text("license_name").or(licence) } else { licence };
    is_commit.then(|| Card { commit, licence, link: text("license_link") })
}

impl Card {
    /// As the repository at `page` tells them.
    pub(super) fn terms(&self, page: &str) -> Terms {
        let link = self.link.clone().filter(|link| link.starts_with("https://"));
        let text = match &self.licence {
            Some(_) => format!("What they say is told at {page}."),
            None => format!("Its repository names no licence: read {page} before you use it."),
        };
        let name = self.licence.clone().unwrap_or_else(|| "no licence named".to_owned());
        Terms { name, url: Some(link.unwrap_or_else(|| page.to_owned())), text }
    }
}

#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    path: String,
    #[serde(default)]
    size: u64,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    oid: String,
    size: u64,
}

/// One page of a list of files.
pub(super) fn files(text: &[u8]) -> Option<Vec<RemoteFile>> {
    let entries: Vec<Entry> = serde_json::from_slice(text).ok()?;
    let file = |entry: Entry| {
        let size = entry.lfs.as_ref().map_or(entry.size, |lfs| lfs.size);
        // Of older servers with the kind of the hash in front.
        let oid = entry.lfs.as_ref().map(|lfs| lfs.oid.trim_start_matches("sha256:"));
        RemoteFile { sha256: oid.and_then(Sum::parse), path: entry.path, size: Bytes::new(size) }
    };
    Some(entries.into_iter().filter(|entry| entry.kind == "file" && is_path(&entry.path)).map(file).collect())
}

/// The address of the page behind this one.
pub(super) fn next_page(headers: &HeaderMap) -> Option<String> {
    let links = headers.get("link")?.to_str().ok()?;
    let next = links.split(',').find(|link| link.contains("rel=\"next\""))?;
    next.trim().strip_prefix('<')?.split_once('>').map(|(url, _)| url.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_has_a_commit_and_perhaps_terms() {
        let terms = |text: &str| {
            let card = card(text.as_bytes()).expect("a card");
            let Terms { name, url, .. } = card.terms("https://h/o/r");
            (name, url.expect("a place"))
        };
        let of = |rest: &str| format!("{{\"sha\": \"0123456789abcdef\"{rest}}}");
        let page = || "https://h/o/r".to_owned();
        assert_eq!(terms(&of("")), ("no licence named".into(), page()));
        assert_eq!(terms(&of(", \"tags\": [\"x\", \"license:mit\"]")), ("mit".into(), page()));
        assert_eq!(terms(&of(", \"cardData\": {\"license\": [\"mit\"]}")), ("mit".into(), page()));
        let own =
            ", \"cardData\": {\"license\": \"other\", \"license_name\": \"own\", \"license_link\": \"https://l\"}";
        assert_eq!(terms(&of(own)), ("own".into(), "https://l".into()));
        let odd = ", \"cardData\": {\"license\": \"mit\", \"license_link\": \"LICENSE\"}";
        assert_eq!(terms(&of(odd)), ("mit".into(), page()));
        for text in ["", "[]", "{}", "{\"sha\": \"main\"}", "{\"sha\": \"../../../x\"}"] {
            assert_eq!(card(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn only_files_that_stay_in_their_repository_are_listed() {
        let sum = "a".repeat(64);
        let text = format!(
            r#"[{{"type":"directory","path":"d","size":0}},
                {{"type":"file","path":"d/m.gguf","size":130,"lfs":{{"oid":"{sum}","size":9000}}}},
                {{"type":"file","path":"old.gguf","size":5,"lfs":{{"oid":"sha256:{sum}","size":5}}}},
                {{"type":"file","path":"plain","size":7}},
                {{"type":"file","path":"../../etc/passwd","size":7}},
                {{"type":"file","path":"/abs.gguf","size":7}},
                {{"type":"file","path":"a/../b.gguf","size":7}},
                {{"type":"file","path":"red\u001b[31m.gguf","size":7}}]"#
        );
        let files = files(text.as_bytes()).expect("a list");
        let seen: Vec<_> = files.iter().map(|f| (f.path.as_str(), f.size.get(), f.sha256.is_some())).collect();
        assert_eq!(seen, [("d/m.gguf", 9000, true), ("old.gguf", 5, true), ("plain", 7, false)]);
    }

    #[test]
    fn the_next_page_is_where_the_header_says() {
        let page = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("link", text.parse().expect("a value"));
            next_page(&headers)
        };
        let two = "<https://h/x?cursor=0>; rel=\"prev\", <https://h/x?cursor=2>; rel=\"next\"";
        assert_eq!(page(two).as_deref(), Some("https://h/x?cursor=2"));
        assert_eq!(page("<https://h/x>; rel=\"last\""), None);
        assert_eq!(next_page(&HeaderMap::new()), None);
    }
}
