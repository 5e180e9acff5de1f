//! The program `motorpool`: arguments in, one command, an exit code out.
mod args;
mod chat;
mod client;
mod commands;
mod daemon;
mod dirs;
mod disk;
mod engine;
mod exit;
mod external;
mod fetch;
mod history;
mod host;
mod listen;
mod log;
mod machine;
mod model;
mod os;
mod out;
mod prerequisites;
mod process;
mod progress;
mod python;
mod reload;
mod remote;
mod settings;
#[cfg_attr(not(feature = "top"), expect(dead_code, reason = "the live view reads what nobody else does"))]
mod status;
mod systemd;
mod terms;
mod traces;
mod watching;

use clap::Parser;
use exit::{Exit, Failure};
use std::process::ExitCode;

fn main() -> ExitCode {
    motorpool::keeper_if_asked();
    let cli = args::Cli::parse();
    // Only what serves needs more than one thread.
    let mut runtime = match cli.command {
        args::Command::Serve(_) | args::Command::Up(_) => tokio::runtime::Builder::new_multi_thread(),
        _ => tokio::runtime::Builder::new_current_thread(),
    };
    let outcome = runtime
        .enable_all()
        .build()
        .map_err(|error| Failure::new(Exit::Failed, error, "check the limits on processes and files"))
        .and_then(|runtime| {
            let outcome = runtime.block_on(commands::perform(cli));
            // A look at a disk that does not answer would keep us.
            runtime.shutdown_background();
            outcome
        });
    let exit = match outcome {
        Ok(()) => Exit::Done,
        Err(failure) => {
            out::say_failure(&failure);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}
