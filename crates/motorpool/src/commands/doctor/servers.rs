//! Model servers of the user's that the configuration names: whether they answer, and whether they can be managed.
//!
//! Each is asked what it lists and holds and nothing else, all at once. Whether a router knows `autoload=0` cannot be seen
//! without making one load, so nothing is said of that.
use super::finding::Finding;
use crate::{
    dirs::Dirs,
    exit::{Failure, chain},
    external,
};
use motorpool_catalog::{Config, External};
use motorpool_external::{Guest, Guests, ServerError, Setting, View};
use std::{sync::Arc, time::Duration};
use tokio::task::JoinSet;

const WHAT: &str = "model server";

/// What a server holds, and how many models it offers.
type Look = Result<(View, usize), ServerError>;

/// One finding for each, in configuration order.
pub(super) async fn findings(config: &Config) -> Vec<Finding> {
    let guests = match open(config) {
        Ok(guests) => guests,
        Err(failure) => return vec![Finding::fault(WHAT, failure)],
    };
    let mut looks = JoinSet::new();
    for (n, guest) in guests.iter().cloned().enumerate() {
        looks.spawn(async move { (n, look(&guest).await) });
    }
    let mut looks = looks.join_all().await;
    looks.sort_by_key(|(n, _)| *n);
    config.external.iter().zip(looks).map(|(server, (_, look))| judge(server, &look)).collect()
}

/// As in a daemon, but nothing is written down and nobody told.
fn open(config: &Config) -> Result<Guests, Failure> {
    let setting = Setting {
        run: Dirs::of_user()?,
        journal: None,
        lock_within: Duration::ZERO,
        now: motorpool_devices::now,
        sink: Arc::new(|_| ()),
    };
    external::guests(config, setting)
}

async fn look(guest: &Guest) -> Look {
    let (view, models) = tokio::join!(guest.look(), guest.models());
    Ok((view?, models?.len()))
}

fn judge(server: &External, look: &Look) -> Finding {
    let who = format!("{} at {}", server.id, server.url);
    let error = match look {
        Ok((view, n_models)) => {
            let room = view.capacity.limit().map_or_else(String::new, |n| format!(", of at most {n}"));
            let n_residents = view.residents.len();
            return Finding::good(WHAT, format_args!("{who}: {n_models} models, {n_residents} in memory{room}"));
        }
        Err(error) => error,
    };
    let cure = match error {
        ServerError::Refused { status: 401 | 403, .. } => "give its key: `key_file` or `key_env` of this [[external]]",
        ServerError::Plain => "it is not managed; a llama-server that is to be runs without a model of its own",
        ServerError::Call(_) => "start it, or take this [[external]] out",
        _ => "look at its own log; until it answers its models are not offered",
    };
    Finding::note(WHAT, format_args!("{who}: {}", chain(error)), cure)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::State;
    use motorpool_catalog::{Source, parse_config};
    use motorpool_external::residency::Capacity;
    use std::net::TcpListener;

    fn config(url: &str) -> Config {
        let text = format!("[[external]]\nid = \"desk\"\nkind = \"lmstudio\"\nurl = \"{url}\"\n");
        parse_config(Source { file: "f", text: &text }, &|_| None).expect("valid")
    }

    #[test]
    fn what_answers_is_good_and_whatever_else_has_a_cure_of_its_own() {
        let desk = &config("http://127.0.0.1:1").external[0];
        let view = View { residents: Vec::new(), capacity: Capacity::Of(4) };
        let good = judge(desk, &Ok((view, 7)));
        assert_eq!(good.found, "desk at http://127.0.0.1:1: 7 models, 0 in memory, of at most 4");
        assert!(good.state == State::Good && good.cure.is_none());
        let refused = |status| ServerError::Refused { status, message: "no".into() };
        let cures: Vec<String> = [refused(401), refused(500), ServerError::Plain]
            .map(|error| judge(desk, &Err(error)))
            .map(|finding| (finding.state == State::Note).then_some(finding.cure).flatten().expect("a cure"))
            .into();
        assert!(cures[0].contains("key_file") && cures[1].contains("log") && cures[2].contains("managed"), "{cures:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_and_costs_the_others_nothing() {
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
        let findings = findings(&config(&format!("http://{gone}"))).await;
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(finding.found.contains(&gone.to_string()) && finding.state == State::Note, "{finding:?}");
        assert_eq!(finding.cure.as_deref(), Some("start it, or take this [[external]] out"));
    }
}
