//! [`Reported`]: the buffers that an engine says it made, from the lines of its log (`-lv 4`).
//!
//! `<who>: <buffer> <kind> buffer size = <X> MiB`: names of functions change from release to release, these words have
//! not (llama-server.md §4.6).
use motorpool_vocab::Bytes;
use std::collections::BTreeMap;

/// What a buffer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Weights as they stand in the file.
    Weights,
    /// Second copies of weights in the processor's preferred order.
    Repacked,
    /// KV caches and states.
    Cache,
    /// What is computed on the way.
    Compute,
    /// Results of the last layer.
    Results,
    /// `LoRA` adapters.
    Adapters,
}

/// The buffers of one start, by part and by the engine's name for where they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reported {
    buffers: BTreeMap<(Part, String), Bytes>,
    /// What the context that is being made computes in, by place: made again, it takes the place of the one before.
    computes: BTreeMap<String, Bytes>,
}

impl Reported {
    /// Takes one line of the log; a line about anything else is passed over. Buffers of one place and part add up, but for
    /// the one to compute in: adapters have it made once more. Each context (of a draft model too) begins with its results.
    pub fn on_line(&mut self, line: &str) {
        let Some((part, place, bytes)) = parse(line) else { return };
        let before = match part {
            Part::Compute => self.computes.insert(place.into(), bytes),
            Part::Results => {
                self.computes.clear();
                None
            }
            Part::Weights | Part::Repacked | Part::Cache | Part::Adapters => None,
        };
        let sum = self.buffers.entry((part, place.into())).or_default();
        *sum = sum.saturating_sub(before.unwrap_or_default()).saturating_add(bytes);
    }

    /// All buffers of one part, wherever they are.
    pub fn part(&self, part: Part) -> Bytes {
        Bytes::sum(self.buffers.iter().filter(|((of, _), _)| *of == part).map(|(_, bytes)| *bytes))
    }

    /// Whether the last buffer was reported: the engine makes the one to compute in after all others.
    pub fn is_whole(&self) -> bool {
        self.buffers.keys().any(|(part, _)| *part == Part::Compute)
    }

    /// Every buffer: part, place, size.
    pub fn iter(&self) -> impl Iterator<Item = (Part, &str, Bytes)> {
        self.buffers.iter().map(|((part, place), bytes)| (*part, place.as_str(), *bytes))
    }
}

fn parse(line: &str) -> Option<(Part, &str, Bytes)> {
    let (before, after) = line.split_once(" buffer size =")?;
    let (number, unit) = after.trim().split_once(' ')?;
    let mut words = before.split_whitespace().rev();
    let (kind, place) = (words.next()?, words.next()?);
    let part = match kind {
        "model" if place == "CPU_REPACK" => Part::Repacked,
        "model" => Part::Weights,
        "KV" | "RS" => Part::Cache,
        "compute" => Part::Compute,
        "output" => Part::Results,
        "LoRA" => Part::Adapters,
        _ => return None,
    };
    // Named after the buffer of the weights beside it, but read, not mapped.
    let place = if part == Part::Adapters { place.trim_end_matches("_Mapped") } else { place };
    (unit.trim() == "MiB").then_some((part, place, mebibytes(number)?))
}

/// `12.66` → bytes, rounded down. At most four decimals are looked at.
fn mebibytes(number: &str) -> Option<Bytes> {
    const UNIT: u64 = 10_000;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = fraction.chars().chain("0000".chars()).take(4).collect::<String>();
    let parts: u64 = digits.parse().ok()?;
    let of_whole = Bytes::mib(whole.parse().ok()?);
    Some(of_whole.saturating_add(Bytes::new((parts << 20) / UNIT)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_found_in_lines_of_any_function_and_summed() {
        let mut reported = Reported::default();
        for line in [
            "0.01.023.851 I load_tensors:   CPU_Mapped model buffer size =   235.16 MiB",
            "0.01.026.438 I load_tensors:   CPU_REPACK model buffer size =    12.66 MiB",
            "0.01.073.558 I llama_context:        CPU  output buffer size =     1.00 MiB",
            "0.01.073.704 I llama_kv_cache:        CPU KV buffer size =     6.00 MiB",
            "0.01.078.632 I some_new_name:        CPU KV buffer size =    15.00 MiB",
            "0.01.078.632 I llama_memory_recurrent:        CPU RS buffer size =    0.5 MiB",
            "llama_kv_cache: size =    6.00 MiB (  2048 cells,   3 layers,  1/1 seqs), K (f16):    3.00 MiB",
            "prompt cache buffer size = lots",
            " buffer size = 1.00 MiB",
            "x: CPU compute buffer size = -1.00 MiB",
            "x: CPU compute buffer size = 1.é MiB",
        ] {
            reported.on_line(line);
        }
        assert!(!reported.is_whole());
        reported.on_line("0.01.119.874 I sched_reserve:        CPU compute buffer size =    21.28 MiB");
        assert!(reported.is_whole());
        let hundredths = |part| (reported.part(part).get() * 100).div_ceil(1 << 20);
        assert_eq!(hundredths(Part::Weights), 23_516);
        assert_eq!(hundredths(Part::Repacked), 1266);
        assert_eq!(hundredths(Part::Cache), 2150);
        assert_eq!(hundredths(Part::Compute), 2128);
        assert_eq!(hundredths(Part::Results), 100);
        assert_eq!(reported.iter().count(), 5, "one place and part is one buffer");
    }

    #[test]
    fn a_context_that_is_made_anew_computes_in_one_buffer_and_another_context_in_its_own() {
        let mut reported = Reported::default();
        for line in [
            "llama_adapter_lora_init_impl: CPU_Mapped LoRA buffer size =     6.25 MiB",
            "llama_adapter_lora_init_impl:        CPU LoRA buffer size =     1.50 MiB",
            "llama_context:        CPU  output buffer size =     2.00 MiB",
            "sched_reserve:        CPU compute buffer size =    21.00 MiB",
            "sched_reserve:        CPU compute buffer size =    23.00 MiB",
            "llama_context:        CPU  output buffer size =     2.00 MiB",
            "sched_reserve:        CPU compute buffer size =    10.00 MiB",
        ] {
            reported.on_line(line);
        }
        assert_eq!((reported.part(Part::Compute), reported.part(Part::Results)), (Bytes::mib(33), Bytes::mib(4)));
        assert_eq!(reported.part(Part::Adapters), Bytes::mib(31).per_mille(250));
        assert!(reported.iter().all(|(_, place, _)| place == "CPU"), "nothing of it is mapped");
    }

    #[test]
    fn places_are_told_apart() {
        let mut reported = Reported::default();
        reported.on_line("a: CUDA0 compute buffer size = 1.00 MiB");
        reported.on_line("a: CUDA_Host compute buffer size = 2.00 MiB");
        let places: Vec<_> = reported.iter().map(|(_, place, bytes)| (place, bytes)).collect();
        assert_eq!(places, [("CUDA0", Bytes::mib(1)), ("CUDA_Host", Bytes::mib(2))]);
    }
}
