use super::*;
use crate::{
    protection::{ProtectedSet, Protection},
    resident::{Owner, Phase, assess},
    testing::key,
};

fn owned(model: &str, instance: Option<&str>) -> Owned {
    Owned { key: key("http://h"), model: model.into(), instance: instance.map(str::to_owned), since: 100, by: By::Us }
}

fn seen(model: &str, instance: Option<&str>) -> Seen {
    Seen { instance: instance.map(str::to_owned), ..Seen::new(model, Phase::Loaded) }
}

fn listing(rows: &[Seen]) -> Listing {
    Listing { rows: rows.to_vec() }
}

/// A listing of now.
fn see(book: &mut Book, key: &TargetKey, rows: &[Seen]) {
    let now = book.stamp();
    book.observe((key, now), &listing(rows));
}

#[test]
fn what_became_ours_after_a_listing_was_asked_for_is_not_missed_in_it() {
    let (mut book, at) = (Book::default(), key("http://h"));
    book.own(owned("a", None));
    let asked = book.stamp();
    book.own(owned("b", None));
    book.observe((&at, asked), &listing(&[]));
    let left: Vec<&str> = book.entries().map(|owned| owned.model.as_str()).collect();
    assert_eq!(left, ["b"]);
    see(&mut book, &at, &[]);
    assert_eq!(book.entries().count(), 0);
}

#[test]
fn what_goes_is_ours_and_idle_in_that_very_moment_and_goes_until_it_went() {
    let (mut book, at) = (Book::default(), key("http://h"));
    let aliased = Seen { aliases: vec!["x".into()], ..seen("a", Some("1")) };
    assert_eq!(book.go(&at, &aliased), Err(Stays::NotOurs));
    book.own(owned("a", Some("1")));
    book.begin(&at, "x");
    assert_eq!(book.go(&at, &aliased), Err(Stays::InUse));
    book.end(Now::ZERO, &at, "x");
    assert_eq!((book.go(&at, &aliased), book.is_going(&at, "x")), (Ok(()), true));
    assert!(!book.is_going(&at, "b") && !book.is_going(&key("http://i"), "a"));
    book.went(&at, "a");
    assert!(!book.is_going(&at, "x"));
}

#[test]
fn a_load_under_way_is_known_by_what_the_server_shows_of_it_until_it_ends() {
    let (mut book, at) = (Book::default(), key("http://h"));
    book.come(owned("a", None));
    book.coming_as(&at, "b", &seen("b", Some("2")));
    book.coming_as(&at, "a", &seen("a", Some("1")));
    assert_eq!(book.coming().collect::<Vec<_>>(), [&owned("a", Some("1"))]);
    assert!(book.owned(&at, &seen("a", Some("1"))).is_none(), "not ours yet");
    assert_eq!(book.came(&at, "a"), Some(owned("a", Some("1"))));
    assert_eq!(book.coming().count(), 0);
}

#[test]
fn another_load_of_the_same_model_is_not_ours() {
    let mut book = Book::default();
    book.own(owned("a", Some("1")));
    assert!(book.owned(&key("http://h/v1"), &seen("a", Some("1"))).is_some());
    assert!(book.owned(&key("http://h"), &seen("a", Some("2"))).is_none());
    assert!(book.owned(&key("http://i"), &seen("a", Some("1"))).is_none());
    see(&mut book, &key("http://i"), &[]);
    assert_eq!(book.entries().count(), 1, "another server's listing says nothing");
    see(&mut book, &key("http://h"), &[seen("a", Some("2"))]);
    assert_eq!(book.entries().count(), 0);
}

