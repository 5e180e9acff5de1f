use super::{
    engines::{Page, Pages, Scraper},
    exposition::{Exposition, Malformed, merged},
    *,
};
use crate::{
    testing::{Engine, catalog, entry},
    upstream::Upstream,
    usage::{Outcome, Tokens, UsageRecord},
};
use motorpool_catalog::{Catalog, shipped};
use motorpool_supervisor::Tally;
use motorpool_vocab::{
    Bytes, DeviceId, Endpoint, EngineKey, Histogram, MemoryParts, MemoryView, PartsView, PhaseView, Snapshot, Spawn,
};
use std::{
    fmt::Write,
    time::{Duration, SystemTime},
};

fn record(model: Option<&str>, outcome: Outcome) -> UsageRecord {
    UsageRecord {
        at: SystemTime::UNIX_EPOCH,
        request: "req_1".into(),
        path: "/".into(),
        model: model.map(str::to_owned),
        server: None,
        key: None,
        tokens: Tokens { prompt: Some(9), cached: Some(4), generated: Some(5), per_second: None },
        first_result_within: Some(Duration::from_secs(1)),
        took: Duration::from_secs(3),
        outcome,
    }
}

fn key(text: &str) -> EngineKey {
    text.parse().expect("a key")
}

fn memory(device: Option<&str>) -> MemoryView {
    MemoryView {
        device: device.map(|id| DeviceId(id.into())),
        total: Bytes::gib(8),
        share: Bytes::gib(8),
        share_now: Bytes::gib(7),
        committed: Bytes::gib(1),
        foreign: Some(Bytes::mib(1)),
    }
}

/// A pool in which everything has a value.
fn scene() -> Families {
    let mut snapshot = Snapshot::default();
    snapshot.pool.budget = Some(Bytes::gib(8));
    snapshot.pool.memory = vec![memory(Some("GPU-1")), memory(None)];
    for (n, private) in [(0, 1), (1, 2)] {
        let mut view = entry(&format!("llama-server:m:{n}"), PhaseView::Ready, None);
        view.width = Some(2);
        view.n_tickets = 3;
        let measured = PartsView {
            devices: [(DeviceId("GPU-1".into()), Bytes::gib(1))].into(),
            private: Some(Bytes::mib(private)),
            files: Some(Bytes::mib(10)),
        };
        let none = PartsView::default();
        let parts =
            MemoryParts { from: "learned", weights: Bytes::ZERO, planned: none.clone(), reserved: none, measured };
        view.memory = Some(parts);
        snapshot.entries.push(view);
    }
    let meters = Meters::default();
    meters.ended(&record(Some("m"), Outcome::Failed("queue_full")));
    meters.ended(&record(None, Outcome::Failed("model_not_found")));
    let mut tally = Tally::default();
    let loads = Histogram::new(const { &[Duration::from_secs(1)] });
    tally.loads.insert(key("llama-server:m:0").model().clone(), loads);
    let pages = Pages::from([(key("llama-server:m:0"), Page::Failed)]);
    let (counts, ids) = (meters.counts(), ["m", "idle"]);
    tally.notices.insert(("desk".to_owned(), "stress"), 1);
    tally.changes.insert(("desk".to_owned(), "load"), 2);
    let mut families = Families::default();
    pool::write(&mut families, &snapshot, &tally);
    pool::write_requests(&mut families, &counts, 2);
    pool::write_protocol(&mut families, &snapshot, &ids);
    models::write(&mut families, (&snapshot, &tally), (&counts, &ids));
    engines::write(&mut families, &pages);
    families
}

#[test]
fn names_kinds_and_labels_are_those_that_dashboards_know() {
    let mut text = String::new();
    for (name, kind, labels) in scene().outline() {
        writeln!(text, "{name} {kind} {}", labels.join(",")).expect("a String");
    }
    let text: Vec<_> = text.lines().map(str::trim_end).collect();
    let known: Vec<_> = include_str!("names.txt").lines().collect();
    assert_eq!(text, known, "names.txt is to be:\n{}\n", text.join("\n"));
}

