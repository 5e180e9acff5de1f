//! Handshakes over sockets, with certificates made for the test.
use super::*;
use crate::{
    Gateway, GatewaySettings, Listener,
    testing::{Engine, Pool, catalog},
};
use motorpool_catalog::Config;
use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use std::{
    future::{Future, poll_fn},
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    pin::Pin,
    task::Poll,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
    sync::watch,
};
use tokio_rustls::TlsConnector;

struct Files {
    folder: tempfile::TempDir,
    certificate: String,
}

impl Files {
    fn new() -> Self {
        let mut files = Self { folder: tempfile::tempdir().expect("a directory"), certificate: String::new() };
        files.renew();
        files
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Another certificate and key, in their place.
    fn renew(&mut self) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        self.certificate = made.cert.pem();
        self.write(&self.certificate, &made.signing_key.serialize_pem());
    }

    fn write(&self, certificate: &str, key: &str) {
        for (name, text) in [("cert.pem", certificate), ("key.pem", key)] {
            let new = self.path("new");
            fs::write(&new, text).expect("written");
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600)).expect("ours");
            fs::rename(new, self.path(name)).expect("in its place");
        }
    }

    fn open(&self) -> Result<Certificates, TlsError> {
        Certificates::open(self.path("cert.pem"), self.path("key.pem"))
    }

    /// A client that trusts this certificate, and offers these protocols.
    fn client(&self, protocols: &[&[u8]]) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM");
        roots.add(certificate).expect("a certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("there are some");
        let mut config = builder.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        TlsConnector::from(Arc::new(config))
    }
}

struct Server {
    address: SocketAddr,
    pool: Pool,
    _stop: watch::Sender<bool>,
    _spool: tempfile::TempDir,
}

