//! Families that were added when estimates held for all others, to see whether they hold elsewhere.
use super::{
    recipe::{Dimensions, Recipe},
    states::{State, state_keys},
};
use motorpool_gguf::{TensorType, write::Writer};

/// Attention and feed-forward part side by side; three of four layers see a window.
pub(super) fn cohere2() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "cohere2",
        kind: TensorType::Q8_0,
        n_vocab: 4096,
        n_embd: 256,
        n_blocks: 4,
        n_head: 8,
        n_head_kv: 2,
        head: 32,
        n_ff: 640,
        n_context: 16_384,
    });
    let recipe = recipe.key("attention.sliding_window", 1024_u32).key("logit_scale", 0.25_f32).embeddings();
    let blocks = recipe.blocks(|recipe, _, at| {
        let Dimensions { n_embd, n_ff, .. } = recipe.dimensions;
        recipe
            .attention(at)
            .matrix(&format!("{at}ffn_gate.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_up.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
    });
    blocks.with_last_norm()
}

/// States in three of four layers, attention without places in the other, experts in every second.
pub(super) fn jamba() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "jamba",
        kind: TensorType::Q8_0,
        n_vocab: 2048,
        n_embd: 192,
        n_blocks: 4,
        n_head: 6,
        n_head_kv: 0,
        head: 32,
        n_ff: 448,
        n_context: 16_384,
    });
    let state = State { conv: 4, inner: 384, size: 16, rank: 32, groups: 0 };
    let kv = [0_u32, 0, 2, 0];
    let recipe = recipe.key("attention.head_count_kv", kv.as_slice());
    let recipe = recipe.key("expert_count", 4_u32).key("expert_used_count", 2_u32);
    let blocks = state_keys(recipe, state).embeddings().output().blocks(|mut recipe, n, at| {
        let Dimensions { n_embd, n_ff, .. } = recipe.dimensions;
        recipe = if n == 2 {
            recipe.dimensions.n_head_kv = 2;
            recipe.attention(at)
        } else {
            normed_state(recipe.norm(&format!("{at}attn_norm.weight"), n_embd), at, state)
        };
        if n % 2 == 0 {
            return recipe.gated(at);
        }
        recipe.norm(&format!("{at}ffn_norm.weight"), n_embd).experts(at, [4, n_ff])
    });
    blocks.with_last_norm()
}

fn normed_state(recipe: Recipe, at: &str, state: State) -> Recipe {
    let State { conv, inner, size, rank, .. } = state;
    let n_embd = recipe.dimensions.n_embd;
    recipe
        .matrix(&format!("{at}ssm_in.weight"), &[n_embd, 2 * inner])
        .tensor(&format!("{at}ssm_conv1d.weight"), TensorType::F32, &[conv, inner])
        .vector(&format!("{at}ssm_conv1d.bias"), inner)
        .matrix(&format!("{at}ssm_x.weight"), &[inner, rank + 2 * size])
        .norm(&format!("{at}ssm_dt_norm.weight"), rank)
        .matrix(&format!("{at}ssm_dt.weight"), &[rank, inner])
        .vector(&format!("{at}ssm_dt.bias"), inner)
        .norm(&format!("{at}ssm_b_norm.weight"), size)
        .norm(&format!("{at}ssm_c_norm.weight"), size)
        .tensor(&format!("{at}ssm_a"), TensorType::F32, &[size, inner])
        .vector(&format!("{at}ssm_d"), inner)
        .matrix(&format!("{at}ssm_out.weight"), &[inner, n_embd])
}

