//! [`Caller`]: one GET request, through redirects, with a secret that never reaches another host.
//!
//! Redirects are followed by hand: never from https to http, at most ten. Plain http is for the loopback address only.
//! What the first host says of a file on its way elsewhere (a hub keeps large files on other servers) is kept: it
//! vouches for what those give.
use super::{ANSWER_WITHIN, CONNECT_WITHIN, FetchError, N_REDIRECTS};
use bytes::Bytes as Frame;
use http::{HeaderMap, Request, Response, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use std::{fmt, io, path::Path};

pub(crate) type Connector = HttpsConnector<HttpConnector>;

/// What opens files to whoever has it.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token(String);

impl Token {
    /// The first line of `text`, when it is one word of plain characters.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let line = text.lines().next().unwrap_or_default().trim();
        let fits = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then(|| Self(line.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// What the host that was asked says of a file, wherever it lies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Linked {
    /// Its SHA-256, for what is stored as a large file.
    pub(crate) etag: Option<String>,
    pub(crate) size: Option<u64>,
    /// The commit that it belongs to.
    pub(crate) commit: Option<String>,
}

/// Asks one server, and those it sends us to.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    client: Client<Connector, Empty<Frame>>,
    token: Option<Token>,
}

/// What came of one request.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) uri: Uri,
    pub(super) response: Response<Incoming>,
    pub(super) linked: Linked,
}

impl Caller {
    /// With a secret for the host of each address that it is given.
    pub(crate) fn new(token: Option<Token>) -> Result<Self, FetchError> {
        let connector = connector().map_err(FetchError::Roots)?;
        Ok(Self { client: Client::builder(TokioExecutor::new()).build(connector), token })
    }

    /// The document at `url`, of at most `most` bytes, and the headers that came with it.
    pub(crate) async fn document(&self, url: &str, most: usize) -> Result<(HeaderMap, Vec<u8>), FetchError> {
        let Reply { uri, response, .. } = self.get(url, &HeaderMap::new()).await?;
        if !response.status().is_success() {
            return Err(refused(&uri, &response));
        }
        let (head, body) = response.into_parts();
        let body = http_body_util::Limited::new(body, most).collect();
        match tokio::time::timeout(ANSWER_WITHIN, body).await {
            Ok(Ok(whole)) => Ok((head.headers, whole.to_bytes().into())),
            Ok(Err(source)) if source.is::<http_body_util::LengthLimitError>() => {
                Err(FetchError::TooLong { uri, most: motorpool_vocab::Bytes::new(most as u64) })
            }
            Ok(Err(source)) => Err(FetchError::Network { uri, source }),
            Err(late) => Err(FetchError::Network { uri, source: late.into() }),
        }
    }

    /// Asks for `url` with these headers, through redirects.
    pub(super) async fn get(&self, url: &str, headers: &HeaderMap) -> Result<Reply, FetchError> {
        let first: Uri = url.parse().map_err(|_| FetchError::Url(url.to_owned()))?;
        let (mut uri, mut linked, mut at_home) = (first.clone(), Linked::default(), true);
        for _ in 0..=N_REDIRECTS {
            check_scheme(&uri)?;
            // Once it was led away it is a stranger, even where it comes back to.
            at_home = at_home && is_same_host(&first, &uri);
            let token = self.token.as_ref().filter(|_| at_home);
            let request = request(&uri, headers, token).map_err(|_| FetchError::Url(url.to_owned()))?;
            let answer = tokio::time::timeout(ANSWER_WITHIN, self.client.request(request)).await;
            let response = network(&uri, answer)?;
            if at_home {
                linked.read(response.headers());
            }
            if !response.status().is_redirection() {
                return Ok(Reply { uri, response, linked });
            }
            let to = text_of(response.headers(), "location").and_then(|to| resolve(&uri, to));
            uri = to.ok_or_else(|| refused(&uri, &response))?;
        }
        Err(FetchError::Redirects(first))
    }
}

impl Linked {
    fn read(&mut self, headers: &HeaderMap) {
        let text = |name| text_of(headers, name);
        let etag = text("x-linked-etag").map(|tag| tag.trim_start_matches("W/").trim_matches('"').to_owned());
        self.etag = etag.or_else(|| self.etag.take());
        self.size = text("x-linked-size").and_then(|size| size.parse().ok()).or(self.size);
        self.commit = text("x-repo-commit").map(str::to_owned).or_else(|| self.commit.take());
    }
}

/// Connections to servers, encrypted ones checked by the system's certificate authorities.
pub(crate) fn connector() -> io::Result<Connector> {
    let tls = HttpsConnectorBuilder::new().with_provider_and_native_roots(rustls::crypto::ring::default_provider())?;
    Ok(tls.https_or_http().enable_http1().wrap_connector(plain()))
}

/// The same, checked by the authorities in this file and no others.
pub(crate) fn connector_by(authorities: &Path) -> io::Result<Connector> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(authorities).map_err(io::Error::other)? {
        roots.add(certificate.map_err(io::Error::other)?).map_err(io::Error::other)?;
    }
    if roots.is_empty() {
        return Err(io::Error::other("it holds none"));
    }
    let provider = rustls::crypto::ring::default_provider();
    let tls = rustls::ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
    let tls = tls.map_err(io::Error::other)?.with_root_certificates(roots).with_no_client_auth();
    Ok(HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(plain()))
}

