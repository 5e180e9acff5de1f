//! One streaming pass over a request's JSON body: [`Scan`].
//!
//! It looks at the top level only (depth 1) and writes down where the members stand that the gateway reads or edits;
//! every other value is skipped, never built. Chunks may end anywhere.
//!
//! ```text
//! Before ─{─► FirstKey ─"─► Key ─"─► Colon ─:─► Value ─┬─"───► Text ─"──┐
//!    ws          │ }          ▲                        ├─{,[─► Deep ─},]─┼─► AfterValue ─}─► After (ws only)
//!                ▼            │                        └─────► Bare ─────┘       │ ,
//!              After        NextKey ◄────────────────────────────────────────────┘
//! ```
//!
//! What it promises: the body is one object and nothing else, in UTF-8; its strings, escapes and brackets balance
//! (bracket *kinds* are compared to a depth of [`KINDS_CHECKED`], deeper ones are counted); no routed member
//! ([`Key::is_routed`]) stands twice, whichever escapes spell its name. Inside skipped values it is lenient: the engine
//! parses them anyway. It never recurses, and holds at most one key and one captured value.
mod skip;
#[cfg(test)]
mod tests;
mod text;

use std::{ops::Range, sync::Arc};
use text::Utf8;

/// Brackets deeper than this are counted but their kinds are not compared.
pub const KINDS_CHECKED: u32 = 128;
/// A key longer than this, as it is written, is nobody's we know.
const KEY_BYTES: usize = 256;
/// A captured value longer than this, as it is written, is not kept.
const CAPTURED_BYTES: usize = 4096;

/// The members the gateway reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// The model's name.
    Model,
    /// Whether the reply streams.
    Stream,
    /// What a stream reports.
    StreamOptions,
    /// How long the engine stays loaded afterwards.
    KeepAlive,
    /// Which slot of the engine.
    IdSlot,
    /// Who the client's own user is.
    User,
    /// What the client keeps beside the request; Anthropic's user is in it.
    Metadata,
    /// Which conversation of the client's it is.
    Conversation,
    /// Strings that end a generation.
    Stop,
    /// The same, as Anthropic's API calls them.
    StopSequences,
    /// What is continued.
    Prompt,
    /// Whether token probabilities are reported.
    Logprobs,
}

impl Key {
    /// All of them, by index.
    pub const ALL: [Self; 12] = [
        Self::Model,
        Self::Stream,
        Self::StreamOptions,
        Self::KeepAlive,
        Self::IdSlot,
        Self::User,
        Self::Metadata,
        Self::Conversation,
        Self::Stop,
        Self::StopSequences,
        Self::Prompt,
        Self::Logprobs,
    ];

    /// The member's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Model => "model",
            Self::Stream => "stream",
            Self::StreamOptions => "stream_options",
            Self::KeepAlive => "keep_alive",
            Self::IdSlot => "id_slot",
            Self::User => "user",
            Self::Metadata => "metadata",
            Self::Conversation => "conversation",
            Self::Stop => "stop",
            Self::StopSequences => "stop_sequences",
            Self::Prompt => "prompt",
            Self::Logprobs => "logprobs",
        }
    }

    /// Whether routing depends on it, so that it must not stand twice.
    pub const fn is_routed(self) -> bool {
        matches!(self, Self::Model | Self::Stream | Self::StreamOptions | Self::KeepAlive | Self::IdSlot)
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|k| k.as_str() == name)
    }
}

/// Why a body is refused. Offsets count bytes of the whole body from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// It does not begin with `{`.
    #[error("the body must be a JSON object")]
    NotAnObject,
    /// Something else stands where this was due.
    #[error("not JSON: expected {expected} at byte {at}")]
    Syntax {
        /// Where.
        at: u64,
        /// What was due.
        expected: &'static str,
    },
    /// A byte sequence that is no UTF-8 begins there.
    #[error("not UTF-8 at byte {at}")]
    NotUtf8 {
        /// Where.
        at: u64,
    },
    /// Two members with this name.
    #[error("`{}` is given twice", .0.as_str())]
    Twice(Key),
    /// Two members with a name that is watched for.
    #[error("a member that a rule of this server changes is given twice")]
    TwiceWatched,
    /// `model` is neither a string nor null, or its text is broken or longer than any name.
    #[error("`model` must be a string that names a model")]
    Model,
    /// The body ends inside the object.
    #[error("the body ends inside its JSON object")]
    Truncated,
}

