//! Speaks with systemd, where it started us: tells it how we are, and takes the sockets that it opened.
//!
//! ```text
//! READY=1 ─ the past is settled and every address is served on
//! STATUS= ─ engines, requests, who waits; at most once a second
//! WATCHDOG=1 ─ at half of WATCHDOG_USEC, only while the one loop turns: a loop that hangs gets us restarted
//! RELOADING=1, MONOTONIC_USEC= ─ files are read again; READY=1 when that is done, or came to nothing
//! STOPPING=1 ─ no new work is taken
//! EXTEND_TIMEOUT_USEC= ─ with it and from then on, while the one loop turns and the end is within what the configuration
//!                        allows: a grace that is longer than TimeoutStopSec= is not cut; a loop that hangs is
//! ```
//!
//! Without `NOTIFY_SOCKET` nothing is told. What is ours of systemd's variables reaches no child: [`is_for_us`].
use crate::{
    exit::{Exit, Failure},
    listen::Bound,
    os,
};
use motorpool_catalog::{Listen, Server};
use motorpool_supervisor::PoolHandle;
use motorpool_vocab::Snapshot;
use nix::sys::socket::{getsockopt, sockopt};
use sd_notify::NotifyState;
use std::{
    ffi::OsStr,
    fs, io,
    net::{SocketAddr, TcpListener as StdTcp},
    os::{
        fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            ffi::OsStrExt,
            fs::PermissionsExt,
            net::{SocketAddr as UnixAddr, UnixDatagram, UnixListener as StdUnix},
        },
    },
    time::Duration,
};
use tokio::{
    net::{TcpListener, UnixListener},
    sync::watch,
    task::{AbortHandle, spawn_blocking},
    time::{Instant, MissedTickBehavior, interval},
};

/// A manager that does not read holds up nobody's end.
const TOLD_WITHIN: Duration = Duration::from_secs(1);
/// Nothing tells when the past is settled.
const SETTLED_EVERY: Duration = Duration::from_millis(20);
/// While we end we are left alone for so long from each time that we say so.
const EXTENDED_BY: Duration = Duration::from_secs(30);
/// Several of them may be late.
const EXTENDED_EVERY: Duration = Duration::from_secs(5);
/// The status is text for people.
const STATUS_EVERY: Duration = Duration::from_secs(1);

/// Whether systemd meant this variable for this process alone.
pub(crate) fn is_for_us(name: &OsStr) -> bool {
    let Some(name) = name.to_str() else { return false };
    name == "NOTIFY_SOCKET" || name.starts_with("LISTEN_") || name.starts_with("WATCHDOG_")
}

/// Why a passed socket is not served on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PassedError {
    #[error("what LISTEN_FDS says cannot be taken")]
    Unreadable(#[source] io::Error),
    #[error("the descriptor {fd} (`{name}`) that was passed is no listening stream socket")]
    NotListening { fd: RawFd, name: String },
    #[error("the socket `{name}` that was passed is open to others: {what}")]
    Open { name: String, what: String },
    #[error("there is a certificate, and nothing says whether {address}, which was passed as `{name}`, is encrypted")]
    Unnamed { name: String, address: SocketAddr },
}

impl From<PassedError> for Failure {
    fn from(error: PassedError) -> Self {
        if let PassedError::Unnamed { address, .. } = &error {
            let cure = format!("add \"https://{address}\", or \"http://{address}\", to `listen` in [server]");
            return Self::new(Exit::Config, &error, cure);
        }
        let cure = match &error {
            PassedError::Unreadable(_) | PassedError::NotListening { .. } => {
                "pass sockets by ListenStream= of a socket unit, or unset LISTEN_FDS"
            }
            PassedError::Open { .. } => "give ListenStream= a path, and SocketMode=0600",
            PassedError::Unnamed { .. } => "name its address in `listen` of [server]",
        };
        Self::new(Exit::Config, crate::exit::chain(&error), cure)
    }
}

