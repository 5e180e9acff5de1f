//! The bodies that this interface is told something by: bounded, in size and in the time they take.
use super::Refused;
use crate::{context::Context, receive::receive_within};
use axum::{
    extract::{FromRequest, Request},
    response::Result,
};
use bytes::Bytes;
use std::sync::Arc;

/// The longest: a question about every model of a large catalog.
const LONGEST: usize = 1 << 20;

/// A body that has come whole.
pub(super) struct Whole(pub(super) Bytes);

impl FromRequest<Arc<Context>> for Whole {
    type Rejection = Refused;

    async fn from_request(request: Request, context: &Arc<Context>) -> Result<Self, Refused> {
        Ok(Self(receive_within(context, request.into_body(), LONGEST).await?))
    }
}
