//! Models of other people's servers among those that are planned: the daemon says what would become of them there.
use crate::{
    args::Plan,
    client::{Client, ClientError},
    commands::residency,
    exit::Failure,
    out,
    settings::Settings,
    status::Status,
};
use serde_json::Value;

/// Takes the names that no model of ours has out of `command`, and asks what would become of them. Without a server in the
/// configuration, or on a machine that a file describes, there are none.
pub(super) async fn take(client: &Client, settings: &Settings, command: &mut Plan) -> Result<Vec<Value>, Failure> {
    if settings.config.external.is_empty() || command.on.is_some() {
        return Ok(Vec::new());
    }
    take_unless(client, command, |name| settings.catalog.resolve(name).is_ok()).await
}

/// The same of the pool that is asked, which alone knows whose models are whose.
pub(super) async fn take_there(client: &Client, command: &mut Plan) -> Result<Vec<Value>, Failure> {
    // Where it serves none of other people's, it says of a name that nobody has what it has instead.
    if Status::ask(client).await?.0.external.is_empty() {
        return Ok(Vec::new());
    }
    let catalog: Value = client.get("/api/motorpool/v1/models").await?;
    let names = |model: &Value| {
        let aliases = model["aliases"].as_array().cloned().unwrap_or_default();
        [model["id"].clone()].into_iter().chain(aliases).collect::<Vec<_>>()
    };
    let names: Vec<Value> = catalog["models"].as_array().into_iter().flatten().flat_map(names).collect();
    take_unless(client, command, |name| names.iter().any(|known| known == name)).await
}

async fn take_unless(
    client: &Client,
    command: &mut Plan,
    is_ours: impl Fn(&String) -> bool,
) -> Result<Vec<Value>, Failure> {
    let (ours, theirs): (Vec<_>, Vec<_>) = std::mem::take(&mut command.models).into_iter().partition(is_ours);
    command.models = ours;
    let mut answers = Vec::new();
    for name in theirs {
        answers.push(residency::ask(client, &name).await?);
    }
    Ok(answers)
}

pub(super) fn for_people(answers: &[Value]) -> String {
    answers.iter().map(residency::plan_for_people).collect()
}

pub(super) fn refusal_of(answers: &[Value]) -> Result<(), Failure> {
    match answers.iter().find(|answer| answer["action"] == "decline") {
        Some(answer) => Err(residency::declined(answer)),
        None => Ok(()),
    }
}

/// Where something does not fit: what a person may give back on other servers of this machine.
pub(super) async fn say_releasable(client: &Client) {
    let status: Result<_, ClientError> = Status::ask(client).await;
    let Ok((status, _)) = status else { return };
    let mut names = Vec::new();
    for server in status.external.iter().filter(|server| server.local) {
        let idle = server.residents.iter().filter(|one| one.owner == "ours" && !one.in_use);
        names.extend(idle.map(|one| format!("{}/{}", server.id, one.model)));
    }
    if !names.is_empty() {
        let names = names.join(", ");
        out::say(format_args!(
            "idle on other servers of this machine, and ours: {names}; `motorpool residency release` gives their memory back"
        ));
    }
}
