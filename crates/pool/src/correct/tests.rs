use super::*;
use proptest::prelude::*;

fn file(n: u64) -> FileId {
    FileId { device: 1, inode: n, size: 1 << 40, mtime_nanos: 0 }
}

/// A plan in MiB: private memory, and one file.
fn planned(private: u64, mapped: u64) -> Claim {
    let ram_files = if mapped == 0 { [].into() } else { [(file(1), Bytes::mib(mapped))].into() };
    Claim { ram_private: Bytes::mib(private), ram_files, ..Claim::default() }
}

fn seen(private: u64, mapped: u64) -> Measured {
    Measured { private: Some(Bytes::mib(private)), files: Some(mapped_files(mapped)), ..Measured::default() }
}

fn mapped_files(mib: u64) -> BTreeMap<FileId, Bytes> {
    if mib == 0 { BTreeMap::new() } else { [(file(1), Bytes::mib(mib))].into() }
}

fn report(lines: &[(&str, &str, u64)]) -> Reported {
    let mut reported = Reported::default();
    for (place, kind, mib) in lines {
        reported.on_line(&format!("x: {place} {kind} buffer size = {mib}.00 MiB"));
    }
    reported
}

/// 300 MiB of private buffers beside mapped weights.
fn usual_report() -> Reported {
    let lines =
        [("CPU_Mapped", "model", 900), ("CPU_REPACK", "model", 100), ("CPU", "KV", 150), ("CPU", "compute", 50)];
    report(&lines)
}

const BESIDE: Option<Bytes> = Some(Bytes::mib(200));

fn after(planned: &Claim, beside: Option<Bytes>, all: &[Measured]) -> (Bytes, Bytes) {
    let mut account = Account::new(Now::ZERO, planned.clone(), beside);
    for measured in all {
        account.take(measured);
    }
    let line = account.line();
    (line.ram_private, line.total().saturating_sub(line.ram_private))
}

fn mib(private: u64, files: u64) -> (Bytes, Bytes) {
    (Bytes::mib(private), Bytes::mib(files))
}

#[test]
fn with_a_report_private_memory_is_buffers_and_what_comes_beside_them_although_less_is_touched() {
    let measured = Measured { reported: Some(usual_report()), ..seen(120, 920) };
    assert_eq!(after(&planned(800, 900), BESIDE, &[measured]), mib(500, 920));
}

#[test]
fn what_is_measured_above_the_report_counts_and_does_not_go_down_again() {
    let reported = || Measured { reported: Some(usual_report()), ..seen(120, 920) };
    let grown = Measured { reported: Some(usual_report()), ..seen(640, 920) };
    assert_eq!(after(&planned(800, 900), BESIDE, &[reported(), grown, reported()]), mib(640, 920));
}

#[test]
fn without_a_report_nothing_is_given_back() {
    let plan = planned(800, 900);
    assert_eq!(after(&plan, BESIDE, &[seen(120, 900)]), mib(800, 900));
    assert_eq!(after(&plan, BESIDE, &[seen(850, 900)]), mib(850, 900));
    assert_eq!(after(&plan, BESIDE, &[seen(120, 0)]), mib(800, 900), "nothing says that it will not map them");
    assert_eq!(after(&plan, BESIDE, &[seen(1600, 0)]), mib(1600, 100), "it reads its weights instead");
    assert_eq!(after(&plan, BESIDE, &[seen(1800, 0)]), mib(1800, 0));
    assert_eq!(after(&plan, None, &[seen(120, 0)]), mib(800, 900), "nor of a whole");
    assert_eq!(after(&plan, None, &[seen(120, 1000)]), mib(700, 1000));
    assert_eq!(after(&plan, BESIDE, &[seen(120, 950)]), mib(800, 950));
}

#[test]
fn weights_that_are_not_mapped_are_counted_where_they_are_reported() {
    let reported = report(&[("CPU", "model", 890), ("CPU", "compute", 50)]);
    let measured = Measured { reported: Some(reported), ..seen(1000, 0) };
    assert_eq!(after(&planned(800, 900), BESIDE, &[measured]), mib(1140, 0));
}

#[test]
fn of_a_whole_nothing_is_given_back_and_what_is_mapped_of_it_is_shared() {
    let declared = planned(2000, 0);
    assert_eq!(after(&declared, None, &[seen(300, 900)]), mib(1100, 900));
    assert_eq!(
        after(&declared, None, &[Measured { reported: Some(usual_report()), ..seen(300, 900) }]),
        mib(1100, 900)
    );
    assert_eq!(after(&declared, None, &[seen(1500, 900)]), mib(1500, 900), "more than was declared");
    assert_eq!(after(&declared, None, &[seen(1500, 900), seen(10, 900)]), mib(1500, 900));
}

#[test]
fn what_cannot_be_had_stays_as_planned() {
    let plan = planned(800, 900);
    let only_report = Measured { reported: Some(usual_report()), ..Measured::default() };
    assert_eq!(after(&plan, BESIDE, &[only_report]), mib(800, 900), "a report alone proves no less");
    assert_eq!(after(&plan, BESIDE, &[Measured::default()]), mib(800, 900));
    let account = Account::new(Now::ZERO, plan, BESIDE);
    assert_eq!((account.measured(), account.planned()), (None, Bytes::mib(1700)));
}

