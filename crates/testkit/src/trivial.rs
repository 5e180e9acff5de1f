//! What the trivial engine reads and writes, apart from its sockets.
use nix::time::{ClockId, clock_gettime};
use serde::Deserialize;
use std::{io, time::Duration};
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// What a request wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// One small document.
    Small,
    /// So many events, so long apart, and perhaps no end.
    Stream {
        /// How many.
        n_frames: u32,
        /// From one to the next; zero: as fast as they can be written.
        pace: Duration,
        /// Whether the stream stays open behind them.
        hold: bool,
    },
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Body {
    stream: bool,
    frames: Option<u32>,
    pace_us: u64,
    hold: bool,
}

/// The next request of a connection; `None` at its end. What was read behind it stays in `unread`.
pub async fn read_request(stream: &mut (impl AsyncRead + Unpin), unread: &mut Vec<u8>) -> io::Result<Option<Ask>> {
    let end = loop {
        if let Some(at) = unread.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&unread[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let length: usize = length.map_or(Ok(0), |n| n.trim().parse()).map_err(io::Error::other)?;
    while unread.len() < end + length {
        if stream.read_buf(unread).await? == 0 {
            return Ok(None);
        }
    }
    let ask = wanted(&unread[end..end + length]);
    unread.drain(..end + length);
    Ok(Some(ask))
}

fn wanted(body: &[u8]) -> Ask {
    let body: Body = serde_json::from_slice(body).unwrap_or_default();
    if !body.stream {
        return Ask::Small;
    }
    let pace = Duration::from_micros(body.pace_us);
    Ask::Stream { n_frames: body.frames.unwrap_or(1), pace, hold: body.hold }
}

/// The reply to whatever wants no stream: a whole chat completion of one word.
pub fn small_reply() -> &'static [u8] {
    concat!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 169\r\n\r\n",
        r#"{"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"hello"},"#,
        r#""finish_reason":"stop"}],"usage":{"prompt_tokens":1,"total_tokens":2}}"#,
    )
    .as_bytes()
}

/// One event as a chunk, with the time at which it was made.
pub fn event() -> Vec<u8> {
    let data =
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"x\"}}}}],\"at\":{}}}\n\n", now_ns());
    format!("{:x}\r\n{data}\r\n", data.len()).into_bytes()
}

/// Nanoseconds of the monotonic clock, the same for every process of a machine.
pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn requests_behind_each_other_are_read_one_by_one_and_their_length_is_right() {
        let asked = r#"{"model":"m","stream":true,"frames":3,"pace_us":5}"#;
        let text = format!(
            "POST /x HTTP/1.1\r\nContent-Length: {}\r\n\r\n{asked}GET /health HTTP/1.1\r\nhost: x\r\n\r\n",
            asked.len()
        );
        let mut stream = text.as_bytes();
        let mut unread = Vec::new();
        let streams = Ask::Stream { n_frames: 3, pace: Duration::from_micros(5), hold: false };
        for want in [Some(streams), Some(Ask::Small), None] {
            assert_eq!(read_request(&mut stream, &mut unread).await.expect("well formed"), want);
        }
    }

    #[test]
    fn the_small_reply_has_the_length_it_says_and_is_json() {
        let text = std::str::from_utf8(small_reply()).expect("text");
        let (head, body) = text.split_once("\r\n\r\n").expect("a head");
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        let document: serde_json::Value = serde_json::from_str(body).expect("JSON");
        assert_eq!(document["choices"][0]["message"]["content"], "hello");
    }

    #[test]
    fn an_event_is_a_chunk_that_tells_when_it_was_made() {
        let before = now_ns();
        let text = String::from_utf8(event()).expect("text");
        let (length, rest) = text.split_once("\r\n").expect("a length");
        let data = rest.strip_suffix("\r\n").expect("its end");
        assert_eq!(usize::from_str_radix(length, 16).expect("hexadecimal"), data.len());
        let json = data.strip_prefix("data: ").and_then(|data| data.strip_suffix("\n\n")).expect("an event");
        let at = serde_json::from_str::<serde_json::Value>(json).expect("JSON")["at"].as_u64().expect("a time");
        assert!((before..=now_ns()).contains(&at));
    }
}
