//! [`Denial`]: a refusal for want of capacity, with its arithmetic.
use crate::Excess;
use motorpool_vocab::{Bytes, EngineKey};
use std::fmt;

/// Why a build does not fit. `Display` is the contract's `<reason>`; [`Denial::prose`] is for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What was to be built.
    pub key: EngineKey,
    /// The bytes it asked for.
    pub requested: Bytes,
    /// What would have been committed against which bound.
    pub excess: Excess,
    /// What holds the memory, largest first.
    pub holders: Vec<(EngineKey, Bytes)>,
}

impl Denial {
    /// The reason in words: sizes in GiB, who holds what, what helps.
    pub fn prose(&self) -> String {
        let needs = format!("{} needs {}", self.key.model(), self.requested);
        let bound = self.excess.bound;
        if self.holders.is_empty() {
            return format!(
                "{needs}, more than the whole budget of {bound}. A smaller model or context, or a larger budget, helps."
            );
        }
        let held: Vec<_> = self.holders.iter().map(|(key, bytes)| format!("{} holds {bytes}", key.model())).collect();
        format!(
            "{needs} within a budget of {bound}; {} and cannot be unloaded. A larger budget, or unpinning one of them, helps.",
            held.join(", ")
        )
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Excess { would_commit, bound } = self.excess;
        write!(f, "budget exhausted: would commit {} against {}", would_commit.get(), bound.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(holders: Vec<(EngineKey, Bytes)>) -> Denial {
        let excess = Excess { would_commit: Bytes::gib(9), bound: Bytes::gib(8) };
        Denial { key: "llama-server:big:0".parse().expect("a key"), requested: Bytes::gib(9), excess, holders }
    }

    #[test]
    fn the_reason_is_the_contracts_line_with_plain_integers() {
        assert_eq!(denial(vec![]).to_string(), "budget exhausted: would commit 9663676416 against 8589934592");
    }

    #[test]
    fn people_read_gib_and_no_long_numbers() {
        let held = vec![("llama-server:pinned:0".parse().expect("a key"), Bytes::gib(4))];
        for prose in [denial(vec![]).prose(), denial(held).prose()] {
            assert!(prose.contains("needs 9.0 GiB") && prose.contains("8.0 GiB"), "{prose}");
            let longest = prose.split(|c: char| !c.is_ascii_digit()).map(str::len).max();
            assert!(longest < Some(10), "{prose}");
        }
    }
}
