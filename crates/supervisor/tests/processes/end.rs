//! How engines end: by themselves, asked, killed, with their keeper, with us. **S1** and **S3**.
use crate::support::{House, is_alive, keeper_of, kill, line, pid, rest, until};
use motorpool_supervisor::{Heard, Polite};

const TERM: i32 = 15;

#[tokio::test]
async fn an_exit_code_and_a_signal_are_told_apart() {
    let house = House::new();
    let (_, gone) = rest(&mut house.run("exit 7").await).await;
    assert_eq!((gone.code, gone.signal), (Some(7), None));
    let (_, gone) = rest(&mut house.run("kill -ABRT $$").await).await;
    assert_eq!((gone.code, gone.signal), (None, Some(6)));
    let (_, gone) = rest(&mut house.run("kill -40 $$").await).await;
    assert_eq!((gone.code, gone.signal), (None, Some(40)), "real-time signals too");
}

#[tokio::test]
async fn nothing_is_heard_after_the_end() {
    let house = House::new();
    let mut engine = house.run("exit 0").await;
    rest(&mut engine).await;
    assert_eq!(engine.hear().await, None);
}

#[tokio::test]
async fn a_grandchild_in_another_session_ends_with_the_leader() {
    let house = House::new();
    let mut engine = house.run("setsid sleep 1000 & echo $!; exit 3").await;
    let grandchild = pid(&mut engine).await;
    let (_, gone) = rest(&mut engine).await;
    assert_eq!(gone.code, Some(3));
    assert!(!is_alive(grandchild), "gone is only said when nothing is left");
}

#[tokio::test]
async fn a_tree_that_keeps_forking_is_brought_to_an_end() {
    let house = House::new();
    let script = "hydra() { while :; do (setsid sleep 1000 &) ; done; }; hydra & hydra & setsid sh -c 'while :; do (sleep 1 &); done' & echo go; wait";
    let mut engine = house.run(script).await;
    line(&mut engine).await;
    let nonce = motorpool_devices::environment_value(engine.process().pid, "MOTORPOOL_NONCE").expect("marked");
    let mark = format!("MOTORPOOL_NONCE={}", nonce.display());
    until("it forks", || motorpool_devices::processes_with(&mark).len() > 20).await;
    engine.kill().await;
    let (_, gone) = rest(&mut engine).await;
    assert_eq!(gone.signal, Some(9));
    assert_eq!(motorpool_devices::processes_with(&mark), [0; 0], "nobody was handed to init");
}

#[tokio::test]
async fn one_that_ignores_a_polite_stop_is_killed() {
    let house = House::new();
    let mut engine = house.run("trap 'echo heard' TERM; echo ready; while :; do sleep 0.01; done").await;
    assert_eq!(line(&mut engine).await, "ready");
    engine.ask_to_end(Polite::Signal(TERM)).await;
    assert_eq!(line(&mut engine).await, "heard");
    assert!(is_alive(engine.process().pid));
    engine.kill().await;
    let (_, gone) = rest(&mut engine).await;
    assert_eq!(gone.signal, Some(9));
}

#[tokio::test]
async fn one_can_be_asked_by_line_or_signal() {
    let house = House::new();
    let mut engine = house.run("read line; echo \"got $line\"; exit 4").await;
    engine.ask_to_end(Polite::Line("exit please".into())).await;
    assert_eq!(line(&mut engine).await, "got exit please");
    assert_eq!(rest(&mut engine).await.1.code, Some(4));
    let mut engine = house.run("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done").await;
    line(&mut engine).await;
    engine.ask_to_end(Polite::Signal(TERM)).await;
    assert_eq!(rest(&mut engine).await.1.code, Some(5));
}

#[tokio::test]
async fn odd_requests_harm_nobody() {
    let house = House::new();
    let mut engine = house.run("exec 0<&-; echo ready; sleep 1000").await;
    line(&mut engine).await;
    engine.ask_to_end(Polite::Line("nobody reads".into())).await;
    engine.ask_to_end(Polite::Signal(-5)).await;
    engine.ask_to_end(Polite::Signal(0)).await;
    engine.kill().await;
    engine.kill().await;
    assert_eq!(rest(&mut engine).await.1.signal, Some(9));
}

