//! Who may ask: the rules on `Host`, `Origin` and `Sec-Fetch-Site`, and on requests that came through a proxy.
//!
//! While there are no keys, the address is all the proof there is: a page in a browser, a name that was rebound to our
//! address and a proxy all reach loopback on somebody else's behalf. Everything here is a pure function of the headers.
use crate::errors::Failure;
use http::{HeaderMap, HeaderName, HeaderValue, Uri, header, uri::Authority};
use std::net::IpAddr;

/// What a request wants, as far as pages are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// Inference and what describes it: pages on loopback may ask.
    Inference,
    /// Our own interface: only our own pages may ask.
    Management,
}

/// Names and origins that are allowed beside those that always are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowed {
    /// `server.hosts`, lower case, and the machine's own name.
    pub hosts: Vec<String>,
    /// `server.origins`, as `scheme://host[:port]` in lower case.
    pub origins: Vec<String>,
}

/// Who asks, when that is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asker {
    /// A program, or a page of our own.
    Direct,
    /// A page of this origin, which must be told that it may read the reply.
    Page(HeaderValue),
}

/// All rules at once.
pub fn check(uri: &Uri, headers: &HeaderMap, area: Area, allowed: &Allowed) -> Result<Asker, Failure> {
    let host = check_host(uri, headers, allowed)?;
    check_proxy(headers)?;
    check_origin(headers, area, host.as_ref(), allowed)
}

/// With a valid key: by whatever name and proxy it came, only where a page is from matters.
pub(crate) fn check_with_key(uri: &Uri, headers: &HeaderMap, area: Area, allowed: &Allowed) -> Result<Asker, Failure> {
    let host = uri.authority().cloned();
    let named = || Authority::try_from(headers.get(header::HOST)?.as_bytes()).ok();
    check_origin(headers, area, host.or_else(named).as_ref(), allowed)
}

/// A name that anybody could have pointed at us is refused. `None`: HTTP/1.0 without `Host`.
pub(crate) fn check_host(uri: &Uri, headers: &HeaderMap, allowed: &Allowed) -> Result<Option<Authority>, Failure> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let named = hosts.next();
    if hosts.next().is_some() {
        return Err(Failure::InvalidRequest { message: "more than one `Host` header".into(), param: None });
    }
    let authority = match (uri.authority(), named) {
        (Some(absolute), _) => absolute.clone(),
        (None, None) => return Ok(None),
        (None, Some(host)) => Authority::try_from(host.as_bytes()).map_err(|_| not_our_host(host))?,
    };
    if authority.as_str().contains('@') || !is_our_host(authority.host(), allowed) {
        return Err(Failure::HostNotAllowed(authority.to_string()));
    }
    Ok(Some(authority))
}

fn not_our_host(host: &HeaderValue) -> Failure {
    Failure::HostNotAllowed(String::from_utf8_lossy(host.as_bytes()).into_owned())
}

fn is_our_host(host: &str, allowed: &Allowed) -> bool {
    let host = host.to_ascii_lowercase();
    let name = host.strip_suffix('.').unwrap_or(&host);
    ip_literal(name).is_some()
        || is_localhost(name)
        || name == "host.docker.internal"
        || allowed.hosts.iter().any(|h| h == name)
}

fn ip_literal(host: &str) -> Option<IpAddr> {
    host.strip_prefix('[').and_then(|h| h.strip_suffix(']')).unwrap_or(host).parse().ok()
}

fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.strip_suffix(".localhost").is_some_and(|sub| !sub.is_empty())
}

/// What came through a proxy is not from this machine, whatever the address says.
fn check_proxy(headers: &HeaderMap) -> Result<(), Failure> {
    if came_by_proxy(headers) {
        return Err(Failure::NotAllowed("requests that come through a proxy need a key, and this server has none"));
    }
    Ok(())
}

/// Whether a proxy left its trace.
pub(crate) fn came_by_proxy(headers: &HeaderMap) -> bool {
    let is_trace = |name: &HeaderName| {
        let name = name.as_str();
        name == "forwarded" || name == "via" || name.starts_with("x-forwarded-")
    };
    headers.keys().any(is_trace)
}

fn check_origin(
    headers: &HeaderMap,
    area: Area,
    host: Option<&Authority>,
    allowed: &Allowed,
) -> Result<Asker, Failure> {
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let Some(origin) = origins.next() else {
        return check_fetch_site(headers);
    };
    let text = origin.to_str().unwrap_or("?").to_ascii_lowercase();
    if origins.next().is_some() {
        return Err(Failure::OriginNotAllowed(format!("{text}, …")));
    }
    if host.is_some_and(|host| is_own(&text, host)) {
        return Ok(Asker::Direct);
    }
    let known = allowed.origins.contains(&text) || (area == Area::Inference && is_loopback_origin(&text));
    if known { Ok(Asker::Page(origin.clone())) } else { Err(Failure::OriginNotAllowed(text)) }
}

