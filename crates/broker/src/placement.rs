//! [`pick_placement`]: where a load goes, and the attempts that [`crate::pick_room`] judges.
//!
//! In order (capacity.md §3): one device, the one with the least free that fits; two, three, … devices, largest free
//! first, contiguous layers in proportion to what is free; then, where spilling is allowed or the model is alone, the
//! experts of the first layers to system memory, or the first layers. An operator's choice is the only attempt. Unified
//! hosts and hosts without devices have one pool, and one attempt.
//!
//! What is free depends on who goes: each *view* of the cards gives attempts of its own. Whether an attempt fits is the
//! ledger's to say; here only its shape follows from what is free.
use crate::{
    Choice, HostShape, Ledger, Load, Marks, Parts, Proof, Spilling, Split,
    charges::Weighed,
    cut::{cut_layers, most_that_fit},
    scratch::Scratch,
    split::{ALL_LAYERS, Planned},
};
use motorpool_vocab::{Bytes, Claim, DeviceId};
use std::borrow::Cow;

/// Where a load goes, and what it claims there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What is to be reserved.
    pub claim: Claim,
    /// Which layers go where.
    pub split: Split,
    /// Beside whom.
    pub company: Company,
    /// What was estimated, where what it claims was learned.
    pub estimate: Option<Marks>,
}

/// Beside whom a placement may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Company {
    /// Anybody.
    Any,
    /// Nobody that is accelerated: it lies in system memory for want of room, and spilling is refused.
    Alone,
}

/// What is free on each card, and whether anybody accelerated is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) free: Vec<(DeviceId, Bytes)>,
    pub(crate) accelerated: bool,
}

/// A placement and its claim in numbers.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) placement: Placement,
    pub(crate) weighed: Weighed,
}

/// Where `load` goes beside what is reserved now, or why it goes nowhere. Without an enforced budget it goes where it
/// fits best, whatever is there.
pub fn pick_placement(ledger: &Ledger, load: &Load) -> Result<Placement, Proof> {
    let mut now = Scratch::without(ledger, []);
    let attempts = attempts(ledger, load, &[now.view()]);
    let fits = |now: &mut Scratch<'_>, placement: &Placement| {
        let weighed = now.weigh(&placement.claim);
        now.admits(&Attempt { placement: placement.clone(), weighed })
    };
    if ledger.limits().is_none() {
        return Ok(regardless(ledger, attempts));
    }
    match attempts.iter().find(|placement| fits(&mut now, placement)) {
        Some(placement) => Ok(placement.clone()),
        None => Err(Proof::of(&mut now, attempts)),
    }
}

/// What is best where nothing is measured against: what cards have free, else the card with the most free.
pub(crate) fn regardless(ledger: &Ledger, mut attempts: Vec<Placement>) -> Placement {
    let free = Scratch::without(ledger, []).view().free;
    let has = |(id, bytes): (&DeviceId, &Bytes)| free.iter().any(|(card, free)| card == id && bytes <= free);
    let fit = attempts.iter().position(|placement| placement.claim.device.iter().all(has));
    let one = attempts.iter().rposition(|placement| placement.claim.device.len() == 1);
    attempts.swap_remove(fit.or(one).unwrap_or(0))
}

/// Every attempt, in order of preference; never none. `views` begins with what is free as things are.
pub(crate) fn attempts(ledger: &Ledger, load: &Load, views: &[View]) -> Vec<Placement> {
    let load = &*by_ids(ledger, load);
    let (shape, spilling) = (ledger.bounds().shape, ledger.bounds().spilling);
    let no_device = load.choice.devices.is_none() && ledger.bounds().cards.is_empty();
    let one_pool = shape == HostShape::Unified || load.is_processor_only() || no_device;
    let mut all = match (&load.parts, load.parts.planned(&load.choice)) {
        (Parts::Lump(claim), _) if one_pool => vec![lump_in_memory(claim, load, shape)],
        (Parts::Lump(claim), _) => lumps(claim, load, (views, spilling)),
        (_, Some(planned)) if one_pool => vec![in_one_pool(planned, load, shape)],
        (_, Some(planned)) => placements(planned, load, (views, spilling)),
        (Parts::Known { .. }, None) => vec![],
    };
    for placement in &mut all {
        load.learned.correct(placement);
    }
    let mut seen: Vec<Placement> = Vec::with_capacity(all.len());
    all.retain(|placement| {
        let new = !seen.contains(placement);
        seen.extend(new.then(|| placement.clone()));
        new
    });
    all
}

