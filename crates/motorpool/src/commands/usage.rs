//! `motorpool usage`: what requests took, as the daemon keeps it.
use crate::{
    client::{Client, ClientError, escaped},
    exit::Failure,
    out::{self, Out},
};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Args)]
pub(crate) struct Usage {
    /// Requests of so long ago and later: `90m`, `24h`, `7d`
    #[arg(long, value_name = "TIME", default_value = "24h")]
    since: String,
    /// How they are put together; hours and days are those of UTC
    #[arg(long, value_enum, default_value = "model")]
    by: By,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum By {
    /// Each model's of each hour
    Hour,
    /// Each model's of each day
    Day,
    /// Each model's
    Model,
    /// Each key's, by model
    Key,
}

#[derive(Deserialize)]
struct Whole {
    kept: bool,
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    from: String,
    model: Option<String>,
    #[serde(default)]
    key: Option<String>,
    requests: u64,
    errors: u64,
    aborted: u64,
    prompt: Option<u64>,
    cached: Option<u64>,
    generated: Option<u64>,
    seconds: f64,
}

pub(super) async fn perform(client: &Client, out: Out, Usage { since, by }: Usage) -> Result<(), Failure> {
    let name = match by {
        By::Hour => "hour",
        By::Day => "day",
        By::Model => "model",
        By::Key => "key",
    };
    let path = format!("/api/motorpool/v1/usage?by={name}&since={}", escaped(&since));
    let whole: Value = client.get(&path).await?;
    let usage = Whole::deserialize(&whole).map_err(ClientError::from)?;
    out.data(&whole, || for_people(&usage, by))
}

fn for_people(usage: &Whole, by: By) -> String {
    if !usage.kept {
        return "what requests take is not kept: `disk` in [usage] is 0\n".to_owned();
    }
    if usage.rows.is_empty() {
        return "there were no requests\n".to_owned();
    }
    let counts = ["REQUESTS", "ERRORS", "ABORTED", "PROMPT", "CACHED", "GENERATED", "TIME"];
    let named: &[&str] = match by {
        By::Hour | By::Day => &["FROM", "MODEL"],
        By::Model => &["MODEL"],
        By::Key => &["KEY", "MODEL"],
    };
    let head: Vec<&str> = named.iter().copied().chain(counts).collect();
    out::table(&head, usage.rows.iter().map(|row| cells(row, by)).collect())
}

fn cells(row: &Row, by: By) -> Vec<String> {
    let model = row.model.clone().unwrap_or_else(|| "(none)".to_owned());
    // What no engine counted is unknown, and not nothing.
    let count = |n: Option<u64>| n.map_or_else(|| "?".to_owned(), |n| n.to_string());
    let named = match by {
        By::Hour => vec![row.from.get(..16).unwrap_or(&row.from).replace('T', " "), model],
        By::Day => vec![row.from.get(..10).unwrap_or(&row.from).to_owned(), model],
        By::Model => vec![model],
        By::Key => vec![row.key.clone().unwrap_or_else(|| "(none)".to_owned()), model],
    };
    let counts = [
        row.requests.to_string(),
        row.errors.to_string(),
        row.aborted.to_string(),
        count(row.prompt),
        count(row.cached),
        count(row.generated),
        format!("{:.1} s", row.seconds),
    ];
    named.into_iter().chain(counts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_table_names_what_was_asked_for_and_marks_what_is_unknown() {
        let row = json!({
            "from": "2026-01-02T03:00:00Z", "model": "m", "key": null, "requests": 5, "errors": 1, "aborted": 2,
            "prompt": 90, "cached": 4, "generated": null, "seconds": 1.25, "firstResultSeconds": 0.5,
        });
        let usage = Whole::deserialize(json!({"by": "x", "since": "x", "kept": true, "rows": [row]})).expect("rows");
        for (by, head, begins) in [
            (By::Hour, "FROM", "2026-01-02 03:00  m"),
            (By::Day, "FROM", "2026-01-02  m"),
            (By::Model, "MODEL", "m"),
            (By::Key, "KEY", "(none)  m"),
        ] {
            let text = for_people(&usage, by);
            let lines: Vec<_> = text.lines().collect();
            assert!(lines[0].starts_with(head) && lines[1].starts_with(begins), "{text}");
            assert!(lines[1].contains('?') && lines[1].ends_with("1.2 s"), "{text}");
        }
        let empty = |kept| for_people(&Whole { kept, rows: vec![] }, By::Hour);
        assert!(empty(false).contains("[usage]") && empty(true).contains("no requests"));
    }
}
