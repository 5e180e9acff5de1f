//! Signs of life of a loading engine beside its words: memory, I/O and processor time of its whole tree.
//!
//! Our own probes keep a hung engine a little busy: a llama-server that answers `/health` with 503 four times a second
//! spends a clock tick each 14 s on it, and some bytes of its sockets. So only growth counts that answering cannot cause.
use motorpool_devices::{cpu_ticks_per_second, descendants_in, look_at_io, look_at_memory, look_at_processes};
use std::{
    io,
    time::{Duration, Instant},
};

/// The part of the time that a tree must have computed, as a divisor: 5 %. Answering our probes takes less than 0.1 %.
const COMPUTES_FROM: u32 = 20;
/// What a clock tick or two cannot show by chance.
const COMPUTES_AT_LEAST: Duration = Duration::from_millis(25);
/// Bytes of memory, or of I/O, a second. Our probes and their answers are 2 KiB a second; at this rate a load would
/// take hours for one GiB.
const GROWS_FROM: u64 = 64 << 10;
/// What a heap or a buffer may take at once without anything being loaded.
const GROWS_AT_LEAST: u64 = 128 << 10;

/// What was last seen of a tree.
pub(crate) struct Pulse {
    leader: u32,
    seen: Option<(Instant, Vitals)>,
}

/// Sums over a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vitals {
    cpu: Duration,
    io: u64,
    memory: u64,
    /// Of that, mapped files.
    mapped: u64,
}

impl Pulse {
    pub(crate) fn of(leader: u32) -> Self {
        Self { leader, seen: None }
    }

    /// Bytes of files that were mapped at the last look.
    pub(crate) fn mapped(&self) -> u64 {
        self.seen.map_or(0, |(_, vitals)| vitals.mapped)
    }

    /// Whether it has done since the last look what only one that loads does; at the first look, yes. So it may have when
    /// nobody could look: that is not held against it, and the next look is compared with the last that was one. Reading
    /// takes milliseconds, so it is done on a thread that may block.
    pub(crate) async fn is_felt(&mut self) -> bool {
        let leader = self.leader;
        let looked = tokio::task::spawn_blocking(move || (Instant::now(), Vitals::observe(leader))).await;
        let Ok((at, looked)) = looked else { return false };
        self.shows_life(at, looked.ok())
    }

    fn shows_life(&mut self, at: Instant, looked: Option<Vitals>) -> bool {
        let Some(now) = looked else { return true };
        match self.seen.replace((at, now)) {
            Some((before_at, before)) => now.shows_life_since(&before, at.duration_since(before_at)),
            None => true,
        }
    }
}

impl Vitals {
    /// An error says that *we* could not look.
    fn observe(leader: u32) -> io::Result<Self> {
        let (mut sum, mut cpu_ticks) = (Self::default(), 0_u64);
        let table = look_at_processes()?;
        let below = descendants_in(&table, leader);
        for facts in table.iter().filter(|process| process.pid == leader || below.contains(&process.pid)) {
            cpu_ticks = cpu_ticks.saturating_add(facts.cpu_ticks);
            sum.io = sum.io.saturating_add(look_at_io(facts.pid)?.map_or(0, motorpool_vocab::Bytes::get));
            let memory = look_at_memory(facts.pid)?.unwrap_or_default();
            sum.mapped = sum.mapped.saturating_add(memory.file.get());
            let parts = [memory.anonymous, memory.swapped, memory.file];
            sum.memory = parts.into_iter().fold(sum.memory, |sum, part| sum.saturating_add(part.get()));
        }
        sum.cpu = Duration::from_millis(cpu_ticks.saturating_mul(1000) / cpu_ticks_per_second());
        Ok(sum)
    }

