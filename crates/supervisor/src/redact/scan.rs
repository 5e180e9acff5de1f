//! [`Scan`]: where a line has secrets.
//!
//! ```text
//! name ─► what stands between ─► scheme ─► value            names in told.rs
//!          = : " ', ' [ Some(     Bearer    to its quote, or to a blank, or to what begins the next pair
//! ```
//!
//! Every byte is looked at a bounded number of times: a name is a whole run, and what was read behind it is either skipped or
//! ends before the next name.
use super::{
    MASK,
    told::{Told, is_first_word, told, told_by_two},
};

/// A shorter value is a word, not a secret: `sk-learn` is none.
const MIN_TOKEN: usize = 13;
/// How tokens begin that are known by that.
const PREFIXES: [&[u8]; 15] = [
    b"hf_",
    b"sk-",
    b"sk_",
    b"ghp_",
    b"gho_",
    b"ghs_",
    b"ghu_",
    b"ghr_",
    b"github_pat_",
    b"glpat-",
    b"xoxb-",
    b"xoxp-",
    b"nvapi-",
    b"AIza",
    b"eyJ",
];
/// Schemes of authorization, in lower case: the value comes after.
const SCHEMES: [&[u8]; 5] = [b"bearer", b"basic", b"token", b"negotiate", b"ntlm"];
/// Those after which several values come.
const SCHEMES_OF_MANY: [&[u8]; 5] = [b"digest", b"aws4-hmac-sha256", b"hawk", b"oauth", b"signature"];
/// What stands where there is no value.
const NOTHING: [&[u8]; 4] = [b"None", b"null", b"nil", b"undefined"];

/// What is masked, or may be when the line goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// What tells of it begins here.
    pub(super) told_at: usize,
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) extent: Extent,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// It is a secret, and all of it.
    Whole,
    /// It is one, and goes on where the line does.
    Open,
    /// Only a line that goes on would have one.
    Awaited,
}

/// The spans of a line, in order.
#[derive(Debug)]
pub(super) struct Scan<'a> {
    line: &'a [u8],
    at: usize,
    /// We are behind a value in a list of them, that is told of here.
    list: Option<usize>,
}

/// What stands between a name and its value.
struct Between {
    end: usize,
    is_said: bool,
    is_list: bool,
}

impl Iterator for Scan<'_> {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        if let Some(span) = self.next_of_list() {
            return Some(span);
        }
        while let Some(&byte) = self.line.get(self.at) {
            let at = self.at;
            let found = if is_of_name(byte) {
                self.at += length_of(&self.line[at..], is_of_name);
                self.token(at).or_else(|| self.behind_name(at, self.at))
            } else if self.line[at..].starts_with(b"://") && at > 0 && is_of_word(self.line[at - 1]) {
                self.at += b"://".len();
                self.user_of_address(self.at)
            } else {
                self.at += 1;
                None
            };
            if let Some(span) = found {
                // What is only awaited may hold others.
                if span.extent != Extent::Awaited {
                    self.at = self.at.max(span.to);
                }
                return Some(span);
            }
        }
        None
    }
}

impl<'a> Scan<'a> {
    pub(super) fn of(line: &'a [u8]) -> Self {
        Self { line, at: 0, list: None }
    }

    /// Of a value without quotes. What ends it may be a part of it, by what follows.
    fn plain(&self, told_at: usize, (from, to): (usize, usize)) -> Span {
        let extent = if to + 1 < self.line.len() { Extent::Whole } else { Extent::Open };
        Span { told_at, from, to, extent }
    }

    /// Of the value that begins at `from`, behind `opened`: to its quote, where one was opened.
    fn value(&self, (told, told_at): (Told, usize), (opened, from): (usize, usize)) -> Span {
        let (line, is_quoted) = (self.line, self.line[..opened].last().is_some_and(|byte| is_quote(*byte)));
        let closing = if is_quoted { closing(line, (opened, from)) } else { None };
        let end = match (closing, told) {
            (Some(to), _) => return Span { told_at, from, to, extent: Extent::Whole },
            (None, Told::Rest) => line.len(),
            (None, _) => end_of_plain(line, from),
        };
        let plain = self.plain(told_at, (from, end));
        // Its quote may come.
        if is_quoted { Span { extent: Extent::Open, ..plain } } else { plain }
    }

    fn awaited(&self, told_at: usize) -> Span {
        Span { told_at, from: self.line.len(), to: self.line.len(), extent: Extent::Awaited }
    }

    /// A token in the name at `at` that is known by its first letters.
    fn token(&self, at: usize) -> Option<Span> {
        let name = &self.line[at..self.at];
        let begins = |n: usize| n == 0 || !is_of_word(name[n - 1]);
        let is_one = |n: &usize| begins(*n) && PREFIXES.iter().any(|prefix| name[*n..].starts_with(prefix));
        let from = at + (0..(name.len() + 1).saturating_sub(MIN_TOKEN)).find(is_one)?;
        Some(self.plain(from, (from, from + length_of(&self.line[from..], is_of_token))))
    }

