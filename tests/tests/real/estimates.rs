//! What is estimated from a header is what the engine takes.
use motorpool_gguf::{FlashAttention, LaunchSettings, Purpose, TensorType};
use motorpool_testkit::corpus::FAMILIES;
use motorpool_tests::e2e::{
    estimates::{ByHand, Row, compare, measure, percentile},
    installed::{MODEL, house, model_file},
};
use std::fs;

/// Engines print sizes with two decimals of MiB; two caches and a state make three of them.
pub(crate) const ROUNDING: u64 = 3 * (1 << 20) / 100;

#[tokio::test]
async fn estimates_are_within_a_tenth_of_what_the_engine_reports() {
    let house = house().await;
    let mut rows = Vec::new();
    let quantised = TensorType::Q8_0;
    for settings in [
        LaunchSettings::default(),
        LaunchSettings { slots: 4, kv_keys: quantised, kv_values: quantised, ..LaunchSettings::default() },
        LaunchSettings { flash_attention: FlashAttention::Off, physical_batch: 128, ..LaunchSettings::default() },
    ] {
        rows.push(measure(&house, (MODEL, &model_file()), &settings).await);
    }
    for family in FAMILIES {
        let file = house.path("models/tiny.gguf");
        fs::write(&file, family.writer().finish()).expect("written");
        let settings = LaunchSettings { slots: 2, purpose: family.purpose, ..LaunchSettings::default() };
        let engine = ByHand::start(&house, &file, &settings).await;
        rows.push(compare((family.name, &file), &settings, &engine.reported));
        engine.ask(family.purpose).await;
        engine.end().await;
    }
    assert!(rows.iter().any(|row| row.settings.purpose == Purpose::Embed) && rows.len() == 3 + FAMILIES.len());
    for row in &rows {
        let Row { estimated: [weights, cache, _, results, repacked], .. } = row;
        let [reported_weights, reported_cache, _, reported_results, reported_repacked] = &row.reported;
        for (estimated, reported) in [
            (weights, reported_weights),
            (cache, reported_cache),
            (results, reported_results),
            (repacked, reported_repacked),
        ] {
            assert!(estimated.get().abs_diff(reported.get()) <= ROUNDING, "{row:?}");
        }
    }
    let p95 = percentile(&rows, 95);
    assert!(p95 <= 1000, "{p95} hundredths of a percent: {rows:#?}");
}
