//! [`ConfigError`]: where a text is wrong, what is wrong there, and what right looks like.
//!
//! ```text
//! motorpool.toml:3:1: unknown key `lisen`, did you mean `listen`?
//!   |
//! 3 | lisen = ["127.0.0.1:8790"]
//!   | ^^^^^
//!   = example: listen = ["127.0.0.1:8790"]
//! ```
use crate::without_userinfo;
use std::{fmt, ops::Range};

/// Longest part of a source line that is shown, in characters.
const SHOWN: usize = 120;

/// What is wrong in a text, and where. Lines and columns count from 1, columns in characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError(Box<Report>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    file: String,
    spot: Option<Spot>,
    fault: Fault,
    example: Option<&'static str>,
}

/// What is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The text is no TOML.
    #[error("{0}")]
    Syntax(String),
    /// A key nobody knows.
    #[error("unknown key `{key}`{}", hint(nearest.as_deref(), known))]
    UnknownKey {
        /// The key.
        key: String,
        /// The known key most like it.
        nearest: Option<String>,
        /// The keys known at that place.
        known: Vec<String>,
    },
    /// A value outside a fixed set.
    #[error("`{value}` is not possible here{}", hint(nearest.as_deref(), known))]
    UnknownValue {
        /// The value.
        value: String,
        /// The possible value most like it.
        nearest: Option<String>,
        /// All possible values.
        known: Vec<String>,
    },
    /// A key that must be there.
    #[error("the key `{0}` is missing")]
    MissingKey(String),
    /// A value of the wrong type or out of range.
    #[error("{0}")]
    Value(String),
    /// A variable of the environment that is not set.
    #[error("the environment variable `{0}` is not set; `${{{0}:-value}}` would give a default")]
    UnsetVariable(String),
    /// A `${` that begins no variable.
    #[error("`{0}` is no variable: write `${{NAME}}`, or `$${{` for a plain `${{`")]
    BadVariable(String),
    /// Two models, or two manifests, answer to one name.
    #[error("{name} is already taken by {by}")]
    Taken {
        /// What was claimed, such as ``the alias `fast` ``.
        name: String,
        /// Who has it.
        by: String,
    },
    /// A model names an engine without a manifest.
    #[error("no manifest describes the engine `{engine}`{}", hint(nearest.as_deref(), known))]
    UnknownEngine {
        /// The engine.
        engine: String,
        /// The known engine most like it.
        nearest: Option<String>,
        /// All known engines.
        known: Vec<String>,
    },
}

impl Fault {
    /// The known name most like what was written, where one is.
    pub fn nearest(&self) -> Option<&str> {
        match self {
            Self::UnknownKey { nearest, .. }
            | Self::UnknownValue { nearest, .. }
            | Self::UnknownEngine { nearest, .. } => nearest.as_deref(),
            Self::Syntax(_)
            | Self::MissingKey(_)
            | Self::Value(_)
            | Self::UnsetVariable(_)
            | Self::BadVariable(_)
            | Self::Taken { .. } => None,
        }
    }
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    match (nearest, known) {
        (Some(name), _) => format!(", did you mean `{name}`?"),
        (None, []) => String::new(),
        (None, known) => format!("; known here: `{}`", known.join("`, `")),
    }
}

/// A place in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Spot {
    line: usize,
    column: usize,
    /// The source line; nothing where it holds a secret.
    text: Option<String>,
    width: usize,
}

impl ConfigError {
    /// A fault at the bytes `span` of `text`.
    pub(crate) fn at(file: &str, text: &str, span: Range<usize>, fault: Fault) -> Self {
        Self(Box::new(Report { file: file.into(), spot: Some(Spot::of(text, span)), fault, example: None }))
    }

    /// A fault without a place: of a value that was not written in a file.
    pub(crate) fn nowhere(file: &str, fault: Fault) -> Self {
        Self(Box::new(Report { file: file.into(), spot: None, fault, example: None }))
    }

    pub(crate) fn with_example(mut self, example: Option<&'static str>) -> Self {
        self.0.example = example;
        self
    }

    /// The same, without the line of the file: what stands in it is nobody's to see.
    pub(crate) fn unseen(mut self) -> Self {
        if let Some(spot) = &mut self.0.spot {
            spot.text = None;
        }
        self
    }

    /// File, place and fault on one line, for logs and for whoever asks from elsewhere: the line of the file, which may
    /// hold a secret, is not in it.
    pub fn brief(&self) -> String {
        let mut all = self.clone().unseen();
        all.0.example = None;
        all.to_string()
    }

    /// The file's name as it was given.
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// The line, from 1, when the fault has a place.
    pub fn line(&self) -> Option<usize> {
        self.0.spot.as_ref().map(|spot| spot.line)
    }

    /// The column in characters, from 1, when the fault has a place.
    pub fn column(&self) -> Option<usize> {
        self.0.spot.as_ref().map(|spot| spot.column)
    }

    /// What is wrong.
    pub fn fault(&self) -> &Fault {
        &self.0.fault
    }

    /// A line that is right at that place.
    pub fn example(&self) -> Option<&'static str> {
        self.0.example
    }
}

