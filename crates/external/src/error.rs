//! [`ServerError`]: why something was not done on somebody's server.
use crate::call::{Answer, CallError};
use motorpool_residency::{Failure, is_capacity_rejection};
use std::time::Duration;

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// No answer, or none that is one.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server said no.
    #[error("the server answered {status}: {message}")]
    Refused {
        /// Its status.
        status: u16,
        /// Its message.
        message: String,
    },
    /// It lists nothing by which its models could be managed.
    #[error("the server does not tell what it holds")]
    Plain,
    /// The load was accepted, and failed.
    #[error("the load failed{}", exit_text(*exit_code))]
    LoadFailed {
        /// Of the child, where the server tells.
        exit_code: Option<i64>,
    },
    /// The model vanished while it was waited for.
    #[error("the server does not have this model any more")]
    Gone,
    /// Nothing moved for so long.
    #[error("nothing happened for {0:?}")]
    Stalled(Duration),
    /// The same, of a load that others had begun.
    #[error("somebody else's load of the model stands still for {0:?}")]
    TheirsStalled(Duration),
    /// This server, or its version, has no way to do it.
    #[error("the server cannot be told to do this")]
    Unsupported,
}

fn exit_text(code: Option<i64>) -> String {
    code.map_or_else(String::new, |code| format!(": its process ended with exit code {code}"))
}

impl ServerError {
    /// The same for `residency`: whether it was for want of room counts there.
    pub(crate) fn failure(&self) -> Failure {
        match self {
            Self::Refused { status, message } if is_capacity_rejection(*status, message) => {
                Failure::Capacity(message.clone())
            }
            other => Failure::Other(other.to_string()),
        }
    }
}

/// A successful answer, or what it says.
pub(crate) fn checked(answer: Answer) -> Result<Answer, ServerError> {
    if answer.is_success() { Ok(answer) } else { Err(refused(&answer)) }
}

/// What an unsuccessful answer says.
pub(crate) fn refused(answer: &Answer) -> ServerError {
    ServerError::Refused { status: answer.status, message: answer.message() }
}
