//! Which kind of engine is built for this machine: [`pick_build`], from its graphics cards and what can compile for them.
//!
//! | cards | toolkit | built |
//! | --- | --- | --- |
//! | none of their own memory | any | for the processor |
//! | NVIDIA | CUDA, else Vulkan | with it |
//! | AMD | `ROCm`, else Vulkan | with it |
//! | any of these | none | nothing: the line that brings one is told; `--cpu` goes on without |
//!
//! On macOS a build has Metal without being asked.
use crate::{disk, prerequisites::Missing};
use motorpool_devices::{DeviceKind, DeviceReading, DeviceSource};
use motorpool_supervisor::{Drivers, Sighted};
use std::path::{Path, PathBuf};

/// Whose cards with memory of their own there are, the one to build for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cards {
    None,
    Nvidia,
    Amd,
}

/// Compilers for graphics cards that are here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toolkits {
    /// `nvcc`.
    pub(crate) cuda: Option<PathBuf>,
    /// `ROCm`'s folder.
    pub(crate) rocm: Option<PathBuf>,
    /// `glslc`, beside the headers.
    pub(crate) vulkan: Option<PathBuf>,
}

/// What somebody wants to be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// What the machine is good for.
    Best,
    /// `--cpu`.
    Processor,
}

/// What is built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    Processor,
    Cuda(PathBuf),
    Rocm(PathBuf),
    Vulkan,
}

/// The build for this machine, or the toolkit that it lacks.
pub(crate) fn pick_build(cards: Cards, toolkits: &Toolkits, wish: Wish) -> Result<Build, Missing> {
    let vulkan = || toolkits.vulkan.as_ref().map(|_| Build::Vulkan);
    let (own, lacks) = match (wish, cards) {
        (Wish::Processor, _) | (Wish::Best, Cards::None) => return Ok(Build::Processor),
        (Wish::Best, Cards::Nvidia) => (toolkits.cuda.clone().map(Build::Cuda), Missing::Cuda),
        (Wish::Best, Cards::Amd) => (toolkits.rocm.clone().map(Build::Rocm), Missing::Rocm),
    };
    own.or_else(vulkan).ok_or(lacks)
}

impl Build {
    /// What the build is told beside the usual.
    pub(crate) fn cmake_args(&self) -> &'static str {
        match self {
            Self::Processor => "",
            Self::Cuda(_) => " -DGGML_CUDA=ON",
            Self::Rocm(_) => " -DGGML_HIP=ON",
            Self::Vulkan => " -DGGML_VULKAN=ON",
        }
    }

    /// Variables that lead to compilers that need not be on the search path.
    pub(crate) fn environment(&self) -> Vec<(&'static str, PathBuf)> {
        match self {
            Self::Processor | Self::Vulkan => vec![],
            Self::Cuda(nvcc) => vec![("CUDACXX", nvcc.clone())],
            Self::Rocm(folder) => vec![("HIP_PATH", folder.clone()), ("HIPCXX", folder.join("llvm/bin/clang"))],
        }
    }

    /// For people.
    pub(crate) const fn as_str(&self) -> &'static str {
        match self {
            Self::Processor => "the processor",
            Self::Cuda(_) => "NVIDIA cards (CUDA)",
            Self::Rocm(_) => "AMD cards (ROCm)",
            Self::Vulkan => "graphics cards (Vulkan)",
        }
    }
}

impl Cards {
    /// By what drivers tell. A part that shares the system's memory is no card.
    pub(crate) fn of(devices: &[DeviceReading]) -> Self {
        let has = |source: DeviceSource| {
            devices.iter().any(|device| device.source == source && device.kind != DeviceKind::SharesRam)
        };
        match (has(DeviceSource::Nvml), has(DeviceSource::Amdgpu)) {
            (true, _) => Self::Nvidia,
            (false, true) => Self::Amd,
            (false, false) => Self::None,
        }
    }

    /// Of this machine. Takes some seconds where a driver hangs.
    pub(crate) async fn look() -> Self {
        let sighted: Option<Sighted> = match Drivers::new() {
            Ok(drivers) => Some(drivers.look().await),
            Err(_) => None,
        };
        sighted.map_or(Self::None, |sighted| Self::of(&sighted.devices()))
    }
}

