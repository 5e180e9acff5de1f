use super::*;
use crate::commands::plan::sheet::first_refusal;
use motorpool_broker::{
    BatchRule, Beside, BudgetSetting, Calibration, Card, Choice, FixedSettings, Host, HostShape, Mapping, ModelShape,
    Purpose, SlidingWindow, Wishes,
};
use motorpool_gguf::{Footprint, Format, LayerBytes, Weights, read_header, write::smoke_model};
use motorpool_vocab::FileId;
use proptest::prelude::*;
use std::{io::Cursor, sync::Arc};

fn key(model: &str, replica: u32) -> EngineKey {
    format!("llama-server:{model}:{replica}").parse().expect("a key")
}

fn file(inode: u64, size: Bytes) -> (FileId, Bytes) {
    (FileId { device: 1, inode, size: size.get(), mtime_nanos: 0 }, size)
}

fn subject() -> Subject {
    let settings = FixedSettings {
        batch: BatchRule::Fixed { logical: 2048, physical: 512 },
        purpose: Purpose::Generate,
        sliding_window: SlidingWindow::Window,
        checkpoints: 4,
        prompt_cache: Bytes::mib(64),
    };
    Subject {
        wishes: Wishes { slots: Some(2), context_own: Some(32_768), ..Wishes::default() },
        declared: None,
        choice: Choice::default(),
        files: vec![file(7, Bytes::mib(900))],
        shape: None,
        format: Format::default(),
        beside: Beside::default(),
        calibration: Calibration::default(),
        settings,
        lessons: [].into(),
    }
}

fn declared(gib: u64) -> Subject {
    Subject { declared: Some(Bytes::gib(gib)), ..subject() }
}

fn with_header() -> Subject {
    let bytes = smoke_model();
    let length = u64::try_from(bytes.len()).expect("small");
    let shape = ModelShape::of(&[read_header(Cursor::new(bytes), length).expect("whole")]).expect("a llama");
    Subject { files: vec![file(7, shape.weights())], shape: Some(Arc::new(shape)), ..subject() }
}

fn host(shape: HostShape, ram: u64, cards: &[u64]) -> Bounds {
    let card = |(n, gib): (usize, &u64)| Card::new(&format!("GPU-{n}"), Bytes::gib(*gib));
    let cards = cards.iter().enumerate().map(card).collect();
    Host { shape, ram: Bytes::gib(ram), cards, ..Host::default() }.bounds()
}

fn sheet(bounds: Bounds, wanted: &[(EngineKey, Subject)]) -> Sheet {
    lay_out(bounds, wanted.iter().map(|(key, subject)| (key.clone(), subject)))
}

fn sum_of(parts: &[Part]) -> Amounts {
    let mut sum = Amounts::default();
    for part in parts {
        sum.system_memory += part.amounts.system_memory;
        for (id, bytes) in &part.amounts.devices {
            *sum.devices.entry(id.clone()).or_default() += bytes;
        }
    }
    sum.devices.retain(|_, bytes| *bytes > 0);
    sum
}

#[test]
fn a_model_on_a_card_is_told_by_part_and_place() {
    let sheet = sheet(host(HostShape::DiscreteGpu, 64, &[24]), &[(key("a", 0), with_header())]);
    let [launch] = &sheet.launches[..] else { panic!("one: {sheet:#?}") };
    assert_eq!((&launch.verdict, launch.source.as_str()), (&Verdict::Fits, "estimated"));
    assert_eq!((launch.context, launch.slots, launch.clamped_from), (32_768, 2, None));
    let on_card =
        |name: &str| launch.parts.iter().find(|part| part.part == name).map(|part| part.amounts.devices["GPU-0"]);
    assert!(on_card("weights") > Some(0) && on_card("cache") > Some(0) && on_card("driver") > Some(0), "{sheet:#?}");
    assert_eq!(sheet.host.shape, "discrete-gpu");
    assert_eq!(sheet.host.devices["GPU-0"].committed, launch.total.devices["GPU-0"]);
    assert_eq!(sum_of(&launch.parts), launch.total);
}

#[test]
fn each_launch_sees_those_before_it_and_files_are_charged_once() {
    let replicas: Vec<_> = (0..3).map(|n| (key("a", n), subject())).collect();
    let sheet = sheet(host(HostShape::SystemRam, 64, &[]), &replicas);
    let shared: Vec<_> = sheet.launches.iter().map(|launch| launch.shared_bytes).collect();
    assert_eq!(shared, [0, 900 << 20, 900 << 20], "{sheet:#?}");
    let private = sheet.launches[0].total.system_memory - (900 << 20);
    assert_eq!(sheet.host.committed_bytes, (900 << 20) + 3 * private);
    assert_eq!(sheet.launches[2].key, "llama-server:a:2");
}

