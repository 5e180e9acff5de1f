//! What outsiders ask of a [`Snapshot`], without side effects (pool.md §7).
use crate::{EngineKey, EntryView, ModelId, Now, PhaseView, Snapshot};

impl Snapshot {
    /// The engine with this key, one that cannot be killed left out: its key may be built anew beside it.
    pub fn entry(&self, key: &EngineKey) -> Option<&EntryView> {
        let beside = [PhaseView::Stuck, PhaseView::Reclaiming];
        self.entries.iter().find(|entry| entry.key == *key && !beside.contains(&entry.phase))
    }

    /// Whether an engine serves.
    pub fn has(&self, key: &EngineKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.phase == PhaseView::Ready)
    }

    /// Whether somebody wants an engine drained.
    pub fn is_draining(&self, key: &EngineKey) -> bool {
        self.entry(key).is_some_and(|entry| entry.n_drainers > 0)
    }

    /// The key that `text` is, whether its engine is there or not; or that of the only engine there is of the model of this
    /// name.
    pub fn resolve_existing(&self, text: &str) -> Option<EngineKey> {
        text.parse().ok().or_else(|| {
            let model = ModelId::new(text).ok()?;
            match self.existing_replicas(&model)[..] {
                [only] => Some(only.key.clone()),
                _ => None,
            }
        })
    }

    /// Engines of a model that live, or are about to, the lowest replica first.
    pub fn existing_replicas(&self, model: &ModelId) -> Vec<&EntryView> {
        let lives = |entry: &&EntryView| entry.key.model() == model && self.is_existing(entry);
        self.entries.iter().filter(lives).collect()
    }

    fn is_existing(&self, entry: &EntryView) -> bool {
        self.entry(&entry.key).is_some_and(|own| std::ptr::eq(own, entry)) && entry.phase != PhaseView::Idle
    }

    /// Engines that serve, the most recently used first.
    pub fn peek(&self) -> Vec<&EntryView> {
        let mut serving: Vec<_> = self.entries.iter().filter(|entry| entry.phase == PhaseView::Ready).collect();
        serving.sort_by_key(|entry| std::cmp::Reverse(entry.last_use.unwrap_or(Now::ZERO)));
        serving
    }

    /// Engines that have a process now, stuck ones included.
    pub fn launches(&self) -> Vec<&EntryView> {
        self.entries.iter().filter(|entry| entry.pid.is_some()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spawn;

    fn entry(key: &str, phase: PhaseView, used: u64) -> EntryView {
        let has_process = !matches!(phase, PhaseView::Idle | PhaseView::Reclaiming | PhaseView::WaitsForRoom);
        EntryView {
            spawn: has_process.then_some(Spawn(used)),
            pid: has_process.then_some(7),
            phase,
            last_use: Some(Now::from_nanos(used)),
            ..EntryView::idle(key.parse().expect("a key"), Now::ZERO)
        }
    }

    fn snapshot() -> Snapshot {
        let drained = EntryView { n_drainers: 1, ..entry("e:a:1", PhaseView::Ready, 9) };
        let entries = vec![
            entry("e:a:0", PhaseView::Ready, 3),
            drained,
            entry("e:a:2", PhaseView::Idle, 8),
            entry("e:a:2", PhaseView::Stuck, 2),
            entry("e:b:0", PhaseView::WaitsForRoom, 0),
            entry("e:c:0", PhaseView::Idle, 1),
            entry("e:c:0", PhaseView::Reclaiming, 1),
        ];
        Snapshot { entries, ..Snapshot::default() }
    }

    fn key(text: &str) -> EngineKey {
        text.parse().expect("a key")
    }

    fn keys(entries: Vec<&EntryView>) -> Vec<String> {
        entries.into_iter().map(|entry| entry.key.to_string()).collect()
    }

    #[test]
    fn an_engine_is_there_when_it_serves() {
        let s = snapshot();
        assert_eq!(
            ["e:a:0", "e:a:1", "e:a:2", "e:b:0", "e:x:0"].map(|k| s.has(&key(k))),
            [true, true, false, false, false]
        );
        assert_eq!(["e:a:0", "e:a:1", "e:x:0"].map(|k| s.is_draining(&key(k))), [false, true, false]);
        assert_eq!(keys(s.peek()), ["e:a:1", "e:a:0"], "the most recently used first");
        assert_eq!(keys(s.launches()), ["e:a:0", "e:a:1", "e:a:2"], "the stuck one has its process");
    }

    #[test]
    fn a_name_means_the_only_engine_of_its_model_and_a_key_itself() {
        let s = snapshot();
        let model = |id| ModelId::new(id).expect("an id");
        assert_eq!(keys(s.existing_replicas(&model("a"))), ["e:a:0", "e:a:1"]);
        assert_eq!(keys(s.existing_replicas(&model("c"))), [] as [&str; 0]);
        assert_eq!(s.resolve_existing("b"), Some(key("e:b:0")));
        assert_eq!([s.resolve_existing("a"), s.resolve_existing("c"), s.resolve_existing("")], [None, None, None]);
        assert_eq!(s.resolve_existing("e:never:3"), Some(key("e:never:3")), "also one that is not there");
    }
}
