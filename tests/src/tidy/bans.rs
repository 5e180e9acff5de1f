//! Makes and compares each crate's `.clippy.toml`: what clippy is to refuse there.
//!
//! clippy reads the nearest file only, so each repeats the settings of the root's.
use super::{
    Complaint,
    house::{Crate, HOUSE, Nature},
};
use std::{fmt::Write as _, fs, io, path::Path};

/// Things that some crates must not name.
#[derive(Debug)]
struct Ban {
    why: &'static str,
    methods: &'static [&'static str],
    types: &'static [&'static str],
    holds: fn(&Crate) -> bool,
}

const BANS: &[Ban] = &[
    Ban {
        why: "no clock above the line: `now` is a parameter",
        methods: &[
            "std::time::Instant::now",
            "std::time::Instant::elapsed",
            "std::time::SystemTime::now",
            "std::time::SystemTime::elapsed",
            "jiff::Timestamp::now",
            "jiff::Zoned::now",
        ],
        types: &[],
        holds: |place| place.nature == Nature::Pure,
    },
    Ban {
        why: "no I/O above the line: facts come in as values",
        methods: &[
            "std::fs::canonicalize",
            "std::fs::copy",
            "std::fs::create_dir",
            "std::fs::create_dir_all",
            "std::fs::exists",
            "std::fs::metadata",
            "std::fs::read",
            "std::fs::read_dir",
            "std::fs::read_link",
            "std::fs::read_to_string",
            "std::fs::remove_dir_all",
            "std::fs::remove_file",
            "std::fs::rename",
            "std::fs::symlink_metadata",
            "std::fs::write",
            "std::io::stdin",
            "std::io::stdout",
            "std::io::stderr",
            "std::path::Path::canonicalize",
            "std::path::Path::exists",
            "std::path::Path::is_dir",
            "std::path::Path::is_file",
            "std::path::Path::metadata",
            "std::path::Path::read_dir",
        ],
        types: &[
            "std::fs::File",
            "std::fs::OpenOptions",
            "std::net::TcpListener",
            "std::net::TcpStream",
            "std::net::UdpSocket",
            "std::os::unix::net::UnixListener",
            "std::os::unix::net::UnixStream",
        ],
        holds: |place| place.nature == Nature::Pure,
    },
    Ban {
        why: "no threads above the line: callers decide where it runs",
        methods: &["std::thread::park", "std::thread::scope", "std::thread::sleep", "std::thread::spawn"],
        types: &["std::thread::Builder"],
        holds: |place| place.nature == Nature::Pure,
    },
    Ban {
        why: "only `supervisor` starts, signals or reaps a process",
        methods: &[
            "libc::execv",
            "libc::execve",
            "libc::execvp",
            "libc::fork",
            "libc::kill",
            "libc::killpg",
            "libc::posix_spawn",
            "libc::vfork",
            "libc::waitid",
            "libc::waitpid",
            "nix::sys::signal::kill",
            "nix::sys::signal::killpg",
            "nix::sys::wait::wait",
            "nix::sys::wait::waitid",
            "nix::sys::wait::waitpid",
            "nix::unistd::execv",
            "nix::unistd::execve",
            "nix::unistd::execvp",
            "nix::unistd::fork",
            "std::process::Command::new",
            "tokio::process::Command::new",
        ],
        types: &["std::process::Command", "tokio::process::Command"],
        holds: |place| place.folder != "supervisor",
    },
    Ban {
        why: "only `gateway` serves HTTP",
        methods: &[
            "axum::serve",
            "hyper::server::conn::http1::Builder::new",
            "hyper_util::server::conn::auto::Builder::new",
        ],
        types: &[],
        holds: |place| place.folder != "gateway",
    },
    Ban {
        why: "only `motorpool` reads the environment and arguments",
        methods: &[
            "std::env::args",
            "std::env::args_os",
            "std::env::current_dir",
            "std::env::current_exe",
            "std::env::remove_var",
            "std::env::set_current_dir",
            "std::env::set_var",
            "std::env::temp_dir",
            "std::env::var",
            "std::env::var_os",
            "std::env::vars",
            "std::env::vars_os",
        ],
        types: &[],
        holds: |place| place.nature != Nature::Binary,
    },
    Ban {
        why: "only `motorpool` exits; errors are values, a broken invariant is a panic",
        methods: &["std::process::abort", "std::process::exit"],
        types: &[],
        holds: |place| place.nature != Nature::Binary,
    },
    Ban {
        why: "one task of `supervisor` owns the pool; others hold a `PoolHandle`",
        methods: &["motorpool_pool::Pool::new", "motorpool_pool::Pool::on_event"],
        types: &["motorpool_pool::Pool"],
        holds: |place| !matches!(place.folder, "pool" | "supervisor"),
    },
];

