//! Traces of requests for whoever collects them: [`Exporter`], which is never there without the feature `otel`.
#[cfg(feature = "otel")]
mod export;
#[cfg(not(feature = "otel"))]
mod none;

#[cfg(feature = "otel")]
pub(crate) use export::Exporter;
#[cfg(not(feature = "otel"))]
pub(crate) use none::Exporter;

use crate::{
    exit::Failure,
    log::{Log, Loudness},
};
use motorpool_catalog as catalog;

/// Begins the log, and the traces that the environment asks for.
pub(crate) fn begin_log(settings: &catalog::Log, loudness: Loudness) -> Result<(Log, Option<Exporter>), Failure> {
    let exporter = Exporter::from_environment()?;
    let log = Log::begin((settings.level, settings.format), loudness, exporter.as_ref().map(Exporter::layer));
    match (asked_by(), &exporter) {
        (Some(name), None) => tracing::info!("{name} is set, and this program was built without `--features otel`"),
        (Some(name), Some(_)) => tracing::info!("traces of requests go where {name} says"),
        (None, _) => {}
    }
    Ok((log, exporter))
}

/// What says where traces go, the first of them that says anything.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// The variable that asks for traces, unless another says that there are none.
fn asked_by() -> Option<&'static str> {
    let is_off = std::env::var("OTEL_SDK_DISABLED").is_ok_and(|said| said.trim().eq_ignore_ascii_case("true"));
    let asks = |name: &&&str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    ENDPOINTS.iter().find(asks).copied().filter(|_| !is_off)
}