fn plain() -> HttpConnector {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT_WITHIN));
    http
}

fn request(uri: &Uri, headers: &HeaderMap, token: Option<&Token>) -> http::Result<Request<Empty<Frame>>> {
    let mut request = Request::get(uri.clone())
        .header(header::USER_AGENT, concat!("motorpool/", env!("CARGO_PKG_VERSION")))
        .header(header::ACCEPT_ENCODING, "identity");
    for (name, value) in headers {
        request = request.header(name, value);
    }
    if let Some(Token(secret)) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {secret}"));
    }
    request.body(Empty::new())
}

/// What an answer means that is not what was asked for.
pub(super) fn refused(uri: &Uri, response: &Response<Incoming>) -> FetchError {
    let code = text_of(response.headers(), "x-error-code").map(str::to_owned);
    FetchError::Status { uri: uri.clone(), status: response.status(), code }
}

pub(super) fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

pub(super) fn network<T, E>(
    uri: &Uri,
    result: Result<Result<T, E>, tokio::time::error::Elapsed>,
) -> Result<T, FetchError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let failed = |source| FetchError::Network { uri: uri.clone(), source };
    result.map_err(|late| failed(late.into()))?.map_err(|error| failed(error.into()))
}

/// Scheme, host and port.
fn is_same_host(a: &Uri, b: &Uri) -> bool {
    let port = |uri: &Uri| uri.port_u16().unwrap_or(if uri.scheme_str() == Some("https") { 443 } else { 80 });
    let host = |uri: &Uri| uri.host().map(str::to_ascii_lowercase);
    a.scheme_str() == b.scheme_str() && host(a) == host(b) && port(a) == port(b)
}

pub(super) fn check_scheme(uri: &Uri) -> Result<(), FetchError> {
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) | (Some("http"), Some("127.0.0.1" | "localhost" | "[::1]")) => Ok(()),
        (Some("http"), Some(_)) => Err(FetchError::Plain(uri.clone())),
        _ => Err(FetchError::Url(uri.to_string())),
    }
}

/// Whether it begins with a scheme (RFC 3986, section 3.1) and a host: an address in a query does not make it one.
fn is_absolute(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    text.split_once("://").is_some_and(|(scheme, _)| !scheme.is_empty() && scheme.bytes().all(fits))
}

/// Where `to`, as a Location header gives it, leads from `base`. Never out of encryption.
pub(super) fn resolve(base: &Uri, to: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = if is_absolute(to) {
        to.to_owned()
    } else if let Some(rest) = to.strip_prefix("//") {
        format!("{scheme}://{rest}")
    } else if to.starts_with('/') {
        format!("{scheme}://{authority}{to}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{to}")
    };
    let uri: Uri = text.parse().ok()?;
    (scheme != "https" || uri.scheme_str() == Some("https")).then_some(uri)
}
