//! What `motorpool keeper` is, without the rest of motorpool.
use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(motorpool_supervisor::keeper_on_stdin().unsigned_abs().to_le_bytes()[0])
}
