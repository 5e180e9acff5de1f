//! Weights that are the same on every machine: splitmix64, and what its numbers mean in each storage type.
use crate::TensorType;

/// A stream of pseudo-random numbers.
#[derive(Clone, Debug)]
pub struct Noise(u64);

impl Noise {
    /// The stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// `n` half-precision numbers between 1/16 and 1/4, of either sign.
    pub(super) fn f16(&mut self, n: u64) -> Vec<u8> {
        (0..n)
            .flat_map(|_| {
                let random = self.next();
                let sign_and_fraction = random & 0b1000_0011_1111_1111;
                let exponent = 11 + ((random >> 32) & 1);
                let [low, high, ..] = (sign_and_fraction | (exponent << 10)).to_le_bytes();
                [low, high]
            })
            .collect()
    }

    /// `n` elements of `kind`: small finite numbers in the types that are known here, zeros in any other.
    ///
    /// Known: `F32`, `F16` and the quantised types whose blocks begin or end with their scale: `Q4_0`, `Q5_0`, `Q8_0`,
    /// `IQ4_NL`, `MXFP4` and the K types from `Q2_K` but `Q3_K`. `n` is a multiple of the type's block.
    pub fn weights(&mut self, kind: TensorType, n: u64) -> Vec<u8> {
        let (block, bytes) = kind.layout().unwrap_or((1, 0));
        let size = usize::try_from(n / block * bytes).unwrap_or_default();
        match kind {
            TensorType::F16 => self.f16(n),
            TensorType::F32 => self.f16(n).chunks_exact(2).flat_map(widened).collect(),
            _ => match scales(kind) {
                Some(scales) => self.blocks(size, usize::try_from(bytes).unwrap_or(1), scales),
                None => vec![0; size],
            },
        }
    }

    fn blocks(&mut self, size: usize, block: usize, scales: &[(usize, &[u8])]) -> Vec<u8> {
        let mut out: Vec<u8> = (0..size.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        out.truncate(size);
        for block in out.chunks_exact_mut(block) {
            for (at, scale) in scales {
                block[*at..*at + scale.len()].copy_from_slice(scale);
            }
        }
        out
    }
}

/// A half as a single, both normal: the exponent's bias grows from 15 to 127, the fraction from 10 bits to 23.
fn widened(half: &[u8]) -> [u8; 4] {
    let half = half.first_chunk().map_or(0, |half| u32::from(u16::from_le_bytes(*half)));
    let (sign, rest) = (half >> 15, half & 0x7fff);
    ((sign << 31) | ((rest << 13) + (112 << 23))).to_le_bytes()
}

/// 2^-8 and 2^-12 in half precision.
const SMALL: &[u8] = &[0x00, 0x1c];
const TINY: &[u8] = &[0x00, 0x0c];
/// 2^-5 as a power alone.
const POWER: &[u8] = &[122];

/// Where in a block its scales are, and numbers that keep the weights small.
fn scales(kind: TensorType) -> Option<&'static [(usize, &'static [u8])]> {
    match kind {
        TensorType::Q4_0 | TensorType::Q5_0 | TensorType::IQ4_NL => Some(&[(0, SMALL)]),
        TensorType::Q8_0 => Some(&[(0, TINY)]),
        TensorType::MXFP4 => Some(&[(0, POWER)]),
        TensorType::Q2_K => Some(&[(80, TINY), (82, TINY)]),
        TensorType::Q4_K | TensorType::Q5_K => Some(&[(0, TINY), (2, TINY)]),
        TensorType::Q6_K => Some(&[(208, TINY)]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_gets_as_many_bytes_as_its_blocks_take() {
        for kind in TensorType::ALL {
            let (block, bytes) = kind.layout().expect("known");
            let made = Noise::new(1).weights(*kind, block * 3);
            assert_eq!(u64::try_from(made.len()).ok(), Some(bytes * 3), "{kind}");
        }
    }

    #[test]
    fn single_precision_numbers_are_the_half_precision_ones() {
        for raw in Noise::new(1).weights(TensorType::F32, 100).chunks_exact(4) {
            let number = f32::from_le_bytes(*raw.first_chunk().expect("four bytes")).abs();
            assert!((0.0625..0.25).contains(&number), "{number}");
        }
    }

    #[test]
    fn scales_are_where_engines_look_for_them() {
        let block = Noise::new(1).weights(TensorType::Q6_K, 256);
        assert_eq!(&block[208..], TINY);
        let block = Noise::new(1).weights(TensorType::Q4_0, 64);
        assert_eq!((&block[..2], &block[18..20]), (SMALL, SMALL));
    }
}
