//! Gives back the pages that starting this program touched and a keeper never needs again.
//!
//! Linking a large program at its start reads all its relocations, and each fault maps sixteen pages around it: several
//! MiB that stay mapped in every keeper. They are clean pages of files; what is needed of them again is read again.
use std::fs;

/// Unmaps the clean pages of all code and of all first segments (relocations, symbols, constants).
pub(crate) fn drop_clean_pages() {
    for line in fs::read_to_string("/proc/self/maps").unwrap_or_default().lines() {
        if let Some((start, length)) = clean(line) {
            advise(start, length);
        }
    }
}

/// Address and length of a mapping whose pages are all as in its file. Segments behind the first may be relocated,
/// which makes them ours although they can only be read.
fn clean(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_whitespace();
    let (range, rights, offset) = (fields.next()?, fields.next()?, fields.next()?);
    let is_file = fields.nth(2).is_some_and(|path| path.starts_with('/'));
    let is_first = offset.bytes().all(|digit| digit == b'0');
    if !is_file || !(rights == "r-xp" || (rights == "r--p" && is_first)) {
        return None;
    }
    let (start, end) = range.split_once('-')?;
    let (start, end) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    Some((start, end.checked_sub(start)?))
}

#[expect(unsafe_code, reason = "no safe call gives pages back")]
fn advise(start: usize, length: usize) {
    // SAFETY: the range is a whole private mapping of a file that nothing has written to, so its pages come back from
    // the file as they were. A failure leaves them where they are.
    unsafe { libc::madvise(start as *mut libc::c_void, length, libc::MADV_DONTNEED) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_and_first_segments_of_files_are_clean() {
        let at = |rest: &str| clean(&format!("55550000-55560000 {rest}"));
        assert_eq!(at("r-xp 00272000 fe:00 5392569    /usr/bin/motorpool"), Some((0x5555_0000, 0x1_0000)));
        assert_eq!(at("r--p 00000000 fe:00 5392569    /usr/bin/motorpool"), Some((0x5555_0000, 0x1_0000)));
        assert_eq!(at("r--p 00961000 fe:00 5392569    /usr/bin/motorpool"), None);
        assert_eq!(at("rw-p 00000000 fe:00 5392569    /usr/bin/motorpool"), None);
        assert_eq!(at("r-xp 00000000 00:00 0          [vdso]"), None);
        assert_eq!(at("rw-p 00000000 00:00 0"), None);
    }

    #[test]
    fn the_program_goes_on_with_what_it_needs() {
        drop_clean_pages();
        assert_eq!(clean(""), None);
    }
}
