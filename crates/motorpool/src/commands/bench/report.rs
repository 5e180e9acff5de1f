//! What was measured: for programs as it is, for people as tables, and beside the limits that are promised.
use super::{machine::Machine, rounds::PACED_STREAMS};
use crate::out;
use serde::Serialize;
use std::fmt::Write as _;

/// Everything that was measured.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) version: &'static str,
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    pub(crate) requests: Vec<Row>,
    pub(crate) streams: Vec<StreamRow>,
    pub(crate) open_streams: Option<OpenStreams>,
    pub(crate) swap: Option<Swap>,
    /// Of the pool's process before the first request, or of a running pool as it was found.
    pub(crate) resident_kib: u64,
    /// From its start to the line that names its address, in milliseconds.
    pub(crate) listening_ms: Option<f64>,
    pub(crate) limits: Vec<Limit>,
}

/// Small requests over one way at one number of connections.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) engine: String,
    pub(crate) way: String,
    pub(crate) connections: u32,
    /// In all rounds.
    pub(crate) requests: u64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) added_p50_us: Option<f64>,
    pub(crate) added_p99_us: Option<f64>,
    pub(crate) per_second: f64,
    /// Of who stands between, for each request: the pool's process, or the relay's thread.
    pub(crate) cpu_us: Option<f64>,
}

/// Streams over one way.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct StreamRow {
    pub(crate) engine: String,
    pub(crate) way: String,
    pub(crate) streams: u32,
    /// From one frame to the next; 0: as fast as they come.
    pub(crate) pace_us: u64,
    /// In all rounds.
    pub(crate) frames: u64,
    /// From the engine's write of a frame to its client.
    pub(crate) p50_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) added_p50_us: Option<f64>,
    pub(crate) added_p99_us: Option<f64>,
    /// Of who stands between, for each frame.
    pub(crate) cpu_us: Option<f64>,
}

/// Streams that were open at once.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OpenStreams {
    pub(crate) wanted: u32,
    /// As many as descriptors allowed.
    pub(crate) opened: u32,
    pub(crate) resident_kib: u64,
}

impl OpenStreams {
    /// What as many as were wanted take: in proportion, where descriptors allowed a few less.
    fn mib_of_all(&self) -> f64 {
        mib(self.resident_kib) * f64::from(self.wanted) / f64::from(self.opened.max(1))
    }
}

/// A request whose engine must first take another one's place.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the wire names units")]
pub(crate) struct Swap {
    /// From the request to the first token.
    pub(crate) first_token_ms: f64,
    /// From the engine's start by hand to its first token.
    pub(crate) engine_alone_ms: f64,
    pub(crate) added_ms: f64,
}

/// A figure that is promised.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) figure: f64,
    pub(crate) at_most: f64,
    pub(crate) is_met: bool,
}

impl Report {
    /// With the promised figures worked out. They are promised of the engine that costs nothing, the first one.
    pub(crate) fn with_limits(mut self) -> Self {
        let mut limits = Vec::new();
        let mut promise = |what, figure: Option<f64>, at_most| {
            limits.extend(figure.map(|figure| Limit { what, figure, at_most, is_met: figure <= at_most }));
        };
        let engine = self.requests.first().map(|row| row.engine.clone()).unwrap_or_default();
        let row =
            |way: &str| self.requests.iter().find(|row| row.engine == engine && row.way == way && row.connections == 1);
        let added = |way: &str| row(way).and_then(|row| row.added_p50_us);
        let ratio = added("motorpool").zip(added("relay")).map(|(ours, relay)| ours / relay.max(0.1));
        promise("p50 added at one connection, by what a blind relay adds", ratio, 1.7);
        promise("our CPU time for a small request, µs", row("motorpool").and_then(|row| row.cpu_us), 50.0);
        let paced = self.streams.iter().find(|row| row.way == "motorpool" && row.streams == PACED_STREAMS);
        promise("our CPU time for a paced frame, µs", paced.and_then(|row| row.cpu_us), 15.0);
        let p99 = paced.and_then(|row| row.added_p99_us);
        promise("p99 added to paced frames, ms, when a core is free", p99.map(|us| us / 1000.0), 1.0);
        let open = self.open_streams.filter(|open| open.opened >= open.wanted / 10 * 9);
        promise("memory with all streams open, MiB", open.map(|open| open.mib_of_all()), 300.0);
        if self.listening_ms.is_some() {
            promise("memory at rest, MiB", Some(mib(self.resident_kib)), 20.0);
        }
        promise("start to listening, ms", self.listening_ms, 50.0);
        self.limits = limits;
        self
    }

