//! [`Sandbox`]: what an engine may do to the machine, by its manifest, and [`Confinement`]: whether this machine holds it to
//! that.
use crate::quantity::checked;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use std::path::{Path, PathBuf};

/// Where an engine may write, and how it may use TCP. It reads whatever its user may.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sandbox {
    /// Folders and files beside those that it is given: of its run, of its sessions, for temporary files, `/dev` and
    /// `/proc/self`. What is not there is passed over.
    #[serde(default)]
    pub write: Vec<Place>,
    /// What it may do with TCP (`own`).
    #[serde(default)]
    pub tcp: TcpUse,
}

/// An absolute path, or one below the home of the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    path: PathBuf,
    is_at_home: bool,
}

impl Place {
    /// Where it is for a user with this home, if it is anywhere.
    pub fn path(&self, home: Option<&Path>) -> Option<PathBuf> {
        if self.is_at_home { Some(home?.join(&self.path)) } else { Some(self.path.clone()) }
    }
}

/// What an engine may do with TCP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TcpUse {
    /// Listen on the port that it was given, if it was; nothing else.
    #[default]
    Own,
    /// Listen and connect as it likes.
    Any,
}

/// Whether engines are held to the sandbox of their manifest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Confinement {
    /// Where the kernel can.
    #[default]
    On,
    /// They may do what their user may.
    Off,
}

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        checked(reader, "a path such as \"/var/tmp\" or \"~/.cache\"", |text| match text.strip_prefix("~/") {
            Some(path) => Ok(Self { path: path.into(), is_at_home: true }),
            None if text.starts_with('/') => Ok(Self { path: text.into(), is_at_home: false }),
            None => Err(format!("`{text}` is neither absolute nor below `~/`")),
        })
    }
}
