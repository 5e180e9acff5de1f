//! `motorpool config`: the files that say what the pool does: checked, shown, described, made from those of others.
mod check;
mod import;
mod show;

use crate::{dirs::Dirs, exit::Failure, out::Out};
use clap::Subcommand;
use motorpool_catalog::FileKind;
use std::path::Path;

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Look for everything that is wrong in the configuration, the catalog and the manifests of engines
    ///
    /// Every fault of every file is shown with its line, and with a line that is right. Nothing is started or changed.
    Check(check::Check),
    /// Show what the configuration says, and where each value comes from
    Show(show::Show),
    /// Print the JSON Schema of a kind of file, for editors
    ///
    /// `config` is motorpool.toml, `model` a file of catalog/, `engine` a file of engines/, `host` the machine of `plan --on`.
    Schema {
        /// Which kind
        #[arg(value_parser = kind, default_value = "config", value_name = "config|model|engine|host")]
        kind: FileKind,
    },
    /// Make entries of the catalog from llama-swap's configuration, or from presets of llama.cpp's router
    ///
    /// Without --to it prints what it would write. What has no counterpart here is said, line by line. No file that is
    /// there is overwritten.
    ///
    /// A model of the hub (`-hf`) is looked for on this machine, where llama.cpp and others keep theirs: an entry names the
    /// file. One that is not there is fetched by `motorpool model pull`. An id that cannot stand in the catalog (`a:b`) is
    /// written otherwise (`a-b`), and stays an alias. When an entry could not be made, the exit code is 12.
    Import(import::Import),
}

fn kind(text: &str) -> Result<FileKind, String> {
    let named = FileKind::ALL.into_iter().find(|kind| kind.as_str() == text);
    named.ok_or_else(|| "config, model, engine or host".to_owned())
}

pub(super) fn perform(dirs: &Dirs, out: Out, (explicit, command): (Option<&Path>, Config)) -> Result<(), Failure> {
    match command {
        Config::Check(check) => check::perform(dirs, out, (explicit, &check)),
        Config::Show(show) => show::perform(dirs, out, (explicit, &show)),
        Config::Schema { kind } => {
            let schema = motorpool_catalog::schema(kind);
            // It is JSON for people too.
            out.data(&schema, || format!("{schema:#}\n"))
        }
        Config::Import(command) => import::perform(dirs, out, &command),
    }
}
