//! Shapes of models: what is read into them, and what hostile hyperparameters do.
use super::read;
use motorpool_gguf::{
    Calibration, FlashAttention, Footprint, GgufError, Header, KvLayout, LaunchSettings, ModelShape, Purpose,
    SlidingWindow, TensorType, Value, check_shards, estimate, limits, write::Writer,
};
use motorpool_vocab::Bytes;
use proptest::prelude::*;

const F32: TensorType = TensorType::F32;

/// An architecture, two layers, four heads of which two have keys.
fn keys(architecture: &str) -> Writer {
    let key = |name: &str| format!("{architecture}.{name}");
    Writer::new()
        .set("general.architecture", architecture)
        .set(&key("context_length"), 4096_u32)
        .set(&key("block_count"), 2_u32)
        .set(&key("embedding_length"), 64_u32)
        .set(&key("attention.head_count_kv"), 2_u32)
}

fn whole() -> Writer {
    keys("x").set("x.attention.head_count", 4_u32)
}

fn shape(writer: &Writer) -> Result<ModelShape, GgufError> {
    ModelShape::of(&[read(&writer.finish()).expect("the header is valid")])
}

fn default_of(writer: &Writer) -> Footprint {
    estimate(&shape(writer).expect("valid"), &LaunchSettings::default(), &Calibration::default())
}

fn refused_key(writer: &Writer) -> String {
    match shape(writer) {
        Err(GgufError::Key { key, .. }) => key,
        other => panic!("{other:?}"),
    }
}

fn tensor(writer: Writer, name: &str, ne: &[u64]) -> Writer {
    let size = usize::try_from(4 * ne.iter().product::<u64>()).expect("small");
    writer.tensor(name, F32, ne, vec![0; size])
}

#[test]
fn weights_are_sorted_by_layer_and_kind() {
    let names = [
        "token_embd.weight",
        "blk.0.attn_q.weight",
        "blk.1.attn_q.weight",
        "blk.1.ffn_up_exps.weight",
        "blk.2.attn_q.weight",
        "output_norm.weight",
        "output.weight",
    ];
    let footprint = default_of(&names.iter().fold(whole(), |writer, name| tensor(writer, name, &[8, 8])));
    let unit = Bytes::new(256);
    let [first, second] = footprint.layers.as_slice() else { panic!("two layers") };
    assert_eq!((first.dense.file, first.experts.file), (unit, Bytes::ZERO));
    assert_eq!((second.dense.file, second.experts.file), (unit, unit));
    assert_eq!(footprint.input, unit.saturating_mul(2), "what belongs to no layer stays in system memory");
    assert_eq!(footprint.output.file, unit.saturating_mul(2));
    assert_eq!(footprint.weights(), unit.saturating_mul(7));
    assert_eq!(footprint.output_copy, Bytes::ZERO);
}

#[test]
fn embeddings_that_are_the_output_too_are_copied_to_its_device() {
    let footprint = default_of(&tensor(whole(), "token_embd.weight", &[8, 8]));
    assert_eq!((footprint.output_copy, footprint.input), (Bytes::new(256), Bytes::new(256)));
    assert_eq!(footprint.weights(), Bytes::new(256));
}

#[test]
fn only_matrices_of_chosen_types_with_rows_in_eights_are_repacked() {
    let q4 = |writer: Writer, name: &str, ne: &[u64]| {
        let n = ne.iter().product::<u64>() / 32 * 18;
        writer.tensor(name, TensorType::Q4_0, ne, vec![0; usize::try_from(n).expect("small")])
    };
    let writer = q4(whole(), "blk.0.attn_q.weight", &[32, 16]);
    let writer = q4(writer, "blk.0.attn_k.weight", &[32, 12]);
    let writer = q4(writer, "blk.0.attn_k_b.weight", &[32, 8, 2]);
    let writer = q4(writer, "blk.0.ffn_up_exps.weight", &[32, 8, 2]);
    let writer = q4(writer, "token_embd.weight", &[32, 8]);
    let writer = q4(writer, "output.weight", &[32, 8]);
    let footprint = default_of(&writer);
    let [layer, _] = footprint.layers.as_slice() else { panic!("two layers") };
    assert_eq!(layer.dense.repacked, Bytes::new(16 * 18));
    assert_eq!(layer.experts.repacked, Bytes::new(16 * 18));
    assert_eq!(footprint.output.repacked, Bytes::new(8 * 18));
    let none = Calibration { repacked: [TensorType::Q4_K].into(), ..Calibration::default() };
    let footprint = estimate(&shape(&writer).expect("valid"), &LaunchSettings::default(), &none);
    assert!(footprint.layers.iter().all(|layer| layer.dense.repacked.is_zero() && layer.experts.repacked.is_zero()));
    assert_eq!(footprint.output.repacked, Bytes::ZERO);
}

