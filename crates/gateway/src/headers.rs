//! Which headers travel: to an engine what its manifest lets pass, to a client all but what is the engine's own affair.
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Headers that belong to one connection.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Headers of an engine's reply that are not for our clients: they speak for another server, or open it to any page.
const ENGINES_OWN: &[&str] = &["set-cookie", "server", "alt-svc", "date"];

/// Longest request id taken from a client.
const REQUEST_ID_BYTES: usize = 128;

/// The headers of `request` that `passes` lets through, less hop-by-hop ones, those that `Connection` names, and the length:
/// the body's framing is made anew.
pub fn to_engine(request: &HeaderMap, passes: impl Fn(&str) -> bool) -> HeaderMap {
    let named = named_by_connection(request);
    let travels = |name: &HeaderName| {
        passes(name.as_str()) && !is_hop_by_hop(name) && !named.contains(name) && name != header::CONTENT_LENGTH
    };
    request.iter().filter(|(name, _)| travels(name)).map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Takes out of an engine's reply what its clients must not see.
pub fn to_client(reply: &mut HeaderMap) {
    let drops = |name: &HeaderName| {
        let text = name.as_str();
        is_hop_by_hop(name) || ENGINES_OWN.contains(&text) || text.starts_with("access-control-")
    };
    let unwanted: Vec<HeaderName> =
        reply.keys().filter(|name| drops(name)).cloned().chain(named_by_connection(reply)).collect();
    for name in unwanted {
        reply.remove(name);
    }
}

/// The request's own id if it can be used, else a new one.
pub fn request_id(request: &HeaderMap, fresh: impl FnOnce() -> String) -> HeaderValue {
    let fits =
        |v: &&HeaderValue| (1..=REQUEST_ID_BYTES).contains(&v.len()) && v.as_bytes().iter().all(u8::is_ascii_graphic);
    request
        .get("x-request-id")
        .filter(fits)
        .cloned()
        .unwrap_or_else(|| HeaderValue::from_str(&fresh()).expect("ids of our own are visible ASCII"))
}

/// Has an engine told which request this is, as everybody else is.
pub fn name_request(to_engine: &mut HeaderMap, id: &str) {
    if let Ok(id) = HeaderValue::from_str(id) {
        to_engine.insert("x-request-id", id);
    }
}

fn is_hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(&name.as_str())
}

fn named_by_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let lists = headers.get_all(header::CONNECTION).iter().filter_map(|v| v.to_str().ok());
    lists.flat_map(|list| list.split(',')).filter_map(|name| name.trim().parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(lines: &[(&str, &str)]) -> HeaderMap {
        let pair = |(n, v): &(&str, &str)| {
            (n.parse::<HeaderName>().expect("a name"), v.parse::<HeaderValue>().expect("a value"))
        };
        lines.iter().map(pair).collect()
    }

    #[test]
    fn only_what_passes_and_is_not_of_this_connection_reaches_an_engine() {
        let request = map(&[
            ("content-type", "application/json"),
            ("content-length", "7"),
            ("authorization", "Bearer secret"),
            ("cookie", "c"),
            ("x-stainless-lang", "rust"),
            ("openai-beta", "x"),
            ("connection", "close, OpenAI-Beta"),
            ("transfer-encoding", "chunked"),
        ]);
        let passes = |name: &str| !matches!(name, "authorization" | "cookie");
        let want = map(&[("content-type", "application/json"), ("x-stainless-lang", "rust")]);
        assert_eq!(to_engine(&request, passes), want);
    }

    #[test]
    fn an_engine_does_not_speak_for_us() {
        let mut reply = map(&[
            ("content-type", "text/event-stream"),
            ("content-length", "3"),
            ("access-control-allow-origin", "*"),
            ("set-cookie", "a"),
            ("set-cookie", "b"),
            ("server", "llama.cpp"),
            ("alt-svc", "h3"),
            ("keep-alive", "timeout=5"),
            ("connection", "x-private"),
            ("x-private", "1"),
            ("x-accel-buffering", "no"),
        ]);
        to_client(&mut reply);
        let want = map(&[("content-type", "text/event-stream"), ("content-length", "3"), ("x-accel-buffering", "no")]);
        assert_eq!(reply, want);
    }

    #[test]
    fn a_request_id_is_kept_only_when_it_is_harmless() {
        let fresh = || "ours".to_owned();
        assert_eq!(request_id(&map(&[("x-request-id", "abc-1")]), fresh), "abc-1");
        for bad in ["", "a b", &"x".repeat(129)] {
            assert_eq!(request_id(&map(&[("x-request-id", bad)]), fresh), "ours", "{bad}");
        }
        assert_eq!(request_id(&HeaderMap::new(), fresh), "ours");
    }
}
