//! Families whose layers attend and then feed forward, each with its own norms, biases and windows.
use super::recipe::{Dimensions, Recipe};
use motorpool_gguf::{TensorType, write::Writer};

/// Heads in groups, a matrix of its own for the output.
pub(super) fn llama() -> Writer {
    Recipe::new(Dimensions {
        architecture: "llama",
        kind: TensorType::F16,
        n_vocab: 1024,
        n_embd: 128,
        n_blocks: 4,
        n_head: 4,
        n_head_kv: 2,
        head: 32,
        n_ff: 384,
        n_context: 16_384,
    })
    .embeddings()
    .output()
    .blocks(|recipe, _, at| recipe.attention(at).gated(at))
    .with_last_norm()
}

/// Biases on queries, keys and values; the token embeddings are the output too.
pub(super) fn qwen2() -> Writer {
    Recipe::new(Dimensions {
        architecture: "qwen2",
        kind: TensorType::Q8_0,
        n_vocab: 3072,
        n_embd: 192,
        n_blocks: 5,
        n_head: 6,
        n_head_kv: 2,
        head: 32,
        n_ff: 512,
        n_context: 16_384,
    })
    .embeddings()
    .blocks(|recipe, _, at| {
        let Dimensions { n_head, n_head_kv, head, .. } = recipe.dimensions;
        recipe
            .attention(at)
            .gated(at)
            .vector(&format!("{at}attn_q.bias"), n_head * head)
            .vector(&format!("{at}attn_k.bias"), n_head_kv * head)
            .vector(&format!("{at}attn_v.bias"), n_head_kv * head)
    })
    .with_last_norm()
}

/// Heads wider than their share of the embedding.
pub(super) fn qwen3() -> Writer {
    Recipe::new(Dimensions {
        architecture: "qwen3",
        kind: TensorType::Q4_K,
        n_vocab: 2048,
        n_embd: 256,
        n_blocks: 3,
        n_head: 8,
        n_head_kv: 2,
        head: 64,
        n_ff: 768,
        n_context: 16_384,
    })
    .embeddings()
    .output()
    .blocks(|recipe, _, at| recipe.attention(at).gated(at).head_norms(at))
    .with_last_norm()
}

/// Every second layer sees a window only.
pub(super) fn gemma2() -> Writer {
    Recipe::new(Dimensions {
        architecture: "gemma2",
        kind: TensorType::Q4_0,
        n_vocab: 4096,
        n_embd: 160,
        n_blocks: 4,
        n_head: 4,
        n_head_kv: 2,
        head: 64,
        n_ff: 640,
        n_context: 16_384,
    })
    .key("attention.sliding_window", 256_u32)
    .key("attn_logit_softcapping", 50_f32)
    .key("final_logit_softcapping", 30_f32)
    .embeddings()
    .blocks(|recipe, _, at| both_norms(recipe.attention(at).gated(at), at))
    .with_last_norm()
}

/// Five of six layers see a window only.
pub(super) fn gemma3() -> Writer {
    Recipe::new(Dimensions {
        architecture: "gemma3",
        kind: TensorType::Q8_0,
        n_vocab: 4096,
        n_embd: 128,
        n_blocks: 6,
        n_head: 4,
        n_head_kv: 1,
        head: 64,
        n_ff: 512,
        n_context: 16_384,
    })
    .key("attention.sliding_window", 512_u32)
    .embeddings()
    .blocks(|recipe, _, at| both_norms(recipe.attention(at).gated(at).head_norms(at), at))
    .with_last_norm()
}

fn both_norms(recipe: Recipe, at: &str) -> Recipe {
    let n_embd = recipe.dimensions.n_embd;
    recipe.norm(&format!("{at}post_attention_norm.weight"), n_embd).norm(&format!("{at}post_ffw_norm.weight"), n_embd)
}