/// Where one member stands in the whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// Its name, quotes included.
    pub name: Range<u64>,
    /// Its value as it is written.
    pub value: Range<u64>,
    /// Which member it is, from 0.
    pub ordinal: u64,
    /// Where the comma before it stands; `None`: it is the first.
    pub comma_before: Option<u64>,
    /// Where the comma behind it stands; `None`: it is the last.
    pub comma_after: Option<u64>,
    /// The first byte of its value, which tells its kind.
    pub first: u8,
    /// The value's text, unless it is longer than 4 KiB.
    pub raw: Option<Box<[u8]>>,
}

/// What a whole body was found to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    fields: [Option<Field>; Key::ALL.len()],
    watched: Vec<(Arc<str>, Option<Field>)>,
    model: Option<String>,
    /// Just behind the opening brace.
    pub open_end: u64,
    /// How many members there are.
    pub n_members: u64,
    /// Whether a member stands there that was not in the list given to [`Scan::new`], or one that is not
    /// [routed](Key::is_routed) twice.
    pub has_strangers: bool,
    /// The member for which whoever does not mind capital letters takes another one that stands there.
    pub respelled: Option<&'static str>,
}

impl Findings {
    /// Where this member stands, if it does.
    pub fn field(&self, key: Key) -> Option<&Field> {
        self.fields[key as usize].as_ref()
    }

    /// Where the member of this name stands, if it does and is one of [`Key`] or watched for.
    pub fn named(&self, name: &str) -> Option<&Field> {
        match Key::from_name(name) {
            Some(key) => self.field(key),
            None => self.watched.iter().find(|(known, _)| &**known == name)?.1.as_ref(),
        }
    }

    /// The model named, escapes decoded. `null` names none.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// The text of this member's value; `None` when it is absent or long.
    pub fn raw(&self, key: Key) -> Option<&[u8]> {
        self.field(key)?.raw.as_deref()
    }
}

/// Which member's value is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    Known(Key),
    /// The watched one with this index.
    Watched(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Before,
    FirstKey,
    NextKey,
    Key,
    Colon,
    Value,
    Text,
    Deep,
    Bare,
    AfterValue,
    After,
}

/// The pass. Feed it every chunk in order, then [`Scan::finish`].
#[derive(Debug)]
pub struct Scan {
    at: At,
    /// Bytes of earlier chunks.
    base: u64,
    /// Members that need no word; see [`Findings::has_strangers`].
    listed: &'static [&'static str],
    utf8: Utf8,
    string: skip::InString,
    nested: skip::Nested,
    key: Vec<u8>,
    key_start: u64,
    current: Option<(Slot, Range<u64>)>,
    /// The last comma.
    comma: Option<u64>,
    /// The member that has just ended.
    ended: Option<Slot>,
    value_start: u64,
    value_first: u8,
    /// The current value's text, while it is wanted.
    captured: Option<Vec<u8>>,
    found: Findings,
}

