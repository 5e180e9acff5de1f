//! Bodies of replies, and of requests to engines, as one type.
use bytes::Bytes;
use http_body::Body;
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use std::error::Error;

/// What a body can break with.
pub(crate) type BodyError = Box<dyn Error + Send + Sync>;

/// Any body.
pub(crate) type ReplyBody = UnsyncBoxBody<Bytes, BodyError>;

/// `body` as any body.
pub(crate) fn boxed<B>(body: B) -> ReplyBody
where
    B: Body<Data = Bytes, Error: Into<BodyError>> + Send + 'static,
{
    body.map_err(Into::into).boxed_unsync()
}

/// These bytes.
pub(crate) fn full(bytes: impl Into<Bytes>) -> ReplyBody {
    boxed(Full::new(bytes.into()))
}

/// No bytes.
pub(crate) fn empty() -> ReplyBody {
    boxed(Empty::new())
}
