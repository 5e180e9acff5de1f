//! The files that put the pool into service managers and images, held against those who read them and against the
//! program.
//!
//! No image is built here and nothing runs on macOS: what can be read is read.
use motorpool_tests::{e2e::House, tidy::tree};
use std::{fs, path::PathBuf, process::Command, time::Duration};

fn packaging() -> PathBuf {
    tree::root().join("crates/motorpool/packaging")
}

fn read(name: &str) -> String {
    fs::read_to_string(packaging().join(name)).expect("a file that is shipped")
}

/// `Key=Value` of each line that says something.
fn assignments(unit: &str) -> Vec<(&str, &str)> {
    let lines = unit.lines().filter(|line| !line.starts_with(['#', '[']) && !line.is_empty());
    lines.map(|line| line.split_once('=').expect("an assignment")).collect()
}

fn only<'a>(unit: &'a str, key: &str) -> &'a str {
    let found: Vec<_> = assignments(unit).into_iter().filter(|(k, _)| *k == key).collect();
    assert_eq!(found.len(), 1, "{key} stands there once");
    found[0].1
}

#[test]
fn the_units_of_systemd_feed_the_watchdog_and_let_each_engine_have_its_group() {
    for name in ["motorpool.service", "motorpool-user.service"] {
        let unit = read(name);
        assert_eq!(only(&unit, "Type"), "notify", "{name}");
        assert_eq!(only(&unit, "ExecReload"), "/bin/kill -HUP $MAINPID", "{name}");
        assert_eq!(only(&unit, "KillMode"), "mixed", "{name}: engines are ours to stop");
        assert_eq!(only(&unit, "OOMPolicy"), "continue", "{name}: one engine's end is not the end of all");
        assert_eq!(only(&unit, "Delegate"), "yes", "{name}");
        assert!(only(&unit, "ExecStart").ends_with("motorpool serve"), "{name}");
        only(&unit, "WatchdogSec");
    }
}

#[test]
fn the_unit_of_the_machine_hides_no_card_and_no_control_group() {
    let unit = read("motorpool.service");
    for forbidden in ["PrivateDevices", "ProtectClock", "ProtectControlGroups", "MemoryDenyWriteExecute", "ProtectProc"]
    {
        assert!(assignments(&unit).iter().all(|(key, _)| *key != forbidden), "{forbidden} would break engines");
    }
    assert_eq!(only(&unit, "CapabilityBoundingSet"), "");
    assert_eq!(only(&unit, "ProtectSystem"), "strict");
}

#[test]
fn a_service_is_given_longer_to_stop_than_it_takes() {
    let config = motorpool_catalog::Config::default();
    // What its engines hold of sessions is written first, for as long as a polite stop may take; then something is left for
    // the process itself.
    let needed = config.shutdown.grace + 2 * config.stop.polite + config.stop.kill + Duration::from_secs(1);
    for name in ["motorpool.service", "motorpool-user.service"] {
        let unit = read(name);
        let given = only(&unit, "TimeoutStopSec").strip_suffix('s').and_then(|s| s.parse().ok()).expect("seconds");
        assert!(needed.as_secs() < given, "{name}: {needed:?} are needed");
    }
    let plist = read("motorpool.plist");
    let given = plist
        .split_once("<key>ExitTimeOut</key>")
        .and_then(|(_, rest)| rest.split_once("<integer>")?.1.split_once('<')?.0.parse::<u64>().ok());
    assert!(needed.as_secs() < given.expect("a number"), "{needed:?} are needed");
}

/// Only where there is a systemd that can be asked; the other tests here hold everywhere.
#[test]
#[expect(clippy::print_stderr, reason = "says what was not looked at")]
fn systemd_finds_nothing_wrong_with_the_units() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!("no systemd-analyze here: the units were not read by systemd");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for (name, manager) in
        [("motorpool.service", "--system"), ("motorpool.socket", "--system"), ("motorpool-user.service", "--user")]
    {
        // The program of a unit must be there; it is not installed where tests run.
        let unit =
            read(name).replace("/usr/local/bin/motorpool", "/bin/true").replace("%h/.cargo/bin/motorpool", "/bin/true");
        let path = folder.path().join(name);
        fs::write(&path, unit).expect("written");
        let mut ask = Command::new("systemd-analyze");
        ask.args(["verify", "--man=no", manager]).arg(&path).env("XDG_RUNTIME_DIR", folder.path());
        let said = ask.output().expect("it was there");
        let text = String::from_utf8_lossy(&said.stderr);
        assert!(said.status.success() && !text.contains(name), "{name}: {text}");
    }
}

#[test]
fn the_list_of_properties_reads_as_launchd_reads_it() {
    let script = "import plistlib, sys\n\
                  p = plistlib.load(open(sys.argv[1], 'rb'))\n\
                  assert p['Label'] == 'motorpool' and p['ProgramArguments'][1:] == ['serve'], p\n\
                  assert p['KeepAlive'] == {'SuccessfulExit': False} and p['RunAtLoad'] is True, p\n";
    let said = Command::new("python3").args(["-c", script]).arg(packaging().join("motorpool.plist")).output();
    let said = said.expect("python3 is on the machine");
    assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
}

#[test]
fn the_image_runs_as_nobody_special_and_copies_what_is_there() {
    let file = read("Dockerfile");
    let last = file.rsplit("\nFROM ").next().expect("a stage");
    let user = last.lines().filter_map(|line| line.strip_prefix("USER ")).next_back();
    assert_eq!(user, Some("motorpool"), "the last word on the user");
    // What it installs is for whoever installs it alone.
    let installs = file.split("\nRUN ").find(|run| run.contains("motorpool engine install")).expect("an engine");
    let run = installs.lines().take_while(|line| !line.is_empty()).collect::<Vec<_>>().join("\n");
    assert!(run.ends_with("&& chmod -R a+rX /opt/motorpool"), "{user:?} can enter what root installed: {run}");
    for copied in file.lines().filter_map(|line| line.strip_prefix("COPY ")).filter(|line| !line.starts_with("--")) {
        let from = copied.split(' ').next().expect("a source");
        assert!(tree::root().join(from).exists(), "{from} is copied");
    }
    let commands =
        Command::new(House::new().command(&[]).as_std().get_program()).arg("--help").output().expect("it runs").stdout;
    let commands = String::from_utf8(commands).expect("text");
    for used in ["  serve ", "  ps ", "  engine "] {
        assert!(commands.contains(used), "the image uses `{used}`");
    }
}

/// What an image or another machine of the same kind must bring: the C library, and nothing that cards bring.
#[test]
fn the_program_needs_the_c_library_alone() {
    let said = Command::new("ldd")
        .arg(House::new().command(&[]).as_std().get_program())
        .output()
        .expect("ldd of the C library");
    let said = String::from_utf8(said.stdout).expect("text");
    let needed: Vec<&str> = said.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let usual = |name: &str| ["linux-vdso", "libc.", "libm.", "libgcc_s.", "ld-linux"].iter().any(|n| name.contains(n));
    assert!(needed.len() > 2 && needed.iter().all(|name| usual(name)), "{said}");
}
