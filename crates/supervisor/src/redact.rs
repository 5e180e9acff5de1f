//! Secrets do not stay in what an engine prints: their values become [`MASK`] before a line is kept or passed on.
//!
//! Boundary: one pass over one line, without a regular expression, for the keeper's sake; what is kept of incidents goes
//! through it too. A value is what follows `bearer`, `api_key`, `--auth-token`, `password=` and the like, or a token that
//! says by its first letters what it is (`hf_`, `sk-`). Lines are whole when they come here, however the pipe cut them; one
//! that is too long was cut beside secrets, unless one of more than 2 KiB is there.
use std::borrow::Cow;

/// What stands for a secret.
const MASK: &[u8] = b"[redacted]";
/// A shorter value is a word, not a secret: `sk-learn` is none.
const MIN_TOKEN: usize = 13;
/// What a value follows, in lower case.
const LABELS: [(&[u8], Told); 19] = [
    (b"bearer", Told::Label),
    (b"api_key", Told::Label),
    (b"api-key", Told::Label),
    (b"apikey", Told::Label),
    (b"api_token", Told::Label),
    (b"api-token", Told::Label),
    (b"hf_token", Told::Label),
    (b"hf-token", Told::Label),
    (b"auth_token", Told::Label),
    (b"auth-token", Told::Label),
    (b"access_token", Told::Label),
    (b"access-token", Told::Label),
    (b"private_key", Told::Label),
    (b"private-key", Told::Label),
    (b"password", Told::Sign),
    (b"passwd", Told::Sign),
    (b"secret", Told::Sign),
    (b"authorization", Told::Sign),
    (b"token", Told::SignAndLength),
];
/// Schemes of authorization, in lower case: the value comes after.
const SCHEMES: [&[u8]; 3] = [b"bearer", b"basic", b"token"];
/// How tokens begin that are known by that.
const PREFIXES: [&[u8]; 6] = [b"hf_", b"sk-", b"sk_", b"ghp_", b"gho_", b"github_pat_"];

/// When what follows a label is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Whatever stands between.
    Label,
    /// After `=` or `:`, and as the value of an option. In a sentence it is a word.
    Sign,
    /// The same, when it is long: engines number and show tokens of their own.
    SignAndLength,
}

/// The line without its secrets.
pub(crate) fn redacted(line: &[u8]) -> Cow<'_, [u8]> {
    let mut kept = Vec::new();
    let (mut at, mut copied) = (0, 0);
    while at < line.len() {
        let begins_word = at == 0 || !is_of_word(line[at - 1]);
        let Some((from, to)) = begins_word.then(|| secret_at(line, at)).flatten() else {
            at += 1;
            continue;
        };
        kept.extend_from_slice(&line[copied..from]);
        kept.extend_from_slice(MASK);
        (at, copied) = (to, to);
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    kept.extend_from_slice(&line[copied..]);
    Cow::Owned(kept)
}

/// Whether a line that is cut after `before` has no secret, and no label of one, on both sides of the cut.
pub(crate) fn is_safe_cut(before: &[u8]) -> bool {
    let is_end = |byte: &u8| !is_of_value(*byte);
    let word = &before[..before.iter().rposition(|byte| !is_between(*byte)).map_or(0, |at| at + 1)];
    let ends_in = |label: &[u8]| {
        let from = word.len().checked_sub(label.len());
        from.is_some_and(|from| word[from..].eq_ignore_ascii_case(label))
    };
    let mut labels = LABELS.iter().map(|(label, _)| *label).chain(SCHEMES);
    before.last().is_some_and(is_end) && !labels.any(ends_in)
}

/// Where the secret is that the word at `at` is or tells of.
fn secret_at(line: &[u8], at: usize) -> Option<(usize, usize)> {
    let rest = &line[at..];
    if PREFIXES.iter().any(|prefix| rest.starts_with(prefix)) && length_of(rest, is_of_name) >= MIN_TOKEN {
        return Some((at, at + length_of(rest, is_of_token)));
    }
    let begins = |label: &[u8]| rest.get(..label.len()).is_some_and(|word| word.eq_ignore_ascii_case(label));
    let (label, told) = LABELS.iter().find(|(label, _)| begins(label))?;
    let after = at + label.len();
    let mut from = after + length_of(&line[after..], is_between);
    let between = &line[after..from];
    // The label is told from the beginning of a longer word by what stands between.
    if between.is_empty() {
        return None;
    }
    let is_said = between.iter().any(|byte| matches!(byte, b'=' | b':')) || is_option(line, at);
    let (is_value, least): (fn(u8) -> bool, usize) = match told {
        Told::Label => (is_of_token, 1),
        Told::Sign if is_said => (is_of_value, 1),
        Told::SignAndLength if is_option(line, at) => (is_of_value, 1),
        Told::SignAndLength if is_said => (is_of_value, MIN_TOKEN),
        Told::Sign | Told::SignAndLength => return None,
    };
    let scheme = &line[from..from + length_of(&line[from..], is_of_word)];
    if SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        from += scheme.len() + length_of(&line[from + scheme.len()..], is_between);
    }
    let n = length_of(&line[from..], is_value);
    (n >= least).then_some((from, from + n))
}

