//! Writes the corpus of tiny models into a folder: `cargo run -p motorpool-testkit --example corpus -- FOLDER`.
use motorpool_testkit::corpus::FAMILIES;
use std::{env, error::Error, fs, path::PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let folder = PathBuf::from(env::args_os().nth(1).ok_or("usage: corpus FOLDER")?);
    fs::create_dir_all(&folder)?;
    for family in FAMILIES {
        fs::write(folder.join(family.name).with_extension("gguf"), family.writer().finish())?;
    }
    Ok(())
}
