//! The corpus that fuzzing starts from: small files, each a way into another part of the reader.
#![expect(clippy::disallowed_methods, reason = "the corpus is a folder of files")]
use super::{keys, read, whole};
use motorpool_gguf::{ModelShape, TensorType, write::Writer};
use std::{env, fs, path::Path};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/gguf_header");

/// By file name. The first letters say whether it is accepted.
fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let odd = TensorType::from_id(142);
    let shard = keys().set("split.no", 0_u16).set("split.count", 2_u16).set("split.tensors.count", 4_i32);
    let damaged = whole().finish();
    let heads = |architecture: &str| shaped(architecture).set(&format!("{architecture}.attention.head_count"), 4_u32);
    let window = heads("gemma3").set("gemma3.attention.sliding_window", 512_u32);
    let states = shaped("mamba").set("mamba.ssm.inner_size", 64_u32).set("mamba.ssm.state_size", 16_u32);
    let mixed = heads("lfm2").set("lfm2.shortconv.l_cache", 3_u32);
    let mixed = mixed.set("lfm2.attention.head_count_kv", [0_u32, 2].as_slice());
    vec![
        ("good-whole", whole().finish()),
        ("good-version-2", whole().version(2).finish()),
        ("good-empty", Writer::new().finish()),
        ("good-aligned", keys().alignment(64).tensor("a", TensorType::F16, &[2, 2, 2, 2], vec![0; 32]).finish()),
        ("good-unknown-type", keys().tensor("a", odd, &[7], vec![0; 40]).tensor("b", odd, &[7], vec![0; 9]).finish()),
        ("good-shard", shard.tensor("a", TensorType::Q4_K, &[256], vec![0; 144]).finish()),
        ("good-shape", heads("llama").finish()),
        ("good-shape-window", window.finish()),
        ("good-shape-states", states.set("mamba.ssm.conv_kernel", 4_u32).finish()),
        ("good-shape-mixed", mixed.finish()),
        ("bad-cut", damaged[..damaged.len() - 1].to_vec()),
        ("bad-counts", whole().claim_counts(u64::MAX, 1 << 63).finish()),
        ("bad-offset", whole().claim_offset(u64::MAX).finish()),
        ("bad-duplicates", whole().set("a", true).set("a", 1.5_f64).finish()),
        ("bad-big-endian", whole().version(3_u32.swap_bytes()).finish()),
    ]
}

/// A file of which more can be said than that it is whole.
fn shaped(architecture: &str) -> Writer {
    let writer = Writer::new().set("general.architecture", architecture);
    let writer = writer.set(&format!("{architecture}.block_count"), 2_u32);
    let writer = writer.set(&format!("{architecture}.embedding_length"), 32_u32);
    writer.tensor("blk.0.ffn_up.weight", TensorType::Q4_0, &[32, 8], vec![0; 144])
}

#[test]
fn the_committed_seeds_are_what_the_writer_writes() {
    for (name, file) in seeds() {
        let path = Path::new(FOLDER).join(name);
        if env::var_os("MOTORPOOL_BLESS").is_some() {
            fs::create_dir_all(FOLDER).expect("the folder can be made");
            fs::write(&path, &file).expect("the folder is writable");
        }
        assert_eq!(fs::read(&path).ok(), Some(file), "{name}: MOTORPOOL_BLESS=1 writes it anew");
    }
}

#[test]
fn good_seeds_are_accepted_and_bad_ones_refused() {
    for (name, file) in seeds() {
        assert_eq!(read(&file).is_ok(), name.starts_with("good"), "{name}");
        assert!(file.len() < 1024, "{name}");
        if name.starts_with("good-shape") {
            assert!(ModelShape::of(&[read(&file).expect("valid")]).is_ok(), "{name}");
        }
    }
}
