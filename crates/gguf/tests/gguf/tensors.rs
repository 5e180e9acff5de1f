//! Tensor descriptions: shapes, types, sizes and places.
use super::{keys, read, refusal, whole};
use motorpool_gguf::{GgufError, TensorType, limits};
use motorpool_vocab::{Bytes, FailureClass};

const F32: TensorType = TensorType::F32;

#[test]
fn tensors_are_described_as_they_were_written() {
    let file = whole().finish();
    let header = read(&file).expect("valid");
    let [a, b] = header.tensors() else { panic!("two tensors") };
    assert_eq!((a.name.as_str(), a.ne, a.kind, a.offset, a.bytes), ("a", [4, 2, 1, 1], F32, 0, Bytes::new(32)));
    assert_eq!((b.name.as_str(), b.ne, b.kind), ("b", [32, 3, 1, 1], TensorType::Q8_0));
    assert_eq!((b.offset, b.bytes), (32, Bytes::new(3 * 34)));
    assert_eq!(header.tensor_bytes(), Bytes::new(134));
    let start = usize::try_from(header.data_start()).expect("small");
    assert_eq!(&file[start..], [vec![1; 32], vec![2; 102]].concat());
}

#[test]
fn another_alignment_moves_data_and_offsets() {
    let writer = keys().alignment(256).tensor("a", F32, &[1], vec![0; 4]).tensor("b", F32, &[1], vec![0; 4]);
    let header = read(&writer.finish()).expect("valid");
    assert_eq!((header.alignment(), header.data_start() % 256, header.tensors()[1].offset), (256, 0, 256));
}

#[test]
fn dimensions_are_one_to_four() {
    for ne in [[2_u64; 1].as_slice(), &[2; 2], &[2; 3], &[2; 4]] {
        let data = vec![0; 4 * usize::try_from(ne.iter().product::<u64>()).expect("small")];
        assert!(read(&keys().tensor("a", F32, ne, data).finish()).is_ok(), "{ne:?}");
    }
    for ne in [[1_u64; 0].as_slice(), &[1; 5], &[1; 100]] {
        let refused = refusal(&keys().tensor("a", F32, ne, vec![0; 64]));
        assert!(matches!(refused, GgufError::Dimensions { .. }), "{ne:?}: {refused}");
    }
}

#[test]
fn a_dimension_that_is_zero_or_negative_is_refused() {
    for wrong in [0, 1 << 63, u64::MAX] {
        for ne in [[wrong, 1, 1, 1], [4, wrong, 1, 1], [4, 1, 1, wrong]] {
            let refused = refusal(&keys().tensor("a", F32, &ne, vec![0; 64]));
            assert!(matches!(refused, GgufError::Shape { .. }), "{ne:?}: {refused}");
        }
    }
}

#[test]
fn dimensions_whose_product_or_size_overflows_are_refused() {
    let (q4, f64) = (TensorType::Q4_K, TensorType::F64);
    let i8 = TensorType::I8;
    let shapes = [
        (F32, [1 << 32, 1 << 32, 1, 1]),
        (i8, [1 << 31, 1 << 31, 2, 1]),
        (f64, [1 << 62, 1, 1, 1]),
        (q4, [1 << 40, 3, 1 << 30, 1]),
    ];
    for (kind, ne) in shapes {
        let refused = refusal(&keys().tensor("a", kind, &ne, vec![0; 64]));
        assert!(matches!(refused, GgufError::Shape { .. }), "{ne:?}: {refused}");
    }
}

#[test]
fn a_row_that_does_not_consist_of_whole_blocks_is_refused() {
    let refused = refusal(&keys().tensor("a", TensorType::Q4_K, &[128, 2], vec![0; 144]));
    let text = "tensor `a` has rows of 128 elements, not a multiple of the 256 in a block of Q4_K";
    assert_eq!(refused.to_string(), text);
}

#[test]
fn types_taken_out_of_the_format_and_negative_ones_are_refused_as_unsupported() {
    for id in [4, 5, 31, 32, 33, 36, 37, 38, 1 << 31, u32::MAX] {
        let refused = refusal(&keys().tensor("a", TensorType::from_id(id), &[256], vec![0; 256]));
        assert!(matches!(refused, GgufError::RemovedType { .. }), "{id}: {refused}");
        assert_eq!(refused.class(), FailureClass::ModelUnsupported);
    }
}

