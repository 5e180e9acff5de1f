//! [`Behaviour`]: what the sidecar `<model file>.fake.toml` may say. Everything is optional.
//!
//! ```toml
//! memory = 67108864                      # bytes allocated and touched while loading
//! slots = 2                              # serves so many at once, whatever -np says
//! bind = "works"                         # | "refused" (exit 1) | "never"
//!
//! [[graphics]]                           # what it claims of cards, as the fake NVML then shows
//! device = 0                             # the first of those it is told to use
//! bytes = 1073741824
//! when = "start"                         # of loading | "gradually" | "ready": just before it says so
//!
//! [load]
//! ms = 0                                 # spread over the steps
//! steps = 1                              # progress is reported after each
//! gates = ["/dir/half", "/dir/all"]      # step n is not done before the n-th file exists
//! log = ["a line on stderr"]             # printed when loading begins
//! progress = true                        # false: no progress is reported
//!
//! [exit]
//! at = "start"                           # | "bound" | "loading" | "ready" | { token = 5 }
//! how = { code = 1 }                     # | { signal = "SIGABRT" }
//! log = ["last words"]
//! first_starts = 2                       # only the first two starts end so
//!
//! [health]                               # each switch: true, false, or "/file": on while that file exists
//! lies = false                           # 200 although still loading
//! hangs = false
//! fails = false                          # 500
//! work_us = 0                            # processor time that each answer takes
//! logs = false                           # a line on stdout for each, as an access log has
//!
//! [inference]
//! fails = false                          # 500, health stays 200
//! hangs = false                          # never a token
//! error_after = 3                        # an error event after three tokens
//! aborts = "streams-only"                # | "at-once" | "never": which client's going frees the slot
//!
//! [state]                                # of a slot that is written to a file and read back
//! bytes = 1000
//! write_fails = false
//! write_hangs = false                    # half of the file is there
//! read_fails = false
//! read_dies = false                      # the engine, of a signal
//!
//! [tokens]
//! count = 8                              # natural length of a reply
//! prefill_ms = 0
//! pace_ms = 0
//! ping_ms = 30000                        # keep-alive comment after so much silence
//! gates = [{ before = 3, file = "/dir/x" }]  # not for requests for one token: they are probes
//!
//! [stop]
//! deaf_to = ["sigterm", "exit-command", "end-of-stdin"]
//! to_last_connection = false             # it exits only when no client is connected any more, idle or not
//! linger_ms = 0                          # from the end of serving to the exit
//! gate = "/dir/may-exit"
//!
//! [grandchild]                           # keeps the engine's pipes open and ignores SIGTERM
//! session = "same"                       # | "own": setsid
//! environment = "inherited"              # | "cleared"
//! memory = 0
//!
//! [flood]                                # written by a thread of its own as fast as somebody reads
//! bytes = 1000000                        # absent: without end
//! bytes_per_second = 1000                # absent: no pause
//! line_end = "lf"                        # | "cr" | "none"
//! ```
use serde::{Deserialize, Serialize};
use std::{io, path::Path, path::PathBuf};

/// How a fake engine behaves with one model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Behaviour {
    /// Bytes allocated and touched while loading.
    pub memory: u64,
    /// Requests served at once, whatever `-np` says.
    pub slots: Option<u32>,
    /// What it claims of graphics cards; nothing is an engine that computes on the processor, whatever it was told.
    pub graphics: Vec<GraphicsClaim>,
    /// Whether its address can be bound.
    pub bind: Bind,
    /// The way to ready.
    pub load: Load,
    /// How it ends by itself.
    pub exit: Option<Exit>,
    /// What `/health` answers.
    pub health: Health,
    /// What inference answers.
    pub inference: Inference,
    /// What slots hold, on disk.
    pub state: State,
    /// The tokens of a reply.
    pub tokens: Tokens,
    /// How it stops when asked.
    pub stop: Stop,
    /// A process it leaves behind.
    pub grandchild: Option<Grandchild>,
    /// Output without reason.
    pub flood: Option<Flood>,
}

