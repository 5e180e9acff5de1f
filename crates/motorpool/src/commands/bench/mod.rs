//! `motorpool bench`: what serving through this costs, beside the engine itself and beside other ways, in one run.
//!
//! ```text
//! subject ──► an engine, and the ways to it: direct, a blind relay of ours, the pool, llama.cpp's router, others by URL
//! rounds  ──► every way in turn, in every round, at every number of connections: what disturbs one disturbs all
//! figures ──► medians over the rounds; what is added is taken from the direct way of the same round
//! ```
//!
//! | subject | what is measured |
//! | --- | --- |
//! | a running pool | small requests and streams to one of its models |
//! | `--engine PROGRAM`: a pool of its own | the same over a trivial engine, and what needs a configuration: thousands of open streams, swaps, starts |
//!
//! The generator is one thread on raw sockets, the relay another. They take their share of the machine: with two cores, all
//! figures are of a machine that is also busy asking.
//!
//! The figures in README.md are of
//!
//! ```sh
//! cargo build --release -p motorpool -p motorpool-testkit --bins
//! target/release/motorpool bench --engine target/release/motorpool-trivial-engine --router .../bin/llama-server
//! ```
mod figures;
mod frames;
mod load;
mod machine;
mod own;
mod relay;
mod report;
mod rounds;
mod running;
mod way;

use crate::{
    dirs::Dirs,
    exit::{Exit, Failure, chain},
    out::{self, Out},
    settings::Settings,
};
use clap::Args;
use std::{io, path::PathBuf};

/// What to measure, and how long.
#[derive(Clone, Debug, Args)]
pub(crate) struct Bench {
    /// A model of the running pool, by id or alias; without it, the one of requests that name none
    #[arg(conflicts_with = "engine")]
    pub(crate) model: Option<String>,
    /// Measure a pool of its own, made for this and gone behind it, over this engine: `motorpool-trivial-engine`, which is
    /// built from the sources with `cargo build --release -p motorpool-testkit`
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) engine: Option<PathBuf>,
    /// Measure this llama-server too, behind that pool and behind its own router
    #[arg(long, value_name = "PROGRAM", requires = "engine")]
    pub(crate) router: Option<PathBuf>,
    /// A server to measure beside the others, which answers the same requests: llama-swap=http://127.0.0.1:8080, with
    /// /MODEL behind it when the model has another name there
    #[arg(long, value_name = "NAME=URL", value_parser = way::beside)]
    pub(crate) beside: Vec<way::Beside>,
    /// How often everything is measured; the table shows medians
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=99))]
    pub(crate) rounds: u32,
    /// Numbers of connections, with commas
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,8,64,512", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) connections: Vec<u32>,
    /// Small requests in each round, on all connections together
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(crate) requests: u32,
    /// Frames of each stream in a round
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    pub(crate) frames: u32,
    /// Streams that are open at once to see what they take; 0: none
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(0..=60_000))]
    pub(crate) open: u32,
}

/// Why nothing, or not all, was measured.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    #[error("{way} cannot be reached")]
    Unreachable { way: String, source: io::Error },
    #[error("{way} answered {status}: {text}")]
    Answered { way: String, status: u16, text: String },
    #[error("{0} ended in the middle of a reply")]
    Cut(String),
    #[error("{0} did not get ready within a minute")]
    Late(String),
    #[error("the pool made for this ended: {0}")]
    Ended(String),
    #[error("cannot prepare the measurement")]
    Prepare(#[source] io::Error),
    #[error("{0}")]
    Unfit(String),
    #[error("a part of the measurement broke off")]
    Broken(#[source] tokio::task::JoinError),
}

impl From<BenchError> for Failure {
    fn from(error: BenchError) -> Self {
        let what = chain(&error);
        match error {
            BenchError::Unfit(_) => Self::new(Exit::Usage, what, "`motorpool bench --help` shows what can be measured"),
            BenchError::Unreachable { .. } | BenchError::Answered { .. } | BenchError::Cut(_) => {
                Self::new(Exit::Refused, what, "ask it by hand, and check its log")
            }
            BenchError::Late(_) | BenchError::Ended(_) => {
                Self::new(Exit::Failed, what, "check that the programs given are there and run by themselves")
            }
            BenchError::Prepare(_) => Self::new(Exit::Failed, what, "check the limits on files, and the disk"),
            BenchError::Broken(_) => Self::new(Exit::Failed, what, "report this"),
        }
    }
}

pub(super) async fn perform(dirs: &Dirs, out: Out, (settings, command): (Settings, Bench)) -> Result<(), Failure> {
    out::say("measuring; whatever else this machine does meanwhile is in the figures");
    let report = match command.engine.clone() {
        Some(engine) => own::measure(&engine, &command).await?,
        None => running::measure(dirs, (&settings, &command)).await?,
    };
    out.data(&report, || report.for_people())
}
