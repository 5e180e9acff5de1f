//! The dashboard's page and its files: who may see them, and the headers around them.
//!
//! They hold nothing of this machine, so that they need no key and no name of ours: the page asks for a key itself and
//! shows it in a header with each request. A browser that follows a link from elsewhere may open the page; no other page
//! may frame it or read its files.
use crate::{
    body::{ReplyBody, empty, full},
    errors::Failure,
    need::area_of,
    origin::{Allowed, Asker, check_with_key},
};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use motorpool_dashboard::{FOLDER, File, POLICY, edition, file, page};

/// A file whose name changes with its content.
const FOR_EVER: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");
/// The page, whose name does not.
const ASK_AGAIN: HeaderValue = HeaderValue::from_static("no-cache");

/// Whether this asks for the page or one of its files.
pub(crate) fn is_asked<B>(request: &Request<B>) -> bool {
    let looks = matches!(*request.method(), Method::GET | Method::HEAD);
    let path = request.uri().path();
    looks && (path.starts_with(FOLDER) || (path == "/" && wants_page(request.headers())))
}

/// Whether a browser asks at `/`, rather than a program that wants to know whether anybody is there.
pub(crate) fn wants_page(headers: &HeaderMap) -> bool {
    let is_page = |value: &HeaderValue| value.to_str().is_ok_and(|text| text.contains("text/html"));
    headers.get_all(header::ACCEPT).iter().any(is_page)
}

/// Who asks for the page, when that is allowed.
pub(crate) fn let_in<B>(request: &Request<B>, allowed: &Allowed) -> Result<Asker, Failure> {
    let (uri, headers) = (request.uri(), request.headers());
    let is = |name: &str, value: &[u8]| headers.get(name).is_some_and(|found| found.as_bytes() == value);
    let follows_link = is("sec-fetch-mode", b"navigate") && is("sec-fetch-dest", b"document");
    if uri.path() == "/" && follows_link && !headers.contains_key(header::ORIGIN) {
        return Ok(Asker::Direct);
    }
    check_with_key(uri, headers, area_of(uri.path()), allowed)
}

/// The page.
pub(crate) fn document(headers: &HeaderMap) -> Response<ReplyBody> {
    let mut response = reply(page(), headers);
    response.headers_mut().insert(header::CACHE_CONTROL, ASK_AGAIN);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept, accept-encoding"));
    response
}

/// The file at `path`, which is what stands behind the folder of all.
pub(crate) fn asset(path: &str, headers: &HeaderMap) -> Result<Response<ReplyBody>, Failure> {
    let nothing = || Failure::NotFound { path: format!("{FOLDER}{path}"), hint: "; the page of another version asked" };
    let mut response = reply(file(path).ok_or_else(nothing)?, headers);
    response.headers_mut().insert(header::CACHE_CONTROL, FOR_EVER);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    Ok(response)
}

/// A file, or that it is still the same.
fn reply(file: File, asked: &HeaderMap) -> Response<ReplyBody> {
    // What is packed are other bytes, so another tag.
    let tags = ["", "-gzip"].map(|form| format!("\"{}{form}\"", edition()));
    let is_known = |known| tags.iter().any(|tag| names(known, tag));
    let is_known = asked.get_all(header::IF_NONE_MATCH).iter().any(is_known);
    let packed = if unpacks(asked) { file.packed() } else { None };
    let [plain, gzip] = tags;
    let (bytes, tag) = packed.map_or((file.bytes, plain), |packed| (packed, gzip));
    let mut response = Response::new(if is_known { empty() } else { full(bytes) });
    if packed.is_some() && !is_known {
        response.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    if is_known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_TYPE, file.content_type),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (header::HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert(header::ETAG, HeaderValue::try_from(tag).expect("digits between quotes"));
    response
}

/// Whether whoever asks unpacks gzip.
fn unpacks(asked: &HeaderMap) -> bool {
    let takes = |word: &str| {
        let (coding, rest) = word.split_once(';').unwrap_or((word, ""));
        let never = rest.trim().strip_prefix("q=").and_then(|q| q.trim().parse::<f32>().ok()).is_some_and(|q| q <= 0.0);
        coding.trim().eq_ignore_ascii_case("gzip") && !never
    };
    let lists = asked.get_all(header::ACCEPT_ENCODING).iter().filter_map(|list| list.to_str().ok());
    lists.flat_map(|list| list.split(',')).any(takes)
}

/// Whether a list of tags holds this one, or any would do.
fn names(known: &HeaderValue, tag: &str) -> bool {
    let is_it = |one: &str| one == "*" || one.strip_prefix("W/").unwrap_or(one) == tag;
    known.to_str().is_ok_and(|list| list.split(',').any(|one| is_it(one.trim())))
}
