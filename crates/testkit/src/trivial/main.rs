//! An engine that does nothing but answer, as cheaply as it can: what a benchmark of a gateway needs behind it.
//!
//! Boundary: a test tool, started as any engine is. It speaks so much of HTTP/1.1 as one client of ours needs: a head, a
//! body of the length that the head says, one request after another on a connection.
//!
//! | a request's body says | the reply |
//! | --- | --- |
//! | nothing, or whatever else | one small document |
//! | `"stream":true,"frames":N` | N events, each its own chunk and its own write, then the end |
//! | `"pace_us":T` with it | T microseconds between two events |
//! | `"hold":true` with it | no end: the stream stays open until its client goes |
//!
//! Each event tells the nanosecond of the monotonic clock at which it was written, so that whoever reads it knows how long it
//! was on its way. One thread: an engine that took two would take them from what is measured.
use motorpool_testkit::trivial::{Ask, event, read_request, small_reply};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{io, process::ExitCode, time::Duration};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{UnixListener, UnixStream},
};

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
const LAST: &[u8] = b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let word = |n: usize| words.get(n).map(String::as_str);
    match (word(0), word(1)) {
        (Some("--version"), _) => {
            say("version: 1.0.0");
            ExitCode::SUCCESS
        }
        (Some("--socket"), Some(path)) => match serve(path) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                say(&format!("couldn't serve on {path}: {error}"));
                ExitCode::FAILURE
            }
        },
        _ => {
            say("motorpool-trivial-engine --socket PATH | --version");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "a program's answer to who asks for its version")]
fn say(line: &str) {
    println!("{line}");
}

fn serve(path: &str) -> io::Result<()> {
    // Each open stream is a descriptor.
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let listener = UnixListener::bind(path)?;
        loop {
            let (stream, _) = listener.accept().await?;
            tokio::spawn(async move { drop(converse(stream).await) });
        }
    })
}

/// One request after another, until the client goes.
async fn converse(mut stream: UnixStream) -> io::Result<()> {
    let mut unread = Vec::with_capacity(4096);
    while let Some(ask) = read_request(&mut stream, &mut unread).await? {
        match ask {
            Ask::Small => stream.write_all(small_reply()).await?,
            Ask::Stream { n_frames, pace, hold } => {
                stream_events(&mut stream, (n_frames, pace)).await?;
                if hold {
                    // Nothing is due from a client but its end.
                    stream.read_u8().await?;
                }
                stream.write_all(LAST).await?;
            }
        }
    }
    Ok(())
}

async fn stream_events(stream: &mut UnixStream, (n_frames, pace): (u32, Duration)) -> io::Result<()> {
    stream.write_all(HEAD).await?;
    let mut next = tokio::time::Instant::now();
    for _ in 0..n_frames {
        if !pace.is_zero() {
            tokio::time::sleep_until(next).await;
            next += pace;
        }
        stream.write_all(&event()).await?;
    }
    Ok(())
}
