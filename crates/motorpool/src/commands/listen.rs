//! The addresses that are served on.
use crate::exit::{Exit, Failure};
use motorpool_catalog::Listen;
use std::io;

/// Why an address cannot be served on, and what to do.
pub(super) fn cannot(listen: &Listen, error: &io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::AddrInUse => Failure::new(
            Exit::InUse,
            format_args!("the address {listen} is in use by another program"),
            "stop that program, or choose another address with `listen` in [server] of motorpool.toml",
        ),
        io::ErrorKind::PermissionDenied => Failure::new(
            Exit::Denied,
            format_args!("not permitted to serve on {listen}"),
            "choose a port above 1023 with `listen` in [server] of motorpool.toml",
        ),
        _ => Failure::new(
            Exit::Failed,
            format_args!("cannot serve on {listen}: {error}"),
            "choose another address with `listen` in [server] of motorpool.toml",
        ),
    }
}
