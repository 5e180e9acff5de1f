//! Requests that run beside everything else, and how each may end.
use crate::note;
use motorpool_testkit::{Answer, Client};
use motorpool_tests::e2e::talk::{CHAT, Said};
use serde_json::Value;
use std::{io, time::Duration};
use tokio::{task::JoinSet, time::timeout};

/// Every limit of the daemon is far below.
const ENDS_WITHIN: Duration = Duration::from_mins(1);

/// How one ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Whole.
    Well,
    /// With a code that says why.
    Typed,
    /// By its client.
    Left,
    /// With its connection.
    CutOff,
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Whole,
    Stream,
    /// Gone after so many pieces of the answer.
    Leaves(u8),
    Management,
}

/// All that are under way.
#[derive(Debug, Default)]
pub(crate) struct Requests(JoinSet<(String, Result<Ended, String>)>);

impl Requests {
    pub(crate) fn send(&mut self, client: Client, kind: Kind, path: String, body: Value) {
        let name = format!("{kind:?} {path} {}", body["model"].as_str().unwrap_or_default());
        self.0.spawn(async move {
            let ended = timeout(ENDS_WITHIN, ask(&client, kind, &path, &body)).await;
            (name, ended.unwrap_or_else(|_| Err(format!("no end within {ENDS_WITHIN:?}"))))
        });
    }

    /// All of them, once they have ended. `was_cut`: their supervisor was ended meanwhile.
    pub(crate) async fn all(&mut self, was_cut: WasCut) -> Result<Vec<Ended>, String> {
        let mut all = Vec::new();
        while let Some(ended) = self.0.join_next().await {
            let (name, ended) = ended.map_err(|error| error.to_string())?;
            note(format!("{name}: {ended:?}"));
            match ended.map_err(|why| format!("{name}: {why}"))? {
                Ended::CutOff if was_cut == WasCut::No => return Err(format!("{name}: its connection broke off")),
                ended => all.push(ended),
            }
        }
        Ok(all)
    }
}

/// Whether the supervisor of requests was ended while they ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WasCut {
    Yes,
    No,
}

async fn ask(client: &Client, kind: Kind, path: &str, body: &Value) -> Result<Ended, String> {
    let answer = match (kind, client.open(path, body).await) {
        (_, Err(_)) => return Ok(Ended::CutOff),
        (Kind::Leaves(n), Ok(mut incoming)) => {
            for _ in 0..n {
                if !matches!(incoming.next().await, Ok(Some(_))) {
                    break;
                }
            }
            return Ok(Ended::Left);
        }
        (_, Ok(incoming)) => incoming.whole().await,
    };
    judge(kind, path, answer)
}

fn judge(kind: Kind, path: &str, answer: io::Result<Answer>) -> Result<Ended, String> {
    let Ok(answer) = answer else { return Ok(Ended::CutOff) };
    if !answer.status.is_success() {
        return match answer.json()["error"]["code"].as_str() {
            Some(_) => Ok(Ended::Typed),
            None => Err(format!("{} without a code: {}", answer.status, answer.text())),
        };
    }
    if kind != Kind::Stream || path != CHAT {
        return Ok(Ended::Well);
    }
    let said = Said::read(&answer.text());
    match (said.is_done, &said.error) {
        (true, None) => Ok(Ended::Well),
        (false, Some(error)) if error["code"].is_string() => Ok(Ended::Typed),
        _ => Err(format!("a stream that neither is whole nor says why: {}", answer.text())),
    }
}
