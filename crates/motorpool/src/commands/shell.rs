//! `motorpool completions` and `motorpool man`: what shells and readers of manuals know of the command line, from the
//! arguments themselves.
use crate::{
    args::Cli,
    exit::{Exit, Failure},
    out::Out,
};
use clap::{Args, CommandFactory};
use serde_json::json;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

const NAME: &str = "motorpool";

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// For which shell
    shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write a page for each command to this folder, instead of printing the page of the program
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn completions(out: Out, Completions { shell }: &Completions) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(*shell, &mut Cli::command(), NAME, &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    out.data(&json!({ "shell": shell.to_string(), "script": script }), || script.clone())
}

pub(super) fn man(out: Out, Man { dir }: &Man) -> Result<(), Failure> {
    let Some(dir) = dir else {
        let mut page = Vec::new();
        let rendered = clap_mangen::Man::new(Cli::command()).render(&mut page);
        rendered.map_err(|error| Failure::new(Exit::Failed, error, "report this"))?;
        let page = String::from_utf8_lossy(&page).into_owned();
        return out.data(&json!({ "page": page }), || page.clone());
    };
    let n = write_pages(dir).map_err(|error| {
        let what = format!("cannot write manual pages to {}: {error}", dir.display());
        Failure::new(Exit::Denied, what, "name a folder that you can write to with --dir")
    })?;
    out.data(&json!({ "dir": dir, "pages": n }), || format!("{n} pages in {}\n", dir.display()))
}

/// One page for the program and one for each command. How many there are.
fn write_pages(dir: &Path) -> io::Result<usize> {
    fs::create_dir_all(dir)?;
    clap_mangen::generate_to(Cli::command(), dir)?;
    let is_page = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(NAME);
    Ok(fs::read_dir(dir)?.filter_map(Result::ok).filter(is_page).count())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;

    /// Every command that does something, with the words that lead to it.
    fn leaves(command: &Command, above: &[String]) -> Vec<(Vec<String>, Command)> {
        let below = command.get_subcommands().filter(|below| below.get_name() != "help").collect::<Vec<_>>();
        let mut found = Vec::new();
        if below.is_empty() || !command.is_subcommand_required_set() && !above.is_empty() {
            found.push((above.to_vec(), command.clone()));
        }
        for one in below {
            found.extend(leaves(one, &[above, &[one.get_name().to_owned()]].concat()));
        }
        found
    }

    fn tree() -> Command {
        let mut command = Cli::command();
        command.build();
        command
    }

    #[test]
    fn every_command_and_every_argument_has_a_help_text() {
        fn check(command: &Command, path: &str) {
            assert!(command.get_about().is_some_and(|about| !about.to_string().is_empty()), "{path}");
            for argument in command.get_arguments() {
                let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
                assert!(!help.is_empty(), "{path} {}", argument.get_id());
            }
            for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
                check(below, &format!("{path} {}", below.get_name()));
            }
        }
        check(&tree(), NAME);
    }

    #[test]
    fn every_command_takes_json() {
        let all = leaves(&tree(), &[]);
        assert!(all.len() > 30, "{}", all.len());
        let without = all.iter().filter(|(_, command)| command.get_arguments().all(|a| a.get_long() != Some("json")));
        let without: Vec<_> = without.map(|(path, _)| path.join(" ")).collect();
        assert_eq!(without, Vec::<String>::new(), "commands without --json: {}", without.len());
    }

    #[test]
    fn there_is_a_page_for_every_command_and_a_script_for_every_shell() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let n = write_pages(dir.path()).expect("written");
        let all = leaves(&tree(), &[]);
        for (path, _) in &all {
            assert!(dir.path().join(format!("{NAME}-{}.1", path.join("-"))).is_file(), "{path:?}");
        }
        assert!(n > all.len());
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish] {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), NAME, &mut script);
            let script = String::from_utf8(script).expect("text");
            assert!(script.contains("residency") && script.contains("state-dir"), "{shell}");
        }
    }
}