impl Spot {
    fn of(text: &str, span: Range<usize>) -> Self {
        let start = floor(text, span.start);
        // A fault at the very end belongs to the last line that has something in it.
        let start = if text[start..].is_empty() { text.trim_end().len() } else { start };
        let end = floor(text, span.end).max(start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        let line = &text[line_start..line_end];
        Self {
            line: text[..start].matches('\n').count() + 1,
            column: text[line_start..start].chars().count() + 1,
            text: Some(line.trim_end_matches('\r').to_owned()),
            width: text[start..end.min(line_end)].trim_end().chars().count().max(1),
        }
    }
}

/// The largest character boundary of `text` that is not past `at`.
fn floor(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { file, spot, fault, example } = &*self.0;
        let fault: String = without_userinfo(&fault.to_string()).chars().map(printable).collect();
        match spot {
            None => write!(f, "{file}: {fault}")?,
            Some(spot) => {
                write!(f, "{file}:{}:{}: {fault}{spot}", spot.line, spot.column)?;
            }
        }
        let gutter = spot.as_ref().map_or(1, |spot| spot.line.to_string().len());
        match example {
            Some(example) => write!(f, "\n{:gutter$} = example: {example}", ""),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(text) = &self.text else { return Ok(()) };
        let text = without_userinfo(text);
        let number = self.line.to_string();
        let gutter = number.len();
        // A long line is cut around the fault.
        let skip = if self.column + self.width > SHOWN { self.column.saturating_sub(SHOWN / 2) } else { 0 };
        let shown: Vec<char> = text.chars().skip(skip).take(SHOWN).map(printable).collect();
        let before = self.column - 1 - skip;
        let pad: String = (0..before).map(|i| if shown.get(i) == Some(&'\t') { '\t' } else { ' ' }).collect();
        let carets = "^".repeat(self.width.min(SHOWN.saturating_sub(before)).max(1));
        writeln!(f, "\n{:gutter$} |", "")?;
        writeln!(f, "{number} | {}", shown.iter().collect::<String>().trim_end())?;
        write!(f, "{:gutter$} | {pad}{carets}", "")
    }
}

/// Escape sequences of a file do not reach a terminal.
fn printable(c: char) -> char {
    if c.is_control() && c != '\t' { '\u{fffd}' } else { c }
}

impl std::error::Error for ConfigError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(text: &str, span: Range<usize>) -> String {
        ConfigError::at("f", text, span, Fault::Value("wrong".into())).to_string()
    }

    #[test]
    fn columns_count_characters_and_carets_stand_below_them() {
        let text = "a = 1\nкл = \"𝄞\", x\n";
        let at = text.find('"').expect("it is there");
        let error = ConfigError::at("f", text, at..at + "\"𝄞\"".len(), Fault::Value("wrong".into()));
        assert_eq!((error.line(), error.column()), (Some(2), Some(6)));
        assert_eq!(error.to_string(), "f:2:6: wrong\n  |\n2 | кл = \"𝄞\", x\n  |      ^^^");
    }

    #[test]
    fn a_fault_over_several_lines_is_marked_on_the_first() {
        assert_eq!(shown("a = \"\"\"x\ny\"\"\"", 4..13), "f:1:5: wrong\n  |\n1 | a = \"\"\"x\n  |     ^^^^");
    }

    #[test]
    fn a_fault_at_the_end_stands_behind_the_last_word() {
        assert_eq!(shown("[a\n\n", 4..4), "f:1:3: wrong\n  |\n1 | [a\n  |   ^");
        assert_eq!(shown("", 0..0), "f:1:1: wrong\n  |\n1 | \n  | ^");
    }

    #[test]
    fn a_long_line_is_cut_around_the_fault() {
        let text = format!("{}HERE{}", "x".repeat(1000), "y".repeat(1000));
        let error = shown(&text, 1000..1004);
        let lines: Vec<&str> = error.lines().collect();
        assert_eq!(lines[0], "f:1:1001: wrong");
        assert_eq!(lines[2].chars().count(), "1 | ".len() + SHOWN);
        let (from, to) = (lines[3].find('^').expect("a caret"), lines[3].rfind('^').expect("a caret"));
        assert_eq!(&lines[2][from..=to], "HERE");
    }

    #[test]
    fn in_brief_the_place_is_told_and_the_line_is_not() {
        let error = ConfigError::at("f", "a = 1\nkey = \"secret\"", 12..20, Fault::Value("wrong".into()));
        assert_eq!(error.with_example(Some("key = \"x\"")).brief(), "f:2:7: wrong");
    }

    #[test]
    fn a_line_is_shown_without_the_password_of_its_address_and_carets_stay_in_place() {
        let text = "url = \"ftp://me:hunter2@host\"";
        let at = text.find('"').expect("it is there");
        let fault = Fault::Value("`ftp://me:hunter2@host` is no address".into());
        let error = ConfigError::at("f", text, at..text.len(), fault).to_string();
        let covered = "ftp://**********@host";
        let carets = "^".repeat(covered.len() + 2);
        assert_eq!(
            error,
            format!("f:1:7: `{covered}` is no address\n  |\n1 | url = \"{covered}\"\n  |       {carets}")
        );
    }

    #[test]
    fn escape_sequences_do_not_reach_a_terminal() {
        let fault = Fault::Value("`\u{1b}[31m`\nx".into());
        let error = ConfigError::at("f", "\u{1b}[31m = 1", 0..1, fault).to_string();
        assert_eq!(error, "f:1:1: `\u{fffd}[31m`\u{fffd}x\n  |\n1 | \u{fffd}[31m = 1\n  | ^");
    }

    proptest! {
        #[test]
        fn every_span_of_every_text_can_be_shown(text in "(.|\\n){0,60}", from in 0usize..80, len in 0usize..80) {
            prop_assert!(shown(&text, from..from + len).contains('^'));
        }
    }
}
