//! [`Remote`]: a pool that is asked at an address, with a key.
use crate::{
    client::ClientError,
    exit::{Exit, Failure},
    fetch::{self, Connector},
};
use bytes::Bytes as Frame;
use http::{HeaderValue, Response, Uri, header, request::Builder, uri::Scheme};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::{client::legacy, rt::TokioExecutor};
use std::{fs, path::Path};

/// A pool at an address.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    /// Scheme and authority.
    server: String,
    key: Option<HeaderValue>,
    client: legacy::Client<Connector, Full<Frame>>,
}

impl Remote {
    /// The one at `server`, shown the key in this file, checked by the authorities in that one.
    pub(crate) fn at(server: &str, key_file: Option<&Path>, ca_file: Option<&Path>) -> Result<Self, Failure> {
        let server = base_of(server).ok_or_else(|| {
            let what = format!("`{server}` is no address of a server");
            Failure::new(Exit::Usage, what, "write it as http://HOST:PORT or https://HOST:PORT")
        })?;
        let key = key_file.map(read_key).transpose()?;
        let connector = match ca_file {
            Some(path) => fetch::connector_by(path).map_err(|error| {
                let what = format!("no certificate authorities in {}: {error}", path.display());
                Failure::new(Exit::Usage, what, "name a file of certificates in PEM with --ca-file")
            })?,
            None => fetch::connector().map_err(|error| {
                let what = format!("no certificate authorities to check servers with: {error}");
                Failure::new(Exit::Failed, what, "install the package ca-certificates")
            })?,
        };
        Ok(Self { server, key, client: legacy::Client::builder(TokioExecutor::new()).build(connector) })
    }

    /// Sends `request`, whose address is a path.
    pub(crate) async fn send(&self, request: Builder, body: Frame) -> Result<Response<Incoming>, ClientError> {
        let path = request.uri_ref().map(ToString::to_string).unwrap_or_default();
        let mut request = request.uri(format!("{}{path}", self.server));
        if let Some(key) = &self.key {
            request = request.header(header::AUTHORIZATION, key);
        }
        let request = request.body(Full::new(body)).expect("paths are literals and checked names");
        let sent = self.client.request(request).await;
        sent.map_err(|source| ClientError::Unreachable { server: self.server.clone(), source })
    }
}

/// Scheme and authority of an address that has nothing else but a final `/` or `/v1`.
fn base_of(server: &str) -> Option<String> {
    let uri: Uri = server.parse().ok()?;
    let scheme = uri.scheme().filter(|scheme| **scheme == Scheme::HTTP || **scheme == Scheme::HTTPS)?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'))?;
    let is_bare = matches!(uri.path(), "" | "/" | "/v1" | "/v1/") && uri.query().is_none();
    is_bare.then(|| format!("{scheme}://{authority}"))
}

fn read_key(path: &Path) -> Result<HeaderValue, Failure> {
    let what = |why: &str| format!("the key in {} cannot be used: {why}", path.display());
    let cure = "name a file whose first line is a key with --key-file";
    let text = fs::read_to_string(path).map_err(|error| Failure::new(Exit::Usage, what(&error.to_string()), cure))?;
    let key = text.lines().next().map(str::trim).filter(|key| !key.is_empty() && !key.contains(' '));
    let value = key.and_then(|key| HeaderValue::from_str(&format!("Bearer {key}")).ok());
    let mut value = value.ok_or_else(|| Failure::new(Exit::Usage, what("its first line is none"), cure))?;
    value.set_sensitive(true);
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_scheme_and_an_authority() {
        for (server, base) in [
            ("http://10.0.0.5:8790", Some("http://10.0.0.5:8790")),
            ("https://pool.example.org/v1/", Some("https://pool.example.org")),
            ("http://[::1]:8790/", Some("http://[::1]:8790")),
            ("10.0.0.5:8790", None),
            ("ftp://h", None),
            ("http://me:secret@h", None),
            ("http://h/elsewhere", None),
            ("http://h/?a=b", None),
            ("", None),
        ] {
            assert_eq!(base_of(server).as_deref(), base, "{server}");
        }
    }

    #[test]
    fn a_key_is_the_first_line_of_its_file_and_is_shown_to_nobody() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("key");
        fs::write(&path, " mp_abc \nmore\n").expect("writable");
        let key = read_key(&path).expect("a key");
        assert_eq!((key.as_bytes(), key.is_sensitive()), (b"Bearer mp_abc".as_slice(), true));
        for text in ["", "\n", "two words\n", "b\u{7f}d\n"] {
            fs::write(&path, text).expect("writable");
            assert_eq!(read_key(&path).expect_err(text).exit, Exit::Usage);
        }
    }
}
