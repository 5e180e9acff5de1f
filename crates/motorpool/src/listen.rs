//! The addresses that are served on: bound, made private, cleaned up.
use crate::exit::{Exit, Failure};
use motorpool_catalog::Listen;
use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream as Probe},
    path::Path,
};
use tokio::net::{TcpListener, UnixListener};

/// A bound address.
#[derive(Debug)]
pub(crate) enum Bound {
    Tcp(TcpListener),
    /// To be encrypted.
    Tls(TcpListener),
    Unix(UnixListener),
}

/// Binds `listen`; with it the address as people write it, a port that the system chose included.
pub(crate) async fn bind(listen: &Listen) -> Result<(Bound, String), Failure> {
    let bound = match listen {
        Listen::Tcp(address) => {
            bind_tcp(*address).await.map(|(listener, at)| (Bound::Tcp(listener), format!("http://{at}")))
        }
        Listen::Tls(address) => {
            bind_tcp(*address).await.map(|(listener, at)| (Bound::Tls(listener), format!("https://{at}")))
        }
        Listen::Unix(path) => bind_unix(path).map(|listener| (Bound::Unix(listener), listen.to_string())),
    };
    bound.map_err(|error| cannot(listen, &error))
}

async fn bind_tcp(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(address).await?;
    let at = listener.local_addr()?;
    Ok((listener, at))
}

/// Binds a socket for our user alone. One that nobody answers on any more is replaced.
pub(crate) fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match Probe::connect(path) {
        Ok(_) => return Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path)?,
        Err(_) => {}
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Why an address cannot be served on, and what to do.
pub(crate) fn cannot(listen: &Listen, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::InUse,
            format_args!("the address {listen} is in use by another program"),
            "stop that program, or choose another address with `listen` in [server] of motorpool.toml",
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            Exit::Denied,
            format_args!("not permitted to serve on {listen}"),
            "choose a port above 1023, or a folder of yours, with `listen` in [server] of motorpool.toml",
        ),
        _ => Failure::new(
            Exit::Failed,
            format_args!("cannot serve on {listen}: {error}"),
            "choose another address with `listen` in [server] of motorpool.toml",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_abandoned_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("s.sock");
        let first = bind_unix(&path).expect("free");
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
        assert_eq!(bind_unix(&path).expect_err("in use").kind(), io::ErrorKind::AddrInUse);
        drop(first);
        bind_unix(&path).expect("replaced");
    }

    #[tokio::test]
    async fn a_port_in_use_is_named() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = taken.local_addr().expect("bound");
        let failure = bind(&Listen::Tcp(address)).await.expect_err("taken");
        assert_eq!(failure.exit, Exit::InUse);
        assert!(failure.what.contains(&address.to_string()), "{}", failure.what);
    }
}
