//! A program without the feature `otel`: there are no traces.
use crate::exit::Failure;
use motorpool_gateway::Traces;
use tracing_subscriber::layer::Identity;

/// Nobody.
#[derive(Debug)]
pub(crate) enum Exporter {}

impl Exporter {
    #[expect(clippy::unnecessary_wraps, reason = "it can fail where there are traces")]
    pub(crate) const fn from_environment() -> Result<Option<Self>, Failure> {
        Ok(None)
    }

    pub(crate) const fn layer(&self) -> Identity {
        match *self {}
    }

    pub(crate) const fn ties(&self) -> Traces {
        match *self {}
    }

    #[expect(clippy::unused_async, reason = "it takes its time where there are traces")]
    pub(crate) async fn close(self) {
        match self {}
    }
}
