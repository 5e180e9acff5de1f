//! What goes to stdout and stderr: [`Out`], tables and documents for people or programs.
//!
//! Data goes to stdout, everything said about the work to stderr. What people are shown never steers their terminal. A reader that went away ends the program
//! quietly.
use crate::exit::{Exit, Failure};
use comfy_table::{Cell, ContentArrangement, Table, presets::NOTHING};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use serde::Serialize;
use std::{
    borrow::Cow,
    io::{self, BufRead, IsTerminal, Write},
    os::fd::AsFd,
};
use tokio::sync::oneshot;

pub(crate) const RED: &str = "\x1b[1;31m";
pub(crate) const YELLOW: &str = "\x1b[33m";
pub(crate) const GREEN: &str = "\x1b[32m";
/// Ends a colour.
pub(crate) const UNCOLOURED: &str = "\x1b[0m";
const COLOURS: [&str; 4] = [RED, YELLOW, GREEN, UNCOLOURED];

/// Whom data is printed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    People,
    Json,
}

/// What a command prints with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Out {
    pub(crate) form: Form,
}

impl Out {
    /// Prints `document` for programs or `people()` for people.
    pub(crate) fn data<T: Serialize>(self, document: &T, people: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.form {
            Form::Json => {
                let mut text = serde_json::to_string_pretty(document)
                    .map_err(|error| Failure::new(Exit::Failed, error, "report this"))?;
                text.push('\n');
                write_as_it_is(&text)
            }
            Form::People => write(&people()),
        }
    }
}

/// Writes for people to stdout and flushes.
pub(crate) fn write(text: &str) -> Result<(), Failure> {
    write_as_it_is(&plain(text))
}

/// Writes for programs to stdout and flushes.
pub(crate) fn write_as_it_is(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Failure::silent(Exit::Done),
        _ => Failure::new(Exit::Failed, format_args!("cannot write the output: {error}"), "check where it goes"),
    })
}

/// Does `work` that prints as it goes, and ends it as soon as nobody reads what it prints.
pub(crate) async fn while_read(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::select! {
        done = work => done,
        () = reader_gone(io::stdout()) => Err(Failure::silent(Exit::Done)),
    }
}

/// Returns when `stream` is a pipe, a socket or a terminal, and its other end is gone. A file is always there.
async fn reader_gone(stream: impl AsFd + Send + 'static) {
    let (gone, told) = oneshot::channel();
    // A thread of its own: nothing waits for it at the end, and the stream, which others share, stays as it is.
    std::thread::spawn(move || {
        // Asked for nothing, the kernel tells of errors and hang-ups only.
        let mut watched = [PollFd::new(stream.as_fd(), PollFlags::empty())];
        while let Err(Errno::EINTR) = poll(&mut watched, PollTimeout::NONE) {}
        let _ = gone.send(watched[0].any().unwrap_or(false));
    });
    if told.await != Ok(true) {
        std::future::pending::<()>().await;
    }
}

/// Says one line about the work on stderr. Nothing depends on its being heard.
pub(crate) fn say(text: impl std::fmt::Display) {
    let _ = writeln!(io::stderr().lock(), "{}", plain(&text.to_string()));
}

/// The text without what steers a terminal: names and texts of others are in much of what is shown. Line ends and tabs
/// stay, and our colours, which hide nothing.
fn plain(text: &str) -> Cow<'_, str> {
    let steers = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(steers) {
        return text.into();
    }
    let (mut plain, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(steers) {
        let (before, from) = rest.split_at(at);
        plain.push_str(before);
        let colour = COLOURS.into_iter().find(|colour| from.starts_with(colour)).unwrap_or_default();
        plain.push_str(colour);
        let n_taken = if colour.is_empty() { from.chars().next().map_or(0, char::len_utf8) } else { colour.len() };
        rest = &from[n_taken..];
    }
    (plain + rest).into()
}

/// Says what failed and what to do.
pub(crate) fn say_failure(failure: &Failure) {
    if failure.what.is_empty() {
        return;
    }
    let (red, plain) = if colours(&io::stderr()) { (RED, UNCOLOURED) } else { ("", "") };
    say(format_args!("{red}error:{plain} {}", failure.what));
    if !failure.cure.is_empty() {
        say(format_args!("       {}", failure.cure));
    }
}

/// Whether `stream` is a terminal and nobody asked for plain text.
pub(crate) fn colours(stream: &impl IsTerminal) -> bool {
    stream.is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Columns that fit the terminal; as wide as they need to be when stdout is none.
pub(crate) fn table(head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(arrangement(table.width()));
    }
    table.set_header(head.iter().map(Cell::new));
    for row in rows {
        table.add_row(row);
    }
    let lines: Vec<_> =
        table.lines().map(|line| line.trim_end().strip_prefix(' ').map_or_else(String::new, str::to_owned)).collect();
    lines.join("\n") + "\n"
}

/// A terminal that says it has no columns does not know how many it has.
fn arrangement(width: Option<u16>) -> ContentArrangement {
    if width == Some(0) { ContentArrangement::Disabled } else { ContentArrangement::Dynamic }
}

/// Asks a question on the terminal; `None` when there is no terminal to ask on.
pub(crate) fn ask(question: &str) -> Option<Answer> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        return None;
    }
    let _ = write!(io::stderr().lock(), "{question} [Y/n] ").and_then(|()| io::stderr().flush());
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).ok()?;
    match line.trim().to_ascii_lowercase().as_str() {
        "" if line.is_empty() => Some(Answer::No),
        "" | "y" | "yes" => Some(Answer::Yes),
        _ => Some(Answer::No),
    }
}

/// What somebody answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Yes,
    No,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_reader_that_goes_is_noticed_without_a_write_and_a_file_never_goes() {
        let (reader, writer) = io::pipe().expect("a pipe");
        let file = tempfile::tempfile().expect("a temporary file");
        let mut gone = std::pin::pin!(reader_gone(writer));
        tokio::select! {
            biased;
            () = gone.as_mut() => panic!("somebody reads"),
            () = std::future::ready(()) => drop(reader),
        }
        tokio::select! {
            () = gone => {}
            () = reader_gone(file) => panic!("it is a file"),
        }
    }

    #[test]
    fn texts_of_others_do_not_steer_the_terminal_and_our_colours_stay() {
        for (text, shown) in [
            ("a\tb\nc é", "a\tb\nc é"),
            ("\u{1b}[2J\u{1b}[8mhidden\rover\u{7}", "[2J[8mhiddenover"),
            ("\u{9b}31m\u{7f}x\u{1b}]0;title\u{1b}\\", "31mx]0;title\\"),
            ("\u{1b}[1;31merror:\u{1b}[0m é\u{1b}", "\u{1b}[1;31merror:\u{1b}[0m é"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn a_terminal_without_columns_gets_whole_lines() {
        assert!(matches!(arrangement(Some(0)), ContentArrangement::Disabled));
        assert!(matches!(arrangement(Some(80)), ContentArrangement::Dynamic));
    }

    #[test]
    fn a_table_off_the_terminal_keeps_its_cells_whole_and_its_ends_clean() {
        let text = table(&["NAME", "WHAT"], vec![vec!["a".into(), "x".repeat(300)], vec!["bb".into(), "y".into()]]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("NAME"), "{text}");
        assert!(lines[1].ends_with(&"x".repeat(300)));
        assert!(lines.iter().all(|line| !line.ends_with(' ')));
    }
}
