//! What reading costs: bytes read and numbers followed, in files that pretend to be enormous.
use super::{keys, length, pair};
use motorpool_gguf::{GgufError, Header, TensorType, limits, read_header, write::Writer};
use std::io::{self, Read, Seek, SeekFrom};

/// A file that goes on with zeros for as long as it is said to, and counts what is read from it.
struct Endless {
    start: Vec<u8>,
    at: u64,
    read: u64,
}

impl Read for &mut Endless {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let from = usize::try_from(self.at).unwrap_or(usize::MAX).min(self.start.len());
        let there = self.start[from..].iter().copied().chain(std::iter::repeat(0));
        out.iter_mut().zip(there).for_each(|(slot, byte)| *slot = byte);
        self.at += length(out);
        self.read += length(out);
        Ok(out.len())
    }
}

impl Seek for &mut Endless {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(step) => self.at.checked_add_signed(step).ok_or(io::ErrorKind::InvalidInput)?,
            SeekFrom::End(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        Ok(self.at)
    }
}

/// Reads `start` and zeros after it, `file_len` bytes in all. The second value: bytes that were read.
fn read_endless(start: Vec<u8>, file_len: u64) -> (Result<Header, GgufError>, u64) {
    let mut file = Endless { start, at: 0, read: 0 };
    (read_header(&mut file, file_len), file.read)
}

#[test]
fn tensor_data_is_never_read() {
    let start = keys().tensor("a", TensorType::F32, &[1 << 30, 1 << 20], Vec::new()).finish();
    let (header, read) = read_endless(start, 1 << 60);
    assert_eq!(header.expect("valid").tensor_bytes().get(), 1 << 52);
    assert!(read <= 64 << 10, "{read}");
}

#[test]
fn a_skipped_array_is_not_read() {
    let array = vec![0_u32; 4 << 20];
    let (header, read) = read_endless(keys().set("a.long", array.as_slice()).set("a.last", 1_u8).finish(), 1 << 30);
    assert_eq!(header.expect("valid").metadata().u64("a.last"), Some(1));
    assert!(read <= 192 << 10, "{read}");
}

#[test]
fn an_enormous_array_in_an_enormous_file_is_refused_by_the_header_limit() {
    for id in [0_u32, 8, 12] {
        for n in [limits::HEADER, 1 << 40, 1 << 59] {
            let array = pair(b"a", &[&9_u32.to_le_bytes(), &id.to_le_bytes(), &n.to_le_bytes()]);
            let (refused, read) = read_endless(Writer::new().raw_pair(array).finish(), u64::MAX);
            assert!(matches!(refused, Err(GgufError::TooMany { what: "header bytes", .. })), "{id} {n}: {refused:?}");
            assert!(read <= 64 << 10, "{read}");
        }
    }
}

#[test]
fn an_enormous_text_in_an_enormous_file_is_refused_by_the_header_limit() {
    let text = pair(b"a", &[&8_u32.to_le_bytes(), &(1_u64 << 40).to_le_bytes()]);
    let (refused, read) = read_endless(Writer::new().raw_pair(text).finish(), u64::MAX);
    assert!(matches!(refused, Err(GgufError::TooMany { what: "header bytes", .. })), "{refused:?}");
    assert!(read <= 64 << 10, "{read}");
}

#[test]
fn sizes_next_to_the_largest_number_do_not_wrap() {
    let largest = [(1 << 61) - 1, 1, 1, 1];
    let start = keys().tensor("a", TensorType::F64, &largest, Vec::new());
    assert!(matches!(read_endless(start.finish(), u64::MAX).0, Err(GgufError::OutOfFile { .. })));
    let unknown = keys().tensor("a", TensorType::from_id(99), &[1], Vec::new());
    assert!(read_endless(unknown.finish(), u64::MAX).0.is_ok());
    let followed = unknown.claim_offset(0).tensor("b", TensorType::F32, &[1], Vec::new()).claim_offset(u64::MAX - 31);
    assert!(matches!(read_endless(followed.finish(), u64::MAX).0, Err(GgufError::OutOfFile { .. })));
}
