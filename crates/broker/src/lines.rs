//! [`Lines`]: the lines of a ledger, each found by its spawn at once and stored beside the others.
//!
//! A judgement looks at every line, some several times: a spawn is resolved to a [`LineId`] once, and what is added and
//! taken away lies apart from the claims.
use crate::charges::Weighed;
use motorpool_vocab::{Claim, Spawn};
use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
};

/// Where a line is, as long as it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LineId(u32);

/// A claim and the same in numbers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line {
    pub(crate) claim: Claim,
    pub(crate) weighed: Weighed,
}

/// At most one line for each spawn.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lines {
    index: HashMap<Spawn, u32, BuildHasherDefault<Numbered>>,
    claims: Vec<Claim>,
    weighed: Vec<Weighed>,
    free: Vec<u32>,
}

/// Spawns are numbered in order, so their numbers spread by themselves; nobody outside picks them.
#[derive(Clone, Copy, Debug, Default)]
struct Numbered(u64);

impl Hasher for Numbered {
    fn finish(&self) -> u64 {
        // The table takes the place from the low bits and tells neighbours apart by the high ones.
        self.0 ^ self.0 << 57
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(31).wrapping_add(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = n;
    }
}

impl Lines {
    pub(crate) fn find(&self, spawn: Spawn) -> Option<LineId> {
        self.index.get(&spawn).copied().map(LineId)
    }

    pub(crate) fn claim(&self, id: LineId) -> &Claim {
        &self.claims[id.0 as usize]
    }

    pub(crate) fn weighed(&self, id: LineId) -> &Weighed {
        &self.weighed[id.0 as usize]
    }

    /// Puts `line` in the place of the one before, which is given back.
    pub(crate) fn insert(&mut self, spawn: Spawn, line: Line) -> Option<Line> {
        let before = self.remove(spawn);
        let n = self.free.pop().unwrap_or_else(|| {
            self.claims.push(Claim::default());
            self.weighed.push(Weighed::default());
            // Children are processes: there are fewer of them.
            u32::try_from(self.claims.len() - 1).expect("B2: a line for each child")
        });
        (self.claims[n as usize], self.weighed[n as usize]) = (line.claim, line.weighed);
        self.index.insert(spawn, n);
        before
    }

    pub(crate) fn remove(&mut self, spawn: Spawn) -> Option<Line> {
        let n = self.index.remove(&spawn)?;
        self.free.push(n);
        let n = n as usize;
        Some(Line { claim: std::mem::take(&mut self.claims[n]), weighed: std::mem::take(&mut self.weighed[n]) })
    }

    /// Who has one, in order.
    pub(crate) fn spawns(&self) -> Vec<Spawn> {
        let mut all: Vec<_> = self.index.keys().copied().collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::Bytes;

    #[test]
    fn a_place_is_used_again_and_a_spawn_has_one_line() {
        let mut lines = Lines::default();
        let line = |mib| Line { claim: Claim::private(Bytes::mib(mib)), ..Line::default() };
        assert!(lines.insert(Spawn(7), line(1)).is_none());
        assert!(lines.insert(Spawn(u64::MAX), line(2)).is_none());
        assert_eq!(lines.insert(Spawn(7), line(3)).map(|line| line.claim), Some(line(1).claim));
        assert_eq!(lines.spawns(), [Spawn(7), Spawn(u64::MAX)]);
        assert!(lines.remove(Spawn(7)).is_some() && lines.find(Spawn(7)).is_none());
        assert!(lines.insert(Spawn(8), line(4)).is_none());
        assert_eq!(lines.claims.len(), 2);
        let found = lines.find(Spawn(8)).expect("a line");
        assert_eq!(*lines.claim(found), line(4).claim);
    }
}
