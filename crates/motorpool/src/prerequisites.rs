//! What an installation needs from the system, and the exact line to type when it is not there.
use crate::disk;
use std::{
    fmt,
    path::{Path, PathBuf},
};

/// A thing that only the system's package manager can bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Missing {
    Python,
    /// `venv` and `ensurepip`, which some systems package apart.
    PythonVenv,
    Compiler,
    Make,
    /// NVIDIA's compiler for its cards.
    Cuda,
    /// AMD's, and the libraries that go with it.
    Rocm,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Python => "python3 (3.10 or newer)",
            Self::PythonVenv => "python3's venv and ensurepip modules",
            Self::Compiler => "a C++ compiler (c++)",
            Self::Make => "make",
            Self::Cuda => "NVIDIA's CUDA toolkit (nvcc)",
            Self::Rocm => "AMD's ROCm (hipcc)",
        })
    }
}

/// A package manager: its program, the line that installs, and its names for each of [`Missing`]; none: it has none.
struct PackageManager {
    program: &'static str,
    install: &'static str,
    names: [&'static str; 6],
}

const PACKAGE_MANAGERS: &[PackageManager] = &[
    PackageManager {
        program: "apt-get",
        install: "apt-get install -y",
        names: ["python3", "python3-venv", "g++", "make", "nvidia-cuda-toolkit", "hipcc libhipblas-dev librocblas-dev"],
    },
    PackageManager {
        program: "dnf",
        install: "dnf install -y",
        names: [
            "python3",
            "python3-pip",
            "gcc-c++",
            "make",
            "cuda-toolkit",
            "rocm-hip-devel hipblas-devel rocblas-devel",
        ],
    },
    PackageManager {
        program: "zypper",
        install: "zypper install -y",
        names: ["python3", "python3-pip", "gcc-c++", "make", "cuda-toolkit", "rocm-hip-sdk"],
    },
    PackageManager {
        program: "pacman",
        install: "pacman -S --needed",
        names: ["python", "python", "gcc", "make", "cuda", "rocm-hip-sdk"],
    },
    PackageManager {
        program: "apk",
        install: "apk add",
        names: ["python3", "py3-pip", "g++ linux-headers", "make", "", ""],
    },
];

/// What a build needs and the search path has not.
pub(crate) fn missing_for_build() -> Vec<Missing> {
    let mut missing = Vec::new();
    let compiler =
        std::env::var_os("CXX").map(PathBuf::from).filter(|cxx| cxx.is_absolute() && disk::is_executable(cxx));
    if compiler.is_none() && !["c++", "g++", "clang++"].iter().any(|name| disk::on_path(name).is_some()) {
        missing.push(Missing::Compiler);
    }
    if !["make", "gmake"].iter().any(|name| disk::on_path(name).is_some()) {
        missing.push(Missing::Make);
    }
    missing
}

/// The line to type.
pub(crate) fn line_for(missing: &[Missing]) -> String {
    let has_all = |manager: &&PackageManager| missing.iter().all(|one| !manager.names[*one as usize].is_empty());
    let present = PACKAGE_MANAGERS.iter().find(|manager| disk::on_path(manager.program).is_some()).filter(has_all);
    let names: Vec<_> = missing.iter().map(ToString::to_string).collect();
    match present {
        Some(manager) => manager.line(missing),
        None if cfg!(target_os = "macos") => "run `xcode-select --install && brew install python`".to_owned(),
        None => format!("install {} with your system's package manager, or from its maker", names.join(" and ")),
    }
}

impl PackageManager {
    fn line(&self, missing: &[Missing]) -> String {
        let mut packages = Vec::new();
        for name in missing.iter().map(|missing| self.names[*missing as usize]) {
            if !packages.contains(&name) {
                packages.push(name);
            }
        }
        let sudo = if nix::unistd::geteuid().is_root() { "" } else { "sudo " };
        format!("run `{sudo}{} {}`", self.install, packages.join(" "))
    }
}

/// The line that shows where the room of `dir`'s file system went.
pub(crate) fn line_for_room(dir: &Path) -> String {
    format!("free some on the file system of {}, or set XDG_DATA_HOME to a larger one", dir.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_for_a_card_names_the_toolkit_of_its_maker() {
        let apt = PACKAGE_MANAGERS.iter().find(|manager| manager.program == "apt-get").expect("in the table");
        assert!(apt.line(&[Missing::Cuda]).ends_with("apt-get install -y nvidia-cuda-toolkit`"));
        assert!(apt.line(&[Missing::Rocm]).contains(" hipcc "));
    }

    #[test]
    fn the_line_names_each_package_once() {
        let pacman = PACKAGE_MANAGERS.iter().find(|manager| manager.program == "pacman").expect("in the table");
        let line = pacman.line(&[Missing::Python, Missing::PythonVenv, Missing::Compiler]);
        assert!(line.ends_with("pacman -S --needed python gcc`"), "{line}");
    }
}
