//! Text inside the scan: escapes decoded, UTF-8 checked over chunks.
use super::{ScanError, index, len};
use std::borrow::Cow;

/// The text between the quotes of a JSON string; `None` when an escape is broken, a surrogate stands alone, or a control
/// character stands bare.
pub(super) fn unescape(written: &[u8]) -> Option<Cow<'_, str>> {
    let text = str::from_utf8(written).ok()?;
    if text.bytes().any(|b| b < 0x20) {
        return None;
    }
    if !text.contains('\\') {
        return Some(Cow::Borrowed(text));
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((plain, escape)) = rest.split_once('\\') {
        out.push_str(plain);
        let (c, after) = one_escape(escape)?;
        out.push(c);
        rest = after;
    }
    out.push_str(rest);
    Some(Cow::Owned(out))
}

/// The character that an escape means, and what follows it.
fn one_escape(after_backslash: &str) -> Option<(char, &str)> {
    let mut chars = after_backslash.chars();
    let c = match chars.next()? {
        'u' => return unicode_escape(chars.as_str()),
        c @ ('"' | '\\' | '/') => c,
        'b' => '\u{8}',
        'f' => '\u{c}',
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        _ => return None,
    };
    Some((c, chars.as_str()))
}

fn unicode_escape(digits: &str) -> Option<(char, &str)> {
    let (unit, rest) = hex4(digits)?;
    if !(0xD800..0xDC00).contains(&unit) {
        return Some((char::from_u32(unit)?, rest));
    }
    let (low, rest) = hex4(rest.strip_prefix("\\u")?)?;
    if !(0xDC00..0xE000).contains(&low) {
        return None;
    }
    Some((char::from_u32(0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00))?, rest))
}

fn hex4(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4).filter(|d| d.bytes().all(|b| b.is_ascii_hexdigit()))?;
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

/// Parts off the last bytes when they begin a character and do not end it.
fn split_tail(bytes: &[u8]) -> (&[u8], &[u8]) {
    let back = bytes.iter().rev().take(3).position(|b| *b >= 0xC0);
    let Some(back) = back else { return (bytes, &[]) };
    let start = bytes.len() - 1 - back;
    match str::from_utf8(&bytes[start..]) {
        Err(e) if e.error_len().is_none() => bytes.split_at(start),
        _ => (bytes, &[]),
    }
}

/// UTF-8 over chunks: what a chunk leaves unfinished is held, three bytes at most.
#[derive(Debug, Default)]
pub(super) struct Utf8 {
    held: [u8; 4],
    n_held: usize,
}

impl Utf8 {
    /// Checks `chunk`, whose first byte stands at `base` of the whole.
    pub(super) fn feed(&mut self, chunk: &[u8], base: u64) -> Result<(), ScanError> {
        let taken = self.complete(chunk, base)?;
        let (whole, tail) = split_tail(&chunk[taken..]);
        if simdutf8::basic::from_utf8(whole).is_err() {
            let sound = str::from_utf8(whole).map_or_else(|e| e.valid_up_to(), str::len);
            return Err(ScanError::NotUtf8 { at: base + index(taken + sound) });
        }
        if !tail.is_empty() {
            self.held[..tail.len()].copy_from_slice(tail);
            self.n_held = tail.len();
        }
        Ok(())
    }

    /// Finishes the held character with the first bytes of `chunk`; answers how many it took.
    fn complete(&mut self, chunk: &[u8], base: u64) -> Result<usize, ScanError> {
        let before = self.n_held;
        for (i, byte) in chunk.iter().enumerate().take(4 - before) {
            if self.n_held == 0 {
                return Ok(i);
            }
            self.held[self.n_held] = *byte;
            self.n_held += 1;
            match str::from_utf8(&self.held[..self.n_held]) {
                Ok(_) => {
                    self.n_held = 0;
                    return Ok(i + 1);
                }
                Err(e) if e.error_len().is_some() => return Err(ScanError::NotUtf8 { at: base - index(before) }),
                Err(_) => {}
            }
        }
        Ok(if self.n_held == 0 { 0 } else { chunk.len() })
    }

    /// The text has ended after `total` bytes.
    pub(super) fn finish(&self, total: u64) -> Result<(), ScanError> {
        if self.n_held == 0 {
            return Ok(());
        }
        Err(ScanError::NotUtf8 { at: total - len(&self.held[..self.n_held]) })
    }
}

/// What must not hide behind another spelling from a server that reads JSON as Go does.
const ONE_SPELLING: [&str; 3] = ["model", "keep_alive", "options"];

/// The member for which Go takes `name`, which is written otherwise.
pub(super) fn respelled(name: &str) -> Option<&'static str> {
    // Beside capital letters, these two are the same to Go.
    let folded = |c| match c {
        'ſ' => 's',
        '\u{212a}' => 'k',
        other => char::to_ascii_lowercase(&other),
    };
    ONE_SPELLING.into_iter().find(|known| *known != name && name.chars().map(folded).eq(known.chars()))
}
