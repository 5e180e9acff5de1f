//! Encrypted addresses: [`Certificates`], read from files and again when those change, and how a connection begins.
//!
//! ```text
//! accepted ─► first byte ─┬─ of a handshake ─► handshake ─► served as any other connection
//!      (10 s in all)      ├─ of a method ────► told in plain HTTP what is wrong, closed
//!                         └─ anything else ──► closed
//! ```
//!
//! * TLS 1.2 and 1.3, and HTTP/1.1 in them: a client that offers only something else is refused by the handshake.
//! * A connection counts among `limits.connections` from its first byte on, and a handshake holds no more memory than its
//!   largest message.
//! * Files are read where it may block, one look at a time, and whoever does not begin it is served by what is there.
//! * Files that cannot be used leave what was read before in its place, and that is logged once.
use crate::wire::{Socket, Stalling};
use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// From a connection to the end of its handshake.
pub(crate) const HANDSHAKE_WITHIN: Duration = Duration::from_secs(10);
/// Files are looked at no more often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Bits of a key's mode that let others in: group may read, as certificate tools set it up.
const OPEN_TO_OTHERS: u32 = 0o037;
/// What the first message of a handshake begins with.
const HANDSHAKE: u8 = 0x16;

/// Why certificates cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be looked at.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} holds no {what} in PEM", path.display())]
    Pem {
        /// The file.
        path: PathBuf,
        /// What was looked for.
        what: &'static str,
        /// Why.
        source: rustls::pki_types::pem::Error,
    },
    /// The key is not private.
    #[error("the key {} has mode {mode:o}: others can read it", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// They do not fit each other, or are of a kind that is not served.
    #[error("the certificate and its key cannot be used")]
    Unusable(#[source] rustls::Error),
}

/// What tells that files were replaced, or opened to others or closed to them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp([Option<FileStamp>; 2]);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FileStamp {
    inode: u64,
    length: u64,
    mode: u32,
    /// When content or mode changed last, in seconds and nanoseconds.
    changed_at: (i64, i64),
}

#[derive(Debug)]
struct Read {
    config: Arc<ServerConfig>,
    stamp: Stamp,
    looked_at: Instant,
    /// Somebody looks at the files now.
    is_looking: bool,
}

/// A certificate and its key.
#[derive(Debug)]
pub struct Certificates {
    certificate: PathBuf,
    key: PathBuf,
    read: Mutex<Read>,
}

impl Certificates {
    /// Reads them from these files.
    pub fn open(certificate: PathBuf, key: PathBuf) -> Result<Self, TlsError> {
        let stamp = Stamp::of(&certificate, &key);
        let config = load(&certificate, &key)?;
        let read = Read { config, stamp, looked_at: Instant::now(), is_looking: false };
        Ok(Self { certificate, key, read: Mutex::new(read) })
    }

    fn read(&self) -> MutexGuard<'_, Read> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// By what is in the files now.
    async fn config(self: &Arc<Self>) -> Arc<ServerConfig> {
        if self.begins_to_look() {
            let this = Arc::clone(self);
            // It ends by itself, also when this connection does not wait for it any more.
            let _ = tokio::task::spawn_blocking(move || this.look()).await;
        }
        Arc::clone(&self.read().config)
    }

    /// Whether it is time to look, and nobody does.
    fn begins_to_look(&self) -> bool {
        let mut read = self.read();
        let begins = !read.is_looking && read.looked_at.elapsed() >= LOOK_EVERY;
        read.is_looking |= begins;
        begins
    }

    /// May block, and holds nobody up meanwhile.
    fn look(&self) {
        let stamp = Stamp::of(&self.certificate, &self.key);
        let found = (stamp != self.read().stamp).then(|| load(&self.certificate, &self.key));
        let mut read = self.read();
        (read.stamp, read.looked_at, read.is_looking) = (stamp, Instant::now(), false);
        match found {
            None => {}
            Some(Ok(config)) => {
                tracing::info!("the certificate was read again");
                read.config = config;
            }
            Some(Err(error)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "the certificate has changed and cannot be used: the one from before serves on");
            }
        }
    }

    /// The stream that `stream` carries, once the handshake is done; `None` when there is none in time. A write to it waits
    /// no longer than `write_stall`.
    pub(crate) async fn greet(self: &Arc<Self>, stream: TcpStream, write_stall: Duration) -> Option<Greeted> {
        let greeting = async {
            let mut first = [0];
            if stream.peek(&mut first).await? == 0 {
                return Ok(None);
            }
            match first[0] {
                HANDSHAKE => {}
                byte if byte.is_ascii_uppercase() => return Ok(Some(Greeted::Plain(stream))),
                _ => return Ok(None),
            }
            let stream = Stalling::new(Socket::from(stream), write_stall);
            let accepted = TlsAcceptor::from(self.config().await).accept(stream).await?;
            Ok(Some(Greeted::Encrypted(Box::new(accepted))))
        };
        match tokio::time::timeout(HANDSHAKE_WITHIN, greeting).await {
            Ok(Ok(greeted)) => greeted,
            Ok(Err(error)) => {
                let error: &io::Error = &error;
                tracing::debug!(error = error as &dyn std::error::Error, "a handshake failed");
                None
            }
            Err(_) => None,
        }
    }
}

/// How a connection to an encrypted address begins.
#[derive(Debug)]
pub(crate) enum Greeted {
    Encrypted(Box<TlsStream<Stalling>>),
    /// Its client speaks HTTP without encryption.
    Plain(TcpStream),
}

impl Stamp {
    fn of(certificate: &Path, key: &Path) -> Self {
        Self([certificate, key].map(|path| fs::metadata(path).ok().as_ref().map(FileStamp::of)))
    }
}

impl FileStamp {
    fn of(found: &fs::Metadata) -> Self {
        let changed_at = (found.ctime(), found.ctime_nsec());
        Self { inode: found.ino(), length: found.len(), mode: found.mode(), changed_at }
    }
}

fn load(certificate: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsError> {
    let unread = |path: &Path, source| TlsError::Read { path: path.to_owned(), source };
    let mode = fs::metadata(key).map_err(|error| unread(key, error))?.mode() & 0o777;
    if mode & OPEN_TO_OTHERS != 0 {
        return Err(TlsError::Open { path: key.to_owned(), mode });
    }
    let chain = fs::read(certificate).map_err(|error| unread(certificate, error))?;
    let secret = fs::read(key).map_err(|error| unread(key, error))?;
    let no = |path: &Path, what, source| TlsError::Pem { path: path.to_owned(), what, source };
    let chain: Vec<_> = CertificateDer::pem_slice_iter(&chain)
        .collect::<Result<_, _>>()
        .map_err(|error| no(certificate, "certificate", error))?;
    let secret = PrivateKeyDer::from_pem_slice(&secret).map_err(|error| no(key, "private key", error))?;
    let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Unusable)?;
    let mut config = builder.with_no_client_auth().with_single_cert(chain, secret).map_err(TlsError::Unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests;