#[test]
fn both_forms_say_the_same_and_every_number_is_where_it_belongs() {
    let text = scene().text(Form::Text, "");
    for line in [
        "# TYPE motorpool_requests_total counter",
        "motorpool_budget_bytes 8589934592.0",
        "motorpool_memory_foreign_bytes{device=\"GPU-1\"} 1048576.0",
        "motorpool_memory_measured_bytes{device=\"GPU-1\"} 2147483648.0",
        // What replicas map alike counts once.
        "motorpool_memory_measured_bytes{device=\"system\"} 13631488.0",
        "motorpool_requests_waiting 6.0",
        "motorpool_kv_cache_usage_ratio 0.0",
        "motorpool_model_slots{model=\"m\"} 4.0",
        "motorpool_model_slots{model=\"idle\"} 0.0",
        "motorpool_requests_total{model=\"m\",outcome=\"failed\"} 1",
        "motorpool_request_errors_total{model=\"m\",code=\"queue_full\"} 1",
        "motorpool_usage_records_lost_total 2",
        "motorpool_unrouted_requests_total{code=\"model_not_found\"} 1",
        "motorpool_inter_token_seconds_sum{model=\"m\"} 0.5",
        "motorpool_denials_total{constraint=\"co-residency\"} 0",
        "motorpool_engine_scrape_up{model=\"m\",replica=\"0\"} 0.0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
    }
    let open = scene().text(Form::OpenMetrics, "");
    assert!(open.ends_with("# EOF\n") && open.contains("# UNIT motorpool_budget_bytes bytes\n"), "{open}");
    assert!(open.contains("# TYPE motorpool_requests counter\n"), "{open}");
    let samples = |text: &str| -> Vec<String> {
        // The bounds of buckets are numbers, and written in two ways.
        let differs = |line: &str| line.contains("_info{max_lora") || line.contains("_bucket{");
        let stays = |line: &&str| !line.starts_with('#') && !differs(line);
        let mut all: Vec<_> = text.lines().filter(stays).map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(samples(&open), samples(&text));
}

#[test]
fn what_a_scraper_prefers_it_gets() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,\
                      text/plain;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
    for (accept, form) in [
        (prometheus, Form::OpenMetrics),
        ("application/openmetrics-text", Form::OpenMetrics),
        ("application/openmetrics-text;q=0.25, text/plain;q=0.3", Form::Text),
        ("application/openmetrics-text;q=0", Form::Text),
        ("application/openmetrics-text;q=much", Form::Text),
        ("text/plain;version=0.0.4", Form::Text),
        ("*/*", Form::Text),
    ] {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, accept.parse().expect("a value"));
        assert_eq!(form_of(&headers), form, "{accept}");
    }
    assert_eq!(form_of(&HeaderMap::new()), Form::Text);
}

#[test]
fn a_request_is_counted_by_its_model_its_server_or_by_no_name_that_a_client_made_up() {
    let meters = Meters::default();
    meters.ended(&record(Some("m"), Outcome::Finished));
    meters.ended(&record(Some("m"), Outcome::Aborted));
    for name in ["box/a", "box/b"] {
        let foreign = UsageRecord { server: Some("box".into()), ..record(Some(name), Outcome::Finished) };
        meters.ended(&foreign);
    }
    meters.ended(&record(None, Outcome::Failed("model_not_found")));
    let counts = meters.counts();
    assert_eq!(counts.models.keys().collect::<Vec<_>>(), ["box/*", "m"]);
    let of = &counts.models["m"];
    assert_eq!((of.finished, of.aborted, of.prompt, of.cached, of.generated), (1, 1, 18, 8, 10));
    // Two seconds behind the first of five tokens.
    assert_eq!((of.between_tokens.count(), of.between_tokens.sum()), (2, Duration::from_secs(1)));
    assert_eq!(counts.models["box/*"].finished, 2);
}

#[test]
fn who_waits_for_a_lease_gets_it_is_refused_or_leaves() {
    let meters = Meters::default();
    meters.wait().granted();
    meters.wait().refused("queue_full");
    drop(meters.wait());
    let counts = meters.counts();
    let ends: Vec<_> = counts.acquired.into_iter().collect();
    assert_eq!((ends, counts.waited.count()), (vec![("granted", 1), ("left", 1), ("queue_full", 1)], 1));
}

