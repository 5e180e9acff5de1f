//! `motorpool residency`: model servers that somebody else runs, as the daemon sees them.
use crate::{
    args::Residency,
    client::{Client, ClientError},
    exit::{Exit, Failure},
    out::{self, Out},
    status::{Server, Servers},
};
use motorpool_vocab::Bytes;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;

const API: &str = "/api/motorpool/v1/residency";

pub(super) async fn perform(client: &Client, out: Out, command: Option<Residency>) -> Result<(), Failure> {
    match command.unwrap_or(Residency::Status) {
        Residency::Status => {
            let whole: Value = client.get(API).await?;
            let servers: Servers = serde_json::from_value(whole.clone()).map_err(ClientError::from)?;
            out.data(&whole, || status_for_people(&servers.targets))
        }
        Residency::Plan { model } => {
            let answer = ask(client, &model).await?;
            out.data(&answer, || plan_for_people(&answer))?;
            match answer["action"].as_str() {
                Some("decline") => Err(declined(&answer)),
                _ => Ok(()),
            }
        }
        Residency::Release { model, target } => release(client, out, (model, target)).await,
        Residency::Adopt { model, target, instance } => {
            let servers: Value = client.get(API).await?;
            let all = servers["targets"].as_array().into_iter().flatten();
            let Some(server) = all.into_iter().find(|server| server["id"] == *target) else {
                let what = format!("there is no external server `{target}`");
                return Err(Failure::new(Exit::NotFound, what, "`motorpool residency` lists them"));
            };
            let report = json!({ "kind": server["kind"], "url": server["url"], "model": model, "instance": instance });
            let answer = client.post(&format!("{API}/adopt"), &report).await?;
            out.data(&answer, || format!("{} is ours now\n", text(&answer["adopted"])))
        }
    }
}

/// What would become of a request for `model` on its server.
pub(super) async fn ask(client: &Client, model: &str) -> Result<Value, ClientError> {
    client.post(&format!("{API}/plan"), &json!({ "model": model })).await
}

async fn release(client: &Client, out: Out, (model, target): (Option<String>, Option<String>)) -> Result<(), Failure> {
    let mut wish = Map::new();
    for (name, value) in [("model", model), ("target", target)] {
        wish.extend(value.map(|value| (name.to_owned(), value.into())));
    }
    let answer = client.post(&format!("{API}/release"), &wish.into()).await?;
    let texts = |value: &Value| {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    out.data(&answer, || match texts(&answer["released"]).as_slice() {
        [] => "nothing of ours is idle there\n".to_owned(),
        gone => format!("given back: {}\n", gone.join(", ")),
    })?;
    let failed = answer["failed"].as_array().into_iter().flatten();
    let failed: Vec<String> = failed.map(|one| format!("{}: {}", text(&one["model"]), text(&one["why"]))).collect();
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::new(Exit::Refused, failed.join("; "), "look at that server, and try again"))
}

