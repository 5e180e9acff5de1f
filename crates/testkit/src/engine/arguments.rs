//! The part of llama-server's command line that changes what a supervisor or a client sees. All other words are
//! ignored, so that any argument template can be tried.
use motorpool_testkit::Session;
use std::path::PathBuf;

/// What `--help` prints: the flags that a supervisor may look for.
pub(crate) const HELP: &str = "\
-h,    --help
--version
--list-devices
-m,    --model FNAME
-a,    --alias STRING
-c,    --ctx-size N
-np,   --parallel N
--host HOST
--port PORT
-dev,  --device <dev1,dev2,..>
--sse-ping-interval N
--embedding, --embeddings
--rerank, --reranking
--offline, --no-ui, -fit, -cram, --slot-save-path and everything else: accepted, without effect
";

/// What to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Run {
    /// Be an engine.
    Serve(Arguments),
    /// Be the process an engine leaves behind.
    Stray {
        session: Session,
        memory: u64,
    },
    Version,
    Devices,
    Help,
    /// The arguments make no sense.
    Refused(String),
}

/// What was asked of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Arguments {
    pub(crate) model: PathBuf,
    pub(crate) alias: String,
    pub(crate) listen: Listen,
    /// `None`: by itself.
    pub(crate) slots: Option<u32>,
    pub(crate) context: u32,
    pub(crate) ping_seconds: u64,
    /// The devices it is told to use, separated by commas.
    pub(crate) devices: Option<String>,
    /// Where what slots hold is written to.
    pub(crate) slot_folder: Option<PathBuf>,
    /// All of them, as they came.
    pub(crate) words: Vec<String>,
}

/// Where to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Listen {
    Unix(PathBuf),
    Tcp(u16),
}

/// How the first word of a stray's command line is spelt.
pub(crate) const STRAY: &str = "--stray";

impl Arguments {
    /// Reads a command line without its first word.
    pub(crate) fn parse(words: &[String]) -> Run {
        match words.first().map(String::as_str) {
            Some(STRAY) => return stray(&words[1..]),
            Some("--version") => return Run::Version,
            Some("--list-devices") => return Run::Devices,
            Some("--help" | "-h") => return Run::Help,
            _ => {}
        }
        match serve(words) {
            Ok(arguments) => Run::Serve(arguments),
            Err(why) => Run::Refused(why),
        }
    }
}

fn serve(words: &[String]) -> Result<Arguments, String> {
    let value = |names: &[&str]| {
        let at = words.iter().rposition(|word| names.contains(&word.as_str()))?;
        words.get(at + 1)
    };
    let model = value(&["-m", "--model"]).ok_or("no model: the router is not faked")?;
    let port = number(value(&["--port"]), 8080)?;
    let port = u16::try_from(port).map_err(|_| format!("invalid port: {port}"))?;
    let listen = match value(&["--host"]) {
        Some(host) if has_socket_ending(host) => Listen::Unix(host.into()),
        _ => Listen::Tcp(port),
    };
    let slots = value(&["-np", "--parallel"]).map(|n| number(Some(n), 0)).transpose()?.filter(|n| *n > 0);
    Ok(Arguments {
        model: model.into(),
        alias: value(&["-a", "--alias"]).unwrap_or(model).clone(),
        listen,
        slots,
        context: number(value(&["-c", "--ctx-size"]), 4096)?,
        devices: value(&["-dev", "--device"]).cloned(),
        slot_folder: value(&["--slot-save-path"]).map(PathBuf::from),
        ping_seconds: number(value(&["--sse-ping-interval"]), 30)?.into(),
        words: words.to_vec(),
    })
}

/// llama-server tells a socket from a host by its ending.
fn has_socket_ending(host: &str) -> bool {
    std::path::Path::new(host).extension().is_some_and(|ending| ending == "sock")
}

fn number(word: Option<&String>, default: u32) -> Result<u32, String> {
    match word {
        None => Ok(default),
        // Negative numbers mean "by itself" for every flag read here.
        Some(word) if word.starts_with('-') => Ok(default),
        Some(word) => word.parse().map_err(|_| format!("invalid number: {word}")),
    }
}

fn stray(words: &[String]) -> Run {
    let session = if words.first().is_some_and(|word| word == "own") { Session::Own } else { Session::Same };
    let memory = words.get(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    Run::Stray { session, memory }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Run {
        Arguments::parse(&line.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_host_that_ends_in_sock_is_a_unix_socket() {
        let Run::Serve(unix) = parse("-m a.gguf --host /r/a.sock --port 1 -np 3 -fit off") else { panic!("refused") };
        assert_eq!((unix.listen, unix.slots), (Listen::Unix("/r/a.sock".into()), Some(3)));
        let Run::Serve(tcp) = parse("--host 127.0.0.1 --port 4000 --model b.gguf -np -1") else { panic!("refused") };
        assert_eq!((tcp.listen, tcp.slots, tcp.alias.as_str()), (Listen::Tcp(4000), None, "b.gguf"));
    }

    #[test]
    fn nonsense_is_refused_and_unknown_words_are_not() {
        assert!(matches!(parse("-m a.gguf --port many"), Run::Refused(_)));
        assert!(matches!(parse("--ctx-size 4"), Run::Refused(_)));
        assert!(matches!(parse("-m a.gguf --no-such-flag 7"), Run::Serve(_)));
        assert_eq!(parse("--stray own 5"), Run::Stray { session: Session::Own, memory: 5 });
    }
}
