//! Estimates against figures that an engine printed: Gemma 3 270M, llama-server.md §6 and §4.2, build 11434.
use super::length;
use motorpool_gguf::{
    Calibration, FlashAttention, KvLayout, LaunchSettings, ModelShape, Purpose, SlidingWindow, TensorType, estimate,
    measured_activations, read_header, write::Writer,
};
use motorpool_vocab::Bytes;
use std::io::Cursor;

/// The header of the model without its weights: dimensions alone decide all but those.
fn gemma() -> ModelShape {
    let key = |name: &str| format!("gemma3.{name}");
    let numbers = [
        ("block_count", 18_u32),
        ("context_length", 32_768),
        ("embedding_length", 640),
        ("feed_forward_length", 2048),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 1),
        ("attention.key_length", 256),
        ("attention.value_length", 256),
        ("attention.sliding_window", 512),
    ];
    let writer = Writer::new().set("general.architecture", "gemma3");
    let writer = numbers.iter().fold(writer, |writer, (name, value)| writer.set(&key(name), *value));
    let tensors = [
        ("token_embd.weight", [640, 262_144]),
        ("blk.0.ffn_gate.weight", [640, 2048]),
        ("blk.0.ffn_up.weight", [640, 2048]),
        ("blk.0.ffn_down.weight", [2048, 640]),
    ];
    let mut at = 0;
    let writer = tensors.iter().fold(writer, |writer, (name, ne)| {
        let writer = writer.tensor(*name, TensorType::Q8_0, ne, Vec::new()).claim_offset(at);
        at += ne[0] * ne[1] / 32 * 34;
        writer
    });
    let file = writer.finish();
    let header = read_header(Cursor::new(&file), length(&file) + at + 64).expect("valid");
    ModelShape::of(&[header]).expect("valid")
}

/// Context of one slot, slots, keys and values.
fn settings(context: u32, slots: u32, kind: TensorType) -> LaunchSettings {
    let context_per_slot = context / slots;
    LaunchSettings { context_per_slot, slots, kv_keys: kind, kv_values: kind, ..LaunchSettings::default() }
}

const F16: TensorType = TensorType::F16;
const Q8: TensorType = TensorType::Q8_0;

