//! The bytes of a file as they are sent: from somewhere on, until something goes wrong.
use bytes::Bytes;
use futures_util::stream;
use http::{Response, response::Builder};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use std::io;
use tokio::sync::watch;

pub(super) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What becomes of a body.
#[derive(Debug)]
pub(super) enum Course {
    Whole,
    /// It breaks behind so many bytes.
    CutAt(usize),
    /// It stops behind so many bytes until it is released.
    HeldAt(usize, watch::Receiver<bool>),
}

pub(super) fn whole(content: impl Into<Bytes>) -> Body {
    Full::new(content.into()).map_err(|never| match never {}).boxed_unsync()
}

/// An answer with these bytes of a file.
pub(super) fn send(head: Builder, part: &[u8], course: Course) -> http::Result<Response<Body>> {
    let head = head.header("content-length", part.len());
    let piece = |bytes: &[u8]| Ok(Frame::data(Bytes::copy_from_slice(bytes)));
    let body = match course {
        Course::Whole => whole(part.to_vec()),
        Course::CutAt(at) => {
            let pieces = [piece(&part[..at.min(part.len())]), Err(io::Error::other("cut"))];
            let pieces = stream::unfold(pieces.into_iter(), |mut pieces| async {
                let piece = pieces.next()?;
                if piece.is_err() {
                    // While there is nothing to send, what was sent goes out.
                    tokio::task::yield_now().await;
                }
                Some((piece, pieces))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
        Course::HeldAt(at, released) => {
            let (before, behind) = part.split_at(at.min(part.len()));
            let pieces = [(None, piece(before)), (Some(released), piece(behind))];
            let pieces = stream::unfold(pieces.into_iter(), |mut pieces| async {
                let (released, piece) = pieces.next()?;
                if let Some(mut released) = released {
                    // A hub that is gone sends nothing more.
                    let _ = released.wait_for(|is| *is).await;
                }
                Some((piece, pieces))
            });
            StreamBody::new(pieces).boxed_unsync()
        }
    };
    head.body(body)
}
