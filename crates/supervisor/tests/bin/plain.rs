//! A keeper with nothing but what every Unix has: what macOS runs.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(motorpool_supervisor::plain_keeper_on_stdin().unsigned_abs().to_le_bytes()[0])
}
