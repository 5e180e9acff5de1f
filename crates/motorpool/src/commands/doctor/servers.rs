//! Model servers of the user's that the configuration names: whether they answer, and whether they can be managed.
//!
//! Each is asked what it lists and holds and nothing else, all at once. Whether a router heeds `autoload=0` its newer builds
//! say; of others a daemon that runs knows it from its first load there, and else nobody.
use super::{ANSWERS_WITHIN, finding::Finding};
use crate::{client::Client, dirs::Dirs, exit::chain, external, status::Servers};
use motorpool_catalog::{Config, External, ExternalLifecycle};
use motorpool_external::{Autoload, Guest, ServerError, View};
use std::collections::BTreeMap;
use tokio::{task::JoinSet, time::timeout};

const WHAT: &str = "model server";

/// What a server holds, and how many models it offers.
type Look = Result<(View, usize), ServerError>;
/// What a daemon knows of whether routers heed `autoload=0`, by their ids.
type Told = BTreeMap<String, String>;

/// One finding for each, in configuration order.
pub(super) async fn findings(dirs: &Dirs, config: &Config) -> Vec<Finding> {
    if config.external.is_empty() {
        return Vec::new();
    }
    let client = Client::new(&dirs.live_control_socket());
    // One that hangs has a finding of its own.
    let servers = timeout(ANSWERS_WITHIN, client.get::<Servers>("/api/motorpool/v1/residency")).await;
    let servers = servers.ok().and_then(Result::ok).map_or_else(Vec::new, |servers| servers.targets);
    let told = servers.into_iter().filter_map(|server| Some((server.id, server.autoload?))).collect();
    of_all(config, &told).await
}

async fn of_all(config: &Config, told: &Told) -> Vec<Finding> {
    let guests = match external::guests(config) {
        Ok(guests) => guests,
        Err(failure) => return vec![Finding::fault(WHAT, failure)],
    };
    let mut looks = JoinSet::new();
    for (n, guest) in guests.iter().cloned().enumerate() {
        looks.spawn(async move { (n, look(&guest).await) });
    }
    let mut looks = looks.join_all().await;
    looks.sort_by_key(|(n, _)| *n);
    config.external.iter().zip(looks).map(|(server, (_, look))| judge(server, &look, told)).collect()
}

async fn look(guest: &Guest) -> Look {
    let (view, models) = tokio::join!(guest.look(), guest.models());
    Ok((view?, models?.len()))
}

fn judge(server: &External, look: &Look, told: &Told) -> Finding {
    let who = format!("{} at {}", server.id, server.url);
    let error = match look {
        Ok((view, n_models)) => {
            let room = view.capacity.limit().map_or_else(String::new, |n| format!(", of at most {n}"));
            let n_residents = view.residents.len();
            let found = format!("{who}: {n_models} models, {n_residents} in memory{room}");
            return match autoload(server, view, told) {
                None | Some(Autoload::Heeded) => Finding::good(WHAT, found),
                Some(Autoload::Ignored) => Finding::note(
                    WHAT,
                    format_args!("{found}; it loads for requests that say `autoload=0`, whatever that displaces"),
                    "take a newer llama-server",
                ),
                Some(Autoload::Untold) => Finding::note(
                    WHAT,
                    format_args!("{found}; its build does not say whether it heeds `autoload=0`"),
                    "take a llama-server whose `/props` has `models_autoload`; else `motorpool residency` tells after our first load there",
                ),
            };
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

/// Whether a router of ours to manage heeds `autoload=0`: by its own word, else by what a daemon has seen of it.
fn autoload(server: &External, view: &View, told: &Told) -> Option<Autoload> {
    let own = view.autoload.filter(|_| server.lifecycle == ExternalLifecycle::Managed)?;
    let is = |seen: Autoload| told.get(&server.id).is_some_and(|text| text == seen.as_str());
    let seen = [Autoload::Ignored, Autoload::Heeded].into_iter().find(|seen| is(*seen));
    Some(if own == Autoload::Untold { seen.unwrap_or(own) } else { own })
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
        let told = Told::new();
        let view = View { residents: Vec::new(), capacity: Capacity::Of(4), autoload: None };
        let good = judge(desk, &Ok((view, 7)), &told);
        assert_eq!(good.found, "desk at http://127.0.0.1:1: 7 models, 0 in memory, of at most 4");
        assert!(good.state == State::Good && good.cure.is_none());
        let refused = |status| ServerError::Refused { status, message: "no".into() };
        let cures: Vec<String> = [refused(401), refused(500), ServerError::Plain]
            .map(|error| judge(desk, &Err(error), &told))
            .map(|finding| (finding.state == State::Note).then_some(finding.cure).flatten().expect("a cure"))
            .into();
        assert!(cures[0].contains("key_file") && cures[1].contains("log") && cures[2].contains("managed"), "{cures:?}");
    }

    #[test]
    fn a_router_that_may_load_by_itself_is_said_to_and_one_that_says_it_does_not_is_good() {
        let mut desk = config("http://127.0.0.1:1").external.remove(0);
        let told = |text: &str| Told::from([("desk".to_owned(), text.to_owned())]);
        let look = |autoload| Ok((View { residents: Vec::new(), capacity: Capacity::Unlimited, autoload }, 1));
        for (own, told, part) in [
            (Autoload::Heeded, Told::new(), None),
            (Autoload::Heeded, told("ignored"), None),
            (Autoload::Untold, Told::new(), Some("does not say")),
            (Autoload::Untold, told("untold"), Some("does not say")),
            (Autoload::Untold, told("heeded"), None),
            (Autoload::Untold, told("ignored"), Some("loads for requests")),
        ] {
            let finding = judge(&desk, &look(Some(own)), &told);
            assert_eq!(finding.state == State::Note, part.is_some(), "{own:?} {told:?}: {finding:?}");
            assert!(part.is_none_or(|part| finding.found.contains(part) && finding.cure.is_some()), "{finding:?}");
        }
        desk.lifecycle = ExternalLifecycle::UserManaged;
        let finding = judge(&desk, &look(Some(Autoload::Untold)), &Told::new());
        assert!(finding.state == State::Good, "its user wants it to load: {finding:?}");
    }

    #[tokio::test]
    async fn a_server_that_is_not_there_is_named_and_costs_the_others_nothing() {
        let gone = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("an address");
        let findings = of_all(&config(&format!("http://{gone}")), &Told::new()).await;
        let [finding] = findings.as_slice() else { panic!("{findings:?}") };
        assert!(finding.found.contains(&gone.to_string()) && finding.state == State::Note, "{finding:?}");
        assert_eq!(finding.cure.as_deref(), Some("start it, or take this [[external]] out"));
    }
}