/// The same load, its chosen devices by their ids: whatever its operator calls a card, it is reserved on under one name.
fn by_ids<'a>(ledger: &Ledger, load: &'a Load) -> Cow<'a, Load> {
    let Some(chosen) = &load.choice.devices else { return Cow::Borrowed(load) };
    let mut ids: Vec<DeviceId> = Vec::with_capacity(chosen.len());
    for id in chosen.iter().map(|name| ledger.bounds().id_of(name)) {
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    if ids == *chosen {
        return Cow::Borrowed(load);
    }
    let choice = Choice { devices: Some(ids), ..load.choice.clone() };
    Cow::Owned(Load { choice, ..load.clone() })
}

fn in_one_pool(planned: Planned<'_>, load: &Load, shape: HostShape) -> Placement {
    let offloads = shape == HostShape::Unified && !load.is_processor_only();
    let gpu_layers = if offloads { planned.gpu_layers } else { 0 };
    let split = Split { devices: vec![], gpu_layers, cpu_moe: if gpu_layers > 0 { planned.cpu_moe } else { 0 } };
    let claim = planned.claim_in_one_pool(&split);
    Placement { claim, split, company: Company::Any, estimate: None }
}

/// The parts are not known: all of it counts as accelerated where there is a device for it.
fn lump_in_memory(claim: &Claim, load: &Load, shape: HostShape) -> Placement {
    let accelerated = shape == HostShape::Unified && !load.is_processor_only();
    let whole = if accelerated { claim.total() } else { Bytes::ZERO };
    let split = Split { gpu_layers: if accelerated { ALL_LAYERS } else { 0 }, ..Split::default() };
    Placement { claim: Claim { accelerated: whole, ..claim.clone() }, split, company: Company::Any, estimate: None }
}

/// One lump on one card, else in system memory. It is not spread: nobody knows where it can be cut, and an engine that was
/// told shares of something unknown would fill one card past what was granted there (B3).
fn lumps(claim: &Claim, load: &Load, (views, spilling): (&[View], Spilling)) -> Vec<Placement> {
    let whole = claim.total();
    let on = |(id, _): (DeviceId, Bytes)| Placement {
        claim: Claim { device: [(id.clone(), whole)].into(), accelerated: whole, ..Claim::default() },
        split: Split { devices: vec![(id, 1)], gpu_layers: ALL_LAYERS, cpu_moe: 0 },
        company: Company::Any,
        estimate: None,
    };
    let mut all: Vec<_> = smallest_first(&views[0], load).into_iter().map(on).collect();
    let alone = views.iter().any(|view| !view.accelerated);
    if load.choice.gpu_layers.is_none() && (alone || spilling == Spilling::Allowed) {
        let company = company(spilling);
        all.push(Placement { claim: claim.clone(), split: Split::processor(), company, estimate: None });
    }
    all
}

fn placements(planned: Planned<'_>, load: &Load, (views, spilling): (&[View], Spilling)) -> Vec<Placement> {
    let place = |split: Split, company| Placement { claim: planned.claim(&split), split, company, estimate: None };
    let whole = whole_splits(planned, load, views);
    let mut all: Vec<_> = whole.into_iter().map(|split| place(split, Company::Any)).collect();
    if load.choice.gpu_layers.is_none() {
        let may = |view: &&View| spilling == Spilling::Allowed || !view.accelerated;
        let spilled: Vec<_> = views.iter().filter(may).filter_map(|view| spill(planned, load, view)).collect();
        let processor = views.iter().any(|view| may(&view)).then(Split::processor);
        all.extend(spilled.into_iter().chain(processor).map(|split| place(split, company(spilling))));
    }
    all
}

/// Everything planned for devices: on those that the operator chose, or on one, on two, on three…
fn whole_splits(planned: Planned<'_>, load: &Load, views: &[View]) -> Vec<Split> {
    if let Some(chosen) = &load.choice.devices {
        return views.iter().map(|view| split_over(planned, &view.of(chosen))).collect();
    }
    let one = |card: (DeviceId, Bytes)| split_over(planned, &[card]);
    let mut all: Vec<_> = smallest_first(&views[0], load).into_iter().map(one).collect();
    for n in 2..=together(views[0].free.clone()).len() {
        all.extend(views.iter().map(|view| split_over(planned, &together(largest_first(view, load))[..n])));
    }
    // A device of several that gets no layer is no use: with fewer there was an attempt.
    all.retain(|split| split.devices.len() < 2 || uses_all(split));
    all
}

fn company(spilling: Spilling) -> Company {
    match spilling {
        Spilling::Allowed => Company::Any,
        Spilling::Refused => Company::Alone,
    }
}

