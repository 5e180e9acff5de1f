//! Any bytes as a model file: no panic, no large allocation, and an accepted tensor lies inside the file.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gguf::{check_shards, read_header, shard_names};
use std::{io::Cursor, slice};

fuzz_target!(|bytes: &[u8]| {
    let file_len = u64::try_from(bytes.len()).expect("u64 is at least as wide");
    if let Ok(name) = str::from_utf8(bytes) {
        let _ = shard_names(name);
    }
    let Ok(header) = read_header(Cursor::new(bytes), file_len) else { return };
    let mut end = header.data_start();
    for tensor in header.tensors() {
        assert!(header.data_start() + tensor.offset >= end, "tensors overlap");
        end = header.data_start() + tensor.offset + tensor.bytes.get();
        assert!(end <= file_len, "a tensor ends beyond the file");
    }
    assert!(header.tensor_bytes().get() <= file_len);
    let _ = header.per_block("attention.head_count_kv");
    let _ = check_shards(slice::from_ref(&header));
});