#[test]
fn an_unknown_type_takes_the_room_up_to_the_next_tensor_or_the_end_of_the_file() {
    let odd = TensorType::from_id(142);
    let writer = keys().tensor("a", odd, &[7], vec![0; 40]).tensor("b", F32, &[1], vec![0; 4]).tensor(
        "c",
        odd,
        &[7],
        vec![0; 9],
    );
    let header = read(&writer.finish()).expect("valid");
    let sizes: Vec<u64> = header.tensors().iter().map(|tensor| tensor.bytes.get()).collect();
    assert_eq!(sizes, [64, 4, 9]);
}

#[test]
fn an_unknown_type_whose_end_is_not_told_is_refused() {
    let odd = TensorType::from_id(142);
    let unaligned = keys().tensor("a", odd, &[7], vec![0; 40]).tensor("b", F32, &[1], vec![0; 4]).claim_offset(40);
    let no_room = keys().tensor("a", odd, &[7], vec![0; 40]).tensor("b", F32, &[1], vec![0; 4]).claim_offset(0);
    for writer in [unaligned, no_room, keys().tensor("a", odd, &[7], Vec::new())] {
        assert!(matches!(refusal(&writer), GgufError::UnknownSize { .. }));
    }
    let beyond = keys().tensor("a", odd, &[7], vec![0; 40]).tensor("b", F32, &[1], vec![0; 4]).claim_offset(1 << 40);
    assert!(matches!(refusal(&beyond), GgufError::OutOfFile { .. }));
}

#[test]
fn gaps_overlaps_and_offsets_past_the_end_are_refused() {
    for offset in [0, 31, 33, 64, 1 << 40, 1 << 63, u64::MAX, u64::MAX - 31] {
        let refused = refusal(&whole().claim_offset(offset));
        assert!(matches!(refused, GgufError::Offset { expected: 32, found, .. } if found == offset), "{refused}");
    }
    assert!(matches!(refusal(&keys().tensor("a", F32, &[1], vec![0; 4]).claim_offset(32)), GgufError::Offset { .. }));
}

#[test]
fn tensors_in_another_order_than_their_offsets_are_refused() {
    let writer =
        keys().tensor("b", F32, &[8], vec![0; 32]).claim_offset(32).tensor("a", F32, &[8], vec![0; 32]).claim_offset(0);
    assert!(matches!(refusal(&writer), GgufError::Offset { .. }));
}

#[test]
fn a_tensor_larger_than_the_file_is_refused() {
    for ne in [[9, 1], [1 << 20, 1], [1 << 40, 1 << 20], [1 << 60, 1]] {
        let refused = refusal(&keys().tensor("a", F32, &ne, vec![0; 32]));
        assert!(matches!(refused, GgufError::OutOfFile { .. }), "{ne:?}: {refused}");
    }
}

#[test]
fn a_tensor_name_that_appears_twice_is_refused() {
    let refused = refusal(&whole().tensor("a", F32, &[1], vec![0; 4]));
    assert!(matches!(&refused, GgufError::DuplicateTensor { name } if name == "a"), "{refused}");
}

#[test]
fn the_last_of_tens_of_thousands_of_tensors_is_found_to_be_a_duplicate() {
    let many = (1..limits::TENSORS).fold(keys(), |writer, n| writer.tensor(format!("t.{n}"), F32, &[1], vec![0; 4]));
    assert_eq!(read(&many.finish()).map(|header| header.tensors().len()).ok(), Some(65_535));
    assert!(matches!(refusal(&many.tensor("t.1", F32, &[1], vec![0; 4])), GgufError::DuplicateTensor { .. }));
}

#[test]
fn tensor_names_are_text_of_at_most_63_bytes() {
    assert!(read(&keys().tensor("n".repeat(63), F32, &[1], vec![0; 4]).finish()).is_ok());
    assert!(matches!(refusal(&keys().tensor("n".repeat(64), F32, &[1], vec![0; 4])), GgufError::TooMany { .. }));
    for name in [b"".as_slice(), b"\xff", b"a\0b"] {
        let refused = refusal(&keys().tensor(name, F32, &[16], vec![0; 64]));
        assert!(matches!(refused, GgufError::Text { .. }), "{name:?}: {refused}");
    }
}
