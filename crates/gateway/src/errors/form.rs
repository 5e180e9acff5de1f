//! A failure in the words of the API that was called: [`Failure::document`] and [`Failure::event`].
use super::{Failure, Verdict};
use crate::family::{Caller, ErrorForm, StreamError};
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;

impl Failure {
    /// The document that answers this caller.
    pub fn document(&self, caller: &Caller) -> Bytes {
        self.told(caller, None)
    }

    /// The same inside a stream, where `within` stands for the status that came before it.
    fn told(&self, caller: &Caller, within: Option<u16>) -> Bytes {
        let Verdict { status, code, kind, param, .. } = self.verdict();
        let message = &self.to_string();
        match caller.family.traits().errors {
            ErrorForm::Coded => {
                written(&Wrapped { error: Coded { message, r#type: kind, param, code, status: within } })
            }
            ErrorForm::Numbered => {
                let error = Numbered { code: status.as_u16(), message, r#type: llama_cpp_type(status) };
                written(&Wrapped { error })
            }
            ErrorForm::Typed => {
                let error = Typed { r#type: anthropic_type(status, code), message, code, status: within };
                written(&TypedDocument { r#type: "error", error, request_id: &caller.request })
            }
            ErrorForm::Text => written(&Wrapped { error: message }),
        }
    }

    /// The event that ends a stream which has begun, behind `n_before` events.
    pub fn event(&self, caller: &Caller, n_before: u64) -> Bytes {
        let status = self.verdict().status.as_u16();
        let told = || self.told(caller, Some(status));
        let (begin, document, end): (&[u8], _, &[u8]) = match caller.family.traits().stream {
            StreamError::Data => (b"data: ", told(), b"\n\n"),
            StreamError::Named => (b"event: error\ndata: ", told(), b"\n\n"),
            StreamError::Line => (b"", told(), b"\n"),
            StreamError::Sequenced => {
                let Verdict { code, param, .. } = self.verdict();
                let message = &self.to_string();
                let event = Sequenced { r#type: "error", code, status, message, param, sequence_number: n_before };
                (b"event: error\ndata: ", written(&event), b"\n\n")
            }
        };
        [begin, &document, end].concat().into()
    }
}

fn written<T: Serialize>(document: &T) -> Bytes {
    serde_json::to_vec(document).expect("texts and numbers always serialise").into()
}

#[derive(Serialize)]
struct Wrapped<E> {
    error: E,
}

#[derive(Serialize)]
struct Coded<'a> {
    message: &'a str,
    r#type: &'static str,
    param: Option<&'static str>,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

#[derive(Serialize)]
struct Numbered<'a> {
    code: u16,
    message: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
struct TypedDocument<'a> {
    r#type: &'static str,
    error: Typed<'a>,
    request_id: &'a str,
}

#[derive(Serialize)]
struct Typed<'a> {
    r#type: &'static str,
    message: &'a str,
    code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
}

#[derive(Serialize)]
struct Sequenced<'a> {
    r#type: &'static str,
    code: &'static str,
    status: u16,
    message: &'a str,
    param: Option<&'static str>,
    sequence_number: u64,
}

/// The names that llama-server gives to its errors, by status.
fn llama_cpp_type(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        501 | 505 => "not_supported_error",
        429 | 503 => "unavailable_error",
        400..=499 => "invalid_request_error",
        _ => "server_error",
    }
}

/// The names of Anthropic's API. Want of room, and waiting for it in vain, is overload there: clients try those again.
fn anthropic_type(status: StatusCode, code: &str) -> &'static str {
    if matches!(code, "queue_full" | "queue_timeout") {
        return "overloaded_error";
    }
    match status.as_u16() {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        504 => "timeout_error",
        400..=499 => "invalid_request_error",
        _ => "api_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{errors::tests::one_of_each, family::Family};
    use serde_json::{Value, json};

    fn caller(family: Family) -> Caller {
        Caller { family, request: "req_1".into() }
    }

    /// What each row says to each family.
    fn wanted(failure: &Failure, family: Family) -> Value {
        let Verdict { status, code, kind, param, .. } = failure.verdict();
        let message = failure.to_string();
        match family {
            Family::OpenAi | Family::Responses => {
                json!({"error":{"message":message,"type":kind,"param":param,"code":code}})
            }
            Family::LlamaCpp => {
                json!({"error":{"code":status.as_u16(),"message":message,"type":llama_cpp_type(status)}})
            }
            Family::Anthropic => {
                let error = json!({"type":anthropic_type(status, code),"message":message,"code":code});
                json!({"type":"error","error":error,"request_id":"req_1"})
            }
            Family::Ollama => json!({"error":message}),
        }
    }

    #[test]
    fn every_failure_is_said_in_the_words_of_every_family_before_a_commit_and_after_it() {
        for (failure, ..) in one_of_each() {
            for family in Family::ALL {
                let document: Value = serde_json::from_slice(&failure.document(&caller(family))).expect("JSON");
                assert_eq!(document, wanted(&failure, family));
                let event = String::from_utf8(failure.event(&caller(family), 7).to_vec()).expect("text");
                let (begin, end) = match family {
                    Family::OpenAi | Family::LlamaCpp => ("data: ", "\n\n"),
                    Family::Responses | Family::Anthropic => ("event: error\ndata: ", "\n\n"),
                    Family::Ollama => ("", "\n"),
                };
                let data = event.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end)).expect("its frame");
                let told: Value = serde_json::from_str(data).expect("one line of JSON");
                assert!(!data.contains('\n'), "{data}");
                let Verdict { status, code, param, .. } = failure.verdict();
                // The status that it would have had, where the form has a place for it.
                let mut want = document;
                match family {
                    Family::OpenAi | Family::Anthropic => want["error"]["status"] = status.as_u16().into(),
                    Family::Responses => {
                        want = json!({"type":"error","code":code,"status":status.as_u16(),"param":param});
                        (want["message"], want["sequence_number"]) = (failure.to_string().into(), 7.into());
                    }
                    Family::LlamaCpp | Family::Ollama => {}
                }
                assert_eq!(told, want);
            }
        }
    }

    #[test]
    fn anthropics_clients_hear_of_overload_where_room_or_patience_ran_out() {
        for (failure, status, code) in one_of_each() {
            let document: Value = serde_json::from_slice(&failure.document(&caller(Family::Anthropic))).expect("JSON");
            let is_overload = status == 503 || matches!(code, "queue_full" | "queue_timeout");
            assert_eq!(document["error"]["type"] == "overloaded_error", is_overload, "{code}");
        }
    }
}
