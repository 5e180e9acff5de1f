//! The scan of a 100 MB body in frames of 64 KiB: an image in base64, a long conversation, arrays of numbers, and text
//! that is not ASCII.
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use motorpool_gateway::scan::Scan;
use std::{hint::black_box, time::Duration};

const SIZE: usize = 100_000_000;
const FRAME: usize = 64 * 1024;

fn filled(head: &str, piece: &str, tail: &str) -> Vec<u8> {
    let n = (SIZE - head.len() - tail.len()) / piece.len();
    [head, &piece.repeat(n), tail].concat().into_bytes()
}

fn shapes() -> [(&'static str, Vec<u8>); 5] {
    let turn =
        r#"{"role":"user","content":"Please look at the following text, it goes on for a while and says little."},"#;
    let code = r#"fn main() {\n    let x = \"one line of code in a prompt\";\n    println!(\"{x}\");\n"#;
    [
        (
            "image",
            filled(
                r#"{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":""#,
                "iVBORw0KGgoAAAANSUhEUgAA",
                r#""}}]}]}"#,
            ),
        ),
        ("turns", filled(r#"{"model":"m","messages":["#, turn, "{}]}")),
        ("code", filled(r#"{"model":"m","prompt":""#, code, r#""}"#)),
        ("numbers", filled(r#"{"model":"m","prompt":["#, "12345, ", "1]}")),
        ("wide", filled(r#"{"model":"m","prompt":""#, "吾輩は猫である。名前はまだ無い。", r#""}"#)),
    ]
}

fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan 100 MB");
    group.sample_size(10).measurement_time(Duration::from_secs(3)).throughput(Throughput::Bytes(SIZE as u64));
    for (name, body) in shapes() {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut scan = Scan::new(&["messages", "prompt"]);
                for frame in body.chunks(FRAME) {
                    scan.feed(black_box(frame)).expect("a valid body");
                }
                scan.finish().expect("a whole body")
            });
        });
    }
    group.finish();
}

criterion_group!(benches, scan);
criterion_main!(benches);
