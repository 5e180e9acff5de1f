//! What a decision costs over 10,000 engines: it fits, a few must go, everybody must go, nothing helps.
use criterion::{Criterion, criterion_group, criterion_main};
use motorpool_broker::{
    BudgetSetting, Candidate, Card, Host, HostShape, Ledger, Load, Policy, Query, Room, Standing, pick_room,
};
use motorpool_vocab::{Bytes, Claim, DeviceId, FileId, Now, Spawn};
use std::{hint::black_box, time::Duration};

const N: u64 = 10_000;
const CARDS: u64 = 4;

/// Each holds 10 MiB on one of four cards, 10 MiB alone, and a file that it shares with nine others.
fn line(n: u64) -> Claim {
    let id = FileId { device: 1, inode: n / 10, size: 1, mtime_nanos: 0 };
    Claim {
        device: [(DeviceId(format!("GPU-{}", n % CARDS).into()), Bytes::mib(10))].into(),
        ram_private: Bytes::mib(10),
        ram_files: [(id, Bytes::mib(20))].into(),
        accelerated: Bytes::mib(10),
    }
}

fn candidate(n: u64) -> Candidate {
    let hits = u32::try_from(n * 7919 % 50).unwrap_or(0);
    Candidate {
        spawn: Spawn(n),
        key: format!("e:m{n}:0").parse().expect("a key"),
        standing: Standing::Idle,
        hits,
        last_use: Now::from_nanos(n * 104_729 % 1_000_003),
        reload: Duration::from_secs(n % 60),
    }
}

fn full_house() -> (Ledger, Vec<Candidate>) {
    let gib = N / CARDS * 10 / 1024 * 1000 / 950 + 3;
    let cards = (0..CARDS).map(|n| Card::new(&format!("GPU-{n}"), Bytes::gib(gib))).collect();
    let host = Host {
        shape: HostShape::DiscreteGpu,
        ram: Bytes::gib(512),
        cards,
        budget: BudgetSetting::explicit(Bytes::gib(512)),
        ..Host::default()
    };
    let mut ledger = Ledger::new(host.bounds());
    for n in 0..N {
        let verdict = ledger.reserve(Spawn(n), line(n));
        assert_eq!(verdict, motorpool_broker::Verdict::Admit, "{n}");
    }
    (ledger, (0..N).map(candidate).collect())
}

fn room(c: &mut Criterion) {
    let (ledger, candidates) = full_house();
    let lump = |mib| Load::lump(Claim::private(Bytes::mib(mib)));
    let everything = ledger.accelerated().get() / (1 << 20) / CARDS;
    for (name, mib, policy) in [
        ("it fits", 10, Policy::DemandLru),
        ("some must go", 3_000, Policy::DemandLru),
        ("some must go, gdsf", 3_000, Policy::Gdsf),
        ("all of a card must go", everything, Policy::DemandLru),
        ("everybody must go", 80_000, Policy::DemandLru),
        ("nothing helps", 900_000, Policy::DemandLru),
    ] {
        let load = lump(mib);
        let query = Query { load: &load, elders: &[], leaving: &[], draining: &[], fixed: &[], policy };
        let n = match pick_room(&ledger, &query, &candidates) {
            Room::Evict { set, .. } => format!("{} of {N} go", set.len()),
            room => format!("{room:?}").chars().take_while(char::is_ascii_alphabetic).collect(),
        };
        c.bench_function(&format!("room/{name} ({n})"), |b| {
            b.iter(|| pick_room(black_box(&ledger), black_box(&query), black_box(&candidates)));
        });
    }
    let spawn = Spawn(N);
    c.bench_function("ledger/reserve and release", |b| {
        let mut ledger = ledger.clone();
        b.iter(|| {
            let verdict = ledger.reserve(spawn, black_box(line(3)));
            ledger.release(spawn);
            verdict
        });
    });
}

criterion_group!(benches, room);
criterion_main!(benches);
