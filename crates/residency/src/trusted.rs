//! [`Trusted`]: what was decided about a server a moment ago, for which nobody lists and nobody is told again.
use motorpool_vocab::{Now, TargetKey};
use std::{collections::HashMap, time::Duration};

/// How long a decision is trusted.
pub const TRUST: Duration = Duration::from_mins(1);

/// What was decided, as far as it may be repeated without a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decided {
    /// The model is resident, or our load of it ran.
    Resident,
    /// The server is its user's to manage.
    Observed,
}

#[derive(Clone, Debug)]
struct Entry {
    model: String,
    decided: Decided,
    at: Now,
}

/// One entry per server.
#[derive(Clone, Debug, Default)]
pub struct Trusted {
    entries: HashMap<TargetKey, Entry>,
}

impl Trusted {
    /// What holds for `model` on the server `key` without a look; nothing after [`TRUST`], or for another model.
    pub fn get(&self, now: Now, key: &TargetKey, model: &str) -> Option<Decided> {
        let entry = self.entries.get(key)?;
        (entry.model == model && now.since(entry.at) < TRUST).then_some(entry.decided)
    }

    /// Takes down what was decided now, in the place of what was before.
    pub fn put(&mut self, now: Now, key: &TargetKey, entry: (&str, Decided)) {
        self.entries.insert(key.clone(), Entry { model: entry.0.to_owned(), decided: entry.1, at: now });
    }

    /// Forgets: before a mutation, after a release, after a plan that leaves the load to the server, and after a 404, a
    /// not-loaded answer or a lost connection.
    pub fn forget(&mut self, key: &TargetKey) {
        self.entries.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::key;

    #[test]
    fn a_decision_is_trusted_for_its_model_its_server_and_a_minute() {
        let (mut trusted, start) = (Trusted::default(), Now::from_nanos(7));
        trusted.put(start, &key("http://h"), ("a", Decided::Resident));
        let last = start.after(TRUST.saturating_sub(Duration::from_nanos(1)));
        assert_eq!(trusted.get(last, &key("http://h/v1"), "a"), Some(Decided::Resident));
        assert_eq!(trusted.get(start.after(TRUST), &key("http://h"), "a"), None);
        assert_eq!(trusted.get(start, &key("http://h"), "b"), None);
        assert_eq!(trusted.get(start, &key("http://i"), "a"), None);
    }

    #[test]
    fn a_server_has_one_entry_and_it_can_be_forgotten() {
        let mut trusted = Trusted::default();
        trusted.put(Now::ZERO, &key("http://h"), ("a", Decided::Resident));
        trusted.put(Now::ZERO, &key("http://h"), ("b", Decided::Observed));
        assert_eq!(trusted.get(Now::ZERO, &key("http://h"), "a"), None);
        assert_eq!(trusted.get(Now::ZERO, &key("http://h"), "b"), Some(Decided::Observed));
        trusted.forget(&key("http://h"));
        assert_eq!(trusted.get(Now::ZERO, &key("http://h"), "b"), None);
    }
}
