//! Families that carry a state of fixed size instead of a cache, or beside one.
use super::recipe::{Dimensions, Recipe};
use motorpool_gguf::{TensorType, write::Writer};

/// The numbers of a state.
#[derive(Clone, Copy)]
pub(super) struct State {
    pub(super) conv: u32,
    pub(super) inner: u32,
    pub(super) size: u32,
    pub(super) rank: u32,
    pub(super) groups: u32,
}

pub(super) fn state_keys(recipe: Recipe, state: State) -> Recipe {
    recipe
        .key("ssm.conv_kernel", state.conv)
        .key("ssm.inner_size", state.inner)
        .key("ssm.state_size", state.size)
        .key("ssm.time_step_rank", state.rank)
        .key("ssm.group_count", state.groups)
}

/// States alone.
pub(super) fn mamba() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "mamba",
        kind: TensorType::F16,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 4,
        n_head: 0,
        n_head_kv: 0,
        head: 0,
        n_ff: 0,
        n_context: 16_384,
    });
    let State { conv, inner, size, rank, .. } = MAMBA;
    let n_embd = recipe.dimensions.n_embd;
    let blocks = state_keys(recipe, State { groups: 0, ..MAMBA }).embeddings().blocks(|recipe, _, at| {
        recipe
            .norm(&format!("{at}attn_norm.weight"), n_embd)
            .matrix(&format!("{at}ssm_in.weight"), &[n_embd, 2 * inner])
            .tensor(&format!("{at}ssm_conv1d.weight"), TensorType::F32, &[conv, inner])
            .vector(&format!("{at}ssm_conv1d.bias"), inner)
            .matrix(&format!("{at}ssm_x.weight"), &[inner, rank + 2 * size])
            .matrix(&format!("{at}ssm_dt.weight"), &[rank, inner])
            .vector(&format!("{at}ssm_dt.bias"), inner)
            .tensor(&format!("{at}ssm_a"), TensorType::F32, &[size, inner])
            .vector(&format!("{at}ssm_d"), inner)
            .matrix(&format!("{at}ssm_out.weight"), &[inner, n_embd])
    });
    blocks.with_last_norm()
}

const MAMBA: State = State { conv: 4, inner: 256, size: 16, rank: 8, groups: 1 };
const MAMBA2: State = State { conv: 4, inner: 256, size: 32, rank: 8, groups: 2 };

/// States in heads, in groups.
pub(super) fn mamba2() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "mamba2",
        kind: TensorType::Q8_0,
        n_vocab: 1536,
        n_embd: 128,
        n_blocks: 3,
        n_head: 0,
        n_head_kv: 0,
        head: 0,
        n_ff: 0,
        n_context: 16_384,
    });
    let n_embd = recipe.dimensions.n_embd;
    let blocks = state_keys(recipe, MAMBA2).embeddings().blocks(|recipe, _, at| {
        let recipe = recipe.norm(&format!("{at}attn_norm.weight"), n_embd);
        heads_of_state(recipe, at, MAMBA2)
    });
    blocks.with_last_norm()
}

fn heads_of_state(recipe: Recipe, at: &str, state: State) -> Recipe {
    let State { conv, inner, size, rank, groups } = state;
    let n_embd = recipe.dimensions.n_embd;
    let wide = inner + 2 * groups * size;
    recipe
        .matrix(&format!("{at}ssm_in.weight"), &[n_embd, inner + wide + rank])
        .tensor(&format!("{at}ssm_conv1d.weight"), TensorType::F32, &[conv, wide])
        .vector(&format!("{at}ssm_conv1d.bias"), wide)
        .vector(&format!("{at}ssm_dt.bias"), rank)
        .tensor(&format!("{at}ssm_a"), TensorType::F32, &[1, rank])
        .tensor(&format!("{at}ssm_d"), TensorType::F32, &[1, rank])
        .tensor(&format!("{at}ssm_norm.weight"), TensorType::F32, &[inner / groups, groups])
        .matrix(&format!("{at}ssm_out.weight"), &[inner, n_embd])
}

/// Short convolutions in most layers, attention in the others.
pub(super) fn lfm2() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "lfm2",
        kind: TensorType::Q8_0,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 5,
        n_head: 4,
        n_head_kv: 0,
        head: 32,
        n_ff: 384,
        n_context: 16_384,
    });
    let n_embd = recipe.dimensions.n_embd;
    let kv = [0_u32, 0, 2, 0, 2];
    let recipe = recipe.key("attention.head_count_kv", kv.as_slice()).key("shortconv.l_cache", 3_u32);
    let recipe = recipe.matrix("token_embd.weight", &[n_embd, 2048]).norm("token_embd_norm.weight", n_embd);
    let blocks = recipe.blocks(|mut recipe, n, at| {
        recipe = recipe.gated(at);
        if matches!(n, 2 | 4) {
            recipe.dimensions.n_head_kv = 2;
            return recipe.attention(at).head_norms(at);
        }
        recipe
            .norm(&format!("{at}attn_norm.weight"), n_embd)
            .tensor(&format!("{at}shortconv.conv.weight"), TensorType::F32, &[3, n_embd])
            .matrix(&format!("{at}shortconv.in_proj.weight"), &[n_embd, 3 * n_embd])
            .matrix(&format!("{at}shortconv.out_proj.weight"), &[n_embd, n_embd])
    });
    blocks.done()
}

