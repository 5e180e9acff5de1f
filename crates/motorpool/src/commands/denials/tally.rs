//! [`Tally`]: the refusals of a log, counted by class and engine.
use super::line::{Amounts, Class, Denied, Outcome};
use crate::out;
use jiff::Timestamp;
use serde::Serialize;
use std::{
    cmp,
    collections::BTreeMap,
    io::{self, BufRead, Read as _},
};

/// What of one line is looked at. No line of ours comes near it; a log that is one endless line must not fill memory.
const LONGEST_LINE: u64 = 1 << 20;

/// The refusals of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    n_lines: u64,
    rows: BTreeMap<(Outcome, Class, String), Row>,
}

/// The refusals of one engine in one class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Row {
    count: u64,
    first: Option<Timestamp>,
    last: Option<Timestamp>,
    largest: Option<Amounts>,
    /// How many met which bound.
    bounds: BTreeMap<&'static str, u64>,
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    lines: u64,
    denied: u64,
    deferred: u64,
    /// Every class there is, those without a refusal too.
    classes: BTreeMap<&'static str, ClassReport>,
    engines: Vec<EngineReport>,
}

#[derive(Default, Serialize)]
struct ClassReport {
    denied: u64,
    deferred: u64,
    /// Of the denied ones.
    bounds: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct EngineReport {
    outcome: &'static str,
    class: &'static str,
    key: String,
    count: u64,
    first: Option<String>,
    last: Option<String>,
    largest: Option<Largest>,
    bounds: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Largest {
    would_commit: u64,
    against: u64,
    bound: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
}

impl Tally {
    /// Counts what `log` tells of, line by line, to its end.
    pub(super) fn of(mut log: impl BufRead) -> io::Result<Self> {
        let (mut tally, mut line) = (Self::default(), Vec::new());
        loop {
            line.clear();
            if log.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(tally);
            }
            if !line.ends_with(b"\n") {
                log.skip_until(b'\n')?;
            }
            tally.n_lines += 1;
            if let Some(denied) = Denied::read(&line) {
                tally.count(denied);
            }
        }
    }

    fn count(&mut self, denied: Denied) {
        let Denied { class, outcome, key, at, amounts } = denied;
        let row = self.rows.entry((outcome, class, key)).or_default();
        row.count += 1;
        // Lines of several writers come in any order.
        row.first = [row.first, at].into_iter().flatten().min();
        row.last = cmp::max(row.last, at);
        if let Some(amounts) = amounts {
            *row.bounds.entry(amounts.bound.as_str()).or_default() += 1;
            if row.largest.as_ref().is_none_or(|largest| largest.would_commit < amounts.would_commit) {
                row.largest = Some(amounts);
            }
        }
    }

    fn n_of(&self, outcome: Outcome) -> u64 {
        self.rows.iter().filter(|((of, ..), _)| *of == outcome).map(|(_, row)| row.count).sum()
    }

    pub(super) fn report(&self) -> Report {
        let mut classes: BTreeMap<_, ClassReport> =
            Class::ALL.into_iter().map(|class| (class.as_str(), ClassReport::default())).collect();
        for ((outcome, class, _), row) in &self.rows {
            let all = classes.entry(class.as_str()).or_default();
            match outcome {
                Outcome::Deferred => all.deferred += row.count,
                Outcome::Denied => {
                    all.denied += row.count;
                    row.bounds.iter().for_each(|(bound, n)| *all.bounds.entry(*bound).or_default() += n);
                }
            }
        }
        Report {
            lines: self.n_lines,
            denied: self.n_of(Outcome::Denied),
            deferred: self.n_of(Outcome::Deferred),
            classes,
            engines: self.rows.iter().map(|((outcome, class, key), row)| row.report((*outcome, *class), key)).collect(),
        }
    }

    /// A table, and one line that sums it up.
    pub(super) fn for_people(&self) -> String {
        let (n_denied, n_deferred) = (self.n_of(Outcome::Denied), self.n_of(Outcome::Deferred));
        let summary = format!("{n_denied} denied, {n_deferred} deferred; {} lines read\n", self.n_lines);
        if self.rows.is_empty() {
            return summary;
        }
        let rows = self.rows.iter().map(|((outcome, class, key), row)| {
            let time = |at: Option<Timestamp>| at.map_or_else(|| "-".to_owned(), |at| at.to_string());
            let key = if key.is_empty() { "-" } else { key };
            let largest = row.largest.as_ref().map_or_else(|| "-".to_owned(), words);
            let first = [key, class.as_str(), outcome.as_str()].map(str::to_owned);
            first.into_iter().chain([row.count.to_string(), time(row.first), time(row.last), largest]).collect()
        });
        out::table(&["ENGINE", "CLASS", "OUTCOME", "COUNT", "FIRST", "LAST", "LARGEST"], rows.collect()) + &summary
    }
}

impl Row {
    fn report(&self, (outcome, class): (Outcome, Class), key: &str) -> EngineReport {
        EngineReport {
            outcome: outcome.as_str(),
            class: class.as_str(),
            key: key.to_owned(),
            count: self.count,
            first: self.first.map(|at| at.to_string()),
            last: self.last.map(|at| at.to_string()),
            largest: self.largest.as_ref().map(Largest::of),
            bounds: self.bounds.clone(),
        }
    }
}

impl Largest {
    fn of(amounts: &Amounts) -> Self {
        Self {
            would_commit: amounts.would_commit.get(),
            against: amounts.against.get(),
            bound: amounts.bound.as_str(),
            device: amounts.bound.device().map(str::to_owned),
        }
    }
}

/// `2.0 GiB against 1.0 GiB (device GPU-1)`
fn words(amounts: &Amounts) -> String {
    let Amounts { would_commit, against, bound } = amounts;
    let bound = bound.device().map_or_else(|| bound.as_str().to_owned(), |id| format!("device {id}"));
    format!("{would_commit} against {against} ({bound})")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn report(log: &[u8]) -> Value {
        let tally = Tally::of(log).expect("memory can be read");
        serde_json::to_value(tally.report()).expect("it has a wire form")
    }

    fn line(second: u32, key: &str, reason: &str) -> String {
        format!(
            "2026-01-02T03:04:{second:02}Z ERROR [provider-pool] capacity broker denied {key}: budget exhausted: {reason}\n"
        )
    }

    #[test]
    fn refusals_are_counted_by_engine_with_the_first_the_last_and_the_largest() {
        let log = [
            line(9, "llama-server:a:0", "would commit 30 against 20"),
            line(1, "llama-server:a:0", "would commit 50 against 25 (device GPU-1)"),
            line(5, "llama-server:a:0", "would commit 40 against 10 (system memory)"),
            line(2, "llama-server:b:0", "would commit 1 against 0").replace("denied", "deferred"),
            "2026-01-02T03:04:08Z ERROR engine busy llama-server:b:0: two requests run\n".into(),
            "2026-01-02T03:04:08Z  INFO all is well".into(),
        ];
        let whole = report(log.concat().as_bytes());
        assert_eq!([&whole["lines"], &whole["denied"], &whole["deferred"]], [6, 4, 1]);
        let capacity = json!({"denied": 3, "deferred": 1, "bounds": {"budget": 1, "device": 1, "system-memory": 1}});
        assert_eq!(whole["classes"]["capacity"], capacity);
        assert_eq!(whole["classes"]["engine-busy"]["denied"], 1);
        assert_eq!(
            whole["engines"][0],
            json!({
                "outcome": "denied", "class": "capacity", "key": "llama-server:a:0", "count": 3,
                "first": "2026-01-02T03:04:01Z", "last": "2026-01-02T03:04:09Z",
                "largest": {"wouldCommit": 50, "against": 25, "bound": "device", "device": "GPU-1"},
                "bounds": {"budget": 1, "device": 1, "system-memory": 1},
            })
        );
        let others: Vec<_> = whole["engines"].as_array().expect("a list")[1..]
            .iter()
            .map(|row| (row["class"].as_str().expect("a class"), row["outcome"].as_str().expect("an outcome")))
            .collect();
        assert_eq!(others, [("engine-busy", "denied"), ("capacity", "deferred")]);
    }

    #[test]
    fn a_log_without_refusals_names_every_class_with_zero() {
        for log in [&b""[..], b"\n\n", b"2026-01-02T03:04:05Z INFO listening\r\n", b"\xff\xfe\x00"] {
            let whole = report(log);
            assert_eq!([&whole["denied"], &whole["deferred"]], [0, 0]);
            assert_eq!(whole["classes"].as_object().map(serde_json::Map::len), Some(Class::ALL.len()));
            assert_eq!(whole["engines"], json!([]));
        }
    }

    #[test]
    fn people_get_a_row_for_each_engine_and_sizes_they_can_read() {
        let reason = "would commit 2147483648 against 1073741824 (measured free graphics memory)";
        let log = [line(1, "llama-server:a:0", reason), line(2, "llama-server:a:0", "of numbers nothing")].concat();
        let text = Tally::of(log.as_bytes()).expect("memory can be read").for_people();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("ENGINE") && lines[1].starts_with("llama-server:a:0"), "{text}");
        assert!(lines[1].ends_with("2026-01-02T03:04:02Z  2.0 GiB against 1.0 GiB (measured)"), "{text}");
        assert_eq!(lines[2], "2 denied, 0 deferred; 2 lines read");
    }

    #[test]
    fn an_endless_line_is_passed_over_in_bounded_memory_and_the_next_one_counts() {
        let endless = io::repeat(b'x').take(5 * LONGEST_LINE + 7);
        let next = format!("\n{}", line(1, "llama-server:a:0", "would commit 2 against 1"));
        let tally = Tally::of(io::BufReader::new(endless.chain(next.as_bytes()))).expect("memory can be read");
        assert_eq!((tally.n_lines, tally.n_of(Outcome::Denied)), (2, 1));
    }
}
