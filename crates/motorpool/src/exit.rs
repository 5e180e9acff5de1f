//! How the program ends: [`Exit`], the one table of exit codes, and [`Failure`], what goes to stderr with it.
//!
//! Every boundary of this crate has its own error enum; each is turned into a [`Failure`] in one exhaustive match
//! beside the enum: what happened on one line, what to do on the next.
use motorpool_catalog::without_userinfo;
use std::fmt::{self, Write};

/// Every way to end. The numbers are part of the command line's contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    Done,
    Failed,
    Usage,
    Config,
    NotFound,
    Missing,
    Transfer,
    Broken,
    NoDaemon,
    InUse,
    Refused,
    Denied,
    Findings,
    Declined,
}

impl Exit {
    const ALL: &[Self] = &[
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::Config,
        Self::NotFound,
        Self::Missing,
        Self::Transfer,
        Self::Broken,
        Self::NoDaemon,
        Self::InUse,
        Self::Refused,
        Self::Denied,
        Self::Findings,
        Self::Declined,
    ];

    pub(crate) const fn code(self) -> u8 {
        self.row().0
    }

    const fn row(self) -> (u8, &'static str) {
        match self {
            Self::Done => (0, "done; for `serve` and `up`: stopped as asked, nothing left running"),
            Self::Failed => (1, "an unexpected failure of the machine or of this program"),
            Self::Usage => (2, "the command line is wrong"),
            Self::Config => (3, "a configuration, catalog or manifest file is wrong"),
            Self::NotFound => (4, "no such model, engine or file"),
            Self::Missing => (5, "something this needs is missing: a program, a module, disk space"),
            Self::Transfer => (6, "a download failed or what came does not match its hash; run it again to continue"),
            Self::Broken => (7, "a build, a probe or a verification failed"),
            Self::NoDaemon => (8, "no daemon answers on the control socket"),
            Self::InUse => (9, "already in use: the state directory, the address, the model, the engine"),
            Self::Refused => (10, "the pool refused: no room, engine busy, start failed"),
            Self::Denied => (11, "not permitted: a directory is not writable or not ours"),
            Self::Findings => {
                (12, "something is left for you: `doctor` found a thing to cure, `config import` left an entry out")
            }
            Self::Declined => (13, "you answered no"),
        }
    }

    /// The table, as `--help` shows it.
    pub(crate) fn table() -> String {
        let mut text = String::from("Exit codes:\n");
        for exit in Self::ALL {
            let (code, meaning) = exit.row();
            writeln!(text, "  {code:>2}  {meaning}").expect("a text takes everything");
        }
        text
    }
}

/// What ends a command early: one line what, one line what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    pub(crate) what: String,
    pub(crate) cure: String,
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl fmt::Display, cure: impl fmt::Display) -> Self {
        // An address may come with a name and a password.
        let shown = |text: String| without_userinfo(&text).into_owned();
        Self { exit, what: shown(what.to_string()), cure: shown(cure.to_string()) }
    }

    /// Nothing to say: the reader of our output went away.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self { exit, what: String::new(), cure: String::new() }
    }
}

/// An error with its causes, on one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_exit_code_is_in_the_table_once() {
        let table = Exit::table();
        for exit in Exit::ALL {
            assert_eq!(table.matches(&format!("\n  {:>2}  ", exit.code())).count(), 1, "{exit:?}");
        }
        assert_eq!(table.lines().count(), Exit::ALL.len() + 1);
    }

    #[test]
    fn a_cause_is_named_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read x")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("no disk"));
        assert_eq!(chain(&error), "cannot read x: no disk");
    }
}
