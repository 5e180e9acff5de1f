//! The engine's own list of devices: what `llama-server --list-devices` prints, and the lines in its log that say
//! which devices it uses.
//!
//! Boundary: text in, values out. These are the engine's names and order, under whatever environment it ran in; which
//! stable id each stands for is found elsewhere. Sizes are whole MiB, as printed.
use motorpool_vocab::{Bytes, MIB};

/// One device as the engine names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineDevice {
    /// What `-dev` takes: `CUDA0`, `Vulkan1`, `RPC0[host:port]`.
    pub name: String,
    /// What the backend calls it.
    pub description: String,
    /// The backend's id, a PCI address for most, where it is printed.
    pub pci: Option<String>,
    /// All its memory, where it is printed.
    pub total: Option<Bytes>,
    /// What was free when it was printed.
    pub free: Bytes,
}

/// The devices of a list: lines `  <name>: <description> (<total> MiB, <free> MiB free)` after `Available devices:`.
///
/// `None`: the text has no such heading, so it is no list. An empty list is an engine that sees no device. Lines of
/// another shape are left out (backends print what they please in between).
pub fn parse_device_list(text: &str) -> Option<Vec<EngineDevice>> {
    let mut lines = text.lines().skip_while(|line| line.trim() != "Available devices:");
    lines.next()?;
    Some(lines.filter_map(parse_listed).collect())
}

/// The devices that an engine's log says it uses: lines
/// `… using device <name> (<description>) (<id>) - <free> MiB free`. Older builds print no id.
pub fn parse_used_devices(log: &str) -> Vec<EngineDevice> {
    log.lines().filter_map(parse_used).collect()
}

fn parse_listed(line: &str) -> Option<EngineDevice> {
    // A name may hold a colon (an address), never a blank; a description may hold parentheses.
    let (name, rest) = line.trim().split_once(": ")?;
    let (description, sizes) = rest.strip_suffix(" MiB free)")?.rsplit_once(" (")?;
    let (total, free) = sizes.split_once(" MiB, ")?;
    let (description, pci) = split_address(description);
    is_name(name).then_some(())?;
    Some(EngineDevice {
        name: name.to_owned(),
        description: description.to_owned(),
        pci,
        total: Some(mib(total)?),
        free: mib(free)?,
    })
}

fn parse_used(line: &str) -> Option<EngineDevice> {
    let (_, rest) = line.split_once("using device ")?;
    let (device, free) = rest.trim_end().strip_suffix(" MiB free")?.rsplit_once(" - ")?;
    let (name, rest) = device.split_once(" (")?;
    let (description, pci) = match split_address(rest) {
        (description, Some(address)) => (description, Some(address)),
        // An id that is no address, such as `unknown id`.
        (rest, None) => (rest.rsplit_once(") (").map_or(rest, |(description, _)| description), None),
    };
    let description = description.strip_suffix(')').unwrap_or(description).to_owned();
    is_name(name).then(|| mib(free))?.map(|free| EngineDevice {
        name: name.to_owned(),
        description,
        pci,
        total: None,
        free,
    })
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains(char::is_whitespace)
}

/// Takes ` (0000:01:00.0)` off the end of a description.
fn split_address(text: &str) -> (&str, Option<String>) {
    let parts = text.strip_suffix(')').and_then(|text| text.rsplit_once(" ("));
    match parts {
        Some((description, address)) if is_pci_address(address) => (description, Some(address.to_ascii_lowercase())),
        _ => (text, None),
    }
}

