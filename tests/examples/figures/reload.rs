//! What a reload of fifty models of which one changed takes, and how many engines it touches.
use crate::{API, row, spread};
use motorpool_testkit::Behaviour;
use motorpool_tests::e2e::{
    House,
    talk::{CHAT, chat},
};
use serde_json::json;
use std::time::Instant;

const N_MODELS: usize = 50;
const N_RUNNING: usize = 8;
const N_RELOADS: u32 = 21;

/// The times of reloads, each with another change of one model whose engine runs, and the engines that were restarted.
pub(crate) async fn reload() {
    let mut house = House::new();
    house.set("capacity.budget", "64GiB");
    let models: Vec<_> = (0..N_MODELS).map(|n| house.fake(&format!("m{n}"), &Behaviour::default())).collect();
    let daemon = house.start().await;
    let serve = async |n: usize| {
        drop(daemon.http().post(CHAT, &chat(&format!("m{n}"), "hello")).await.expect("an answer"));
    };
    for n in 0..N_RUNNING {
        serve(n).await;
    }
    let n_starts = || models.iter().map(|model| model.starts().len()).sum::<usize>();
    let (before, mut times) = (n_starts(), Vec::new());
    for n in 0..N_RELOADS {
        let file = models[2].path().display();
        let slots = n + 3;
        let text = format!(
            "id = \"m2\"\ncontext = 512\ndeclared = \"600MiB\"\nslots = {slots}\n[source]\nfile = \"{file}\"\n"
        );
        house.write_beside("catalog/m2.toml", &text);
        let began = Instant::now();
        let answer = daemon.control().post(&format!("{API}/reload"), &json!({})).await.expect("an answer");
        times.push(began.elapsed());
        assert_eq!(answer.json()["draining"], json!(["llama-server:m2:0"]), "{}", answer.text());
        serve(2).await;
    }
    let restarted = n_starts() - before;
    row("a reload of 50 models, one changed", &spread(&times));
    row("engines restarted by 21 such reloads, 8 running", &restarted.to_string());
    daemon.stop().await;
}