#[test]
fn tensors_of_all_shards_are_summed_and_shards_are_checked() {
    let shard = |writer: Writer, no: u16| {
        let writer = writer.set("split.no", no).set("split.count", 2_u16).set("split.tensors.count", 2_i32);
        let writer = tensor(writer, &format!("blk.{no}.attn_q.weight"), &[8, 8]);
        read(&writer.finish()).expect("valid")
    };
    let both = [shard(whole(), 0), shard(Writer::new(), 1)];
    assert_eq!(ModelShape::of(&both).expect("valid").weights(), Bytes::new(512));
    for wrong in [&both[..1], &both[1..], &[]] {
        assert!(matches!(ModelShape::of(wrong), Err(GgufError::Shards { .. })));
    }
}

#[test]
fn a_model_without_its_basic_numbers_is_refused_by_key() {
    assert_eq!(refused_key(&Writer::new().set("general.architecture", "x")), "x.block_count");
    let no_heads = keys("x");
    assert_eq!(refused_key(&no_heads), "x.attention.head_count");
    assert_eq!(refused_key(&no_heads.set("x.attention.head_count", 0_u32)), "x.attention.head_count");
    let writer = Writer::new().set("general.architecture", "x").set("x.block_count", 1_u32);
    let writer = writer.set("x.attention.head_count", 1_u32);
    for value in [Value::from(0_u32), (-1_i32).into(), "2".into(), 2.5_f32.into()] {
        assert_eq!(refused_key(&writer.clone().set("x.embedding_length", value)), "x.embedding_length");
    }
    assert!(shape(&writer.set("x.embedding_length", 8_u32)).is_ok());
}

#[test]
fn counts_of_layers_that_no_model_has_are_refused() {
    let blocks = |value: Value| {
        let writer = Writer::new().set("general.architecture", "x").set("x.block_count", value);
        shape(&writer.set("x.attention.head_count", 1_u32).set("x.embedding_length", 1_u32))
    };
    for count in [Value::from(0_u32), 4_000_000_000_u32.into(), u64::MAX.into(), (-1_i32).into()] {
        assert!(matches!(blocks(count), Err(GgufError::Key { .. })));
    }
    assert_eq!(blocks(limits::BLOCKS.into()).map(|shape| shape.n_layers()).ok(), Some(4096));
}

#[test]
fn arrays_shorter_than_the_layers_or_of_another_type_are_refused_by_key() {
    let one = [1_u32].as_slice();
    for name in ["attention.head_count", "feed_forward_length", "expert_used_count"] {
        let key = format!("x.{name}");
        for value in [Value::from(one), "2".into(), [1_f32, 2.0].as_slice().into(), [true, true].as_slice().into()] {
            let writer = if name.ends_with("head_count") { keys("x") } else { whole() };
            assert_eq!(refused_key(&writer.set(&key, value)), key);
        }
    }
    let gemma = |pattern: Value| {
        let writer = keys("gemma3").set("gemma3.attention.head_count", 4_u32);
        let writer = writer.set("gemma3.attention.sliding_window", 512_u32);
        shape(&writer.set("gemma3.attention.sliding_window_pattern", pattern))
    };
    for wrong in [Value::from([true].as_slice()), one.into(), [1_f32, 0.0].as_slice().into()] {
        assert!(matches!(gemma(wrong), Err(GgufError::Key { .. })));
    }
    for right in [Value::from([true, false].as_slice()), [1_u32, 0].as_slice().into(), 2_u32.into(), 0_u32.into()] {
        assert!(gemma(right).is_ok());
    }
}

#[test]
fn heads_of_one_layer_may_differ_from_those_of_the_next() {
    let heads = |kv: &[u32]| {
        let writer = Writer::new().set("general.architecture", "x").set("x.block_count", 2_u32);
        let writer = writer.set("x.embedding_length", 64_u32).set("x.attention.head_count", 4_u32);
        let footprint = default_of(&writer.set("x.attention.head_count_kv", kv));
        footprint.layers.iter().map(|layer| layer.cache.get() / 8192).collect::<Vec<_>>()
    };
    // 16 elements a head, two bytes each, keys and values.
    assert_eq!(heads(&[4, 1]), [256, 64]);
    assert_eq!(heads(&[0, 4, 9]), [0, 256]);
}

#[test]
fn the_largest_numbers_saturate() {
    let names = [
        "attention.key_length",
        "attention.value_length",
        "attention.sliding_window",
        "ssm.inner_size",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.conv_kernel",
        "shortconv.l_cache",
        "wkv.head_size",
        "token_shift_count",
        "kda.head_dim",
        "full_attention_interval",
        "nextn_predict_layers",
        "attention.shared_kv_layers",
        "vocab_size",
        "expert_used_count",
        "attention.sliding_window_pattern",
        "attention.value_length_mla",
        "attention.key_length_mla",
        "attention.head_count_kv",
        "feed_forward_length",
        "embedding_length",
    ];
    for architecture in ARCHITECTURES {
        for value in [0, 1, u64::MAX, 1 << 63] {
            for (n, name) in names.iter().enumerate() {
                let kept = names.iter().skip(n).map(|name| (*name, value)).chain([("block_count", 2)]);
                let writer = Writer::new().set("general.architecture", *architecture);
                let writer =
                    kept.fold(writer, |writer, (name, value)| writer.set(&format!("{architecture}.{name}"), value));
                let writer = writer.set(&format!("{architecture}.attention.head_count"), u64::MAX);
                if let Ok(shape) = shape(&writer) {
                    let settings = extreme();
                    estimate(&shape, &settings, &Calibration::default());
                    assert_eq!(shape.n_layers(), 2, "{architecture} {name} {value}");
                }
            }
        }
    }
}

