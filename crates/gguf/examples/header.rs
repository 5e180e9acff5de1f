//! Prints what a model file's header says: `cargo run --release -p motorpool-gguf --example header -- FILE`.
#![expect(clippy::print_stdout, reason = "printing is what this example is for")]
#![expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "arguments, a file and a stopwatch")]
use motorpool_gguf::read_header;
use std::{collections::BTreeMap, env, error::Error, fs::File, time::Instant};

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("usage: header FILE")?;
    let file = File::open(path)?;
    let file_len = file.metadata()?.len();
    let started = Instant::now();
    let header = read_header(file, file_len)?;
    let took = started.elapsed();
    println!("version {}, alignment {}, data at {}", header.version(), header.alignment(), header.data_start());
    println!(
        "architecture {:?}, context {:?}, layers {:?}",
        header.architecture(),
        header.context_length(),
        header.block_count()
    );
    println!(
        "{} keys, {} tensors, {} bytes of weights",
        header.metadata().keys().count(),
        header.tensors().len(),
        header.tensor_bytes().get()
    );
    let mut kinds = BTreeMap::<String, usize>::new();
    header.tensors().iter().for_each(|tensor| *kinds.entry(tensor.kind.to_string()).or_default() += 1);
    println!("types {kinds:?}");
    println!("read in {took:?}");
    Ok(())
}
