//! Secrets do not stay in what an engine prints: their values become [`MASK`] before a line is kept or passed on.
//!
//! Boundary: one pass over one line, without a regular expression, for the keeper's sake; what is kept of incidents goes
//! through it too. A value is what a name tells of (`bearer`, `api_key`, `--auth-token`, `password=`, however it is parted and
//! whatever stands before it), a token that says by its first letters what it is (`hf_`, `sk-`), and the name and password
//! in an address. Lines are whole when they come here, however the pipe cut them; one that is too long was cut beside
//! secrets, unless one of more than 2 KiB is there.
mod scan;
mod told;

use scan::{Extent, Scan, is_blank, is_quote, list_before};
use std::borrow::Cow;

/// What stands for a secret.
const MASK: &[u8] = b"[redacted]";

/// The line without its secrets.
pub(crate) fn redacted(line: &[u8]) -> Cow<'_, [u8]> {
    let (mut kept, mut copied) = (Vec::new(), 0);
    for span in Scan::of(line).filter(|span| span.extent != Extent::Awaited) {
        kept.extend_from_slice(&line[copied..span.from]);
        kept.extend_from_slice(MASK);
        copied = span.to;
    }
    if copied == 0 {
        return Cow::Borrowed(line);
    }
    kept.extend_from_slice(&line[copied..]);
    Cow::Owned(kept)
}

