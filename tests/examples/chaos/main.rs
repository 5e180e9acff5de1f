//! Random cycles over real processes: what must always hold is looked at after each.
//!
//! ```sh
//! cargo build -p motorpool -p motorpool-testkit --bins
//! cargo run -p motorpool-tests --example chaos -- 50           # so many cycles; a second number is the seed
//! cargo run -p motorpool-tests --example chaos -- --real 50    # not without the real engine
//! ```
//!
//! A cycle draws some steps (load, ask, stream, leave, kill an engine, its keeper or the supervisor, stop, crash, hang,
//! flood, lose a card, …) and performs them on one daemon with fake engines, fake cards, and the real engine where
//! `MOTORPOOL_TEST_CACHE` holds it (without it that is said on standard error). Then it must hold, in this order:
//!
//! * every request has ended, with an answer, a typed error, or the end of the supervisor;
//! * the ledger is the truth: what `ps --json` shows as reserved is the sum of its living engines' lines, and the keepers
//!   that run are theirs;
//! * once all is unloaded nothing is reserved, no process bears a mark of ours, no zombie and no control group is left, and
//!   the daemon has no more descriptors than before.
//!
//! The first violation ends it: the seed, the cycle and its steps are printed, and the exit code is 1.
mod check;
mod dice;
mod requests;
mod steps;
mod world;

use dice::Dice;
use std::{
    io::Write as _,
    process::ExitCode,
    sync::Mutex,
    time::{Instant, SystemTime, UNIX_EPOCH},
};
use world::World;

/// What was done in the cycle that runs: printed when something breaks off.
static STORY: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[tokio::main]
async fn main() -> ExitCode {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let n_words = words.len();
    words.retain(|word| word != "--real");
    let needs_real = words.len() < n_words;
    let mut numbers = words.iter().map(|word| word.parse::<u64>());
    let (Some(Ok(n_cycles)), seed) = (numbers.next(), numbers.next()) else {
        say("chaos [--real] N [SEED]: so many cycles");
        return ExitCode::from(2);
    };
    let seed = match seed {
        None => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        Some(Ok(seed)) => seed,
        Some(Err(_)) => {
            say("the seed is a number");
            return ExitCode::from(2);
        }
    };
    if world::real().is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "there is no real engine where MOTORPOOL_TEST_CACHE says, only fake ones take part"
        );
        if needs_real {
            return ExitCode::FAILURE;
        }
    }
    say(&format!("seed {seed}"));
    tell_the_story_of_a_panic(seed);
    let began = Instant::now();
    let house = World::house();
    let mut world = World::start(&house).await;
    for cycle in 1..=n_cycles {
        begin_story(cycle);
        // Each cycle's steps follow from seed and number, whatever came before.
        let done = world.cycle(&mut Dice::new(seed.wrapping_add(cycle.wrapping_mul(0x9e37_79b9)))).await;
        if let Err(violation) = done {
            say(&format!("{}\nviolation: {violation}\n{}\nviolations 1", world.log(), story(seed)));
            return ExitCode::FAILURE;
        }
        if cycle % 100 == 0 {
            say(&format!("{cycle} cycles, {} s: {}", began.elapsed().as_secs(), world.tally));
        }
    }
    let (tally, memory) = (world.tally.clone(), world.memory());
    world.stop().await;
    say(&format!("seed {seed}, {n_cycles} cycles in {} s: {tally}; {memory}; violations 0", began.elapsed().as_secs()));
    ExitCode::SUCCESS
}

pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}

/// Adds a line to the story of this cycle.
pub(crate) fn note(line: String) {
    STORY.lock().expect("nobody panics with it").push(line);
}

fn begin_story(cycle: u64) {
    let mut story = STORY.lock().expect("nobody panics with it");
    story.clear();
    story.push(format!("cycle {cycle}"));
}

fn story(seed: u64) -> String {
    let story = STORY.lock().expect("nobody panics with it");
    format!("seed {seed}, {}", story.join("\n  "))
}

/// The helpers of the tests panic when what they wait for does not come.
fn tell_the_story_of_a_panic(seed: u64) {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        say(&format!("violation: a panic, above\n{}\nviolations 1", story(seed)));
    }));
}
