//! [`pick_files`]: which files of a repository are the model that somebody wants.
//!
//! Of all GGUF files, those of one model belong together (`-00001-of-00003`); what is no model (`mmproj`, `imatrix`) is
//! none. A name with `.gguf` is a file, any other a quantisation, as a word of the path. Nothing is guessed: two that fit
//! are two names to choose from. The projector beside a model goes with it.
use crate::disk::Sum;
use motorpool_gguf::shard_names;
use motorpool_vocab::Bytes;
use std::path::Path;

/// What is taken when nobody says, as llama.cpp does.
const DEFAULT: &str = "Q4_K_M";
/// Names in an error.
const OFFERED: usize = 8;
/// Precisions of projectors, the best liked first.
const PROJECTORS: [&str; 4] = ["f16", "bf16", "q8_0", "f32"];

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RemoteFile {
    pub(crate) path: String,
    pub(crate) size: Bytes,
    /// `None`: the hub does not say.
    pub(crate) sha256: Option<Sum>,
}

/// The files of one model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// In the order of its shards; one, when it is not split.
    pub(crate) shards: Vec<RemoteFile>,
    pub(crate) projector: Option<RemoteFile>,
    /// Its quantisation, when its name tells.
    pub(crate) quant: Option<String>,
}

/// Why there is no one model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unchosen {
    #[error("there is no GGUF file")]
    Empty,
    #[error("there is no `{wanted}`; there is `{}`", offered.join("`, `"))]
    NoSuch { wanted: String, offered: Vec<String> },
    #[error("`{wanted}` fits several files: `{}`", offered.join("`, `"))]
    Several { wanted: String, offered: Vec<String> },
    #[error("`{0}` is not all there: parts of it are missing")]
    Incomplete(String),
}

/// One model as it lies there.
struct Candidate<'a> {
    first: &'a RemoteFile,
    names: Vec<String>,
}

/// The model that `wanted` means.
pub(crate) fn pick_files(files: &[RemoteFile], wanted: Option<&str>) -> Result<Choice, Unchosen> {
    let all: Vec<_> = files.iter().filter_map(Candidate::of).collect();
    let candidate = match (wanted, all.as_slice()) {
        (_, []) => return Err(Unchosen::Empty),
        (None, [only]) => only,
        (wanted, _) => pick_candidate(&all, wanted.unwrap_or(DEFAULT))?,
    };
    let named = |name: &String| files.iter().find(|file| file.path == *name).cloned();
    let shards = candidate.names.iter().map(named).collect::<Option<Vec<_>>>();
    let shards = shards.ok_or_else(|| Unchosen::Incomplete(candidate.first.path.clone()))?;
    let projector = pick_projector(files, folder(&candidate.first.path)).cloned();
    Ok(Choice { shards, projector, quant: quant(&candidate.first.path) })
}

fn pick_candidate<'a, 'b>(all: &'b [Candidate<'a>], wanted: &str) -> Result<&'b Candidate<'a>, Unchosen> {
    let fits = |one: &&Candidate<'_>| if is_gguf(wanted) { one.has(wanted) } else { has_word(&one.first.path, wanted) };
    let fitting: Vec<_> = all.iter().filter(fits).collect();
    let exact: Vec<_> = fitting.iter().filter(|one| one.is_exactly(wanted)).collect();
    match (fitting.as_slice(), exact.as_slice()) {
        ([], _) => Err(Unchosen::NoSuch { wanted: wanted.to_owned(), offered: offers(all.iter(), wanted) }),
        ([only], _) => Ok(only),
        (_, [only]) => Ok(only),
        (several, _) => {
            let offered = several.iter().map(|one| one.first.path.clone()).take(OFFERED).collect();
            Err(Unchosen::Several { wanted: wanted.to_owned(), offered })
        }
    }
}

impl<'a> Candidate<'a> {
    /// Of the only or first file of a model.
    fn of(first: &'a RemoteFile) -> Option<Self> {
        let name = base(&first.path);
        let lower = name.to_ascii_lowercase();
        if !is_gguf(name) || lower.contains("mmproj") || lower.contains("imatrix") {
            return None;
        }
        let beside = |name: &String| format!("{}{name}", &first.path[..first.path.len() - base(&first.path).len()]);
        let names = shard_names(name).ok()?.unwrap_or_else(|| vec![name.to_owned()]);
        Some(Self { first, names: names.iter().map(beside).collect() })
    }

