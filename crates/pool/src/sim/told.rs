//! [`told`]: an action of the pool as one line for people.
use crate::{Action, Answer};
use motorpool_vocab::EventKind;

/// One line about what the pool wants done, or says.
pub fn told(action: &Action) -> String {
    match action {
        Action::Check { key, .. } => format!("look at program and file of {key}"),
        Action::Start { spawn, launch } => {
            format!("start child {spawn} of {}, {} reserved", launch.key, launch.claim.total())
        }
        Action::Probe { spawn, probe } => format!("ask child {spawn} for {probe:?}"),
        Action::WriteSlot { spawn, slot, session, .. } => format!("write slot {slot} of child {spawn}, of {session}"),
        Action::Look => "ask the drivers of the cards".to_owned(),
        Action::StopPolitely { spawn } => format!("ask child {spawn} to end"),
        Action::Kill { spawn } => format!("kill child {spawn}"),
        Action::Open { spawn, key, .. } => format!("{key} (child {spawn}) may be entered"),
        Action::Close { spawn } => format!("child {spawn} may not be entered any more"),
        Action::Grant { id, grant } => {
            let slot = grant.slot.map_or_else(String::new, |slot| format!(", slot {slot}"));
            let back = grant.returning.as_ref().map_or_else(String::new, |session| format!(", {session} read back"));
            format!("r{} has a lease of {} (child {}{slot}{back})", id.0, grant.key, grant.spawn)
        }
        Action::Loaded { id, key } => format!("r{} finds {key} there", id.0),
        Action::Refuse { id, refusal } => format!("r{} is refused: {refusal}", id.0),
        Action::Notice { id, holders } => {
            let names: Vec<_> = holders.iter().map(|held| held.key.to_string()).collect();
            format!("r{} waits for the leases of {}", id.0, names.join(", "))
        }
        Action::Reply { id, answer } => format!("r{} is answered: {}", id.0, answered(answer)),
        Action::Publish(event) => format!("event {}: {}", event.seq, happened(&event.kind)),
        Action::Learn { about, .. } => format!("learned something of {about}"),
        Action::Deny(denial) => format!("denied {}: {denial}", denial.key),
    }
}

fn answered(answer: &Answer) -> String {
    match answer {
        Answer::Unloaded => "unloaded".to_owned(),
        Answer::NotResident => "not there".to_owned(),
        Answer::Serving(key) => format!("{key} is used"),
        Answer::Busy { key, within } => format!("{key} did not drain within {} s", within.as_secs()),
        Answer::Stuck(key) => format!("{key} cannot be killed"),
        other => format!("{other:?}"),
    }
}

fn happened(kind: &EventKind) -> String {
    match kind {
        EventKind::Stopping { key, spawn, reason } => format!("{key} (child {spawn}) is stopped: {reason}"),
        EventKind::Ready { key, spawn, .. } => format!("{key} (child {spawn}) serves"),
        EventKind::Reserved { key, bytes, .. } => format!("{bytes} reserved for {key}"),
        EventKind::Released { key, .. } => format!("the bytes of {key} are back"),
        EventKind::DrainBegan { key, holders } => format!("{key} is drained, {} leases left", holders.len()),
        EventKind::DrainGivenUp { key } => format!("{key} is not drained any more"),
        EventKind::Deferred { key, why } => format!("{key} is put off: {why}"),
        EventKind::StartFailed { key, class } => format!("{key} did not start: {class}"),
        other => format!("{other:?}"),
    }
}
