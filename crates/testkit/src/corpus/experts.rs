//! Families that feed forward through a few of many experts.
use super::recipe::{Dimensions, Recipe};
use motorpool_gguf::{TensorType, write::Writer};

/// Two of eight experts in each layer.
pub(super) fn qwen3moe() -> Writer {
    Recipe::new(Dimensions {
        architecture: "qwen3moe",
        kind: TensorType::Q4_0,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 3,
        n_head: 4,
        n_head_kv: 2,
        head: 64,
        n_ff: 256,
        n_context: 16_384,
    })
    .key("expert_count", 8_u32)
    .key("expert_used_count", 2_u32)
    .key("expert_feed_forward_length", 96_u32)
    .embeddings()
    .output()
    .blocks(|recipe, _, at| {
        let n_embd = recipe.dimensions.n_embd;
        let recipe = recipe.attention(at).head_norms(at).norm(&format!("{at}ffn_norm.weight"), n_embd);
        recipe.experts(at, [8, 96])
    })
    .with_last_norm()
}

/// Windows in every second layer, sinks beside the keys, a bias everywhere, experts of 4 bits.
pub(super) fn gpt_oss() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "gpt-oss",
        kind: TensorType::MXFP4,
        n_vocab: 2048,
        n_embd: 192,
        n_blocks: 4,
        n_head: 6,
        n_head_kv: 2,
        head: 32,
        n_ff: 192,
        n_context: 16_384,
    });
    let Dimensions { n_embd, n_head, n_head_kv, head, .. } = recipe.dimensions;
    let [n_expert, n_ff] = [6, 192];
    let recipe = recipe.key("attention.sliding_window", 128_u32).key("expert_count", n_expert);
    let recipe = recipe.key("expert_used_count", 3_u32).key("expert_feed_forward_length", n_ff).embeddings().output();
    let blocks = recipe.blocks(|recipe, _, at| {
        recipe
            .attention(at)
            .vector(&format!("{at}attn_q.bias"), n_head * head)
            .vector(&format!("{at}attn_k.bias"), n_head_kv * head)
            .vector(&format!("{at}attn_v.bias"), n_head_kv * head)
            .vector(&format!("{at}attn_output.bias"), n_embd)
            .vector(&format!("{at}attn_sinks.weight"), n_head)
            .norm(&format!("{at}post_attention_norm.weight"), n_embd)
            .experts(at, [n_expert, n_ff])
            .vector(&format!("{at}ffn_gate_inp.bias"), n_expert)
            .tensor(&format!("{at}ffn_gate_exps.bias"), TensorType::F32, &[n_ff, n_expert])
            .tensor(&format!("{at}ffn_up_exps.bias"), TensorType::F32, &[n_ff, n_expert])
            .tensor(&format!("{at}ffn_down_exps.bias"), TensorType::F32, &[n_embd, n_expert])
    });
    blocks.with_last_norm()
}

/// The ranks and head parts of the compressed attention below.
const Q_RANK: u32 = 96;
const KV_RANK: u32 = 64;
const ROPE: u32 = 32;
const NOPE: u32 = 32;
const VALUE: u32 = 32;

/// Keys and values in one narrow row, the first layer dense, a shared expert beside the chosen ones.
pub(super) fn deepseek2() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "deepseek2",
        kind: TensorType::Q8_0,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 4,
        n_head: 4,
        n_head_kv: 0,
        head: 0,
        n_ff: 384,
        n_context: 16_384,
    });
    // The converter writes the width of the stored row as the length of a key.
    let recipe = recipe
        .key("rope.dimension_count", ROPE)
        .key("attention.key_length", KV_RANK + ROPE)
        .key("attention.value_length", KV_RANK)
        .key("attention.head_count_kv", 1_u32)
        .key("attention.q_lora_rank", Q_RANK)
        .key("attention.kv_lora_rank", KV_RANK)
        .key("attention.key_length_mla", NOPE + ROPE)
        .key("attention.value_length_mla", VALUE)
        .key("leading_dense_block_count", 1_u32)
        .key("expert_count", 8_u32)
        .key("expert_used_count", 2_u32)
        .key("expert_shared_count", 1_u32)
        .key("expert_feed_forward_length", 64_u32)
        .key("expert_weights_scale", 1_f32)
        .key("expert_gating_func", 2_u32);
    let blocks = recipe.embeddings().output().blocks(|recipe, n, at| {
        let recipe = compressed_attention(recipe, at);
        if n == 0 { recipe.gated(at) } else { shared_and_chosen(recipe, at) }
    });
    blocks.with_last_norm()
}

fn compressed_attention(recipe: Recipe, at: &str) -> Recipe {
    let Dimensions { n_embd, n_head, .. } = recipe.dimensions;
    recipe
        .norm(&format!("{at}attn_norm.weight"), n_embd)
        .matrix(&format!("{at}attn_q_a.weight"), &[n_embd, Q_RANK])
        .norm(&format!("{at}attn_q_a_norm.weight"), Q_RANK)
        .matrix(&format!("{at}attn_q_b.weight"), &[Q_RANK, n_head * (NOPE + ROPE)])
        .matrix(&format!("{at}attn_kv_a_mqa.weight"), &[n_embd, KV_RANK + ROPE])
        .norm(&format!("{at}attn_kv_a_norm.weight"), KV_RANK)
        .matrix(&format!("{at}attn_k_b.weight"), &[NOPE, KV_RANK, n_head])
        .matrix(&format!("{at}attn_v_b.weight"), &[KV_RANK, VALUE, n_head])
        .matrix(&format!("{at}attn_output.weight"), &[n_head * VALUE, n_embd])
}

fn shared_and_chosen(recipe: Recipe, at: &str) -> Recipe {
    let n_embd = recipe.dimensions.n_embd;
    recipe
        .norm(&format!("{at}ffn_norm.weight"), n_embd)
        .experts(at, [8, 64])
        .matrix(&format!("{at}ffn_gate_shexp.weight"), &[n_embd, 64])
        .matrix(&format!("{at}ffn_up_shexp.weight"), &[n_embd, 64])
        .matrix(&format!("{at}ffn_down_shexp.weight"), &[64, n_embd])
}
