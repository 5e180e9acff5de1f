//! What earlier requests took, by hour, day, model or key.
use super::{Refused, Shared};
use crate::{
    errors::Failure,
    history::{By, Question, UsageRow},
    ollama::rfc3339,
};
use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use motorpool_catalog::duration_from_text;
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Of whoever does not say.
const SINCE: Duration = Duration::from_hours(24);
const DAY: Duration = Duration::from_hours(24);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wish {
    since: Option<String>,
    by: Option<String>,
}

#[derive(Serialize)]
pub(super) struct Usage {
    by: &'static str,
    since: String,
    /// Whether records are kept at all.
    kept: bool,
    rows: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    from: String,
    model: Option<String>,
    /// The name of a key, in rows by key.
    key: Option<String>,
    requests: u64,
    errors: u64,
    aborted: u64,
    prompt: Option<u64>,
    cached: Option<u64>,
    generated: Option<u64>,
    /// The sum of their times.
    seconds: f64,
    /// The mean time to the first result.
    first_result_seconds: Option<f64>,
}

pub(super) async fn usage(
    State(context): Shared,
    wish: Result<Query<Wish>, QueryRejection>,
) -> Result<Json<Usage>, Refused> {
    let Query(wish) = wish.map_err(|error| invalid(error.body_text(), None))?;
    let by = match wish.by.as_deref() {
        None => By::Hour,
        Some(name) => By::ALL
            .into_iter()
            .find(|by| by.as_str() == name)
            .ok_or_else(|| invalid(format!("`{name}` is none of `hour`, `day`, `model` and `key`"), Some("by")))?,
    };
    let ago = wish.since.as_deref().map_or(Ok(SINCE), span).map_err(|why| invalid(why, Some("since")))?;
    let since = SystemTime::now().checked_sub(ago).unwrap_or(UNIX_EPOCH).max(UNIX_EPOCH);
    let rows = match context.history.get() {
        None => Vec::new(),
        Some(history) => history.ask(Question { since, by }).await.map_err(Failure::HistoryFailed)?,
    };
    let kept = context.history.get().is_some();
    let rows = rows.into_iter().map(Row::from).collect();
    Ok(Json(Usage { by: by.as_str(), since: stamp(since), kept, rows }))
}

fn invalid(message: String, param: Option<&'static str>) -> Failure {
    Failure::InvalidRequest { message, param }
}

/// `24h`, or days: `7d`.
fn span(text: &str) -> Result<Duration, String> {
    let days = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok());
    match days {
        Some(days @ 0..=3660) => Ok(DAY * days),
        Some(days) => Err(format!("{days} days are more than ten years")),
        None => duration_from_text(text).map_err(|why| format!("{why}, or days, such as `7d`")),
    }
}

impl From<UsageRow> for Row {
    fn from(row: UsageRow) -> Self {
        Self {
            from: stamp(row.from),
            model: row.model,
            key: row.key,
            requests: row.requests,
            errors: row.errors,
            aborted: row.aborted,
            prompt: row.prompt,
            cached: row.cached,
            generated: row.generated,
            seconds: row.took.as_secs_f64(),
            first_result_seconds: row.first_result_within.map(|within| within.as_secs_f64()),
        }
    }
}

/// An instant to the second.
pub(super) fn stamp(at: SystemTime) -> String {
    let whole = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    rfc3339(Duration::from_secs(whole)).replace(".000000000", "")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_span_is_hours_or_days() {
        assert_eq!((span("90m"), span("7d")), (Ok(Duration::from_mins(90)), Ok(DAY * 7)));
        for wrong in ["", "d", "-1d", "1.5d", "99999d", "soon"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_nobody_counted_is_null() {
        let row = UsageRow {
            from: UNIX_EPOCH + Duration::from_hours(1),
            model: Some("m".into()),
            key: None,
            requests: 3,
            errors: 1,
            aborted: 1,
            prompt: Some(9),
            cached: None,
            generated: None,
            took: Duration::from_millis(1500),
            first_result_within: None,
        };
        let shown = serde_json::to_value(Row::from(row)).expect("JSON");
        let want = json!({
            "from": "1970-01-01T01:00:00Z", "model": "m", "key": null, "requests": 3, "errors": 1, "aborted": 1,
            "prompt": 9, "cached": null, "generated": null, "seconds": 1.5, "firstResultSeconds": null,
        });
        assert_eq!(shown, want);
    }
}