/// Graphics memory of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GraphicsClaim {
    /// Which of the devices that it is told to use, from 0.
    pub device: usize,
    /// How much.
    pub bytes: u64,
    /// When it is taken.
    pub when: ClaimTime,
}

/// When graphics memory is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClaimTime {
    /// Whole, when loading begins.
    #[default]
    Start,
    /// A part with each step of loading.
    Gradually,
    /// Whole, just before it says that it is ready.
    Ready,
}

/// Whether the address can be bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bind {
    /// Bound before loading begins.
    #[default]
    Works,
    /// Says so and exits with 1.
    Refused,
    /// Runs on without ever listening.
    Never,
}

/// The way to ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Load {
    /// Duration in all, spread over the steps.
    pub ms: u64,
    /// How many steps, each followed by a report of progress; never fewer than gates.
    pub steps: u32,
    /// Step n is not done before the n-th file exists.
    pub gates: Vec<PathBuf>,
    /// Lines on stderr when loading begins.
    pub log: Vec<String>,
    /// Whether progress is reported at all.
    pub progress: bool,
}

impl Default for Load {
    fn default() -> Self {
        Self { ms: 0, steps: 1, gates: Vec::new(), log: Vec::new(), progress: true }
    }
}

/// When and how the engine ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Exit {
    /// When.
    pub at: Moment,
    /// How.
    pub how: End,
    /// Lines on stderr just before.
    #[serde(default)]
    pub log: Vec<String>,
    /// Only so many starts end so; later ones live.
    #[serde(default)]
    pub first_starts: Option<u32>,
}

/// A moment in an engine's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Moment {
    /// Before anything else.
    Start,
    /// It listens, loading has not begun.
    Bound,
    /// After half of the steps of loading.
    Loading,
    /// Just after it became ready.
    Ready,
    /// Once it has sent so many tokens, over all requests.
    Token(u64),
}

/// How a process ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// With this exit code.
    Code(i32),
    /// By this signal, sent to itself: `SIGABRT`, `SIGKILL`, …
    Signal(String),
}

/// What `/health` answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Health {
    /// 200 although still loading.
    pub lies: Switch,
    /// No answer at all.
    pub hangs: Switch,
    /// 500.
    pub fails: Switch,
    /// Processor time that each answer takes, in microseconds.
    pub work_us: u64,
    /// A line on stdout for each answer.
    pub logs: Switch,
}

/// What slots hold, written to files and read back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct State {
    /// Size of a file.
    pub bytes: u64,
    /// 400 for every write.
    pub write_fails: Switch,
    /// Half of the file, and no answer.
    pub write_hangs: Switch,
    /// 400 for every file.
    pub read_fails: Switch,
    /// The engine aborts.
    pub read_dies: Switch,
}

/// What inference answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Inference {
    /// 500 for every request.
    pub fails: Switch,
    /// A slot is taken and never a token made.
    pub hangs: Switch,
    /// An error event instead of the token after so many.
    pub error_after: Option<u32>,
    /// Which client's going frees the slot.
    pub aborts: Aborts,
}

/// Which client's going ends generation at once; the others' runs to its end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Aborts {
    /// As a busy llama-server: a non-streaming request goes on.
    #[default]
    StreamsOnly,
    /// Everybody's.
    AtOnce,
    /// Nobody's.
    Never,
}

/// The tokens of a reply.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Tokens {
    /// Natural length; the request's limit may cut it.
    pub count: u32,
    /// Before the first token.
    pub prefill_ms: u64,
    /// Before each later token.
    pub pace_ms: u64,
    /// A keep-alive comment after so much silence; absent: as the arguments or the request say, else 30 s.
    pub ping_ms: Option<u64>,
    /// Files to wait for.
    pub gates: Vec<TokenGate>,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { count: 8, prefill_ms: 0, pace_ms: 0, ping_ms: None, gates: Vec::new() }
    }
}

/// Token `before` is not made until `file` exists. Requests for one token, which probes are, do not wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenGate {
    /// Index of the token, from 0.
    pub before: u32,
    /// The file.
    pub file: PathBuf,
}

