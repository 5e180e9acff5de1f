//! What is kept between batches: keys and values for every cell, states for every sequence.
//!
//! The formula is llama-server.md §4.2; it equals the engine's own figures to the byte in every measured configuration.
//!
//! ```text
//! cells    = unified ? pad256(context) : pad256(context / slots), of each of `slots` streams
//! window   = swa-full ? cells : pad256(min(cells, window × (unified ? slots : 1) + physical batch))
//! layer    = streams × cells × (row(keys) + row(values)) + slots × state × 4
//! ```
use crate::{
    FlashAttention, KvLayout, LaunchSettings, SlidingWindow, TensorType,
    shape::{Layer, ModelShape, Reach},
};
use motorpool_vocab::Bytes;

/// The cells of one stream, for layers of each reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) streams: u64,
    pub(crate) full: u64,
    pub(crate) window: u64,
}

impl Cells {
    pub(crate) fn of(shape: &ModelShape, settings: &LaunchSettings) -> Self {
        let slots = settings.n_slots();
        let (streams, cells, sharing) = match settings.kv_layout {
            KvLayout::PerSlot => (slots, pad(u64::from(settings.context_per_slot)), 1),
            KvLayout::Unified => (1, pad(settings.context()), slots),
        };
        let window = match settings.sliding_window {
            SlidingWindow::Full => cells,
            SlidingWindow::Window => {
                let seen = shape.window.saturating_mul(sharing);
                pad(seen.saturating_add(physical_batch(settings)).min(cells))
            }
        };
        Self { streams, full: cells, window }
    }

    pub(crate) fn seen(&self, reach: Reach) -> u64 {
        match reach {
            Reach::Everything => self.full,
            Reach::Window => self.window,
        }
    }
}

/// What the engine counts for a window: its setting, not what fits the context.
fn physical_batch(settings: &LaunchSettings) -> u64 {
    u64::from(settings.physical_batch.min(settings.batch))
}

/// Engines count cells in steps of 256, and have at least one step.
fn pad(cells: u64) -> u64 {
    cells.max(1).checked_next_multiple_of(256).unwrap_or(u64::MAX)
}

/// Cache and state of one layer, all slots together.
pub(crate) fn layer_cache(layer: &Layer, shape: &ModelShape, settings: &LaunchSettings) -> Bytes {
    let cells = Cells::of(shape, settings);
    let attention = layer.attention.map_or(Bytes::ZERO, |attention| {
        let n_cells = cells.streams.saturating_mul(cells.seen(attention.reach));
        row(attention, shape, settings).saturating_mul(n_cells)
    });
    attention.saturating_add(state(layer).saturating_mul(settings.n_slots()))
}

/// What one checkpoint of one slot holds: all that cannot be taken back token by token.
pub(crate) fn checkpoint(shape: &ModelShape, settings: &LaunchSettings) -> Bytes {
    let tokens = shape.window.min(u64::from(settings.context_per_slot));
    let windows = shape
        .layers
        .iter()
        .filter_map(|layer| layer.attention)
        .filter(|attention| attention.reach == Reach::Window && settings.sliding_window == SlidingWindow::Window);
    let windows = windows.map(|attention| row(attention, shape, settings).saturating_mul(tokens));
    Bytes::sum(windows.chain(shape.layers.iter().map(state)))
}

/// States are single-precision numbers, whatever type the cache has.
fn state(layer: &Layer) -> Bytes {
    Bytes::new(4).saturating_mul(layer.state)
}

/// Keys and values of one cell. Values that are stored transposed, without flash attention, are as wide as the widest.
fn row(attention: crate::shape::Attention, shape: &ModelShape, settings: &LaunchSettings) -> Bytes {
    let values = match settings.flash_attention {
        FlashAttention::On => attention.values,
        FlashAttention::Off if attention.values == 0 => 0,
        FlashAttention::Off => shape.widest_values,
    };
    row_bytes(settings.kv_keys, attention.keys).saturating_add(row_bytes(settings.kv_values, values))
}

/// A row of `n` elements, in whole blocks; four bytes an element for a type without known layout.
fn row_bytes(kind: TensorType, n: u64) -> Bytes {
    let (block, bytes) = kind.layout().unwrap_or((1, 4));
    Bytes::new(n.div_ceil(block)).saturating_mul(bytes)
}
