//! [`Way`]: one of the ways to an engine, and its kept connections.
use super::BenchError;
use http::Uri;
use std::{
    io,
    path::PathBuf,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::{TcpStream, UnixStream},
};

/// Of a refusal, so much is shown.
const SHOWN: usize = 300;

/// Where a way begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp(String),
    Unix(PathBuf),
}

/// A server that somebody named, and the model's name there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beside {
    pub(crate) name: String,
    pub(crate) address: String,
    pub(crate) model: Option<String>,
}

/// Reads `NAME=URL`, the URL with the model's name for a path where it has another one there.
pub(crate) fn beside(text: &str) -> Result<Beside, String> {
    let (name, url) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or("NAME=URL")?;
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
        return Err("an address such as http://127.0.0.1:8080".into());
    };
    let address = match authority.port_u16() {
        Some(_) => authority.to_string(),
        None => format!("{authority}:80"),
    };
    let model = uri.path().trim_matches('/');
    Ok(Beside { name: name.to_owned(), address, model: (!model.is_empty()).then(|| model.to_owned()) })
}

/// One way to an engine.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) name: String,
    pub(crate) address: Address,
    /// What its server calls the model.
    pub(crate) model: String,
}

/// A path, and a body without its model.
#[derive(Clone, Debug)]
pub(crate) struct Question {
    pub(crate) path: &'static str,
    /// Members behind the model's, with the bracket that closes them.
    pub(crate) rest: String,
}

impl Way {
    /// The whole request, as it goes over this way.
    pub(crate) fn request(&self, question: &Question) -> Vec<u8> {
        let model = serde_json::Value::from(self.model.as_str());
        let body = format!("{{\"model\":{model},{}", question.rest);
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            question.path,
            body.len()
        );
        (head + &body).into_bytes()
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Result<Line, BenchError> {
        let socket = match &self.address {
            Address::Tcp(address) => TcpStream::connect(address.as_str()).await.and_then(|stream| {
                stream.set_nodelay(true)?;
                Ok(Socket::Tcp(stream))
            }),
            Address::Unix(path) => UnixStream::connect(path).await.map(Socket::Unix),
        };
        let socket = socket.map_err(|source| BenchError::Unreachable { way: self.name.clone(), source })?;
        Ok(Line {
            to: self.clone(),
            way: self.name.clone(),
            socket,
            unread: Vec::with_capacity(16 << 10),
            is_last: false,
        })
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A kept connection of a way.
#[derive(Debug)]
pub(crate) struct Line {
    to: Way,
    way: String,
    socket: Socket,
    unread: Vec<u8>,
    /// The server said that it closes behind its reply: llama-server does so after a hundred.
    is_last: bool,
}

/// How the end of a reply is known.
enum Framing {
    Length(usize),
    Chunked,
}

impl Line {
    /// Sends `request` and reads the whole reply.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<(), BenchError> {
        if self.is_last {
            *self = self.to.connect().await?;
        }
        self.send(request).await?;
        let (head, framing) = self.head().await?;
        match framing {
            Framing::Length(length) => {
                while self.unread.len() < head + length {
                    self.read().await?;
                }
            }
            Framing::Chunked => {
                while !self.unread.ends_with(b"0\r\n\r\n") {
                    self.read().await?;
                }
            }
        }
        self.unread.clear();
        Ok(())
    }

    /// Sends `request` and reads as far as the reply's head; what came behind it stays.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<(), BenchError> {
        self.send(request).await?;
        let (head, _) = self.head().await?;
        self.unread.drain(..head);
        Ok(())
    }

    /// What has come of a stream and was not taken yet; more, when that is nothing. Empty at its end.
    pub(crate) async fn take(&mut self) -> Result<Vec<u8>, BenchError> {
        if self.unread.is_empty() {
            self.read().await?;
        }
        Ok(std::mem::take(&mut self.unread))
    }

    /// Puts back what cannot be understood without what follows.
    pub(crate) fn put_back(&mut self, bytes: &[u8]) {
        self.unread.splice(0..0, bytes.iter().copied());
    }

    /// Waits for more behind what was put back.
    pub(crate) async fn read(&mut self) -> Result<(), BenchError> {
        let Self { way, socket, unread, .. } = self;
        match socket.read_buf(unread).await {
            Ok(0) => Err(BenchError::Cut(way.clone())),
            Ok(_) => Ok(()),
            Err(source) => Err(BenchError::Unreachable { way: way.clone(), source }),
        }
    }

    async fn send(&mut self, request: &[u8]) -> Result<(), BenchError> {
        let Self { way, socket, .. } = self;
        socket.write_all(request).await.map_err(|source| BenchError::Unreachable { way: way.clone(), source })
    }

    /// The length of the head, and what follows. Whatever is no 200 is an error.
    async fn head(&mut self) -> Result<(usize, Framing), BenchError> {
        let end = loop {
            if let Some(at) = self.unread.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.read().await?;
        };
        let head = String::from_utf8_lossy(&self.unread[..end]).to_ascii_lowercase();
        if !head.as_bytes().get(8..).is_some_and(|rest| rest.starts_with(b" 200")) {
            let status = head.get(9..12).and_then(|code| code.parse().ok()).unwrap_or(0);
            let rest = self.unread.get(end..).unwrap_or_default();
            let text = String::from_utf8_lossy(&rest[..rest.len().min(SHOWN)]).into_owned();
            return Err(BenchError::Answered { way: self.way.clone(), status, text });
        }
        self.is_last = head.contains("\r\nconnection: close\r\n");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
        let length = length.and_then(|length| length.trim().parse().ok());
        Ok((end, length.map_or(Framing::Chunked, Framing::Length)))
    }
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_beside_is_a_name_an_address_and_perhaps_a_model() {
        for (text, want) in [
            ("a=http://h:1", Some(("a", "h:1", None))),
            ("a=http://h/", Some(("a", "h:80", None))),
            ("a=http://h:1/org/m", Some(("a", "h:1", Some("org/m")))),
            ("=http://h:1", None),
            ("a=https://h:1", None),
            ("http://h:1", None),
        ] {
            let read = beside(text).ok();
            let read = read.as_ref().map(|b| (b.name.as_str(), b.address.as_str(), b.model.as_deref()));
            assert_eq!(read, want, "{text}");
        }
    }

    #[test]
    fn a_request_names_the_model_as_its_server_does_and_its_length_is_right() {
        let way = Way { name: "x".into(), address: Address::Tcp("h:1".into()), model: "a\"b".into() };
        let request = way.request(&Question { path: "/p", rest: "\"stream\":true}".into() });
        let text = String::from_utf8(request).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("POST /p HTTP/1.1\r\n") && head.ends_with(&format!("content-length: {}", body.len())));
        let body: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(body, serde_json::json!({ "model": "a\"b", "stream": true }));
    }
}
