//! [`Nonce`]: the mark that every process of one engine's tree carries in its environment.
use std::{
    fs::File,
    io::{self, Read as _},
};

/// The variable that holds it.
pub(crate) const VARIABLE: &str = "MOTORPOOL_NONCE";

/// 128 random bits: who holds them was started by us, whatever its process id and parent have become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nonce(String);

impl Nonce {
    /// A new one.
    pub(crate) fn draw() -> io::Result<Self> {
        let mut bytes = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(bytes))))
    }

    /// One that was drawn before: 32 lowercase hexadecimal digits, since a weaker mark would match others' processes.
    pub(crate) fn of(text: &str) -> Option<Self> {
        let drawn = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        drawn.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// The environment entry, `NAME=value`.
    pub(crate) fn entry(&self) -> String {
        format!("{VARIABLE}={}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nonce_is_another_and_is_read_back() {
        let nonce = Nonce::draw().expect("random bits");
        assert_ne!(nonce, Nonce::draw().expect("random bits"));
        assert_eq!(Nonce::of(nonce.as_str()), Some(nonce));
    }

    #[test]
    fn a_weak_mark_is_none() {
        for text in ["", "0", &"g".repeat(32), &"0".repeat(31), &"A".repeat(32)] {
            assert_eq!(Nonce::of(text), None, "{text}");
        }
    }
}
