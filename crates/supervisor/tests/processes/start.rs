//! From the order to exec: what is written when, what the engine gets, how a start fails.
use crate::support::{House, is_alive, keeper, kill, rest, until, until_file};
use motorpool_supervisor::{KeeperProgram, LaunchError, Launcher};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use std::{fs, io, os::unix::fs::PermissionsExt as _};

#[tokio::test]
async fn nothing_runs_before_go_and_everything_is_known_before() {
    let house = House::new();
    let mut order = house.script("touch ran; echo ran");
    order.socket = Some(house.path("e.sock"));
    fs::write(house.path("e.sock"), "").expect("writable");
    let blocked = house.launcher.block(order).await.expect("a shell");
    let engine = motorpool_devices::observe_process(blocked.engine().pid).expect("forked");
    assert_eq!(engine.start_time, blocked.engine().start_time);
    assert_eq!((engine.ppid, engine.pgid), (blocked.keeper().pid, engine.pid));
    assert!(house.journal().contains("\"record\":\"intent\",\"spawn\":1,"));
    assert!(!house.journal().contains("\"record\":\"born\""), "block alone does not write it");
    assert!(!house.path("e.sock").exists(), "the old socket is out of the way");
    assert!(!house.path("ran").exists());
    let mut kept = blocked.go().await.expect("a shell");
    assert_eq!(kept.until_gone().await.code, Some(0));
    assert!(house.path("ran").exists());
}

#[tokio::test]
async fn an_engine_dropped_between_birth_and_go_never_runs() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran")).await.expect("a shell");
    let (keeper, engine) = (blocked.keeper().pid, blocked.engine().pid);
    drop(blocked);
    until("both are dead", || !is_alive(keeper) && !is_alive(engine)).await;
    assert!(!house.path("ran").exists());
}

#[tokio::test]
async fn an_engine_whose_keeper_is_killed_between_birth_and_go_never_runs() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran")).await.expect("a shell");
    let engine = blocked.engine().pid;
    kill(blocked.keeper().pid);
    assert!(matches!(blocked.go().await, Err(LaunchError::KeeperLost)));
    assert!(!is_alive(engine) && !house.path("ran").exists());
}

#[tokio::test]
async fn an_engine_killed_between_birth_and_go_never_runs_and_its_end_is_told() {
    let house = House::new();
    let blocked = house.launcher.block(house.script("touch ran")).await.expect("a shell");
    kill(blocked.engine().pid);
    // The keeper may hear of the go before it hears of the death.
    match blocked.go().await {
        Ok(mut kept) => assert_eq!(kept.until_gone().await.signal, Some(9)),
        Err(error) => assert!(matches!(error, LaunchError::EngineLost), "{error}"),
    }
    assert!(!house.path("ran").exists());
}

#[tokio::test]
async fn every_life_is_written_down_from_intent_to_gone() {
    let house = House::new();
    let mut engine = house.run("exit 0").await;
    let process = engine.process();
    rest(&mut engine).await;
    let journal = house.journal();
    let records: Vec<&str> = ["next", "intent", "born", "gone"]
        .into_iter()
        .zip(journal.lines())
        .map(|(name, line)| if line.contains(&format!("\"record\":\"{name}\"")) { name } else { line })
        .collect();
    assert_eq!(records, ["next", "intent", "born", "gone"]);
    let engine = format!("\"engine\":{{\"pid\":{},\"start_time\":{}}}", process.pid, process.start_time);
    assert!(journal.contains(&engine), "{journal}");
}

#[tokio::test]
async fn a_program_that_cannot_be_executed_is_named_with_the_reason() {
    let house = House::new();
    fs::write(house.path("plain"), "not a program").expect("writable");
    fs::write(house.path("odd"), "not a program").expect("writable");
    fs::set_permissions(house.path("odd"), fs::Permissions::from_mode(0o755)).expect("ours");
    for (name, kind) in [
        ("absent", Some(io::ErrorKind::NotFound)),
        ("plain", Some(io::ErrorKind::PermissionDenied)),
        ("odd", None), // ENOEXEC has no kind of its own
    ] {
        let path = house.path(name);
        let order = house.program(path.to_str().expect("UTF-8"), &[]);
        let spawn = order.spawn;
        match house.launcher.launch(order).await {
            Err(LaunchError::EngineMissing { program, source }) => {
                assert_eq!(program, path);
                assert!(kind.is_none_or(|kind| source.kind() == kind), "{source}");
            }
            other => panic!("no engine, not {other:?}"),
        }
        assert!(house.journal().contains(&format!("\"record\":\"gone\",\"spawn\":{spawn}")), "it is settled");
    }
}

