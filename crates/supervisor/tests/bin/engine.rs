//! The least that is an engine: it answers `GET /health` and `GET /slots` on a unix socket, and obeys a few words.
//!
//! `engine-under-test <socket> <slots> [word]…` with the words `refuse` (503 for ever), `mute` (accepts, never
//! answers), `exit=<code>` (at once, with a last line), `deaf` (ignores its standard input and SIGTERM),
//! `report=<MiB>` (says that it made such a cache and 4 MiB to compute in), `hold=<MiB>` (has so much private memory).
use std::{
    hint,
    io::{self, BufRead as _, BufReader, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    process::ExitCode,
    thread,
};

fn main() -> ExitCode {
    #[expect(clippy::disallowed_methods, reason = "a program of its own")]
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [socket, slots, words @ ..] = args.as_slice() else { return ExitCode::from(2) };
    let has = |word: &str| words.iter().any(|found| found == word);
    if let Some(code) = words.iter().find_map(|word| word.strip_prefix("exit=")?.parse::<u8>().ok()) {
        let _ = writeln!(io::stderr(), "last words: out of everything");
        return ExitCode::from(code);
    }
    let number = |word: &str| words.iter().find_map(|found| found.strip_prefix(word)?.parse::<usize>().ok());
    if let Some(mib) = number("report=") {
        let _ = writeln!(io::stderr(), "llama_kv_cache:        CPU KV buffer size = {mib:8}.00 MiB");
        let _ = writeln!(io::stderr(), "sched_reserve:        CPU compute buffer size =     4.00 MiB");
    }
    let held = number("hold=").map(|mib| hint::black_box(vec![1u8; mib << 20]));
    let listener = UnixListener::bind(socket).expect("a free path");
    let slots = slots.parse().unwrap_or(1);
    let (refuses, mute) = (has("refuse"), has("mute"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if !mute {
                let _ = answer(&stream, slots, refuses);
            }
        }
    });
    if has("deaf") {
        thread::park();
    }
    // Its end, or any line, ends us.
    let _ = io::stdin().lock().read_line(&mut String::new());
    drop(held);
    ExitCode::SUCCESS
}

fn answer(mut stream: &UnixStream, slots: usize, refuses: bool) -> io::Result<()> {
    let mut head = String::new();
    BufReader::new(stream).read_line(&mut head)?;
    let body = match head.split(' ').nth(1) {
        Some("/slots") => format!("[{}]", vec!["{\"is_processing\":false}"; slots].join(",")),
        _ => "{}".to_owned(),
    };
    let status = if refuses { "503 Loading" } else { "200 OK" };
    write!(stream, "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}
