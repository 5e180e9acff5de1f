//! Forms with files, `multipart/form-data`: [`FormScan`] finds the part that names the model, in the order in which parts
//! come, and passes over everything else.
//!
//! ```text
//! Opening ─ --boundary ─► Head ─┬─ name="model" ─► Model ─ CRLF--boundary ─┬─► Head …
//!                               └─ any other ────► Other ─ CRLF--boundary ─┘└─ -- ─► After
//! ```
//!
//! It holds one part's head, at most [`HEAD_BYTES`], and one name. Two parts called `model` are refused, as is a form
//! whose heads are longer than that; what is inside of files is never looked at but for the boundary.
use http::HeaderMap;
use memchr::memmem;
use std::ops::Range;

/// Longest head of a part, in bytes.
pub const HEAD_BYTES: usize = 8 << 10;
/// Longest name of a model, in bytes.
const NAME_BYTES: usize = 512;
/// Longest boundary (RFC 2046).
const BOUNDARY_BYTES: usize = 70;

/// Why a form is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// Its content type tells no boundary.
    #[error("`Content-Type` of a form needs a `boundary` of 1 to 70 characters")]
    Boundary,
    /// It is no form.
    #[error("the form is broken: {0}")]
    Broken(&'static str),
    /// Two parts have this name.
    #[error("`model` is given twice")]
    Twice,
    /// It is no name.
    #[error("`model` must be a text that names a model")]
    Model,
}

/// Where the model is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name.
    pub model: String,
    /// Where the name stands in the whole body.
    pub at: Range<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Opening,
    Head,
    Model,
    Other,
    After,
}

/// The pass. Feed it every chunk in order.
#[derive(Debug)]
pub struct FormScan {
    at: At,
    /// `\r\n--boundary`.
    mark: Vec<u8>,
    /// Bytes that were not decided on, behind some that were. Those go once per chunk: to move the rest for each part would
    /// cost its square.
    held: Vec<u8>,
    n_decided: usize,
    /// Where the first undecided one stands in the whole.
    held_at: u64,
    value_at: u64,
    value: Vec<u8>,
    named: Option<Named>,
}

/// The boundary that the headers of a form tell; `None`: it is no form.
pub fn boundary_of(headers: &HeaderMap) -> Option<Result<String, FormError>> {
    let kind = headers.get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let (name, parameters) = kind.split_once(';').unwrap_or((kind, ""));
    if !name.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameters.split(';').find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("boundary").then(|| value.trim().trim_matches('"').to_owned())
    });
    let fits = |text: &String| {
        (1..=BOUNDARY_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ')
    };
    Some(boundary.filter(fits).ok_or(FormError::Boundary))
}

impl FormScan {
    /// For a form with this boundary.
    pub fn new(boundary: &str) -> Self {
        let mark = format!("\r\n--{boundary}").into_bytes();
        // The first boundary may stand at the very beginning.
        let held = b"\r\n".to_vec();
        Self { at: At::Opening, mark, held, n_decided: 0, held_at: 0, value_at: 0, value: Vec::new(), named: None }
    }

    /// The model, once the end of its part has come.
    pub fn named(&self) -> Option<&Named> {
        self.named.as_ref()
    }

    /// How many bytes of the form came before anything that may still be, or belong to, the name of its model.
    pub fn n_settled(&self) -> u64 {
        let at = if self.at == At::Model { self.value_at } else { self.held_at };
        // The line's end before the first boundary is ours.
        at.saturating_sub(2)
    }

