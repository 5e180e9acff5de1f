//! What an engine is held to, seen from inside it. Where this kernel has no Landlock, these fail and say so.
use crate::support::{House, rest, until_file};
use motorpool_supervisor::{EngineOrder, Fence};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::{fs, net::TcpListener, path::PathBuf};

/// What a script prints in a fence.
async fn said(house: &House, script: &str, fence: Option<Fence>) -> Vec<String> {
    let order = EngineOrder { fence, ..house.script(script) };
    let (mut lines, gone) = rest(&mut house.launcher.launch(order).await.expect("a shell")).await;
    assert_eq!(gone.code, Some(0), "{lines:?}");
    lines.sort();
    lines
}

fn writes_to(places: &[PathBuf]) -> Fence {
    Fence { write: places.to_vec(), ports: None }
}

#[tokio::test]
async fn it_writes_where_it_may_and_nowhere_else_and_so_does_all_that_descends_from_it() {
    let house = House::new();
    let (may, may_not, file) = (house.path("may"), house.path("may-not"), house.path("one-file"));
    fs::create_dir(&may).expect("made");
    fs::create_dir(&may_not).expect("made");
    fs::write(&file, "before").expect("written");
    let script = format!(
        "try() {{ if (eval \"$2\") 2>/dev/null; then echo yes $1; else echo no $1; fi; }}
         try below 'mkdir {may}/a'; try below 'setsid sh -c \"echo > {may}/a/c\"'
         try beside ': > {may_not}/a'; try beside 'setsid sh -c \"echo > {may_not}/a\"'; try beside 'mkdir {may_not}/b'
         try removes 'rm {file}'; try truncates ': > {file}'
         try reads 'cat /etc/passwd {file} > /dev/null'; try shares 'echo > /dev/shm/$$ && rm /dev/shm/$$'",
        may = may.display(),
        may_not = may_not.display(),
        file = file.display()
    );
    let places = [may.clone(), file.clone(), house.path("not-there")];
    assert_eq!(
        said(&house, &script, Some(writes_to(&places))).await,
        [
            "no beside",
            "no beside",
            "no beside",
            "no removes",
            "yes below",
            "yes below",
            "yes reads",
            "yes shares",
            "yes truncates"
        ]
    );
    assert!(fs::read_dir(&may_not).expect("there").next().is_none());
    assert_eq!(fs::read_to_string(&file).expect("there"), "");
    let free = said(&house, &format!("echo > {}/a && echo yes", may_not.display()), None).await;
    assert_eq!(free, ["yes"], "without a fence it may");
}

#[tokio::test]
async fn it_listens_on_its_port_and_connects_to_none() {
    let house = House::new();
    let there = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port_of = |listener: &TcpListener| listener.local_addr().expect("bound").port();
    let free = || port_of(&TcpListener::bind("127.0.0.1:0").expect("a port"));
    let (own, other, there) = (free(), free(), port_of(&there));
    let python = format!(
        "import socket\n\
         def tried(what, how):\n    try:\n        how(); print('yes', what)\n    except PermissionError:\n        print('no', what)\n\
         tried('own', lambda: socket.socket().bind(('127.0.0.1', {own})))\n\
         tried('other', lambda: socket.socket().bind(('127.0.0.1', {other})))\n\
         tried('connects', lambda: socket.socket().connect(('127.0.0.1', {there})))\n"
    );
    fs::write(house.path("net.py"), python).expect("written");
    let script = format!("exec python3 {}", house.path("net.py").display());
    let fence = |ports| Some(Fence { write: vec![], ports });
    assert_eq!(said(&house, &script, fence(Some(vec![own]))).await, ["no connects", "no other", "yes own"]);
    assert_eq!(said(&house, &script, fence(None)).await, ["yes connects", "yes other", "yes own"]);
}

#[tokio::test]
async fn it_signals_nobody_outside_and_its_keeper_ends_it_all_the_same() {
    let house = House::new();
    let script =
        format!("kill -0 {} 2>/dev/null && echo yes || echo no; sleep 1000 & kill $! && echo own", std::process::id());
    assert_eq!(said(&house, &script, Some(writes_to(&[]))).await, ["no", "own"]);
    let order = EngineOrder { fence: Some(writes_to(&[house.path("")])), ..house.script("touch up; sleep 1000") };
    let mut engine = house.launcher.launch(order).await.expect("a shell");
    until_file(&house.path("up")).await;
    engine.kill().await;
    assert_eq!(rest(&mut engine).await.1.signal, Some(9));
}

#[tokio::test]
async fn no_engine_writes_a_core_and_the_kernel_takes_it_before_it_takes_us() {
    // Where none would be written anyway, nothing would be seen of it.
    let (_, hard) = getrlimit(Resource::RLIMIT_CORE).expect("a limit");
    setrlimit(Resource::RLIMIT_CORE, hard, hard).expect("ours to raise");
    let house = House::new();
    let own: i32 = fs::read_to_string("/proc/self/oom_score_adj").expect("Linux").trim().parse().expect("a number");
    let lines = said(&house, "ulimit -S -c; cat /proc/self/oom_score_adj", None).await;
    assert_eq!(lines, ["0".to_owned(), (own + 300).min(1000).to_string()]);
}