/// The sockets that were passed, and their addresses as people write them. They stand in for `server.listen`, which says
/// of each address whether it is encrypted.
pub(crate) fn passed_sockets(server: &Server) -> Result<Vec<(Bound, String)>, Failure> {
    let passed = sd_notify::listen_fds_with_names().map_err(PassedError::Unreadable)?;
    passed.map(|(fd, name)| take((fd, name), server).map_err(Failure::from)).collect()
}

fn take((fd, name): (RawFd, String), server: &Server) -> Result<(Bound, String), PassedError> {
    #[expect(unsafe_code, reason = "a descriptor that was passed has a number only")]
    // SAFETY: only looked at; the crate found it open a moment ago, and nobody closes it meanwhile.
    let listens = getsockopt(&unsafe { BorrowedFd::borrow_raw(fd) }, sockopt::AcceptConn);
    if listens != Ok(true) {
        return Err(PassedError::NotListening { fd, name });
    }
    #[expect(unsafe_code, reason = "a descriptor that was passed has a number only")]
    // SAFETY: it was passed to this process, which has no other listening socket yet: nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let of_kind = |_| PassedError::NotListening { fd, name: name.clone() };
    let tcp = StdTcp::from(socket);
    if let Ok(address) = tcp.local_addr() {
        tcp.set_nonblocking(true).map_err(of_kind)?;
        let listener = TcpListener::from_std(tcp).map_err(of_kind)?;
        // Nobody's key goes in plain text over an address that was meant to be encrypted.
        return if server.listen.contains(&Listen::Tls(address)) {
            Ok((Bound::Tls(listener), format!("https://{address}")))
        } else if server.tls.is_none() || server.listen.contains(&Listen::Tcp(address)) {
            Ok((Bound::Tcp(listener), format!("http://{address}")))
        } else {
            Err(PassedError::Unnamed { name, address })
        };
    }
    let unix = StdUnix::from(OwnedFd::from(tcp));
    let address = private_path(&unix, &name)?;
    unix.set_nonblocking(true).map_err(of_kind)?;
    Ok((Bound::Unix(UnixListener::from_std(unix).map_err(of_kind)?), address))
}

/// As whoever may connect there may do everything, nobody else may.
fn private_path(socket: &StdUnix, name: &str) -> Result<String, PassedError> {
    let open = |what: String| PassedError::Open { name: name.to_owned(), what };
    let address = socket.local_addr().map_err(|error| open(error.to_string()))?;
    let path = address.as_pathname().ok_or_else(|| open("it has no path".into()))?;
    let mode = fs::metadata(path).map_err(|error| open(error.to_string()))?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(open(format!("{} has mode {mode:o}", path.display())));
    }
    Ok(format!("unix:{}", path.display()))
}

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
enum News {
    Ready,
    Reloading,
    /// When that began, by the clock that does not count suspend.
    Monotonic(i128),
    Status(String),
    Watchdog,
    Stopping,
    /// We are not to be ended for so long.
    Extend(Duration),
}

impl News {
    fn as_state(&self) -> NotifyState<'_> {
        match self {
            Self::Ready => NotifyState::Ready,
            Self::Reloading => NotifyState::Reloading,
            Self::Monotonic(usec) => NotifyState::MonotonicUsec(*usec),
            Self::Status(text) => NotifyState::Status(text),
            Self::Watchdog => NotifyState::Watchdog,
            Self::Stopping => NotifyState::Stopping,
            Self::Extend(by) => NotifyState::ExtendTimeoutUsec(u32::try_from(by.as_micros()).unwrap_or(u32::MAX)),
        }
    }
}

/// Who tells systemd how we are, until it is dropped.
#[derive(Debug)]
pub(crate) struct Notifier(Option<Telling>);

#[derive(Debug)]
struct Telling {
    task: AbortHandle,
    /// When we have ended at the latest, once we end.
    ends_by: watch::Sender<Option<Instant>>,
}

