//! [`Listen`]: an address to serve on.
use crate::quantity::checked;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{
    fmt,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

/// The bytes that fit in the path of a unix socket, the terminating zero left out.
const SUN_PATH: usize = 107;

/// An address to serve on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// An address and a port; port 0 lets the system choose.
    Tcp(SocketAddr),
    /// The same, encrypted with the certificate of `[server]`.
    Tls(SocketAddr),
    /// An absolute path of at most 107 bytes.
    Unix(PathBuf),
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        checked(reader, "an address such as \"127.0.0.1:8790\"", parse_listen)
    }
}

/// `127.0.0.1:8790`, `[::1]:8790`, `localhost:8790`, each also behind `http://` or `https://`, `unix:/path`, or an absolute
/// path that ends in `.sock`.
fn parse_listen(text: &str) -> Result<Listen, String> {
    if let Some(address) = text.strip_prefix("https://") {
        return parse_tcp(address).map(Listen::Tls);
    }
    if let Some(address) = text.strip_prefix("http://") {
        return parse_tcp(address).map(Listen::Tcp);
    }
    match text.strip_prefix("unix:") {
        Some(path) => parse_unix(path),
        None if Path::new(text).extension().is_some_and(|ext| ext == "sock") => parse_unix(text),
        None => parse_tcp(text).map(Listen::Tcp),
    }
}

fn parse_unix(path: &str) -> Result<Listen, String> {
    if !path.starts_with('/') {
        return Err(format!("the socket path `{path}` must begin with `/`"));
    }
    if path.len() > SUN_PATH {
        return Err(format!("the socket path has {} bytes; the system takes {SUN_PATH}", path.len()));
    }
    if path.contains('\0') {
        return Err("a socket path holds no zero byte".into());
    }
    Ok(Listen::Unix(path.into()))
}

fn parse_tcp(text: &str) -> Result<SocketAddr, String> {
    let local = text.strip_prefix("localhost:").and_then(|port| port.parse().ok());
    let address = match local {
        Some(port) => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        None => text
            .parse()
            .map_err(|_| format!("`{text}` is no address: an IP address and a port, or `unix:` and a path"))?,
    };
    Ok(address)
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Tls(address) => write!(f, "https://{address}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_and_sockets_are_taken() {
        for (text, shown) in [
            ("127.0.0.1:8790", "127.0.0.1:8790"),
            ("127.9.9.9:0", "127.9.9.9:0"),
            ("[::1]:8790", "[::1]:8790"),
            ("localhost:11434", "127.0.0.1:11434"),
            ("0.0.0.0:8790", "0.0.0.0:8790"),
            ("http://0.0.0.0:8790", "0.0.0.0:8790"),
            ("https://[::]:8443", "https://[::]:8443"),
            ("https://localhost:8443", "https://127.0.0.1:8443"),
            ("unix:/run/pool", "unix:/run/pool"),
            ("/run/pool.sock", "unix:/run/pool.sock"),
        ] {
            assert_eq!(parse_listen(text).map(|listen| listen.to_string()), Ok(shown.into()), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in [
            "",
            "8790",
            "127.0.0.1",
            "localhost",
            "localhost:99999",
            "example.org:80",
            "::1:8790",
            "https://h:1",
            "https:///s.sock",
        ] {
            let wrong = parse_listen(text).expect_err(text);
            assert!(wrong.contains("is no address"), "{wrong}");
        }
        assert!(parse_listen("unix:pool").is_err());
        assert!(parse_listen("pool.sock").is_err());
    }

    #[test]
    fn a_socket_path_is_as_long_as_the_system_takes() {
        let path = |n: usize| format!("unix:/{}", "x".repeat(n - 1));
        assert!(parse_listen(&path(107)).is_ok());
        assert_eq!(parse_listen(&path(108)), Err("the socket path has 108 bytes; the system takes 107".into()));
    }

    proptest! {
        #[test]
        fn what_is_taken_as_a_socket_fits_one(text in "(unix:)?[/.a-z0-9:\\[\\]]{0,120}(\\.sock)?") {
            match parse_listen(&text) {
                Ok(Listen::Unix(path)) => prop_assert!(path.as_os_str().len() <= 107 && path.is_absolute()),
                Ok(Listen::Tcp(_) | Listen::Tls(_)) | Err(_) => {}
            }
        }
    }
}
