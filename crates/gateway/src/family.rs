//! The families of APIs that are served: what differs between them, as data.
//!
//! A family is four answers, its [`Traits`]: what an error document looks like, how an error ends a stream that has
//! begun, what a client may be told while it waits (a *commit*: from then on there is no status any more), and which member
//! of a body names the conversation. Which paths belong to a family says the table in `route`. Everything else, the scan,
//! the lease, the relay, is the same for all; nobody but this file and `errors::form` asks which family it is.
use crate::scan::Key;
use std::sync::Arc;

/// A family of routes, named after whose clients call them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// `/v1/chat/completions` and what is like it; whatever belongs to nobody else.
    OpenAi,
    /// `/v1/responses`.
    Responses,
    /// `/v1/messages`.
    Anthropic,
    /// llama-server's own paths, with our prefix or without.
    LlamaCpp,
    /// `/api/…`.
    Ollama,
}

/// What is particular to a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// Its error documents.
    pub errors: ErrorForm,
    /// Its errors inside a stream.
    pub stream: StreamError,
    /// What a client may be told before the first result.
    pub commit: Commit,
    /// What names the conversation when no header does.
    pub session: Session,
}

/// The form of an error document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorForm {
    /// `{"error":{"message","type","param","code"}}`
    Coded,
    /// `{"type":"error","error":{"type","message","code"},"request_id"}`
    Typed,
    /// `{"error":{"code","message","type"}}`, the code a number.
    Numbered,
    /// `{"error":"text"}`
    Text,
}

/// How an error ends a stream that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamError {
    /// `data: ` and the document.
    Data,
    /// The same behind `event: error`.
    Named,
    /// `event: error` with members of its own, and its place in the stream.
    Sequenced,
    /// The document on a line of its own.
    Line,
}

/// What a client that asked for a stream may be told while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// A comment of the stream.
    Comment,
    /// The API's own sign of life.
    Ping,
    /// Nothing: its streams have no comments.
    Nothing,
}

/// Where a body names its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Session {
    /// This member is a text.
    Member(Key),
    /// `metadata.user_id`.
    UserOfMetadata,
    /// `conversation`, a text or an object with an `id`; else `user`.
    Conversation,
}

/// Who is answered: the family that was called, and the request's id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The family.
    pub family: Family,
    /// The request's id.
    pub request: Arc<str>,
}

impl Caller {
    /// Of a path that belongs to no API but ours.
    pub fn ours() -> Self {
        Self { family: Family::OpenAi, request: Arc::default() }
    }
}

impl Traits {
    const fn of(errors: ErrorForm, stream: StreamError, commit: Commit, session: Session) -> Self {
        Self { errors, stream, commit, session }
    }
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::OpenAi, Self::Responses, Self::Anthropic, Self::LlamaCpp, Self::Ollama];

    /// What is particular to it.
    pub const fn traits(self) -> Traits {
        let user = Session::Member(Key::User);
        match self {
            Self::OpenAi => Traits::of(ErrorForm::Coded, StreamError::Data, Commit::Comment, user),
            Self::Responses => {
                Traits::of(ErrorForm::Coded, StreamError::Sequenced, Commit::Comment, Session::Conversation)
            }
            Self::Anthropic => Traits::of(ErrorForm::Typed, StreamError::Named, Commit::Ping, Session::UserOfMetadata),
            Self::LlamaCpp => Traits::of(ErrorForm::Numbered, StreamError::Data, Commit::Comment, user),
            Self::Ollama => Traits::of(ErrorForm::Text, StreamError::Line, Commit::Nothing, user),
        }
    }
}
