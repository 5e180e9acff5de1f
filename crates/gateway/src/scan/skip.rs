//! The two inner loops of the scan: to the end of a string, and to the end of a nested value.
use super::KINDS_CHECKED;

/// Where a skip stopped.
pub(super) struct End {
    /// The first byte not taken.
    pub(super) next: usize,
    /// Whether what was skipped ended just before it; else the chunk did.
    pub(super) closed: bool,
}

/// A position inside a string. Between chunks it remembers a backslash whose partner has not come.
#[derive(Debug, Default)]
pub(super) struct InString {
    after_backslash: bool,
}

impl InString {
    /// To behind the closing quote, or to the end of the chunk.
    pub(super) fn skip(&mut self, chunk: &[u8], from: usize) -> End {
        let mut next = from;
        loop {
            if self.after_backslash && next < chunk.len() {
                self.after_backslash = false;
                next += 1;
            }
            let Some(ahead) = next_in_string(&chunk[next..]) else {
                return End { next: chunk.len(), closed: false };
            };
            next += ahead + 1;
            if chunk[next - 1] == b'"' {
                return End { next, closed: true };
            }
            self.after_backslash = true;
        }
    }
}

/// A position inside nested arrays and objects: how deep, and the kinds of the outer brackets as bits.
#[derive(Debug, Default)]
pub(super) struct Nested {
    depth: u64,
    /// Bit n: the bracket at depth n is a `{`.
    kinds: u128,
    in_string: bool,
}

impl Nested {
    /// One bracket deeper.
    pub(super) fn open(&mut self, byte: u8) {
        if self.depth < u64::from(KINDS_CHECKED) {
            let bit = 1 << self.depth;
            self.kinds = if byte == b'{' { self.kinds | bit } else { self.kinds & !bit };
        }
        self.depth += 1;
    }

    /// To behind the bracket that closes the value, or to the end of the chunk; `Err` is the index of a closing bracket of
    /// the other kind.
    pub(super) fn skip(&mut self, chunk: &[u8], from: usize, string: &mut InString) -> Result<End, usize> {
        let mut next = from;
        loop {
            if self.in_string {
                let end = string.skip(chunk, next);
                self.in_string = !end.closed;
                next = end.next;
            }
            let Some(ahead) = next_mark(&chunk[next..]) else {
                return Ok(End { next: chunk.len(), closed: false });
            };
            let mark = next + ahead;
            next = mark + 1;
            match chunk[mark] {
                b'"' => self.in_string = true,
                open @ (b'{' | b'[') => self.open(open),
                close => {
                    if !self.close(close) {
                        return Err(mark);
                    }
                    if self.depth == 0 {
                        return Ok(End { next, closed: true });
                    }
                }
            }
        }
    }

    fn close(&mut self, byte: u8) -> bool {
        self.depth -= 1;
        self.depth >= u64::from(KINDS_CHECKED) || ((self.kinds >> self.depth) & 1 == 1) == (byte == b'}')
    }
}

const fn is_mark(byte: u8) -> bool {
    matches!(byte, b'"' | b'{' | b'}' | b'[' | b']')
}

/// Words looked at before vector code is called: in ordinary JSON the next mark is near, and a call costs more.
const NEAR_WORDS: usize = 4;
const BLOCK: usize = 64;

/// The first quote or backslash.
fn next_in_string(text: &[u8]) -> Option<usize> {
    let marks = |word: u64| equal_bytes(word, b'"') | equal_bytes(word, b'\\');
    match near(text, marks) {
        Ok(found) => Some(found),
        Err(passed) => memchr::memchr2(b'"', b'\\', &text[passed..]).map(|n| passed + n),
    }
}

/// The first quote or bracket. Long runs without any (arrays of numbers) are passed in blocks that the compiler turns into
/// vector code; `memchr` knows three needles at most.
fn next_mark(text: &[u8]) -> Option<usize> {
    // Bit 5 apart, `{` is `[` and `}` is `]`.
    let marks = |word: u64| {
        let folded = word | repeated(0x20);
        equal_bytes(word, b'"') | equal_bytes(folded, b'{') | equal_bytes(folded, b'}')
    };
    let passed = match near(text, marks) {
        Ok(found) => return Some(found),
        Err(passed) => passed,
    };
    let blocks = text[passed..].chunks_exact(BLOCK);
    let bare = blocks.take_while(|block| !block.iter().fold(false, |any, b| any | is_mark(*b))).count();
    let rest = passed + bare * BLOCK;
    text[rest..].iter().position(|b| is_mark(*b)).map(|n| rest + n)
}

/// The first mark in the first words, or how many bytes have none.
fn near(text: &[u8], marks: impl Fn(u64) -> u64) -> Result<usize, usize> {
    let (words, _) = text.as_chunks::<8>();
    let words = &words[..words.len().min(NEAR_WORDS)];
    for (n, word) in words.iter().enumerate() {
        let found = marks(u64::from_le_bytes(*word));
        if found != 0 {
            return Ok(n * 8 + found.trailing_zeros() as usize / 8);
        }
    }
    Err(words.len() * 8)
}

const fn repeated(byte: u8) -> u64 {
    byte as u64 * 0x0101_0101_0101_0101
}

/// The high bit of each byte that equals `byte`. Exact up to the lowest such byte, which is all that is used.
const fn equal_bytes(word: u64, byte: u8) -> u64 {
    let differing = word ^ repeated(byte);
    differing.wrapping_sub(repeated(0x01)) & !differing & repeated(0x80)
}