    /// Whether one of them grew, `elapsed` after `before`, by more than our probes can make it grow.
    fn shows_life_since(&self, before: &Self, elapsed: Duration) -> bool {
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let enough = (GROWS_FROM.saturating_mul(millis) / 1000).max(GROWS_AT_LEAST);
        let grew = |now: u64, before: u64| now.saturating_sub(before) >= enough;
        let computed = self.cpu.saturating_sub(before.cpu);
        computed >= (elapsed / COMPUTES_FROM).max(COMPUTES_AT_LEAST)
            || grew(self.io, before.io)
            || grew(self.memory, before.memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    const LOOK: Duration = Duration::from_secs(2);

    /// Vitals by milliseconds of processor time and KiB of I/O and memory.
    fn vitals(cpu: u64, io: u64, memory: u64) -> Vitals {
        Vitals { cpu: Duration::from_millis(cpu), io: io << 10, memory: memory << 10, mapped: 0 }
    }

    #[test]
    fn a_hung_engine_that_answers_our_probes_shows_no_life() {
        // A llama-server that waits for its model file to say something: 1 tick after 2 s, 8 after 96 s, 24 KiB of heap
        // once, some 4 KiB through its sockets between two looks.
        let seen: Vec<Vitals> = (0..48).map(|n| vitals((1 + n / 7) * 10, n * 4, 9_000 + 24 * (n / 20))).collect();
        assert_eq!(seen.last().map(|last| last.cpu), Some(Duration::from_millis(70)));
        for pair in seen.windows(2) {
            assert!(!pair[1].shows_life_since(&pair[0], LOOK), "{pair:?}");
        }
    }

    #[test]
    fn whatever_a_load_does_is_life() {
        let before = vitals(50, 100, 9_000);
        let cases = [
            ("a tenth of a core", vitals(250, 100, 9_000)),
            ("a slow disk that is read", vitals(60, 100 + 400, 9_000)),
            ("a slow disk that is mapped", vitals(60, 100, 9_000 + 400)),
            ("all at once", vitals(9_000, 9 << 20, 9 << 20)),
        ];
        for (what, now) in cases {
            assert!(now.shows_life_since(&before, LOOK), "{what}");
        }
    }

    #[test]
    fn what_only_shrinks_is_no_life() {
        // Pages of a hung engine are taken from it, and a process of its tree ends.
        assert!(!vitals(0, 0, 0).shows_life_since(&vitals(900, 5_000, 90_000), LOOK));
    }

    #[test]
    fn a_look_that_was_none_is_neither_silence_nor_what_the_next_is_compared_with() {
        let (begun_at, same) = (Instant::now(), vitals(900, 5_000, 90_000));
        let mut pulse = Pulse::of(0);
        let mut look = |n: u32, looked| pulse.shows_life(begun_at + n * LOOK, looked);
        assert!(look(0, Some(same)));
        assert!(look(1, None) && look(2, None), "nobody saw that it does nothing");
        assert!(!look(3, Some(same)), "it has done nothing since it was seen");
    }

    #[test]
    fn a_late_look_asks_for_as_much_more() {
        let (before, after) = (vitals(0, 0, 0), vitals(200, 200, 200));
        assert!(after.shows_life_since(&before, LOOK));
        assert!(!after.shows_life_since(&before, LOOK * 10));
    }

    #[tokio::test]
    async fn a_sleeping_tree_shows_no_life_and_a_busy_one_does() {
        let mut sleeping = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let mut pulse = Pulse::of(sleeping.id());
        // It may still be on its way to sleep.
        while pulse.is_felt().await {}
        assert!(!pulse.is_felt().await);
        sleeping.kill().expect("ours");
        sleeping.wait().expect("ours");
        let mut busy = Command::new("cat").arg("/dev/zero").stdout(Stdio::null()).spawn().expect("cat");
        let mut pulse = Pulse::of(busy.id());
        for _ in 0..3 {
            while !pulse.is_felt().await {}
        }
        busy.kill().expect("ours");
        busy.wait().expect("ours");
    }
}