    /// Takes the next chunk. After an error the scan is of no further use.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), FormError> {
        self.held.extend_from_slice(chunk);
        while self.step()? {}
        self.held.drain(..self.n_decided);
        self.n_decided = 0;
        Ok(())
    }

    /// The form has ended.
    pub fn finish(&self) -> Result<(), FormError> {
        if self.at == At::After { Ok(()) } else { Err(FormError::Broken("it ends before its last boundary")) }
    }

    /// Whether something was decided, and more may be.
    fn step(&mut self) -> Result<bool, FormError> {
        match self.at {
            At::Head => self.head(),
            At::Opening | At::Model | At::Other => self.content(),
            At::After => {
                self.pass_over(self.rest().len());
                Ok(false)
            }
        }
    }

    fn pass_over(&mut self, n: usize) {
        self.n_decided += n;
        self.held_at += n as u64;
    }

    fn rest(&self) -> &[u8] {
        &self.held[self.n_decided..]
    }

    /// To the next boundary; what cannot belong to one is passed over.
    fn content(&mut self) -> Result<bool, FormError> {
        let Some(end) = memmem::find(self.rest(), &self.mark) else {
            let n_rest = self.rest().len();
            let n = n_rest - n_rest.min(self.mark.len() - 1);
            self.keep_value(n)?;
            self.pass_over(n);
            return Ok(false);
        };
        self.keep_value(end)?;
        self.end_value()?;
        self.pass_over(end + self.mark.len());
        self.at = At::Head;
        Ok(true)
    }

    fn keep_value(&mut self, n: usize) -> Result<(), FormError> {
        if self.at == At::Model {
            if self.value.len() + n > NAME_BYTES {
                return Err(FormError::Model);
            }
            self.value.extend_from_slice(&self.held[self.n_decided..][..n]);
        }
        Ok(())
    }

    fn end_value(&mut self) -> Result<(), FormError> {
        if self.at != At::Model {
            return Ok(());
        }
        let value = std::mem::take(&mut self.value);
        let end = self.value_at + value.len() as u64;
        // Behind the line's end that closed the head; a part without content has not even that.
        let text = value.strip_prefix(b"\r\n").unwrap_or(&value);
        let begin = end - text.len() as u64;
        let model = String::from_utf8(text.to_vec()).map_err(|_| FormError::Model)?;
        if model.contains(char::is_control) {
            return Err(FormError::Model);
        }
        // The line's end before the first boundary is ours.
        self.named = Some(Named { model, at: begin - 2..end - 2 });
        Ok(())
    }

    /// What follows a boundary: the end, or a part's head.
    fn head(&mut self) -> Result<bool, FormError> {
        let rest = self.rest();
        if rest.len() < 2 {
            return Ok(false);
        }
        if rest.starts_with(b"--") {
            self.at = At::After;
            return Ok(true);
        }
        if !rest.starts_with(b"\r\n") {
            return Err(FormError::Broken("a boundary is not followed by a line's end"));
        }
        let Some(end) = memmem::find(rest, b"\r\n\r\n") else {
            let is_long = rest.len() > HEAD_BYTES;
            return if is_long { Err(FormError::Broken("a part's head is too long")) } else { Ok(false) };
        };
        let is_model = names_model(&rest[..end])?;
        if is_model && self.named.is_some() {
            return Err(FormError::Twice);
        }
        // The line's end that closes the head may begin the boundary of a part without content.
        self.pass_over(end + 2);
        self.value_at = self.held_at;
        self.at = if is_model { At::Model } else { At::Other };
        Ok(true)
    }
}