#[tokio::test]
async fn a_working_directory_that_is_not_there_fails_the_start() {
    let house = House::new();
    let mut order = house.script("exit 0");
    order.cwd = house.path("absent");
    assert!(house.launcher.launch(order).await.is_err());
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_fails_the_start_and_is_named() {
    let house = House::new();
    let mut order = house.script("exit 0");
    order.log = Some(house.path("absent/engine.log"));
    let error = house.launcher.launch(order).await.expect_err("no log");
    assert!(error.to_string().contains("absent/engine.log"), "{error}");
}

#[tokio::test]
async fn a_keeper_that_is_not_there_is_named() {
    let state = tempfile::tempdir().expect("a temporary directory");
    let keeper = KeeperProgram { program: state.path().join("absent"), args: Vec::new() };
    let house = House { launcher: Launcher::open(keeper, state.path()).expect("fresh"), state };
    let error = house.launcher.launch(house.script("exit 0")).await.expect_err("no keeper");
    assert!(matches!(error, LaunchError::Keeper { .. }));
    assert!(house.journal().ends_with("\"record\":\"gone\",\"spawn\":1}\n"));
}

#[tokio::test]
async fn a_keeper_that_is_no_keeper_is_lost() {
    let state = tempfile::tempdir().expect("a temporary directory");
    let keeper = KeeperProgram { program: "/bin/true".into(), args: Vec::new() };
    let house = House { launcher: Launcher::open(keeper, state.path()).expect("fresh"), state };
    let error = house.launcher.launch(house.script("exit 0")).await.expect_err("no keeper");
    assert!(matches!(error, LaunchError::KeeperLost));
}

#[tokio::test]
async fn the_environment_is_the_one_given_and_the_mark() {
    let house = House::new();
    let mut order = house.program("/usr/bin/env", &[]);
    order.environment = vec![("ONE".into(), "1".into()), ("MOTORPOOL_NONCE".into(), "forged".into())];
    let mut engine = house.launcher.launch(order).await.expect("env");
    let (lines, _) = rest(&mut engine).await;
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0] == "ONE=1" && lines[1].starts_with("MOTORPOOL_NONCE="));
    assert!(house.journal().contains(lines[1].trim_start_matches("MOTORPOOL_NONCE=")), "the one that is journaled");
}

#[tokio::test]
async fn only_the_standard_streams_are_inherited() {
    // What a careless parent leaves open must not reach the engine through us.
    let stray = fs::File::open("/dev/null").expect("there");
    fcntl(&stray, FcntlArg::F_SETFD(FdFlag::empty())).expect("ours");
    let house = House::new();
    let mut order = house.script("ls /proc/self/fd; ls -l /proc/$PPID/fd >keeper");
    order.log = Some(house.path("engine.log"));
    let mut engine = house.launcher.launch(order).await.expect("a shell");
    let (lines, _) = rest(&mut engine).await;
    assert_eq!(lines, ["0", "1", "2", "3"], "the three, and the folder that ls reads");
    let keeper = fs::read_to_string(house.path("keeper")).expect("written");
    let nulls = keeper.lines().filter(|line| line.ends_with("/dev/null")).count();
    assert_eq!(nulls, 3, "{keeper}");
}

#[tokio::test]
async fn signals_and_umask_are_as_a_program_expects_them() {
    let house = House::new();
    let order = house.program("/bin/grep", &["-E", "^(Sig(Blk|Ign)|Umask)", "/proc/self/status"]);
    let mut engine = house.launcher.launch(order).await.expect("grep");
    let (lines, _) = rest(&mut engine).await;
    assert_eq!(lines[..2], ["Umask:\t0077", "SigBlk:\t0000000000000000"]);
    let ignored = u64::from_str_radix(lines[2].trim_start_matches("SigIgn:\t"), 16).expect("a mask");
    // The C library ignores its own two, 32 and 33, in whatever it spawns, and lets nobody change that.
    assert_eq!(ignored & !0x1_8000_0000, 0, "{ignored:x}");
}

#[tokio::test]
async fn the_keeper_is_small_and_out_of_our_session() {
    let house = House::new();
    // A flood first, so that what buffers grow to is in the figure.
    let engine =
        house.run("yes 0123456789012345678901234567890123456789 | head -n 200000; touch through; read x").await;
    until_file(&house.path("through")).await;
    let facts = motorpool_devices::observe_process(engine.process().pid).expect("it lives");
    let keeper = motorpool_devices::observe_process(facts.ppid).expect("it lives");
    assert_eq!(keeper.sid, keeper.pid, "a session of its own");
    // The promise is 3 MiB for the whole product, which is many times as large as this program.
    let is_small = || {
        let memory = motorpool_devices::observe_memory(keeper.pid).expect("it lives");
        memory.anonymous.saturating_add(memory.file) <= motorpool_vocab::Bytes::mib(2)
    };
    until("it has given back what it does not need", is_small).await;
}

#[tokio::test]
async fn a_keeper_that_may_start_no_process_says_so_and_root_may_always() {
    let program = keeper().program.into();
    let house = House::with_keeper(KeeperProgram {
        program: "/usr/bin/prlimit".into(),
        args: vec!["--nproc=0:".into(), program],
    });
    match house.launcher.launch(house.script("exit 0")).await {
        Ok(mut engine) => {
            assert!(nix::unistd::Uid::effective().is_root(), "the limit holds for everybody else");
            rest(&mut engine).await;
        }
        Err(LaunchError::Keeping { what, source }) => {
            assert_eq!(what, "fork /bin/sh");
            assert_eq!(source.kind(), io::ErrorKind::WouldBlock, "{source}");
        }
        Err(other) => panic!("{other}"),
    }
    assert!(house.journal().contains("\"record\":\"gone\",\"spawn\":1"));
}