impl Notifier {
    /// Begins to tell, if somebody listens.
    pub(crate) fn begin(handle: &PoolHandle, addresses: &[String]) -> Self {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return Self(None);
        }
        let watchdog = sd_notify::watchdog_enabled().map(|within| within / 2).filter(|every| !every.is_zero());
        let (ends_by, hears) = watch::channel(None);
        let telling = tokio::spawn(tell(handle.clone(), addresses.join(", "), (watchdog, hears)));
        Self(Some(Telling { task: telling.abort_handle(), ends_by }))
    }

    /// No new work is taken, and everything has ended after `whole` at the latest; the watchdog goes on.
    pub(crate) async fn stopping(&self, whole: Duration) {
        if let Some(telling) = &self.0 {
            let now = Instant::now();
            let ends_by = now + whole;
            let news = [News::Stopping, News::Status("stopping".into())];
            say(news.into_iter().chain(extension(now, ends_by).map(News::Extend)).collect()).await;
            telling.ends_by.send_replace(Some(ends_by));
        }
    }
}

/// The files are read again.
pub(crate) async fn reloading() {
    if let Ok(NotifyState::MonotonicUsec(now)) = NotifyState::monotonic_usec_now() {
        say(vec![News::Reloading, News::Monotonic(now)]).await;
    }
}

/// That is done.
pub(crate) async fn ready_again() {
    say(vec![News::Ready]).await;
}

impl Drop for Notifier {
    fn drop(&mut self) {
        self.0.iter().for_each(|telling| telling.task.abort());
    }
}

/// For how long we are to be left alone; `None` when we should have ended.
fn extension(now: Instant, ends_by: Instant) -> Option<Duration> {
    Some(ends_by.duration_since(now).min(EXTENDED_BY)).filter(|by| !by.is_zero())
}

async fn tell(
    handle: PoolHandle,
    addresses: String,
    (watchdog, ends_by): (Option<Duration>, watch::Receiver<Option<Instant>>),
) {
    while !handle.is_settled() {
        tokio::time::sleep(SETTLED_EVERY).await;
    }
    let mut told = status(&handle.snapshot(), &addresses);
    say(vec![News::Ready, News::Status(told.clone())]).await;
    let every = watchdog.unwrap_or(STATUS_EVERY).min(STATUS_EVERY);
    let (mut ticks, mut told_at, mut extended_at) = (interval(every), Instant::now(), None::<Instant>);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let mut news = Vec::new();
        if watchdog.is_some() && handle.is_turning() {
            news.push(News::Watchdog);
        }
        let (now, ends_by) = (Instant::now(), *ends_by.borrow());
        let is_due = extended_at.is_none_or(|at| now.duration_since(at) >= EXTENDED_EVERY);
        if let Some(by) = ends_by.and_then(|ends_by| extension(now, ends_by))
            && is_due
            && handle.is_turning()
        {
            extended_at = Some(now);
            news.push(News::Extend(by));
        }
        let snapshot = handle.snapshot();
        let now = status(&snapshot, &addresses);
        if !snapshot.closing && now != told && told_at.elapsed() >= STATUS_EVERY {
            (told, told_at) = (now.clone(), Instant::now());
            news.push(News::Status(now));
        }
        if !news.is_empty() {
            say(news).await;
        }
    }
}

/// Sends; one that does not read keeps a thread that may wait, and no other.
async fn say(news: Vec<News>) {
    match spawn_blocking(move || send(&news)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "systemd is not told"),
        Err(error) => tracing::debug!(%error, "telling systemd broke off"),
    }
}

/// The crate's own way knows no abstract sockets, which are the usual ones in containers.
fn send(news: &[News]) -> io::Result<()> {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match name.as_bytes().strip_prefix(b"@") {
        Some(hidden) => os::hidden_address(hidden)?,
        None => UnixAddr::from_pathname(&name)?,
    };
    let lines: Vec<_> = news.iter().map(|one| one.as_state().to_string()).collect();
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(TOLD_WITHIN))?;
    socket.send_to_addr(lines.join("\n").as_bytes(), &address).map(drop)
}

