//! What of the environment reaches an engine.
use super::{manifest, values};
use motorpool_catalog::{LaunchValues, Manifest, Source, parse_manifest};
use proptest::prelude::*;
use std::{collections::BTreeSet, ffi::OsString};

#[test]
fn devices_are_shown_by_a_variable_that_the_manifest_lets_through_in_the_place_of_the_operators() {
    let parent = |name: &str| name.ends_with("_VISIBLE_DEVICES").then(|| OsString::from("7"));
    let shown = |variable: &str| {
        let visible = Some((variable.to_owned(), "GPU-b,GPU-a".to_owned()));
        let environment = manifest().environment(&parent, &LaunchValues { visible, ..values() });
        let of = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        [of("CUDA_VISIBLE_DEVICES"), of("ROCR_VISIBLE_DEVICES"), of("HIP_VISIBLE_DEVICES"), of("LD_PRELOAD")]
    };
    let (ours, theirs) = (|| Some("GPU-b,GPU-a".into()), || Some("7".into()));
    assert_eq!(shown("CUDA_VISIBLE_DEVICES"), [ours(), theirs(), None, None]);
    assert_eq!(shown("ROCR_VISIBLE_DEVICES"), [theirs(), ours(), None, None]);
    assert_eq!(shown("LD_PRELOAD"), [theirs(), theirs(), theirs(), None]);
}

#[test]
fn an_engine_that_cannot_be_told_devices_sees_none_when_it_is_planned_for_the_processor() {
    let text = include_str!("../../../../../engines/whisper-server.toml")
        .replace("\"CUDA_VISIBLE_DEVICES\"]", "\"CUDA_VISIBLE_DEVICES\", \"HIP_VISIBLE_DEVICES\"]");
    let whisper = parse_manifest(Source { file: "whisper-server.toml", text: &text }, &|_| None).expect("valid");
    let parent = |name: &str| name.ends_with("_VISIBLE_DEVICES").then(|| OsString::from("0,1"));
    let shown = |manifest: &Manifest, devices: &[&str]| {
        let devices = devices.iter().map(|name| (*name).to_owned()).collect();
        let environment = manifest.environment(&parent, &LaunchValues { devices, ..values() });
        let shown = environment.into_iter().filter(|(name, _)| name.ends_with("_VISIBLE_DEVICES"));
        shown.map(|(name, value)| format!("{name}={}", value.display())).collect::<Vec<_>>()
    };
    assert_eq!(shown(&whisper, &["none"]), ["CUDA_VISIBLE_DEVICES=-1", "HIP_VISIBLE_DEVICES=-1"]);
    assert_eq!(shown(&whisper, &[]), ["CUDA_VISIBLE_DEVICES=0,1", "HIP_VISIBLE_DEVICES=0,1"]);
    let told = shown(manifest(), &["none"]);
    assert!(told.contains(&"CUDA_VISIBLE_DEVICES=0,1".to_owned()), "it is told by its arguments: {told:?}");
}

#[test]
fn a_variable_that_a_manifest_sets_itself_is_not_ours_to_show_devices_by() {
    let text = include_str!("../../../../../engines/llama-server.toml")
        .replace("CUDA_DEVICE_ORDER = \"PCI_BUS_ID\"", "CUDA_VISIBLE_DEVICES = \"1\"");
    let manifest = parse_manifest(Source { file: "x.toml", text: &text }, &|_| None).expect("valid");
    assert!(!manifest.passes("CUDA_VISIBLE_DEVICES") && manifest.passes("ROCR_VISIBLE_DEVICES"));
}

#[test]
fn a_variable_whose_value_is_absent_is_not_there_at_all() {
    let text = include_str!("../../../../../engines/llama-server.toml")
        .replace("CUDA_DEVICE_ORDER = \"PCI_BUS_ID\"", "HOME = \"{gpu_layers}\"");
    let manifest = parse_manifest(Source { file: "x", text: &text }, &|_| None).expect("valid");
    let environment = manifest.environment(&|_| Some("/home/ann".into()), &values());
    assert!(!environment.iter().any(|(name, _)| name == "HOME"), "not even the inherited one");
}

proptest! {
    #[test]
    fn nothing_outside_the_list_leaks_into_an_engine(
        names in prop::collection::btree_set("(LLAMA_ARG_|HF_|AIP_|LISTEN_|WATCHDOG_|LD_|CUDA_)?[A-Z_]{1,8}", 0..40),
        value in "[a-z]{1,8}",
    ) {
        let always = ["NOTIFY_SOCKET", "LISTEN_FDS", "WATCHDOG_USEC", "LLAMA_ARG_CTX_SIZE", "HF_TOKEN", "AIP_MODE"];
        let names: BTreeSet<String> = names.into_iter().chain(always.map(str::to_owned)).collect();
        let secret = format!("leaked-{value}");
        let parent = |name: &str| names.contains(name).then(|| OsString::from(&secret));
        let manifest = manifest();
        for (name, value) in manifest.environment(&parent, &values()) {
            let allowed = manifest.env_allow.contains(&name);
            prop_assert!(allowed || manifest.env_set.contains_key(&name), "{name}");
            prop_assert_eq!(value == *secret, allowed && names.contains(&name), "{}", name);
            prop_assert!(!always.contains(&name.as_str()));
        }
    }
}
