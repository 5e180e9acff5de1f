//! Downloads over HTTP: [`fetch`] fills a `.partial` file and continues where an earlier try stopped.
//!
//! ```text
//! have = length of .partial ─► GET, Range: bytes=have-, If-Range: <validator> ─► 206 append │ 200 begin again │ 416 all there
//!          ▲                                                                        │ connection lost, server busy
//!          └──────────────────── up to 5 tries in a row without a new byte ◄────────┘
//! ```
//!
//! The validator (`ETag`, else Last-Modified) is kept beside the partial file, so that two versions of a file are
//! never mixed; what has neither, and no name by its content, begins again. A size that is known beforehand is held to: a server that gives less is asked for the rest, one that
//! gives more is not listened to. `ask.rs` sends each request.
mod ask;

use crate::{disk, progress::Progress};
use ask::{Reply, network, text_of};
use http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use motorpool_vocab::Bytes;
use serde::{Deserialize, Serialize};
use std::{
    fs::{self, File},
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
    time::Duration,
};

pub(crate) use ask::{Caller, Connector, Linked, Token, connector, connector_by};

const CONNECT_WITHIN: Duration = Duration::from_secs(10);
const ANSWER_WITHIN: Duration = Duration::from_mins(1);
const N_REDIRECTS: usize = 10;
const N_TRIES: u32 = 5;
/// What the name of a file begins with that is called by its hash.
pub(crate) const BY_CONTENT: &str = "sha256:";
/// How often the disk is asked for room while a file of unknown size comes.
const ROOM_EVERY: u64 = 64 << 20;

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
    Status {
        uri: Uri,
        status: StatusCode,
        /// The server's own word for what is wrong.
        code: Option<String>,
    },
    #[error("no certificate authorities to check servers with")]
    Roots(#[source] io::Error),
    #[error("the connection to `{uri}` failed")]
    Network { uri: Uri, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("`{uri}` has {found} bytes instead of {wanted}")]
    Size { uri: Uri, wanted: u64, found: u64 },
    #[error("`{uri}` is longer than {most}")]
    TooLong { uri: Uri, most: Bytes },
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
            | Self::Size { .. }
            | Self::TooLong { .. }
            | Self::Disk { .. }
            | Self::NoRoom(_) => false,
        }
    }
}

/// Which version of the remote file the partial one belongs to.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Origin {
    /// What names its content; an address, where nothing else does.
    url: String,
    validator: Option<String>,
}

/// A file on a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Remote<'a> {
    pub(crate) caller: &'a Caller,
    pub(crate) url: &'a str,
    /// What names its content: what came of another address under the same name is continued.
    pub(crate) name: &'a str,
    /// Its size, where somebody who is believed says it.
    pub(crate) size: Option<Bytes>,
}

/// A download under way.
struct Transfer<'a> {
    remote: Remote<'a>,
    partial: &'a Path,
    meter: &'a mut Progress,
}

/// Fills `partial` with what is there; what the server said of it on the way. What it wrote stays there when it fails,
/// and is continued next time.
pub(crate) async fn fetch(remote: Remote<'_>, partial: &Path, meter: &mut Progress) -> Result<Linked, FetchError> {
    let mut transfer = Transfer { remote, partial, meter };
    let mut n_tries = 0;
    let linked = loop {
        let before = length(partial);
        let error = match transfer.attempt().await {
            Ok(linked) => break linked,
            Err(error) => error,
        };
        n_tries = if length(partial) > before { 1 } else { n_tries + 1 };
        if !error.is_passing() || n_tries >= N_TRIES {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(250 << n_tries)).await;
    };
    let _ = fs::remove_file(origin_path(partial));
    Ok(linked)
}

/// Forgets what came so far.
pub(crate) fn forget(partial: &Path) {
    let _ = fs::remove_file(partial);
    let _ = fs::remove_file(origin_path(partial));
}

