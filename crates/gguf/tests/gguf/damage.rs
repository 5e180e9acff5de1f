//! Files that are cut, of another format, or made of nonsense numbers.
use super::{keys, length, read, refusal, whole};
use motorpool_gguf::{GgufError, limits, read_header, write::Writer};
use motorpool_vocab::FailureClass;
use std::io::{self, Cursor, Read, Seek, SeekFrom};

#[test]
fn a_whole_file_of_either_version_is_accepted() {
    for version in [2, 3] {
        let header = read(&whole().version(version).finish()).expect("valid");
        assert_eq!(header.version(), version);
        assert_eq!(header.tensors().len(), 2);
    }
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let file = whole().finish();
    for cut in 0..file.len() {
        let refusal = read(&file[..cut]).expect_err("cut");
        assert!(matches!(refusal, GgufError::Truncated { .. } | GgufError::OutOfFile { .. }), "{cut}: {refusal}");
        assert_eq!(refusal.class(), FailureClass::ModelCorrupt);
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_is_refused() {
    let file = whole().finish();
    let header_len = usize::try_from(read(&file).expect("valid").data_start()).expect("small");
    for cut in 0..header_len - 32 {
        let refusal = read_header(Cursor::new(&file[..cut]), length(&file)).expect_err("cut");
        assert!(matches!(refusal, GgufError::Truncated { .. }), "{cut}: {refusal}");
    }
}

#[test]
fn another_format_is_named_by_its_first_bytes() {
    let refusal = read(b"PK\x03\x04 and more").expect_err("a zip file");
    assert_eq!(refusal.to_string(), r#"not a GGUF file: it begins with "PK\x03\x04" instead of "GGUF""#);
}

#[test]
fn a_big_endian_file_is_refused_as_such() {
    let refusal = refusal(&whole().version(3_u32.swap_bytes()));
    assert!(matches!(refusal, GgufError::BigEndian), "{refusal}");
    assert_eq!(refusal.class(), FailureClass::ModelUnsupported);
}

#[test]
fn versions_that_no_engine_reads_are_refused() {
    for version in [0, 1, 4, u32::MAX] {
        let refusal = refusal(&whole().version(version));
        assert!(matches!(refusal, GgufError::Version { found } if found == version), "{refusal}");
    }
    assert!(refusal(&whole().version(1)).to_string().ends_with("convert the model again"));
}

#[test]
fn absurd_counts_are_refused_before_anything_is_read() {
    for absurd in [u64::MAX, 1 << 63, limits::TENSORS + 1] {
        let refusal = refusal(&whole().claim_counts(absurd, 6));
        assert!(matches!(refusal, GgufError::TooMany { what: "tensors", at: 8, .. }), "{refusal}");
    }
    for absurd in [u64::MAX, 1 << 63, limits::KEYS + 1] {
        let refusal = refusal(&whole().claim_counts(2, absurd));
        assert!(matches!(refusal, GgufError::TooMany { what: "keys", at: 16, .. }), "{refusal}");
    }
}

#[test]
fn more_items_than_the_file_has_room_for_are_refused_before_the_first() {
    let refused = refusal(&whole().claim_counts(2, limits::KEYS));
    assert!(matches!(refused, GgufError::Truncated { what: "the metadata", at: 24 }), "{refused}");
    let refused = refusal(&keys().claim_counts(limits::TENSORS, 6));
    assert!(matches!(refused, GgufError::Truncated { what: "the tensor descriptions", .. }), "{refused}");
}

#[test]
fn a_file_without_keys_and_tensors_is_a_header_of_24_bytes() {
    let header = read(&Writer::new().finish()).expect("valid");
    assert_eq!((header.data_start(), header.tensor_bytes().get()), (24, 0));
    assert_eq!((header.architecture(), header.context_length(), header.block_count()), (None, None, None));
}

#[test]
fn a_failing_reader_is_an_error_of_its_own_with_its_cause() {
    let refusal = read_header(Failing, 1 << 20).expect_err("fails");
    assert!(matches!(refusal, GgufError::Io { at: 0, .. }), "{refusal}");
    assert_eq!(std::error::Error::source(&refusal).map(ToString::to_string).as_deref(), Some("cable pulled"));
    assert_eq!(refusal.class(), FailureClass::Unknown);
}

struct Failing;

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("cable pulled"))
    }
}

impl Seek for Failing {
    fn seek(&mut self, _: SeekFrom) -> io::Result<u64> {
        Ok(0)
    }
}
