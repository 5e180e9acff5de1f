//! What the fake engine says: the same request always gets the same bytes.
use std::fmt::Write as _;

/// Token `index` of the reply to `prompt`. Some hold letters of two and three bytes.
pub fn token(prompt: &str, index: u32) -> String {
    const WORDS: [&str; 8] = ["piston", "über", "valve", "馬力", "crank", "\"torque\"", "stroke", "\n"];
    let n = mix(fingerprint(prompt.as_bytes()).wrapping_add(u64::from(index)));
    let word = WORDS[usize::try_from(n % 8).expect("less than 8")];
    format!(" {word}{index}")
}

/// The first `n` tokens of the reply to `prompt`.
pub fn text(prompt: &str, n: u32) -> String {
    (0..n).fold(String::new(), |mut all, index| {
        write!(all, "{}", token(prompt, index)).expect("a string takes all");
        all
    })
}

/// The embedding of `input`: eight numbers between -1 and 1, each of few binary digits.
pub fn embedding(input: &str) -> [f64; 8] {
    let seed = fingerprint(input.as_bytes());
    std::array::from_fn(|i| {
        let n = mix(seed.wrapping_add(u64::try_from(i).expect("less than 8"))) % 2048;
        f64::from(u32::try_from(n).expect("at most 2047")) / 1024.0 - 1.0
    })
}

/// FNV-1a: equal bytes, equal number.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The last step of `SplitMix64`: neighbours get unlike numbers.
fn mix(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_depend_on_the_prompt_and_on_nothing_else() {
        assert_eq!(text("a", 20), text("a", 20));
        assert_ne!(text("a", 20), text("b", 20));
        assert!(text("a", 20).starts_with(&text("a", 19)));
        assert_ne!(embedding("a").map(f64::to_bits), embedding("b").map(f64::to_bits));
    }
}
