//! So many engines of each named model: [`Pool::on_reconcile`].
//!
//! Best effort: builds are begun as attempts, what is too many stops if it is idle, and what is busy stays and is
//! named. The number holds from then on as the least; models that are not named are left alone.
use crate::{
    Answer, Pool, Reconciled, RequestId,
    attempt::Purpose,
    entry::{EntryId, Phase},
};
use motorpool_catalog::MOST_REPLICAS;
use motorpool_vocab::{CloseIfIdle, ModelId, Now, StopReason};
use std::collections::BTreeMap;

impl Pool {
    pub(crate) fn on_reconcile(&mut self, now: Now, id: RequestId, targets: BTreeMap<ModelId, u32>) {
        let mut done = Reconciled::default();
        let is_open = !self.is_closing();
        // All of them first: no build takes the place of another wish.
        let (known, unknown): (Vec<_>, Vec<_>) = targets
            .into_iter()
            .partition(|(model, n)| is_open && self.catalog.model(model).is_some() && *n <= MOST_REPLICAS);
        done.refused.extend(unknown.into_iter().map(|(model, _)| model));
        for (model, n) in &known {
            self.upkeep.targets.insert(model.clone(), *n);
            self.upkeep.widen(model);
        }
        for (model, n) in known {
            self.stop_beyond(now, (&model, n), &mut done);
            self.start_below(now, (&model, n), &mut done);
        }
        self.reply(id, Answer::Reconciled(done));
    }

    fn start_below(&mut self, now: Now, (model, n): (&ModelId, u32), done: &mut Reconciled) {
        let Some(model) = self.catalog.model(model).cloned() else { return };
        for replica in 0..n {
            let Some(entry) = self.entry_at(now, &model, replica) else { continue };
            self.entries[entry].attempts.tell_anew();
            if self.begin_attempt(now, entry, Purpose::Reconcile) {
                done.starting.push(self.entries[entry].key.clone());
            }
        }
    }

    fn stop_beyond(&mut self, now: Now, (model, n): (&ModelId, u32), done: &mut Reconciled) {
        let beyond: Vec<EntryId> =
            self.family(model).into_iter().flat_map(|family| family.range(n..)).map(|(_, entry)| *entry).collect();
        for entry in beyond {
            let target = &self.entries[entry];
            let key = target.key.clone();
            let busy = self.is_wanted(entry) || self.is_busy(entry);
            match &target.phase {
                Phase::Idle | Phase::Stopping { .. } => {}
                Phase::Ready(serving) if !busy && serving.gate.close_if_idle() == CloseIfIdle::Closed => {
                    self.retire_replica(now, entry);
                    done.stopping.push(key);
                }
                Phase::Admission(_) if !busy => self.withdraw(now, entry),
                Phase::Starting(_) | Phase::Proving(_) if !busy => {
                    self.tear_down(now, entry, StopReason::ScaleDown);
                    done.stopping.push(key);
                }
                Phase::WaitsForRoom(_) if !busy => self.abandon_waiting(now, entry),
                Phase::Checking { .. } if !busy => self.entries[entry].attempts.end(),
                Phase::Checking { .. }
                | Phase::WaitsForRoom(_)
                | Phase::Admission(_)
                | Phase::Starting(_)
                | Phase::Proving(_)
                | Phase::Ready(_) => {
                    done.busy.push(key);
                }
            }
        }
    }
}