#[test]
fn buffers_on_devices_and_on_other_machines_are_no_private_memory() {
    let lines = [
        ("CUDA0", "KV", 1),
        ("CUDA_Host", "compute", 2),
        ("RPC0[10.0.0.1:50052]", "model", 4),
        ("CPU_Mapped", "model", 8),
        ("CPU", "output", 16),
        ("MTL0_Mapped", "model", 32),
        ("CPU_AARCH64", "model", 64),
    ];
    let reported = report(&lines);
    let on_card = Claim { device: [(DeviceId("GPU-1".into()), Bytes::gib(1))].into(), ..Claim::default() };
    assert_eq!(private_buffers(&reported, &on_card), Bytes::mib(18 + 64));
    assert_eq!(private_buffers(&reported, &Claim::default()), Bytes::mib(19 + 64), "one memory for both");
}

#[test]
fn a_device_counts_as_its_driver_shows_and_one_that_it_does_not_show_as_planned() {
    let (a, b) = (DeviceId("A".into()), DeviceId("B".into()));
    let device = [(a.clone(), Bytes::gib(4)), (b.clone(), Bytes::gib(4))].into();
    let mut account = Account::new(Now::ZERO, Claim { device, accelerated: Bytes::gib(8), ..Claim::default() }, BESIDE);
    for gib in [3, 2, 0] {
        account.take_shown(&a, Bytes::gib(gib));
    }
    account.take_shown(&b, Bytes::ZERO);
    let line = account.line();
    assert_eq!((line.device[&a], line.device[&b]), (Bytes::gib(3), Bytes::gib(4)));
    assert_eq!(line.accelerated, Bytes::gib(8), "what was planned for cards");
}

#[test]
fn buffers_that_were_reported_on_a_device_raise_its_part_and_never_lower_it() {
    let (a, b) = (DeviceId("A".into()), DeviceId("B".into()));
    let device = [(a.clone(), Bytes::mib(100)), (b.clone(), Bytes::mib(100))].into();
    let account = Account::new(Now::ZERO, Claim { device, ..Claim::default() }, BESIDE);
    let mut account = account.on(vec![b.clone(), a.clone()]);
    let lines = [("CUDA0", "model", 300), ("CUDA0", "KV", 50), ("CUDA1", "KV", 60), ("CUDA7", "KV", 900)];
    account.take(&Measured { reported: Some(report(&lines)), ..Measured::default() });
    assert_eq!(account.line().device, [(a.clone(), Bytes::mib(100)), (b.clone(), Bytes::mib(350))].into());
    account.take_shown(&a, Bytes::mib(80));
    account.take_shown(&b, Bytes::mib(400));
    assert_eq!(account.line().device, [(a, Bytes::mib(80)), (b, Bytes::mib(400))].into(), "what no report holds");
}

#[test]
fn where_devices_share_system_memory_all_of_the_line_is_theirs() {
    let plan = Claim { accelerated: Bytes::mib(1700), ..planned(800, 900) };
    let mut account = Account::new(Now::ZERO, plan, BESIDE);
    account.take(&Measured { reported: Some(usual_report()), ..seen(120, 920) });
    assert_eq!(account.line().accelerated, Bytes::mib(1420));
}

/// What was seen, and what a card's driver shows.
fn any_measured() -> impl Strategy<Value = (Measured, Option<Bytes>)> {
    let size = || prop::option::of(0u64..3000);
    let files = prop::option::of(prop::collection::btree_map(1u64..4, 0u64..2000, 0..4));
    let measured = (prop::bool::ANY, size(), files).prop_map(|(reports, private, files)| Measured {
        reported: reports.then(usual_report),
        private: private.map(Bytes::mib),
        files: files.map(|all| all.into_iter().map(|(n, mib)| (file(n), Bytes::mib(mib))).collect()),
    });
    (measured, size()).prop_map(|(measured, shown)| (measured, shown.map(Bytes::mib)))
}

proptest! {
    /// M1 to M3.
    #[test]
    fn no_part_is_below_what_was_last_measured_and_nothing_goes_below_the_plan_without_a_report(
        (private, mapped, card) in (0u64..2000, 0u64..2000, prop::option::of(0u64..2000)),
        beside in prop::option::of(0u64..500),
        all in prop::collection::vec(any_measured(), 1..12),
    ) {
        let device = card.map(|mib| (DeviceId("A".into()), Bytes::mib(mib))).into_iter().collect();
        let mut plan = Claim { device, ..planned(private, mapped) };
        plan.ram_files.insert((file(2), Bytes::mib(500)));
        let mut account = Account::new(Now::ZERO, plan.clone(), beside.map(Bytes::mib));
        let memory = |claim: &Claim| claim.total().saturating_sub(Bytes::sum(claim.device.values().copied()));
        let (mut before, mut settled) = (plan.clone(), false);
        let card = DeviceId("A".into());
        for (measured, shown) in all {
            let reported_before = account.buffers.is_some();
            account.take(&measured);
            account.take_shown(&card, shown.unwrap_or_default());
            let line = account.line();
            prop_assert!(measured.private <= Some(line.ram_private), "M1");
            for (id, bytes) in measured.files.iter().flatten() {
                prop_assert!(bytes.is_zero() || line.ram_files.iter().any(|(of, b)| of == id && b >= bytes), "M1");
            }
            prop_assert!(shown.is_none_or(|bytes| line.device.get(&card).copied().unwrap_or_default() >= bytes), "M1");
            let reported = account.buffers.is_some();
            prop_assert!(reported && beside.is_some() || memory(&line) >= memory(&plan), "M2: {line:?}");
            let late_report = reported && !reported_before;
            prop_assert!(!settled || late_report || memory(&line) >= memory(&before), "M3: {before:?} {line:?}");
            settled = account.private.is_some() && account.files.is_some();
            prop_assert!(line.total() >= account.measured().unwrap_or_default());
            before = line;
        }
    }
}