impl Transfer<'_> {
    async fn attempt(&mut self) -> Result<Linked, FetchError> {
        let origin: Origin = disk::read_record(&origin_path(self.partial)).unwrap_or_default();
        let have = if self.continues(&origin) { length(self.partial) } else { 0 };
        let headers = range(have, origin.validator.as_deref());
        let Reply { uri, response, linked } = self.remote.caller.get(self.remote.url, &headers).await?;
        let start = match response.status() {
            StatusCode::PARTIAL_CONTENT if starts_at(&response, have) => have,
            StatusCode::OK => 0,
            StatusCode::RANGE_NOT_SATISFIABLE if whole_length(&response) == Some(have) => {
                return self.check_size(&uri, &linked, have).map(|()| linked);
            }
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PARTIAL_CONTENT => {
                // The file there changed its length: what we have is of no use.
                self.disk(fs::write(self.partial, b""))?;
                return Err(FetchError::Network { uri, source: "the file there has changed".into() });
            }
            _ => return Err(ask::refused(&uri, &response)),
        };
        let at = self.receive(start, &uri, (response, &linked)).await?;
        match self.wanted(&linked) {
            Some(wanted) if at < wanted => Err(FetchError::Network { uri, source: "it ended early".into() }),
            _ => self.check_size(&uri, &linked, at).map(|()| linked),
        }
    }

    /// Whether what came of `origin` is of the same version as what comes now. Where neither the server nor its name
    /// tells versions of a file apart, it may be another one.
    fn continues(&self, origin: &Origin) -> bool {
        let name = self.remote.name;
        origin.url == name && (origin.validator.is_some() || name.starts_with(BY_CONTENT))
    }

    /// The size that it must have.
    fn wanted(&self, linked: &Linked) -> Option<u64> {
        self.remote.size.map(Bytes::get).or(linked.size)
    }

    fn check_size(&self, uri: &Uri, linked: &Linked, found: u64) -> Result<(), FetchError> {
        match self.wanted(linked) {
            Some(wanted) if wanted != found => {
                // More than there should be is of no use to any later try.
                forget(self.partial);
                Err(FetchError::Size { uri: uri.clone(), wanted, found })
            }
            _ => Ok(()),
        }
    }

    /// Writes the body at `start`; where it ended.
    async fn receive(
        &mut self,
        start: u64,
        uri: &Uri,
        (response, linked): (Response<Incoming>, &Linked),
    ) -> Result<u64, FetchError> {
        let dir = self.partial.parent().unwrap_or(self.partial);
        let left: Option<u64> = text_of(response.headers(), "content-length").and_then(|text| text.parse().ok());
        let end = left.map(|left| start.saturating_add(left));
        if let Some(end) = end {
            if self.wanted(linked).is_some_and(|wanted| end > wanted) {
                self.check_size(uri, linked, end)?;
            }
            disk::check_room(dir, Bytes::new(left.unwrap_or(0)))?;
        }
        if let Some(total) = self.wanted(linked).or(end) {
            self.meter.set_total(total);
        }
        let origin = Origin { url: self.remote.name.to_owned(), validator: validator(&response) };
        self.disk(disk::write_record(&origin_path(self.partial), &origin))?;
        let mut file = self.disk(open_at(self.partial, start))?;
        let (mut at, mut asked_at, mut body) = (start, start, response.into_body());
        loop {
            let frame = match tokio::time::timeout(ANSWER_WITHIN, body.frame()).await {
                Ok(None) => break,
                Ok(Some(frame)) => network(uri, Ok(frame))?,
                Err(late) => return network(uri, Err::<Result<u64, hyper::Error>, _>(late)),
            };
            if let Ok(part) = frame.into_data() {
                self.disk(file.write_all(&part))?;
                at = at.saturating_add(part.len() as u64);
                self.meter.set(at);
                if self.wanted(linked).is_some_and(|wanted| at > wanted) {
                    self.check_size(uri, linked, at)?;
                }
                if end.is_none() && at - asked_at >= ROOM_EVERY {
                    asked_at = at;
                    disk::check_room(dir, Bytes::ZERO)?;
                }
            }
        }
        self.disk(file.sync_all())?;
        Ok(at)
    }

    fn disk<T>(&self, result: io::Result<T>) -> Result<T, FetchError> {
        result.map_err(|source| FetchError::Disk { path: self.partial.to_owned(), source })
    }
}

/// What asks for the bytes from `have` on, of the version that `validator` names.
fn range(have: u64, validator: Option<&str>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if have > 0 {
        let range = HeaderValue::from_str(&format!("bytes={have}-")).ok();
        headers.extend(range.map(|range| (header::RANGE, range)));
        let validator = validator.and_then(|validator| HeaderValue::from_str(validator).ok());
        headers.extend(validator.map(|validator| (header::IF_RANGE, validator)));
    }
    headers
}

fn validator(response: &Response<Incoming>) -> Option<String> {
    let header = |name| text_of(response.headers(), name);
    // A weak ETag may not be used with a range.
    let etag = header("etag").filter(|tag| !tag.starts_with("W/"));
    etag.or_else(|| header("last-modified")).map(str::to_owned)
}

fn starts_at(response: &Response<Incoming>, have: u64) -> bool {
    let range = text_of(response.headers(), "content-range");
    range.and_then(|text| text.strip_prefix("bytes ")?.split_once('-')).is_some_and(|(at, _)| at.parse() == Ok(have))
}

fn whole_length(response: &Response<Incoming>) -> Option<u64> {
    text_of(response.headers(), "content-range")?.strip_prefix("bytes */")?.parse().ok()
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