impl Server {
    async fn start(certificates: Certificates, n_connections: u32) -> Self {
        let spool = tempfile::tempdir().expect("a directory");
        let mut settings = GatewaySettings::new(&Config::default(), None, spool.path().to_owned());
        settings.limits.connections = n_connections;
        let pool = Pool::of(&Engine::start());
        let gateway = Gateway::new(pool.handle(), catalog(&[("m", &[])]), settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let (stop, told) = watch::channel(false);
        tokio::spawn(gateway.serve(vec![Listener::Tls(listener, Arc::new(certificates))], told));
        Self { address, pool, _stop: stop, _spool: spool }
    }

    /// What `GET /health` is answered over a connection of `client`'s.
    async fn ask(&self, client: &TlsConnector) -> io::Result<String> {
        let stream = TcpStream::connect(self.address).await?;
        let mut stream = client.connect(ServerName::try_from("localhost").expect("a name"), stream).await?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }
}

#[tokio::test]
async fn what_is_asked_encrypted_is_answered_so_in_http_1_and_in_nothing_else() {
    let files = Files::new();
    let server = Server::start(files.open().expect("usable"), 10).await;
    for protocols in [&[][..], &[&b"http/1.1"[..]], &[&b"h2"[..], b"http/1.1"]] {
        let answer = server.ask(&files.client(protocols)).await.expect("a reply and its end");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#"{"status":"ok"}"#), "{answer}");
    }
    let refused = server.ask(&files.client(&[b"h2"])).await.expect_err("not spoken");
    assert!(refused.to_string().contains("NoApplicationProtocol"), "{refused}");
}

#[tokio::test]
async fn who_goes_is_noticed_under_the_encryption_whatever_lies_there_unread() {
    let files = Files::new();
    let server = Server::start(files.open().expect("usable"), 10).await;
    server.pool.never_grants();
    let stream = TcpStream::connect(server.address).await.expect("it listens");
    let name = ServerName::try_from("localhost").expect("a name");
    let mut stream = files.client(&[]).connect(name, stream).await.expect("trusted");
    let body = r#"{"model":"m"}"#;
    let request = format!("POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all((request + body + "\r\n").as_bytes()).await.expect("it reads");
    stream.flush().await.expect("it reads");
    server.pool.asked().await;
    drop(stream);
    server.pool.cancelled().await;
}

#[tokio::test]
async fn plain_http_is_told_what_is_wrong_and_anything_else_is_closed() {
    let files = Files::new();
    let server = Server::start(files.open().expect("usable"), 10).await;
    let say = async |text: &[u8]| {
        let mut stream = TcpStream::connect(server.address).await.expect("it listens");
        stream.write_all(text).await.expect("it reads");
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer).await;
        answer
    };
    let told = say(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(told.starts_with("HTTP/1.1 400 ") && told.contains("https://"), "{told}");
    assert!(told.contains("connection: close\r\n"), "{told}");
    assert_eq!(say(b"\x16\x03\x01\x00\x05hello").await.find("HTTP"), None);
    assert_eq!(say(b"\0\0\0\0").await, "");
}

#[tokio::test(start_paused = true)]
async fn who_does_not_finish_its_handshake_is_gone_after_ten_seconds_and_its_place_is_free() {
    let files = Files::new();
    let server = Server::start(files.open().expect("usable"), 1).await;
    let began = tokio::time::Instant::now();
    for beginning in [&b""[..], b"\x16", b"\x16\x03\x01\x02\x00\x01"] {
        let mut silent = TcpStream::connect(server.address).await.expect("it listens");
        silent.write_all(beginning).await.expect("it reads");
        let mut rest = Vec::new();
        let _ = silent.read_to_end(&mut rest).await;
        assert_eq!(rest, b"", "{beginning:?}");
    }
    let waited = began.elapsed();
    assert!(HANDSHAKE_WITHIN * 3 <= waited && waited < HANDSHAKE_WITHIN * 4, "{waited:?}");
    let answer = server.ask(&files.client(&[])).await.expect("the place is free");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn what_is_encrypted_and_nobody_reads_is_not_waited_for_longer_than_anything_else() {
    let files = Files::new();
    let config = files.open().expect("usable").read().config.clone();
    let (ours, theirs) = tokio::io::duplex(4096);
    let minute = Duration::from_mins(1);
    let name = ServerName::try_from("localhost").expect("a name");
    let client = files.client(&[]);
    let (server, client) =
        tokio::join!(TlsAcceptor::from(config).accept(Stalling::new(ours, minute)), client.connect(name, theirs));
    let (mut server, mut client) = (server.expect("it goes on"), client.expect("trusted"));
    // The encrypting layer has room for all of it.
    let text = [7; 8192];
    let (written, read) = tokio::join!(
        async {
            server.write_all(&text).await?;
            server.flush().await
        },
        async {
            let mut read = [0; 8192];
            client.read_exact(&mut read).await.map(|_| read)
        }
    );
    written.expect("it reads");
    assert_eq!(read.expect("it was sent"), text);
    server.write_all(&text).await.expect("there is room");
    let began = tokio::time::Instant::now();
    let stalled = tokio::time::timeout(minute * 2, server.flush()).await.expect("it ends").expect_err("nobody reads");
    assert_eq!((stalled.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 60));
    let closed = tokio::time::timeout(minute * 2, server.shutdown()).await.expect("it ends");
    assert_eq!(closed.expect_err("nobody reads").kind(), io::ErrorKind::TimedOut);
}

fn look(certificates: &Certificates) -> Arc<ServerConfig> {
    certificates.look();
    Arc::clone(&certificates.read().config)
}

#[test]
fn a_key_that_was_too_open_serves_as_soon_as_it_is_closed() {
    let mut files = Files::new();
    let certificates = files.open().expect("usable");
    let first = look(&certificates);
    files.renew();
    let set = |mode| fs::set_permissions(files.path("key.pem"), fs::Permissions::from_mode(mode)).expect("ours");
    set(0o644);
    assert!(Arc::ptr_eq(&first, &look(&certificates)), "others can read it");
    set(0o600);
    assert!(!Arc::ptr_eq(&first, &look(&certificates)));
}

#[tokio::test]
async fn a_disk_that_hangs_holds_up_no_other_connection() {
    let files = Files::new();
    let certificates = Arc::new(files.open().expect("usable"));
    let first = certificates.config().await;
    let key = fs::read(files.path("key.pem")).expect("there");
    let (inside, outside) = (files.path("key.pem"), files.path("pipe"));
    // Whoever reads it waits until somebody writes.
    nix::unistd::mkfifo(&outside, nix::sys::stat::Mode::S_IRUSR | nix::sys::stat::Mode::S_IWUSR).expect("made");
    fs::rename(outside, &inside).expect("in its place");
    let long_ago = || certificates.read().looked_at = Instant::now().checked_sub(LOOK_EVERY).expect("it has run");
    long_ago();
    let mut hangs = std::pin::pin!(certificates.config());
    assert!(polled_once(hangs.as_mut()).await.is_pending());
    long_ago();
    assert!(Arc::ptr_eq(&first, &certificates.config().await), "it does not look, too");
    tokio::task::spawn_blocking(move || fs::write(inside, key)).await.expect("no panic").expect("read");
    assert!(!Arc::ptr_eq(&first, &hangs.await), "what it read at last");
}

/// Where it is after one poll.
async fn polled_once<F: Future>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

#[tokio::test]
async fn a_new_certificate_serves_new_connections_and_a_bad_one_changes_nothing() {
    let mut files = Files::new();
    let certificates = files.open().expect("usable");
    let first = look(&certificates);
    assert!(Arc::ptr_eq(&first, &look(&certificates)), "nothing has changed");
    let good = (files.certificate.clone(), fs::read_to_string(files.path("key.pem")).expect("there"));
    files.renew();
    let second = look(&certificates);
    assert!(!Arc::ptr_eq(&first, &second));
    // The old key beside the new certificate: somebody is about to replace both.
    files.write(&files.certificate, &good.1);
    assert!(Arc::ptr_eq(&second, &look(&certificates)));
    files.write(&good.0, &good.1);
    files.certificate = good.0;
    assert!(!Arc::ptr_eq(&second, &look(&certificates)));
    let server = Server::start(certificates, 10).await;
    assert!(server.ask(&files.client(&[])).await.expect("by the newest").starts_with("HTTP/1.1 200 "));
}

#[test]
fn what_cannot_be_a_certificate_and_its_private_key_is_refused_by_name() {
    let files = Files::new();
    let refused = |files: &Files| files.open().expect_err("refused").to_string();
    fs::set_permissions(files.path("key.pem"), fs::Permissions::from_mode(0o644)).expect("ours");
    assert!(refused(&files).contains("mode 644"), "{}", refused(&files));
    fs::set_permissions(files.path("key.pem"), fs::Permissions::from_mode(0o640)).expect("ours");
    files.open().expect("a group may read it");
    let other = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
    files.write(&files.certificate, &other.signing_key.serialize_pem());
    assert!(refused(&files).contains("cannot be used"), "{}", refused(&files));
    files.write(&files.certificate, "nothing");
    assert!(refused(&files).contains("key.pem holds no private key"), "{}", refused(&files));
    fs::remove_file(files.path("cert.pem")).expect("ours");
    files.write("", &other.signing_key.serialize_pem());
    assert!(files.open().is_err());
}
