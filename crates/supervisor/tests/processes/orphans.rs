//! What a subreaper has of its orphans. **S1** and **S3**.
use crate::support::{House, is_alive, keeper_of, line, pid, rest, until};
use motorpool_supervisor::Polite;

#[tokio::test]
async fn a_daemon_without_any_mark_ends_with_the_leader() {
    let house = House::new();
    // Twice forked, another session, an empty environment: only descent tells.
    let mut engine = house.run("(setsid env -i /bin/sh -c 'echo $$; exec /bin/sleep 1000' &); read x").await;
    let daemon = pid(&mut engine).await;
    engine.ask_to_end(Polite::Line("enough".into())).await;
    rest(&mut engine).await;
    assert!(!is_alive(daemon));
}

#[tokio::test]
async fn adopted_orphans_are_reaped_while_the_engine_runs() {
    let house = House::new();
    let mut engine = house.run("for i in 1 2 3 4 5 6 7 8; do (sleep 0 &); done; echo done; read x").await;
    line(&mut engine).await;
    let keeper = keeper_of(&engine);
    let n_children = || motorpool_devices::processes().into_iter().filter(|process| process.ppid == keeper).count();
    until("only the leader is left", || n_children() == 1).await;
    assert!(is_alive(engine.process().pid));
}
