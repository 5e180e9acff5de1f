//! [`Scan`]: a header's bytes in order, every step checked against the file's length and the header limit.
use crate::{GgufError, limits};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom};

/// The little-endian reader under everything else. Nothing is read, skipped or allocated before `need` allows it.
pub(crate) struct Scan<R> {
    input: BufReader<R>,
    at: u64,
    file_len: u64,
}

impl<R: Read + Seek> Scan<R> {
    /// Starts at the first byte of a file of `file_len` bytes.
    pub(crate) fn new(mut reader: R, file_len: u64) -> Result<Self, GgufError> {
        reader.seek(SeekFrom::Start(0)).map_err(|source| GgufError::Io { at: 0, source })?;
        Ok(Self { input: BufReader::with_capacity(64 << 10, reader), at: 0, file_len })
    }

    /// The offset of the next byte.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Whether `n` items of at least `each` bytes can follow: the check before a loop that a number in the file drives.
    pub(crate) fn need_items(&self, n: u64, each: u64, what: &'static str) -> Result<(), GgufError> {
        self.need(n.saturating_mul(each), what)
    }

    /// Whether `n` bytes can follow.
    pub(crate) fn need(&self, n: u64, what: &'static str) -> Result<(), GgufError> {
        // `at` never passes `file_len`: it only moves behind this check.
        if n > self.file_len.saturating_sub(self.at) {
            return Err(GgufError::Truncated { what, at: self.at });
        }
        let end = self.at.saturating_add(n);
        if end > limits::HEADER {
            return Err(GgufError::TooMany { what: "header bytes", at: self.at, found: end, most: limits::HEADER });
        }
        Ok(())
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], GgufError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// The next four bytes as a number.
    pub(crate) fn u32(&mut self, what: &'static str) -> Result<u32, GgufError> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    pub(crate) fn u64(&mut self, what: &'static str) -> Result<u64, GgufError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next `n` bytes, at most `most`: the caller bounds what may be allocated.
    pub(crate) fn bytes(&mut self, n: u64, most: u64, what: &'static str) -> Result<Vec<u8>, GgufError> {
        self.need(n, what)?;
        let at = self.at;
        let too_many = || GgufError::TooMany { what: "bytes of text", at, found: n, most };
        let len = usize::try_from(n).ok().filter(|_| n <= most).ok_or_else(too_many)?;
        let mut bytes = vec![0; len];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// A name: its length, then that many bytes of UTF-8 without a zero, at most `most`.
    pub(crate) fn name(&mut self, most: u64, what: &'static str) -> Result<String, GgufError> {
        let at = self.at;
        let len = self.u64(what)?;
        let bytes = self.bytes(len, most, what)?;
        match String::from_utf8(bytes) {
            Ok(text) if !text.is_empty() && !text.contains('\0') => Ok(text),
            _ => Err(GgufError::Text { what, at }),
        }
    }

    /// Passes over `n` bytes; long ranges are not read.
    pub(crate) fn skip(&mut self, n: u64, what: &'static str) -> Result<(), GgufError> {
        self.need(n, what)?;
        let step = i64::try_from(n).expect("need() keeps n under the header limit");
        self.input.seek_relative(step).map_err(|source| GgufError::Io { at: self.at, source })?;
        self.at += n;
        Ok(())
    }

    /// Passes over `n` texts, each behind its length. A vocabulary has hundreds of thousands of them: those that lie
    /// whole in the buffer are passed together.
    pub(crate) fn skip_texts(&mut self, n: u64, what: &'static str) -> Result<(), GgufError> {
        self.need_items(n, 8, what)?;
        let mut left = n;
        while left > 0 {
            let buffered = self.input.fill_buf().map_err(|source| GgufError::Io { at: self.at, source })?;
            let (passed, len) = whole_texts(buffered, left);
            self.skip(len, what)?;
            left -= passed;
            if left > 0 {
                let len = self.u64(what)?;
                self.skip(len, what)?;
                left -= 1;
            }
        }
        Ok(())
    }

    fn fill(&mut self, bytes: &mut [u8], what: &'static str) -> Result<(), GgufError> {
        let n = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.need(n, what)?;
        self.input.read_exact(bytes).map_err(|source| match source.kind() {
            // The file shrank since its length was taken.
            ErrorKind::UnexpectedEof => GgufError::Truncated { what, at: self.at },
            _ => GgufError::Io { at: self.at, source },
        })?;
        self.at += n;
        Ok(())
    }
}

/// How many of at most `most` texts lie whole at the start of `bytes`, and their length together.
fn whole_texts(bytes: &[u8], most: u64) -> (u64, u64) {
    let (mut rest, mut n, mut passed) = (bytes, 0, 0);
    while n < most
        && let Some((len, after)) = rest.split_first_chunk()
        && let len = u64::from_le_bytes(*len)
        && let Some(after) = usize::try_from(len).ok().and_then(|len| after.get(len..))
    {
        rest = after;
        n += 1;
        passed += 8 + len;
    }
    (n, passed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn texts_are_passed_wherever_the_buffer_ends() {
        // Lengths of every remainder, so that lengths and texts alike lie across the buffer's ends.
        let lengths: Vec<u64> = (0..700).map(|n| n * 7 % 331).collect();
        let file: Vec<u8> = lengths
            .iter()
            .flat_map(|len| [&len.to_le_bytes(), vec![1; usize::try_from(*len).unwrap()].as_slice()].concat())
            .collect();
        let file_len = u64::try_from(file.len()).unwrap();
        assert!(file_len > 64 << 10);
        let mut scan = Scan::new(Cursor::new(&file), file_len).unwrap();
        scan.skip_texts(700, "texts").unwrap();
        assert_eq!(scan.at(), file_len);
        let mut cut = Scan::new(Cursor::new(&file), file_len - 1).unwrap();
        assert!(matches!(cut.skip_texts(700, "texts"), Err(GgufError::Truncated { .. })));
    }

    #[test]
    fn only_whole_texts_are_passed_together_and_no_more_than_asked() {
        let bytes =
            [&1_u64.to_le_bytes(), b"a".as_slice(), &2_u64.to_le_bytes(), b"bc", &u64::MAX.to_le_bytes()].concat();
        assert_eq!(whole_texts(&bytes, 9), (2, 19));
        assert_eq!(whole_texts(&bytes, 1), (1, 9));
        assert_eq!(whole_texts(&bytes[..18], 9), (1, 9));
        assert_eq!(whole_texts(&bytes[..7], 9), (0, 0));
    }
}
