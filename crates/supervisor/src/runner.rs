//! Runs a tool to its end: `pip`, a compiler's driver, `llama-server --version`.
//!
//! The only other place that starts processes. A tool gets a keeper too, so it has the same promises as an engine:
//! nothing of it survives a dropped future, a timeout, or us; its output never blocks it.
use crate::{
    KeeperProgram, LaunchError,
    launch::{Heard, Kept},
    nonce::Nonce,
    protocol::{Gone, Launch, Source},
};
use std::{ffi::OsString, path::PathBuf, time::Duration};

/// How long a tool that was killed is waited for.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// A tool to run.
#[derive(Clone, Debug)]
pub struct Tool {
    /// Absolute.
    pub program: PathBuf,
    /// Without its own name.
    pub args: Vec<OsString>,
    /// The whole of it.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub cwd: PathBuf,
    /// How long it may take; `None` for as long as it wants.
    pub timeout: Option<Duration>,
}

/// How a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolExit {
    /// Its exit code, when it exited.
    pub code: Option<i32>,
    /// The signal that killed it, when one did.
    pub signal: Option<i32>,
    /// The last lines of output (64 KiB at most), oldest first.
    pub tail: Vec<String>,
}

impl ToolExit {
    /// Whether it exited with 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }
}

/// Why a tool did not end by itself.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It could not be started.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// It took too long and was killed with all it had started.
    #[error("{} did not end within {}s", program.display(), within.as_secs_f32())]
    TimedOut {
        /// The tool.
        program: PathBuf,
        /// Its time.
        within: Duration,
        /// Its last lines.
        tail: Vec<String>,
    },
}

/// Runs `tool`; each line of its output is passed to `on_line` as it comes. Dropping the future kills the tool and
/// all it has started.
///
/// When `on_line` is slower than the tool, lines are left out for it; the tail of the exit always holds the last.
pub async fn run(
    keeper: &KeeperProgram,
    tool: &Tool,
    mut on_line: impl FnMut(Source, &str),
) -> Result<ToolExit, RunError> {
    let nonce = Nonce::draw().map_err(LaunchError::Nonce)?;
    let Tool { program, args, environment, cwd, timeout } = tool.clone();
    let launch =
        Launch { nonce, program: program.clone(), args, environment, cwd, log: None, group: None, fence: None };
    let mut kept = keeper.start(launch).await?.go().await?;
    let in_time = timeout_or_never(timeout, until_gone(&mut kept, &mut on_line)).await;
    let Some(Gone { code, signal, tail, .. }) = in_time else {
        kept.kill().await;
        // One that cannot be killed is left to its keeper.
        let gone = tokio::time::timeout(KILLED_WITHIN, kept.until_gone()).await.unwrap_or_default();
        return Err(RunError::TimedOut { program, within: timeout.unwrap_or_default(), tail: gone.tail });
    };
    Ok(ToolExit { code, signal, tail })
}

async fn timeout_or_never<T>(within: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match within {
        None => Some(work.await),
        Some(within) => tokio::time::timeout(within, work).await.ok(),
    }
}

async fn until_gone(kept: &mut Kept, on_line: &mut impl FnMut(Source, &str)) -> Gone {
    loop {
        match kept.hear().await {
            Some(Heard::Line { source, text, .. }) => on_line(source, &text),
            Some(Heard::Ended(_)) => {}
            Some(Heard::Gone(gone)) => return gone,
            None => return Gone::default(),
        }
    }
}
