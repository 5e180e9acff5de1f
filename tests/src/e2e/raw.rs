//! [`Raw`]: bytes to a daemon and bytes back, for what no HTTP library would send.
use std::io;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// One connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
    seen: Vec<u8>,
}

impl Raw {
    /// To `address`, `127.0.0.1:1234`.
    pub async fn connect(address: &str) -> io::Result<Self> {
        Ok(Self { stream: TcpStream::connect(address).await?, seen: Vec::new() })
    }

    /// A `POST` of JSON with its length.
    pub async fn post(&mut self, path: &str, body: &[u8]) -> io::Result<()> {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.write(head.as_bytes()).await?;
        self.write(body).await
    }

    /// Bytes as they are.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await
    }

    /// Says that nothing more will be sent, and goes on reading.
    pub async fn close_half(&mut self) -> io::Result<()> {
        self.stream.shutdown().await
    }

    /// Reads on until `text` has come; everything read so far.
    pub async fn until(&mut self, text: &str) -> io::Result<String> {
        while !self.text().contains(text) {
            if self.stream.read_buf(&mut self.seen).await? == 0 {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, format!("no {text:?} in {:?}", self.text())));
            }
        }
        Ok(self.text())
    }

    /// Everything to the end.
    pub async fn rest(mut self) -> io::Result<String> {
        self.stream.read_to_end(&mut self.seen).await?;
        Ok(self.text())
    }

    /// What has come and was read.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Whether anything has come, without waiting for it.
    pub fn is_silent(&mut self) -> bool {
        let mut byte = [0];
        self.seen.is_empty()
            && matches!(self.stream.try_read(&mut byte), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }
}
