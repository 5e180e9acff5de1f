//! How hard the kernel looks for memory: pressure stall information.
use crate::{ReadingError, check_supported};
use std::{fs, io, path::Path};

/// Shares of the last ten seconds, per mille, rounded down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPressure {
    /// In which at least one task waited for memory.
    pub some_avg10: u64,
    /// In which every task that could run waited for it.
    pub full_avg10: u64,
}

/// Reads the machine's memory pressure. `None`: this kernel does not measure it. `root` is `/` but in tests.
pub fn observe_memory_pressure(root: &Path) -> Result<Option<MemoryPressure>, ReadingError> {
    check_supported()?;
    let path = root.join("proc/pressure/memory");
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        // Not built in, or turned off at boot.
        Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) => return Ok(None),
        Err(source) => return Err(ReadingError::Unreadable { path, source }),
    };
    let of = |line, what| avg10(&text, line).ok_or(ReadingError::Malformed { path: path.clone(), what });
    Ok(Some(MemoryPressure { some_avg10: of("some", "some avg10")?, full_avg10: of("full", "full avg10")? }))
}

/// `some avg10=12.34 avg60=… avg300=… total=…`: per cent with two digits behind the point.
fn avg10(text: &str, line: &str) -> Option<u64> {
    let fields = text.lines().find_map(|found| found.strip_prefix(line)?.strip_prefix(' '))?;
    let percent = fields.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    let (whole, part) = percent.split_once('.')?;
    let tenth = part.bytes().next().filter(u8::is_ascii_digit).map(|digit| u64::from(digit - b'0'))?;
    whole.parse::<u64>().ok()?.checked_mul(10)?.checked_add(tenth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        "some avg10=12.34 avg60=0.00 avg300=0.00 total=1\nfull avg10=3.05 avg60=9.00 avg300=9.00 total=1\n";

    fn observed(text: &str) -> Result<Option<MemoryPressure>, ReadingError> {
        let root = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(root.path().join("proc/pressure")).expect("writable");
        fs::write(root.path().join("proc/pressure/memory"), text).expect("writable");
        observe_memory_pressure(root.path())
    }

    #[test]
    fn pressure_is_read_per_mille() {
        assert_eq!(observed(TEXT).expect("read"), Some(MemoryPressure { some_avg10: 123, full_avg10: 30 }));
    }

    #[test]
    fn a_kernel_that_does_not_measure_says_none_and_one_that_babbles_is_an_error() {
        let nothing = tempfile::tempdir().expect("a temporary directory");
        assert_eq!(observe_memory_pressure(nothing.path()).expect("no error"), None);
        assert!(matches!(observed("some avg10=x"), Err(ReadingError::Malformed { what: "some avg10", .. })));
        assert!(matches!(observed("some avg10=1.0\n"), Err(ReadingError::Malformed { what: "full avg10", .. })));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(some |full )?(avg10=)?[0-9.é]{0,24}") {
            let _ = avg10(&text, "some");
        }
    }
}