    /// As tables.
    pub(crate) fn for_people(&self) -> String {
        let mut text = format!("{}\n{} rounds, medians; times in µs\n\n", self.machine.line(), self.rounds);
        text += &self.requests_table();
        if !self.streams.is_empty() {
            text += "\n";
            text += &self.streams_table();
        }
        text += "\n";
        let mut line =
            |name: &str, figure: String| writeln!(text, "{name:<44} {figure}").expect("a text takes everything");
        if let Some(open) = &self.open_streams {
            let short = if open.opened < open.wanted { " (descriptors allowed no more)" } else { "" };
            line("streams open at once", format!("{} of {}{short}", open.opened, open.wanted));
            line("memory with them", format!("{:.1} MiB", mib(open.resident_kib)));
        }
        if let Some(swap) = &self.swap {
            let Swap { first_token_ms, engine_alone_ms, added_ms } = swap;
            line("swap, to the first token", format!("{first_token_ms:.1} ms"));
            line("the engine alone, to the first token", format!("{engine_alone_ms:.1} ms"));
            line("added to it", format!("{added_ms:.1} ms"));
        }
        line("memory before", format!("{:.1} MiB", mib(self.resident_kib)));
        if let Some(ms) = self.listening_ms {
            line("start to listening", format!("{ms:.1} ms"));
        }
        if !self.limits.is_empty() {
            text += "\n";
            text += &self.limits_table();
        }
        text
    }

    fn requests_table(&self) -> String {
        let head = ["ENGINE", "WAY", "CONNECTIONS", "P50", "P99", "+P50", "+P99", "A SECOND", "CPU"];
        let cells = |row: &Row| {
            vec![
                row.engine.clone(),
                row.way.clone(),
                row.connections.to_string(),
                number(row.p50_us),
                number(row.p99_us),
                maybe(row.added_p50_us),
                maybe(row.added_p99_us),
                number(row.per_second),
                maybe(row.cpu_us),
            ]
        };
        out::table(&head, self.requests.iter().map(cells).collect())
    }

    fn streams_table(&self) -> String {
        let head = ["ENGINE", "WAY", "STREAMS", "PACE", "FRAMES", "P50", "P99", "+P50", "+P99", "CPU"];
        let cells = |row: &StreamRow| {
            vec![
                row.engine.clone(),
                row.way.clone(),
                row.streams.to_string(),
                row.pace_us.to_string(),
                row.frames.to_string(),
                maybe(row.p50_us),
                maybe(row.p99_us),
                maybe(row.added_p50_us),
                maybe(row.added_p99_us),
                maybe(row.cpu_us),
            ]
        };
        out::table(&head, self.streams.iter().map(cells).collect())
    }

    fn limits_table(&self) -> String {
        let cells = |limit: &Limit| {
            let verdict = if limit.is_met { "met" } else { "NOT met" };
            vec![limit.what.to_owned(), format!("{:.2}", limit.figure), format!("{}", limit.at_most), verdict.into()]
        };
        out::table(&["PROMISED", "HERE", "AT MOST", ""], self.limits.iter().map(cells).collect())
    }
}

fn number(value: f64) -> String {
    format!("{value:.0}")
}

fn maybe(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn mib(kib: u64) -> f64 {
    f64::from(u32::try_from(kib).unwrap_or(u32::MAX)) / 1024.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(way: &str, added: Option<f64>, cpu: Option<f64>) -> Row {
        Row {
            engine: "trivial".into(),
            way: way.into(),
            connections: 1,
            requests: 5,
            p50_us: 60.0,
            p99_us: 90.0,
            added_p50_us: added,
            added_p99_us: added,
            per_second: 9000.0,
            cpu_us: cpu,
        }
    }

    fn report(requests: Vec<Row>) -> Report {
        Report {
            version: "1",
            machine: Machine::here(),
            rounds: 5,
            requests,
            streams: vec![],
            open_streams: Some(OpenStreams { wanted: 10, opened: 9, resident_kib: 400 << 10 }),
            swap: None,
            resident_kib: 12 << 10,
            listening_ms: Some(60.0),
            limits: vec![],
        }
    }

    #[test]
    fn promises_are_held_against_the_figures_and_nothing_is_said_of_what_was_not_measured() {
        let rows =
            vec![row("direct", None, None), row("relay", Some(50.0), None), row("motorpool", Some(80.0), Some(51.0))];
        let told = report(rows).with_limits();
        let verdicts: Vec<_> = told.limits.iter().map(|limit| (limit.at_most, limit.is_met)).collect();
        assert_eq!(verdicts, [(1.7, true), (50.0, false), (300.0, false), (20.0, true), (50.0, false)]);
        assert!((told.limits[2].figure - 4000.0 / 9.0).abs() < 1e-9, "what ten would take, by what nine do");
        let few = OpenStreams { wanted: 10, opened: 8, resident_kib: 1 };
        let few = Report { open_streams: Some(few), ..report(vec![]) }.with_limits();
        assert!(few.limits.iter().all(|limit| limit.what != told.limits[2].what), "{few:?}");
        let text = told.for_people();
        assert!(text.contains("9 of 10 (descriptors allowed no more)") && text.contains("NOT met"), "{text}");
        let json = serde_json::to_value(&told).expect("JSON");
        assert_eq!(json["limits"][0]["figure"], 1.6);
        assert_eq!(json["requests"][2]["addedP50Us"], 80.0);
    }
}
