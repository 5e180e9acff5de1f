//! How near a plan is to what the real engine takes, before and after one load taught it.
use crate::{API, row};
use motorpool_tests::e2e::{
    House,
    installed::{MODEL, house},
    talk::{CHAT, chat},
};
use serde_json::{Value, json};

/// Bytes of one life.
struct Life {
    planned: u64,
    /// What was reserved once it was measured: with what it may still grow by.
    reserved: u64,
    measured: u64,
}

pub(crate) async fn error() {
    let house = house().await;
    house.write_config();
    let (first, second) = (life(&house).await, life(&house).await);
    row("estimate of the default model, against its line", &off(first.planned, first.reserved));
    row("learned after one load, against the next one's line", &off(second.planned, second.reserved));
    let mib = |bytes: u64| bytes >> 20;
    let Life { planned, reserved, measured } = second;
    let text = format!("{} / {} / {} MiB", mib(planned), mib(reserved), mib(measured));
    row("second load: learned / reserved / touched so far", &text);
}

fn off(planned: u64, real: u64) -> String {
    let per_mille = planned.abs_diff(real) * 1000 / real.max(1);
    let side = if planned < real { "less" } else { "more" };
    format!("{}.{} % {side} ({planned} of {real} bytes)", per_mille / 10, per_mille % 10)
}

/// One daemon, one load, one answer.
async fn life(house: &House) -> Life {
    let daemon = house.start().await;
    let mut question = chat(MODEL, "hello");
    question["max_tokens"] = json!(4);
    assert_eq!(daemon.http().post(CHAT, &question).await.expect("an answer").status, 200);
    let figures = loop {
        let status: Value = daemon.control().get(&format!("{API}/status")).await.expect("an answer").json();
        let of = |name: &str| status["engines"][0][name].as_u64();
        if let (Some(planned), Some(reserved), Some(measured)) =
            (of("plannedBytes"), of("reservedBytes"), of("measuredBytes"))
        {
            break Life { planned, reserved, measured };
        }
    };
    daemon.stop().await;
    figures
}
