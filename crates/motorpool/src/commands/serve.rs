//! `motorpool serve`: until told to stop.
use crate::{
    daemon::{Daemon, Signals},
    dirs::Dirs,
    exit::Failure,
    out::Out,
    settings::Settings,
};
use serde_json::json;

pub(super) async fn perform(dirs: &Dirs, out: Out, settings: &Settings) -> Result<(), Failure> {
    let mut signals = Signals::listen()?;
    let daemon = Daemon::start(dirs, settings).await?;
    let addresses = daemon.addresses();
    out.data(&json!({ "listen": addresses }), || {
        addresses.iter().map(|address| ["listening on ", address.as_str(), "\n"].concat()).collect()
    })?;
    daemon.serve(&mut signals).await
}
