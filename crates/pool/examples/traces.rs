//! Random traces of the pool, held against its properties: `traces [STEPS [SEED]]`; and every order of a few steps of two
//! engines: `traces orders DEPTH`.
//!
//! Continuous integration runs a million steps; ten million are `cargo run --release -p motorpool-pool --example traces
//! -- 10000000`. A trace that breaks a property is shrunk and printed, as `motorpool sim` replays it.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a program for developers")]
use motorpool_pool::sim::{Broken, Dice, Run, Setting, Step, Trace, exhaust, shrink};
use std::{env, panic, process::ExitCode, time::Instant};

/// Steps of one trace, before everything ends.
const STEPS_OF_ONE: u64 = 400;

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("orders") {
        return orders(env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(6));
    }
    let number = |n: usize, default| env::args().nth(n).and_then(|text| text.parse().ok()).unwrap_or(default);
    let (n_steps, seed): (u64, u64) = (number(1, 1_000_000), number(2, 1));
    let begun = Instant::now();
    let mut done = 0;
    while done < n_steps {
        let mut dice = Dice::new(seed.wrapping_mul(1_000_003).wrapping_add(done));
        let setting = dice.setting();
        if let Some(trace) = failing(&setting, &mut dice) {
            report(trace);
            return ExitCode::FAILURE;
        }
        done += STEPS_OF_ONE;
    }
    let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX).max(1);
    println!("{done} steps from seed {seed} keep every property: {} steps a second", done * 1000 / ms);
    ExitCode::SUCCESS
}

fn orders(depth: usize) -> ExitCode {
    let begun = Instant::now();
    match exhaust(depth) {
        Ok(n) => {
            println!("{n} orders of {depth} steps keep every property, in {} s", begun.elapsed().as_secs());
            ExitCode::SUCCESS
        }
        Err(found) => {
            let (trace, broken) = *found;
            println!("{broken}\n\n{trace}");
            ExitCode::FAILURE
        }
    }
}

/// The trace that the dice make, if it breaks a property.
fn failing(setting: &Setting, dice: &mut Dice) -> Option<Trace> {
    let mut steps = Vec::new();
    let drawn = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let mut run = Run::new(setting);
        for _ in 0..STEPS_OF_ONE {
            let step = dice.step(run.world());
            steps.push(step.clone());
            run.step(&step)?;
        }
        run.finish()
    }));
    let kept = matches!(drawn, Ok(Ok(())));
    (!kept).then(|| Trace { setting: setting.clone(), steps })
}

/// How these steps end. A panic is a broken property too.
fn outcome(setting: &Setting, steps: &[Step]) -> Result<(), Broken> {
    let replayed = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        let mut run = Run::new(setting);
        steps.iter().try_for_each(|step| run.step(step).map(drop))?;
        run.finish()
    }));
    replayed.unwrap_or_else(|_| Err(Broken { property: "panic", what: "the pool gave up".into() }))
}

fn report(trace: Trace) {
    panic::set_hook(Box::new(|_| {}));
    let setting = &trace.setting;
    let first = outcome(setting, &trace.steps).err().map(|broken| broken.property);
    let same = |steps: &[Step]| outcome(setting, steps).err().map(|broken| broken.property) == first;
    let steps = shrink(&trace.steps, same);
    if let Err(broken) = outcome(setting, &steps) {
        println!("{broken}");
    }
    println!("\n{}", Trace { steps, ..trace });
}
