//! A lesson as the file keeps it: its key in columns, what is known as JSON.
use motorpool_pool::{Belief, Death, Doubt, KvType, LaunchKey, LaunchPlan, Lesson, Marks, Side, Split};
use motorpool_vocab::{Bytes, DeviceId, Spawn};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a lesson is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RowId {
    /// Model files, engine build, what the engine is told beside its plan.
    pub(super) about: String,
    pub(super) context_per_slot: u32,
    pub(super) slots: u32,
    pub(super) kv_type: String,
    /// Offload and devices, as JSON.
    pub(super) placement: String,
}

/// One lesson.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) lesson: Lesson,
    /// When its last death was, in seconds since the epoch; 0 without one.
    pub(super) died_at: u64,
    /// Larger than that of whatever was used before.
    pub(super) used: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PlacementText {
    devices: Vec<(String, u32)>,
    gpu_layers: u32,
    cpu_moe: u32,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LessonText {
    believed: Option<MarksText>,
    doubted: Option<DoubtText>,
    died: Option<DeathText>,
}

#[derive(Serialize, Deserialize)]
struct MarksText {
    private: Option<u64>,
    device: BTreeMap<String, u64>,
}

#[derive(Serialize, Deserialize)]
struct DoubtText {
    spawn: u64,
    marks: MarksText,
    above: bool,
}

#[derive(Serialize, Deserialize)]
struct DeathText {
    spawn: u64,
    at: u64,
    believed: bool,
    estimate: MarksText,
    needed: MarksText,
}

impl RowId {
    /// The row of launches by `key` of what is called `about`.
    pub(super) fn of(about: &str, key: &LaunchKey) -> Self {
        let LaunchKey { plan: LaunchPlan { context_per_slot, slots, kv }, split } = key;
        let devices = split.devices.iter().map(|(id, n)| (id.0.to_string(), *n)).collect();
        let placement = PlacementText { devices, gpu_layers: split.gpu_layers, cpu_moe: split.cpu_moe };
        Self {
            about: about.to_owned(),
            context_per_slot: *context_per_slot,
            slots: *slots,
            kv_type: kv.as_str().to_owned(),
            placement: serde_json::to_string(&placement).expect("plain values are JSON"),
        }
    }

    fn key(&self) -> Option<LaunchKey> {
        let PlacementText { devices, gpu_layers, cpu_moe } = serde_json::from_str(&self.placement).ok()?;
        let devices = devices.into_iter().map(|(id, n)| (DeviceId(id.into()), n)).collect();
        let kv = KvType::from_name(&self.kv_type)?;
        let plan = LaunchPlan { context_per_slot: self.context_per_slot, slots: self.slots, kv };
        Some(LaunchKey { plan, split: Split { devices, gpu_layers, cpu_moe } })
    }
}

impl Row {
    /// What is known, as the file keeps it.
    pub(super) fn text(&self) -> String {
        let Lesson { believed, doubted, died, .. } = &self.lesson;
        let text = LessonText {
            believed: believed.as_ref().map(MarksText::of),
            doubted: doubted.as_ref().map(|Doubt { spawn, marks, side }| DoubtText {
                spawn: spawn.0,
                marks: MarksText::of(marks),
                above: *side == Side::Above,
            }),
            died: died.as_ref().map(|Death { spawn, belief, estimate, needed }| DeathText {
                spawn: spawn.0,
                at: self.died_at,
                believed: *belief == Belief::Believed,
                estimate: MarksText::of(estimate),
                needed: MarksText::of(needed),
            }),
        };
        serde_json::to_string(&text).expect("plain values are JSON")
    }

    /// The row `id` as it was written; `None` when that was not by us.
    pub(super) fn read(id: &RowId, text: &str, used: u64) -> Option<Self> {
        let LessonText { believed, doubted, died } = serde_json::from_str(text).ok()?;
        let died_at = died.as_ref().map_or(0, |died| died.at);
        let lesson = Lesson {
            key: id.key()?,
            believed: believed.map(MarksText::marks),
            doubted: doubted.map(|DoubtText { spawn, marks, above }| Doubt {
                spawn: Spawn(spawn),
                marks: marks.marks(),
                side: if above { Side::Above } else { Side::Below },
            }),
            died: died.map(|DeathText { spawn, believed, estimate, needed, .. }| Death {
                spawn: Spawn(spawn),
                belief: if believed { Belief::Believed } else { Belief::Doubted },
                estimate: estimate.marks(),
                needed: needed.marks(),
            }),
        };
        Some(Self { lesson, died_at, used })
    }
}

impl MarksText {
    fn of(marks: &Marks) -> Self {
        let device = marks.device.iter().map(|(id, bytes)| (id.0.to_string(), bytes.get())).collect();
        Self { private: marks.private.map(Bytes::get), device }
    }

    fn marks(self) -> Marks {
        let device = self.device.into_iter().map(|(id, bytes)| (DeviceId(id.into()), Bytes::new(bytes))).collect();
        Marks { private: self.private.map(Bytes::new), device }
    }
}
