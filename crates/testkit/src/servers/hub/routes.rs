//! What each address answers.
use super::{
    COMMIT, Repo, State, Trouble,
    content::{Body, Course, send, whole},
    is_store, sha256,
};
use crate::servers::{Asked, held};
use http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::io;

/// Files of a page of a list.
const PAGE: usize = 2;

pub(super) fn answer(state: &State, request: &Request<Incoming>) -> io::Result<Response<Body>> {
    let asked = Asked {
        method: request.method().to_string(),
        path: decoded(request.uri().path()),
        query: request.uri().query().unwrap_or_default().to_owned(),
        headers: request.headers().clone(),
        body: Value::Null,
    };
    held(&state.asked).push(asked.clone());
    let response = if is_store(&asked) { stored(state, &asked) } else { told(state, &asked) };
    response.map_err(io::Error::other)
}

/// The hub itself.
fn told(state: &State, asked: &Asked) -> http::Result<Response<Body>> {
    let (repos, parts) = (held(&state.repos), asked.path.trim_matches('/').split('/').collect::<Vec<_>>());
    let (repo, rest) = match parts.as_slice() {
        ["api", "models", org, name, rest @ ..] | [org, name, rest @ ..] => (format!("{org}/{name}"), rest),
        _ => return refused(404, "RepoNotFound"),
    };
    let Some(found) = repos.get(&repo) else { return refused(401, "RepoNotFound") };
    match rest {
        ["revision", "main" | COMMIT] => json(&json!({ "id": repo, "sha": COMMIT, "cardData": found.card })),
        ["tree", COMMIT] => page(state, (&repo, found), &asked.query),
        ["resolve", COMMIT, path @ ..] => resolved(state, (&repo, found), (&path.join("/"), &asked.headers)),
        _ => refused(404, "RevisionNotFound"),
    }
}

fn page(state: &State, (repo, found): (&str, &Repo), query: &str) -> http::Result<Response<Body>> {
    let cursor = query.split('&').find_map(|pair| pair.strip_prefix("cursor=")?.parse().ok()).unwrap_or(0);
    let entry = |(path, content): (&String, &Vec<u8>)| {
        let size = match state.trouble_of(path) {
            Some(Trouble::ToldSize(size)) => size,
            _ => content.len() as u64,
        };
        let mut entry = json!({ "type": "file", "path": path, "size": size, "oid": "0" });
        if is_large(path) {
            entry["lfs"] = json!({ "oid": sha256(content), "size": size, "pointerSize": 130 });
        }
        entry
    };
    let entries: Vec<_> = found.files.iter().skip(cursor).take(PAGE).map(entry).collect();
    let mut head = Response::builder();
    if cursor + PAGE < found.files.len() {
        let (port, next) = (held(&state.ports).0, cursor + PAGE);
        let next = format!("http://127.0.0.1:{port}/api/models/{repo}/tree/{COMMIT}?recursive=true&cursor={next}");
        head = head.header("link", format!("<{next}>; rel=\"next\""));
    }
    head.header("content-type", "application/json").body(whole(Value::Array(entries).to_string()))
}

/// The way to a file: large ones lie elsewhere.
fn resolved(
    state: &State,
    (repo, found): (&str, &Repo),
    (path, headers): (&str, &HeaderMap),
) -> http::Result<Response<Body>> {
    let shown = headers.get("authorization").and_then(|value| value.to_str().ok());
    match &found.token {
        Some(_) if shown.is_none() => return refused(401, "GatedRepo"),
        Some(token) if shown != Some(&format!("Bearer {token}")) => return refused(403, "GatedRepo"),
        _ => {}
    }
    let Some(content) = found.files.get(path) else { return refused(404, "EntryNotFound") };
    let head = Response::builder().header("x-repo-commit", COMMIT);
    if !is_large(path) {
        return head.body(whole(content.clone()));
    }
    let to = match state.trouble_of(path) {
        Some(Trouble::Refused(status, code)) => return refused(status, code),
        Some(Trouble::Elsewhere) => format!("/{repo}/resolve/{COMMIT}/{path}"),
        _ => format!("http://localhost:{}/{repo}/{path}", held(&state.ports).1),
    };
    let head = head.status(302).header("location", encoded(&to));
    let head = head.header("x-linked-size", content.len()).header("x-linked-etag", format!("\"{}\"", sha256(content)));
    head.body(whole(""))
}

/// The second server, which knows no gates.
fn stored(state: &State, asked: &Asked) -> http::Result<Response<Body>> {
    let repos = held(&state.repos);
    let path = asked.path.trim_start_matches('/');
    let found = repos.iter().find_map(|(repo, one)| one.files.get(path.strip_prefix(repo)?.strip_prefix('/')?));
    let Some(content) = found else { return refused(404, "NoSuchKey") };
    let (trouble, mut content) = (state.take_trouble_of(path), content.clone());
    let etag = format!("\"{}\"", sha256(&content));
    if let Some(Trouble::OtherContent(other)) = &trouble {
        content.clone_from(other);
    }
    let range =
        asked.headers.get("range").and_then(|value| value.to_str().ok()?.strip_prefix("bytes=")?.strip_suffix('-'));
    let same = asked.headers.get("if-range").is_none_or(|tag| *tag == etag);
    let from = range.and_then(|from| from.parse().ok()).filter(|_| same && trouble != Some(Trouble::NoRanges));
    let head = Response::builder().header("etag", etag);
    let (head, start) = match from {
        Some(from) if from >= content.len() => {
            return head.status(416).header("content-range", format!("bytes */{}", content.len())).body(whole(""));
        }
        Some(from) => {
            let range = format!("bytes {from}-{}/{}", content.len() - 1, content.len());
            (head.status(206).header("content-range", range), from)
        }
        None => (head, 0),
    };
    let course = match trouble {
        Some(Trouble::CutAt(at)) => Course::CutAt(at.saturating_sub(start)),
        Some(Trouble::HeldAt(at)) => Course::HeldAt(at.saturating_sub(start), state.is_released()),
        _ => Course::Whole,
    };
    send(head, &content[start..], course)
}

fn is_large(path: &str) -> bool {
    path.contains(".gguf")
}

fn json(value: &Value) -> http::Result<Response<Body>> {
    Response::builder().header("content-type", "application/json").body(whole(value.to_string()))
}

fn refused(status: u16, code: &str) -> http::Result<Response<Body>> {
    let head = Response::builder().status(status).header("x-error-code", code);
    head.body(whole(json!({ "error": code }).to_string()))
}

fn encoded(address: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/".contains(&byte);
    let one = |byte: u8| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    address.bytes().map(one).collect()
}

/// `%20` and its like.
fn decoded(path: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), path.as_bytes());
    while let Some((first, behind)) = rest.split_first() {
        let code = (*first == b'%').then(|| behind.get(..2)).flatten().and_then(|two| std::str::from_utf8(two).ok());
        if let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            bytes.push(byte);
            rest = &behind[2..];
        } else {
            bytes.push(*first);
            rest = behind;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
