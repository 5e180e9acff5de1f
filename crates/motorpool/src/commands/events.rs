//! `motorpool events`: state changes of the pool, as they were kept and as they come.
use crate::{
    args::Events,
    chat::Lines,
    client::Client,
    exit::Failure,
    out::{self, Form, Out},
};
use motorpool_vocab::Bytes;
use serde_json::Value;

pub(super) async fn perform(client: &Client, out: Out, Events { follow, after }: Events) -> Result<(), Failure> {
    let path = format!("/api/motorpool/v1/events?after={after}&follow={}", u8::from(follow));
    let mut lines = Lines::new(client.get_stream(&path).await?);
    while let Some(line) = lines.next().await? {
        let Some(data) = line.strip_prefix("data: ") else { continue };
        match out.form {
            Form::Json => out::write_as_it_is(&[data, "\n"].concat())?,
            Form::People => {
                let event: Value = serde_json::from_str(data).map_err(crate::client::ClientError::from)?;
                out::write(&(for_people(&event) + "\n"))?;
            }
        }
    }
    Ok(())
}

/// One line: number, kind, engine, and the rest by name.
pub(super) fn for_people(event: &Value) -> String {
    if let Some(missed) = event["missed"].as_u64() {
        return format!("{missed} events were missed");
    }
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let head = format!("{:>6}  {:<16} {}", event["seq"].to_string(), text("event"), text("key"));
    let told = |name: &&String| !matches!(name.as_str(), "seq" | "event" | "key" | "atMs");
    let rest = event.as_object().into_iter().flat_map(|members| members.keys()).filter(told);
    let rest: Vec<String> = rest.filter_map(|name| shown(name, &event[name])).collect();
    [head, rest.join(", ")].join("  ").trim_end().to_owned()
}

fn shown(name: &str, value: &Value) -> Option<String> {
    let plain = |name: &str| name.strip_suffix("Bytes").unwrap_or(name).to_lowercase();
    match (name, value) {
        (_, Value::Null) => None,
        ("bytes", Value::Number(n)) => Some(Bytes::new(n.as_u64()?).to_string()),
        (name, Value::Number(n)) if name.ends_with("Bytes") => {
            Some(format!("{} {}", plain(name), Bytes::new(n.as_u64()?)))
        }
        ("withinMs", Value::Number(n)) => Some(format!("within {n} ms")),
        ("why", Value::String(text)) => Some(text.clone()),
        (name, Value::String(text)) => Some(format!("{name} {text}")),
        (name, other) => Some(format!("{name} {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_event_is_one_line_that_people_read() {
        let ready =
            json!({"seq": 12, "event": "ready", "key": "llama-server:m:0", "spawn": 3, "withinMs": 850, "atMs": 9});
        assert_eq!(for_people(&ready), "    12  ready            llama-server:m:0  spawn 3, within 850 ms");
        let denied = json!({"seq": 3, "event": "capacity-denied", "key": "e:m:0", "boundBytes": 1_073_741_824});
        assert!(for_people(&denied).ends_with("e:m:0  bound 1.0 GiB"), "{}", for_people(&denied));
        assert_eq!(for_people(&json!({"event": "missed", "missed": 7})), "7 events were missed");
    }
}