#[test]
fn a_model_that_a_reload_took_away_has_no_series_and_the_others_keep_theirs() {
    let meters = Meters::default();
    for (model, server) in [("m", None), ("gone", None), ("box/a", Some("box".to_owned()))] {
        meters.ended(&UsageRecord { server, ..record(Some(model), Outcome::Finished) });
    }
    let mut tally = Tally::default();
    for model in ["llama-server:m:0", "llama-server:gone:0"] {
        let loads = Histogram::new(const { &[Duration::from_secs(1)] });
        tally.loads.insert(key(model).model().clone(), loads);
    }
    let mut families = Families::default();
    models::write(&mut families, (&Snapshot::default(), &tally), (&meters.counts(), &["m"]));
    let text = families.text(Form::Text, "");
    assert!(!text.contains("model=\"gone\""), "{text}");
    for line in [
        "motorpool_requests_total{model=\"m\",outcome=\"finished\"} 1",
        "motorpool_requests_total{model=\"box/*\",outcome=\"finished\"} 1",
        "motorpool_load_duration_seconds_count{model=\"m\"} 0",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
    }
}

/// Engines of these names that llama-server's manifest describes, but for `silent`, which names no metrics.
fn engines_called(names: &[&str]) -> Catalog {
    let like = shipped().0.swap_remove(0);
    let manifest = |name: &&str| {
        let mut manifest = like.clone();
        (*name).clone_into(&mut manifest.name);
        manifest.metrics = manifest.metrics.filter(|_| *name != "silent");
        manifest
    };
    Catalog::new(names.iter().map(manifest).collect(), vec![]).expect("names are unique")
}

#[tokio::test]
async fn of_two_engines_side_by_side_in_one_place_the_new_one_is_told() {
    let (new, old) = (Engine::start(), Engine::start());
    let names = ["a:m:0", "llama-server:m:0", "z:m:0", "z:m:1", "llama-server:gone:0"];
    let engines: Vec<_> = names
        .into_iter()
        .zip(1..)
        .map(|(name, n)| {
            let (engine, value) = if name.starts_with("llama-server:m") { (&new, 1) } else { (&old, 2) };
            engine.text(200, &format!("n {value}\n"));
            (key(name), Spawn(n), Endpoint::Unix(engine.socket.clone()))
        })
        .collect();
    let scraper = Scraper::default();
    let upstream = Upstream::new(Duration::from_secs(5), Duration::from_mins(1));
    scraper.round(&engines, &upstream, &engines_called(&["a", "llama-server", "z"])).await;
    let pages = scraper.pages(&catalog(&[("m", &[])]));
    let text = merged(&pages, Form::Text);
    let told: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(told, ["n{model=\"m\",replica=\"0\"} 1", "n{model=\"m\",replica=\"1\"} 2"]);
    let mut families = Families::default();
    engines::write(&mut families, &pages);
    assert_eq!(families.text(Form::Text, "").matches("scrape_up{").count(), 2);
}

const PAGE: &str = "# HELP llamacpp:prompt_tokens_total Tokens.\n# TYPE llamacpp:prompt_tokens_total counter\n\
                    llamacpp:prompt_tokens_total 7\n# TYPE llamacpp:n_tokens_max counter\nllamacpp:n_tokens_max 9\n\
                    # TYPE wait histogram\nwait_bucket{le=\"+Inf\"} 1\nwait_sum 0.5 1700000000000\nwait_count 1\n\
                    plain{model=\"x\", a=\"say \\\"a\\\"\\n\"} NaN\n";

#[test]
fn pages_of_several_engines_are_one_text_in_which_each_family_stands_once() {
    let page = || Page::from(Exposition::read(PAGE).expect("well formed"));
    let other = Exposition::read("# TYPE plain gauge\nplain 1\n").expect("well formed");
    let pages = Pages::from([
        (key("llama-server:m:0"), page()),
        (key("llama-server:m:1"), page()),
        (key("llama-server:n:0"), Page::from(other)),
        (key("llama-server:o:0"), Page::Failed),
    ]);
    let text = merged(&pages, Form::Text);
    assert_eq!(text.matches("# TYPE llamacpp:prompt_tokens_total counter\n").count(), 1, "{text}");
    for line in [
        "# HELP llamacpp:prompt_tokens_total Tokens.",
        "llamacpp:prompt_tokens_total{model=\"m\",replica=\"1\"} 7",
        "wait_bucket{model=\"m\",replica=\"0\",le=\"+Inf\"} 1",
        "wait_sum{model=\"m\",replica=\"0\"} 0.5",
        "plain{model=\"m\",replica=\"0\",exported_model=\"x\",a=\"say \\\"a\\\"\\n\"} NaN",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}\nis not in\n{text}");
    }
    assert!(!text.contains("model=\"n\""), "it means something else by that name: {text}");
    let open = merged(&pages, Form::OpenMetrics);
    assert!(open.contains("# TYPE llamacpp:prompt_tokens counter\nllamacpp:prompt_tokens_total{"), "{open}");
    assert!(open.contains("# TYPE llamacpp:n_tokens_max unknown\n"), "a counter is one by its name: {open}");
}

