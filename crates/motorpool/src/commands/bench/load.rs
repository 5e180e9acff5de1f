//! Small requests, one after another on each of some connections.
use super::{
    BenchError,
    way::{Question, Way},
};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// How long each request took, and all of them.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) each: Vec<Duration>,
    pub(crate) all: Duration,
}

/// Lines that are open and warm.
#[derive(Debug)]
pub(crate) struct Lines {
    lines: Vec<super::way::Line>,
    request: Vec<u8>,
}

impl Lines {
    /// Opens `n` over `way`; each has been asked once.
    pub(crate) async fn open(way: &Way, question: &Question, n: u32) -> Result<Self, BenchError> {
        let request = way.request(question);
        let mut lines = Vec::new();
        for _ in 0..n {
            let mut line = way.connect().await?;
            line.ask(&request).await?;
            lines.push(line);
        }
        Ok(Self { lines, request })
    }

    /// Asks `n` times in all, each line as soon as it has its last answer.
    pub(crate) async fn ask(self, n: u32) -> Result<Answered, BenchError> {
        let n_lines = u32::try_from(self.lines.len()).unwrap_or(u32::MAX).max(1);
        let mut asking = JoinSet::new();
        let began = Instant::now();
        for (i, mut line) in (0..).zip(self.lines) {
            let share = n / n_lines + u32::from(i < n % n_lines);
            let request = self.request.clone();
            asking.spawn(async move {
                let mut each = Vec::new();
                for _ in 0..share {
                    let began = Instant::now();
                    line.ask(&request).await?;
                    each.push(began.elapsed());
                }
                Ok::<_, BenchError>(each)
            });
        }
        let mut each = Vec::new();
        while let Some(done) = asking.join_next().await {
            each.extend(done.map_err(BenchError::Broken)??);
        }
        Ok(Answered { each, all: began.elapsed() })
    }
}