    /// Whether one of its files is called so, with or without its folder.
    fn has(&self, name: &str) -> bool {
        self.names.iter().any(|path| path == name || base(path) == name)
    }

    fn is_exactly(&self, wanted: &str) -> bool {
        self.names.iter().any(|path| path == wanted)
            || quant(&self.first.path).is_some_and(|quant| quant.eq_ignore_ascii_case(wanted))
    }
}

/// What there is instead, the likest first.
fn offers<'a>(all: impl Iterator<Item = &'a Candidate<'a>>, wanted: &str) -> Vec<String> {
    let alike = |name: &str| {
        let same = |(a, b): &(u8, u8)| a.eq_ignore_ascii_case(b);
        name.bytes().zip(wanted.bytes()).take_while(same).count()
    };
    let called = |one: &Candidate<'_>| quant(&one.first.path).unwrap_or_else(|| one.first.path.clone());
    let mut names: Vec<String> = all.map(called).collect();
    names.sort_by(|a, b| alike(b).cmp(&alike(a)).then(a.cmp(b)));
    names.dedup();
    names.truncate(OFFERED);
    names
}

/// The projector in the model's folder, or in the nearest above.
fn pick_projector<'a>(files: &'a [RemoteFile], home: &str) -> Option<&'a RemoteFile> {
    let is_one = |file: &&RemoteFile| {
        let name = base(&file.path);
        is_gguf(name) && name.to_ascii_lowercase().contains("mmproj")
    };
    let is_above = |file: &&RemoteFile| {
        let at = folder(&file.path);
        at.is_empty() || home == at || home.strip_prefix(at).is_some_and(|rest| rest.starts_with('/'))
    };
    let precision =
        |file: &RemoteFile| PROJECTORS.iter().position(|word| has_word(&file.path, word)).unwrap_or(PROJECTORS.len());
    let order = |file: &&RemoteFile| (usize::MAX - folder(&file.path).len(), precision(file), file.path.clone());
    files.iter().filter(is_one).filter(is_above).min_by_key(order)
}

fn is_gguf(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"))
}