/// Attention and a state side by side in each layer.
pub(super) fn falcon_h1() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "falcon-h1",
        kind: TensorType::Q8_0,
        n_vocab: 2048,
        n_embd: 128,
        n_blocks: 3,
        n_head: 4,
        n_head_kv: 2,
        head: 32,
        n_ff: 320,
        n_context: 16_384,
    });
    let state = State { conv: 4, inner: 192, size: 32, rank: 6, groups: 1 };
    let blocks = state_keys(recipe, state).embeddings().output().blocks(|recipe, _, at| {
        let n_embd = recipe.dimensions.n_embd;
        // This family writes the norm before the feed-forward part without a suffix.
        let recipe = heads_of_state(recipe.attention(at), at, state).norm(&format!("{at}ffn_norm"), n_embd);
        let n_ff = recipe.dimensions.n_ff;
        recipe
            .matrix(&format!("{at}ffn_gate.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_up.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
    });
    blocks.with_last_norm()
}

/// Three layers of delta-rule states, then one of attention.
pub(super) fn qwen35() -> Writer {
    let recipe = Recipe::new(Dimensions {
        architecture: "qwen35",
        kind: TensorType::Q8_0,
        n_vocab: 3072,
        n_embd: 128,
        n_blocks: 8,
        n_head: 4,
        n_head_kv: 2,
        head: 32,
        n_ff: 320,
        n_context: 16_384,
    });
    let recipe = state_keys(recipe, State { conv: 4, inner: 256, size: 32, rank: 8, groups: 4 });
    let sections = [4_i32, 6, 6, 0];
    let recipe = recipe.key("full_attention_interval", 4_u32).key("rope.dimension_sections", sections.as_slice());
    let blocks = recipe.embeddings().output().blocks(|recipe, n, at| {
        let n_embd = recipe.dimensions.n_embd;
        let recipe = recipe.norm(&format!("{at}post_attention_norm.weight"), n_embd);
        let recipe = if n % 4 == 3 { gated_attention(recipe, at) } else { delta_state(recipe, at) };
        let n_ff = recipe.dimensions.n_ff;
        recipe
            .matrix(&format!("{at}ffn_gate.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_up.weight"), &[n_embd, n_ff])
            .matrix(&format!("{at}ffn_down.weight"), &[n_ff, n_embd])
    });
    blocks.with_last_norm()
}

/// The queries' matrix holds a gate of the same width.
fn gated_attention(recipe: Recipe, at: &str) -> Recipe {
    let Dimensions { n_embd, n_head, n_head_kv, head, .. } = recipe.dimensions;
    recipe
        .norm(&format!("{at}attn_norm.weight"), n_embd)
        .matrix(&format!("{at}attn_q.weight"), &[n_embd, 2 * n_head * head])
        .matrix(&format!("{at}attn_k.weight"), &[n_embd, n_head_kv * head])
        .matrix(&format!("{at}attn_v.weight"), &[n_embd, n_head_kv * head])
        .matrix(&format!("{at}attn_output.weight"), &[n_head * head, n_embd])
        .head_norms(at)
}

/// Four heads of keys, eight of values, 32 wide each.
fn delta_state(recipe: Recipe, at: &str) -> Recipe {
    let n_embd = recipe.dimensions.n_embd;
    let [keys, values, heads, head] = [128, 256, 8, 32];
    recipe
        .norm(&format!("{at}attn_norm.weight"), n_embd)
        .matrix(&format!("{at}attn_qkv.weight"), &[n_embd, 2 * keys + values])
        .matrix(&format!("{at}attn_gate.weight"), &[n_embd, values])
        .tensor(&format!("{at}ssm_conv1d.weight"), TensorType::F32, &[4, 2 * keys + values])
        .vector(&format!("{at}ssm_dt.bias"), heads)
        .vector(&format!("{at}ssm_a"), heads)
        .matrix(&format!("{at}ssm_beta.weight"), &[n_embd, heads])
        .matrix(&format!("{at}ssm_alpha.weight"), &[n_embd, heads])
        .norm(&format!("{at}ssm_norm.weight"), head)
        .matrix(&format!("{at}ssm_out.weight"), &[values, n_embd])
}
