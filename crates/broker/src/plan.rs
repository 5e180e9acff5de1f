//! [`plan_launch`]: which context, how many slots, which KV type; and what that claims.
//!
//! The estimate by parts of the header comes with the capacity work; until then a claim is what the operator
//! declared, else the formula of capacity.md §6 for files without a readable header.
use motorpool_gguf::estimate_unreadable;
use motorpool_vocab::{Bytes, Claim, FileId};
use std::fmt;

/// Context of a model whose header names none, and the most an unasked context is.
const CONTEXT_UNKNOWN: u32 = 8_192;
const CONTEXT_MOST: u32 = 65_536;

/// What an operator or a header says about how to launch a model. `None` is left to the plan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    /// Tokens per slot, as configured.
    pub context: Option<u32>,
    /// Requests at a time, as configured.
    pub slots: Option<u32>,
    /// KV cache type, as configured.
    pub kv: Option<KvType>,
    /// The model's own context length, from its header.
    pub context_own: Option<u32>,
    /// The model's architecture, from its header.
    pub architecture: Option<String>,
}

/// How the KV cache is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvType {
    /// 16-bit floats.
    F16,
    /// 8-bit blocks; needs flash attention.
    Q8,
    /// 4-bit blocks; needs flash attention.
    Q4,
}

/// Everything that a launch needs to be told explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchPlan {
    /// Tokens per slot.
    pub context_per_slot: u32,
    /// Requests at a time.
    pub slots: u32,
    /// KV cache type.
    pub kv: KvType,
}

impl KvType {
    /// The name that llama-server and configuration use.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::F16 => "f16",
            Self::Q8 => "q8_0",
            Self::Q4 => "q4_0",
        }
    }

    /// The type with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::F16, Self::Q8, Self::Q4].into_iter().find(|kv| kv.as_str() == name)
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The launch plan of capacity.md §6. `fast` is the memory that slots are sized by.
pub fn plan_launch(wishes: &Wishes, fast: Bytes) -> LaunchPlan {
    LaunchPlan {
        context_per_slot: wishes.context.unwrap_or_else(|| pick_context(wishes.context_own)),
        slots: wishes.slots.unwrap_or_else(|| pick_slots(fast)).max(1),
        kv: wishes.kv.unwrap_or_else(|| pick_kv(wishes.architecture.as_deref())),
    }
}

fn pick_context(own: Option<u32>) -> u32 {
    own.map_or(CONTEXT_UNKNOWN, |own| own.clamp(1, CONTEXT_MOST))
}

fn pick_slots(fast: Bytes) -> u32 {
    const STEPS: [(Bytes, u32); 3] = [(Bytes::gib(12), 1), (Bytes::gib(24), 2), (Bytes::gib(48), 3)];
    STEPS.iter().find(|(below, _)| fast < *below).map_or(4, |(_, slots)| *slots)
}

/// Gemma's families lose quality with a quantised cache.
fn pick_kv(architecture: Option<&str>) -> KvType {
    if architecture.is_some_and(|a| a.starts_with("gemma")) { KvType::F16 } else { KvType::Q8 }
}

/// The operator's word: charged as it stands, shared with nobody.
pub fn claim_declared(declared: Bytes) -> Claim {
    Claim::private(declared)
}

/// The formula for files whose header says nothing, and the configured prompt cache: the files are mapped, so their
/// own bytes are shared with other children that map them, and the rest is private.
pub fn claim_unreadable(files: &[(FileId, Bytes)], prompt_cache: Bytes) -> Claim {
    let size = Bytes::sum(files.iter().map(|(_, bytes)| *bytes));
    let all = estimate_unreadable(size, None);
    Claim {
        ram_private: all.saturating_sub(size).saturating_add(prompt_cache),
        ram_files: files.iter().copied().collect(),
        ..Claim::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_is_taken_as_it_is() {
        let wishes = Wishes { context: Some(4096), slots: Some(3), kv: Some(KvType::Q4), ..Wishes::default() };
        let plan = plan_launch(&wishes, Bytes::gib(4));
        assert_eq!(plan, LaunchPlan { context_per_slot: 4096, slots: 3, kv: KvType::Q4 });
    }

    #[test]
    fn slots_follow_the_fast_memory() {
        for (gib, slots) in [(0, 1), (11, 1), (12, 2), (23, 2), (24, 3), (47, 3), (48, 4), (512, 4)] {
            assert_eq!(plan_launch(&Wishes::default(), Bytes::gib(gib)).slots, slots, "{gib} GiB");
        }
    }

    #[test]
    fn an_unasked_context_is_the_models_own_within_bounds() {
        let context =
            |own| plan_launch(&Wishes { context_own: own, ..Wishes::default() }, Bytes::ZERO).context_per_slot;
        assert_eq!(context(Some(32_768)), 32_768);
        assert_eq!(context(Some(1_000_000)), 65_536);
        assert_eq!(context(Some(0)), 1);
        assert_eq!(context(None), 8_192);
    }

    #[test]
    fn gemma_keeps_sixteen_bits() {
        let kv =
            |arch: &str| plan_launch(&Wishes { architecture: Some(arch.into()), ..Wishes::default() }, Bytes::ZERO).kv;
        assert_eq!(kv("gemma3"), KvType::F16);
        assert_eq!(kv("llama"), KvType::Q8);
        assert_eq!(KvType::from_name("q8_0"), Some(KvType::Q8));
        assert_eq!(KvType::from_name("q9"), None);
    }

    #[test]
    fn an_estimate_shares_the_files_and_keeps_the_rest_private() {
        let id = FileId { device: 1, inode: 2, size: 1000, mtime_nanos: 3 };
        let claim = claim_unreadable(&[(id, Bytes::mib(1000))], Bytes::mib(64));
        assert_eq!(claim.total(), estimate_unreadable(Bytes::mib(1000), None).saturating_add(Bytes::mib(64)));
        assert_eq!(claim.private_total(), claim.total().saturating_sub(Bytes::mib(1000)));
        assert_eq!(claim_declared(Bytes::gib(1)), Claim::private(Bytes::gib(1)));
    }
}
