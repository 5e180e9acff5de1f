//! `motorpool serve`: until told to stop.
use crate::{
    args::Reach,
    daemon::{Call, Daemon, Signals},
    dirs::Dirs,
    exit::Failure,
    log::Loudness,
    out::Out,
    settings::Settings,
};
use serde_json::json;

pub(super) async fn perform(dirs: &Dirs, out: Out, (settings, reach): (&Settings, Reach)) -> Result<(), Failure> {
    let mut signals = Signals::listen(Call::Reload)?;
    let daemon = Daemon::start(dirs, settings, reach, Loudness::AsAsked).await?;
    let addresses = daemon.addresses();
    out.data(&json!({ "listen": addresses }), || {
        addresses.iter().map(|address| ["listening on ", address.as_str(), "\n"].concat()).collect()
    })?;
    daemon.serve(&mut signals).await
}