/// Whether the word at `at` is of an option's name: `--admin-password`.
fn is_option(line: &[u8], at: usize) -> bool {
    let n = line[..at].iter().rev().position(|byte| !is_of_name(*byte)).unwrap_or(at);
    line[at - n..at].starts_with(b"--")
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

fn is_between(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'=' | b':' | b'"' | b'\'')
}

/// Whatever does not end a value that somebody chose.
fn is_of_value(byte: u8) -> bool {
    !matches!(byte, b' ' | b'\t' | b'"' | b'\'' | b',' | b'&')
}

/// The letters of base 64, of its form for addresses, and of tokens in parts.
fn is_of_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'+' | b'/' | b'=')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lines::{Lines, MAX_LINE, lossy};
    use proptest::prelude::*;

    fn clean(line: &str) -> String {
        lossy(&redacted(line.as_bytes()))
    }

    #[test]
    fn values_of_keys_and_tokens_are_masked_and_what_stands_around_them_is_not() {
        let token = "abcDEF0123456789xyz";
        for (line, shown) in [
            (format!("Authorization: Bearer {token}, next"), "Authorization: Bearer [redacted], next"),
            (format!("authorization: bearer {token}"), "authorization: bearer [redacted]"),
            ("GET /?api_key=short&x=1".into(), "GET /?api_key=[redacted]&x=1"),
            (format!("{{\"api-key\": \"{token}\"}}"), "{\"api-key\": \"[redacted]\"}"),
            (format!("LLAMA_API_KEY={token}"), "LLAMA_API_KEY=[redacted]"),
            (format!("HF_TOKEN=hf_{token}"), "HF_TOKEN=[redacted]"),
            ("hf_token=short".into(), "hf_token=[redacted]"),
            (format!("with hf_{token} and sk-{token}."), "with [redacted] and [redacted]"),
            (format!("pushed by ghp_{token}"), "pushed by [redacted]"),
            ("--auth-token hush --port 1".into(), "--auth-token [redacted] --port 1"),
            ("--admin-password=hu!sh#1 x".into(), "--admin-password=[redacted] x"),
            ("password: hu%sh".into(), "password: [redacted]"),
            ("DB_PASSWORD='hu sh'".into(), "DB_PASSWORD='[redacted] sh'"),
            ("{\"client_secret\":\"hush\"}".into(), "{\"client_secret\":\"[redacted]\"}"),
            ("authorization: Basic aHVzaA==".into(), "authorization: Basic [redacted]"),
            (format!("GITHUB_TOKEN={token}"), "GITHUB_TOKEN=[redacted]"),
        ] {
            assert_eq!(clean(&line), shown);
        }
    }

    #[test]
    fn words_that_only_look_alike_stay() {
        for line in [
            "",
            "sk-learn",
            "task-0123456789abcdef01",
            "hf_hub",
            "bearer",
            "api_key",
            "bearers of news",
            "é bearer",
            "EOS token = 2",
            "loaded 32 tokens",
            "n_tokens = 12",
            "the password is wrong",
            "a secret place",
            "token: '<s>'",
            "no authorization header",
        ] {
            assert_eq!(clean(line), line);
        }
    }

    proptest! {
        #[test]
        fn no_secret_passes_however_the_pipe_cuts_it(cut in 1usize..40, before in "[ -~]{0,20}") {
            let secret = "sk-0123456789abcdef0123";
            let text = format!("{before}\nkey {secret} end\n");
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            for chunk in text.as_bytes().chunks(cut) {
                lines.feed(chunk, &mut |line| out.push(lossy(&redacted(line))));
            }
            prop_assert_eq!(out.last().map(String::as_str), Some("key [redacted] end"));
        }

        #[test]
        fn no_secret_passes_where_a_line_is_cut_for_its_length(n in MAX_LINE - 80..MAX_LINE + 8, secret in prop_oneof![
            Just("sk-0123456789abcdef0123"), Just("Authorization: Bearer 0123456789abcdef"), Just("{\"api-key\": \"0123456789\"}"),
        ]) {
            let text = format!("{} {secret} {}\n", "word ".repeat(n / 5), "more ".repeat(MAX_LINE));
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            lines.feed(text.as_bytes(), &mut |line| out.push(lossy(&redacted(line))));
            let out = out.concat();
            prop_assert!(!out.contains("0123") && out.contains("[redacted]"), "{}", secret);
            prop_assert_eq!(out.matches("word ").count() + out.matches("more ").count(), n / 5 + MAX_LINE, "nothing else is lost");
        }

        #[test]
        fn any_line_is_taken(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let once = redacted(&line).into_owned();
            prop_assert!(once.len() <= line.len() * MASK.len() + MASK.len());
        }
    }
}