const ARCHITECTURES: &[&str] = &[
    "llama",
    "gemma3",
    "gemma3n",
    "gemma4",
    "deepseek2",
    "mamba",
    "rwkv7",
    "lfm2",
    "qwen35",
    "falcon-h1",
    "nemotron_h",
    "bert",
];

fn extreme() -> LaunchSettings {
    LaunchSettings {
        context_per_slot: u32::MAX,
        slots: u32::MAX,
        kv_keys: TensorType::from_id(142),
        kv_layout: KvLayout::Unified,
        flash_attention: FlashAttention::Off,
        batch: u32::MAX,
        physical_batch: u32::MAX,
        purpose: Purpose::Embed,
        checkpoints: u32::MAX,
        prompt_cache: Bytes::MAX,
        ..LaunchSettings::default()
    }
}

#[test]
fn settings_of_zero_are_read_as_the_least_there_is() {
    let none = LaunchSettings { context_per_slot: 0, slots: 0, batch: 0, physical_batch: 0, ..extreme() };
    let one = LaunchSettings { context_per_slot: 1, slots: 1, batch: 1, physical_batch: 1, ..extreme() };
    let shape = shape(&tensor(whole(), "token_embd.weight", &[8, 8])).expect("valid");
    let calibration = Calibration::default();
    assert_eq!(estimate(&shape, &none, &calibration).cache(), estimate(&shape, &one, &calibration).cache());
}

fn settings() -> impl Strategy<Value = LaunchSettings> {
    let sizes = (0_u32..100_000, 0_u32..20, 1_u32..5000, 1_u32..5000);
    let kinds = proptest::sample::select(vec![TensorType::F16, TensorType::Q8_0, TensorType::Q4_0]);
    (sizes, kinds, any::<[bool; 4]>()).prop_map(|((context, slots, batch, physical), kind, choices)| {
        let [unified, flash, full, embed] = choices;
        LaunchSettings {
            context_per_slot: context,
            slots,
            kv_keys: kind,
            kv_values: kind,
            kv_layout: if unified { KvLayout::Unified } else { KvLayout::PerSlot },
            flash_attention: if flash { FlashAttention::On } else { FlashAttention::Off },
            sliding_window: if full { SlidingWindow::Full } else { SlidingWindow::Window },
            batch,
            physical_batch: physical,
            purpose: if embed { Purpose::Embed } else { Purpose::Generate },
            ..LaunchSettings::default()
        }
    })
}

/// Without a vocabulary: logits can find room in a mask that grows, and then a longer context takes less.
fn gemma() -> ModelShape {
    let writer = keys("gemma3").set("gemma3.attention.head_count", 4_u32);
    let writer = writer.set("gemma3.attention.sliding_window", 512_u32);
    shape(&tensor(writer, "blk.0.ffn_up.weight", &[64, 300])).expect("valid")
}

proptest! {
    #[test]
    fn more_context_or_slots_never_take_less(settings in settings(), more in 1_u32..1000) {
        let shape = gemma();
        let total = |settings: &LaunchSettings| {
            let f = estimate(&shape, settings, &Calibration::default());
            Bytes::sum([f.cache(), f.compute_host, f.results])
        };
        let longer = LaunchSettings { context_per_slot: settings.context_per_slot + more, ..settings.clone() };
        let wider = LaunchSettings { slots: settings.slots + 1, ..settings.clone() };
        prop_assert!(total(&settings) <= total(&longer));
        prop_assert!(total(&settings) <= total(&wider));
    }

    #[test]
    fn any_hyperparameters_are_refused_or_estimated(
        architecture in proptest::sample::select(ARCHITECTURES),
        values in proptest::collection::vec((0_usize..8, any::<u64>(), 0_u32..64), 0..8),
        settings in settings(),
    ) {
        let names = ["block_count", "attention.head_count", "attention.head_count_kv", "embedding_length",
            "attention.sliding_window", "ssm.conv_kernel", "ssm.inner_size", "expert_used_count"];
        let base: std::collections::BTreeMap<&str, u64> = [("block_count", 3), ("embedding_length", 64)].into();
        let all = values.iter().map(|(n, value, shift)| (names[*n], value >> shift)).fold(base, |mut all, (name, value)| {
            all.insert(name, value);
            all
        });
        let writer = all.iter().fold(Writer::new().set("general.architecture", architecture), |writer, (name, value)| {
            writer.set(&format!("{architecture}.{name}"), *value)
        });
        let header: Header = read(&writer.finish()).expect("valid");
        check_shards(std::slice::from_ref(&header)).expect("whole");
        if let Ok(shape) = ModelShape::of(&[header]) {
            let footprint = estimate(&shape, &settings, &Calibration::default());
            prop_assert_eq!(footprint.layers.len(), shape.n_layers());
        }
    }
}
