//! Streams whose events tell when they were written, and streams that stay open.
use super::{
    BenchError,
    way::{Line, Question, Way},
};
use nix::time::{ClockId, clock_gettime};
use std::{io, time::Duration};
use tokio::task::JoinSet;

/// What stands before the time in an event of the trivial engine.
const MARK: &[u8] = b"\"at\":";
/// What begins an event.
const EVENT: &[u8] = b"data: {";
/// The end of the last chunk.
const END: &[u8] = b"0\r\n\r\n";

const BEGINS_WITHIN: Duration = Duration::from_secs(5);

/// How streams run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) n_streams: u32,
    pub(crate) n_frames: u32,
    /// From one event to the next; zero: as fast as they come.
    pub(crate) pace: Duration,
}

/// What came of them.
#[derive(Debug, Default)]
pub(crate) struct Came {
    pub(crate) n_events: u64,
    /// How long each event was on its way, where it tells.
    pub(crate) on_the_way: Vec<Duration>,
}

/// The request for a stream of the trivial engine. That usage is asked for leaves events as they are on every way.
pub(crate) fn streamed(n_frames: u32, pace: Duration, end: End) -> Question {
    let hold = if end == End::Never { ",\"hold\":true" } else { "" };
    let rest = format!(
        "\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\
         \"frames\":{n_frames},\"pace_us\":{}{hold}}}",
        pace.as_micros()
    );
    Question { path: "/v1/chat/completions", rest }
}

/// Whether a stream comes to its end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    AfterFrames,
    Never,
}

/// Runs streams side by side, their beginnings spread over one pace.
pub(crate) async fn run(way: &Way, question: &Question, run: Run) -> Result<Came, BenchError> {
    let request = way.request(question);
    let mut streams = JoinSet::new();
    for i in 0..run.n_streams {
        let mut line = way.connect().await?;
        let (request, wait) = (request.clone(), run.pace * i / run.n_streams.max(1));
        streams.spawn(async move {
            tokio::time::sleep(wait).await;
            line.begin(&request).await?;
            to_the_end(&mut line).await
        });
    }
    let mut all = Came::default();
    while let Some(came) = streams.join_next().await {
        let came = came.map_err(BenchError::Broken)??;
        all.n_events += came.n_events;
        all.on_the_way.extend(came.on_the_way);
    }
    Ok(all)
}

async fn to_the_end(line: &mut Line) -> Result<Came, BenchError> {
    let mut came = Came::default();
    loop {
        let bytes = line.take().await?;
        let now = now();
        // Chunks are written whole; one that a read has cut waits for its rest.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        came.read(&bytes[..whole], now);
        if bytes.ends_with(END) {
            return Ok(came);
        }
        if whole < bytes.len() {
            line.put_back(&bytes[whole..]);
            line.read().await?;
        }
    }
}

impl Came {
    /// Counts the events in these lines.
    fn read(&mut self, bytes: &[u8], now: Duration) {
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.starts_with(EVENT)) {
            self.n_events += 1;
            let at = line.windows(MARK.len()).position(|part| part == MARK).map(|at| at + MARK.len());
            let digits = at.map(|at| line[at..].iter().take_while(|byte| byte.is_ascii_digit()));
            let digits: Option<String> = digits.map(|digits| digits.map(|byte| char::from(*byte)).collect());
            if let Some(at) = digits.and_then(|digits| digits.parse().ok()).map(Duration::from_nanos) {
                self.on_the_way.push(now.saturating_sub(at));
            }
        }
    }
}

/// Of the clock that engines read, too.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Opens streams that stay open, as many as `n` or as descriptors allow. Each has had its first event.
pub(crate) async fn open(way: &Way, n: u32) -> Result<Vec<Line>, BenchError> {
    let request = way.request(&streamed(1, Duration::ZERO, End::Never));
    let mut open = Vec::new();
    for _ in 0..n {
        let begun = async {
            let mut line = way.connect().await?;
            line.begin(&request).await.map(|()| line)
        };
        // Who has no descriptor left for one more takes it up when somebody else has gone.
        let Ok(line) = tokio::time::timeout(BEGINS_WITHIN, begun).await else { break };
        match line {
            Ok(line) => open.push(line),
            Err(error) if !open.is_empty() && is_full(&error) => break,
            Err(error) => return Err(error),
        }
    }
    Ok(open)
}

/// Whether somebody has no descriptor or place left: we, or the way, which says so.
fn is_full(error: &BenchError) -> bool {
    match error {
        BenchError::Unreachable { source, .. } => {
            source.raw_os_error() == Some(nix::errno::Errno::EMFILE as i32)
                || source.kind() == io::ErrorKind::ConnectionReset
        }
        BenchError::Answered { status, .. } => matches!(status, 502 | 503),
        BenchError::Cut(_) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_counted_and_timed_wherever_they_stand() {
        let mut came = Came::default();
        let text = b"29\r\ndata: {\"x\":1,\"at\":1000}\n\n\r\n29\r\ndata: {\"at\":3000,\"x\":1}\n\n\r\ndata: {\"y\":1}\ndata: [DONE]\n";
        came.read(text, Duration::from_micros(5));
        assert_eq!((came.n_events, came.on_the_way), (3, vec![Duration::from_micros(4), Duration::from_micros(2)]));
    }
}