#[test]
fn a_page_with_one_wrong_line_is_none() {
    let many: String = (0..3000).fold(String::new(), |text, n| text + &format!("a{{n=\"{n}\"}} 1\n"));
    for (text, why) in [
        ("a", Malformed::Value),
        ("a one", Malformed::Value),
        ("a 1 2 3", Malformed::Value),
        ("a 1 soon", Malformed::Value),
        ("a infinity", Malformed::Value),
        ("1a 1", Malformed::Name),
        ("motorpool_budget_bytes 1", Malformed::Name),
        ("# TYPE motorpool_x counter", Malformed::Name),
        ("# TYPE a number", Malformed::Kind),
        ("a{b=\"1\" 1", Malformed::Labels),
        ("a{b=\"1} 1", Malformed::Labels),
        ("a{b=\"\\x\"} 1", Malformed::Labels),
        ("a{b=1} 1", Malformed::Labels),
        ("a{b:c=\"1\"} 1", Malformed::Labels),
        ("a{b=\"1\",b=\"2\"} 1", Malformed::Labels),
        ("a{b=\"1\",c=\"2\"} 1\na{c=\"2\",b=\"1\"} 2", Malformed::Twice),
        (many.as_str(), Malformed::TooMany),
        ("<html>", Malformed::Value),
    ] {
        let page = format!("right 1\n{text}\n");
        assert_eq!(Exposition::read(&page), Err(why), "{text:.60}");
    }
    assert!(Exposition::read("# a comment\n\n  a{}  1e3  -5 \n").is_ok());
}

#[tokio::test]
async fn an_engine_that_hangs_keeps_nobody_waiting_and_one_that_speaks_nonsense_has_no_page() {
    let (good, wild, hung) = (Engine::start(), Engine::start(), Engine::start());
    good.text(200, PAGE);
    wild.text(200, "<html>");
    hung.hangs_after(&[]);
    let engines: Vec<_> = [("good", &good), ("wild", &wild), ("hung", &hung)]
        .into_iter()
        .zip(1..)
        .map(|((name, engine), n)| (key(&format!("e:{name}:0")), Spawn(n), Endpoint::Unix(engine.socket.clone())))
        .collect();
    let scraper = Scraper::default();
    let (upstream, catalog) = (Upstream::new(Duration::from_secs(5), Duration::from_mins(1)), engines_called(&["e"]));
    let page = |name: &str| scraper.page(&key(&format!("e:{name}:0")));
    tokio::select! {
        () = scraper.round(&engines, &upstream, &catalog) => panic!("one of them hangs"),
        () = async {
            while page("good").is_none() || page("wild").is_none() {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    assert!(matches!((page("good"), page("wild"), page("hung")), (Some(Page::Read(_)), Some(Page::Failed), None)));
    assert!(good.heard().await.head.contains("version=0.0.4"));
    // One that is gone is forgotten.
    good.text(404, "none");
    scraper.round(&engines[..1], &upstream, &catalog).await;
    assert!(matches!((page("good"), page("wild")), (Some(Page::None), None)));
}

#[tokio::test]
async fn an_engine_is_asked_where_its_manifest_says_and_one_that_names_nothing_is_not() {
    let (told, silent) = (Engine::start(), Engine::start());
    told.text(200, "n 1\n");
    silent.text(200, "n 2\n");
    let engines: Vec<_> = [("told", &told), ("silent", &silent)]
        .into_iter()
        .zip(1..)
        .map(|((name, engine), n)| (key(&format!("{name}:m:0")), Spawn(n), Endpoint::Unix(engine.socket.clone())))
        .collect();
    let catalog = engines_called(&["told", "silent"]);
    let scraper = Scraper::default();
    scraper.round(&engines, &Upstream::new(Duration::from_secs(5), Duration::from_mins(1)), &catalog).await;
    assert!(told.heard().await.head.starts_with("get /metrics "));
    assert!(matches!(scraper.page(&key("told:m:0")), Some(Page::Read(_))));
    assert!(matches!(scraper.page(&key("silent:m:0")), Some(Page::None)));
}
