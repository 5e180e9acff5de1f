//! [`Lesson`]: what earlier loads with the same settings taught, and how that becomes the next estimate
//! (capacity.md §5).
//!
//! ```text
//!             Saw, near the estimate ──────────────────────────► believed (high-water mark)
//! Experience ─ Saw, far from it ─► doubted ─ far again, another child ─┘
//!             Died of memory ─► died: what it needed at least; far from the estimate it counts from the second on
//!                                 └─ Saw of the same settings: forgotten
//! ```
//!
//! Boundary: whoever keeps lessons gives those of the same model file and engine build; here they are told apart by plan
//! and split. What is mapped of files is no part of a lesson: it is known from the files.
//!
//! | the size was | a lesson of exactly these settings |
//! | --- | --- |
//! | estimated by part | takes its place, larger or smaller |
//! | estimated from files | raises system memory; takes the place of a device's part, which a driver showed |
//! | declared | only raises it: less was never seen of what its operator promised |
//!
//! A death says only how much its plan lacked. Where nothing was seen of a plan, it lacks as much as one that died in
//! the same place: the sizes that follow from a plan are exact, so what was missing is what every plan takes beside them.
//! So what is planned next is smaller, and by more than one step.
//!
//! * **L1** what one child alone saw far from its estimate changes no plan.
//! * **L2** what is believed was seen, and is no less than anything near its estimate that was seen.
use crate::{LaunchPlan, Placement, Source, Split};
use motorpool_vocab::{Bytes, Claim, DeviceId, Spawn};
use std::{collections::BTreeMap, sync::Arc};

/// More than so many times the estimate, or less than this part of it, is far from it.
const FAR: u64 = 3;

/// Memory of one child's own by place; pages of files are not among it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Private system memory; `None`: nothing is known of it.
    pub private: Option<Bytes>,
    /// On each device of which something is known.
    pub device: BTreeMap<DeviceId, Bytes>,
}

/// Launches of the same model file by the same engine build take the same when they have the same settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchKey {
    /// Context, slots, KV type.
    pub plan: LaunchPlan,
    /// What is offloaded, and where to.
    pub split: Split,
}

/// What one child teaches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experience {
    /// How it was launched.
    pub key: LaunchKey,
    /// Who it is: what one child sees several times was seen once.
    pub spawn: Spawn,
    /// What the estimate said, before anything learned.
    pub estimate: Marks,
    /// What happened.
    pub news: News,
}

/// What happened to a child.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// It served, and held so much at most.
    Saw(Marks),
    /// It died of too little memory, and needed so much at least.
    Died(Marks),
}

/// What is known of launches with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lesson {
    /// Which launches.
    pub key: LaunchKey,
    /// The next estimate.
    pub believed: Option<Marks>,
    /// Far from the estimate and seen by one child only.
    pub doubted: Option<Doubt>,
    /// The last one died of too little memory.
    pub died: Option<Death>,
}

/// Something that is not believed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doubt {
    /// Who saw it.
    pub spawn: Spawn,
    /// What was seen.
    pub marks: Marks,
    /// On which side of the estimate.
    pub side: Side,
}

/// On which side of an estimate something is that is far from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// A part is more than three times the estimate.
    Above,
    /// A part is less than a third of it, and none is that much more.
    Below,
}

/// A death of memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// Who died.
    pub spawn: Spawn,
    /// Whether it is believed.
    pub belief: Belief,
    /// What the estimate said.
    pub estimate: Marks,
    /// What was needed at least, where it lacked.
    pub needed: Marks,
}

/// Whether a death counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Belief {
    /// Yes.
    Believed,
    /// What it needed is far from the estimate, and no other child needed as much.
    Doubted,
}

/// What is known of launches with one plan, wherever they go. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Learned {
    lessons: Arc<[Lesson]>,
    plan: Option<LaunchPlan>,
    /// Where the size comes from that is corrected.
    source: Option<Source>,
}

impl Marks {
    /// What `claim` asks for.
    pub fn of(claim: &Claim) -> Self {
        Self { private: Some(claim.ram_private), device: claim.device.clone() }
    }

    /// Of each part the larger.
    fn raise(&mut self, other: &Self) {
        self.private = self.private.max(other.private);
        for (id, bytes) in &other.device {
            let part = self.device.entry(id.clone()).or_default();
            *part = (*part).max(*bytes);
        }
    }

    /// Each part as a place and its bytes; `None` is system memory.
    fn parts(&self) -> impl Iterator<Item = (Option<&DeviceId>, Bytes)> {
        let private = self.private.map(|bytes| (None, bytes));
        private.into_iter().chain(self.device.iter().map(|(id, bytes)| (Some(id), *bytes)))
    }

    fn at(&self, place: Option<&DeviceId>) -> Bytes {
        match place {
            None => self.private.unwrap_or_default(),
            Some(id) => self.device.get(id).copied().unwrap_or_default(),
        }
    }

    fn set(&mut self, place: Option<&DeviceId>, bytes: Bytes) {
        match place {
            None => self.private = Some(bytes),
            Some(id) => drop(self.device.insert(id.clone(), bytes)),
        }
    }
}

/// Whether a part of `seen` is far from the estimate, and on which side.
fn far_from(estimate: &Marks, seen: &Marks) -> Option<Side> {
    let above = |(place, bytes): (Option<&DeviceId>, Bytes)| bytes > estimate.at(place).saturating_mul(FAR);
    let below = |(place, bytes): (Option<&DeviceId>, Bytes)| bytes.saturating_mul(FAR) < estimate.at(place);
    if seen.parts().any(above) {
        return Some(Side::Above);
    }
    seen.parts().any(below).then_some(Side::Below)
}