pub(super) fn declined(answer: &Value) -> Failure {
    let what = format!("{}/{}: {}", text(&answer["target"]), text(&answer["model"]), text(&answer["why"]));
    Failure::new(Exit::Refused, what, "unload something there; `motorpool residency` shows what is whose")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// One line of what a plan says, and one for each notice.
pub(super) fn plan_for_people(answer: &Value) -> String {
    let names = |name: &str| {
        let all = answer[name].as_array().into_iter().flatten().filter_map(Value::as_str);
        all.collect::<Vec<_>>().join(", ")
    };
    let what = match text(&answer["action"]) {
        "observe" => "is sent as it is: its user says what is loaded there".to_owned(),
        "resident" => "is there already".to_owned(),
        "await" => "is being loaded, which is waited for".to_owned(),
        "load" if names("evict").is_empty() => "would be loaded".to_owned(),
        "load" => format!("would be loaded in the place of {}", names("evict")),
        "delegate" if names("evict").is_empty() => "would be loaded by the server itself".to_owned(),
        "delegate" => format!("would be loaded by the server itself, after {} is given back", names("evict")),
        "wait" => format!("would wait for requests to {}", names("busy")),
        _ => format!("would be refused: {}", text(&answer["why"])),
    };
    let mut lines = format!("{}/{} {what}\n", text(&answer["target"]), text(&answer["model"]));
    for notice in answer["notices"].as_array().into_iter().flatten() {
        let [kind, model, message] = ["kind", "model", "message"].map(|name| text(&notice[name]));
        writeln!(lines, "  {kind}: {model}: {message}").expect("a text takes everything");
    }
    lines
}

/// One row for each model in the memory of a server, and one for a server that holds none.
pub(super) fn status_for_people(servers: &[Server]) -> String {
    if servers.is_empty() {
        return "no external server is configured; [[external]] in motorpool.toml adds one\n".to_owned();
    }
    let head = ["SERVER", "KIND", "TAKES", "MODEL", "STATE", "WHOSE", "PROTECTED", "IN USE", "MEMORY"];
    let mut table = out::table(&head, servers.iter().flat_map(rows).collect());
    for server in servers {
        if server.autoload.as_deref() == Some("ignored") {
            let what = "loads for requests that say `autoload=0`: any of them may displace what it holds";
            writeln!(table, "{}: {what}", server.id).expect("a text takes everything");
        }
        if let Some(trouble) = &server.trouble {
            writeln!(table, "{}: the last look failed: {trouble}", server.id).expect("a text takes everything");
        }
    }
    table
}

fn rows(server: &Server) -> Vec<Vec<String>> {
    let takes = match (server.seen, server.capacity) {
        (false, _) => "not seen yet".to_owned(),
        (true, None) => "unknown".to_owned(),
        (true, Some(0)) => "any number".to_owned(),
        (true, Some(n)) => n.to_string(),
    };
    let head = || vec![server.id.clone(), server.kind.clone(), takes.clone()];
    if server.residents.is_empty() {
        return vec![[head(), vec![String::new(); 6]].concat()];
    }
    let row = |one: &crate::status::Resident| {
        let cells = vec![
            one.model.clone(),
            one.state.clone(),
            one.owner.clone(),
            one.protection.clone().unwrap_or_default(),
            if one.in_use { "yes" } else { "" }.to_owned(),
            one.total_bytes.map_or_else(String::new, |n| Bytes::new(n).to_string()),
        ];
        [head(), cells].concat()
    };
    server.residents.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_whose_a_model_is_and_a_server_that_does_not_answer() {
        let servers: Servers = serde_json::from_value(json!({"targets": [
            {"id": "desk", "kind": "llama-cpp-router", "seen": true, "capacity": 2, "trouble": null, "autoload": "ignored", "residents": [
                {"model": "a", "state": "loaded", "owner": "ours", "protection": "chat", "inUse": true, "totalBytes": 1_048_576},
            ]},
            {"id": "home", "kind": "ollama", "seen": false, "capacity": null, "trouble": "nobody answers", "residents": []},
        ]}))
        .expect("servers");
        let shown = status_for_people(&servers.targets);
        let lines: Vec<_> = shown.lines().collect();
        for part in ["desk", "2", "loaded", "ours", "chat", "yes", "1.0 MiB"] {
            assert!(lines[1].contains(part), "{part}: {shown}");
        }
        assert!(lines[2].contains("home") && lines[2].contains("not seen yet"), "{shown}");
        assert!(shown.contains("desk: loads for requests that say `autoload=0`"), "{shown}");
        assert!(shown.ends_with("home: the last look failed: nobody answers\n"), "{shown}");
    }

    #[test]
    fn a_plan_is_a_sentence() {
        let plan = |action: &str, evict: &[&str]| {
            json!({"target": "desk", "model": "m", "action": action, "evict": evict, "busy": ["b"], "why": "full",
                "notices": [{"kind": "co-resident", "model": "m", "message": "beside 1"}]})
        };
        let shown = plan_for_people(&plan("load", &["a"]));
        assert_eq!(shown, "desk/m would be loaded in the place of a\n  co-resident: m: beside 1\n");
        for (action, part) in [("resident", "there already"), ("wait", "requests to b"), ("decline", "refused: full")] {
            let shown = plan_for_people(&plan(action, &[]));
            assert!(shown.contains(part), "{shown}");
        }
    }
}
