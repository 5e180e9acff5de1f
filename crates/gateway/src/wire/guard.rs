//! What must not be read two ways: a filter over the bytes of a client's connection, [`Guard`].
//!
//! Two readers of one connection (a proxy before us, and we) must agree where a request ends. The parser behind this
//! takes some requests that others read differently: lines that end with a bare LF, and a length given twice, by
//! `Content-Length` and by `Transfer-Encoding`. The guard follows the framing of HTTP/1 just far enough to know what is
//! head and what is body, and spoils such a head with a zero byte, so that the parser answers 400 and closes. The first
//! line of HTTP/2 is rewritten to HTTP/1.0, so that it can be answered in words. A length that it cannot read whole, since
//! it is padded beyond what is kept of a line, is malformed: the parser would read it, and the two would part.
//!
//! ```text
//! Head ─blank line─┬─ no body ───────────────────────► Head
//!                  ├─ Content-Length ─► Body ─────────► Head
//!                  └─ chunked ─► Size ─► Chunk ─► Size … 0 ─► Trailer ─blank line─► Head
//! any ─ malformed ─► Broken (nothing is looked at any more)
//! ```

/// The first line of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r";
/// How much of a line is looked at: header names and lengths are shorter.
const LINE_BYTES: usize = 64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    #[default]
    Head,
    Body(u64),
    Size,
    /// So many bytes of data and its line end.
    Chunk(u64),
    Trailer,
    Broken,
}

/// Follows one connection. See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Guard {
    at: At,
    /// The beginning of the current line.
    line: Vec<u8>,
    /// Length of the current line so far.
    line_len: u64,
    last: u8,
    n_lines: u32,
    length: Option<u64>,
    is_chunked: bool,
}

impl Guard {
    /// Looks at the next bytes, and spoils them where they are malformed.
    pub(super) fn inspect(&mut self, bytes: &mut [u8]) {
        let mut i = 0;
        while i < bytes.len() {
            i = match self.at {
                At::Broken => return,
                At::Body(left) | At::Chunk(left) => i + self.skip(left, bytes.len() - i),
                At::Head | At::Size | At::Trailer => self.take_line(bytes, i),
            };
        }
    }

    fn skip(&mut self, left: u64, here: usize) -> usize {
        let n = left.min(here as u64);
        let rest = left - n;
        self.at = match self.at {
            At::Body(_) if rest == 0 => At::Head,
            At::Body(_) => At::Body(rest),
            _ if rest == 0 => At::Size,
            _ => At::Chunk(rest),
        };
        usize::try_from(n).expect("no more than what is here")
    }

    /// To behind the line's LF, or to the end of what is here.
    fn take_line(&mut self, bytes: &mut [u8], from: usize) -> usize {
        let end = memchr::memchr(b'\n', &bytes[from..]).map(|n| from + n);
        let part = &bytes[from..end.unwrap_or(bytes.len())];
        let room = LINE_BYTES.saturating_sub(self.line.len());
        self.line.extend(part.iter().take(room));
        self.line_len += part.len() as u64;
        self.last = part.last().copied().unwrap_or(self.last);
        let Some(end) = end else { return bytes.len() };
        if self.is_preface() {
            rewrite_preface(&mut bytes[..end]);
        }
        if !self.end_line() {
            bytes[end] = 0;
            self.at = At::Broken;
        }
        self.line.clear();
        self.line_len = 0;
        self.last = 0;
        end + 1
    }

    /// What the line that has ended means; `false` when it is malformed.
    fn end_line(&mut self) -> bool {
        if self.last != b'\r' {
            return false;
        }
        let is_blank = self.line_len == 1;
        match self.at {
            At::Head if is_blank && self.n_lines == 0 => {}
            At::Head if is_blank => return self.end_head(),
            At::Head => return self.take_header(),
            At::Size => match self.chunk_size() {
                // Its data, and the CRLF behind it.
                Some(n) if n > 0 => self.at = At::Chunk(n.saturating_add(2)),
                Some(_) => self.at = At::Trailer,
                None => return false,
            },
            At::Trailer if is_blank => self.at = At::Head,
            At::Trailer | At::Body(_) | At::Chunk(_) | At::Broken => {}
        }
        true
    }