fn status(snapshot: &Snapshot, addresses: &str) -> String {
    let n_engines = snapshot.entries.iter().filter(|entry| entry.pid.is_some()).count();
    let n_served: usize = snapshot.entries.iter().map(|entry| entry.leases.len()).sum();
    format!(
        "serving on {addresses}: {n_engines} engines, {n_served} requests, {} builds waiting",
        snapshot.waiters.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::Tls;
    use std::os::fd::IntoRawFd;

    fn taken(socket: impl IntoRawFd) -> Result<String, PassedError> {
        take((socket.into_raw_fd(), "x".into()), &Server::default()).map(|(_, address)| address)
    }

    #[test]
    fn what_is_for_us_is_known_by_name() {
        for name in ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            assert!(is_for_us(OsStr::new(name)), "{name}");
        }
        assert!(!is_for_us(OsStr::new("PATH")) && !is_for_us(OsStr::new("NOTIFY_SOCKETS")));
    }

    #[tokio::test]
    async fn a_passed_socket_is_served_on_only_if_it_is_an_address_or_for_this_user() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let loopback = StdTcp::bind("127.0.0.1:0").expect("a free port");
        let address = loopback.local_addr().expect("bound");
        assert_eq!(taken(loopback).expect("fine"), format!("http://{address}"));

        let path = folder.path().join("s");
        let unix = StdUnix::bind(&path).expect("a free path");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("ours");
        let again = unix.try_clone().expect("a descriptor");
        assert!(matches!(taken(unix), Err(PassedError::Open { .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("ours");
        assert_eq!(taken(again).expect("fine"), format!("unix:{}", path.display()));

        // Where there are such names.
        if let Ok(name) = os::hidden_address(b"motorpool-test-passed") {
            let hidden = StdUnix::bind_addr(&name).expect("free");
            assert!(matches!(taken(hidden), Err(PassedError::Open { .. })), "everybody can connect there");
        }
    }

    #[tokio::test]
    async fn a_passed_socket_is_encrypted_where_its_address_is_meant_to_be_and_never_plain_by_oversight() {
        let socket = StdTcp::bind("127.0.0.1:0").expect("a free port");
        let address = socket.local_addr().expect("bound");
        let tls = Tls { certificate: "/c.pem".into(), key: "/k.pem".into() };
        let take = |listen: Listen| {
            let fd = socket.try_clone().expect("a descriptor").into_raw_fd();
            let server = Server { listen: vec![listen], tls: Some(tls.clone()), ..Server::default() };
            take((fd, "x".into()), &server)
        };
        let (bound, shown) = take(Listen::Tls(address)).expect("named");
        assert!(matches!(bound, Bound::Tls(_)) && shown == format!("https://{address}"), "{shown}");
        let (bound, shown) = take(Listen::Tcp(address)).expect("named");
        assert!(matches!(bound, Bound::Tcp(_)) && shown == format!("http://{address}"), "{shown}");
        let failure = Failure::from(take(Listen::Unix("/s.sock".into())).expect_err("nothing says which"));
        assert_eq!(failure.exit, Exit::Config);
        assert!(failure.cure.contains(&format!("https://{address}")), "{failure:?}");
    }

    #[test]
    fn we_are_left_alone_for_a_while_at_a_time_and_not_after_we_should_have_ended() {
        let now = Instant::now();
        let after = |secs| now + Duration::from_secs(secs);
        assert_eq!(extension(now, after(3600)), Some(EXTENDED_BY));
        assert_eq!(extension(after(3590), after(3600)), Some(Duration::from_secs(10)));
        assert_eq!((extension(after(3600), after(3600)), extension(after(3601), after(3600))), (None, None));
        let news = News::Extend(EXTENDED_BY).as_state().to_string();
        assert_eq!(news, "EXTEND_TIMEOUT_USEC=30000000");
    }

    #[test]
    fn what_is_no_listening_socket_is_not_taken() {
        let file = fs::File::open("/dev/null").expect("there");
        assert!(matches!(taken(file), Err(PassedError::NotListening { .. })));
        let (a, _b) = std::os::unix::net::UnixStream::pair().expect("a pair");
        assert!(matches!(taken(a), Err(PassedError::NotListening { .. })));
    }
}