impl Toolkits {
    /// Those below `root`, and on the search path.
    pub(crate) fn look(root: &Path, on_path: &dyn Fn(&str) -> Option<PathBuf>) -> Self {
        let at = |path: &str| Some(root.join(path)).filter(|path| path.exists());
        let headers =
            || ["usr/include/vulkan/vulkan.h", "usr/local/include/vulkan/vulkan.h"].iter().find_map(|p| at(p));
        let rocm =
            || on_path("hipcc").and_then(|hipcc| Some(hipcc.canonicalize().ok()?.parent()?.parent()?.to_owned()));
        Self {
            cuda: on_path("nvcc").or_else(|| at("usr/local/cuda/bin/nvcc")),
            rocm: at("opt/rocm").filter(|folder| folder.join("bin/hipcc").exists()).or_else(rocm),
            vulkan: on_path("glslc").filter(|_| headers().is_some()),
        }
    }

    /// Of this machine.
    pub(crate) fn here() -> Self {
        Self::look(Path::new("/"), &disk::on_path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::NoFigures;
    use motorpool_vocab::{DeviceId, Now};
    use std::fs;

    fn toolkits(cuda: &str, rocm: &str, vulkan: &str) -> Toolkits {
        let some = |text: &str| Some(PathBuf::from(text)).filter(|_| !text.is_empty());
        Toolkits { cuda: some(cuda), rocm: some(rocm), vulkan: some(vulkan) }
    }

    fn device(source: DeviceSource, kind: DeviceKind) -> DeviceReading {
        DeviceReading {
            id: DeviceId("GPU-a".into()),
            source,
            kind,
            name: "Card".into(),
            index: None,
            pci: None,
            visible_as: None,
            taken_at: Now::ZERO,
            memory: Err(NoFigures::Other("not asked".into())),
            by_process: None,
            shared: None,
        }
    }

    #[test]
    fn a_card_is_built_for_with_its_own_toolkit_else_with_vulkan_else_not_at_all() {
        let all = toolkits("/nvcc", "/rocm", "/glslc");
        let best = |cards, toolkits: &Toolkits| pick_build(cards, toolkits, Wish::Best);
        assert_eq!(best(Cards::Nvidia, &all), Ok(Build::Cuda("/nvcc".into())));
        assert_eq!(best(Cards::Amd, &all), Ok(Build::Rocm("/rocm".into())));
        assert_eq!(best(Cards::None, &all), Ok(Build::Processor));
        let vulkan = toolkits("", "", "/glslc");
        assert_eq!(best(Cards::Nvidia, &vulkan), Ok(Build::Vulkan));
        assert_eq!(best(Cards::Amd, &vulkan), Ok(Build::Vulkan));
        assert_eq!(best(Cards::Amd, &toolkits("/nvcc", "", "")), Err(Missing::Rocm), "CUDA is not for AMD's");
        assert_eq!(best(Cards::Nvidia, &toolkits("", "/rocm", "")), Err(Missing::Cuda));
        assert_eq!(best(Cards::None, &Toolkits::default()), Ok(Build::Processor));
        for cards in [Cards::Nvidia, Cards::Amd, Cards::None] {
            assert_eq!(pick_build(cards, &all, Wish::Processor), Ok(Build::Processor));
        }
    }

    #[test]
    fn a_part_that_shares_memory_is_no_card_and_nvidias_go_first() {
        let amd = device(DeviceSource::Amdgpu, DeviceKind::Card);
        let part = device(DeviceSource::Amdgpu, DeviceKind::SharesRam);
        let nvidia = device(DeviceSource::Nvml, DeviceKind::Card);
        assert_eq!(Cards::of(&[]), Cards::None);
        assert_eq!(Cards::of(std::slice::from_ref(&part)), Cards::None);
        assert_eq!(Cards::of(&[part.clone(), amd.clone()]), Cards::Amd);
        assert_eq!(Cards::of(&[amd, nvidia]), Cards::Nvidia);
    }

    #[test]
    fn toolkits_are_found_on_the_search_path_and_in_their_usual_places() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let nowhere = |_: &str| None;
        assert_eq!(Toolkits::look(root.path(), &nowhere), Toolkits::default());
        for file in ["usr/local/cuda/bin/nvcc", "opt/rocm/bin/hipcc", "usr/include/vulkan/vulkan.h"] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, "").expect("written");
        }
        let usual = Toolkits::look(root.path(), &nowhere);
        assert_eq!(usual.cuda, Some(root.path().join("usr/local/cuda/bin/nvcc")));
        assert_eq!((usual.rocm, usual.vulkan), (Some(root.path().join("opt/rocm")), None));
        let on_path = |name: &str| Some(PathBuf::from("/bin").join(name));
        let found = Toolkits::look(root.path(), &on_path);
        assert_eq!((found.cuda, found.vulkan), (Some("/bin/nvcc".into()), Some("/bin/glslc".into())));
        fs::remove_file(root.path().join("usr/include/vulkan/vulkan.h")).expect("ours");
        assert_eq!(Toolkits::look(root.path(), &on_path).vulkan, None, "a compiler without headers is none");
    }
}
