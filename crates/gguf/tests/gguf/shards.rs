//! Models in several files.
use super::{keys, read, whole};
use motorpool_gguf::{GgufError, Header, Split, TensorType, Value, check_shards, write::Writer};

/// A shard with one tensor of its own.
fn shard(no: u16, count: u16, n_tensors: i32) -> Writer {
    let start = if no == 0 { keys() } else { Writer::new() };
    start.set("split.no", no).set("split.count", count).set("split.tensors.count", n_tensors).tensor(
        format!("t.{no}"),
        TensorType::F32,
        &[8],
        vec![0; 32],
    )
}

fn check(files: impl IntoIterator<Item = Writer>) -> Result<(), GgufError> {
    let headers: Vec<Header> = files.into_iter().map(|file| read(&file.finish()).expect("valid")).collect();
    check_shards(&headers)
}

fn refused_shard(files: impl IntoIterator<Item = Writer>) -> usize {
    match check(files) {
        Err(GgufError::Shards { shard, .. }) => shard,
        other => panic!("{other:?}"),
    }
}

#[test]
fn shards_of_one_model_in_order_are_accepted() {
    check((0..3).map(|no| shard(no, 3, 3))).expect("valid");
}

#[test]
fn a_whole_file_is_its_own_only_shard() {
    check([whole()]).expect("valid");
    check([whole().set("split.count", 1_u16).set("split.no", 0_u16)]).expect("a count of one is no split");
    assert_eq!(refused_shard([whole(), whole()]), 1);
    assert_eq!(refused_shard([]), 0);
}

#[test]
fn a_shard_says_which_one_it_is() {
    let header = read(&shard(1, 3, 3).finish()).expect("valid");
    assert_eq!(header.split(), Some(Split { no: 1, count: 3, n_tensors: Some(3) }));
    assert_eq!(header.architecture(), None);
    for writer in [whole(), whole().set("split.count", 1_u16)] {
        assert_eq!(read(&writer.finish()).expect("valid").split(), None);
    }
}

#[test]
fn a_missing_or_surplus_shard_is_refused() {
    assert_eq!(refused_shard([shard(0, 3, 3)]), 1);
    assert_eq!(refused_shard((0..2).map(|no| shard(no, 3, 3))), 1);
    assert_eq!(refused_shard((0..3).map(|no| shard(no, 2, 3))), 1);
}

#[test]
fn a_first_file_that_is_not_the_first_shard_is_refused() {
    assert_eq!(refused_shard([shard(1, 2, 2), shard(0, 2, 2)]), 1);
}

#[test]
fn shards_out_of_order_are_refused_at_the_first_wrong_one() {
    assert_eq!(refused_shard([0, 2, 1].map(|no| shard(no, 3, 3))), 2);
    assert_eq!(refused_shard([0, 1, 1].map(|no| shard(no, 3, 3))), 3);
}

#[test]
fn a_shard_of_another_model_is_refused() {
    assert_eq!(refused_shard([shard(0, 2, 2), shard(1, 4, 2)]), 2);
    assert_eq!(refused_shard([shard(0, 2, 2), shard(1, 2, 5)]), 2);
}

#[test]
fn a_shard_without_its_number_is_refused() {
    for no in [None, Some(Value::from("1")), Some((-1_i32).into()), Some((1_u32 << 16).into())] {
        let second = Writer::new().tensor("t.1", TensorType::F32, &[8], vec![0; 32]);
        let second = no.into_iter().fold(second, |writer, no| writer.set("split.no", no));
        assert_eq!(refused_shard([shard(0, 2, 2), second]), 2);
    }
}

#[test]
fn tensors_are_counted_over_all_shards() {
    assert_eq!(refused_shard((0..2).map(|no| shard(no, 2, 3))), 0);
}

#[test]
fn a_tensor_in_two_shards_is_refused() {
    let twice = shard(1, 2, 3).tensor("t.0", TensorType::F32, &[8], vec![0; 32]);
    assert!(matches!(check([shard(0, 2, 3), twice]), Err(GgufError::DuplicateTensor { .. })));
}

#[test]
fn a_first_shard_without_tensors_is_accepted() {
    let first = keys().set("split.no", 0_u16).set("split.count", 2_u16).set("split.tensors.count", 1_i32);
    check([first, shard(1, 2, 1)]).expect("valid");
}
