//! The dashboard for Grafana uses only names that there are, with labels that they have.
use regex::Regex;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What every series has from whoever scrapes, and every bucket.
const ANYWHERE: [&str; 2] = ["instance", "le"];
/// Names by which a family is read.
const ENDS: [&str; 4] = ["", "_bucket", "_sum", "_count"];

/// The labels of each name.
fn known() -> BTreeMap<String, BTreeSet<&'static str>> {
    let mut known = BTreeMap::new();
    for line in include_str!("../../crates/gateway/src/metrics/names.txt").lines() {
        let mut words = line.split(' ');
        let (name, kind) = (words.next().expect("a name"), words.next().expect("a kind"));
        let labels: BTreeSet<_> = words.next().into_iter().flat_map(|labels| labels.split(',')).collect();
        let ends = if kind == "histogram" { &ENDS[..] } else { &ENDS[..1] };
        known.extend(ends.iter().map(|end| (format!("{name}{end}"), labels.clone())));
    }
    known
}

/// Every expression in a document, and every query of a variable.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            let texts = ["expr", "definition"].iter().filter_map(|name| members.get(*name)?.as_str());
            found.extend(texts.map(str::to_owned));
            members.values().for_each(|member| expressions(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions(item, found)),
        _ => {}
    }
}

/// What is wrong with an expression.
fn faults(expression: &str, known: &BTreeMap<String, BTreeSet<&'static str>>) -> Vec<String> {
    let names = Regex::new(r"\b[a-z_]+:?[a-z_]*_[a-z_]+\b").expect("valid");
    let functions = ["histogram_quantile", "label_values"];
    let used: Vec<_> = names
        .find_iter(expression)
        .map(|name| name.as_str())
        .filter(|name| !functions.contains(name) && !name.starts_with("__"))
        .collect();
    let mut faults: Vec<String> =
        used.iter().filter(|name| !known.contains_key(**name)).map(ToString::to_string).collect();
    if used.is_empty() {
        faults.push("no name".to_owned());
    }
    let there: BTreeSet<&str> =
        used.iter().filter_map(|name| known.get(*name)).flatten().copied().chain(ANYWHERE).collect();
    let groups = Regex::new(r"by \(([a-z_, ]+)\)|([a-z_]+)(?:=~|!=|!~|=)|, ([a-z_]+)\)$").expect("valid");
    for group in groups.captures_iter(expression) {
        let labels = group.iter().skip(1).flatten().flat_map(|labels| labels.as_str().split(", "));
        faults.extend(labels.filter(|label| !there.contains(label)).map(|label| format!("label {label}")));
    }
    faults
}

#[test]
fn every_expression_of_the_dashboard_is_about_something_that_there_is() {
    let document: Value =
        serde_json::from_str(include_str!("../../crates/motorpool/packaging/grafana.json")).expect("JSON");
    let mut all = Vec::new();
    expressions(&document, &mut all);
    assert!(all.len() > 30, "{}", all.len());
    let known = known();
    for expression in &all {
        assert_eq!(faults(expression, &known), Vec::<String>::new(), "{expression}");
    }
    let used = |name: &&String| all.iter().any(|expression| expression.contains(name.as_str()));
    let unused: Vec<_> = known
        .keys()
        .filter(|name| !ENDS[1..].iter().any(|end| name.ends_with(end)))
        .filter(|name| !used(name))
        .collect();
    assert_eq!(unused, ["motorpool_lora_requests_info"], "only what a scheduler reads is not shown");
}

#[test]
fn a_name_or_a_label_that_there_is_not_is_found() {
    let known = known();
    for (expression, fault) in [
        ("rate(motorpool_requests[1m])", "motorpool_requests"),
        ("sum by (colour) (motorpool_model_slots)", "label colour"),
        ("motorpool_model_slots{device=\"a\"}", "label device"),
        ("label_values(motorpool_model_slots, device)", "label device"),
        ("motorpool_model_slots_bucket", "motorpool_model_slots_bucket"),
        ("1", "no name"),
    ] {
        assert_eq!(faults(expression, &known), [fault], "{expression}");
    }
}