    /// `false`: it says how long the body is, and cannot be read.
    fn take_header(&mut self) -> bool {
        self.n_lines = self.n_lines.saturating_add(1);
        let Some(colon) = memchr::memchr(b':', &self.line).filter(|_| self.n_lines > 1) else { return true };
        let (name, value) = self.line.split_at(colon);
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            self.is_chunked = true;
        } else if name.eq_ignore_ascii_case(b"content-length") {
            let digits = value[1..].trim_ascii();
            let is_whole = self.is_kept_whole() && digits.iter().all(u8::is_ascii_digit);
            self.length = str::from_utf8(digits).ok().filter(|_| is_whole).and_then(|digits| digits.parse().ok());
            return self.length.is_some();
        }
        true
    }

    fn is_kept_whole(&self) -> bool {
        self.line.len() as u64 == self.line_len
    }

    fn end_head(&mut self) -> bool {
        self.n_lines = 0;
        let length = self.length.take();
        let is_chunked = std::mem::take(&mut self.is_chunked);
        self.at = match (length, is_chunked) {
            (Some(_), true) => return false,
            (None, true) => At::Size,
            (Some(n), false) if n > 0 => At::Body(n),
            (Some(_) | None, false) => At::Head,
        };
        true
    }

    fn chunk_size(&self) -> Option<u64> {
        let digits = self.line.split(|b| !b.is_ascii_hexdigit()).next()?;
        // Digits to the end of what is kept may go on behind it.
        if digits.len() == self.line.len() {
            return None;
        }
        u64::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    }

    fn is_preface(&self) -> bool {
        self.at == At::Head && self.n_lines == 0 && self.line == PREFACE
    }
}

/// Its version's first digit stands four bytes before the LF. What came in an earlier read is beyond reach: then the
/// parser refuses it without words.
fn rewrite_preface(up_to_lf: &mut [u8]) {
    if let Some([major, b'.', b'0', b'\r']) = up_to_lf.last_chunk_mut() {
        *major = b'1';
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn inspected(text: &str, size: usize) -> String {
        let mut guard = Guard::default();
        let mut bytes = text.as_bytes().to_vec();
        for part in bytes.chunks_mut(size) {
            guard.inspect(part);
        }
        String::from_utf8(bytes).expect("text")
    }

    const PLAIN: &str = "POST /a HTTP/1.1\r\nHost: x\r\ncontent-length: 5\r\n\r\na\nb\nc\r\nGET / HTTP/1.1\r\n\r\n\
        POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=\"\"\r\n\n\n\n\r\n0A\r\n0123456\n89\r\n0\r\nT: 1\r\n\r\nGET / HTTP/1.1\r\n\r\n";

    #[test]
    fn well_formed_requests_pass_untouched() {
        for size in 1..40 {
            assert_eq!(inspected(PLAIN, size), PLAIN);
        }
    }

    #[test]
    fn what_can_be_read_two_ways_is_spoilt() {
        let both = "POST / HTTP/1.1\r\nContent-Length: 5\r\nX: y\r\ntransfer-encoding:chunked\r\n\r\n";
        let other = "POST / HTTP/1.1\r\ntransfer-encoding: x\r\nContent-Length:5\r\n\r\n";
        let bare_lf = ["GET / HTTP/1.1\n\n", "GET / HTTP/1.1\r\nHost: x\n\r\n", "GET / HTTP/1.1\r\n\n"];
        let chunk_lf = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\n";
        let padded = |length: &str| format!("POST / HTTP/1.1\r\nContent-Length:{length}\r\n\r\n");
        let chunked = |size: &str| format!("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{size}\r\n");
        let (spaces, zeros) = (" ".repeat(50), "0".repeat(64));
        let lengths =
            [format!("{spaces}40"), format!("{zeros}40"), " 4x".into(), " ".into(), " 4, 4".into(), "+4".into()];
        let sizes = [format!("{zeros}4"), String::new(), "x".into(), "f".repeat(17)];
        let unread: Vec<String> = lengths.iter().map(|l| padded(l)).chain(sizes.iter().map(|s| chunked(s))).collect();
        for text in [both, other, chunk_lf].into_iter().chain(bare_lf).chain(unread.iter().map(String::as_str)) {
            for before in ["", PLAIN] {
                let spoilt = inspected(&format!("{before}{text}"), 7);
                assert_eq!(spoilt.matches('\0').count(), 1, "{text:?}");
                assert!(spoilt.starts_with(before), "{text:?}");
            }
        }
    }

    #[test]
    fn a_length_is_read_as_the_parser_reads_it_however_it_is_padded() {
        let extension = format!("3;{}", "x".repeat(99));
        for text in [
            "POST / HTTP/1.1\r\nContent-Length: \t 00003 \r\n\r\na\nbGET / HTTP/1.1\r\n\r\n".to_owned(),
            format!(
                "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n{extension}\r\na\nb\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            ),
        ] {
            assert_eq!(inspected(&text, 99), text);
        }
    }

    #[test]
    fn the_first_line_of_http_2_can_be_answered_in_words() {
        assert_eq!(inspected("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 99), "PRI * HTTP/1.0\r\n\r\nSM\r\n\r\n");
        assert_eq!(inspected("GET / HTTP/2.0\r\n\r\n", 99), "GET / HTTP/2.0\r\n\r\n");
    }

    proptest! {
        #[test]
        fn any_bytes_pass_or_are_spoilt_once_wherever_they_are_cut(text in "[ -~\r\n]{0,200}", size in 1..30_usize) {
            let whole = inspected(&text, 1000);
            prop_assert!(whole.matches('\0').count() <= 1);
            prop_assert_eq!(whole.clone(), inspected(&text, size));
        }
    }
}
