//! `motorpool queue`: who is served and who waits, and what an operator does about it.
use crate::{
    args::{Place, Queue},
    client::Client,
    exit::Failure,
    out::{self, Out},
};
use serde::Deserialize;
use serde_json::{Value, json};

const API: &str = "/api/motorpool/v1/queue";

#[derive(Deserialize)]
struct Queues {
    engines: Vec<Engine>,
}

#[derive(Deserialize)]
struct Engine {
    key: String,
    draining: bool,
    active: Vec<Row>,
    pending: Vec<Row>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    id: u64,
    request: String,
    lane: String,
    session: Option<String>,
    job: Option<String>,
    slot: Option<u32>,
    since_ms: u64,
}

pub(super) async fn perform(client: &Client, out: Out, command: Option<Queue>) -> Result<(), Failure> {
    match command.unwrap_or(Queue::List) {
        Queue::List => {
            let whole: Value = client.get(API).await?;
            let queues = Queues::deserialize(&whole).map_err(crate::client::ClientError::from)?;
            out.data(&whole, || for_people(&queues))
        }
        Queue::Cancel { id } => {
            let answer = client.post(&format!("{API}/{id}/cancel"), &json!({})).await?;
            out.data(&answer, || format!("{id} is out of the queue\n"))
        }
        Queue::Move { id, place } => {
            let direction = match place {
                Place::Up => "up",
                Place::Down => "down",
            };
            let answer = client.post(&format!("{API}/{id}/move"), &json!({ "direction": direction })).await?;
            out.data(&answer, || match answer["changed"].as_bool() {
                Some(true) => format!("{id} went {direction} by one\n"),
                _ => format!("{id} stays: its lane ends there, or age goes first\n"),
            })
        }
    }
}

fn for_people(queues: &Queues) -> String {
    let rows: Vec<_> = queues.engines.iter().flat_map(rows).collect();
    if rows.is_empty() {
        return "nobody is served and nobody waits\n".to_owned();
    }
    out::table(&["ENGINE", "ID", "STATE", "LANE", "TIME", "SLOT", "SESSION", "JOB", "REQUEST"], rows)
}

fn rows(engine: &Engine) -> Vec<Vec<String>> {
    let waits = if engine.draining { "waits (drain)" } else { "waits" };
    let row = |state: &str, request: &Row| {
        vec![
            engine.key.clone(),
            request.id.to_string(),
            state.to_owned(),
            request.lane.clone(),
            format!("{} s", request.since_ms / 1000),
            request.slot.map_or_else(String::new, |slot| slot.to_string()),
            request.session.clone().unwrap_or_default(),
            request.job.clone().unwrap_or_default(),
            request.request.clone(),
        ]
    };
    let active = engine.active.iter().map(|request| row("runs", request));
    active.chain(engine.pending.iter().map(|request| row(waits, request))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_who_runs_and_who_waits() {
        let request = |id: u64| {
            json!({"id": id, "request": format!("req_{id}"), "lane": "background", "session": "s", "job": null,
                "actor": null, "slot": null, "sinceMs": 2500})
        };
        let engine = |active: &[Value], pending: &[Value]| json!({"engines": [{"key": "llama-server:m:0", "draining": true, "active": active, "pending": pending}]});
        let shown = |whole: Value| for_people(&Queues::deserialize(&whole).expect("queues"));
        let text = shown(engine(&[request(1)], &[request(2)]));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains("runs") && lines[1].contains("req_1") && lines[1].contains("2 s"), "{text}");
        assert!(lines[2].contains("waits (drain)") && lines[2].contains("req_2"), "{text}");
        assert_eq!(shown(engine(&[], &[])), "nobody is served and nobody waits\n");
    }
}
