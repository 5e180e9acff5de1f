//! The addresses that are served on: bound, made private, cleaned up, and opened to nobody by oversight.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure, chain},
    settings::Settings,
    systemd,
};
use motorpool_catalog::{Config, Listen, Tls};
use motorpool_gateway::{
    KeysNeeded, Listener,
    tls::{Certificates, TlsError},
};
use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net::UnixStream as Probe},
    path::Path,
    sync::Arc,
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

/// Where requests come in: the sockets that were passed, else what the configuration names.
async fn doors(settings: &Settings) -> Result<Vec<(Bound, String)>, Failure> {
    let mut doors = systemd::passed_sockets(&settings.config.server)?;
    if doors.is_empty() {
        for listen in &settings.config.server.listen {
            doors.push(bind(listen).await?);
        }
    }
    Ok(doors)
}

/// What encrypted addresses show.
fn certificates(tls: &Tls) -> Result<Arc<Certificates>, Failure> {
    let opened = Certificates::open(tls.certificate.clone(), tls.key.clone());
    let unusable = |error: TlsError| {
        let cure = match &error {
            TlsError::Open { path, .. } => format!("run `chmod 600 {}`", path.display()),
            TlsError::Read { .. } | TlsError::Pem { .. } | TlsError::Unusable(_) => {
                "correct `tls` in [server] of motorpool.toml, or the files it names".to_owned()
            }
        };
        Failure::new(Exit::Config, chain(&error), cure)
    };
    opened.map(Arc::new).map_err(unusable)
}

/// A file of keys that somebody named and that is not there would let everybody in.
fn check_keys(config: &Config, path: &Path) -> Result<(), Failure> {
    if config.keys.file.is_none() || path.exists() {
        return Ok(());
    }
    let what = format!("there is no {}, which `file` in [keys] names", path.display());
    Err(Failure::new(Exit::Config, what, "make a key in it with `motorpool key new NAME`, or correct the path"))
}

/// Without a key, nobody else's machine gets in unless the operator wants it so.
fn check_reach(path: &Path, doors: &[(Bound, String)], keys: KeysNeeded) -> Result<(), Failure> {
    let is_far = |bound: &Bound| match bound {
        Bound::Tcp(listener) | Bound::Tls(listener) => {
            !listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback())
        }
        Bound::Unix(_) => false,
    };
    let Some((_, address)) = doors.iter().find(|(bound, _)| is_far(bound)) else { return Ok(()) };
    if !motorpool_gateway::keys::file::load(path)?.is_empty() {
        return Ok(());
    }
    match keys {
        KeysNeeded::OnceThereAre => {
            tracing::warn!("whoever reaches {address} may do everything: there is no key, and --insecure was given");
            Ok(())
        }
        KeysNeeded::Always => Err(Failure::new(
            Exit::Config,
            format_args!("{address} can be reached from other machines, and there is no key"),
            "make one with `motorpool key new NAME`, serve on 127.0.0.1, or let everybody in with --insecure",
        )),
    }
}

/// Everything that is listened on for others, and as what people write it.
pub(crate) async fn listeners(
    dirs: &Dirs,
    settings: &Settings,
    keys: KeysNeeded,
) -> Result<(Vec<Listener>, Vec<String>), Failure> {
    let path = dirs.keys(&settings.config);
    check_keys(&settings.config, &path)?;
    let doors = doors(settings).await?;
    check_reach(&path, &doors, keys)?;
    let certificates = settings.config.server.tls.as_ref().map(certificates).transpose()?;
    let listener = |bound| match bound {
        Bound::Tcp(listener) => Listener::Tcp(listener),
        Bound::Tls(listener) => {
            Listener::Tls(listener, Arc::clone(certificates.as_ref().expect("checked with the addresses")))
        }
        // For our own user alone, as the control socket is.
        Bound::Unix(listener) => Listener::Control(listener),
    };
    Ok(doors.into_iter().map(|(bound, address)| (listener(bound), address)).unzip())
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
