//! The compute buffer: the most that must be there at the same time while one physical batch passes through.
//!
//! Nothing here is per layer: layers come one after another and use the same memory. What has to live together is
//!
//! ```text
//! masks of attention    tokens × (cells + window cells) × 2, or × 4 without flash attention
//! inputs                tokens × (12 numbers, and embeddings for each layer); rotations of a quantised cache
//! and the largest of
//!   feeding forward     tokens × (5 embeddings + gate + up + down)
//!   experts             tokens × (5 embeddings + used × max(gate + up + down, embedding))
//!   attention           tokens × (4 embeddings + 2 queries + keys + values),
//!                       and without flash attention one embedding and heads × cells more
//!   states              tokens × (5 embeddings + projections) + slots × (state + convolution)
//!   results             tokens × 5 embeddings + rows × vocabulary, unless a mask has room for these
//! ```
//!
//! in numbers of four bytes. The terms were measured, one by one, on the corpus of `motorpool-testkit` with build
//! 11434; ESTIMATES.md holds the errors. What a build does differently shows in the activations, and is calibrated.
use crate::{
    Calibration, FlashAttention, LaunchSettings, Purpose, TensorType,
    cache::Cells,
    shape::{ModelShape, Reach, Widths},
};
use motorpool_vocab::Bytes;

/// The compute buffers of one launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Compute {
    /// Of the memory, or of each device, that has all the layers it works on.
    pub(crate) main: Bytes,
    /// Of system memory when a device works: what is handed over.
    pub(crate) beside_device: Bytes,
}

const NUMBER: u64 = 4;
/// Token, place, and where in the caches it goes: a few whole numbers for each token.
const INPUTS: u64 = 12;

pub(crate) fn compute(shape: &ModelShape, settings: &LaunchSettings, calibration: &Calibration) -> Compute {
    let batch = Batch { tokens: settings.tokens_at_once(), slots: settings.n_slots() };
    let (always, phases) = apart(shape, settings);
    let per_mille = calibration.activations_per_mille;
    let largest = phases.into_iter().map(|phase| phase.bytes(per_mille)).max().unwrap_or_default();
    let handed_over = numbers(shape.widths.embedding.saturating_mul(2 * batch.tokens));
    Compute { main: always.saturating_add(largest), beside_device: always.saturating_add(handed_over) }
}

/// What is there all the time, and the phases of which one is.
fn apart(shape: &ModelShape, settings: &LaunchSettings) -> (Bytes, [Phase; 4]) {
    let batch = Batch { tokens: settings.tokens_at_once(), slots: settings.n_slots() };
    let cells = Cells::of(shape, settings);
    let always = masks(shape, settings, (batch, cells)).saturating_add(rotations(shape, settings));
    let inputs = INPUTS.saturating_add(shape.widths.embeddings_of_layers);
    let always = always.saturating_add(numbers(batch.tokens.saturating_mul(inputs)));
    let phases = [
        feed(&shape.widths, batch),
        attention(shape, settings, (batch, cells)),
        states(&shape.widths, batch),
        results(shape, settings, (batch, cells)),
    ];
    (always, phases)
}

/// What [`Calibration::activations_per_mille`] must be for this launch to take the compute buffer that an engine
/// reported for it. `None` when the law is not what this engine does: less than half or more than twice.
pub fn measured_activations(shape: &ModelShape, settings: &LaunchSettings, compute: Bytes) -> Option<u64> {
    let (always, phases) = apart(shape, settings);
    let law = phases.into_iter().max_by_key(|phase| phase.bytes(1000))?;
    let measured = compute.get().checked_sub(always.saturating_add(numbers(law.exact)).get())?;
    let expected = numbers(law.activations).get();
    let per_mille = (u128::from(measured) * 1000).checked_div(u128::from(expected))?;
    u64::try_from(per_mille).ok().filter(|per_mille| (500..=2000).contains(per_mille))
}

#[derive(Clone, Copy)]
struct Batch {
    tokens: u64,
    slots: u64,
}

/// Numbers that must be there at once. What attention and results add is exact in every build.
struct Phase {
    activations: u64,
    exact: u64,
}

impl Phase {
    fn bytes(&self, per_mille: u64) -> Bytes {
        numbers(self.activations).per_mille(per_mille).saturating_add(numbers(self.exact))
    }
}

fn numbers(n: u64) -> Bytes {
    Bytes::new(n).saturating_mul(NUMBER)
}