    /// The value behind the name from `at` to `end`, when it is a secret.
    fn behind_name(&mut self, at: usize, end: usize) -> Option<Span> {
        let line = self.line;
        if let Some(told_at) = self.awaits_name(at, end) {
            return Some(self.awaited(told_at));
        }
        let (told, mut told_at) = self.told(at, end)?;
        let is_option = line[at] == b'-';
        let begins_list = list_before(line, at);
        if let Some(begin) = begins_list {
            told_at = told_at.min(begin);
        }
        let between = Between::read(line, end, is_option || begins_list.is_some());
        if between.end == line.len() {
            return Some(self.awaited(told_at));
        }
        // The label is told from the beginning of a longer word by what stands between.
        if between.end == end || !(told == Told::Label || between.is_said || is_option) {
            return None;
        }
        let (told, from) = self.behind_scheme(told, between.end);
        if from == line.len() {
            return Some(self.awaited(told_at));
        }
        if line[from..].starts_with(MASK) {
            return None;
        }
        // Engines show tokens of their own so; where it ends, nobody needs to know.
        if told == Told::SignAndLength && line[from] == b'<' {
            return None;
        }
        let span = self.value((told, told_at), (between.end, from));
        let value = &line[from..span.to];
        let is_secret = match told {
            Told::SignAndLength if !is_option => is_long_token(value),
            _ => !value.is_empty() && !NOTHING.contains(&value),
        };
        if !is_secret {
            return (span.extent == Extent::Open).then(|| self.awaited(told_at));
        }
        self.list = between.is_list.then_some(told_at);
        Some(span)
    }

    /// Where that begins which only tells of a secret with the rest of a name: the first word of two, the first of a list.
    fn awaits_name(&self, at: usize, end: usize) -> Option<usize> {
        let behind = self.line[end..].strip_prefix(b" ").filter(|behind| length_of(behind, is_of_name) == behind.len());
        match behind {
            Some(_) if is_first_word(&self.line[at..end]) => Some(at),
            None if end == self.line.len() => list_before(self.line, at),
            _ => None,
        }
    }

    /// What the name tells, by itself or with the word before it; and where that begins.
    fn told(&self, at: usize, end: usize) -> Option<(Told, usize)> {
        let name = &self.line[at..end];
        let before = self.line[..at].strip_suffix(b" ").unwrap_or_default();
        let n = before.iter().rev().take_while(|byte| is_of_word(**byte)).take(MIN_TOKEN).count();
        let first = &before[before.len() - n..];
        match told_by_two(first, name) {
            Some(told) => Some((told, before.len() - n)),
            None => told(name).map(|told| (told, at)),
        }
    }

    /// Past the scheme of an authorization that stands at `from`, if one does.
    fn behind_scheme(&self, told: Told, from: usize) -> (Told, usize) {
        let rest = &self.line[from..];
        let word = &rest[..length_of(rest, is_of_name)];
        let is_of = |known: &[&[u8]]| known.iter().any(|scheme| word.eq_ignore_ascii_case(scheme));
        let n_blanks = length_of(&rest[word.len()..], is_blank);
        let behind = from + word.len() + n_blanks;
        // With nothing behind it, it may be a value that is called so.
        if n_blanks == 0 || (behind < self.line.len() && is_quote(self.line[behind])) {
            (told, from)
        } else if is_of(&SCHEMES_OF_MANY) {
            (Told::Rest, behind)
        } else if is_of(&SCHEMES) {
            (told, behind)
        } else {
            (told, from)
        }
    }

    /// The name and password in the address whose host begins at `from`.
    fn user_of_address(&self, from: usize) -> Option<Span> {
        let authority = &self.line[from..from + length_of(&self.line[from..], is_of_authority)];
        match authority.iter().rposition(|byte| *byte == b'@') {
            Some(0) => None,
            Some(n) => Some(self.plain(from, (from, from + n))),
            None => (from + authority.len() == self.line.len()).then(|| self.awaited(from)),
        }
    }

    /// The next value of a list in which the last one was.
    fn next_of_list(&mut self) -> Option<Span> {
        let (line, told_at) = (self.line, self.list.take()?);
        loop {
            let rest = line.get(self.at..).filter(|rest| rest.first().is_some_and(|byte| is_quote(*byte)))?;
            let mut n = 1 + length_of(&rest[1..], is_blank);
            if rest.get(n) == Some(&b',') {
                n += 1 + length_of(&rest[n + 1..], is_blank);
            } else {
                return (n == rest.len()).then(|| self.awaited(told_at));
            }
            n += usize::from(is_mark(rest.get(n..).unwrap_or_default()));
            match rest.get(n) {
                None => return Some(self.awaited(told_at)),
                Some(byte) if is_quote(*byte) => {}
                Some(_) => return None,
            }
            let from = self.at + n + 1;
            let span = self.value((Told::Label, told_at), (from, from));
            self.at = span.to;
            if span.to > from && !line[from..].starts_with(MASK) {
                self.list = Some(told_at);
                return Some(span);
            }
            if span.extent == Extent::Open {
                return Some(self.awaited(told_at));
            }
        }
    }
}

