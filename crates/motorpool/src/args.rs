//! The command line.
#[cfg(feature = "top")]
use crate::commands::Top;
use crate::{
    commands::{Cancel, Completions, Config, Drain, Man, Restart, bench::Bench, model::Command as Model},
    exit::{Exit, Failure},
    out::{Form, Out},
    remote::Remote,
};
use clap::{Args, Parser, Subcommand};
use motorpool_catalog::ContextWish;
use std::path::PathBuf;

/// Keeps inference engines ready and serves them all behind one OpenAI-compatible address.
#[derive(Debug, Parser)]
#[command(name = "motorpool", version, after_help = Exit::table(), disable_help_subcommand = false)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What every command takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// The directory of the pool's lock, journal and logs (~/.local/state/motorpool); a second pool needs one of its own,
    /// and addresses of its own, and counts a budget of its own
    #[arg(long, global = true, value_name = "DIR", env = "MOTORPOOL_STATE_DIR")]
    pub(crate) state_dir: Option<PathBuf>,
    /// The configuration file (./motorpool.toml, ~/.config/motorpool/motorpool.toml, /etc/motorpool/motorpool.toml)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Ask the pool at this address, `http://HOST:PORT` or `https://HOST:PORT`, instead of the one of the state directory
    #[arg(long, global = true, value_name = "URL", env = "MOTORPOOL_SERVER")]
    pub(crate) server: Option<String>,
    /// The file whose first line is the access key for --server
    #[arg(long, global = true, value_name = "FILE", env = "MOTORPOOL_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
    /// The file of the certificate authorities, in PEM, that --server is checked by, instead of those of this machine
    #[arg(long, global = true, value_name = "FILE", env = "MOTORPOOL_CA_FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Print data as JSON
    #[arg(long, global = true)]
    json: bool,
}

impl Common {
    /// The pool of another machine that is asked, if one is.
    pub(crate) fn remote(&self) -> Result<Option<Remote>, Failure> {
        let server = self.server.as_deref();
        server.map(|server| Remote::at(server, self.key_file.as_deref(), self.ca_file.as_deref())).transpose()
    }

