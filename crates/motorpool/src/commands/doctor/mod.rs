//! `motorpool doctor`: what could go wrong here, each finding with its cure.
//!
//! It looks, and changes nothing. What is read at the edge are plain values; each is judged by a pure function, so that
//! every finding is a test with made-up readings:
//!
//! | readings | judged in |
//! | --- | --- |
//! | memory, swap, control group, limits | `system.rs` |
//! | device files, drivers, devices, what engines can compute on | `graphics.rs` |
//! | directories, budget, engines, models, addresses, the daemon | `software.rs` |
//! | model servers that run already | `servers.rs` |
mod finding;
mod graphics;
mod servers;
mod software;
mod system;

use crate::{
    dirs::Dirs,
    engine::devices::Keep,
    exit::{Exit, Failure},
    machine::{self, Machine},
    out::{self, Out},
    settings::Settings,
};
use finding::{Finding, State};
use graphics::Seen;
use motorpool_pool::Budget;
use motorpool_supervisor::{Drivers, Sighted};
use motorpool_vocab::Bytes;
use std::{path::Path, time::Duration};
use system::System;

/// A daemon that takes longer hangs: what it is asked is at hand.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

pub(super) async fn perform(dirs: &Dirs, out: Out, config: Option<&Path>) -> Result<(), Failure> {
    let findings = look(dirs, config).await;
    out.data(&findings, || for_people(&findings))?;
    let n_faults = findings.iter().filter(|finding| finding.state == State::Fault).count();
    if n_faults == 0 { Ok(()) } else { Err(Failure::silent(Exit::Findings)) }
}

/// Everything there is to say, always in this order.
async fn look(dirs: &Dirs, config: Option<&Path>) -> Vec<Finding> {
    let mut findings = software::places(dirs);
    let system = System::read();
    let daemon = software::daemon(dirs).await;
    let settings = Settings::load(dirs, config);
    let locks = settings.as_ref().ok().and_then(locking_model);
    findings.extend(system.findings(locks.as_deref()));
    let sighted = match Drivers::new() {
        Ok(drivers) => Some(drivers.look().await),
        Err(_) => None,
    };
    let machine = match (&settings, &sighted) {
        (Ok(settings), Some(sighted)) => Some(machine::survey((dirs, settings), sighted.clone(), Keep::AskAnew).await),
        _ => None,
    };
    let found = machine.as_ref().and_then(|machine| machine.as_ref().ok());
    findings.extend(seen(sighted, found, &system).findings());
    match settings {
        Ok(settings) => {
            findings.extend(configured((dirs, &settings), &system, machine).await);
            if daemon.is_none() {
                findings.extend(software::read_addresses(&settings).iter().map(software::address));
            }
        }
        Err(error) => findings.push(Finding::fault("configuration", error.into())),
    }
    findings.push(daemon.unwrap_or_else(|| Finding::note("daemon", "none is running", "run `motorpool up`")));
    findings
}

fn seen(sighted: Option<Sighted>, machine: Option<&Machine>, system: &System) -> Seen {
    let called = |gpu: &motorpool_devices::Gpu| {
        if gpu.name.is_empty() { gpu.id.to_string() } else { format!("{} ({})", gpu.name, gpu.id) }
    };
    let useless = machine.map_or_else(Vec::new, |machine| machine.useless.iter().map(called).collect());
    Seen { sighted, nodes: graphics::read_nodes(), useless, pid_space: system.pid_space }
}

/// What follows from a configuration that can be read.
async fn configured(
    (dirs, settings): (&Dirs, &Settings),
    system: &System,
    machine: Option<Result<Machine, Failure>>,
) -> Vec<Finding> {
    let file = settings.file.as_ref().map_or_else(|| "no file: defaults".to_owned(), |path| path.display().to_string());
    let mut findings = vec![Finding::good("configuration", file)];
    let machine = match machine {
        Some(Err(failure)) => {
            findings.push(Finding::fault("budget", failure));
            None
        }
        Some(Ok(machine)) => Some(machine),
        None => None,
    };
    let bound = machine.as_ref().map(|machine| software::budget_of(settings, &machine.host));
    let bound = match bound {
        Some(Err(error)) => {
            findings.push(Finding::fault("budget", error.into()));
            None
        }
        Some(Ok(bound)) => Some(bound),
        None => None,
    };
    let cards = machine.iter().flat_map(|machine| machine.host.cards.iter().map(|card| card.total));
    let all = system.ram.as_ref().ok().map(|ram| ram.total.saturating_add(Bytes::sum(cards)));
    findings.extend(bound.map(|bound| software::budget(bound, all)));
    for manifest in settings.catalog.manifests() {
        let graphics = machine.as_ref().map(|machine| &machine.graphics);
        findings.extend(software::engine((dirs, settings), manifest, graphics).await);
    }
    findings.extend(software::models(dirs, settings, bound.and_then(|(bytes, _)| Budget::of(bytes).bound())));
    findings.extend(servers::findings(dirs, &settings.config).await);
    findings
}