/// Whether this head is that of a part called `model`, which is no file. What engines may read otherwise is refused: no
/// part may name a model to them that we do not see.
fn names_model(head: &[u8]) -> Result<bool, FormError> {
    let head = str::from_utf8(head).map_err(|_| FormError::Broken("a part's head is no text"))?;
    let mut disposition = None;
    for line in head.split("\r\n") {
        if line.starts_with([' ', '\t']) || line.contains(['\r', '\n']) {
            return Err(FormError::Broken("a line of a part's head is folded or has a bare end"));
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        if name.trim().eq_ignore_ascii_case("content-disposition") && disposition.replace(value).is_some() {
            return Err(FormError::Broken("a part has two `Content-Disposition`s"));
        }
    }
    let mut parameters = disposition.unwrap_or_default().split(';').skip(1).filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        Some((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"')))
    });
    let is_model = parameters.clone().any(|(name, value)| name == "name" && value == "model");
    // A file without a name is none.
    Ok(is_model && !parameters.any(|(name, value)| name.starts_with("filename") && !value.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn part(name: &str, more: &str, content: &str) -> String {
        format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{more}\r\n\r\n{content}\r\n")
    }

    fn scan(text: &str, size: usize) -> Result<Option<Named>, FormError> {
        let mut scan = FormScan::new("b");
        for chunk in text.as_bytes().chunks(size) {
            scan.feed(chunk)?;
            assert!(scan.held.len() <= HEAD_BYTES + size + scan.mark.len(), "bounded");
        }
        scan.finish().map(|()| scan.named.clone())
    }

    #[test]
    fn the_part_that_names_the_model_is_found_wherever_it_stands_and_however_it_is_cut() {
        let file = part(
            "file",
            "; filename=\"model.wav\"\r\nContent-Type: audio/wav",
            "RIFF\r\n--\r\n--c\r\n\r\nname=\"model\"",
        );
        let decoy = part("model", "; filename=\"x\"", "not this");
        let model = part("model", "", "whisper");
        for text in [
            format!("{model}{file}--b--\r\n"),
            format!("{file}{model}{decoy}--b--"),
            format!("preamble\r\n{decoy}{file}{model}{}--b--\r\nepilogue", part("empty", "", "")),
        ] {
            for size in [1, 2, 3, 7, 10_000] {
                let named = scan(&text, size).expect("a form").expect("named");
                assert_eq!(named.model, "whisper", "{size} {text}");
                let at = |n: u64| usize::try_from(n).expect("a short form");
                assert_eq!(&text[at(named.at.start)..at(named.at.end)], "whisper", "{size} {text}");
            }
        }
        assert_eq!(scan(&format!("{file}--b--"), 4), Ok(None));
        assert_eq!(scan("--b--", 1), Ok(None));
    }

    #[test]
    fn what_is_no_form_or_names_two_models_is_refused() {
        let model = part("model", "", "a");
        for (text, want) in [
            (format!("{model}{model}--b--"), FormError::Twice),
            (format!("{model}{}--b--", part("model", "; filename=\"\"", "a")), FormError::Twice),
            (
                format!("{model}--b\r\nContent-Disposition: form-data;\r\n name=\"model\"\r\n\r\na\r\n--b--"),
                FormError::Broken("a line of a part's head is folded or has a bare end"),
            ),
            (
                format!("{model}--b\r\nx: y\nContent-Disposition: form-data; name=\"model\"\r\n\r\na\r\n--b--"),
                FormError::Broken("a line of a part's head is folded or has a bare end"),
            ),
            (
                format!("{model}{}--b--", part("x", "\r\ncontent-disposition: form-data; name=\"model\"", "a")),
                FormError::Broken("a part has two `Content-Disposition`s"),
            ),
            (model.clone(), FormError::Broken("it ends before its last boundary")),
            (String::new(), FormError::Broken("it ends before its last boundary")),
            ("--bxy".into(), FormError::Broken("a boundary is not followed by a line's end")),
            (format!("--b\r\nx: {}", "y".repeat(10_000)), FormError::Broken("a part's head is too long")),
            (format!("{}--b--", part("model", "", &"y".repeat(600))), FormError::Model),
            (format!("{}--b--", part("model", "", "a\nb")), FormError::Model),
        ] {
            for size in [1, 64, 100_000] {
                assert_eq!(scan(&text, size), Err(want), "{size}");
            }
        }
    }

    #[test]
    fn parts_without_end_in_one_chunk_move_its_bytes_once() {
        let mut scan = FormScan::new("b");
        scan.held.extend(part("x", "", "").repeat(100).bytes());
        let (n_held, mut n_steps) = (scan.held.len(), 0);
        while scan.step().expect("a form") {
            assert_eq!(scan.held.len(), n_held, "no step moves them");
            n_steps += 1;
        }
        scan.feed(b"").expect("a form");
        assert!(n_steps > 100 && scan.held.len() < 100, "{n_steps} {}", scan.held.len());
    }

    #[test]
    fn the_boundary_is_told_by_the_content_type() {
        let of = |kind: &str| {
            let headers = [(http::header::CONTENT_TYPE, kind.parse().expect("a value"))].into_iter().collect();
            boundary_of(&headers)
        };
        assert_eq!(of("multipart/form-data; boundary=abc"), Some(Ok("abc".into())));
        assert_eq!(of("Multipart/Form-Data; charset=x; Boundary=\"a b\""), Some(Ok("a b".into())));
        assert_eq!(of("multipart/form-data"), Some(Err(FormError::Boundary)));
        assert_eq!(of("application/json"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_the_same_however_they_are_cut(
            bytes in prop::collection::vec(prop::sample::select(b"\r\n-b: ;=\"modelnaf".to_vec()), 0..200), size in 1..9_usize,
        ) {
            let read = |size: usize| {
                let mut scan = FormScan::new("b");
                bytes.chunks(size).try_for_each(|chunk| scan.feed(chunk)).and_then(|()| scan.finish()).map(|()| scan.named.clone())
            };
            prop_assert_eq!(read(size), read(1000));
        }
    }
}
