//! `motorpool reload`: the running pool reads its files again; what became of each item, as a table.
use crate::{
    client::{Client, ClientError},
    exit::Failure,
    out::{self, Out},
};
use serde::Deserialize;
use serde_json::{Value, json};

/// Where it is asked for.
pub(super) const PATH: &str = "/api/motorpool/v1/reload";

#[derive(Deserialize)]
struct Reloaded {
    items: Vec<Item>,
    draining: Vec<String>,
}

#[derive(Deserialize)]
struct Item {
    kind: String,
    name: String,
    outcome: String,
    what: String,
}

pub(super) async fn perform(client: &Client, out: Out) -> Result<(), Failure> {
    let whole: Value = client.post(PATH, &json!({})).await?;
    let reloaded = Reloaded::deserialize(&whole).map_err(ClientError::from)?;
    out.data(&whole, || for_people(&reloaded))
}

fn for_people(Reloaded { items, draining }: &Reloaded) -> String {
    let (same, changed): (Vec<_>, Vec<_>) = items.iter().partition(|item| item.outcome == "unchanged");
    let rows =
        changed.iter().map(|item| vec![item.name.clone(), item.kind.clone(), item.outcome.clone(), item.what.clone()]);
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return format!("nothing changed: {} models and engines say what they said\n", same.len());
    }
    let table = out::table(&["ITEM", "KIND", "NOW", "CHANGE"], rows);
    let going: String = draining.iter().map(|key| [key, " ends after those that it serves\n"].concat()).collect();
    format!("{table}{} models and engines are unchanged\n{going}", same.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_what_changed_and_counts_the_rest() {
        let item = |name: &str, outcome: &str, what: &str| json!({ "kind": "model", "name": name, "outcome": outcome, "what": what });
        let shown = |whole: Value| for_people(&Reloaded::deserialize(&whole).expect("a report"));
        let items = [item("a", "unchanged", ""), item("b", "draining", "slots"), item("c", "live", "added")];
        let text = shown(json!({ "items": items, "draining": ["llama-server:b:0"] }));
        let lines: Vec<_> = text.lines().collect();
        assert!(lines[1].contains('b') && lines[1].contains("draining") && lines[1].contains("slots"), "{text}");
        assert!(
            text.contains("1 models and engines are unchanged") && text.contains("llama-server:b:0 ends"),
            "{text}"
        );
        let none = shown(json!({ "items": [item("a", "unchanged", "")], "draining": [] }));
        assert_eq!(none, "nothing changed: 1 models and engines say what they said\n");
    }
}
