//! Downloads over HTTP: [`fetch`] fills a `.partial` file and continues where an earlier try stopped.
//!
//! ```text
//! have = length of .partial ─► GET, Range: bytes=have-, If-Range: <validator> ─► 206 append │ 200 begin again │ 416 all there
//!          ▲                                                                        │ connection lost, server busy
//!          └──────────────────── up to 5 tries in a row without a new byte ◄────────┘
//! ```
//!
//! The validator (`ETag`, else Last-Modified) is kept beside the partial file, so that two versions of a file are
//! never mixed. Redirects are followed by hand: never from https to http, at most ten. Plain http is for the
//! loopback address only.
use crate::{disk, progress::Progress};
use bytes::Bytes as Frame;
use http::{Request, Response, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use motorpool_vocab::Bytes;
use rustls::pki_types::{CertificateDer, pem::PemObject};
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
const N_REDIRECTS: usize = 10;
const N_TRIES: u32 = 5;

/// Why a download failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("`{0}` is no address")]
    Url(String),
    #[error("`{0}` is not encrypted: plain http is for the loopback address only")]
    Plain(Uri),
    #[error("more than {N_REDIRECTS} redirects from `{0}`")]
    Redirects(Uri),
    #[error("`{uri}` answered {status}")]
    Status { uri: Uri, status: StatusCode },
    #[error("no certificate authorities to check servers with")]
    Roots(#[source] io::Error),
    #[error("the connection to `{uri}` failed")]
    Network { uri: Uri, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("cannot write {}", path.display())]
    Disk { path: PathBuf, source: io::Error },
    #[error(transparent)]
    NoRoom(#[from] disk::NoRoom),
}

impl FetchError {
    /// Whether the same request may go well a moment later.
    fn is_passing(&self) -> bool {
        match self {
            Self::Network { .. } => true,
            Self::Status { status, .. } => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::Url(_)
            | Self::Plain(_)
            | Self::Redirects(_)
            | Self::Roots(_)
            | Self::Disk { .. }
            | Self::NoRoom(_) => false,
        }
    }
}

/// Which version of the remote file the partial one belongs to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    url: String,
    validator: Option<String>,
}

pub(crate) type Connector = HttpsConnector<HttpConnector>;

/// A download under way.
struct Transfer<'a> {
    client: Client<Connector, Empty<Frame>>,
    url: &'a str,
    partial: &'a Path,
    meter: &'a mut Progress,
}

/// Fills `partial` with what is at `url`. What it wrote stays there when it fails, and is continued next time.
pub(crate) async fn fetch(url: &str, partial: &Path, meter: &mut Progress) -> Result<(), FetchError> {
    let mut transfer = Transfer { client: client()?, url, partial, meter };
    let mut n_tries = 0;
    loop {
        let before = length(partial);
        let Err(error) = transfer.attempt().await else { break };
        n_tries = if length(partial) > before { 1 } else { n_tries + 1 };
        if !error.is_passing() || n_tries >= N_TRIES {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(250 << n_tries)).await;
    }
    let _ = fs::remove_file(origin_path(partial));
    Ok(())
}

