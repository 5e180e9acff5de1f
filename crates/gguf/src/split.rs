//! Models in several files: how the shards are named, and whether they are of one model.
//!
//! `<prefix>-00001-of-00003.gguf` up to `-00003-of-00003`: tensors live in every shard, hyperparameters in the first
//! only, and an engine is given the first. Inside, `split.no` counts from 0.
use crate::{GgufError, Header, Metadata, tensor::check_names};

/// What a shard says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Which shard this is, from 0 (`split.no`).
    pub no: u16,
    /// How many there are (`split.count`).
    pub count: u16,
    /// Tensors in all shards together (`split.tensors.count`).
    pub n_tensors: Option<u64>,
}

impl Split {
    /// `None` without `split.count`, or with a count below two: engines take such a file as whole.
    pub(crate) fn of(metadata: &Metadata) -> Option<Self> {
        let small = |key| metadata.u64(key).and_then(|n| u16::try_from(n).ok());
        let count = small("split.count").filter(|count| *count > 1)?;
        Some(Self { no: small("split.no").unwrap_or(0), count, n_tensors: metadata.u64("split.tensors.count") })
    }
}

const SUFFIX: &str = ".gguf";
const NUMBER_DIGITS: usize = 5;

/// The names of all shards, given the file name of the first. `None` for the name of a model in one file.
pub fn shard_names(first_file_name: &str) -> Result<Option<Vec<String>>, GgufError> {
    let Some((prefix, no, count)) = parse(first_file_name) else { return Ok(None) };
    let bad = |problem| Err(GgufError::ShardName { file: first_file_name.into(), problem });
    let Ok(count) = u16::try_from(count) else { return bad("counts more shards than the format allows") };
    if no == 0 || no > u32::from(count) {
        return bad("numbers a shard outside the count beside it");
    }
    if no != 1 {
        return bad("is not the first shard: a model is opened at `-00001-of-`");
    }
    Ok(Some((1..=count).map(|n| format!("{prefix}-{n:05}-of-{count:05}{SUFFIX}")).collect()))
}

/// Prefix, number and count of `<prefix>-NNNNN-of-NNNNN.gguf`.
fn parse(name: &str) -> Option<(&str, u32, u32)> {
    let (rest, count) = split_number(name.strip_suffix(SUFFIX)?)?;
    let (rest, no) = split_number(rest.strip_suffix("-of-")?)?;
    let prefix = rest.strip_suffix('-').filter(|prefix| !prefix.is_empty())?;
    Some((prefix, no, count))
}

fn split_number(text: &str) -> Option<(&str, u32)> {
    let (rest, digits) = text.split_at_checked(text.len().checked_sub(NUMBER_DIGITS)?)?;
    // `parse` alone would take a sign.
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok().map(|n| (rest, n))).flatten()
}

/// Whether the headers, in the order of their files, are all the shards of one model (or a single whole file).
pub fn check_shards(headers: &[Header]) -> Result<(), GgufError> {
    let Some(first) = headers.first() else { return bad(0, "no file was given".into()) };
    let Some(split) = first.split() else {
        return match headers.len() {
            1 => Ok(()),
            n => bad(1, format!("says nothing about a split, but {n} files were given")),
        };
    };
    if headers.len() != usize::from(split.count) {
        return bad(1, format!("says there are {} shards, {} were given", split.count, headers.len()));
    }
    for (index, header) in headers.iter().enumerate() {
        check_shard(index, header, split)?;
    }
    let n_tensors: usize = headers.iter().map(|header| header.tensors().len()).sum();
    match split.n_tensors {
        Some(expected) if u64::try_from(n_tensors).ok() != Some(expected) => {
            bad(0, format!("{expected} tensors are expected, {n_tensors} are there"))
        }
        _ => check_names(headers.iter().flat_map(Header::tensors).map(|tensor| tensor.name.as_str())),
    }
}

/// One shard against what the first says.
fn check_shard(index: usize, header: &Header, first: Split) -> Result<(), GgufError> {
    let shard = index + 1;
    let keys = header.metadata();
    // Engines read these as 16-bit numbers and need `split.no` in every shard.
    match keys.u64("split.no") {
        Some(no) if usize::try_from(no).ok() == Some(index) => {}
        Some(no) => return bad(shard, format!("`split.no` is {no}, not {index}: wrong file or wrong order")),
        None => return bad(shard, "`split.no` is missing or not a number".into()),
    }
    for (key, expected) in [("split.count", Some(u64::from(first.count))), ("split.tensors.count", first.n_tensors)] {
        if keys.has(key) && keys.u64(key) != expected {
            return bad(shard, format!("`{key}` differs from the first shard's: not the same model"));
        }
    }
    Ok(())
}

fn bad(shard: usize, problem: String) -> Result<(), GgufError> {
    Err(GgufError::Shards { shard, problem })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(first: &str) -> Option<Vec<String>> {
        shard_names(first).expect("a usable name")
    }

    #[test]
    fn the_first_name_tells_all_of_them() {
        let all = ["a-q4-00001-of-00003.gguf", "a-q4-00002-of-00003.gguf", "a-q4-00003-of-00003.gguf"];
        assert_eq!(names(all[0]).as_deref(), Some(all.map(String::from).as_slice()));
        assert_eq!(names("a-00001-of-00001.gguf").map(|all| all.len()), Some(1));
    }

    #[test]
    fn names_of_whole_files_and_odd_prefixes_are_no_shards() {
        let whole = ["a.gguf", "a-00001-of-00003", "a-1-of-3.gguf", "a-00001-of-3.gguf", "a-+0001-of-00003.gguf"];
        let odd =
            ["", ".gguf", "-00001-of-00003.gguf", "00001-of-00003.gguf", "a00001-of-00003.gguf", "ä001-of-00003.gguf"];
        for name in whole.into_iter().chain(odd) {
            assert_eq!(names(name), None, "{name}");
        }
        let nested = names("-00001-of-00002-00001-of-00002.gguf");
        assert_eq!(nested.map(|all| all[1].clone()).as_deref(), Some("-00001-of-00002-00002-of-00002.gguf"));
    }

    #[test]
    fn any_other_shard_than_the_first_is_refused() {
        for name in ["a-00002-of-00003.gguf", "a-00000-of-00003.gguf", "a-00004-of-00003.gguf", "a-00001-of-00000.gguf"]
        {
            assert!(matches!(shard_names(name), Err(GgufError::ShardName { .. })), "{name}");
        }
    }

    #[test]
    fn an_absurd_count_in_a_name_is_refused() {
        assert!(matches!(shard_names("a-00001-of-99999.gguf"), Err(GgufError::ShardName { .. })));
    }
}