/// What the file of `place` must say, after the root's `settings`.
pub fn rendered(place: &Crate, settings: &str) -> String {
    let mut text = String::from(
        "# What this crate must not name, by its place in the house. The test `tidy` compares this file with\n\
         # tests/src/tidy/bans.rs and, with MOTORPOOL_BLESS=1, writes it. clippy reads the nearest file only: the\n\
         # settings of the root come first.\n",
    );
    text += settings;
    list(&mut text, "disallowed-methods", place, |ban| ban.methods);
    list(&mut text, "disallowed-types", place, |ban| ban.types);
    text
}

fn list(text: &mut String, name: &str, place: &Crate, paths: fn(&Ban) -> &[&str]) {
    write!(text, "\n{name} = [\n").expect("a string takes all");
    for ban in BANS.iter().filter(|ban| (ban.holds)(place)) {
        for path in paths(ban) {
            // A path into a crate that is not used here leads nowhere, and may do so.
            let lenient = if path.starts_with("std::") { "" } else { ", allow-invalid = true" };
            writeln!(text, "    {{ path = \"{path}\", reason = \"{}\"{lenient} }},", ban.why)
                .expect("a string takes all");
        }
    }
    *text += "]\n";
}

/// Each crate of the house that stands at `root`, with the path and the wanted text of its file.
fn wanted(root: &Path) -> io::Result<Vec<(std::path::PathBuf, String)>> {
    let settings = fs::read_to_string(root.join(".clippy.toml"))?;
    let standing = |place: &&Crate| place.nature != Nature::Outside && root.join("crates").join(place.folder).is_dir();
    let file =
        |place: &Crate| (root.join("crates").join(place.folder).join(".clippy.toml"), rendered(place, &settings));
    Ok(HOUSE.iter().filter(standing).map(file).collect())
}

/// Writes every file.
pub fn bless(root: &Path) -> io::Result<()> {
    wanted(root)?.iter().try_for_each(|(path, text)| fs::write(path, text))
}

/// Every file that is not what it must be.
pub fn check(root: &Path) -> io::Result<Vec<Complaint>> {
    let differing = |(path, text): &(std::path::PathBuf, String)| match fs::read_to_string(path) {
        Ok(found) if found == *text => None,
        Ok(_) => Some(format!("{}: differs from tidy/bans.rs; MOTORPOOL_BLESS=1 writes it", path.display())),
        Err(e) => Some(format!("{}: {e}; MOTORPOOL_BLESS=1 writes it", path.display())),
    };
    Ok(wanted(root)?.iter().filter_map(differing).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::house;

    fn bans_of(folder: &str) -> toml::Table {
        toml::from_str(&rendered(house::find(folder).expect("in the house"), "allow-unwrap-in-tests = true\n"))
            .expect("valid")
    }

    fn is_banned(folder: &str, path: &str) -> bool {
        ["disallowed-methods", "disallowed-types"].iter().any(|list| {
            let list = bans_of(folder)[*list].as_array().expect("a list").clone();
            list.iter().any(|entry| entry["path"].as_str() == Some(path))
        })
    }

    #[test]
    fn each_sentence_bans_where_it_holds_and_nowhere_else() {
        for (path, banned, free) in [
            ("std::time::Instant::now", "pool", "supervisor"),
            ("std::fs::File", "gguf", "motorpool"),
            ("std::thread::spawn", "vocab", "devices"),
            ("nix::sys::signal::kill", "motorpool", "supervisor"),
            ("tokio::process::Command", "gateway", "supervisor"),
            ("axum::serve", "motorpool", "gateway"),
            ("std::env::var", "supervisor", "motorpool"),
            ("std::process::exit", "gateway", "motorpool"),
            ("motorpool_pool::Pool", "gateway", "supervisor"),
        ] {
            assert!(is_banned(banned, path) && !is_banned(free, path), "{path}");
        }
    }

    #[test]
    fn the_settings_of_the_root_are_repeated() {
        assert_eq!(bans_of("pool")["allow-unwrap-in-tests"].as_bool(), Some(true));
    }
}
