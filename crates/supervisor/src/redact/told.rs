//! [`told`]: what the name before a value tells of it.

/// When what follows a name is a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Whatever stands between.
    Label,
    /// After `=` or `:`, and as the value of an option. In a sentence it is a word.
    Sign,
    /// The same, when it is long: engines number and show tokens of their own.
    SignAndLength,
    /// After `=` or `:` everything that follows is.
    Rest,
}

/// How names end that tell of a secret: in lower case, without `-` and `_`. The first that fits counts.
const NAMES: [(&[u8], Told); 28] = [
    (b"bearer", Told::Label),
    (b"apikey", Told::Label),
    (b"apitoken", Told::Label),
    (b"hftoken", Told::Label),
    (b"authtoken", Told::Label),
    (b"accesstoken", Told::Label),
    (b"privatekey", Told::Label),
    (b"refreshtoken", Told::Sign),
    (b"sessiontoken", Told::Sign),
    (b"securitytoken", Told::Sign),
    (b"bearertoken", Told::Sign),
    (b"token", Told::SignAndLength),
    (b"password", Told::Sign),
    (b"passwd", Told::Sign),
    (b"passphrase", Told::Sign),
    (b"pwd", Told::Sign),
    (b"secret", Told::Sign),
    (b"secretkey", Told::Sign),
    (b"accesskey", Told::Sign),
    (b"accesskeyid", Told::Sign),
    (b"accountkey", Told::Sign),
    (b"authkey", Told::Sign),
    (b"encryptionkey", Told::Sign),
    (b"signingkey", Told::Sign),
    (b"masterkey", Told::Sign),
    (b"credential", Told::Sign),
    (b"authorization", Told::Sign),
    (b"cookie", Told::Rest),
];
/// First words of names that people write in two: `API key`.
const FIRST_WORDS: [&[u8]; 9] =
    [b"api", b"access", b"secret", b"private", b"auth", b"hf", b"refresh", b"session", b"security"];
/// No name that tells of a secret is longer.
const LONGEST: usize = 24;

/// What `name` tells of what follows it: `AWS_SECRET_ACCESS_KEY`, `x-api-key`, `clientSecret`, `password2`.
pub(super) fn told(name: &[u8]) -> Option<Told> {
    let (letters, from) = letters(name);
    of_letters(&letters[from..])
}

/// What a name of two words tells.
pub(super) fn told_by_two(first: &[u8], second: &[u8]) -> Option<Told> {
    let is_second = ["key", "keys", "token"].iter().any(|word| second.eq_ignore_ascii_case(word.as_bytes()));
    if !is_second || !is_first_word(first) {
        return None;
    }
    // In a sentence both are words.
    told(&[first, second].concat()).map(|_| Told::Sign)
}

pub(super) fn is_first_word(word: &[u8]) -> bool {
    FIRST_WORDS.iter().any(|first| word.eq_ignore_ascii_case(first))
}

fn of_letters(word: &[u8]) -> Option<Told> {
    // Where the shell is, and was.
    if matches!(word, b"pwd" | b"oldpwd") {
        return None;
    }
    let of = |word: &[u8]| NAMES.iter().find(|(name, _)| word.ends_with(name)).map(|(_, told)| *told);
    let of_many = || {
        let one = word.strip_suffix(b"s")?;
        match of(one)? {
            // Tokens are counted, and bearers are people.
            Told::SignAndLength => None,
            Told::Label if one.ends_with(b"bearer") => None,
            Told::Rest => Some(Told::Rest),
            Told::Label | Told::Sign => Some(Told::Sign),
        }
    };
    of(word).or_else(of_many)
}

/// The last letters of a name in lower case, without what parts its words and without a number at its end.
fn letters(name: &[u8]) -> ([u8; LONGEST], usize) {
    let (mut letters, mut from) = ([0; LONGEST], LONGEST);
    let end = name.iter().rposition(u8::is_ascii_alphabetic).map_or(0, |at| at + 1);
    for byte in name[..end].iter().rev().filter(|byte| byte.is_ascii_alphanumeric()).take(LONGEST) {
        from -= 1;
        letters[from] = byte.to_ascii_lowercase();
    }
    (letters, from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_known_by_its_end_however_its_words_are_parted() {
        for name in [
            "AWS_SECRET_ACCESS_KEY",
            "secretAccessKey",
            "x-api-key",
            "OPENAI_API_KEYS",
            "PGPASSWORD",
            "MYSQL_PWD",
            "client_secret",
            "password2",
            "API_KEY_1",
            "credentials",
            "Proxy-Authorization",
            "--hf-token",
            "Set-Cookie",
        ] {
            assert!(told(name.as_bytes()).is_some(), "{name}");
        }
        for name in [
            "",
            "-",
            "123",
            "PWD",
            "OLDPWD",
            "tokens",
            "n_tokens",
            "key",
            "key_length",
            "api_key_file",
            "hf_token_path",
        ] {
            assert_eq!(told(name.as_bytes()), None, "{name}");
        }
        assert_eq!(told(b"eos_token"), Some(Told::SignAndLength));
        assert_eq!(told_by_two(b"API", b"key"), Some(Told::Sign));
        assert_eq!((told_by_two(b"EOS", b"token"), told_by_two(b"api", b"keyed")), (None, None));
    }
}
