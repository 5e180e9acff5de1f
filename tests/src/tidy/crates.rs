//! Checks what crates depend on, as `cargo metadata` tells it.
use super::{
    Complaint,
    house::{self, Crate, FOR_PURE_TESTS, Nature, RESERVED, WITHOUT_DEPENDENCIES},
};
use serde::Deserialize;
use std::{path::Path, process::Command};

/// A member of the workspace.
#[derive(Clone, Debug, Deserialize)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Where its manifest lies.
    pub manifest_path: String,
    /// What it asks for itself.
    pub dependencies: Vec<Dependency>,
}

/// One line of its dependencies.
#[derive(Clone, Debug, Deserialize)]
pub struct Dependency {
    /// The package asked for.
    pub name: String,
    /// `dev`, `build`, or nothing.
    pub kind: Option<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// The members of the workspace at `root`.
///
/// # Panics
/// When cargo fails; it runs this test, so it can.
pub fn members(root: &Path) -> Vec<Package> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--format-version", "1", "--offline"])
        .current_dir(root)
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("its own format");
    metadata.packages
}

/// Every dependency that the drawing of the house does not show.
pub fn check(members: &[Package]) -> Vec<Complaint> {
    members.iter().filter(|package| package.name != "motorpool-tests").flat_map(check_package).collect()
}

fn check_package(package: &Package) -> Vec<Complaint> {
    let folder = folder(package);
    let Some(place) = house::find(folder) else {
        return vec![format!("crates/{folder}: the drawing of the house does not show it")];
    };
    let mut complaints: Vec<Complaint> =
        package.dependencies.iter().filter_map(|wanted| why_not(place, wanted)).collect();
    let name = house::package_name(folder);
    if package.name != name {
        complaints.push(format!("crates/{folder}: its package is called {}, not {name}", package.name));
    }
    complaints
}

fn folder(package: &Package) -> &str {
    let directory = Path::new(&package.manifest_path).parent().and_then(Path::file_name);
    directory.and_then(|name| name.to_str()).unwrap_or_default()
}

fn why_not(place: &Crate, wanted: &Dependency) -> Option<Complaint> {
    let is_for_tests = wanted.kind.as_deref() == Some("dev");
    let why = match our_folder(&wanted.name) {
        _ if WITHOUT_DEPENDENCIES.contains(&place.folder) => "it is to depend on nothing",
        Some("testkit") if is_for_tests => return None,
        Some("testkit") => "testkit is for tests only",
        Some(ours) if place.ours.contains(&ours) => return None,
        Some(_) if is_for_tests && place.nature != Nature::Pure => return None,
        // A test may make what its crate is only handed.
        Some(ours) if is_for_tests && is_above(ours, place.folder) => return None,
        Some(_) => "the drawing of the house has no such line",
        None if !is_for_tests && is_reserved_from(place, &wanted.name) => "another crate alone may use it",
        None if place.nature != Nature::Pure || place.others.contains(&wanted.name.as_str()) => return None,
        None if is_for_tests && FOR_PURE_TESTS.contains(&wanted.name.as_str()) => return None,
        None => "a crate above the line names all it uses in tidy/house.rs",
    };
    Some(format!("crates/{}: depends on {}: {why}", place.folder, wanted.name))
}

fn is_above(one: &str, other: &str) -> bool {
    let place = |folder: &str| house::HOUSE.iter().position(|place| place.folder == folder);
    place(one).is_some() && place(one) < place(other)
}

fn our_folder(name: &str) -> Option<&str> {
    if name == "motorpool" { Some(name) } else { name.strip_prefix("motorpool-") }
}

fn is_reserved_from(place: &Crate, name: &str) -> bool {
    // testkit stands outside of the sentences.
    place.nature != Nature::Outside
        && RESERVED.iter().any(|(reserved, owners)| *reserved == name && !owners.contains(&place.folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(folder: &str, name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        Package {
            name: name.into(),
            manifest_path: format!("/w/crates/{folder}/Cargo.toml"),
            dependencies: dependencies
                .iter()
                .map(|(name, kind)| Dependency { name: (*name).into(), kind: kind.map(str::to_owned) })
                .collect(),
        }
    }

    fn n_complaints(folder: &str, dependency: &str, kind: Option<&str>) -> usize {
        check(&[package(folder, &house::package_name(folder), &[(dependency, kind)])]).len()
    }

    #[test]
    fn a_line_that_the_drawing_does_not_show_is_found() {
        assert_eq!(n_complaints("broker", "motorpool-gguf", None), 0);
        assert_eq!(n_complaints("gguf", "motorpool-broker", None), 1);
        assert_eq!(n_complaints("vocab", "motorpool-gguf", Some("dev")), 1);
        assert_eq!(n_complaints("pool", "motorpool-gguf", Some("dev")), 0);
        assert_eq!(n_complaints("pool", "motorpool-gguf", None), 1);
        assert_eq!(n_complaints("gateway", "motorpool-devices", None), 1);
        assert_eq!(n_complaints("gateway", "motorpool-devices", Some("dev")), 0);
        assert_eq!(n_complaints("pool", "motorpool-testkit", Some("dev")), 0);
        assert_eq!(n_complaints("supervisor", "motorpool-testkit", None), 1);
        assert_eq!(n_complaints("dashboard", "motorpool-vocab", None), 1);
    }

    #[test]
    fn a_pure_crate_with_a_runtime_is_found() {
        assert_eq!(n_complaints("pool", "tokio", None), 1);
        assert_eq!(n_complaints("pool", "tokio", Some("dev")), 1);
        assert_eq!(n_complaints("broker", "serde", None), 1);
        assert_eq!(n_complaints("pool", "proptest", Some("dev")), 0);
        assert_eq!(n_complaints("supervisor", "tokio", None), 0);
    }

    #[test]
    fn a_second_crate_that_serves_or_reads_devices_is_found() {
        assert_eq!(n_complaints("supervisor", "axum", None), 1);
        assert_eq!(n_complaints("gateway", "nvml-wrapper", None), 1);
        assert_eq!(n_complaints("gateway", "axum", None), 0);
    }

    #[test]
    fn the_fake_library_of_a_driver_depends_on_nothing_and_no_product_on_it() {
        assert_eq!(n_complaints("fake-nvml", "libc", None), 1);
        assert_eq!(n_complaints("fake-nvml", "motorpool-testkit", Some("dev")), 1);
        assert_eq!(n_complaints("devices", "motorpool-fake-nvml", Some("dev")), 0);
        assert_eq!(n_complaints("devices", "motorpool-fake-nvml", None), 1);
    }

    #[test]
    fn a_crate_without_a_place_or_with_a_wrong_name_is_found() {
        assert_eq!(check(&[package("utils", "motorpool-utils", &[])]).len(), 1);
        assert_eq!(check(&[package("pool", "pool", &[])]).len(), 1);
        assert_eq!(check(&[package("motorpool", "motorpool", &[])]).len(), 0);
    }
}
