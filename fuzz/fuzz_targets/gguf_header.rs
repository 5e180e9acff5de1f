//! Any bytes as a model file: no panic, no large allocation, an accepted tensor lies inside the file, and whatever its
//! header says can be estimated.
#![no_main]
use libfuzzer_sys::fuzz_target;
use motorpool_gguf::{
    Calibration, FlashAttention, KvLayout, LaunchSettings, ModelShape, Purpose, check_shards, estimate, read_header,
    shard_names,
};
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
    let Ok(shape) = ModelShape::of(slice::from_ref(&header)) else { return };
    assert_eq!(shape.weights(), header.tensor_bytes());
    for settings in [LaunchSettings::default(), largest()] {
        let footprint = estimate(&shape, &settings, &Calibration::default());
        assert_eq!(footprint.weights(), shape.weights());
    }
});

/// Everything at its largest, so that what could overflow does.
fn largest() -> LaunchSettings {
    LaunchSettings {
        context_per_slot: u32::MAX,
        slots: u32::MAX,
        kv_layout: KvLayout::Unified,
        flash_attention: FlashAttention::Off,
        batch: u32::MAX,
        physical_batch: u32::MAX,
        purpose: Purpose::Embed,
        checkpoints: u32::MAX,
        ..LaunchSettings::default()
    }
}
