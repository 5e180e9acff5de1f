//! Server-sent events as they arrive: [`EventReader`], fed with chunks cut anywhere.
//!
//! Lines end with LF, CR or CRLF; comments, `id` and `retry` are passed over. The data of an event is handed out as bytes:
//! characters cut by a chunk's end are whole again there.
use bytes::{Buf, Bytes, BytesMut};

/// One event longer than this, or a line of it, ends the reading.
pub const EVENT_BYTES: usize = 64 << 20;

/// An event is longer than [`EVENT_BYTES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the engine's stream is longer than {} MiB", EVENT_BYTES >> 20)]
pub struct EventTooLong;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Its name, when it has one.
    pub name: Option<Bytes>,
    /// Its data lines, joined by LF.
    pub data: Bytes,
}

/// Takes chunks, gives events.
#[derive(Debug, Default)]
pub struct EventReader {
    unread: BytesMut,
    /// How much of `unread` is known to hold no line end.
    searched: usize,
    /// The last line ended with CR: an LF that follows belongs to it.
    after_cr: bool,
    name: Option<Bytes>,
    data: Option<Bytes>,
}

impl EventReader {
    /// Takes the next chunk.
    pub fn push(&mut self, chunk: &[u8]) {
        self.unread.extend_from_slice(chunk);
    }

    /// The next event that is whole.
    pub fn next_event(&mut self) -> Result<Option<Event>, EventTooLong> {
        while let Some(line) = self.next_line() {
            if !line.is_empty() {
                self.take_field(&line);
                continue;
            }
            let name = self.name.take();
            if let Some(data) = self.data.take() {
                return Ok(Some(Event { name, data }));
            }
        }
        let held = self.unread.len() + self.data.as_ref().map_or(0, Bytes::len);
        if held > EVENT_BYTES { Err(EventTooLong) } else { Ok(None) }
    }

    fn next_line(&mut self) -> Option<Bytes> {
        if self.after_cr && !self.unread.is_empty() {
            self.after_cr = false;
            if self.unread[0] == b'\n' {
                self.unread.advance(1);
            }
        }
        let Some(ahead) = memchr::memchr2(b'\n', b'\r', &self.unread[self.searched..]) else {
            self.searched = self.unread.len();
            return None;
        };
        let line = self.unread.split_to(self.searched + ahead).freeze();
        self.searched = 0;
        self.after_cr = self.unread[0] == b'\r';
        self.unread.advance(1);
        Some(line)
    }

    fn take_field(&mut self, line: &Bytes) {
        let colon = memchr::memchr(b':', line).unwrap_or(line.len());
        let value = line.slice((colon + 1).min(line.len())..);
        let value = if value.first() == Some(&b' ') { value.slice(1..) } else { value };
        match &line[..colon] {
            b"data" => {
                self.data = Some(match self.data.take() {
                    None => value,
                    Some(before) => [&before[..], b"\n", &value].concat().into(),
                });
            }
            b"event" => self.name = Some(value),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(chunks: &[&[u8]]) -> Vec<(Option<String>, String)> {
        let text = |b: &Bytes| String::from_utf8(b.to_vec()).expect("text");
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for chunk in chunks {
            reader.push(chunk);
            while let Some(event) = reader.next_event().expect("short") {
                events.push((event.name.as_ref().map(text), text(&event.data)));
            }
        }
        events
    }

    #[test]
    fn events_are_whole_or_not_yet_there() {
        let got = read(&[
            b": comment\n\ndata: a\r\n",
            b"\r\ndata:b\rdata: c\r\r",
            b"event: x\nid: 1\ndata\n\n",
            b"event: lost\n\ndata: tail\n",
        ]);
        let plain = |data: &str| (None, data.to_owned());
        assert_eq!(got, [plain("a"), plain("b\nc"), (Some("x".to_owned()), String::new())]);
    }

    #[test]
    fn a_line_without_end_is_not_held_for_ever() {
        let mut reader = EventReader::default();
        for _ in 0..=EVENT_BYTES >> 20 {
            assert_eq!(reader.next_event(), Ok(None));
            reader.push(&vec![b'x'; 1 << 20]);
        }
        assert_eq!(reader.next_event(), Err(EventTooLong));
    }

    proptest! {
        #[test]
        fn cuts_change_nothing(
            events in prop::collection::vec(prop::collection::vec("[^\r\n]{0,9}", 1..3), 0..5),
            end in prop::sample::select(vec!["\n", "\r", "\r\n"]), size in 1..7_usize,
        ) {
            let text: String = events.iter().flat_map(|lines| lines.iter().map(|l| format!("data: {l}{end}")).chain([end.to_owned()])).collect();
            let want: Vec<_> = events.iter().map(|lines| (None, lines.join("\n"))).collect();
            prop_assert_eq!(&read(&[text.as_bytes()]), &want);
            prop_assert_eq!(&read(&text.as_bytes().chunks(size).collect::<Vec<_>>()), &want);
        }
    }
}