#[tokio::test]
async fn the_whole_tree_dies_when_we_are_gone() {
    let house = House::new();
    let mut engine = house.run("trap '' TERM HUP INT; setsid sleep 1000 & echo $!; while :; do sleep 0.01; done").await;
    let grandchild = pid(&mut engine).await;
    let (leader, keeper) = (engine.process().pid, keeper_of(&engine));
    drop(engine);
    until("all are dead", || ![leader, keeper, grandchild].into_iter().any(is_alive)).await;
}

#[tokio::test]
async fn a_killed_keeper_takes_its_tree_with_it_and_the_end_is_heard() {
    let house = House::new();
    let mut engine = house.run("setsid sleep 1000 & echo $!; echo last; read x").await;
    let grandchild = pid(&mut engine).await;
    assert_eq!(line(&mut engine).await, "last");
    let leader = engine.process().pid;
    kill(keeper_of(&engine));
    let (_, gone) = rest(&mut engine).await;
    assert_eq!((gone.code, gone.signal), (None, None), "nobody saw how it ended");
    assert_eq!(gone.tail.last().map(String::as_str), Some("last"));
    assert!(!is_alive(leader) && !is_alive(grandchild));
    assert!(house.journal().ends_with("\"record\":\"gone\",\"spawn\":1}\n"));
}

#[tokio::test]
async fn signals_meant_for_everybody_do_not_end_a_keeper() {
    let house = House::new();
    let mut engine = house.run("echo ready; read x; exit 6").await;
    line(&mut engine).await;
    let keeper = nix::unistd::Pid::from_raw(i32::try_from(keeper_of(&engine)).expect("a process id"));
    for signal in ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGPIPE", "SIGUSR1", "SIGTSTP"] {
        nix::sys::signal::kill(keeper, signal.parse::<nix::sys::signal::Signal>().expect("a signal")).expect("ours");
    }
    engine.ask_to_end(Polite::Line(String::new())).await;
    assert_eq!(rest(&mut engine).await.1.code, Some(6));
}

#[tokio::test]
async fn descriptors_and_children_are_back_to_baseline_after_many_cycles() {
    let house = House::new();
    let me = std::process::id();
    let mut keepers = Vec::new();
    rest(&mut house.run("exit 0").await).await;
    let socket = house.path("e.sock");
    let before = motorpool_devices::n_open_fds(me).expect("it lives");
    for n in 0..40 {
        let mut order = house.script(if n % 2 == 0 { "exit 1" } else { "setsid sleep 1000 & read x" });
        order.socket = Some(socket.clone());
        let mut engine = house.launcher.launch(order).await.expect("a shell");
        if let Some(process) = motorpool_devices::observe_process(engine.process().pid) {
            keepers.push(process.ppid);
        }
        engine.kill().await;
        rest(&mut engine).await;
        let missing = house.launcher.launch(house.program("/absent", &[])).await;
        assert!(missing.is_err());
    }
    until("keepers are reaped", || !keepers.iter().any(|pid| motorpool_devices::observe_process(*pid).is_some())).await;
    let after = || motorpool_devices::n_open_fds(me).expect("it lives");
    // Other tests run beside this one and hold descriptors of their own, so the figure is only bounded.
    until("descriptors are back", || after() <= before + 60).await;
}

#[tokio::test]
async fn the_end_of_the_first_process_is_the_same_whether_it_is_told_before_that_of_its_tree_or_with_it() {
    // No control group, which would take the rest with one blow.
    let House { state, launcher } = House::new();
    let house = House { state, launcher: launcher.with_groups_below(None) };
    for (script, end) in [("exit 3", (Some(3), None)), ("kill -ABRT $$", (None, Some(6)))] {
        let mut engine = house.run(&format!("setsid sleep 1000 & echo $!; echo bye; read x; {script}")).await;
        let left = pid(&mut engine).await;
        assert_eq!(line(&mut engine).await, "bye");
        engine.ask_to_end(Polite::Line(String::new())).await;
        // What it left may be gone at the first blow: then there is nothing to be told before.
        let mut heard = Vec::new();
        while !matches!(heard.last(), Some(Heard::Gone(_))) {
            heard.push(engine.hear().await.expect("an end"));
        }
        assert!(heard.len() <= 2, "told once: {heard:?}");
        for end_told in heard {
            let (Heard::Ended(told) | Heard::Gone(told)) = end_told else { panic!("an end, not {end_told:?}") };
            assert_eq!((told.code, told.signal), end);
            assert_eq!(told.tail, [left.to_string(), "bye".into()]);
        }
        assert!(!is_alive(left));
    }
}
