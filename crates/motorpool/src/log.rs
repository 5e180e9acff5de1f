//! Our own log on stderr, and the one line of it that nothing may filter: a denial for want of capacity, or of a context.
//!
//! Evaluation harnesses look for that line to tell "the machine was full" from "the model was wrong". It has its own
//! way to stderr, past level and filter, and is flushed before the first refusal is sent. In a JSON log it is a JSON
//! line like all others, with the sentence as its message.
use motorpool_catalog::{LogFormat, LogLevel};
use motorpool_gateway::TRACE_TARGET;
use motorpool_pool::Denial;
use motorpool_vocab::Bytes;
use serde_json::json;
use std::io::Write;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    filter::Filtered,
    fmt,
    layer::{Layered, SubscriberExt},
    reload,
    util::SubscriberInitExt,
};

/// How much of what was asked for is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loudness {
    /// All of it.
    AsAsked,
    /// Where an answer is shown: more than warnings would run through it, unless more was asked for.
    BesideAnAnswer,
}

/// The log that was begun: its level can be another one while it is written.
#[derive(Clone, Debug)]
pub(crate) struct Log {
    filter: reload::Handle<EnvFilter, Registry>,
    loudness: Loudness,
}

impl Log {
    /// Writes events of `level` and above to stderr from now on; `beside` sees what it wants whatever is written.
    pub(crate) fn begin<L>((level, format): (LogLevel, LogFormat), loudness: Loudness, beside: Option<L>) -> Self
    where
        L: Layer<Beside> + Send + Sync,
    {
        let (filter, handle) = reload::Layer::new(filter_of(loudness.of(level)));
        let layer = fmt::layer().with_writer(std::io::stderr);
        let layer = match format {
            LogFormat::Text => layer.with_ansi(crate::out::colours(&std::io::stderr())).boxed(),
            LogFormat::Json => layer.json().flatten_event(true).boxed(),
        };
        let begun = tracing_subscriber::registry().with(layer.with_filter(filter)).with(beside).try_init();
        begun.expect("only begun once");
        Self { filter: handle, loudness }
    }

    /// From now on `level` is the one that is asked for.
    pub(crate) fn say_from(&self, level: LogLevel) {
        self.filter.reload(filter_of(self.loudness.of(level))).expect("written to the end of the program");
    }
}

/// Below what a layer lies that sees what is not written.
pub(crate) type Beside = Layered<Filtered<Box<dyn Layer<Registry> + Send + Sync>, Filter, Registry>, Registry>;
type Filter = reload::Layer<EnvFilter, Registry>;

impl Loudness {
    const fn of(self, asked: LogLevel) -> LogLevel {
        match (self, asked) {
            (Self::BesideAnAnswer, LogLevel::Info) => LogLevel::Warn,
            _ => asked,
        }
    }
}

/// Other crates speak only when something is wrong with them. Spans of requests are for traces: the lines of a request have
/// its id without them.
fn filter_of(level: LogLevel) -> EnvFilter {
    EnvFilter::new(format!("warn,motorpool={},{TRACE_TARGET}=off", level.as_str()))
}

/// Writes the line of a denial.
pub(crate) fn deny(format: LogFormat, denial: &Denial) {
    let line = denial_line(format, denial, jiff::Timestamp::now());
    let mut stderr = std::io::stderr().lock();
    // There is nowhere to tell that stderr is gone.
    let _ = stderr.write_all(line.as_bytes()).and_then(|()| stderr.flush());
}