impl Lesson {
    /// Of launches of which nothing is known yet.
    pub fn new(key: LaunchKey) -> Self {
        Self { key, believed: None, doubted: None, died: None }
    }

    /// Takes what happened to a child with this key.
    pub fn take(&mut self, experience: &Experience) {
        match &experience.news {
            News::Died(needed) => {
                self.died = Some(self.death(experience, needed));
            }
            News::Saw(marks) => {
                // There was enough after all.
                self.died = None;
                self.saw((experience.spawn, marks), far_from(&experience.estimate, marks));
            }
        }
    }

    fn death(&self, experience: &Experience, needed: &Marks) -> Death {
        let Experience { spawn, estimate, .. } = experience;
        let is_first = self.died.as_ref().is_none_or(|before| before.spawn == *spawn);
        let doubted = is_first && far_from(estimate, needed) == Some(Side::Above);
        let belief = if doubted { Belief::Doubted } else { Belief::Believed };
        Death { spawn: *spawn, belief, estimate: estimate.clone(), needed: needed.clone() }
    }

    /// The death that counts.
    fn believed_death(&self) -> Option<&Death> {
        self.died.as_ref().filter(|death| death.belief == Belief::Believed)
    }

    fn saw(&mut self, (spawn, marks): (Spawn, &Marks), far: Option<Side>) {
        let before = self.doubted.take();
        let Some(side) = far else {
            // What the same child said before, it says better now.
            self.doubted = before.filter(|doubt| doubt.spawn != spawn);
            return self.believe(marks);
        };
        match before {
            Some(doubt) if doubt.spawn != spawn && doubt.side == side => {
                self.believe(&doubt.marks);
                self.believe(marks);
            }
            _ => self.doubted = Some(Doubt { spawn, marks: marks.clone(), side }),
        }
    }

    fn believe(&mut self, marks: &Marks) {
        self.believed.get_or_insert_default().raise(marks);
    }

    /// Whether launches by `key` have the same kind of place: a death in one is one in the other.
    fn is_beside(&self, plan: &LaunchPlan, split: &Split) -> bool {
        let places = |split: &Split| split.devices.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
        let Split { gpu_layers, cpu_moe, .. } = self.key.split;
        self.key.plan.kv == plan.kv
            && (gpu_layers, cpu_moe) == (split.gpu_layers, split.cpu_moe)
            && places(&self.key.split) == places(split)
    }
}

impl Learned {
    /// What `lessons` say of launches with `plan`, whose size comes from `source`.
    pub(crate) fn of(lessons: &Arc<[Lesson]>, plan: LaunchPlan, source: Source) -> Self {
        Self { lessons: lessons.clone(), plan: Some(plan), source: Some(source) }
    }

    /// Whether something is known of launches with this plan.
    pub fn is_something(&self) -> bool {
        let own = |lesson: &&Lesson| Some(lesson.key.plan) == self.plan;
        self.lessons.iter().filter(own).any(|lesson| lesson.believed.is_some() || lesson.believed_death().is_some())
    }

    /// Puts what was learned of exactly this placement in the place of what was estimated.
    pub(crate) fn correct(&self, placement: &mut Placement) {
        if self.lessons.is_empty() {
            return;
        }
        let estimate = Marks::of(&placement.claim);
        let Some(marks) = self.marks(&placement.split, &estimate) else { return };
        let claim = &mut placement.claim;
        // Where devices share system memory, all of a child that uses them counts as theirs.
        let shares = claim.device.is_empty() && !claim.accelerated.is_zero();
        for (place, bytes) in marks.parts() {
            match place {
                None => claim.ram_private = bytes,
                Some(id) => drop(claim.device.insert(id.clone(), bytes)),
            }
        }
        if shares {
            claim.accelerated = claim.total();
        }
        placement.estimate = Some(estimate);
    }

    /// What to plan with instead of `estimate`; `None` when nothing was learned.
    fn marks(&self, split: &Split, estimate: &Marks) -> Option<Marks> {
        let plan = self.plan?;
        let own = self.lessons.iter().find(|lesson| lesson.key.plan == plan && lesson.key.split == *split);
        if let Some(believed) = own.and_then(|lesson| lesson.believed.as_ref()) {
            let mut marks = self.weighed(believed, estimate);
            if let Some(death) = own.and_then(Lesson::believed_death) {
                marks.raise(&death.needed);
            }
            return Some(marks);
        }
        let beside = self.lessons.iter().filter(|lesson| lesson.is_beside(&plan, split));
        let deaths: Vec<_> = beside.filter_map(Lesson::believed_death).collect();
        let mut marks = estimate.clone();
        for death in &deaths {
            for (place, needed) in death.needed.parts() {
                let lack = needed.saturating_sub(death.estimate.at(place));
                let with_lack = estimate.at(place).saturating_add(lack);
                marks.set(place, marks.at(place).max(with_lack));
            }
        }
        (!deaths.is_empty()).then_some(marks)
    }

    /// What is believed, as far as it may replace the estimate; see the table above.
    fn weighed(&self, believed: &Marks, estimate: &Marks) -> Marks {
        let mut marks = believed.clone();
        let raises_only = |place: Option<&DeviceId>| match self.source {
            Some(Source::Declared) => true,
            Some(Source::FileSize) => place.is_none(),
            _ => false,
        };
        for (place, bytes) in believed.parts().filter(|(place, _)| raises_only(*place)) {
            marks.set(place, bytes.max(estimate.at(place)));
        }
        marks
    }
}

#[cfg(test)]
mod tests;
