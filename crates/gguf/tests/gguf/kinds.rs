//! What the layers of each kind of architecture keep: the formulas of llama-server.md §4.2 by hand.
use super::read;
use motorpool_gguf::{
    Calibration, Footprint, LaunchSettings, ModelShape, Purpose, SlidingWindow, Value, estimate, write::Writer,
};
use motorpool_vocab::Bytes;

/// An architecture of so many layers, with an embedding of 128.
fn model(architecture: &str, n_blocks: u32, keys: &[(&str, Value)]) -> ModelShape {
    let writer = Writer::new().set("general.architecture", architecture);
    let common = [("block_count", Value::from(n_blocks)), ("embedding_length", 128_u32.into())];
    let all = common.iter().chain(keys);
    let writer = all.fold(writer, |writer, (name, value)| writer.set(&format!("{architecture}.{name}"), value.clone()));
    ModelShape::of(&[read(&writer.finish()).expect("valid")]).expect("a shape")
}

/// Four slots of 1024 tokens, a physical batch of 256.
fn launch(shape: &ModelShape) -> Footprint {
    estimate(shape, &settings(), &Calibration::default())
}

fn settings() -> LaunchSettings {
    LaunchSettings { context_per_slot: 1024, slots: 4, physical_batch: 256, ..LaunchSettings::default() }
}

/// Bytes of each layer for one slot.
fn caches(shape: &ModelShape) -> Vec<u64> {
    launch(shape).layers.iter().map(|layer| layer.cache.get() / 4).collect()
}

