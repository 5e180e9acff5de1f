//! The rounds: every way in turn, in every round.
use super::{
    Bench, BenchError,
    figures::{Watched, median, percentile_us, us},
    frames::{self, Run},
    load::Lines,
    relay::Relay,
    report::{Row, StreamRow},
    way::{Question, Way},
};
use std::time::Duration;

/// Streams side by side when they are paced, as people read them.
pub(crate) const PACED_STREAMS: u32 = 64;
const PACE: Duration = Duration::from_millis(20);

/// An engine and the ways to it.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) engine: String,
    /// The direct one, the relay's, the pool's, and those of others.
    pub(crate) ways: Vec<Way>,
    pub(crate) relay: Relay,
    /// The pool's process.
    pub(crate) daemon: Watched,
    pub(crate) question: Question,
}

/// Which of the ways is the relay's.
const RELAY: usize = 1;
/// Which is the pool's.
const OURS: usize = 2;

/// One measurement of one way.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    p50: f64,
    p99: f64,
    per_second: f64,
    /// Of who stands between, for each request or frame, where that is told.
    cpu: Option<f64>,
    n: u64,
}

/// Samples of each way, round by round: the same index is the same round.
type Rounds = Vec<Vec<Sample>>;

/// The order of the ways in a round: whoever is first in one is not in the next.
fn order(n_ways: usize, round: u32) -> impl Iterator<Item = usize> {
    let first = usize::try_from(round).unwrap_or_default();
    (0..n_ways).map(move |i| (i + first) % n_ways)
}

impl Subject {
    /// `direct`, the same through `relay` and through the pool, and what `others` there are.
    pub(crate) fn new(
        engine: String,
        (direct, relay, ours, others): (Way, Relay, Way, Vec<Way>),
        daemon: Watched,
        question: Question,
    ) -> Self {
        let mut ways = vec![direct, relay.way.clone(), ours];
        ways.extend(others);
        Self { engine, ways, relay, daemon, question }
    }

    /// The pool's way.
    pub(crate) fn ours(&self) -> &Way {
        &self.ways[OURS]
    }

    /// The processor time that whoever stands in this way took so far, where that is told.
    async fn cpu(&self, way: usize) -> Result<Option<Duration>, BenchError> {
        match way {
            RELAY => Ok(self.relay.cpu().await),
            OURS => self.daemon.cpu().map(Some),
            _ => Ok(None),
        }
    }

    /// What of that came since `before`, for each of `n`, in microseconds.
    async fn cpu_since(&self, way: usize, before: Option<Duration>, n: f64) -> Result<Option<f64>, BenchError> {
        let now = self.cpu(way).await?;
        Ok(now.zip(before).map(|(now, before)| us(now.saturating_sub(before)) / n))
    }

    /// Small requests at each number of connections.
    pub(crate) async fn small(&self, command: &Bench) -> Result<Vec<Row>, BenchError> {
        let mut rows = Vec::new();
        for n_connections in &command.connections {
            let mut rounds: Rounds = vec![Vec::new(); self.ways.len()];
            for round in 0..command.rounds {
                for i in order(self.ways.len(), round) {
                    let lines = Lines::open(&self.ways[i], &self.question, *n_connections).await?;
                    let before = self.cpu(i).await?;
                    let mut came = lines.ask(command.requests).await?;
                    let n = came.each.len() as u64;
                    rounds[i].push(Sample {
                        p50: percentile_us(&mut came.each, 500),
                        p99: percentile_us(&mut came.each, 990),
                        per_second: f64::from(command.requests) / came.all.as_secs_f64().max(1e-9),
                        cpu: self.cpu_since(i, before, command.requests.into()).await?,
                        n,
                    });
                }
            }
            rows.extend(self.ways.iter().enumerate().map(|(i, way)| Row {
                engine: self.engine.clone(),
                way: way.name.clone(),
                connections: *n_connections,
                requests: rounds[i].iter().map(|sample| sample.n).sum(),
                p50_us: of(&rounds[i], |s| s.p50),
                p99_us: of(&rounds[i], |s| s.p99),
                added_p50_us: (i > 0).then(|| added(&rounds, i, |s| s.p50)),
                added_p99_us: (i > 0).then(|| added(&rounds, i, |s| s.p99)),
                per_second: of(&rounds[i], |s| s.per_second),
                cpu_us: cpu_of(&rounds[i]),
            }));
        }
        Ok(rows)
    }

