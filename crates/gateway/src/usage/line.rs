//! The line of the log that ends a request. It has the request's id, as the lines of the pool about it have.
use super::{Outcome, UsageRecord};

/// Tells how it ended: a failure to every operator, the rest to who wants to know.
pub(super) fn tell(record: &UsageRecord) {
    let UsageRecord { request, path, tokens, .. } = record;
    let (model, key) = (record.model.as_deref(), record.key.as_deref());
    let took_ms = super::whole_millis(record.took);
    let first_result_ms = record.first_result_within.map(super::whole_millis);
    match record.outcome {
        Outcome::Failed(code) => {
            tracing::info!(request, path, model, key, took_ms, first_result_ms, code, "a request failed");
        }
        Outcome::Aborted => {
            tracing::info!(request, path, model, key, took_ms, first_result_ms, "a request's client went");
        }
        Outcome::Finished => tracing::debug!(
            request,
            path,
            model,
            key,
            took_ms,
            first_result_ms,
            prompt = tokens.prompt,
            cached = tokens.cached,
            generated = tokens.generated,
            "a request was served"
        ),
    }
}