fn client() -> Result<Client<Connector, Empty<Frame>>, FetchError> {
    Ok(Client::builder(TokioExecutor::new()).build(connector().map_err(FetchError::Roots)?))
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

impl Transfer<'_> {
    async fn attempt(&mut self) -> Result<(), FetchError> {
        let origin: Origin = disk::read_record(&origin_path(self.partial)).unwrap_or_default();
        let have = if origin.url == self.url { length(self.partial) } else { 0 };
        let (uri, response) = self.ask(have, origin.validator.as_deref()).await?;
        let start = match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, have) => have,
            StatusCode::OK => 0,
            StatusCode::RANGE_NOT_SATISFIABLE if whole_length(&response) == Some(have) => return Ok(()),
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                // The file there changed its length: what we have is of no use.
                self.disk(fs::write(self.partial, b""))?;
                return Err(FetchError::Network { uri, source: "the file there has changed".into() });
            }
            status => return Err(FetchError::Status { uri, status }),
        };
        self.receive(start, uri, response).await
    }

    /// Asks for the file from byte `have` on, through redirects.
    async fn ask(&self, have: u64, validator: Option<&str>) -> Result<(Uri, Response<Incoming>), FetchError> {
        let mut uri: Uri = self.url.parse().map_err(|_| FetchError::Url(self.url.to_owned()))?;
        for _ in 0..=N_REDIRECTS {
            check_scheme(&uri)?;
            let mut request = Request::get(uri.clone())
                .header(header::USER_AGENT, concat!("motorpool/", env!("CARGO_PKG_VERSION")))
                .header(header::ACCEPT_ENCODING, "identity");
            if have > 0 {
                request = request.header(header::RANGE, format!("bytes={have}-"));
                if let Some(validator) = validator {
                    request = request.header(header::IF_RANGE, validator);
                }
            }
            let request = request.body(Empty::new()).map_err(|_| FetchError::Url(self.url.to_owned()))?;
            let answer = tokio::time::timeout(ANSWER_WITHIN, self.client.request(request)).await;
            let response = network(&uri, answer)?;
            if !response.status().is_redirection() {
                return Ok((uri, response));
            }
            let to = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
            uri = to.and_then(|to| resolve(&uri, to)).ok_or(FetchError::Status { uri, status: response.status() })?;
        }
        Err(FetchError::Redirects(uri))
    }

    async fn receive(&mut self, start: u64, uri: Uri, response: Response<Incoming>) -> Result<(), FetchError> {
        let left = response.headers().get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse().ok());
        if let Some(left) = left {
            disk::check_room(self.partial.parent().unwrap_or(self.partial), Bytes::new(left))?;
            self.meter.set_total(start.saturating_add(left));
        }
        let origin = Origin { url: self.url.to_owned(), validator: validator(&response) };
        self.disk(disk::write_record(&origin_path(self.partial), &origin))?;
        let mut file = self.disk(open_at(self.partial, start))?;
        let (mut at, mut body) = (start, response.into_body());
        loop {
            let frame = match tokio::time::timeout(ANSWER_WITHIN, body.frame()).await {
                Ok(None) => break,
                Ok(Some(frame)) => network(&uri, Ok(frame))?,
                Err(late) => return network(&uri, Err::<Result<(), hyper::Error>, _>(late)),
            };
            if let Ok(part) = frame.into_data() {
                self.disk(file.write_all(&part))?;
                at = at.saturating_add(part.len() as u64);
                self.meter.set(at);
            }
        }
        self.disk(file.sync_all())
    }

    fn disk<T>(&self, result: io::Result<T>) -> Result<T, FetchError> {
        result.map_err(|source| FetchError::Disk { path: self.partial.to_owned(), source })
    }
}

fn network<T, E>(uri: &Uri, result: Result<Result<T, E>, tokio::time::error::Elapsed>) -> Result<T, FetchError>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let failed = |source| FetchError::Network { uri: uri.clone(), source };
    result.map_err(|late| failed(late.into()))?.map_err(|error| failed(error.into()))
}

fn check_scheme(uri: &Uri) -> Result<(), FetchError> {
    match (uri.scheme_str(), uri.host()) {
        (Some("https"), Some(_)) | (Some("http"), Some("127.0.0.1" | "localhost" | "[::1]")) => Ok(()),
        (Some("http"), Some(_)) => Err(FetchError::Plain(uri.clone())),
        _ => Err(FetchError::Url(uri.to_string())),
    }
}

/// Where `to`, as a Location header gives it, leads from `base`. Never out of encryption.
fn resolve(base: &Uri, to: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = if to.contains("://") {
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

fn validator(response: &Response<Incoming>) -> Option<String> {
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
    // A weak ETag may not be used with a range.
    let etag = header(header::ETAG).filter(|tag| !tag.starts_with("W/"));
    etag.or_else(|| header(header::LAST_MODIFIED)).map(str::to_owned)
}

fn starts_at(response: &Response<Incoming>, have: u64) -> bool {
    let range = response.headers().get(header::CONTENT_RANGE).and_then(|value| value.to_str().ok());
    range.and_then(|text| text.strip_prefix("bytes ")?.split_once('-')).is_some_and(|(at, _)| at.parse() == Ok(have))
}

fn whole_length(response: &Response<Incoming>) -> Option<u64> {
    response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?.strip_prefix("bytes */")?.parse().ok()
}

fn open_at(path: &Path, start: u64) -> io::Result<File> {
    let mut file = fs::OpenOptions::new().create(true).write(true).truncate(false).open(path)?;
    file.set_len(start)?;
    file.seek(SeekFrom::Start(start))?;
    Ok(file)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |meta| meta.len())
}

fn origin_path(partial: &Path) -> PathBuf {
    disk::with_suffix(partial, ".origin")
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
