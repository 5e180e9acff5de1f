//! [`Hub`]: a repository of models on the Hugging Face hub, or on a server of its kind.
//!
//! ```text
//! /api/models/<repo>/revision/<rev> ─► commit, terms ─► /tree/<commit>?recursive=true (pages) ─► files
//!     ─► pick_files ─► /<repo>/resolve/<commit>/<file> ─► a redirect to where large files lie
//! ```
//!
//! The commit is pinned by the first answer, so that files of two versions are never mixed. The hub says the SHA-256 of
//! every large file; whoever gives its bytes is not believed. The token goes to the hub alone.
//!
//! | variable | default |
//! | --- | --- |
//! | `HF_ENDPOINT` | `https://huggingface.co` |
//! | `HF_TOKEN`, `HUGGING_FACE_HUB_TOKEN` | first line of `HF_TOKEN_PATH`, `$HF_HOME/token`, `~/.cache/huggingface/token` |
mod choose;
mod reference;
mod wire;

use crate::{
    client::escaped,
    exit::{Exit, Failure, chain},
    fetch::{Caller, FetchError, Token},
};
use http::StatusCode;
use motorpool_catalog::Terms;
use std::path::{Path, PathBuf};

pub(crate) use choose::{Choice, RemoteFile, Unchosen, base, pick_files, quant};
pub(crate) use reference::Reference;

const ENDPOINT: &str = "https://huggingface.co";
/// Of one page of a list of files.
const MOST_LIST: usize = 16 << 20;
const MOST_PAGES: usize = 100;
/// Of a licence's text that is kept.
const MOST_TERMS: usize = 128 << 10;

/// Why the hub gave no model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HubError {
    #[error("`{0}` is no model of the hub")]
    Reference(String),
    #[error("the hub has no repository `{0}`, or shows it to others only")]
    NoRepo(String),
    #[error("`{repo}` has no revision `{revision}`")]
    NoRevision { repo: String, revision: String },
    #[error("`{repo}` is given to those alone who accepted its terms")]
    Gated { repo: String, page: String },
    #[error("the hub refuses the token that it was given")]
    BadToken,
    #[error("in `{repo}`: {source}")]
    Unchosen { repo: String, source: Unchosen },
    #[error("the hub's answer about `{0}` cannot be understood")]
    Garbled(String),
    #[error("`{0}` changed while it was looked at")]
    Moved(String),
    #[error(transparent)]
    Fetch(FetchError),
}

impl HubError {
    /// How it ends the program, and what to do.
    pub(super) fn failure(self) -> Failure {
        let what = chain(&self);
        match self {
            Self::Reference(_) => Failure::new(
                Exit::NotFound,
                what,
                "name it as `hf:ORG/NAME`, `hf:ORG/NAME:Q4_K_M` or `hf:ORG/NAME:FILE.gguf`",
            ),
            Self::NoRepo(_) => Failure::new(
                Exit::NotFound,
                what,
                "check the name; for a private one set HF_TOKEN to a token of yours that may read it",
            ),
            Self::NoRevision { .. } => Failure::new(Exit::NotFound, what, "leave `@REVISION` out for the newest"),
            Self::Gated { page, .. } => Failure::new(
                Exit::Denied,
                what,
                format_args!(
                    "accept them at {page}, and set HF_TOKEN to a token of yours (https://huggingface.co/settings/tokens)"
                ),
            ),
            Self::BadToken => Failure::new(
                Exit::Denied,
                what,
                "set HF_TOKEN to a token of yours that is valid, or unset it: https://huggingface.co/settings/tokens",
            ),
            Self::Unchosen { repo, source } => Failure::new(Exit::NotFound, what, cure_of_choice(&repo, &source)),
            Self::Garbled(_) => Failure::new(Exit::Transfer, what, "check HF_ENDPOINT, or try again later"),
            Self::Moved(_) => Failure::new(Exit::Transfer, what, "run the same command again"),
            Self::Fetch(error) => super::failure_of_fetch(&error, what),
        }
    }
}

fn cure_of_choice(repo: &str, why: &Unchosen) -> String {
    match why {
        Unchosen::Empty => "look for a repository whose name ends with GGUF".to_owned(),
        Unchosen::NoSuch { offered, .. } | Unchosen::Several { offered, .. } => {
            let first = offered.first().map_or("Q4_K_M", String::as_str);
            format!("name one: `motorpool model pull hf:{repo}:{first}`")
        }
        Unchosen::Incomplete(_) => "choose another of its models, or tell its owner".to_owned(),
    }
}

/// The hub, and whoever asks it.
#[derive(Debug)]
pub(crate) struct Hub {
    endpoint: String,
    pub(crate) caller: Caller,
    knock: Knock,
}

/// Whether we show who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Knock {
    Named,
    Nameless,
}

/// A repository at one commit.
#[derive(Debug)]
pub(crate) struct Repository {
    pub(crate) name: String,
    pub(crate) commit: String,
    pub(crate) files: Vec<RemoteFile>,
    /// What it says of its terms.
    pub(crate) terms: Terms,
}

impl Hub {
    /// As the environment has it.
    pub(crate) fn of_environment() -> Result<Self, HubError> {
        let var = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let endpoint = var("HF_ENDPOINT").unwrap_or_else(|| ENDPOINT.to_owned());
        let token = token(&var);
        let knock = if token.is_some() { Knock::Named } else { Knock::Nameless };
        let caller = Caller::new(token).map_err(HubError::Fetch)?;
        Ok(Self { endpoint: endpoint.trim_end_matches('/').to_owned(), caller, knock })
    }