fn feed(widths: &Widths, batch: Batch) -> Phase {
    let width = widths.embedding.saturating_mul(5).saturating_add(widths.feed);
    Phase { activations: width.saturating_mul(batch.tokens), exact: 0 }
}

fn attention(shape: &ModelShape, settings: &LaunchSettings, (batch, cells): (Batch, Cells)) -> Phase {
    if shape.widths.attention == 0 {
        return Phase { activations: 0, exact: 0 };
    }
    let (embeddings, exact) = match settings.flash_attention {
        FlashAttention::On => (4, 0),
        FlashAttention::Off => {
            let of = |reach, heads: u64| heads.saturating_mul(seen(shape, reach, (batch, cells)));
            (5, of(Reach::Everything, shape.widths.heads).max(of(Reach::Window, shape.widths.window_heads)))
        }
    };
    let width = shape.widths.embedding.saturating_mul(embeddings).saturating_add(shape.widths.attention);
    Phase { activations: width.saturating_mul(batch.tokens), exact: exact.saturating_mul(batch.tokens) }
}

/// What a token can see: the cells of its stream, or without a cache the batch.
fn seen(shape: &ModelShape, reach: Reach, (batch, cells): (Batch, Cells)) -> u64 {
    if shape.keeps_nothing { batch.tokens } else { cells.seen(reach) }
}

fn states(widths: &Widths, batch: Batch) -> Phase {
    if widths.state == 0 && widths.state_fixed == 0 {
        return Phase { activations: 0, exact: 0 };
    }
    let width = widths.embedding.saturating_mul(5).saturating_add(widths.state);
    let fixed = widths.state_fixed.saturating_mul(batch.slots);
    Phase { activations: width.saturating_mul(batch.tokens), exact: fixed }
}

/// An encoder ends with its last layer; whatever else computes vectors computes logits too, of every token. They take
/// the place of a mask, which nobody needs any more, when they fit into it.
fn results(shape: &ModelShape, settings: &LaunchSettings, (batch, cells): (Batch, Cells)) -> Phase {
    let rows = match settings.purpose {
        _ if shape.keeps_nothing => 0,
        Purpose::Generate => batch.slots,
        Purpose::Embed => batch.tokens,
    };
    let width = shape.widths.embedding.saturating_mul(5);
    let logits = rows.saturating_mul(shape.n_vocab);
    let fits = numbers(logits) <= mask(shape, settings, (batch, cells), Reach::Everything);
    Phase { activations: width.saturating_mul(batch.tokens), exact: if fits { 0 } else { logits } }
}

fn masks(shape: &ModelShape, settings: &LaunchSettings, of: (Batch, Cells)) -> Bytes {
    let mask = |reach| mask(shape, settings, of, reach);
    mask(Reach::Everything).saturating_add(mask(Reach::Window))
}

/// Half-precision numbers with flash attention, single-precision without; nothing where no layer has this reach.
fn mask(shape: &ModelShape, settings: &LaunchSettings, of: (Batch, Cells), reach: Reach) -> Bytes {
    let heads = match reach {
        Reach::Everything => shape.widths.heads,
        Reach::Window => shape.widths.window_heads,
    };
    let element = match settings.flash_attention {
        _ if heads == 0 => 0,
        FlashAttention::On => 2,
        FlashAttention::Off => 4,
    };
    Bytes::new(seen(shape, reach, of)).saturating_mul(of.0.tokens).saturating_mul(element)
}

/// Quantised keys and values are rotated by a square matrix for each kind of cache: of keys as wide as the largest
/// power of two in a head, of values 64.
fn rotations(shape: &ModelShape, settings: &LaunchSettings) -> Bytes {
    const LEAST: u64 = 64;
    let n_caches = [shape.widths.heads, shape.widths.window_heads].into_iter().filter(|heads| *heads > 0).count();
    if shape.keeps_nothing || shape.head == 0 || !shape.head.is_multiple_of(LEAST) {
        return Bytes::ZERO;
    }
    let square = |kind, side: u64| if is_quantised(kind) { side.saturating_mul(side) } else { 0 };
    let keys = square(settings.kv_keys, 1 << shape.head.trailing_zeros());
    let both = keys.saturating_add(square(settings.kv_values, LEAST));
    numbers(both).saturating_mul(u64::try_from(n_caches).unwrap_or(u64::MAX))
}

fn is_quantised(kind: TensorType) -> bool {
    kind.layout().is_some_and(|(block, _)| block > 1)
}
