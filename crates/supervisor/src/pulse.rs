//! Signs of life of a loading engine beside its words: memory, I/O and processor time of its whole tree.
use motorpool_devices::{descendants, observe_io, observe_memory, observe_process};

/// What was last seen of a tree.
pub(crate) struct Pulse {
    leader: u32,
    seen: Vitals,
}

/// Sums over a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Vitals {
    cpu_ticks: u64,
    io: u64,
    memory: u64,
    /// Of that, mapped files.
    mapped: u64,
}

impl Pulse {
    pub(crate) fn of(leader: u32) -> Self {
        Self { leader, seen: Vitals::default() }
    }

    /// Bytes of files that were mapped at the last look.
    pub(crate) fn mapped(&self) -> u64 {
        self.seen.mapped
    }

    /// Whether anything is other than at the last look. Reading takes milliseconds, so it is done on a thread that
    /// may block.
    pub(crate) async fn has_changed(&mut self) -> bool {
        let leader = self.leader;
        let Ok(now) = tokio::task::spawn_blocking(move || Vitals::observe(leader)).await else { return false };
        std::mem::replace(&mut self.seen, now) != now
    }
}

impl Vitals {
    fn observe(leader: u32) -> Self {
        let mut sum = Self::default();
        for pid in descendants(leader).into_iter().chain([leader]) {
            sum.cpu_ticks = sum.cpu_ticks.saturating_add(observe_process(pid).map_or(0, |facts| facts.cpu_ticks));
            sum.io = sum.io.saturating_add(observe_io(pid).map_or(0, motorpool_vocab::Bytes::get));
            let memory = observe_memory(pid).unwrap_or_default();
            sum.mapped = sum.mapped.saturating_add(memory.file.get());
            let parts = [memory.anonymous, memory.swapped, memory.file];
            sum.memory = parts.into_iter().fold(sum.memory, |sum, part| sum.saturating_add(part.get()));
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[tokio::test]
    async fn a_sleeping_tree_shows_no_life_and_a_busy_one_does() {
        let mut sleeping = Command::new("sleep").arg("1000").spawn().expect("sleep");
        let mut pulse = Pulse::of(sleeping.id());
        // It may still be on its way to sleep.
        while pulse.has_changed().await {}
        assert!(!pulse.has_changed().await);
        sleeping.kill().expect("ours");
        sleeping.wait().expect("ours");
        let mut busy = Command::new("cat").arg("/dev/zero").stdout(Stdio::null()).spawn().expect("cat");
        let mut pulse = Pulse::of(busy.id());
        for _ in 0..3 {
            while !pulse.has_changed().await {}
        }
        busy.kill().expect("ours");
        busy.wait().expect("ours");
    }
}