    /// What `reference` has now.
    pub(crate) async fn look(&self, reference: &Reference) -> Result<Repository, HubError> {
        let repo = &reference.repo;
        let revision = escaped(reference.revision.as_deref().unwrap_or("main"));
        let garbled = || HubError::Garbled(repo.clone());
        let url = format!("{}/api/models/{repo}/revision/{revision}", self.endpoint);
        let (_, card) = self.caller.document(&url, MOST_LIST).await.map_err(|error| self.told(reference, error))?;
        let card = wire::card(&card).ok_or_else(garbled)?;
        let mut files = Vec::new();
        let mut next = Some(format!("{}/api/models/{repo}/tree/{}?recursive=true", self.endpoint, card.commit));
        for _ in 0..MOST_PAGES {
            let Some(url) = next.take() else { break };
            let page = self.caller.document(&url, MOST_LIST).await;
            let (headers, page) = page.map_err(|error| self.told(reference, error))?;
            files.extend(wire::files(&page).ok_or_else(garbled)?);
            next = wire::next_page(&headers).filter(|url| url.starts_with(&format!("{}/", self.endpoint)));
        }
        let mut repository = Repository {
            name: repo.clone(),
            terms: card.terms(&format!("{}/{repo}", self.endpoint)),
            commit: card.commit,
            files,
        };
        if let Some(text) = self.licence(&repository).await {
            repository.terms.text = text;
        }
        Ok(repository)
    }

    /// Where a file of a repository is.
    pub(crate) fn address_of(&self, repository: &Repository, path: &str) -> String {
        let path: Vec<_> = path.split('/').map(escaped).collect();
        format!("{}/{}/resolve/{}/{}", self.endpoint, repository.name, repository.commit, path.join("/"))
    }

    /// The text of its licence, where that is a file; what cannot be had is not missed.
    async fn licence(&self, repository: &Repository) -> Option<String> {
        let is_it = |file: &&RemoteFile| {
            let name = file.path.to_ascii_lowercase();
            matches!(name.as_str(), "license" | "license.md" | "license.txt" | "licence") && !file.size.is_zero()
        };
        let file = repository.files.iter().find(is_it)?;
        let url = self.address_of(repository, &file.path);
        let (_, text) = self.caller.document(&url, MOST_TERMS).await.ok()?;
        String::from_utf8(text).ok().filter(|text| !text.trim().is_empty())
    }

    /// What a failed request means here.
    pub(crate) fn told(&self, reference: &Reference, error: FetchError) -> HubError {
        let FetchError::Status { status, code, .. } = &error else { return HubError::Fetch(error) };
        let repo = reference.repo.clone();
        match (*status, code.as_deref()) {
            (_, Some("GatedRepo")) | (StatusCode::FORBIDDEN, None) => {
                HubError::Gated { page: format!("{}/{repo}", self.endpoint), repo }
            }
            (_, Some("RevisionNotFound")) => {
                HubError::NoRevision { repo, revision: reference.revision.clone().unwrap_or_else(|| "main".into()) }
            }
            (_, Some("EntryNotFound")) => HubError::Moved(repo),
            (_, Some("RepoNotFound")) | (StatusCode::NOT_FOUND, _) => HubError::NoRepo(repo),
            (StatusCode::UNAUTHORIZED, _) if self.knock == Knock::Named => HubError::BadToken,
            (StatusCode::UNAUTHORIZED, _) => HubError::NoRepo(repo),
            _ => HubError::Fetch(error),
        }
    }
}

/// The user's token, from the first place that has one.
fn token(var: &dyn Fn(&str) -> Option<String>) -> Option<Token> {
    let said = ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"].into_iter().find_map(var);
    if let Some(said) = said {
        return Token::parse(&said);
    }
    let file = var("HF_TOKEN_PATH").map(PathBuf::from).or_else(|| Some(home(var)?.join("token")))?;
    Token::parse(&std::fs::read_to_string(file).ok()?)
}

/// Where programs of the hub keep what is theirs.
pub(crate) fn home(var: &dyn Fn(&str) -> Option<String>) -> Option<PathBuf> {
    let cache = || var("XDG_CACHE_HOME").map(PathBuf::from).or_else(|| Some(Path::new(&var("HOME")?).join(".cache")));
    var("HF_HOME").map(PathBuf::from).or_else(|| Some(cache()?.join("huggingface")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_is_where_the_hubs_own_programs_keep_it() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let path = |name: &str| top.path().join(name).display().to_string();
        std::fs::create_dir_all(path(".cache/huggingface")).expect("made");
        std::fs::write(path(".cache/huggingface/token"), "of-home\n").expect("written");
        std::fs::write(path("other"), "of-path").expect("written");
        let with = |set: &[(&str, String)]| {
            let set = [set, &[("HOME", path(""))]].concat();
            token(&move |name| set.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone()))
        };
        assert_eq!(with(&[]), Token::parse("of-home"));
        assert_eq!(with(&[("HF_HOME", path("elsewhere"))]), None);
        assert_eq!(with(&[("HF_TOKEN_PATH", path("other"))]), Token::parse("of-path"));
        let both = [("HF_TOKEN_PATH", path("other")), ("HF_TOKEN", "said".to_owned())];
        assert_eq!(with(&both), Token::parse("said"));
    }
}