/// As the engine prints it: MiB with two decimals.
fn mib(bytes: Bytes) -> String {
    let hundredths = (bytes.get() * 100 + (1 << 19)) >> 20;
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

#[test]
fn the_cache_is_to_the_hundredth_what_the_engine_printed() {
    let unified = |of: LaunchSettings| LaunchSettings { kv_layout: KvLayout::Unified, ..of };
    let rows = [
        (settings(2048, 1, F16), "21.00"),
        (settings(2048, 1, Q8), "11.16"),
        (settings(2048, 4, F16), "36.00"),
        (settings(2048, 4, Q8), "19.13"),
        (settings(8192, 1, F16), "39.00"),
        (settings(8192, 1, Q8), "20.72"),
        (settings(8192, 4, F16), "84.00"),
        (settings(8192, 4, Q8), "44.63"),
        (settings(32_768, 1, F16), "111.00"),
        (settings(32_768, 1, Q8), "58.97"),
        (settings(32_768, 4, F16), "156.00"),
        (settings(32_768, 4, Q8), "82.88"),
        (unified(settings(8192, 4, F16)), "61.50"),
        (LaunchSettings { sliding_window: SlidingWindow::Full, ..settings(8192, 1, F16) }, "144.00"),
        (LaunchSettings { physical_batch: 128, ..settings(8192, 1, F16) }, "35.25"),
        (LaunchSettings { physical_batch: 1024, ..settings(8192, 1, F16) }, "46.50"),
        (unified(settings(32_768, 4, F16)), "133.50"),
        (settings(8192, 16, F16), "144.00"),
        (settings(512, 4, F16), "18.00"),
        (settings(100, 1, F16), "4.50"),
        (LaunchSettings { kv_values: F16, ..settings(8192, 1, Q8) }, "29.86"),
        (settings(8192, 1, TensorType::Q4_0), "10.97"),
    ];
    let shape = gemma();
    for (settings, printed) in rows {
        let footprint = estimate(&shape, &settings, &Calibration::default());
        assert_eq!(mib(footprint.cache()), printed, "{settings:?}");
    }
}

#[test]
fn what_is_computed_and_answered_is_within_two_hundredths_of_what_the_engine_printed() {
    let off = |of: LaunchSettings| LaunchSettings { flash_attention: FlashAttention::Off, ..of };
    let embed = |of: LaunchSettings| LaunchSettings { purpose: Purpose::Embed, ..of };
    // Settings, and hundredths of MiB: compute and output.
    let rows = [
        (settings(2048, 1, F16), 2128, 100),
        (settings(2048, 1, Q8), 2181, 100),
        (settings(2048, 4, F16), 1928, 400),
        (settings(8192, 1, F16), 2728, 100),
        (settings(8192, 4, Q8), 2181, 400),
        (settings(8192, 16, F16), 2328, 1600),
        (settings(32_768, 1, F16), 5128, 100),
        (settings(100, 1, F16), 367, 100),
        (off(settings(8192, 1, F16)), 9427, 100),
        (off(settings(32_768, 1, F16)), 33_427, 100),
        (LaunchSettings { physical_batch: 128, ..settings(8192, 1, F16) }, 676, 100),
        (LaunchSettings { physical_batch: 2048, ..settings(8192, 1, F16) }, 11_511, 100),
        (LaunchSettings { sliding_window: SlidingWindow::Full, ..settings(8192, 1, F16) }, 3428, 100),
        (LaunchSettings { kv_layout: KvLayout::Unified, ..settings(8192, 4, F16) }, 2878, 400),
        (embed(settings(8192, 1, F16)), 52_728, 100),
        (embed(settings(8192, 4, F16)), 52_253, 401),
    ];
    let exact = Calibration { activations_per_mille: 1000, ..Calibration::default() };
    let shape = gemma();
    for (settings, compute, output) in rows {
        let footprint = estimate(&shape, &settings, &exact);
        let hundredths = |bytes: Bytes| bytes.get().saturating_mul(100) >> 20;
        let (found, results) = (hundredths(footprint.compute_host), hundredths(footprint.results));
        assert!(found.abs_diff(compute) * 100 <= compute * 2, "{found} instead of {compute}: {settings:?}");
        assert!(results.abs_diff(output) <= 1, "{results} instead of {output}: {settings:?}");
    }
}

#[test]
fn logits_take_the_place_of_a_mask_when_they_fit() {
    // One token of 262,144 logits takes 1 MiB; its mask of so many cells takes 2 bytes a cell.
    let compute = |context: u32| {
        let one = LaunchSettings { physical_batch: 1, purpose: Purpose::Embed, ..settings(context, 1, F16) };
        estimate(&gemma(), &one, &Calibration { activations_per_mille: 1000, ..Calibration::default() }).compute_host
    };
    let drop = compute(524_032).get() + 512 - compute(524_288).get();
    assert!(drop > 1 << 19, "the mask serves: {drop}");
}

#[test]
fn a_checkpoint_holds_the_windows_of_one_slot() {
    // Fifteen layers see a window of 512 tokens: 15 KiB a token.
    let with = |checkpoints, slots| {
        let settings = LaunchSettings { checkpoints, ..settings(8192 * slots, slots, F16) };
        estimate(&gemma(), &settings, &Calibration::default()).checkpoints
    };
    assert_eq!(with(1, 1), Bytes::new(512 * 15 * 1024));
    assert_eq!(with(32, 4), Bytes::new(512 * 15 * 1024 * 32 * 4));
    let full = LaunchSettings { checkpoints: 32, sliding_window: SlidingWindow::Full, ..settings(8192, 1, F16) };
    assert_eq!(estimate(&gemma(), &full, &Calibration::default()).checkpoints, Bytes::ZERO);
}

#[test]
fn a_calibrated_law_gives_back_what_was_measured() {
    let (shape, settings) = (gemma(), settings(2048, 1, F16));
    for per_mille in [500, 973, 1000, 1250, 2000] {
        let calibration = Calibration { activations_per_mille: per_mille, ..Calibration::default() };
        let compute = estimate(&shape, &settings, &calibration).compute_host;
        let found = measured_activations(&shape, &settings, compute).expect("plausible");
        assert!(found.abs_diff(per_mille) <= 1, "{found} instead of {per_mille}");
    }
    for wrong in [Bytes::ZERO, Bytes::mib(3), Bytes::mib(8), Bytes::mib(80), Bytes::MAX] {
        assert_eq!(measured_activations(&shape, &settings, wrong), None, "{wrong}");
    }
}

#[test]
fn an_uncalibrated_engine_is_estimated_higher_than_a_measured_one() {
    let exact = Calibration { activations_per_mille: 1000, ..Calibration::default() };
    let compute = |calibration| estimate(&gemma(), &settings(8192, 1, F16), calibration).compute_host;
    assert!(compute(&Calibration::default()) > compute(&exact));
}