#[test]
fn after_a_crash_only_the_very_same_load_is_taken_over() {
    let written = [owned("a", Some("1")), owned("b", Some("1")), owned("c", None), owned("d", Some("1"))];
    let there = listing(&[seen("a", Some("1")), seen("b", Some("2")), seen("c", None)]);
    let mut book = Book::default();
    book.take_over(&key("http://i"), &written, &there);
    assert_eq!(book.entries().count(), 0, "that is another server");
    book.take_over(&key("http://h"), &written, &there);
    assert_eq!(book.entries().map(|owned| owned.model.as_str()).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn a_model_is_in_use_until_its_last_lease_ends_by_whatever_name() {
    let (mut book, at) = (Book::default(), key("http://h"));
    let aliased = Seen { aliases: vec!["x".into()], ..seen("a", None) };
    assert_eq!(book.used(&at, &aliased), Used::Idle(None));
    book.own(owned("a", None));
    book.begin(&at, "a");
    book.begin(&at, "x");
    book.end(Now::from_nanos(5), &at, "a");
    assert_eq!(book.used(&at, &aliased), Used::InUse);
    book.end(Now::from_nanos(9), &at, "x");
    assert_eq!(book.used(&at, &aliased), Used::Idle(Some(Now::from_nanos(9))));
}

#[test]
fn names_that_requests_made_up_are_forgotten_when_they_end() {
    let (mut book, at, other) = (Book::default(), key("http://h"), key("http://i"));
    let use_once = |book: &mut Book, at: &TargetKey, model: &str| {
        book.begin(at, model);
        book.end(Now::from_nanos(5), at, model);
    };
    use_once(&mut book, &at, "made up");
    assert_eq!(book.used.len(), 0, "nothing is ours there");
    book.own(owned("a", None));
    for model in ["a", "made up"] {
        use_once(&mut book, &at, model);
    }
    use_once(&mut book, &other, "made up");
    book.begin(&at, "waits");
    see(&mut book, &other, &[]);
    assert_eq!(book.used.len(), 3, "another server's listing says nothing");
    see(&mut book, &at, &[seen("a", None)]);
    let names: Vec<&str> = book.used.keys().map(|(_, model)| model.as_str()).collect();
    assert_eq!(names, ["a", "waits"], "what is resident, and what is used");
    book.end(Now::from_nanos(9), &at, "never begun");
    assert_eq!(book.used.len(), 2);
}

#[test]
fn a_helpers_load_is_adopted_for_a_known_target_and_then_protected() {
    let (mut book, at) = (Book::default(), key("http://h"));
    assert_eq!(book.adopt(owned("a", None), &[key("http://i")]), Adoption::Refused);
    assert_eq!(book.entries().count(), 0);
    assert_eq!(book.adopt(owned("a", None), std::slice::from_ref(&at)), Adoption::Taken);
    let set = ProtectedSet::Known(Vec::new());
    let residents = assess(&listing(&[seen("a", None), seen("b", None)]), &at, &book, &set);
    let told: Vec<_> = residents.iter().map(|one| (one.owner, one.protection)).collect();
    assert_eq!(told, [(Owner::Ours(By::Worker), Protection::Worker), (Owner::Foreign, Protection::None)]);
    assert_eq!(book.leaving(Leaving::Everything).len(), 1, "released on exit all the same");
    book.forget(&at, "a");
    let residents = assess(&listing(&[seen("a", None)]), &at, &book, &set);
    assert_eq!((residents[0].owner, residents[0].protection), (Owner::Foreign, Protection::None));
}

#[test]
fn a_probe_releases_what_became_ours_during_it_and_is_its_own() {
    let mut book = Book::default();
    let before = book.stamp();
    book.own(owned("a", None));
    let after = book.stamp();
    book.own(owned("b", None));
    let at = key("http://h");
    let n = |since, key: &TargetKey, model| book.leaving(Leaving::Probe { since, key, model }).len();
    let (other, none) = (n(before, &key("http://i"), "a"), n(before, &at, "c"));
    assert_eq!((n(before, &at, "a"), n(after, &at, "a"), n(after, &at, "b"), other, none), (1, 0, 1, 0, 0));
    assert_eq!(book.leaving(Leaving::Everything).len(), 2);
}
