//! Random traces of the pool, held against its properties: `traces [STEPS [SEED]]`; and every order of a few steps of two
//! engines: `traces orders DEPTH`; and the longest waits under traffic without a pause: `traces waits`.
//!
//! Continuous integration runs a million steps; ten million are `cargo run --release -p motorpool-pool --example traces
//! -- 10000000`. A trace that breaks a property is shrunk and printed, as `motorpool sim` replays it.
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "a program for developers")]
use motorpool_pool::{
    Action, RequestId,
    sim::{Broken, Dice, Run, Setting, Step, Telling, Trace, Wish, exhaust, shrink},
};
use motorpool_vocab::Lane;
use std::{collections::BTreeMap, env, error::Error, panic, process::ExitCode, time::Instant};

/// Steps of one trace, before everything ends.
const STEPS_OF_ONE: u64 = 400;

fn main() -> ExitCode {
    if env::args().nth(1).as_deref() == Some("orders") {
        return orders(env::args().nth(2).and_then(|text| text.parse().ok()).unwrap_or(6));
    }
    if env::args().nth(1).as_deref() == Some("waits") {
        return waits();
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

/// Requests for one model that come without a pause.
struct Traffic {
    model: &'static str,
    lane: Lane,
    /// From which second on, how often, and for how long each holds its lease, in seconds.
    times: [u64; 3],
}

/// Ten minutes of each traffic, in virtual time; a load takes none.
fn waits() -> ExitCode {
    let of = |model, lane, times| Traffic { model, lane, times };
    let (watched, background) = (Lane::Interactive, Lane::Background);
    let two = "budget 1100\nmodel a 600\nmodel b 600";
    for (name, setting, traffic) in [
        ("b, once, beside steady traffic on a", two, [of("a", watched, [0, 2, 3]), of("b", watched, [21, 10_000, 1])]),
        ("a and b in turns, for one place", two, [of("a", watched, [0, 2, 1]), of("b", watched, [1, 2, 1])]),
        (
            "background beside steady traffic that watches",
            "budget 1100\nmodel a 600",
            [of("a", watched, [0, 1, 2]), of("a", background, [5, 100, 2])],
        ),
    ] {
        match longest(setting, &traffic) {
            Ok(longest) => println!("{name}: {longest:?} s at most"),
            Err(broken) => {
                println!("{name}: {broken}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The longest wait from request to lease, of each traffic, in seconds.
fn longest(setting: &str, traffic: &[Traffic; 2]) -> Result<[u64; 2], Box<dyn Error>> {
    let mut run = Run::new(&setting.parse::<Trace>()?.setting);
    let (mut asked, mut held, mut longest, mut next) = (BTreeMap::new(), BTreeMap::new(), [0; 2], 1);
    for second in 0..600 {
        let mut steps = Vec::new();
        for (n, Traffic { model, lane, times: [from, every, _] }) in traffic.iter().enumerate() {
            if second >= *from && (second - from) % every == 0 {
                let wish = Wish { lane: *lane, ..Wish::default() };
                steps.push(Step::Acquire(RequestId(next), (*model).into(), Box::new(wish)));
                asked.insert(RequestId(next), (n, second));
                next += 1;
            }
        }
        let ended = held.iter().filter(|(_, until)| **until <= second).map(|(id, _)| *id);
        steps.extend(ended.map(|id| Step::Leave(id, Telling::Now)));
        held.retain(|_, until| *until > second);
        steps.extend([Step::Obey, Step::Pass(1000)]);
        for step in &steps {
            for action in run.step(step)? {
                let Action::Grant { id, .. } = action else { continue };
                let Some((n, since)) = asked.remove(&id) else { continue };
                longest[n] = longest[n].max(second - since);
                held.insert(id, second + traffic[n].times[2]);
            }
        }
    }
    // Who still waits, or was refused, counts as long as it waits.
    for (n, since) in asked.into_values() {
        longest[n] = longest[n].max(600 - since);
    }
    Ok(longest)
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
