//! [`LaunchSettings`]: everything an engine is told that changes what it takes. [`Calibration`]: what was measured of
//! one build of it.
use crate::TensorType;
use motorpool_vocab::Bytes;
use std::collections::BTreeSet;

/// How a model is started. The planner sets every one of them explicitly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchSettings {
    /// Tokens that one slot can hold; engines get the product with the slots.
    pub context_per_slot: u32,
    /// Requests at a time.
    pub slots: u32,
    /// How keys are stored.
    pub kv_keys: TensorType,
    /// How values are stored. Quantised ones need flash attention.
    pub kv_values: TensorType,
    /// Whether slots have cells of their own.
    pub kv_layout: KvLayout,
    /// Whether attention is computed without its whole matrix.
    pub flash_attention: FlashAttention,
    /// What layers that see a window keep.
    pub sliding_window: SlidingWindow,
    /// Tokens that are handed over together (`-b`).
    pub batch: u32,
    /// Tokens that are computed together (`-ub`).
    pub physical_batch: u32,
    /// What is asked of it.
    pub purpose: Purpose,
    /// Most checkpoints of a slot (`-ctxcp`).
    pub checkpoints: u32,
    /// Most that finished prompts may take (`-cram`).
    pub prompt_cache: Bytes,
}

impl Default for LaunchSettings {
    /// One slot of 8192 tokens, as the engine sets the rest, without prompt cache and checkpoints.
    fn default() -> Self {
        Self {
            context_per_slot: 8192,
            slots: 1,
            kv_keys: TensorType::F16,
            kv_values: TensorType::F16,
            kv_layout: KvLayout::PerSlot,
            flash_attention: FlashAttention::On,
            sliding_window: SlidingWindow::Window,
            batch: 2048,
            physical_batch: 512,
            purpose: Purpose::Generate,
            checkpoints: 0,
            prompt_cache: Bytes::ZERO,
        }
    }
}

/// Whose the cells of the cache are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KvLayout {
    /// Each slot has its own (`-no-kvu`).
    PerSlot,
    /// All slots share one (`-kvu`).
    Unified,
}

/// Whether attention is computed piece by piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlashAttention {
    /// Piece by piece (`-fa on`).
    On,
    /// With its whole matrix (`-fa off`).
    Off,
}

/// What layers that see a window keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlidingWindow {
    /// The window and one batch.
    Window,
    /// Everything (`--swa-full`), so that prompts can be used again.
    Full,
}

/// What a model is started for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Text: logits of one token for each slot.
    Generate,
    /// Vectors (`--embeddings`): logits of every token of a batch.
    Embed,
}

/// What was measured of one build of an engine on one machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Activations in the compute buffer, in thousandths of what the law in `compute.rs` says.
    pub activations_per_mille: u64,
    /// Types of which matrices in system memory get a second copy in the processor's preferred order.
    pub repacked: BTreeSet<TensorType>,
    /// What a process takes beside its buffers.
    pub baseline: Bytes,
    /// What a driver takes on each device in use.
    pub device_overhead: Bytes,
}

impl Default for Calibration {
    /// Of an engine that nobody measured: a tenth more activations, every type that any x86 build repacks, the largest
    /// baseline seen (llama-server.md §4.3), and what CUDA contexts commonly take.
    fn default() -> Self {
        let repacked =
            [TensorType::Q4_0, TensorType::Q4_K, TensorType::Q2_K, TensorType::IQ4_NL, TensorType::MXFP4].into();
        Self { activations_per_mille: 1100, repacked, baseline: Bytes::mib(48), device_overhead: Bytes::mib(512) }
    }
}

impl LaunchSettings {
    /// All tokens that the engine is told to hold (`-c`).
    pub(crate) fn context(&self) -> u64 {
        u64::from(self.context_per_slot) * u64::from(self.slots.max(1))
    }

    /// Tokens that are really computed together: never more than are handed over or could be held.
    pub(crate) fn tokens_at_once(&self) -> u64 {
        u64::from(self.physical_batch.min(self.batch)).min(self.context()).max(1)
    }

    pub(crate) fn n_slots(&self) -> u64 {
        u64::from(self.slots.max(1))
    }
}