impl Between {
    /// Reads from the end of a name. `may_list`: what it names may be the next item of a list.
    fn read(line: &[u8], name_end: usize, may_list: bool) -> Self {
        let mut between = Self { end: name_end, is_said: false, is_list: false };
        while let Some(&byte) = line.get(between.end) {
            let rest = &line[between.end..];
            let before = line[..between.end].last().copied().unwrap_or_default();
            let n = match byte {
                b'=' | b':' => {
                    between.is_said = true;
                    1
                }
                b',' if may_list && !between.is_said && is_quote(before) => {
                    between.is_said = true;
                    1
                }
                b'[' | b'(' if between.is_said && !rest.starts_with(MASK) => {
                    between.is_list = true;
                    1
                }
                b'>' if before == b'=' => 1,
                b'\\' if rest.get(1).is_some_and(|byte| is_quote(*byte)) => 1,
                _ if is_blank(byte) => 1,
                _ if is_quote(byte) => {
                    between.end += 1;
                    // It opens what is named; the other one closes the name.
                    if between.is_said || is_blank(before) {
                        break;
                    }
                    0
                }
                b'S' if between.is_said && rest.starts_with(b"Some(") => b"Some(".len(),
                _ if between.is_said && is_mark(rest) => 1,
                _ => break,
            };
            between.end += n;
        }
        between
    }
}

/// Where the list begins whose first item the name at `at` is: `('authorization', 'Basic …')`, `[b"x-api-key", …`.
pub(super) fn list_before(line: &[u8], at: usize) -> Option<usize> {
    let before = line[..at].strip_suffix(b"'").or_else(|| line[..at].strip_suffix(b"\""))?;
    let before = before.strip_suffix(b"b").unwrap_or(before);
    matches!(before.last(), Some(b'(' | b'[')).then(|| before.len() - 1)
}

/// Where, from `from` on, the quote closes that stands before `opened`, if it does here.
fn closing(line: &[u8], (opened, from): (usize, usize)) -> Option<usize> {
    let quote = *line[..opened].last()?;
    let is_escaped = line[..opened - 1].ends_with(b"\\");
    let mut at = from;
    while let Some(&byte) = line.get(at) {
        match byte {
            b'\\' if is_escaped && line.get(at + 1) == Some(&quote) => return Some(at),
            b'\\' if !is_escaped => at += 1,
            _ if byte == quote => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

/// Where a value ends that has no quotes: at a blank, or at what closes it or begins the next pair.
fn end_of_plain(line: &[u8], from: usize) -> usize {
    let ends = |at: &usize| {
        let behind = &line[*at + 1..];
        let is_last = behind.first().is_none_or(|byte| is_blank(*byte));
        match line[*at] {
            byte if is_blank(byte) => true,
            b'\\' => behind.first().is_some_and(|byte| is_quote(*byte)),
            byte if is_quote(byte) => behind.first().is_none_or(|byte| !is_of_word(*byte)),
            b',' | b';' => is_last || behind.first().is_some_and(|byte| is_quote(*byte)) || begins_pair(behind),
            b'&' => begins_pair(behind),
            b'[' => line[*at..].starts_with(MASK),
            b')' | b']' | b'}' => {
                is_last || behind.first().is_some_and(|byte| matches!(byte, b',' | b')' | b']' | b'}'))
            }
            _ => false,
        }
    };
    (from..line.len()).find(ends).unwrap_or(line.len())
}

/// Whether a name and its sign come.
fn begins_pair(text: &[u8]) -> bool {
    let n = length_of(text, |byte| is_of_name(byte) || byte == b'.');
    n > 0 && matches!(text.get(n), Some(b'=' | b':'))
}

/// Whether a value is too long for a token of an engine, and no sentence.
fn is_long_token(value: &[u8]) -> bool {
    value.len() >= MIN_TOKEN && !value.iter().any(|byte| is_blank(*byte))
}

/// Whether it is the letter before a quote in Python: `b'…'`.
fn is_mark(text: &[u8]) -> bool {
    matches!(text, [b'b' | b'r' | b'u', quote, ..] if is_quote(*quote))
}

fn length_of(bytes: &[u8], is_so: fn(u8) -> bool) -> usize {
    bytes.iter().position(|byte| !is_so(*byte)).unwrap_or(bytes.len())
}

fn is_of_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
}

fn is_of_name(byte: u8) -> bool {
    is_of_word(byte) || matches!(byte, b'-' | b'_')
}

pub(super) fn is_blank(byte: u8) -> bool {
    byte.is_ascii_whitespace()
}

pub(super) fn is_quote(byte: u8) -> bool {
    matches!(byte, b'"' | b'\'' | b'`')
}

/// The letters of base 64, of its form for addresses, and of tokens in parts.
fn is_of_token(byte: u8) -> bool {
    is_of_name(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'=')
}

/// Whatever may stand in an address before its path.
fn is_of_authority(byte: u8) -> bool {
    !(is_blank(byte) || is_quote(byte) || matches!(byte, b'/' | b'?' | b'#' | b'<' | b'>' | b'\\'))
}
