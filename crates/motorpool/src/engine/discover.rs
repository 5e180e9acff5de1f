//! Which program an engine is started with: the configured one, one on the search path, one we installed.
use super::record::{Install, installed};
use crate::{dirs::Dirs, disk};
use motorpool_catalog::Manifest;
use serde::Serialize;
use std::path::{Path, PathBuf};

/// A program that was found, and where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    pub(crate) program: PathBuf,
    pub(crate) origin: Origin,
}

/// Where a program was found, in order of preference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Origin {
    Configured,
    Path,
    Installed,
}

impl Origin {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Configured => "configured",
            Self::Path => "PATH",
            Self::Installed => "installed",
        }
    }
}

/// All programs of an engine, the preferred one first. `configured` is what `[engine.<name>] program` says.
pub(crate) fn find(dirs: &Dirs, manifest: &Manifest, configured: Option<&Path>) -> Vec<Found> {
    let configured = configured.filter(|path| disk::is_executable(path)).map(Path::to_owned);
    let configured = configured.into_iter().map(|program| Found { program, origin: Origin::Configured });
    let on_path = manifest.program.names.iter().filter_map(|name| disk::on_path(name));
    let on_path = on_path.map(|program| Found { program, origin: Origin::Path });
    let ours = installed(dirs).into_iter().rev();
    let ours = ours.filter(|install| install.engine == manifest.name && install.is_unchanged());
    let ours = ours.map(|Install { program, .. }| Found { program, origin: Origin::Installed });
    configured.chain(on_path).chain(ours).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_program_goes_before_the_search_path_and_a_missing_one_is_not_found() {
        let top = tempfile::tempdir().expect("a temporary directory");
        let dirs = Dirs { data: top.path().into(), state: "/s".into(), run: "/r".into(), config: "/c".into() };
        let (mut manifests, _) = motorpool_catalog::shipped();
        let mut manifest = manifests.swap_remove(0);
        manifest.program.names = vec!["no-such-program".into(), "sh".into()];
        let origins = |configured: &str| -> Vec<_> {
            find(&dirs, &manifest, Some(Path::new(configured))).iter().map(|found| found.origin).collect()
        };
        assert_eq!(origins("/bin/sh"), [Origin::Configured, Origin::Path]);
        assert_eq!(origins("/bin/no-such-program"), [Origin::Path]);
    }
}