/// Queries, keys and values in one matrix, gate and up in another; a window that engines do not use.
pub(super) fn phi3() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "phi3",
        kind: TensorType::F16,
        n_vocab: 1536,
        n_embd: 96,
        n_blocks: 3,
        n_head: 3,
        n_head_kv: 3,
        head: 32,
        n_ff: 256,
        n_context: 16_384,
    });
    let recipe = recipe.key("attention.sliding_window", 2047_u32).embeddings().output();
    let blocks = recipe.blocks(|recipe, _, at| {
        let Dimensions { n_embd, n_ff, .. } = recipe.dimensions;
        recipe
            .matrix(&format!("{at}attn_qkv.weight"), &[n_embd, 3 * n_embd])
            .matrix(&format!("{at}attn_output.weight"), &[n_embd, n_embd])
            .matrix(&format!("{at}ffn_up.weight"), &[n_embd, 2 * n_ff])
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
            .norm(&format!("{at}attn_norm.weight"), n_embd)
            .norm(&format!("{at}ffn_norm.weight"), n_embd)
    });
    blocks.with_last_norm()
}

/// Places are learned and added, nothing is gated, everything has a bias.
pub(super) fn gpt2() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "gpt2",
        kind: TensorType::Q5_0,
        n_vocab: 1280,
        n_embd: 64,
        n_blocks: 2,
        n_head: 2,
        n_head_kv: 2,
        head: 32,
        n_ff: 256,
        n_context: 4096,
    });
    let Dimensions { n_embd, n_context, .. } = recipe.dimensions;
    let recipe = recipe.embeddings().tensor("position_embd.weight", TensorType::F32, &[n_embd, n_context]);
    let recipe = recipe.vector("output_norm.bias", n_embd);
    let blocks = recipe.blocks(|recipe, _, at| {
        recipe
            .matrix(&format!("{at}attn_qkv.weight"), &[n_embd, 3 * n_embd])
            .vector(&format!("{at}attn_qkv.bias"), 3 * n_embd)
            .matrix(&format!("{at}attn_output.weight"), &[n_embd, n_embd])
            .vector(&format!("{at}attn_output.bias"), n_embd)
            .norm(&format!("{at}attn_norm.weight"), n_embd)
            .vector(&format!("{at}attn_norm.bias"), n_embd)
            .plain_feed_forward(at)
            .vector(&format!("{at}ffn_norm.bias"), n_embd)
            .vector(&format!("{at}ffn_up.bias"), 4 * n_embd)
            .vector(&format!("{at}ffn_down.bias"), n_embd)
    });
    blocks.with_last_norm()
}

/// An encoder: no cache, one vector for a whole text.
pub(super) fn bert() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "bert",
        kind: TensorType::F16,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 3,
        n_head: 4,
        n_head_kv: 4,
        head: 32,
        n_ff: 512,
        n_context: 4096,
    });
    let Dimensions { n_embd, n_vocab, n_ff, n_context, .. } = recipe.dimensions;
    let recipe = recipe.key("attention.causal", false).key("pooling_type", 1_u32);
    let recipe = recipe
        .plain_key("tokenizer.ggml.token_type_count", 2_u32)
        .matrix("token_embd.weight", &[n_embd, n_vocab])
        .tensor("token_types.weight", TensorType::F32, &[n_embd, 2])
        .tensor("position_embd.weight", TensorType::F32, &[n_embd, n_context])
        .norm("token_embd_norm.weight", n_embd)
        .vector("token_embd_norm.bias", n_embd);
    let blocks = recipe.blocks(|recipe, _, at| {
        let recipe = ["attn_q", "attn_k", "attn_v", "attn_output"].iter().fold(recipe, |recipe, name| {
            recipe.matrix(&format!("{at}{name}.weight"), &[n_embd, n_embd]).vector(&format!("{at}{name}.bias"), n_embd)
        });
        let recipe = ["attn_output_norm", "layer_output_norm"].iter().fold(recipe, |recipe, name| {
            recipe.norm(&format!("{at}{name}.weight"), n_embd).vector(&format!("{at}{name}.bias"), n_embd)
        });
        recipe
            .matrix(&format!("{at}ffn_up.weight"), &[n_embd, n_ff])
            .vector(&format!("{at}ffn_up.bias"), n_ff)
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
            .vector(&format!("{at}ffn_down.bias"), n_embd)
    });
    blocks.done()
}