/// How it stops when asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Requests to stop that it does not hear.
    pub deaf_to: Vec<Deaf>,
    /// It serves until no client is connected any more, whether they ask something or not.
    pub to_last_connection: bool,
    /// From the end of serving to the exit.
    pub linger_ms: u64,
    /// It does not exit until this file exists.
    pub gate: Option<PathBuf>,
}

/// A request to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Deaf {
    /// The signal, from the first instruction on.
    Sigterm,
    /// The line on stdin.
    ExitCommand,
    /// The end of stdin.
    EndOfStdin,
}

/// A process it leaves behind, which holds its pipes and ignores SIGTERM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Grandchild {
    /// Whose session it runs in.
    pub session: Session,
    /// What it sees of the environment.
    pub environment: Environment,
    /// Bytes it allocates and touches.
    pub memory: u64,
}

/// Whose session a grandchild runs in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Session {
    /// The engine's.
    #[default]
    Same,
    /// One of its own: it is in no group of ours.
    Own,
}

/// What a grandchild sees of the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// All of it.
    #[default]
    Inherited,
    /// Nothing: no nonce finds it.
    Cleared,
}

/// Output without reason, on stderr, from the first instruction on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Flood {
    /// How much; absent: without end.
    pub bytes: Option<u64>,
    /// How fast; absent: as fast as somebody reads.
    pub bytes_per_second: Option<u64>,
    /// What ends a line of 64 bytes.
    pub line_end: LineEnd,
}

/// What ends a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineEnd {
    /// A line feed.
    #[default]
    Lf,
    /// A carriage return.
    Cr,
    /// Nothing: it is one line without end.
    None,
}

/// A fault that is on, off, or on while a file exists.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Switch {
    /// Always, or never.
    Fixed(bool),
    /// While this file exists.
    WhileFile(PathBuf),
}

impl Switch {
    /// Never.
    pub const OFF: Self = Self::Fixed(false);
    /// Always.
    pub const ON: Self = Self::Fixed(true);

    /// Whether the fault is on now.
    pub fn is_on(&self) -> bool {
        match self {
            Self::Fixed(on) => *on,
            Self::WhileFile(file) => file.exists(),
        }
    }
}

impl Default for Switch {
    fn default() -> Self {
        Self::OFF
    }
}

impl Behaviour {
    /// Reads what lies beside `model`; nothing there is the default.
    pub fn beside(model: &Path) -> io::Result<Self> {
        match std::fs::read_to_string(crate::ModelFiles::of(model).sidecar()) {
            Ok(text) => toml::from_str(&text).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(e) => Err(e),
        }
    }

    /// The text of a sidecar that says this.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("every field has a TOML form")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_the_documentation_is_a_sidecar() {
        let own = include_str!("behaviour.rs");
        let block = own.split("//! ```toml").nth(1).and_then(|rest| rest.split("//! ```").next()).expect("an example");
        let example: String = block.lines().map(|l| l.trim_start_matches("//!").to_owned() + "\n").collect();
        let behaviour: Behaviour = toml::from_str(&example).expect("valid");
        assert_eq!(behaviour.exit.expect("given").how, End::Code(1));
        assert_eq!(behaviour.tokens.gates[0].before, 3);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let behaviour = Behaviour {
            exit: Some(Exit {
                at: Moment::Token(5),
                how: End::Signal("SIGABRT".into()),
                log: vec!["GGML_ASSERT".into()],
                first_starts: Some(1),
            }),
            health: Health { hangs: Switch::WhileFile("/x".into()), ..Health::default() },
            grandchild: Some(Grandchild { session: Session::Own, ..Grandchild::default() }),
            flood: Some(Flood { line_end: LineEnd::None, ..Flood::default() }),
            ..Behaviour::default()
        };
        assert_eq!(toml::from_str::<Behaviour>(&behaviour.to_toml()), Ok(behaviour));
    }

    #[test]
    fn a_misspelt_knob_is_an_error() {
        assert!(toml::from_str::<Behaviour>("[load]\nmillis = 3").is_err());
    }
}
