use super::*;
use crate::metrics::Meters;
use proptest::prelude::*;

fn recorder() -> (Recorder, mpsc::Receiver<UsageRecord>) {
    let (outlet, records) = mpsc::channel(4);
    let sink = Arc::<Sink>::default();
    sink.open(outlet);
    (Recorder::new(sink, "req_1", "/v1/x", Span::none()), records)
}

fn tokens_of(text: &str, size: usize) -> Tokens {
    let (recorder, mut records) = recorder();
    let mut tap = Tap::new(recorder);
    text.as_bytes().chunks(size).for_each(|chunk| tap.pass(chunk));
    drop(tap);
    records.try_recv().expect("one record").tokens
}

fn tokens(prompt: u64, cached: u64, generated: u64) -> Tokens {
    Tokens { prompt: Some(prompt), cached: Some(cached), generated: Some(generated), per_second: None }
}

const OPENAI: &str = r#"data: {"usage":{"completion_tokens":3,"prompt_tokens":9,"total_tokens":12,"prompt_tokens_details":{"cached_tokens":4}}}"#;

#[test]
fn each_api_counts_in_its_own_words() {
    for (text, want) in [
        (OPENAI, tokens(9, 4, 3)),
        (
            r#"{"message":{"usage":{"cache_read_input_tokens":4,"input_tokens":5,"output_tokens":0}}} {"usage":{"output_tokens":3}}"#,
            tokens(9, 4, 3),
        ),
        (
            r#"{"usage":{"input_tokens":9,"output_tokens":3,"input_tokens_details":{"cached_tokens":4}}}"#,
            tokens(9, 4, 3),
        ),
        (r#"{"timings":{"cache_n":4,"prompt_n":5,"predicted_n":3}}"#, tokens(9, 4, 3)),
        (r#"{"timings": {"cache_n": 4, "prompt_n": 5, "predicted_n": 3}}"#, tokens(9, 4, 3)),
        (r#"{"usage": {"prompt_tokens": 9}}"#, Tokens { prompt: Some(9), ..Tokens::default() }),
        (r#"{"usage":{"prompt_tokens":9}}"#, Tokens { prompt: Some(9), ..Tokens::default() }),
        (r#"{"content":"\"usage\":{\"prompt_tokens\":9}"}"#, Tokens::default()),
        (r#"{"usage":null,"timings":{"#, Tokens::default()),
        ("", Tokens::default()),
    ] {
        assert_eq!(tokens_of(text, 10_000), want, "{text}");
    }
}

#[test]
fn what_fails_stays_failed_and_who_says_nothing_was_aborted() {
    let outcome = |end: &dyn Fn(&Recorder)| {
        let (recorder, mut records) = recorder();
        end(&recorder.clone());
        assert!(records.try_recv().is_err(), "it is not over");
        drop(recorder);
        let record = records.try_recv().expect("one record");
        assert!(records.try_recv().is_err(), "and no second one");
        record.outcome
    };
    assert_eq!(outcome(&|_| {}), Outcome::Aborted);
    assert_eq!(outcome(&Recorder::finished), Outcome::Finished);
    let failed = |recorder: &Recorder| {
        recorder.failed(&Failure::ShuttingDown);
        recorder.finished();
    };
    assert_eq!(outcome(&failed), Outcome::Failed("shutting_down"));
}

#[test]
fn records_that_nobody_takes_are_lost_and_counted_and_later_ones_go_again() {
    let (outlet, mut records) = mpsc::channel(1);
    let meters = Arc::<crate::metrics::Meters>::default();
    let sink = Arc::new(Sink::new(Arc::clone(&meters)));
    sink.open(outlet);
    let n_lost = || meters.counts().records_lost;
    let ended = |id: &str| drop(Recorder::new(Arc::clone(&sink), id, "/", Span::none()));
    ["req_1", "req_2", "req_3"].into_iter().for_each(ended);
    assert_eq!((n_lost(), records.try_recv().expect("the first").request.as_str()), (2, "req_1"));
    ended("req_4");
    assert_eq!((n_lost(), records.try_recv().expect("the next").request.as_str()), (2, "req_4"));
}

proptest! {
    #[test]
    fn where_an_object_is_cut_behind_its_mark_changes_nothing(at in 16_usize..100) {
        let (recorder, mut records) = recorder();
        let mut tap = Tap::new(recorder);
        let (head, tail) = OPENAI.as_bytes().split_at(at);
        tap.pass(head);
        tap.pass(tail);
        drop(tap);
        prop_assert_eq!(records.try_recv().expect("one record").tokens, tokens(9, 4, 3));
    }
}

#[test]
fn the_pace_of_an_engine_is_what_it_measured_or_what_was_seen_and_only_of_the_child_that_had_it() {
    let meters = Arc::<Meters>::default();
    let sink = Arc::new(Sink::new(Arc::clone(&meters)));
    let key: EngineKey = "llama-server:a:0".parse().expect("a key");
    let ends = |spawn: Option<u64>, tokens: Tokens| {
        let recorder = Recorder::new(Arc::clone(&sink), "req_1", "/", Span::none());
        if let Some(spawn) = spawn {
            recorder.is_served_by(&key, Spawn(spawn));
        }
        recorder.counted(tokens);
    };
    let measured = |pace: f64| Tokens { per_second: Some(pace), ..Tokens::default() };
    let pace = |spawn: u64| meters.pace(&key, Spawn(spawn)).map(f64::round);
    ends(None, measured(9.0));
    assert_eq!(pace(1), None, "no engine had it");
    ends(Some(1), measured(42.0));
    assert_eq!((pace(1), pace(2)), (Some(42.0), None));
    ends(Some(1), Tokens::default());
    assert_eq!(pace(1), Some(42.0), "nothing was counted");
    ends(Some(2), measured(f64::NAN));
    assert_eq!(pace(1), Some(42.0), "that is no pace");
    ends(Some(2), measured(7.0));
    assert_eq!((pace(1), pace(2)), (None, Some(7.0)));
}

#[test]
fn what_no_engine_measured_is_told_by_when_it_came() {
    let seen = |generated, first: u64, took: u64| {
        let (recorder, mut records) = recorder();
        recorder.counted(Tokens { generated: Some(generated), ..Tokens::default() });
        drop(recorder);
        let record = records.try_recv().expect("one record");
        let first_result_within = Some(Duration::from_secs(first));
        UsageRecord { first_result_within, took: Duration::from_secs(took), ..record }.pace()
    };
    assert_eq!(seen(41, 2, 6), Some(10.0), "the first one came with the first result");
    assert_eq!([seen(1, 2, 6), seen(0, 2, 6), seen(41, 6, 6)], [None; 3]);
}