/// The last part of a path.
pub(crate) fn base(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Whether `word` is in `path` as a word of its own: `Q4_K` is none of `x-Q4_K_M.gguf`.
fn has_word(path: &str, word: &str) -> bool {
    let (path, word) = (path.to_ascii_lowercase(), word.to_ascii_lowercase());
    let begins = |at: usize| at == 0 || path.as_bytes()[at - 1].is_ascii_punctuation();
    let ends = |at: usize| path.as_bytes().get(at).is_none_or(|byte| b".-/".contains(byte));
    !word.is_empty() && path.match_indices(&word).any(|(at, _)| begins(at) && ends(at + word.len()))
}

/// The quantisation in a file's name: `UD-Q4_K_XL` of `m-UD-Q4_K_XL-00001-of-00002.gguf`.
pub(crate) fn quant(path: &str) -> Option<String> {
    let words: Vec<&str> = base(path).split(['-', '.']).collect();
    let at = words.iter().rposition(|word| is_quant(word))?;
    let before = at.checked_sub(1).map(|at| words[at]).filter(|word| word.eq_ignore_ascii_case("UD"));
    Some(before.map_or_else(|| words[at].to_owned(), |before| format!("{before}-{}", words[at])))
}

/// `Q4_K_M`, `IQ2_XXS`, `TQ1_0`, `BF16`, `MXFP4`: as llama.cpp calls them.
fn is_quant(word: &str) -> bool {
    let word = word.to_ascii_uppercase();
    let is_digit = |rest: &str| rest.starts_with(|c: char| c.is_ascii_digit());
    // It becomes part of a name: nothing that means something there.
    let is_plain = word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_float = matches!(word.as_str(), "F16" | "F32" | "BF16" | "FP16" | "FP32");
    let is_family = |family: &&str| word.strip_prefix(*family).is_some_and(is_digit);
    is_plain && (is_float || ["MXFP", "IQ", "TQ", "Q"].iter().any(is_family))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(paths: &[&str]) -> Vec<RemoteFile> {
        let file = |path: &&str| RemoteFile { path: (*path).to_owned(), size: Bytes::new(1), sha256: None };
        paths.iter().map(file).collect()
    }

    fn picked(paths: &[&str], wanted: Option<&str>) -> Result<Vec<String>, Unchosen> {
        let choice = pick_files(&files(paths), wanted)?;
        Ok(choice.shards.into_iter().chain(choice.projector).map(|file| file.path).collect())
    }

    const USUAL: &[&str] =
        &["README.md", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", "m-Q8_0.gguf", "m-UD-Q4_K_XL.gguf", "m.imatrix.gguf"];

    #[test]
    fn a_quantisation_is_a_word_of_the_path_whatever_its_case() {
        assert_eq!(picked(USUAL, None), Ok(vec!["m-Q4_K_M.gguf".into()]));
        assert_eq!(picked(USUAL, Some("q8_0")), Ok(vec!["m-Q8_0.gguf".into()]));
        assert_eq!(picked(USUAL, Some("Q4_K_XL")), Ok(vec!["m-UD-Q4_K_XL.gguf".into()]));
        assert_eq!(picked(USUAL, Some("m-Q4_K_S.gguf")), Ok(vec!["m-Q4_K_S.gguf".into()]));
        assert_eq!(picked(&["BF16/a.gguf", "Q8_0/a.gguf"], Some("bf16")), Ok(vec!["BF16/a.gguf".into()]));
    }

    #[test]
    fn what_is_not_there_is_told_with_what_is_the_likest_first() {
        let Err(Unchosen::NoSuch { wanted, offered }) = picked(USUAL, Some("Q4_K")) else { panic!("no word of any") };
        assert_eq!((wanted.as_str(), offered[0].as_str()), ("Q4_K", "Q4_K_M"));
        assert_eq!(offered, ["Q4_K_M", "Q4_K_S", "Q8_0", "UD-Q4_K_XL"]);
        assert!(matches!(picked(USUAL, Some("n.gguf")), Err(Unchosen::NoSuch { .. })));
        let two = ["a-Q8_0.gguf", "a-Q5_0.gguf"];
        assert!(matches!(picked(&two, None), Err(Unchosen::NoSuch { wanted, .. }) if wanted == "Q4_K_M"));
        assert_eq!(picked(&["README.md", "mmproj-a.gguf"], None), Err(Unchosen::Empty));
    }

    #[test]
    fn the_only_model_needs_no_name_and_two_that_fit_are_not_guessed_between() {
        assert_eq!(picked(&["odd.gguf", "README.md"], None), Ok(vec!["odd.gguf".into()]));
        let Err(Unchosen::Several { offered, .. }) = picked(&["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"], None) else {
            panic!("two fit")
        };
        assert_eq!(offered, ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf"]);
        let dynamic = ["a-Q4_K_M.gguf", "a-UD-Q4_K_M.gguf"];
        assert_eq!(picked(&dynamic, None), Ok(vec!["a-Q4_K_M.gguf".into()]), "the other is called UD-Q4_K_M");
    }

    #[test]
    fn a_split_model_is_taken_whole_by_any_of_its_names_or_not_at_all() {
        let all = ["q/m-Q8_0-00002-of-00002.gguf", "q/m-Q8_0-00001-of-00002.gguf", "m-Q4_0.gguf"];
        let whole = vec![all[1].to_owned(), all[0].to_owned()];
        for wanted in ["Q8_0", "m-Q8_0-00001-of-00002.gguf", all[0]] {
            assert_eq!(picked(&all, Some(wanted)), Ok(whole.clone()), "{wanted}");
        }
        let torn = Unchosen::Incomplete(all[1].to_owned());
        assert_eq!(picked(&all[1..], Some("Q8_0")), Err(torn));
    }

    #[test]
    fn the_nearest_projector_goes_with_a_model() {
        let all = ["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "a/m-Q4_K_M.gguf", "b/mmproj-F16.gguf"];
        assert_eq!(picked(&all, None).expect("one")[1], "mmproj-F16.gguf");
        let nearer = [&all[..], &["a/mmproj-Q8_0.gguf"]].concat();
        assert_eq!(picked(&nearer, None).expect("one")[1], "a/mmproj-Q8_0.gguf");
        assert_eq!(picked(&["ab/m.gguf", "a/mmproj.gguf"], None).expect("one").len(), 1, "another folder");
    }

    #[test]
    fn quantisations_are_read_out_of_names() {
        for (path, found) in [
            ("x/m-Q4_K_M.gguf", Some("Q4_K_M")),
            ("m.Q5_0.gguf", Some("Q5_0")),
            ("m-UD-IQ1_S-00001-of-00003.gguf", Some("UD-IQ1_S")),
            ("m-it-qat-mxfp4.gguf", Some("mxfp4")),
            ("Qwen3-8B.gguf", None),
            ("m-Q4*.gguf", None),
        ] {
            assert_eq!(quant(path).as_deref(), found, "{path}");
        }
    }
}