    pub(crate) fn out(&self) -> Out {
        Out { form: if self.json { Form::Json } else { Form::People } }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// From nothing to an answer: engine, model, one question, then serve
    ///
    /// A file that is no model's of the catalog yet is entered there for good, under its own name; when another file has
    /// that name, a number is added. Of a folder, all models are entered; one of them is asked. While this runs, `default`
    /// means the model of the file. Where a pool runs already, that one reads its catalog again, and loads it.
    Up(Up),
    /// Serve until told to stop
    Serve(Serve),
    /// Chat with a model
    Run(Run),
    /// Show the engines of the pool; the phase `idle` means: not running
    Ps,
    /// Show what the running pool can serve, and its state; `model list` shows what is on disk
    Models,
    /// Make a model ready
    Load(Load),
    /// Stop a model's engines, after the requests that they serve
    ///
    /// It waits for running requests, at most `drain_wait` of [pool], and takes no new ones meanwhile. --force cuts them;
    /// --idle does nothing when there are any.
    Unload(Unload),
    /// Have the running pool read its files again, and show what became of each item
    ///
    /// Only what changed is touched: an engine whose launch is another one takes nobody new, ends after those that it serves,
    /// and is started anew at its next use. A file that is wrong changes nothing. SIGHUP does the same, and `watch = true` in
    /// [server] does it whenever a file changes.
    Reload,
    /// Take an engine out of use, or all of a model: it takes no requests until it is loaded or reset
    ///
    /// What it serves comes to its end, however long that takes; then it stops. `unload` gives up after `drain_wait`, and the
    /// next request starts the engine again; after this one nothing does.
    Drain(Drain),
    /// Stop a model's engines after the requests that they serve, and make them ready again
    Restart(Restart),
    /// End a request, whether it waits or is served: the one of a number, or all of a name
    Cancel(Cancel),
    /// Watch the pool in the terminal: memory, engines, requests, events; move, unload and drain
    #[cfg(feature = "top")]
    Top(Top),
    /// Forget failed starts, of one model or of all, so that they are tried again
    ///
    /// What must fail again is not started again until its file, its engine or its catalog entry changes; what fails too
    /// often is given up for a while; a build that this processor cannot run is not used again. `ps` shows what is so.
    Reset(Reset),
    /// Show who is served and who waits; take a request out of its queue, or move it
    Queue {
        #[command(subcommand)]
        command: Option<Queue>,
    },
    /// Show what model servers of yours hold, and whose it is; what would become of a request there; give back what is ours
    Residency {
        #[command(subcommand)]
        command: Option<Residency>,
    },
    /// Show what happened in the pool, the oldest that is kept first
    Events(Events),
    /// Show what requests took: tokens, time, failures; by hour, day, model or key
    Usage(crate::commands::usage::Usage),
    /// Show what a model's engine said; without a running pool, what the last one wrote down
    Logs(Logs),
    /// Show what models would take, and whether they fit side by side; changes nothing
    Plan(Plan),
    /// Show what a model would take here, and whether it fits; changes nothing
    Explain(Explain),
    /// Replay a written trace over the pool alone, in virtual time, and show what happens at each step
    ///
    /// A trace says what the machine is and what happens, line by line: `budget 1200` (MiB), `model a 600 replicas=1..3`
    /// (also priority=N, pinned, home), then `acquire r1 a [session=s lane=background drain=5 queue=60 priority=1
    /// replica=0 parent]`, `load r2 a`, `enter r3 a`, `leave r1`, `cancel r1`, `check a:0 ok|bad`, `ready a:0 SLOTS`,
    /// `gone a:0 oldest|newest`, `fail a:0 CLASS`, `sick a:0 still|deaf`, `fails a:0`, `reset r12 [a]`, `pass MILLISECONDS`, `unload-idle r4 a:0`, `evict r5 a:0 [force]`, `release r6`,
    /// `reconcile r7 a 2`, `reload r13 a launch|live|gone|back`, `withdraw r8 r1`, `move r9 r1 up|down`, `retire r10`,
    /// `shutdown r11`, and `obey`: all that the pool wants done is done. After each step every property is checked.
    Sim(Sim),
    /// Count the refusals for want of room that a log tells of
    Denials(Denials),
    /// Look for what could go wrong here, each finding with its cure
    Doctor,
    /// Measure what serving through this costs, beside the engine itself and beside other ways to it
    ///
    /// Without --engine the running pool is measured with one of its models; nothing of it is changed but that the model is
    /// loaded. All ways are asked in turn in one run; times are medians over the rounds.
    Bench(Bench),
    /// Make, show and revoke access keys
    ///
    /// As soon as there is one, every request over an address needs one; this command line needs none. A running pool takes
    /// notice within a second.
    #[command(subcommand)]
    Key(Key),
    /// Install and verify engines
    #[command(subcommand)]
    Engine(Engine),
    /// Fetch and verify models
    #[command(subcommand)]
    Model(Model),
    /// Check, show and make the files that say what the pool does
    #[command(subcommand)]
    Config(Config),
    /// Print the completions of a shell
    Completions(Completions),
    /// Print the manual page, or write one for each command
    Man(Man),
}

impl Command {
    /// Whether it looks at this machine, or changes it: no pool elsewhere can be asked for that.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            Self::Up(_)
            | Self::Serve(_)
            | Self::Sim(_)
            | Self::Denials(_)
            | Self::Doctor
            | Self::Bench(_)
            | Self::Key(_)
            | Self::Engine(_)
            | Self::Model(_)
            | Self::Config(_)
            | Self::Completions(_)
            | Self::Man(_) => true,
            Self::Run(_)
            | Self::Ps
            | Self::Models
            | Self::Plan(_)
            | Self::Explain(_)
            | Self::Load(_)
            | Self::Unload(_)
            | Self::Reload
            | Self::Drain(_)
            | Self::Restart(_)
            | Self::Cancel(_)
            | Self::Reset(_)
            | Self::Queue { .. }
            | Self::Residency { .. }
            | Self::Events(_)
            | Self::Usage(_)
            | Self::Logs(_) => false,
            #[cfg(feature = "top")]
            Self::Top(_) => false,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Up {
    /// A model file of yours, or a folder with some; without it, the default model
    #[arg(value_name = "FILE.gguf|DIR")]
    pub(crate) file: Option<PathBuf>,
    /// Do not ask before a long build
    #[arg(long, short)]
    pub(crate) yes: bool,
    /// Build the engine for the processor, whatever cards there are
    #[arg(long)]
    pub(crate) cpu: bool,
    #[command(flatten)]
    pub(crate) reach: Reach,
}

#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    pub(crate) reach: Reach,
}

/// Who may reach it.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Reach {
    /// Serve without keys on addresses that other machines can reach: whoever reaches them may do everything
    #[arg(long)]
    pub(crate) insecure: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// Id or alias
    pub(crate) model: String,
    /// One question; without it, a conversation
    pub(crate) prompt: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Load {
    /// Id or alias
    pub(crate) model: String,
}

#[derive(Debug, Args)]
pub(crate) struct Unload {
    /// Id, alias, or engine key; without it, with --idle, every idle engine
    #[arg(required_unless_present = "idle")]
    pub(crate) model: Option<String>,
    /// Only what nobody uses
    #[arg(long)]
    pub(crate) idle: bool,
    /// At once, cutting what runs
    #[arg(long, conflicts_with = "idle")]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Reset {
    /// Id or alias; without it, all
    pub(crate) model: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    /// Id, alias, or engine key
    pub(crate) model: String,
    /// Go on with what it says from now on
    #[arg(long, short)]
    pub(crate) follow: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Queue {
    /// Show who is served and who waits
    List,
    /// Take a request that waits out of its queue; its client is told so
    Cancel {
        /// Its number in the list
        id: u64,
    },
    /// Move a request that waits by one place in its lane
    Move {
        /// Its number in the list
        id: u64,
        /// Which way
        place: Place,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Residency {
    /// Show what each server holds, by the last look at it
    Status,
    /// Show what would become of a request for a model there; changes nothing
    Plan {
        /// Its name there, or SERVER/NAME
        model: String,
    },
    /// Unload what we loaded there and nobody uses
    Release {
        /// Its name there, or SERVER/NAME; without it, all
        model: Option<String>,
        /// On this server alone, by its id
        #[arg(long, value_name = "SERVER")]
        target: Option<String>,
    },
    /// Tell the pool what a helper of yours loaded there: it goes last, and is given back when the pool ends
    Adopt {
        /// Its name there
        model: String,
        /// The server, by its id
        #[arg(long, value_name = "SERVER")]
        target: String,
        /// Which load of it: a router's port of it, LM Studio's instance
        #[arg(long)]
        instance: Option<String>,
    },
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Place {
    /// To be served sooner
    Up,
    /// To be served later
    Down,
}

#[derive(Debug, Args)]
pub(crate) struct Events {
    /// Go on with what happens from now on
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only those after this number
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) after: u64,
}

#[derive(Debug, Args)]
pub(crate) struct Plan {
    /// Ids or aliases; each is planned beside those before it
    #[arg(required = true, value_name = "MODEL")]
    pub(crate) models: Vec<String>,
    /// Tokens per slot, or `max`: all that the model was made for
    #[arg(long, value_name = "TOKENS", value_parser = context)]
    pub(crate) context: Option<ContextWish>,
    /// So many of each
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) replicas: u32,
    /// A machine that a file describes, instead of this one
    #[arg(long, value_name = "HOST.toml")]
    pub(crate) on: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// Id or alias
    pub(crate) model: String,
}

impl Plan {
    /// One more engine of it.
    pub(crate) fn of(Explain { model }: Explain) -> Self {
        Self { models: vec![model], context: None, replicas: 1, on: None }
    }
}

/// As the catalog takes it.
fn context(text: &str) -> Result<ContextWish, String> {
    match text.parse() {
        _ if text == "max" => Ok(ContextWish::Max),
        Ok(n @ 256..=16_777_216) => Ok(ContextWish::Tokens(n)),
        _ => Err("256 to 16777216, or max".to_owned()),
    }
}

#[derive(Debug, Args)]
pub(crate) struct Sim {
    /// The trace; `-` is standard input
    pub(crate) trace: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct Denials {
    /// What the daemon wrote to stderr, as text or JSON; `-` is standard input
    pub(crate) log: PathBuf,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Key {
    /// Make a key and show it, this once; only its hash is kept
    New(NewKey),
    /// Show the keys: their names and what they are for
    List,
    /// Take a key back
    Revoke {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct NewKey {
    /// Its name, for you
    pub(crate) name: String,
    /// What it is for; several with commas
    #[arg(long, value_delimiter = ',', default_value = "inference")]
    pub(crate) scope: Vec<Scope>,
    /// A model it may use, by id; several with commas; without this, all. Only with the scope `inference` alone
    #[arg(long, value_name = "ID", value_delimiter = ',')]
    pub(crate) model: Vec<String>,
    /// So many requests to models at a time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) concurrent: Option<u32>,
    /// So many requests to models in a minute
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) per_minute: Option<u32>,
    /// So many requests that wait at a time, instead of three quarters of the queue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) waiting: Option<u32>,
    /// Take the key from the first line of standard input instead of making one; one of fewer than 32 characters opens
    /// nothing to other machines
    #[arg(long)]
    pub(crate) own: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum Scope {
    /// Requests to models
    Inference,
    /// Views of the pool
    Read,
    /// Everything that changes it
    Manage,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Engine {
    /// Build and install an engine for this machine
    ///
    /// Where there is an NVIDIA or AMD card, it is built for it with its maker's toolkit or
    /// Vulkan, whichever is here.
    Install {
        /// The engine's name
        #[arg(default_value = "llama-server")]
        name: String,
        /// Build for the processor, whatever cards there are
        #[arg(long)]
        cpu: bool,
    },
    /// Show the engines that were found
    List,
    /// Check the program an engine is started with: its files, its version, one answer
    Verify {
        /// The engine's name
        #[arg(default_value = "llama-server")]
        name: String,
    },
    /// Remove an installed engine
    Remove {
        /// The engine's name
        #[arg(default_value = "llama-server")]
        name: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_plan_takes_models_and_a_context_as_the_catalog_does() {
        let plan = |args: &[&str]| {
            let args = ["motorpool", "plan"].into_iter().chain(args.iter().copied());
            Cli::try_parse_from(args).ok().map(|cli| match cli.command {
                Command::Plan(plan) => plan,
                other => panic!("a plan: {other:?}"),
            })
        };
        let whole = plan(&["a", "b", "--context", "8192", "--replicas", "2", "--on", "h.toml"]).expect("right");
        assert_eq!((whole.models.len(), whole.context, whole.replicas), (2, Some(ContextWish::Tokens(8192)), 2));
        assert_eq!(plan(&["a", "--context", "max"]).expect("right").context, Some(ContextWish::Max));
        for wrong in [&[][..], &["a", "--context", "255"], &["a", "--context", "all"], &["a", "--replicas", "0"]] {
            assert!(plan(wrong).is_none(), "{wrong:?}");
        }
    }

    #[test]
    fn unload_wants_a_model_or_the_word_idle() {
        assert!(Cli::try_parse_from(["motorpool", "unload"]).is_err());
        assert!(Cli::try_parse_from(["motorpool", "unload", "--idle"]).is_ok());
        assert!(Cli::try_parse_from(["motorpool", "unload", "m", "--force"]).is_ok());
        assert!(Cli::try_parse_from(["motorpool", "unload", "m", "--force", "--idle"]).is_err());
    }
}
