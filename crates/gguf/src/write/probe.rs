//! Models that show what a build of an engine does with memory: two layers, every matrix of one type.
//!
//! Two, because of the last layer an engine computes only what it was asked for: one token instead of a batch.
use super::{Noise, Writer, with_tokenizer};
use crate::TensorType;

/// Wide enough for the blocks of every type.
const N_EMBD: u64 = 256;
const N_HEAD: u64 = 4;
const N_HEAD_KV: u64 = 1;
const HEAD: u64 = N_EMBD / N_HEAD;
const N_FF: u64 = 768;
const N_BLOCKS: u32 = 2;
const N_VOCAB: usize = 512;

/// The types that some build on some processor keeps a second copy of.
pub const PROBED_TYPES: &[TensorType] = &[
    TensorType::Q1_0,
    TensorType::Q4_0,
    TensorType::Q8_0,
    TensorType::Q2_K,
    TensorType::Q4_K,
    TensorType::Q5_K,
    TensorType::Q6_K,
    TensorType::IQ4_NL,
    TensorType::MXFP4,
];

/// A small valid model with the matrices of its layers in `kind`: an engine that repacks the type says so when it
/// loads it.
pub fn probe_model(kind: TensorType) -> Writer {
    let number = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    let writer = Writer::new()
        .set("general.architecture", "llama")
        .set("general.name", "motorpool probe")
        .set("llama.context_length", 4096_u32)
        .set("llama.embedding_length", number(N_EMBD))
        .set("llama.block_count", N_BLOCKS)
        .set("llama.feed_forward_length", number(N_FF))
        .set("llama.attention.head_count", number(N_HEAD))
        .set("llama.attention.head_count_kv", number(N_HEAD_KV))
        .set("llama.attention.layer_norm_rms_epsilon", 1e-5_f32)
        .set("llama.rope.dimension_count", number(HEAD));
    let mut noise = Noise::new(0);
    let n_vocab = u64::try_from(N_VOCAB).unwrap_or(u64::MAX);
    let mut tensor = |writer: Writer, name: &str, kind: TensorType, ne: &[u64]| {
        writer.tensor(name, kind, ne, noise.weights(kind, ne.iter().product()))
    };
    let mut writer = with_tokenizer(writer, N_VOCAB);
    for name in ["token_embd.weight", "output.weight"] {
        writer = tensor(writer, name, TensorType::F16, &[N_EMBD, n_vocab]);
    }
    for block in 0..N_BLOCKS {
        for (name, columns, rows) in MATRICES {
            writer = tensor(writer, &format!("blk.{block}.{name}.weight"), kind, &[*columns, *rows]);
        }
        for name in ["attn_norm", "ffn_norm"] {
            writer = tensor(writer, &format!("blk.{block}.{name}.weight"), TensorType::F32, &[N_EMBD]);
        }
    }
    tensor(writer, "output_norm.weight", TensorType::F32, &[N_EMBD])
}

/// Name, columns and rows.
const MATRICES: &[(&str, u64, u64)] = &[
    ("attn_q", N_EMBD, N_EMBD),
    ("attn_k", N_EMBD, N_HEAD_KV * HEAD),
    ("attn_v", N_EMBD, N_HEAD_KV * HEAD),
    ("attn_output", N_EMBD, N_EMBD),
    ("ffn_gate", N_EMBD, N_FF),
    ("ffn_up", N_EMBD, N_FF),
    ("ffn_down", N_FF, N_EMBD),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Calibration, LaunchSettings, ModelShape, estimate, read_header};
    use std::io::Cursor;

    #[test]
    fn every_probed_type_makes_a_valid_model_whose_layers_alone_can_be_repacked() {
        for kind in PROBED_TYPES {
            let file = probe_model(*kind).finish();
            let header = read_header(Cursor::new(&file), u64::try_from(file.len()).expect("small")).expect("valid");
            let shape = ModelShape::of(&[header]).expect("valid");
            let calibration = Calibration { repacked: [*kind].into(), ..Calibration::default() };
            let footprint = estimate(&shape, &LaunchSettings::default(), &calibration);
            let (block, bytes) = kind.layout().expect("known");
            let elements = 2 * N_EMBD * N_EMBD + 2 * N_EMBD * HEAD + 3 * N_EMBD * N_FF;
            for layer in &footprint.layers {
                assert_eq!(layer.dense.repacked.get(), elements / block * bytes, "{kind}");
            }
            assert!(footprint.output.repacked.is_zero());
        }
    }
}
