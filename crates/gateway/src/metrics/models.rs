//! What is measured of each model of the configuration, and of each server of somebody else's.
use super::{
    families::{Families, Labels, Measure, Value, counter, gauge, histogram},
    meters::{Counts, OfModel, is_of_server},
    pool::{of_model, width},
};
use motorpool_supervisor::Tally;
use motorpool_vocab::{Bytes, EntryView, PhaseView, Snapshot};

fn named(model: &str) -> Labels {
    vec![("model", model.to_owned())]
}

/// Every family of models.
pub(super) fn write(
    families: &mut Families,
    (snapshot, tally): (&Snapshot, &Tally),
    (counts, ids): (&Counts, &[&str]),
) {
    write_engines(families, snapshot, ids);
    let loads = tally.loads.iter().filter(|(model, _)| ids.contains(&model.as_str()));
    let loads = loads.map(|(model, loads)| (named(model.as_str()), Value::Times(loads.clone())));
    let help = "Loads that ended with a ready engine, from the order to start.";
    families.add(histogram("motorpool_load_duration", help), loads);
    write_requests(families, counts, ids);
}

fn write_engines(families: &mut Families, snapshot: &Snapshot, ids: &[&str]) {
    let each = |value: &dyn Fn(&EntryView) -> usize| -> Vec<_> {
        let sum = |id: &&str| of_model(snapshot, id).map(value).sum::<usize>();
        ids.iter().map(|id| (named(id), Value::number(sum(id)))).collect()
    };
    let number = |name, help| gauge(name, Measure::Number, help);
    let serves = |entry: &EntryView| matches!(entry.phase, PhaseView::Ready | PhaseView::Suspect);
    families.add(
        number("motorpool_model_replicas", "Engines of a model that serve."),
        each(&|entry| usize::from(serves(entry))),
    );
    families
        .add(number("motorpool_model_slots", "Requests that the engines of a model serve at a time."), each(&width));
    families.add(
        number("motorpool_model_slots_used", "Requests that the engines of a model serve now."),
        each(&|entry| entry.leases.len()),
    );
    families.add(
        number("motorpool_model_requests_waiting", "Requests that wait for an engine of a model."),
        each(&|entry| usize::try_from(entry.n_tickets).unwrap_or(usize::MAX)),
    );
    let reserved = |id: &&str| Bytes::sum(of_model(snapshot, id).map(|entry| entry.reserved));
    let rows: Vec<_> = ids.iter().map(|id| (named(id), Value::bytes(reserved(id)))).collect();
    families
        .add(gauge("motorpool_model_committed", Measure::Bytes, "What is reserved for the engines of a model."), rows);
}

fn write_requests(families: &mut Families, counts: &Counts, ids: &[&str]) {
    // One that was never asked for is there too.
    let none = OfModel::default();
    // Of somebody else's server, not of a model that a reload took away.
    let others = counts.models.keys().map(String::as_str).filter(|name| is_of_server(name) && !ids.contains(name));
    let all: Vec<(&str, &OfModel)> =
        ids.iter().copied().chain(others).map(|name| (name, counts.models.get(name).unwrap_or(&none))).collect();
    let each = |value: &dyn Fn(&OfModel) -> Value| -> Vec<_> {
        all.iter().map(|(name, of)| (named(name), value(of))).collect()
    };
    let outcomes = all.iter().flat_map(|(name, of)| {
        let row = |outcome: &str, n| ([named(name), vec![("outcome", outcome.to_owned())]].concat(), Value::Count(n));
        [row("finished", of.finished), row("failed", of.n_failed()), row("aborted", of.aborted)]
    });
    families.add(counter("motorpool_requests", "Requests that ended, by model and how."), outcomes);
    let errors = all.iter().flat_map(|(name, of)| {
        of.failed.iter().map(|(code, n)| ([named(name), vec![("code", (*code).to_owned())]].concat(), Value::Count(*n)))
    });
    families.add(counter("motorpool_request_errors", "Requests that failed, by model and code."), errors);
    families.add(
        histogram("motorpool_request_duration", "From the head of a request to its end."),
        each(&|of| Value::Times(of.took.clone())),
    );
    families.add(
        histogram("motorpool_time_to_first_token", "From the head of a request to the first result of its engine."),
        each(&|of| Value::Times(of.first_result.clone())),
    );
    families.add(
        histogram("motorpool_inter_token", "Time between two tokens of a reply, as its mean."),
        each(&|of| Value::Times(of.between_tokens.clone())),
    );
    for (name, help, value) in [
        (
            "motorpool_prompt_tokens",
            "Tokens of prompts, cached ones among them, as engines count them.",
            (|of| of.prompt) as fn(&OfModel) -> u64,
        ),
        ("motorpool_cached_tokens", "Tokens of prompts that were read before.", |of| of.cached),
        ("motorpool_generated_tokens", "Tokens of replies.", |of| of.generated),
    ] {
        families.add(counter(name, help), each(&|of| Value::Count(value(of))));
    }
}
