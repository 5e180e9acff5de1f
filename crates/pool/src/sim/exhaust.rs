//! [`exhaust`]: every order of requests, loads, crashes, unloads and reloads of two engines of which one fits, to a depth.
//!
//! A world has gates that others hold, so it is not copied: each order is replayed from its beginning. What follows the
//! last step is that everything ends ([`Run::finish`]), so that whoever is forgotten by any order is found.
use super::{
    rules::{Broken, Run},
    trace::{Edit, Place, Setting, SettingModel, Step, Telling, Trace, Which},
    world::{Child, World, key_of},
};
use crate::{Force, RequestId};

/// Requests for a lease in one order, the one of its beginning counted.
const REQUESTS_MOST: usize = 4;
/// Longer than callers wait for others to finish, and than a fresh engine is spared.
const PASS_MS: u64 = 31_000;

/// How many orders of `depth` steps keep every property, from a world where nothing runs and from one where an engine
/// served and is idle; or the first that does not, and the property.
pub fn exhaust(depth: usize) -> Result<u64, Box<(Trace, Broken)>> {
    let setting = setting();
    let from_nothing = go_on(&setting, &mut vec![], depth)?;
    Ok(from_nothing + go_on(&setting, &mut one_idle(), depth)?)
}

fn one_idle() -> Vec<Step> {
    let (a, first) = (("a".to_owned(), 0), RequestId(1));
    let begin = [Step::Acquire(first, "a".into(), Box::default()), Step::Check(a.clone(), Ok(())), Step::Ready(a, 1)];
    begin.into_iter().chain([Step::Leave(first, Telling::Now), Step::Pass(PASS_MS)]).collect()
}

fn setting() -> Setting {
    let model = |id: &str| SettingModel { id: id.into(), mib: 600, priority: 0, stays: [false; 2], replicas: (1, 1) };
    Setting { budget: 1100, models: vec![model("a"), model("b")] }
}

fn go_on(setting: &Setting, steps: &mut Vec<Step>, depth: usize) -> Result<u64, Box<(Trace, Broken)>> {
    let broken = |steps: &[Step], broken| Box::new((Trace { setting: setting.clone(), steps: steps.to_vec() }, broken));
    let mut run = Run::new(setting);
    for step in steps.iter() {
        run.step(step).map_err(|property| broken(steps, property))?;
    }
    if depth == 0 {
        run.finish().map_err(|property| broken(steps, property))?;
        return Ok(1);
    }
    let next = possible(run.world(), steps);
    drop(run);
    let mut n_orders = 0;
    for step in next {
        steps.push(step);
        n_orders += go_on(setting, steps, depth - 1)?;
        steps.pop();
    }
    Ok(n_orders)
}

/// Everything that can happen next.
fn possible(world: &World, done: &[Step]) -> Vec<Step> {
    let number = RequestId(u64::try_from(done.len()).unwrap_or(u64::MAX).saturating_add(1));
    let n_requests = done.iter().filter(|step| matches!(step, Step::Acquire(..))).count();
    let mut next = Vec::new();
    for model in ["a", "b"] {
        let place: Place = (model.into(), 0);
        if n_requests < REQUESTS_MOST {
            next.push(Step::Acquire(number, model.into(), Box::default()));
        }
        if world.checks.iter().any(|(_, key)| Some(key) == key_of(&place).as_ref()) {
            next.push(Step::Check(place.clone(), Ok(())));
        }
        let states = world.children.values().filter(|(key, _)| Some(key) == key_of(&place).as_ref());
        for (_, child) in states {
            match child {
                Child::Loading => next.extend([
                    Step::Ready(place.clone(), 1),
                    Step::Gone(place.clone(), Which::Newest),
                    Step::Reload(number, model.into(), Edit::Launch),
                ]),
                Child::Serving => next.extend([
                    Step::Reload(number, model.into(), Edit::Launch),
                    Step::Gone(place.clone(), Which::Newest),
                    Step::UnloadIdle(number, place.clone()),
                    Step::Evict(number, place.clone(), Force::No),
                    Step::Evict(number, place.clone(), Force::Yes),
                ]),
                Child::Asked | Child::Killed => next.push(Step::Gone(place.clone(), Which::Oldest)),
            }
        }
    }
    next.extend(world.leases.keys().map(|id| Step::Leave(*id, Telling::Now)));
    let waits = |id: &&RequestId| !world.outcomes.contains_key(id) && !world.cancelled.contains(id);
    let waiting = world.asked.iter().filter(|(_, ask)| ask.is_some()).map(|(id, _)| id).find(waits);
    next.extend(waiting.map(|id| Step::Cancel(*id)));
    next.push(Step::Pass(PASS_MS));
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_vocab::Bytes;

    /// A deeper one is a step of continuous integration: `examples/traces.rs`.
    #[test]
    fn every_order_of_four_steps_keeps_every_property() {
        let budget = Run::new(&setting()).snapshot().pool.budget;
        assert!(budget.is_some_and(|budget| budget < Bytes::mib(1200)), "one of them fits: {budget:?}");
        let n_orders = exhaust(4).unwrap_or_else(|found| panic!("{}\n{}", found.1, found.0));
        assert!(n_orders > 1000, "{n_orders} orders");
    }
}
