//! Apple's machines: system memory, and how much of it their graphics part may well use.
//!
//! Type-checked for them (`aarch64-apple-darwin`), and run on none so far. What is made of the figures is tested
//! everywhere.
use crate::Ram;
#[cfg(target_os = "macos")]
use crate::ReadingError;
use motorpool_vocab::Bytes;

/// Reads system memory. No control group limits it there.
#[cfg(target_os = "macos")]
pub(crate) fn observe_ram() -> Result<Ram, ReadingError> {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    ram_of(system.total_memory(), system.used_memory()).ok_or(ReadingError::Unsupported)
}

/// The largest `recommendedMaxWorkingSetSize` of its graphics parts; there is one. May block for as long as that takes
/// to wake.
#[cfg(target_os = "macos")]
pub(crate) fn observe_working_set() -> Option<Bytes> {
    use objc2_metal::MTLDevice as _;
    let devices = objc2_metal::MTLCopyAllDevices();
    devices.iter().filter_map(|device| working_set_of(device.recommendedMaxWorkingSetSize())).max()
}

/// What is not used can be had: free pages, those of files, and those that programs gave up. Used is what is wired,
/// compressed, or private. What the system itself calls available counts private pages in, as they could be compressed:
/// by that figure no program would ever hold anything.
///
/// No memory at all is no figure; more used than there is, is all of it.
fn ram_of(total: u64, used: u64) -> Option<Ram> {
    let available = Bytes::new(total.saturating_sub(used));
    (total > 0).then(|| Ram { total: Bytes::new(total), limit: None, available })
}

/// A device that recommends nothing says nothing.
fn working_set_of(recommended: u64) -> Option<Bytes> {
    (recommended > 0).then(|| Bytes::new(recommended))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_nothing_are_no_figures() {
        assert_eq!((ram_of(0, 5), working_set_of(0)), (None, None));
        assert_eq!(ram_of(8 << 30, 9 << 30).map(|ram| ram.available), Some(Bytes::ZERO));
        assert_eq!(working_set_of(5 << 30), Some(Bytes::gib(5)));
    }

    #[test]
    fn what_is_not_used_can_be_had() {
        let ram = ram_of(8 << 30, 3 << 30).expect("a figure");
        assert_eq!((ram.total, ram.available, ram.usable()), (Bytes::gib(8), Bytes::gib(5), Bytes::gib(8)));
    }
}