impl Scan {
    /// A pass that takes members named in `listed`, and those of [`Key`], for nothing strange.
    pub fn new(listed: &'static [&'static str]) -> Self {
        Self {
            at: At::Before,
            base: 0,
            listed,
            utf8: Utf8::default(),
            string: skip::InString::default(),
            nested: skip::Nested::default(),
            key: Vec::new(),
            key_start: 0,
            current: None,
            comma: None,
            ended: None,
            value_start: 0,
            value_first: 0,
            captured: None,
            found: Findings::default(),
        }
    }

    /// The same, and it writes down where members of these names stand; none of them may be there twice.
    #[must_use]
    pub fn watching(mut self, names: &[Arc<str>]) -> Self {
        self.found.watched = names.iter().map(|name| (Arc::clone(name), None)).collect();
        self
    }

    /// The model named, as soon as the chunk with its last byte was fed.
    pub fn model(&self) -> Option<&str> {
        self.found.model()
    }

    /// Takes the next chunk. After an error the scan is of no further use.
    pub fn feed(&mut self, chunk: &[u8]) -> Result<(), ScanError> {
        self.utf8.feed(chunk, self.base)?;
        let mut i = 0;
        while i < chunk.len() {
            i = match self.at {
                At::Key => self.in_key(chunk, i)?,
                At::Text => self.in_text(chunk, i)?,
                At::Deep => self.in_nested(chunk, i)?,
                At::Bare => self.in_bare(chunk, i)?,
                _ if matches!(chunk[i], b' ' | b'\t' | b'\n' | b'\r') => i + 1,
                _ => self.at_mark(chunk[i], i)?,
            };
        }
        self.base += len(chunk);
        Ok(())
    }

    /// What was found, once the body has ended.
    pub fn finish(self) -> Result<Findings, ScanError> {
        self.utf8.finish(self.base)?;
        match self.at {
            At::After => Ok(self.found),
            At::Before => Err(ScanError::NotAnObject),
            _ => Err(ScanError::Truncated),
        }
    }

    /// One byte that is neither white space nor inside a value.
    fn at_mark(&mut self, byte: u8, i: usize) -> Result<usize, ScanError> {
        let at = self.base + index(i);
        match (self.at, byte) {
            (At::Before, b'{') => {
                self.found.open_end = at + 1;
                self.at = At::FirstKey;
            }
            (At::Before, _) => return Err(ScanError::NotAnObject),
            (At::FirstKey | At::NextKey, b'"') => {
                self.key.clear();
                self.key_start = at;
                self.at = At::Key;
            }
            (At::FirstKey | At::AfterValue, b'}') => self.at = At::After,
            (At::Colon, b':') => self.at = At::Value,
            (At::AfterValue, b',') => {
                self.comma = Some(at);
                if let Some(field) = self.ended.and_then(|slot| self.slot(slot).as_mut()) {
                    field.comma_after = Some(at);
                }
                self.at = At::NextKey;
            }
            (At::Value, _) => return self.begin_value(byte, i),
            (state, _) => return Err(ScanError::Syntax { at, expected: due_at(state) }),
        }
        Ok(i + 1)
    }

    fn begin_value(&mut self, byte: u8, i: usize) -> Result<usize, ScanError> {
        self.value_start = self.base + index(i);
        self.value_first = byte;
        self.captured = self.current.is_some().then(Vec::new);
        self.at = match byte {
            b'"' => At::Text,
            b'{' | b'[' => At::Deep,
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => At::Bare,
            _ => return Err(ScanError::Syntax { at: self.value_start, expected: "a value" }),
        };
        if self.at == At::Bare {
            return Ok(i);
        }
        if self.at == At::Deep {
            self.nested.open(byte);
        }
        self.capture(&[byte]);
        Ok(i + 1)
    }

    fn in_key(&mut self, chunk: &[u8], i: usize) -> Result<usize, ScanError> {
        let end = self.string.skip(chunk, i);
        let room = (KEY_BYTES + 1).saturating_sub(self.key.len());
        self.key.extend(chunk[i..end.next].iter().take(room));
        if end.closed {
            self.end_key(end.next)?;
        }
        Ok(end.next)
    }

    fn end_key(&mut self, next: usize) -> Result<(), ScanError> {
        let name = self.key_start..self.base + index(next);
        self.found.n_members += 1;
        self.at = At::Colon;
        self.current = None;
        // The closing quote was copied too, unless the key was cut.
        let Some(written) = self.key.strip_suffix(b"\"").filter(|k| k.len() < KEY_BYTES) else {
            self.found.has_strangers = true;
            return Ok(());
        };
        let text = text::unescape(written)
            .ok_or(ScanError::Syntax { at: self.key_start, expected: "a name without broken escapes" })?;
        let watched = self.found.watched.iter().position(|(known, _)| **known == *text);
        match Key::from_name(&text) {
            Some(key) if self.found.fields[key as usize].is_none() => self.current = Some((Slot::Known(key), name)),
            Some(key) if key.is_routed() => return Err(ScanError::Twice(key)),
            Some(_) if watched.is_some() => return Err(ScanError::TwiceWatched),
            Some(_) => self.found.has_strangers = true,
            None => {
                self.found.has_strangers |= !self.listed.contains(&&*text);
                self.found.respelled = self.found.respelled.or_else(|| text::respelled(&text));
                match watched {
                    Some(at) if self.found.watched[at].1.is_some() => return Err(ScanError::TwiceWatched),
                    Some(at) => self.current = Some((Slot::Watched(at), name)),
                    None => {}
                }
            }
        }
        Ok(())
    }

    fn in_text(&mut self, chunk: &[u8], i: usize) -> Result<usize, ScanError> {
        let end = self.string.skip(chunk, i);
        self.capture(&chunk[i..end.next]);
        if end.closed {
            self.end_value(end.next)?;
        }
        Ok(end.next)
    }

    fn in_nested(&mut self, chunk: &[u8], i: usize) -> Result<usize, ScanError> {
        let end = self.nested.skip(chunk, i, &mut self.string).map_err(|i| ScanError::Syntax {
            at: self.base + index(i),
            expected: "the bracket that closes the last one",
        })?;
        self.capture(&chunk[i..end.next]);
        if end.closed {
            self.end_value(end.next)?;
        }
        Ok(end.next)
    }

    fn in_bare(&mut self, chunk: &[u8], i: usize) -> Result<usize, ScanError> {
        let is_bare = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
        let next = chunk[i..].iter().position(|b| !is_bare(b)).map_or(chunk.len(), |n| i + n);
        self.capture(&chunk[i..next]);
        if next < chunk.len() {
            self.end_value(next)?;
        }
        Ok(next)
    }

    fn end_value(&mut self, next: usize) -> Result<(), ScanError> {
        self.at = At::AfterValue;
        self.ended = self.current.as_ref().map(|(slot, _)| *slot);
        let Some((slot, name)) = self.current.take() else { return Ok(()) };
        let raw = self.captured.take().map(Vec::into_boxed_slice);
        if slot == Slot::Known(Key::Model) {
            self.found.model = model_of(raw.as_deref())?;
        }
        *self.slot(slot) = Some(Field {
            name,
            value: self.value_start..self.base + index(next),
            ordinal: self.found.n_members - 1,
            comma_before: self.comma,
            comma_after: None,
            first: self.value_first,
            raw,
        });
        Ok(())
    }

    fn slot(&mut self, slot: Slot) -> &mut Option<Field> {
        match slot {
            Slot::Known(key) => &mut self.found.fields[key as usize],
            Slot::Watched(at) => &mut self.found.watched[at].1,
        }
    }

    fn capture(&mut self, bytes: &[u8]) {
        let Some(kept) = &mut self.captured else { return };
        if kept.len() + bytes.len() <= CAPTURED_BYTES {
            kept.extend_from_slice(bytes);
        } else {
            self.captured = None;
        }
    }
}

fn model_of(raw: Option<&[u8]>) -> Result<Option<String>, ScanError> {
    match raw {
        Some(b"null") => Ok(None),
        Some([b'"', inner @ .., b'"']) => Ok(Some(text::unescape(inner).ok_or(ScanError::Model)?.into_owned())),
        _ => Err(ScanError::Model),
    }
}

fn due_at(state: At) -> &'static str {
    match state {
        At::FirstKey => "a name or `}`",
        At::NextKey => "a name",
        At::Colon => "`:`",
        At::AfterValue => "`,` or `}`",
        At::After => "the end of the body",
        At::Before | At::Key | At::Value | At::Text | At::Deep | At::Bare => "something else",
    }
}

fn index(i: usize) -> u64 {
    i as u64
}

fn len(chunk: &[u8]) -> u64 {
    index(chunk.len())
}
