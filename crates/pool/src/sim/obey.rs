//! How a shell made of nothing obeys: what the pool wants done is done, one thing or all.
use super::{
    trace::Place,
    world::{Child, World, key_of},
};
use crate::{Action, Facts, Input};
use motorpool_vocab::Endpoint;

impl World {
    /// A slot of this engine was written.
    pub(super) fn written(&mut self, at: &Place) -> Vec<Action> {
        let key = key_of(at);
        let of = self.kept.children().find(|spawn| self.children.get(spawn).map(|(key, _)| key) == key.as_ref());
        match of.and_then(|spawn| self.kept.take(Some(spawn))) {
            Some((spawn, writing)) => self.feed(Input::SlotWritten { spawn, writing }),
            None => vec![],
        }
    }

    /// All that the pool wants done is done, until it wants nothing more.
    pub(super) fn obey(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        // What never ends by itself ends here.
        for _ in 0..1000 {
            if let Some((spawn, writing)) = self.kept.take(None) {
                actions.extend(self.feed(Input::SlotWritten { spawn, writing }));
                continue;
            }
            let check = (!self.checks.is_empty()).then(|| self.checks.remove(0));
            let child = self.children.iter().find(|(_, (_, s))| *s != Child::Serving).map(|(n, (_, s))| (*n, *s));
            actions.extend(match (check, child) {
                (Some((build, _)), _) => self.feed(Input::Checked { build, result: Ok(facts()) }),
                (None, Some((spawn, Child::Loading))) => {
                    self.turn(spawn, Child::Serving);
                    self.feed(Input::Ready { spawn, endpoint: Endpoint::Tcp(1), width: 2 })
                }
                (None, Some((spawn, _))) => self.end_child(spawn),
                (None, None) => break,
            });
        }
        actions
    }
}

pub(super) fn facts() -> Facts {
    Facts {
        context_length: Some(8192),
        architecture: Some("llama".into()),
        ..Facts::bare("/bin/engine", "/models/x.gguf")
    }
}