fn heads(n: u32, kv: u32) -> [(&'static str, Value); 2] {
    [("attention.head_count", n.into()), ("attention.head_count_kv", kv.into())]
}

/// Two bytes for keys and two for values, of so many elements in 1024 cells.
const fn cells(elements: u64) -> u64 {
    1024 * elements * 4
}

#[test]
fn a_model_without_lengths_shares_its_embedding_among_its_heads() {
    assert_eq!(caches(&model("llama", 2, &heads(4, 2))), [cells(64); 2]);
    assert_eq!(caches(&model("llama", 1, &[("attention.head_count", 4_u32.into())])), [cells(128)], "all have keys");
    let odd = [("attention.key_length", 48_u32.into()), ("attention.value_length", 16_u32.into())];
    assert_eq!(caches(&model("llama", 1, &[heads(4, 2).as_slice(), &odd].concat())), [cells(64)]);
}

#[test]
fn windows_are_where_the_architecture_or_the_file_has_them() {
    let window = |architecture: &str, more: &[(&str, Value)]| {
        let window = ("attention.sliding_window", Value::from(256_u32));
        model(architecture, 4, &[heads(4, 2).as_slice(), &[window], more].concat())
    };
    let (full, seen) = (cells(64), cells(64) / 2);
    assert_eq!(caches(&window("gemma2", &[])), [seen, full, seen, full]);
    assert_eq!(caches(&window("cohere2", &[])), [seen, seen, seen, full]);
    assert_eq!(caches(&window("cohere2moe", &[])), [full, seen, seen, seen]);
    assert_eq!(caches(&window("gemma3", &[])), [seen; 4]);
    assert_eq!(caches(&window("llama", &[])), [full; 4], "a window that the engine does not use");
    let pattern = |value: Value| [("attention.sliding_window_pattern", value)];
    assert_eq!(caches(&window("gemma3", &pattern(2_u32.into()))), [seen, full, seen, full]);
    let listed = pattern([false, true, true, false].as_slice().into());
    assert_eq!(caches(&window("gemma4", &listed)), [full, seen, seen, full]);
    assert_eq!(caches(&window("gemma4", &[])), [full; 4]);
    let swa_full = LaunchSettings { sliding_window: SlidingWindow::Full, ..settings() };
    let all = estimate(&window("gemma2", &[]), &swa_full, &Calibration::default());
    assert!(all.layers.iter().all(|layer| layer.cache.get() == 4 * full));
}

#[test]
fn layers_that_see_a_window_can_have_heads_of_their_own_length_and_the_last_ones_none() {
    let keys = [
        ("attention.sliding_window", Value::from(256_u32)),
        ("attention.sliding_window_pattern", [true, false, true, false].as_slice().into()),
        ("attention.key_length", 64_u32.into()),
        ("attention.value_length", 64_u32.into()),
        ("attention.key_length_swa", 32_u32.into()),
        ("attention.value_length_swa", 32_u32.into()),
        ("attention.shared_kv_layers", 1_u32.into()),
    ];
    let shape = model("gemma4", 4, &[heads(4, 1).as_slice(), &keys].concat());
    assert_eq!(caches(&shape), [cells(32) / 2, cells(64), cells(32) / 2, 0]);
}

#[test]
fn compressed_attention_keeps_one_narrow_row_and_no_values() {
    let keys = [
        ("attention.key_length", Value::from(96_u32)),
        ("attention.value_length", 64_u32.into()),
        ("attention.key_length_mla", 64_u32.into()),
        ("attention.value_length_mla", 32_u32.into()),
    ];
    assert_eq!(caches(&model("deepseek2", 2, &[heads(4, 1).as_slice(), &keys].concat())), [1024 * 96 * 2; 2]);
    let old = model("deepseek2", 1, &[heads(4, 4).as_slice(), &keys[..2]].concat());
    assert_eq!(caches(&old), [1024 * (96 + 64) * 4 * 2], "files of before keep it all");
}

#[test]
fn layers_that_guess_further_tokens_keep_nothing() {
    let shape = model("llama", 3, &[heads(4, 2).as_slice(), &[("nextn_predict_layers", 1_u32.into())]].concat());
    assert_eq!(caches(&shape), [cells(64), cells(64), 0]);
}

const MAMBA: [(&str, u32); 4] =
    [("ssm.conv_kernel", 4), ("ssm.inner_size", 256), ("ssm.state_size", 16), ("ssm.group_count", 2)];

fn mamba() -> Vec<(&'static str, Value)> {
    MAMBA.iter().map(|(name, value)| (*name, Value::from(*value))).collect()
}

/// `(d_conv - 1) × (d_inner + 2 × groups × d_state) + d_state × d_inner`, four bytes each.
const STATE: u64 = (3 * (256 + 2 * 2 * 16) + 16 * 256) * 4;

#[test]
fn states_do_not_depend_on_the_context() {
    let shape = model("mamba2", 2, &mamba());
    assert_eq!(caches(&shape), [STATE; 2]);
    let long = LaunchSettings { context_per_slot: 65_536, ..settings() };
    assert_eq!(estimate(&shape, &long, &Calibration::default()).cache(), launch(&shape).cache());
    let one = LaunchSettings { checkpoints: 1, ..settings() };
    let checkpoints = estimate(&shape, &one, &Calibration::default()).checkpoints;
    assert_eq!(checkpoints, Bytes::new(STATE * 2 * 4), "of all layers and slots");
}

#[test]
fn states_and_caches_take_turns_as_the_architecture_has_it() {
    let heads_of = |kv: &[u32]| [("attention.head_count", Value::from(4_u32)), ("attention.head_count_kv", kv.into())];
    let jamba = model("jamba", 3, &[heads_of(&[0, 2, 0]).as_slice(), &mamba()].concat());
    assert_eq!(caches(&jamba), [STATE, cells(64), STATE]);
    let both = model("falcon-h1", 2, &[heads(4, 2).as_slice(), &mamba()].concat());
    assert_eq!(caches(&both), [STATE + cells(64); 2]);
    let every_fourth = model("qwen35", 5, &[heads(4, 2).as_slice(), &mamba()].concat());
    assert_eq!(caches(&every_fourth), [STATE, STATE, STATE, cells(64), STATE]);
    let listed = [("attention.recurrent_layers", [false, true].as_slice().into())];
    let listed = model("qwen3next", 2, &[heads(4, 2).as_slice(), &mamba(), &listed].concat());
    assert_eq!(caches(&listed), [cells(64), STATE]);
    let feeds = [("feed_forward_length", Value::from([0_u32, 0, 512].as_slice()))];
    let nemotron = model("nemotron_h", 3, &[heads_of(&[0, 2, 0]).as_slice(), &mamba(), &feeds].concat());
    assert_eq!(caches(&nemotron), [STATE, cells(64), 0]);
}

#[test]
fn other_kinds_of_states_have_their_own_size() {
    let kv = [0_u32].as_slice();
    let heads = [("attention.head_count", Value::from(4_u32)), ("attention.head_count_kv", kv.into())];
    let short = model("lfm2", 1, &[heads.as_slice(), &[("shortconv.l_cache", 3_u32.into())]].concat());
    assert_eq!(caches(&short), [128 * 2 * 4]);
    let wkv = [("wkv.head_size", Value::from(32_u32)), ("token_shift_count", 2_u32.into())];
    assert_eq!(caches(&model("rwkv7", 1, &wkv)), [(2 * 128 + 128 * 32) * 4]);
    let kda = [("kda.head_dim", Value::from(16_u32)), ("ssm.conv_kernel", 4_u32.into())];
    let kda = model("kimi-linear", 1, &[heads.as_slice(), &kda].concat());
    assert_eq!(caches(&kda), [(3 * 3 * 4 * 16 + 16 * 16 * 4) * 4]);
}

#[test]
fn encoders_keep_nothing_and_see_their_batch_only() {
    let shape = model("bert", 2, &heads(4, 4));
    assert!(shape.is_encoder() && launch(&shape).cache().is_zero());
    let embed = |context| LaunchSettings { context_per_slot: context, purpose: Purpose::Embed, ..settings() };
    let compute = |context| estimate(&shape, &embed(context), &Calibration::default()).compute_host;
    assert_eq!(compute(1024), compute(32_768));
}
