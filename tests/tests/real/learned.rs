//! What one load of the real engine teaches is what the next one is planned with, after a restart too.
use motorpool_tests::e2e::{
    Daemon, House,
    installed::{MODEL, house},
    talk::{CHAT, chat},
};
use serde_json::{Value, json};

/// Planned, reserved and measured bytes of the model's engine, once it was measured.
async fn measured(daemon: &Daemon<'_>) -> [u64; 3] {
    loop {
        let status: Value = daemon.control().get("/api/motorpool/v1/status").await.expect("an answer").json();
        let engines = status["engines"].as_array().expect("a list");
        let engine = engines.iter().find(|engine| engine["key"] == json!(format!("llama-server:{MODEL}:0")));
        let bytes = |name: &str| engine.and_then(|engine| engine[name].as_u64());
        if let Some(measured) = bytes("measuredBytes") {
            return [bytes("plannedBytes").expect("planned"), bytes("reservedBytes").expect("reserved"), measured];
        }
        tokio::task::yield_now().await;
    }
}

async fn life(house: &House) -> [u64; 3] {
    let daemon = house.start().await;
    let mut question = chat(MODEL, "hello");
    question["max_tokens"] = json!(4);
    let answer = daemon.http().post(CHAT, &question).await.expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let figures = measured(&daemon).await;
    let plan = daemon.cli(&["plan", MODEL, "--json"]).await.json();
    let launch = &plan["launches"][0];
    assert_eq!(launch["verdict"]["outcome"], "resident", "{plan:#}");
    assert_eq!(launch["judged"]["source"], "measured", "{plan:#}");
    daemon.stop().await;
    figures
}

async fn planned(house: &House) -> Value {
    let plan = house.run(&["plan", MODEL, "--json"]).await.json();
    plan["launches"][0].clone()
}

#[tokio::test]
async fn a_load_teaches_the_plan_of_the_next_one_across_a_restart() {
    let house = house().await;
    house.write_config();
    let before = planned(&house).await;
    assert_eq!(before["source"], "estimated", "{before:#}");
    let [estimate, reserved, _] = life(&house).await;
    let after = planned(&house).await;
    assert_eq!(after["source"], "learned", "{after:#}");
    let words = house.run(&["plan", MODEL]).await.stdout;
    assert!(words.contains("; learned") && words.contains("mapped files"), "{words}");
    let total = after["total"]["systemMemory"].as_u64().expect("bytes");
    let [learned, again, _] = life(&house).await;
    assert_eq!(total, learned, "`plan` says what the daemon plans with");
    let off = |a: u64, b: u64| a.abs_diff(b) * 1000 / b;
    assert!(off(learned, again) <= 10, "planned {learned}, reserved {again}");
    assert!(off(learned, again) <= off(estimate, reserved), "{estimate} {reserved} {learned} {again}");
}
