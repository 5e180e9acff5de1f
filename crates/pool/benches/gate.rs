//! What the warm path costs: one entry and one leave at a gate, alone and beside seven other threads.
#![expect(clippy::disallowed_methods, reason = "the seven others run beside it")]
use criterion::{Criterion, criterion_group, criterion_main};
use motorpool_vocab::{Gate, TryEnter};
use std::{
    hint::black_box,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

fn enter_and_leave(gate: &Gate) {
    if gate.try_enter() == TryEnter::Entered {
        gate.leave();
    }
}

fn gate(c: &mut Criterion) {
    let gate = Gate::new(64);
    c.bench_function("gate/enter and leave, alone", |b| b.iter(|| enter_and_leave(black_box(&gate))));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    enter_and_leave(&gate);
                }
            });
        }
        c.bench_function("gate/enter and leave, beside 7 threads", |b| b.iter(|| enter_and_leave(black_box(&gate))));
        stop.store(true, Ordering::Relaxed);
    });
}

criterion_group!(benches, gate);
criterion_main!(benches);
