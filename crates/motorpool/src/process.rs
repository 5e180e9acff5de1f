//! Programs that run to their end: [`Job`], and what its environment may hold.
//!
//! Each runs below a keeper of the supervisor, so that nothing of it outlives us, interrupted or not.
use crate::systemd;
use motorpool_supervisor::{RunError, Tool, ToolExit};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

/// A program to run to its end.
#[derive(Clone, Debug)]
pub(crate) struct Job(Tool);

/// Why a program did not do what it was started for.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ProcessError {
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{} ended with {}{}", program.display(), ending(exit), last_line(&exit.tail))]
    Ended { program: PathBuf, exit: ToolExit },
}

impl Job {
    /// `program` with `args` in `dir`, with our environment less what could lead it astray.
    pub(crate) fn new<S: AsRef<OsStr>>(program: &Path, args: &[S], dir: &Path) -> Self {
        Self(Tool {
            program: program.to_owned(),
            args: args.iter().map(|arg| arg.as_ref().to_owned()).collect(),
            environment: std::env::vars_os().filter(|(name, _)| may_pass(name)).collect(),
            cwd: dir.to_owned(),
            timeout: None,
        })
    }

    /// Sets one variable.
    pub(crate) fn with_env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.0.environment.retain(|(known, _)| known != name);
        self.0.environment.push((name.into(), value.into()));
        self
    }

    /// Leaves one variable out.
    pub(crate) fn without_env(mut self, name: &str) -> Self {
        self.0.environment.retain(|(known, _)| known != name);
        self
    }

    /// Is killed when it takes longer.
    pub(crate) fn within(mut self, timeout: Duration) -> Self {
        self.0.timeout = Some(timeout);
        self
    }

    /// Runs to the end; each line of its output goes to `on_line`.
    pub(crate) async fn run(self, on_line: &mut (dyn FnMut(&str) + Send)) -> Result<(), ProcessError> {
        let exit = motorpool_supervisor::run(&motorpool::keeper(), &self.0, |_, line| on_line(line)).await?;
        if exit.is_success() { Ok(()) } else { Err(ProcessError::Ended { program: self.0.program, exit }) }
    }
}

/// Another Python's settings, service-manager sockets and engine settings stay out.
fn may_pass(name: &OsStr) -> bool {
    const NAMES: &[&str] = &["VIRTUAL_ENV", "PIP_TARGET", "PIP_PREFIX", "PIP_USER", "PIP_REQUIRE_VIRTUALENV"];
    const FAMILIES: &[&str] = &["PYTHON", "LLAMA_ARG_", "MOTORPOOL_"];
    if systemd::is_for_us(name) {
        return false;
    }
    let Some(name) = name.to_str() else { return false };
    !NAMES.contains(&name) && !FAMILIES.iter().any(|family| name.starts_with(family))
}

fn ending(exit: &ToolExit) -> String {
    match (exit.code, exit.signal) {
        (Some(code), _) => format!("code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "no word".to_owned(),
    }
}

fn last_line(tail: &[String]) -> String {
    tail.iter().rev().find(|line| !line.trim().is_empty()).map_or_else(String::new, |line| format!(": {}", line.trim()))
}
