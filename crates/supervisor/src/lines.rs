//! Output becomes lines, and the last of them are remembered.
use crate::redact::safe_cut;
use std::collections::VecDeque;

/// A longer line is cut here, so that one without end takes no memory.
pub(crate) const MAX_LINE: usize = 8 << 10;
/// So many bytes before its end, it is cut where no secret is cut.
const LOOK_BACK: usize = 2 << 10;

/// Cuts a stream into lines. A carriage return ends a line too (progress bars redraw with it), `\r\n` ends one.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    partial: Vec<u8>,
    after_return: bool,
}

impl Lines {
    /// Takes the next bytes; gives the lines that they complete, without their ends.
    pub(crate) fn feed(&mut self, bytes: &[u8], on_line: &mut dyn FnMut(&[u8])) {
        for &byte in bytes {
            let after_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if after_return => {}
                // A redraw begins with the return: what it ends is no line.
                b'\r' if self.partial.is_empty() => {}
                b'\n' | b'\r' => self.finish_line(on_line),
                _ => self.extend(byte, on_line),
            }
        }
    }

    /// The stream ended: what is left is a line.
    pub(crate) fn finish(&mut self, on_line: &mut dyn FnMut(&[u8])) {
        if !self.partial.is_empty() {
            self.finish_line(on_line);
        }
    }

    fn finish_line(&mut self, on_line: &mut dyn FnMut(&[u8])) {
        on_line(&self.partial);
        self.partial.clear();
    }

    fn extend(&mut self, byte: u8, on_line: &mut dyn FnMut(&[u8])) {
        // No character is torn: the cut waits for the first byte of the next one, four bytes at most.
        let continues = byte & 0b1100_0000 == 0b1000_0000;
        if self.partial.len() >= MAX_LINE && (!continues || self.partial.len() >= MAX_LINE + 4) {
            let end = self.partial.len();
            let cut = safe_cut(&self.partial, end - LOOK_BACK).unwrap_or(end);
            on_line(&self.partial[..cut]);
            self.partial.drain(..cut);
        }
        self.partial.push(byte);
    }
}

/// The last lines, in so many bytes; the oldest go first.
#[derive(Debug)]
pub(crate) struct Ring {
    /// Whole lines, each with its newline.
    bytes: VecDeque<u8>,
    limit: usize,
}

impl Ring {
    pub(crate) fn new(limit: usize) -> Self {
        Self { bytes: VecDeque::new(), limit }
    }

    /// Remembers one line; a line longer than the ring is not remembered.
    pub(crate) fn push(&mut self, line: &[u8]) {
        let n = line.len() + 1;
        if n > self.limit {
            return;
        }
        while self.bytes.len() + n > self.limit {
            let first = self.bytes.iter().position(|byte| *byte == b'\n').map_or(self.bytes.len(), |at| at + 1);
            self.bytes.drain(..first);
        }
        self.bytes.extend(line);
        self.bytes.push_back(b'\n');
    }

    /// The lines, oldest first.
    pub(crate) fn lines(&self) -> Vec<String> {
        let bytes: Vec<u8> = self.bytes.iter().copied().collect();
        let mut lines: Vec<String> = bytes.split(|byte| *byte == b'\n').map(lossy).collect();
        lines.pop();
        lines
    }
}

pub(crate) fn lossy(line: &[u8]) -> String {
    String::from_utf8_lossy(line).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn lines_of<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut lines = Lines::default();
        for chunk in chunks {
            lines.feed(chunk, &mut |line| found.push(line.to_vec()));
        }
        lines.finish(&mut |line| found.push(line.to_vec()));
        found
    }

    fn texts(input: &str) -> Vec<String> {
        lines_of([input.as_bytes()]).into_iter().map(|line| lossy(&line)).collect()
    }

    #[test]
    fn returns_and_newlines_end_lines() {
        assert_eq!(texts("a\nb\r\nc"), ["a", "b", "c"]);
        assert_eq!(texts("\r10%\r20%\r\n"), ["10%", "20%"]);
        assert_eq!(texts("a\n\nb\n"), ["a", "", "b"]);
        assert_eq!(texts(""), [""; 0]);
    }

    #[test]
    fn a_line_without_end_is_cut_between_characters() {
        let long = "é".repeat(MAX_LINE);
        let lines = texts(&long);
        assert!(lines.len() == 2 && lines.iter().all(|line| line.len() <= MAX_LINE + 4));
        assert_eq!(lines.concat(), long);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_does_not_matter(bytes in vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200), cut in 1usize..9) {
            prop_assert_eq!(lines_of(bytes.chunks(cut)), lines_of([bytes.as_slice()]));
        }

        #[test]
        fn the_ring_holds_the_newest_lines_that_fit(lines in vec("[a-z]{0,9}", 0..40), limit in 1usize..64) {
            let mut ring = Ring::new(limit);
            for line in &lines {
                ring.push(line.as_bytes());
            }
            let kept = ring.lines();
            prop_assert!(kept.iter().map(|line| line.len() + 1).sum::<usize>() <= limit);
            let short: Vec<&String> = lines.iter().filter(|line| line.len() < limit).collect();
            prop_assert!(short.iter().rev().zip(kept.iter().rev()).all(|(sent, found)| *sent == found));
            prop_assert!(!kept.is_empty() || short.is_empty());
        }
    }
}
