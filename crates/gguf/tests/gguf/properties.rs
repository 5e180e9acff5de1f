//! Whatever the bytes: no panic, and what is accepted holds what the documentation promises.
use super::{length, read, whole};
use motorpool_gguf::{Header, Scalar, TensorType, Value, limits, read_header, write::Writer};
use proptest::{collection, prelude::*, sample};
use std::{collections::BTreeMap, io::Cursor};

const SCALARS: [Scalar; 11] = [
    Scalar::U8,
    Scalar::I8,
    Scalar::U16,
    Scalar::I16,
    Scalar::U32,
    Scalar::I32,
    Scalar::F32,
    Scalar::Bool,
    Scalar::U64,
    Scalar::I64,
    Scalar::F64,
];

fn numbers(n: impl Into<collection::SizeRange>) -> impl Strategy<Value = (Scalar, Box<[u8]>)> {
    (sample::select(&SCALARS), collection::vec(any::<[u8; 8]>(), n)).prop_map(|(scalar, elements)| {
        (scalar, elements.iter().flat_map(|element| element[..scalar.size()].to_vec()).collect())
    })
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        numbers(1).prop_map(|(scalar, raw)| Value::Scalar(scalar, raw)),
        numbers(0..20).prop_map(|(scalar, raw)| Value::Array(scalar, raw)),
        ".{0,40}".prop_map(Value::Text),
        collection::vec(".{0,8}", 0..20).prop_map(Value::Texts),
    ]
}

/// A type, its number of blocks per row, and rows.
fn shape() -> impl Strategy<Value = (TensorType, u64, u64)> {
    (sample::select(TensorType::ALL), 1_u64..4, 1_u64..4)
}

type Keys = BTreeMap<String, Value>;
type Shapes = BTreeMap<String, (TensorType, u64, u64)>;

fn contents() -> impl Strategy<Value = (Keys, Shapes, u32)> {
    let keys = collection::btree_map("k[a-z.]{1,20}", value(), 0..12);
    let tensors = collection::btree_map("[a-z0-9.]{1,63}", shape(), 0..12);
    (keys, tensors, (0_u32..10).prop_map(|exponent| 1 << exponent))
}

fn file(keys: &Keys, tensors: &Shapes, alignment: u32) -> Vec<u8> {
    let writer = Writer::new().alignment(alignment);
    let writer = keys.iter().fold(writer, |writer, (key, value)| writer.set(key, value.clone()));
    let writer = tensors.iter().fold(writer, |writer, (name, (kind, blocks, rows))| {
        let (block, bytes) = kind.layout().expect("known");
        let data = vec![7; usize::try_from(blocks * rows * bytes).expect("small")];
        writer.tensor(name.as_str(), *kind, &[block * blocks, *rows], data)
    });
    writer.finish()
}

/// What every accepted header promises.
fn check(header: &Header, file_len: u64) {
    let mut end = header.data_start();
    assert!(header.alignment().is_power_of_two());
    for tensor in header.tensors() {
        let start = header.data_start() + tensor.offset;
        assert!(start >= end && tensor.offset.is_multiple_of(header.alignment()));
        assert!(!tensor.bytes.is_zero() && tensor.ne.iter().all(|n| *n > 0));
        end = start + tensor.bytes.get();
        assert!(end <= file_len);
    }
    assert!(header.data_start() <= limits::HEADER + header.alignment());
    assert!(header.tensor_bytes().get() <= file_len);
    let metadata = header.metadata();
    for key in metadata.keys() {
        let _ = (metadata.u64(key), metadata.f32(key), metadata.bool(key), metadata.str(key));
        let _ = (metadata.u64s(key), metadata.f32s(key), metadata.bools(key));
    }
    let _ = (header.per_block("attention.head_count_kv"), header.split(), header.context_length());
}

/// One change to a file: at a place, these bytes instead of so many.
#[derive(Clone, Debug)]
struct Change {
    at: sample::Index,
    removed: usize,
    inserted: Vec<u8>,
}

fn change() -> impl Strategy<Value = Change> {
    let edge = sample::select(vec![0, 1, 4, 5, 31, 142, 1 << 31, 1 << 32, 1 << 60, 1 << 63, u64::MAX]);
    let inserted = prop_oneof![
        edge.prop_map(|n: u64| n.to_le_bytes().to_vec()),
        any::<u32>().prop_map(|n| n.to_le_bytes().to_vec()),
        collection::vec(any::<u8>(), 0..12),
    ];
    (any::<sample::Index>(), 0_usize..12, inserted).prop_map(|(at, removed, inserted)| Change { at, removed, inserted })
}

fn changed(mut file: Vec<u8>, changes: &[Change]) -> Vec<u8> {
    for Change { at, removed, inserted } in changes {
        let at = at.index(file.len() + 1);
        let end = (at + removed).min(file.len());
        file.splice(at..end, inserted.iter().copied());
    }
    file
}

proptest! {
    #[test]
    fn what_is_written_reads_back_equal((keys, tensors, alignment) in contents()) {
        let file = file(&keys, &tensors, alignment);
        let header = read(&file).expect("valid");
        check(&header, length(&file));
        prop_assert_eq!(header.alignment(), u64::from(alignment));
        prop_assert_eq!(header.metadata().keys().count(), keys.len() + 1);
        for (key, value) in &keys {
            let kept = Some(value).filter(|value| !matches!(value, Value::Texts(_)));
            prop_assert!(header.metadata().has(key));
            prop_assert_eq!(header.metadata().value(key), kept);
        }
        prop_assert_eq!(header.tensors().len(), tensors.len());
        for (tensor, (name, (kind, blocks, rows))) in header.tensors().iter().zip(&tensors) {
            let (block, bytes) = kind.layout().expect("known");
            prop_assert_eq!((&tensor.name, tensor.kind), (name, *kind));
            prop_assert_eq!(tensor.ne, [block * blocks, *rows, 1, 1]);
            prop_assert_eq!(tensor.bytes.get(), blocks * rows * bytes);
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in collection::vec(any::<u8>(), 0..200), begin in sample::select(vec![0, 8, 24])) {
        let start = Writer::new().claim_counts(1, 1).finish();
        let file = [&start[..begin], &bytes].concat();
        if let Ok(header) = read(&file) {
            check(&header, length(&file));
        }
    }

    #[test]
    fn damaged_files_never_panic_and_what_is_accepted_is_sound(
        contents in contents(),
        changes in collection::vec(change(), 1..4),
    ) {
        let (keys, tensors, alignment) = contents;
        let file = changed(file(&keys, &tensors, alignment), &changes);
        if let Ok(header) = read(&file) {
            check(&header, length(&file));
        }
    }

    #[test]
    fn a_small_file_with_numbers_at_the_edges_never_panics(changes in collection::vec(change(), 1..3)) {
        let file = changed(whole().finish(), &changes);
        if let Ok(header) = read(&file) {
            check(&header, length(&file));
        }
    }

    #[test]
    fn a_length_that_is_not_the_readers_never_panics(cut in any::<sample::Index>(), file_len in any::<u64>()) {
        let file = whole().finish();
        let cut = cut.index(file.len());
        if let Ok(header) = read_header(Cursor::new(&file[..cut]), file_len) {
            check(&header, file_len);
        }
    }
}
