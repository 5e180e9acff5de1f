//! [`Reference`]: `hf:ORG/NAME[@REVISION][:QUANT|FILE]`, as people write it.
use std::fmt;

/// What somebody names on the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reference {
    /// `ORG/NAME`.
    pub(crate) repo: String,
    /// A branch, a tag or a commit; `None` is `main`.
    pub(crate) revision: Option<String>,
    /// A quantisation or the path of a file; `None` leaves it to us.
    pub(crate) wanted: Option<String>,
}

impl Reference {
    /// Parses what follows `hf:`. Every part is safe in an address and on a terminal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (place, wanted) = match text.split_once(':') {
            Some((place, wanted)) => (place, Some(wanted)),
            None => (text, None),
        };
        let (repo, revision) = match place.split_once('@') {
            Some((repo, revision)) => (repo, Some(revision)),
            None => (place, None),
        };
        let (org, name) = repo.split_once('/')?;
        let fits = [org, name].into_iter().all(is_name)
            && revision.is_none_or(|revision| revision.split('/').all(is_name))
            && wanted.is_none_or(is_path);
        fits.then(|| Self {
            repo: repo.to_owned(),
            revision: revision.map(str::to_owned),
            wanted: wanted.map(str::to_owned),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hf:{}", self.repo)?;
        self.revision.iter().try_for_each(|revision| write!(f, "@{revision}"))?;
        self.wanted.iter().try_for_each(|wanted| write!(f, ":{wanted}"))
    }
}

/// ASCII letters, digits, `-`, `_` and `.`; not made of dots alone.
fn is_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    text.len() <= 128 && text.bytes().all(fits) && text.bytes().any(|byte| byte != b'.')
}

/// Whether a path of a repository stays in it, and can be shown.
pub(super) fn is_path(text: &str) -> bool {
    let fits = |part: &str| !matches!(part, "" | "." | "..");
    text.len() <= 1024 && text.split('/').all(fits) && !text.contains(|c: char| c.is_control() || c == '\\')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_read_and_written_alike() {
        for text in ["org/repo", "org/repo:Q4_K_M", "o.r-g/re_po@main:dir/file name.gguf", "o/r@refs/pr/1"] {
            let reference = Reference::parse(text).expect("one");
            assert_eq!(reference.to_string(), format!("hf:{text}"));
        }
        let whole = Reference::parse("o/r@v1:Q8_0").expect("one");
        assert_eq!((whole.revision.as_deref(), whole.wanted.as_deref()), (Some("v1"), Some("Q8_0")));
    }

    #[test]
    fn what_leads_elsewhere_is_no_reference() {
        let long = format!("o/{}", "r".repeat(129));
        let wrong =
            ["", "repo", "o/..", "../r", "o/r/s", "o /r", "o/r@", "o/r@..", "o/r:", "o/r:../f", "o/r:/f", &long];
        for text in wrong.into_iter().chain(["o/r:a//b", "o/r:a\\b", "o/r:\x1b[2J", "o/r?x", "o%2Fr/x"]) {
            assert_eq!(Reference::parse(text), None, "{text:?}");
        }
    }
}
