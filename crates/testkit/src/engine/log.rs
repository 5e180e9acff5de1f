//! Lines as llama-server prints them: its log on stderr, the child protocol on stdout.
use serde_json::{Value, json};
use std::{io::Write as _, sync::OnceLock, time::Instant};

/// One line of the log: `M.SS.mmm.uuu L srv  text`.
pub(crate) fn line(level: char, text: &str) {
    static BEGAN: OnceLock<Instant> = OnceLock::new();
    let micros = BEGAN.get_or_init(Instant::now).elapsed().as_micros();
    let (seconds, rest) = (micros / 1_000_000, micros % 1_000_000);
    let clock = format!("{}.{:02}.{:03}.{:03}", seconds / 60, seconds % 60, rest / 1000, rest % 1000);
    plain(&format!("{clock} {level} srv  {text}"));
}

/// Text as it is, and a line end. A reader that has gone is no reason to stop.
pub(crate) fn plain(text: &str) {
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

/// Text as it is.
pub(crate) fn on_stdout(text: &str) {
    let mut out = std::io::stdout().lock();
    drop(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// The hidden protocol towards a router, spoken when the environment names one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Spoken,
    Silent,
}

impl Protocol {
    pub(crate) fn of_the_environment() -> Self {
        if std::env::var_os("LLAMA_SERVER_ROUTER_PORT").is_some() { Self::Spoken } else { Self::Silent }
    }

    /// Reports a state.
    pub(crate) fn report(self, state: &str, payload: &Value) {
        if self == Self::Spoken {
            let body = json!({"state": state, "payload": payload});
            on_stdout(&format!("cmd_child_to_router:state:{body}\n"));
        }
    }
}
