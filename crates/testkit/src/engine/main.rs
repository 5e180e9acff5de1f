//! A program that looks like llama-server to its supervisor and to its clients, and fails as it is told.
//!
//! Boundary: a test tool. What it does is decided by its arguments and by [`motorpool_testkit::Behaviour`] beside
//! the model file; it prints llama-server's lines where a supervisor reads them, and nothing else depends on time.
//!
//! ```text
//! start ─► bound ─► loading ─► ready ─► stopping ─► exit        /health: refused, 503 … 503, 200, 200
//!   │        │         │         │          └ polite: no more tokens, waits for its clients, then exits with 0
//!   └────────┴─────────┴─────────┴ Behaviour::exit: ends by itself here
//! ```
mod answer;
mod arguments;
mod embeddings;
mod engine;
mod graphics;
mod inference;
mod life;
mod load;
mod log;
mod sampler;
mod server;
mod state;
mod stop;
mod trouble;
mod wire;

use arguments::{Arguments, Run};
use std::process::ExitCode;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match Arguments::parse(&words) {
        Run::Serve(arguments) => life::live(arguments),
        Run::Stray { session, memory } => trouble::be_a_stray(session, memory),
        Run::Version => {
            log::plain("version: 0.6.0-dev (build 0, commit unknown)\nbuilt with nothing for tests");
            ExitCode::SUCCESS
        }
        Run::Devices => {
            log::on_stdout(&graphics::Graphics::of_the_environment().list());
            ExitCode::SUCCESS
        }
        Run::Help => {
            log::on_stdout(arguments::HELP);
            ExitCode::SUCCESS
        }
        Run::Refused(why) => {
            log::plain(&format!("error: {why}"));
            ExitCode::FAILURE
        }
    }
}