/// `<domain>:<bus>:<device>.<function>`, all hexadecimal.
fn is_pci_address(text: &str) -> bool {
    let parts: Vec<&str> = text.split([':', '.']).collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    matches!(lengths[..], [4 | 8, 2, 2, 1]) && parts.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn mib(text: &str) -> Option<Bytes> {
    text.parse::<u64>().ok()?.checked_mul(MIB).map(Bytes::new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn device(name: &str, description: &str, total: u64, free: u64) -> EngineDevice {
        let (name, description) = (name.to_owned(), description.to_owned());
        EngineDevice { name, description, pci: None, total: Some(Bytes::mib(total)), free: Bytes::mib(free) }
    }

    #[test]
    fn devices_of_every_backend_are_read() {
        let text = "ggml_cuda_init: found 1 CUDA devices:\n  Device 0: NVIDIA GeForce RTX 3090, compute capability 8.6\n\
                    Available devices:\n  CUDA0: NVIDIA GeForce RTX 3090 (24124 MiB, 23512 MiB free)\n  \
                    Vulkan1: AMD Radeon Graphics (RADV RENOIR) (15919 MiB, 15918 MiB free)\n  \
                    Metal: Apple M2 Ultra (147456 MiB, 147455 MiB free)\n  \
                    RPC0[10.0.0.2:50052]: RPC0[10.0.0.2:50052] (8 MiB, 7 MiB free)\n\
                    load_backend: loaded CPU backend\n";
        let expected = [
            device("CUDA0", "NVIDIA GeForce RTX 3090", 24_124, 23_512),
            device("Vulkan1", "AMD Radeon Graphics (RADV RENOIR)", 15_919, 15_918),
            device("Metal", "Apple M2 Ultra", 147_456, 147_455),
            device("RPC0[10.0.0.2:50052]", "RPC0[10.0.0.2:50052]", 8, 7),
        ];
        assert_eq!(parse_device_list(text).expect("a list"), expected);
    }

    #[test]
    fn an_address_beside_a_description_is_told_from_it() {
        let text = "Available devices:\n  ROCm0: AMD Radeon (TM) (0000:0A:00.0) (8 MiB, 7 MiB free)\n";
        let expected =
            EngineDevice { pci: Some("0000:0a:00.0".to_owned()), ..device("ROCm0", "AMD Radeon (TM)", 8, 7) };
        assert_eq!(parse_device_list(text).expect("a list"), [expected]);
    }

    #[test]
    fn no_devices_is_an_empty_list_and_no_heading_is_none() {
        assert_eq!(parse_device_list("Available devices:\n  (none)\n"), Some(Vec::new()));
        assert_eq!(parse_device_list("error: unknown argument: --list-devices\n"), None);
        assert_eq!(parse_device_list("  CUDA0: X (8 MiB, 7 MiB free)\nAvailable devices:\n"), Some(Vec::new()));
    }

    #[test]
    fn a_size_that_is_none_is_no_device() {
        let of = |line: &str| parse_device_list(&format!("Available devices:\n{line}\n")).expect("a list");
        assert_eq!(of("  CUDA0: X (8 MiB, ? MiB free)"), []);
        assert_eq!(of(&format!("  CUDA0: X ({} MiB, 7 MiB free)", u64::MAX)), []);
        assert_eq!(of("  two words: X (8 MiB, 7 MiB free)"), []);
    }

    #[test]
    fn used_devices_are_read_with_their_ids() {
        let log = "0.1 I llama_prepare_model_devices: using device CUDA0 (NVIDIA RTX (3090)) (0000:01:00.0) - 23512 MiB free\n\
                   llama_model_load_from_file_impl: using device Vulkan0 (AMD Radeon (RADV)) - 7 MiB free\n\
                   llama_model_load: using device RPC0[h:1] (RPC) (unknown id) - 5 MiB free\nusing device? no\n";
        let used = parse_used_devices(log);
        let found: Vec<_> =
            used.iter().map(|d| (d.name.as_str(), d.description.as_str(), d.pci.as_deref(), d.free)).collect();
        assert_eq!(
            found,
            [
                ("CUDA0", "NVIDIA RTX (3090)", Some("0000:01:00.0"), Bytes::mib(23_512)),
                ("Vulkan0", "AMD Radeon (RADV)", None, Bytes::mib(7)),
                ("RPC0[h:1]", "RPC", None, Bytes::mib(5)),
            ]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(Available devices:\n)?([ A-Za-z0-9:.,()\\PC-]{0,60}\n){0,4}") {
            let _ = parse_device_list(&text);
            let _ = parse_used_devices(&text);
        }

        #[test]
        fn no_damaged_line_panics(cut in 0usize..80, junk in "\\PC{0,5}") {
            const LINE: &str = "using device CUDA0 (NVIDIA) (0000:01:00.0) - 23512 MiB free";
            const LISTED: &str = "  CUDA0: NVIDIA GeForce RTX 3090 (24124 MiB, 23512 MiB free)";
            for line in [LINE, LISTED] {
                let line = format!("{}{junk}{}", line.get(..cut).unwrap_or(line), line.get(cut..).unwrap_or(""));
                let _ = parse_device_list(&format!("Available devices:\n{line}"));
                let _ = parse_used_devices(&line);
            }
        }

        #[test]
        fn what_is_printed_is_read_back(name in "[A-Za-z]{1,8}[0-9]{0,2}", description in "[A-Za-z0-9]([A-Za-z0-9 ()]{0,20}[A-Za-z0-9])?", total in 0u64..1 << 40, free in 0u64..1 << 40) {
            let line = format!("Available devices:\n  {name}: {description} ({total} MiB, {free} MiB free)\n");
            prop_assert_eq!(parse_device_list(&line), Some(vec![device(&name, &description, total, free)]));
        }
    }
}