/// The last place from `least` on where a line that goes on can be cut: no secret, and no name of one, is on both sides.
pub(crate) fn safe_cut(line: &[u8], least: usize) -> Option<usize> {
    let (mut most, mut whole) = (line.len(), Vec::new());
    for span in Scan::of(line) {
        match span.extent {
            Extent::Whole => whole.push((span.told_at, span.to)),
            Extent::Open | Extent::Awaited => most = most.min(span.told_at),
        }
    }
    let parts = |byte: u8| is_blank(byte) || is_quote(byte) || matches!(byte, b',' | b'&');
    let mut is_safe = |at: &usize| {
        while whole.pop_if(|(told_at, _)| *told_at >= *at).is_some() {}
        // The first name in a list may be told of by that.
        let is_between = parts(line[at - 1]) && list_before(line, *at).is_none();
        is_between && whole.last().is_none_or(|(_, to)| *to <= *at)
    };
    (least.max(1)..=most).rev().find(&mut is_safe)
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
            ("DB_PASSWORD='hu sh'".into(), "DB_PASSWORD='[redacted]'"),
            ("{\"client_secret\":\"hush\"}".into(), "{\"client_secret\":\"[redacted]\"}"),
            ("authorization: Basic aHVzaA==".into(), "authorization: Basic [redacted]"),
            (format!("GITHUB_TOKEN={token}"), "GITHUB_TOKEN=[redacted]"),
            // Names.
            ("secret_key=hush".into(), "secret_key=[redacted]"),
            ("access_key: hush".into(), "access_key: [redacted]"),
            ("aws_secret_access_key = hu/sh+".into(), "aws_secret_access_key = [redacted]"),
            ("awsSecretAccessKey=hush PGPASSWORD=hush".into(), "awsSecretAccessKey=[redacted] PGPASSWORD=[redacted]"),
            ("MYSQL_PWD=hush PWD=/home".into(), "MYSQL_PWD=[redacted] PWD=/home"),
            (
                "AccountName=a;AccountKey=hush==;EndpointSuffix=b".into(),
                "AccountName=a;AccountKey=[redacted];EndpointSuffix=b",
            ),
            ("API key: hush".into(), "API key: [redacted]"),
            ("the session token = hush".into(), "the session token = [redacted]"),
            ("Cookie: a=hush; b=hush".into(), "Cookie: [redacted]"),
            ("pushed with glpat-0123456789abcdefghij".into(), "pushed with [redacted]"),
            // Values.
            ("api_key=hu!sh@x end".into(), "api_key=[redacted] end"),
            ("password=a,b&c;d next".into(), "password=[redacted] next"),
            ("password=a'b\"c".into(), "password=[redacted]"),
            ("user=u, password=hush, x=1".into(), "user=u, password=[redacted], x=1"),
            (
                "Settings(api_key=hush, port=1) (token=0123456789abcdef)".into(),
                "Settings(api_key=[redacted], port=1) (token=[redacted])",
            ),
            ("api_key=None, password=null".into(), "api_key=None, password=null"),
            ("password='' user=x".into(), "password='' user=x"),
            ("password: Some(\"hu sh\")".into(), "password: Some(\"[redacted]\")"),
            ("secret => 'hush'".into(), "secret => '[redacted]'"),
            // Lists of arguments and of headers.
            ("['--api-key', 'hu sh', '--port', '1']".into(), "['--api-key', '[redacted]', '--port', '1']"),
            ("[\"--token\",\"hush\"]".into(), "[\"--token\",\"[redacted]\"]"),
            ("\"--api-key\" \"hush\" \"--port\" \"1\"".into(), "\"--api-key\" \"[redacted]\" \"--port\" \"1\""),
            ("['--api-key=hush', 'x']".into(), "['--api-key=[redacted]', 'x']"),
            (
                "{'api_key': ['hush', 'shush'], 'n': ['a', 'b']}".into(),
                "{'api_key': ['[redacted]', '[redacted]'], 'n': ['a', 'b']}",
            ),
            (
                "[(b'authorization', b'Basic aHVzaA=='), (b'accept', b'x')]".into(),
                "[(b'authorization', b'Basic [redacted]'), (b'accept', b'x')]",
            ),
            ("{b'x-api-key': b'hush'}".into(), "{b'x-api-key': b'[redacted]'}"),
            // JSON, also in JSON.
            ("{\"api_key\": \"hu\\\"sh\", \"n\": 1}".into(), "{\"api_key\": \"[redacted]\", \"n\": 1}"),
            (
                "{\\\"api_key\\\": \\\"hush\\\", \\\"n\\\": 1}".into(),
                "{\\\"api_key\\\": \\\"[redacted]\\\", \\\"n\\\": 1}",
            ),
            // Schemes.
            (
                "\"Authorization\": \"Digest username=\\\"u\\\", response=\\\"hush\\\"\", x".into(),
                "\"Authorization\": \"Digest [redacted]\", x",
            ),
            (
                "Proxy-Authorization: AWS4-HMAC-SHA256 Credential=hush, Signature=hush".into(),
                "Proxy-Authorization: AWS4-HMAC-SHA256 [redacted]",
            ),
            ("password: basic".into(), "password: [redacted]"),
            // Addresses.
            ("GET https://user:pa@ss@host:1/x@y?z".into(), "GET https://[redacted]@host:1/x@y?z"),
            ("redis://:hush@host, http://token@host".into(), "redis://[redacted]@host, http://[redacted]@host"),
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
            "tokens=512",
            "n_tokens: 12, api_tokens_used = 1234567890123",
            "key_length=128",
            "<|endoftext|> token = 2",
            "print_info: EOS token        = 151645 '<|im_end|>'",
            "eos_token: <|endoftext|> eos_token='<|end_of_sentence|>'",
            "load: special tokens cache size = 3",
            "load: token to piece cache size = 0.0032 MB",
            "token: 'a piece of some text'",
            "prompt eval time = 1.00 ms / 12 tokens ( 0.08 ms per token, 12000.00 tokens per second)",
            "secret: [redacted], Authorization: Basic [redacted]",
            "--api-key-file /run/keys --hf-token-path=/x",
            "{\"required\": [\"model\", \"api_key\"]}",
            "http://127.0.0.1:8080/v1/models@x mail a@b.c",
            "keyboard: us, monkey=1, PWD=/home",
        ] {
            assert_eq!(clean(line), line);
        }
    }

    const TOLD: [&str; 13] = [
        "{\"password\": \"0123456789\"}",
        "sk-0123456789abcdef0123",
        "Authorization: Bearer 0123456789abcdef",
        "{\"api-key\": \"0123456789\"}",
        "['--api-key', '0123456789']",
        "secret='0123 0123'",
        "API key: 0123456789",
        "http://u:0123456789@h",
        "(b'authorization', b'Basic 0123456789')",
        "api_key=['0123', '0123']",
        "token: 0123456789abcdef",
        "password=a,0123&0123;0123",
        "cookie: a=0123; b=0123",
    ];

    #[test]
    fn wherever_a_line_would_be_cut_that_goes_on_no_secret_is_on_both_sides() {
        for told in TOLD {
            let text = format!("a word, {told} and more words");
            for end in 1..text.len() {
                let Some(cut) = safe_cut(&text.as_bytes()[..end], 1) else { continue };
                let shown = [clean(&text[..cut]), clean(&text[cut..])].concat();
                assert!(!shown.contains("0123"), "{shown:?}: cut at {cut} of {end}");
            }
            let all = text.len();
            assert!(
                safe_cut(text.as_bytes(), 1).is_some_and(|cut| told.starts_with("cookie") || cut > all - 10),
                "{told}"
            );
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
        fn no_secret_passes_where_a_line_is_cut_for_its_length(n in MAX_LINE - 80..MAX_LINE + 8, secret in proptest::sample::select(&TOLD[..11])) {
            let text = format!("{} {secret} {}\n", "word ".repeat(n / 5), "more ".repeat(MAX_LINE));
            let (mut lines, mut out) = (Lines::default(), Vec::new());
            lines.feed(text.as_bytes(), &mut |line| out.push(lossy(&redacted(line))));
            let out = out.concat();
            prop_assert!(!out.contains("0123") && out.contains("[redacted]"), "{}", secret);
            prop_assert_eq!(out.matches("word ").count() + out.matches("more ").count(), n / 5 + MAX_LINE, "nothing else is lost");
        }

        #[test]
        fn whatever_a_secret_holds_and_however_it_is_told_it_does_not_pass(
            secret in "[!#-&*-+./0-9:<-Z^_a-z|~-]{14,40}",
            (before, behind) in prop_oneof![
                Just(("api_key=", " end")), Just(("x: --password ", " --end")), Just(("['--api-key', '", "', 'end']")),
                Just(("{\"client_secret\": \"", "\", \"end\": 1}")), Just(("HF_TOKEN='", "' end")), Just(("Authorization: Basic ", " end")),
                Just(("{\\\"password\\\":\\\"", "\\\"} end")), Just(("MY_TOKEN=", ", end=1")), Just(("the API key: \"", "\" end")),
            ],
        ) {
            // What stands for nothing, opens a list or begins a pair is no secret.
            let secret = format!("0{}9", secret.replace(['&', '<', '=', ':', '['], "x"));
            let shown = clean(&format!("say {before}{secret}{behind}"));
            prop_assert_eq!(shown, format!("say {before}[redacted]{behind}"));
        }

        #[test]
        fn what_is_masked_is_masked_for_good(words in proptest::collection::vec(prop_oneof![
            Just("api_key"), Just("token"), Just("Authorization"), Just("bearer"), Just("Basic"), Just("Digest"), Just("--password"), Just("="),
            Just(": "), Just(" "), Just("'"), Just("\""), Just("\\"), Just(", "), Just("["), Just("]"), Just("("), Just("://"), Just("@"),
            Just("hush"), Just(" sk-0123456789abcdef"), Just("[redacted]"), Just("&"), Just("cookie"), Just("b"),
        ], 0..24)) {
            let once = clean(&words.concat());
            prop_assert!(!once.contains("sk-0123456789abcdef"), "{}", once);
            prop_assert_eq!(clean(&once), once);
        }

        #[test]
        fn any_line_is_taken(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let once = redacted(&line).into_owned();
            prop_assert!(once.len() <= line.len() * MASK.len() + MASK.len());
        }
    }
}
