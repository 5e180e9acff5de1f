//! `motorpool bench`, with numbers so small that only the counts and the shape mean anything.
use motorpool_testkit::{Behaviour, binary};
use motorpool_tests::e2e::{House, house::outcome};
use serde_json::{Value, json};

const SMALL: [&str; 9] = ["bench", "--json", "--rounds", "2", "--requests", "20", "--connections", "1,3", "--frames"];

/// What a list of rows says under these names.
fn columns(rows: &Value, names: [&str; 4]) -> Vec<[Value; 4]> {
    rows.as_array().expect("rows").iter().map(|row| names.map(|name| row[name].clone())).collect()
}

fn engine() -> String {
    binary("motorpool-trivial-engine").display().to_string()
}

#[tokio::test]
async fn a_pool_of_its_own_is_measured_and_nothing_of_it_is_left() {
    let house = House::new();
    house.write_config();
    let program = engine();
    let mut args = SMALL.to_vec();
    args.extend(["3", "--open", "20", "--engine", &program]);
    let mut command = house.command(&args);
    command.env("TMPDIR", house.folder());
    let measured = outcome(command).await;
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = measured.json();
    let row = |way: &str, connections: u32| [json!("trivial"), json!(way), json!(connections), json!(40)];
    let ways = ["direct", "relay", "motorpool"];
    let want: Vec<_> = [1, 3].iter().flat_map(|n| ways.map(|way| row(way, *n))).collect();
    assert_eq!(columns(&report["requests"], ["engine", "way", "connections", "requests"]), want);
    // One stream of ten times the frames, and 64: in two rounds.
    let stream = |way: &str, streams: u32, frames: u32| [json!(way), json!(streams), json!(frames)];
    let mut want: Vec<_> = ways.iter().map(|way| stream(way, 1, 60)).collect();
    want.extend(ways.iter().map(|way| stream(way, 64, 64 * 3 * 2)));
    let rows: Vec<_> = columns(&report["streams"], ["way", "streams", "frames", "engine"])
        .into_iter()
        .map(|[way, streams, frames, _]| [way, streams, frames])
        .collect();
    assert_eq!(rows, want);
    assert_eq!((&report["openStreams"]["opened"], &report["openStreams"]["wanted"]), (&json!(20), &json!(20)));
    for row in report["requests"].as_array().expect("rows") {
        // Of who stands between, and of the relay where the system tells that of a thread.
        let is_told = row["way"] == "motorpool" || (cfg!(target_os = "linux") && row["way"] == "relay");
        assert_eq!(
            (row["cpuUs"].is_number(), row["addedP50Us"].is_number()),
            (is_told, row["way"] != "direct"),
            "{row}"
        );
        let times = [&row["p50Us"], &row["p99Us"]].map(|time| time.as_f64().expect("a time"));
        assert!(0.0 < times[0] && times[0] <= times[1], "{row}");
    }
    assert!(
        report["swap"]["firstTokenMs"].as_f64() > Some(0.0) && report["listeningMs"].as_f64() > Some(0.0),
        "{report}"
    );
    assert_eq!(report["limits"].as_array().expect("promises").len(), 7, "{report}");
    let left: Vec<_> =
        std::fs::read_dir(house.folder()).expect("ours").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().starts_with("mpb-")), "{left:?}");
}

#[tokio::test]
async fn a_running_pool_is_measured_with_a_model_of_its_own() {
    let mut house = House::new();
    house.write_beside(
        "engines/quick.toml",
        "name = \"quick\"\ntransport = \"unix\"\nargs = [\"--socket\", \"{endpoint.socket}\"]\n\
         paths = [\"POST /v1/chat/completions\"]\n\
         [program]\nnames = [\"quick\"]\nversion_args = [\"--version\"]\nversion_pattern = '\\d+\\.\\d+\\.\\d+'\n\
         [ready]\npath = \"/health\"\nstatus = 200\n[stop]\nsignal = \"SIGTERM\"\n",
    );
    house.set("engine.quick.program", engine());
    house.fake_with("a", &Behaviour::default(), "declared = \"10MiB\"\nengine = \"quick\"\nslots = 8\n");
    let daemon = house.start().await;
    let mut args = SMALL.to_vec();
    args.extend(["5", "a"]);
    let measured = daemon.cli(&args).await;
    assert_eq!(measured.code, Some(0), "{measured:?}");
    let report = measured.json();
    let names: Vec<_> = columns(&report["requests"], ["way", "connections", "requests", "engine"]);
    let row = |way: &str, connections: u32| [json!(way), json!(connections), json!(40), json!("quick")];
    let want: Vec<_> = [1, 3].iter().flat_map(|n| ["direct", "relay", "motorpool"].map(|way| row(way, *n))).collect();
    assert_eq!(names, want);
    assert_eq!(
        (&report["listeningMs"], &report["openStreams"], &report["swap"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    assert!(report["streams"].as_array().is_some_and(|rows| rows.len() == 3), "{report}");
    let unknown = daemon.cli(&["bench", "none"]).await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    daemon.stop().await;
}