/// Everything planned for devices over exactly these.
fn split_over(planned: Planned<'_>, cards: &[(DeviceId, Bytes)]) -> Split {
    split_of(planned, cards, (planned.gpu_layers, planned.cpu_moe)).0
}

/// So many layers over exactly these cards, and whether they fit there.
fn split_of(planned: Planned<'_>, cards: &[(DeviceId, Bytes)], (layers, moe): (u32, u32)) -> (Split, bool) {
    let rooms: Vec<_> = (0..).zip(cards).map(|(n, (_, free))| free.saturating_sub(planned.fixed(n))).collect();
    let holds = (0..).zip(cards).all(|(n, (_, free))| planned.fixed(n) <= *free);
    let (counts, fits) = cut_layers(&planned.units(layers, moe), &rooms);
    let devices = cards.iter().map(|(id, _)| id.clone()).zip(counts).collect();
    (Split { devices, gpu_layers: layers, cpu_moe: moe }, fits && holds)
}

/// As much as fits: experts of the first layers stay in system memory, as few as do; where that does not suffice, so
/// do the first layers. Over as many cards as take the most. `None`: no layer fits any card.
fn spill(planned: Planned<'_>, load: &Load, view: &View) -> Option<Split> {
    let mut cards = match &load.choice.devices {
        Some(chosen) => view.of(chosen),
        None => largest_first(view, load),
    };
    // What takes nothing would fit a card on which there is nothing.
    cards.retain(|(_, free)| load.choice.devices.is_some() || !free.is_zero());
    let least = if load.choice.devices.is_some() { cards.len() } else { 1 };
    let taken = |split: &Split| Bytes::sum(planned.units(split.gpu_layers, split.cpu_moe));
    let several = if load.choice.devices.is_some() { cards.clone() } else { together(cards.clone()) };
    let over = |n: usize| spill_over(planned, load, if n > 1 { &several[..n] } else { &cards[..n] });
    // Of those that take the same, the first: the fewest cards.
    (least..=several.len().max(cards.len().min(1)))
        .filter_map(over)
        .reduce(|best, more| if taken(&more) > taken(&best) { more } else { best })
}

fn spill_over(planned: Planned<'_>, load: &Load, cards: &[(DeviceId, Bytes)]) -> Option<Split> {
    let of = |layers, moe| split_of(planned, cards, (layers, moe));
    let mut moe = planned.cpu_moe;
    if planned.has_experts() && load.choice.cpu_moe.is_none() {
        let n_layers = planned.n_units() - 1;
        let stay = most_that_fit(n_layers, |n| of(planned.gpu_layers, n_layers - n).1);
        if let Some(on_cards) = stay {
            let (split, _) = of(planned.gpu_layers, n_layers - on_cards);
            return Some(split).filter(uses_all);
        }
        moe = n_layers;
    }
    let layers = most_that_fit(planned.gpu_layers, |n| of(n, moe).1).filter(|n| *n > 0)?;
    Some(of(layers, moe).0).filter(uses_all)
}

fn uses_all(split: &Split) -> bool {
    split.devices.iter().all(|(_, n)| *n > 0)
}

/// Those over which one engine may be split: beside an instance of a card that is cut up it sees nothing.
fn together(mut cards: Vec<(DeviceId, Bytes)>) -> Vec<(DeviceId, Bytes)> {
    cards.retain(|(id, _)| !id.is_instance());
    cards
}

/// The cards that `load` may go to, the one with the least free first; ties by id.
fn smallest_first(view: &View, load: &Load) -> Vec<(DeviceId, Bytes)> {
    let mut cards = match &load.choice.devices {
        Some(chosen) => view.of(chosen),
        None => view.free.clone(),
    };
    cards.sort_by(|a, b| a.1.cmp(&b.1).then_with(|| a.0.cmp(&b.0)));
    cards
}

/// The cards that `load` may go to, the one with the most free first; ties by id.
fn largest_first(view: &View, load: &Load) -> Vec<(DeviceId, Bytes)> {
    let mut cards = smallest_first(view, load);
    cards.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    cards
}

impl View {
    /// These cards in this order; nothing is free on one that is not there.
    fn of(&self, chosen: &[DeviceId]) -> Vec<(DeviceId, Bytes)> {
        let free = |id: &DeviceId| self.free.iter().find(|(card, _)| card == id).map_or(Bytes::ZERO, |(_, free)| *free);
        chosen.iter().map(|id| (id.clone(), free(id))).collect()
    }
}

#[cfg(test)]
mod tests;
