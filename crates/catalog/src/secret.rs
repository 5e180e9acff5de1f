//! [`Secret`]: a text that is nobody's to see.
use serde::{Serialize, Serializer};
use std::{borrow::Cow, fmt};

/// What stands where a secret is.
const HIDDEN: &str = "(hidden)";

/// A text that is used and never shown: neither for debugging nor in what is written for people or programs.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text, for its use.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HIDDEN)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, writer: S) -> Result<S::Ok, S::Error> {
        writer.serialize_str(HIDDEN)
    }
}

/// `text` with everything that stands between the `://` of an address and its last `@` covered, letter by letter: that is a
/// name and a password. Columns stay where they are.
///
/// A password that should have been written with `%2F` ends an address early for whoever reads it as the rule is, and is
/// a password all the same: as soon as a colon comes before an `@`, more is covered rather than less.
pub fn without_userinfo(text: &str) -> Cow<'_, str> {
    let mut rest = text;
    let mut covered = String::new();
    while let Some(at) = rest.find("://") {
        let (before, behind) = rest.split_at(at + "://".len());
        covered.push_str(before);
        // It ends where its quotes or the next word begin.
        let ends = |c: char| matches!(c, '"' | '`') || c.is_whitespace();
        let address = &behind[..behind.find(ends).unwrap_or(behind.len())];
        let authority = &address[..address.find(['/', '?', '#']).unwrap_or(address.len())];
        let before_at = |text: &'_ str| text.rfind('@').unwrap_or(0);
        let whole = &address[..before_at(address)];
        let userinfo = if whole.contains(':') { whole } else { &authority[..before_at(authority)] };
        covered.extend(userinfo.chars().map(|_| '*'));
        rest = &behind[userinfo.len()..];
    }
    if covered.is_empty() { Cow::Borrowed(text) } else { Cow::Owned(covered + rest) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_address_name_and_password_are_covered() {
        for (text, shown) in [
            ("url = \"http://me:hunter2@host:1/v1\"", "url = \"http://**********@host:1/v1\""),
            ("`https://me@host` and https://пà:ß@[::1]/?a=b", "`https://**@host` and https://****@[::1]/?a=b"),
            ("'http://me:a/b@host/v1' and", "'http://******@host/v1' and"),
            ("http://me:a#b@host", "http://******@host"),
            ("http://me:12?b@host, http://me:a'b@host", "http://*******@host, http://******@host"),
            ("http://m/e:p@ss/x@host", "http://**********@host"),
            ("http://host/of@1.2/file and http://me@host/a@b", "http://host/of@1.2/file and http://**@host/a@b"),
            ("http://a:p@ss@host", "http://******@host"),
            ("http://host/@mine", "http://host/@mine"),
            ("mail me@host; ://", "mail me@host; ://"),
            ("", ""),
        ] {
            assert_eq!(without_userinfo(text), shown);
        }
    }

    #[test]
    fn a_secret_is_used_and_not_shown() {
        let secret = Secret::new("hunter2");
        assert_eq!(secret.reveal(), "hunter2");
        assert_eq!((format!("{secret:?}"), serde_json::json!(secret)), (HIDDEN.into(), serde_json::json!(HIDDEN)));
    }
}