/// A model that asks its engine to lock it into memory.
fn locking_model(settings: &Settings) -> Option<String> {
    let asks = |model: &&std::sync::Arc<motorpool_catalog::Model>| model.extra_args.iter().any(|arg| arg == "--mlock");
    settings.catalog.models().find(asks).map(|model| model.id.to_string())
}

fn for_people(findings: &[Finding]) -> String {
    let colours = out::colours(&std::io::stdout());
    let line = |Finding { what, state, found, cure }: &Finding| {
        let (mark, colour) = match state {
            State::Good => ("ok   ", out::GREEN),
            State::Note => ("note ", out::YELLOW),
            State::Fault => ("FAULT", out::RED),
        };
        let (colour, plain) = if colours { (colour, out::UNCOLOURED) } else { ("", "") };
        let cure =
            cure.as_ref().filter(|cure| !cure.is_empty()).map_or_else(String::new, |cure| format!("      {cure}\n"));
        format!("{colour}{mark}{plain} {what}: {found}\n{cure}")
    };
    findings.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_catalog::Listen;
    use software::Address;
    use std::io::{self, ErrorKind};

    fn addresses() -> Vec<Address> {
        let listen = || Listen::Tcp("127.0.0.1:1".parse().expect("an address"));
        let of = |bound, holder| Address { listen: listen(), bound, holder };
        let kinds = [ErrorKind::AddrInUse, ErrorKind::PermissionDenied, ErrorKind::Other];
        let taken = Some((7, "somebody".to_owned()));
        let mut all: Vec<_> = kinds.iter().map(|kind| of(Err(io::Error::from(*kind)), None)).collect();
        all.push(of(Err(ErrorKind::AddrInUse.into()), taken));
        all.push(of(Ok(()), None));
        all
    }

    #[test]
    fn every_finding_that_is_not_good_has_its_cure_and_no_good_one_has() {
        let systems = system::tests::all();
        let of_systems = systems.iter().flat_map(|system| [None, Some("m")].map(|locks| system.findings(locks)));
        let of_graphics = graphics::tests::all().into_iter().map(|seen| seen.findings());
        let sizes = [(1, 64), (12, 64), (128, 64)].map(|(bound, all)| (Bytes::gib(bound), Bytes::gib(all)));
        let budgets = [(Bytes::mib(1), Bytes::gib(1))].into_iter().chain(sizes);
        let budgets = budgets.map(|(bound, all)| software::budget((bound, "configured"), Some(all))).collect();
        let addresses = addresses().iter().map(software::address).collect();
        let all: Vec<Finding> = of_systems.chain(of_graphics).chain([budgets, addresses]).flatten().collect();
        for finding in &all {
            let has_cure = finding.cure.as_ref().is_some_and(|cure| cure.len() > 8);
            assert_eq!(has_cure, finding.state != State::Good, "{finding:?}");
            assert!(!finding.found.is_empty() && !finding.found.contains('\n'), "{finding:?}");
        }
        for state in [State::Good, State::Note, State::Fault] {
            assert!(all.iter().any(|finding| finding.state == state), "{state:?}");
        }
    }

    #[test]
    fn an_address_that_is_taken_names_who_has_it() {
        let found = software::address(&addresses()[3]).found;
        assert!(found.ends_with("is in use by another program: somebody (process 7)"), "{found}");
    }

    #[test]
    fn programs_read_findings_by_these_names() {
        let finding = Finding::note("swap", "much", "less");
        let text = serde_json::to_string(&[finding, Finding::good("disk", "room")]).expect("JSON");
        let expected = r#"[{"what":"swap","state":"note","found":"much","cure":"less"},{"what":"disk","state":"good","found":"room","cure":null}]"#;
        assert_eq!(text, expected);
    }
}