/// Windows that the file lists, narrower heads there, the last two layers without keys of their own, and embeddings
/// for each layer.
pub(super) fn gemma4() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "gemma4",
        kind: TensorType::Q4_0,
        n_vocab: 4096,
        n_embd: 192,
        n_blocks: 6,
        n_head: 4,
        n_head_kv: 1,
        head: 128,
        n_ff: 512,
        n_context: 16_384,
    });
    let [n_embd, n_vocab, n_blocks, each] = [192, 4096, 6, 32];
    let windowed = [true, true, true, false, true, false];
    let recipe = recipe
        .key("attention.sliding_window", 512_u32)
        .key("attention.sliding_window_pattern", windowed.as_slice())
        .key("attention.shared_kv_layers", 2_u32)
        .key("attention.key_length_swa", 64_u32)
        .key("attention.value_length_swa", 64_u32)
        .key("rope.dimension_count_swa", 64_u32)
        .key("embedding_length_per_layer_input", each)
        .key("final_logit_softcapping", 30_f32)
        .embeddings()
        .matrix("per_layer_token_embd.weight", &[each * n_blocks, n_vocab])
        .tensor("per_layer_model_proj.weight", TensorType::F16, &[n_embd, each * n_blocks])
        .norm("per_layer_proj_norm.weight", each)
        .norm("rope_freqs.weight", 64);
    let blocks = recipe.blocks(|mut recipe, n, at| {
        let is_windowed = usize::try_from(n).ok().and_then(|n| windowed.get(n)).is_some_and(|windowed| *windowed);
        recipe.dimensions.head = if is_windowed { 64 } else { 128 };
        recipe = recipe.attention(at).gated(at).head_norms(at);
        for name in ["post_attention_norm", "post_ffw_norm", "post_norm"] {
            recipe = recipe.norm(&format!("{at}{name}.weight"), n_embd);
        }
        recipe
            .matrix(&format!("{at}inp_gate.weight"), &[n_embd, each])
            .matrix(&format!("{at}proj.weight"), &[each, n_embd])
    });
    blocks.with_last_norm()
}

/// A linear state for each head, mixed with the token before.
pub(super) fn rwkv7() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "rwkv7",
        kind: TensorType::F16,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 3,
        n_head: 0,
        n_head_kv: 0,
        head: 0,
        n_ff: 512,
        n_context: 16_384,
    });
    let n_embd = recipe.dimensions.n_embd;
    let recipe = ["decay", "iclr", "value_residual_mix", "gate"]
        .iter()
        .fold(recipe, |recipe, name| recipe.key(&format!("attention.{name}_lora_rank"), RANK));
    let recipe = recipe.key("wkv.head_size", 32_u32).key("token_shift_count", 2_u32).embeddings().output();
    let recipe = recipe.norm("token_embd_norm.weight", n_embd).vector("token_embd_norm.bias", n_embd);
    let blocks = recipe.vector("output_norm.bias", n_embd).blocks(|recipe, _, at| mixed(recipe, at));
    blocks.with_last_norm()
}

/// Of every small matrix between two embeddings.
const RANK: u32 = 32;

fn mixed(mut recipe: Recipe, at: &str) -> Recipe {
    let Dimensions { n_embd, n_ff, .. } = recipe.dimensions;
    for name in ["attn_norm", "attn_norm_2", "time_mix_ln"] {
        recipe = recipe.norm(&format!("{at}{name}.weight"), n_embd).vector(&format!("{at}{name}.bias"), n_embd);
    }
    for name in ["w", "a", "v", "g"] {
        recipe = recipe
            .matrix(&format!("{at}time_mix_{name}1.weight"), &[n_embd, RANK])
            .matrix(&format!("{at}time_mix_{name}2.weight"), &[RANK, n_embd]);
    }
    for name in ["w0", "a0", "v0", "k_k", "k_a", "r_k"] {
        recipe = recipe.vector(&format!("{at}time_mix_{name}.weight"), n_embd);
    }
    for name in ["key", "value", "receptance", "output"] {
        recipe = recipe.matrix(&format!("{at}time_mix_{name}.weight"), &[n_embd, n_embd]);
    }
    recipe
        .tensor(&format!("{at}time_mix_lerp_fused.weight"), TensorType::F32, &[n_embd, 1, 1, 6])
        .vector(&format!("{at}channel_mix_lerp_k.weight"), n_embd)
        .matrix(&format!("{at}channel_mix_key.weight"), &[n_embd, n_ff])
        .matrix(&format!("{at}channel_mix_value.weight"), &[n_ff, n_embd])
}