    /// Streams of the trivial engine: one as fast as it comes, and many that are paced.
    pub(crate) async fn streams(&self, command: &Bench) -> Result<Vec<StreamRow>, BenchError> {
        let fast = Run { n_streams: 1, n_frames: command.frames.saturating_mul(10), pace: Duration::ZERO };
        let paced = Run { n_streams: PACED_STREAMS, n_frames: command.frames, pace: PACE };
        let mut rows = Vec::new();
        for run in [fast, paced] {
            let question = frames::streamed(run.n_frames, run.pace, frames::End::AfterFrames);
            rows.extend(self.streams_of(command.rounds, &question, run).await?);
        }
        Ok(rows)
    }

    /// Streams of `question`, in rounds.
    pub(crate) async fn streams_of(
        &self,
        n_rounds: u32,
        question: &Question,
        run: Run,
    ) -> Result<Vec<StreamRow>, BenchError> {
        let mut rounds: Rounds = vec![Vec::new(); self.ways.len()];
        for round in 0..n_rounds {
            for i in order(self.ways.len(), round) {
                let before = self.cpu(i).await?;
                let mut came = frames::run(&self.ways[i], question, run).await?;
                #[expect(clippy::cast_precision_loss, reason = "a number of events has few digits")]
                let n = came.n_events.max(1) as f64;
                rounds[i].push(Sample {
                    p50: percentile_us(&mut came.on_the_way, 500),
                    p99: percentile_us(&mut came.on_the_way, 990),
                    per_second: 0.0,
                    cpu: self.cpu_since(i, before, n).await?,
                    n: came.n_events,
                });
            }
        }
        let is_timed = rounds[0].iter().any(|sample| sample.p50 > 0.0);
        let row = |(i, way): (usize, &Way)| StreamRow {
            engine: self.engine.clone(),
            way: way.name.clone(),
            streams: run.n_streams,
            pace_us: u64::try_from(run.pace.as_micros()).unwrap_or(u64::MAX),
            frames: rounds[i].iter().map(|sample| sample.n).sum(),
            p50_us: is_timed.then(|| of(&rounds[i], |s| s.p50)),
            p99_us: is_timed.then(|| of(&rounds[i], |s| s.p99)),
            added_p50_us: (is_timed && i > 0).then(|| added(&rounds, i, |s| s.p50)),
            added_p99_us: (is_timed && i > 0).then(|| added(&rounds, i, |s| s.p99)),
            cpu_us: cpu_of(&rounds[i]),
        };
        Ok(self.ways.iter().enumerate().map(row).collect())
    }
}

/// The median over the rounds.
fn of(samples: &[Sample], figure: fn(&Sample) -> f64) -> f64 {
    median(&samples.iter().map(figure).collect::<Vec<_>>())
}

/// The same of processor time, where it was told in all of them.
fn cpu_of(samples: &[Sample]) -> Option<f64> {
    samples.iter().map(|sample| sample.cpu).collect::<Option<Vec<_>>>().map(|cpu| median(&cpu))
}

/// What way `i` adds to the direct one: the median of the differences within each round.
fn added(rounds: &Rounds, i: usize, figure: fn(&Sample) -> f64) -> f64 {
    let differences = rounds[0].iter().zip(&rounds[i]).map(|(direct, way)| figure(way) - figure(direct));
    median(&differences.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_is_the_difference_within_a_round_and_everybody_is_first_once() {
        let sample = |p50| Sample { p50, ..Sample::default() };
        // The second round was disturbed, both ways.
        let rounds: Rounds =
            vec![vec![sample(10.0), sample(500.0), sample(10.0)], vec![sample(15.0), sample(506.0), sample(14.0)]];
        assert!((added(&rounds, 1, |s| s.p50) - 5.0).abs() < 1e-9);
        let firsts: Vec<_> = (0..3).filter_map(|round| order(3, round).next()).collect();
        assert_eq!(firsts, [0, 1, 2]);
        assert_eq!(order(3, 2).collect::<Vec<_>>(), [2, 0, 1]);
    }
}