/// Without an origin, a browser says only how far away the page is.
fn check_fetch_site(headers: &HeaderMap) -> Result<Asker, Failure> {
    let far = |v: &&HeaderValue| !matches!(v.as_bytes(), b"same-origin" | b"none");
    match headers.get_all("sec-fetch-site").iter().find(far) {
        None => Ok(Asker::Direct),
        Some(site) => Err(Failure::OriginNotAllowed(String::from_utf8_lossy(site.as_bytes()).into_owned())),
    }
}

fn is_own(origin: &str, host: &Authority) -> bool {
    let rest = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    rest.is_some_and(|authority| authority.eq_ignore_ascii_case(host.as_str()))
}

fn is_loopback_origin(origin: &str) -> bool {
    let Some(rest) = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")) else { return false };
    let Ok(authority) = rest.parse::<Authority>() else { return false };
    let host = authority.host();
    !rest.contains('@') && (is_localhost(host) || ip_literal(host).is_some_and(|ip| ip.is_loopback()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(area: Area, uri: &str, lines: &[(&str, &str)]) -> Result<Asker, &'static str> {
        let allowed =
            Allowed { hosts: vec!["box".into(), "ai.example".into()], origins: vec!["https://app.example".into()] };
        let pair = |(n, v): &(&str, &str)| {
            (n.parse::<HeaderName>().expect("a name"), v.parse::<HeaderValue>().expect("a value"))
        };
        let headers = lines.iter().map(pair).collect();
        check(&uri.parse().expect("a URI"), &headers, area, &allowed).map_err(|f| f.verdict().code)
    }

    fn page(origin: &'static str) -> Asker {
        Asker::Page(HeaderValue::from_static(origin))
    }

    #[test]
    fn a_host_must_be_ours() {
        for (host, ours) in [
            ("127.0.0.1:8790", true),
            ("192.168.1.7", true),
            ("[::1]:8790", true),
            ("localhost", true),
            ("LOCALHOST:1", true),
            ("localhost.", true),
            ("a.localhost:8790", true),
            (".localhost", false),
            ("host.docker.internal:8790", true),
            ("box:8790", true),
            ("Ai.Example", true),
            ("evil.example", false),
            ("localhost.evil.example", false),
            ("evil.example:127", false),
            ("a@127.0.0.1", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
            ("a b", false),
        ] {
            let want = if ours { Ok(Asker::Direct) } else { Err("host_not_allowed") };
            assert_eq!(ask(Area::Inference, "/", &[("host", host)]), want, "{host}");
        }
        assert_eq!(ask(Area::Inference, "/", &[]), Ok(Asker::Direct));
        assert_eq!(ask(Area::Inference, "/", &[("host", "box"), ("host", "box")]), Err("invalid_request"));
        assert_eq!(ask(Area::Inference, "http://evil.example/", &[("host", "box")]), Err("host_not_allowed"));
    }

    #[test]
    fn pages_on_loopback_may_infer_and_only_our_own_may_manage() {
        let host = ("host", "127.0.0.1:8790");
        let refused = Err("origin_not_allowed");
        for (origin, inference, management) in [
            ("http://127.0.0.1:8790", Ok(Asker::Direct), Ok(Asker::Direct)),
            ("http://localhost:3000", Ok(page("http://localhost:3000")), refused.clone()),
            ("https://x.localhost", Ok(page("https://x.localhost")), refused.clone()),
            ("http://[::1]:3000", Ok(page("http://[::1]:3000")), refused.clone()),
            ("http://127.8.8.8", Ok(page("http://127.8.8.8")), refused.clone()),
            ("https://app.example", Ok(page("https://app.example")), Ok(page("https://app.example"))),
            ("https://app.example:8443", refused.clone(), refused.clone()),
            ("http://192.168.1.7", refused.clone(), refused.clone()),
            ("https://evil.example", refused.clone(), refused.clone()),
            ("http://localhost@evil.example", refused.clone(), refused.clone()),
            ("null", refused.clone(), refused.clone()),
            ("file://", refused.clone(), refused.clone()),
            ("", refused.clone(), refused.clone()),
        ] {
            assert_eq!(ask(Area::Inference, "/", &[host, ("origin", origin)]), inference, "{origin}");
            assert_eq!(ask(Area::Management, "/", &[host, ("origin", origin)]), management, "{origin}");
        }
        let two = [host, ("origin", "http://localhost"), ("origin", "http://localhost")];
        assert_eq!(ask(Area::Inference, "/", &two), refused);
    }

    #[test]
    fn a_page_that_hides_its_origin_is_refused_by_its_distance() {
        for (site, ok) in
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false), ("x", false)]
        {
            let got = ask(Area::Inference, "/", &[("host", "localhost"), ("sec-fetch-site", site)]);
            assert_eq!(got.is_ok(), ok, "{site}");
        }
        let allowed = [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("origin", "https://app.example")];
        assert_eq!(ask(Area::Management, "/", &allowed), Ok(page("https://app.example")));
    }

    #[test]
    fn what_came_through_a_proxy_is_not_from_here() {
        for name in ["forwarded", "via", "x-forwarded-for", "x-forwarded-host"] {
            assert_eq!(ask(Area::Inference, "/", &[("host", "localhost"), (name, "1")]), Err("not_allowed"), "{name}");
        }
    }
}