fn denial_line(format: LogFormat, denial: &Denial, at: jiff::Timestamp) -> String {
    let sentence = format!("[provider-pool] {} denied {}: {denial}", denial.refuser(), denial.key);
    match format {
        LogFormat::Text => format!("{at} ERROR {sentence}\n"),
        LogFormat::Json => {
            let holders: Vec<_> = denial
                .holders
                .iter()
                .map(|(key, bytes)| json!({ "key": key.to_string(), "bytes": bytes.get() }))
                .collect();
            let devices: serde_json::Map<_, _> =
                denial.requested.device.iter().map(|(id, bytes)| (id.to_string(), bytes.get().into())).collect();
            let files = Bytes::sum(denial.requested.ram_files.iter().map(|(_, bytes)| *bytes));
            let event = json!({
                "timestamp": at.to_string(),
                "level": "ERROR",
                "target": "motorpool",
                "message": sentence,
                "event": if denial.context.is_some() { "context-denied" } else { "capacity-denied" },
                "key": denial.key.to_string(),
                "requested": {
                    "total": denial.requested.total().get(),
                    "devices": devices,
                    "systemPrivate": denial.requested.ram_private.get(),
                    "systemFiles": files.get(),
                },
                "committed": denial.committed.get(),
                "wouldCommit": denial.would_commit().get(),
                "bound": denial.bound().get(),
                "which": denial.which(),
                "context": denial.context.map(|context| json!({ "asked": context.asked, "fits": context.fits })),
                "holders": holders,
                "help": denial.remedy(),
            });
            format!("{event}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_pool::{Excess, Host, Proof, Which};
    use motorpool_vocab::{Claim, DeviceId};

    fn denial() -> Denial {
        let key: motorpool_vocab::EngineKey = "llama-server:a:0".parse().expect("a key");
        let (would_commit, bound) = (Bytes::new(4_294_967_296), Bytes::new(2_147_483_648));
        let excess = Excess { would_commit, bound, which: Which::Total };
        let device = [(DeviceId("GPU-1".into()), Bytes::gib(2))].into();
        let claim = Claim { device, ..Claim::private(Bytes::gib(1)) };
        let holders = vec![(key.clone(), Bytes::gib(1))];
        Denial::new(key, Proof { claim, excess }, &Host::default().bounds()).with_holders(holders).beside(Bytes::gib(1))
    }

    #[test]
    fn beside_an_answer_the_log_shows_no_more_than_warnings_unless_more_was_asked_for() {
        let levels = [LogLevel::Info, LogLevel::Warn, LogLevel::Error, LogLevel::Debug];
        let expected = [LogLevel::Warn, LogLevel::Warn, LogLevel::Error, LogLevel::Debug];
        assert_eq!(levels.map(|level| Loudness::BesideAnAnswer.of(level)), expected);
        assert_eq!(levels.map(|level| Loudness::AsAsked.of(level)), levels);
    }

    #[test]
    fn the_line_of_a_denial_is_the_contracts() {
        let at: jiff::Timestamp = "2026-01-02T03:04:05Z".parse().expect("a time");
        assert_eq!(
            denial_line(LogFormat::Text, &denial(), at),
            "2026-01-02T03:04:05Z ERROR [provider-pool] capacity broker denied llama-server:a:0: \
             budget exhausted: would commit 4294967296 against 2147483648\n"
        );
    }

    #[test]
    fn in_a_json_log_it_is_one_json_line_with_the_sentence_as_message() {
        let line = denial_line(LogFormat::Json, &denial(), jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(line.matches('\n').count(), 1);
        let event: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        let message = event["message"].as_str().expect("a message");
        let sentence =
            "capacity broker denied llama-server:a:0: budget exhausted: would commit 4294967296 against 2147483648";
        assert_eq!(message, format!("[provider-pool] {sentence}"));
        assert_eq!(event["event"], "capacity-denied");
        let requested = json!({
            "total": 3u64 << 30, "devices": { "GPU-1": 2u64 << 30 }, "systemPrivate": 1 << 30, "systemFiles": 0
        });
        assert_eq!((&event["requested"], &event["which"]), (&requested, &json!("budget")));
        assert_eq!((&event["committed"], &event["bound"]), (&json!(1 << 30), &json!(2_147_483_648_u64)));
        assert!(event["help"].as_str().is_some_and(|help| help.contains("budget")), "{event}");
    }
}