#[test]
fn what_does_not_fit_is_told_with_the_arithmetic_and_takes_nothing_from_the_next() {
    let wanted = [(key("big", 0), declared(20)), (key("small", 0), declared(2))];
    let sheet = sheet(host(HostShape::SystemRam, 16, &[]), &wanted);
    let [big, small] = &sheet.launches[..] else { panic!("two: {sheet:#?}") };
    let Verdict::Never { reason, message } = &big.verdict else { panic!("too big: {big:#?}") };
    let bound = Bytes::gib(16).per_mille(600).get();
    assert_eq!(*reason, format!("budget exhausted: would commit {} against {bound}", 20_u64 << 30));
    assert!(message.contains("big needs 20.0 GiB") && message.contains("9.6 GiB"), "{message}");
    assert_eq!((big.parts[0].part.as_str(), big.total.system_memory), ("declared", 20 << 30));
    assert_eq!((&small.verdict, sheet.host.committed_bytes), (&Verdict::Fits, 2 << 30));
    assert_eq!(first_refusal(&sheet.launches).map(|(key, _)| key), Some("llama-server:big:0"));
}

#[test]
fn what_does_not_fit_beside_those_before_it_names_them() {
    let wanted = [(key("a", 0), declared(6)), (key("b", 0), declared(6))];
    let sheet = sheet(host(HostShape::SystemRam, 16, &[]), &wanted);
    let Verdict::Never { message, .. } = &sheet.launches[1].verdict else { panic!("12 of 9.6: {sheet:#?}") };
    let words = "b needs 6.0 GiB beside llama-server:a:0 (6.0 GiB); that would be 12.0 GiB against 9.6 GiB (budget)";
    assert_eq!(message, words);
}

#[test]
fn a_context_that_gave_way_says_from_where() {
    // The smoke model's cache is small; a budget of little more than its buffers leaves room for part of its context.
    let host = Host { ram: Bytes::gib(64), budget: BudgetSetting::explicit(Bytes::gib(1)), ..Host::default() };
    let wishes = Wishes { context_own: Some(1 << 24), ..Wishes::default() };
    let long = Subject { wishes, ..with_header() };
    let sheet = sheet(
        host.bounds(),
        &[(key("rest", 0), Subject { declared: Some(Bytes::mib(870)), ..subject() }), (key("a", 0), long)],
    );
    let launch = &sheet.launches[1];
    assert_eq!((&launch.verdict, launch.clamped_from), (&Verdict::Fits, Some(65_536)), "{sheet:#?}");
    assert!(launch.context < 65_536 && launch.context >= 8192, "{launch:#?}");
}

#[test]
fn without_a_budget_everything_fits_and_is_shown() {
    let host = Host { ram: Bytes::gib(16), budget: BudgetSetting::explicit(Bytes::ZERO), ..Host::default() };
    let sheet = sheet(host.bounds(), &[(key("a", 0), declared(500))]);
    assert_eq!((&sheet.launches[0].verdict, sheet.host.budget_bytes), (&Verdict::Fits, None));
}

fn footprints() -> impl Strategy<Value = Footprint> {
    let bytes = || (0_u64..3 << 30).prop_map(Bytes::new);
    let weights = move || (bytes(), bytes()).prop_map(|(file, repacked)| Weights { file, repacked });
    let layer = (weights(), weights(), weights(), bytes(), bytes())
        .prop_map(|(dense, experts, kept, cache, adapters)| LayerBytes { dense, experts, kept, cache, adapters });
    let layer = layer.boxed();
    let of_draft = proptest::collection::vec(layer.clone(), 0..3);
    let buffers = proptest::collection::vec(bytes(), 12);
    let parts = (proptest::collection::vec(layer, 0..12), of_draft, weights(), bytes(), buffers);
    parts.prop_map(|(layers, of_draft, output, input, b)| {
        let draft = Footprint { layers: of_draft, output, input: b[9], compute_device: b[0], ..Footprint::default() };
        Footprint {
            layers,
            output,
            output_copy: b[10],
            input,
            compute_host: b[0],
            compute_device: b[1],
            compute_beside_device: b[2],
            results: b[3],
            prompt_cache: b[4],
            checkpoints: b[5],
            baseline: b[6],
            device_overhead: b[7],
            projector: b[8],
            adapters: b[9],
            draft: Some(Box::new(draft)),
            guesses: b[11],
        }
    })
}

fn hosts() -> impl Strategy<Value = Bounds> {
    let shape = prop_oneof![Just(HostShape::Unified), Just(HostShape::DiscreteGpu), Just(HostShape::SystemRam)];
    (shape, 16_u64..512, proptest::collection::vec(8_u64..96, 0..4))
        .prop_map(|(shape, ram, cards)| host(shape, ram, &cards))
}

fn mappings() -> impl Strategy<Value = Mapping> {
    prop_oneof![Just(Mapping::Nothing), Just(Mapping::SystemMemory), Just(Mapping::Everything)]
}

proptest! {
    #[test]
    fn the_parts_of_a_placement_are_its_claim(footprint in footprints(), bounds in hosts(), mapping in mappings()) {
        // Mapped bytes of the draft model go to the files too, whatever file that is.
        let files = vec![file(7, footprint.weights()), file(8, Bytes::MAX)];
        let parts = Parts::Known { footprint: footprint.clone(), files, mapping };
        let load = motorpool_broker::Load { parts, choice: Choice::default(), learned: motorpool_broker::Learned::default() };
        if let Ok(placement) = pick_placement(&Ledger::new(bounds), &load) {
            let mut total = amounts(&placement.claim);
            total.devices.retain(|_, bytes| *bytes > 0);
            prop_assert_eq!(sum_of(&by_part(&footprint, &placement.split, mapping)), total);
        }
    }
}
