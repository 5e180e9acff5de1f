//! Model servers that somebody else runs, as the program uses them: [`motorpool::servers`] with our directories, and what to
//! do about what is wrong.
use crate::{
    dirs::Dirs,
    exit::{Exit, Failure, chain},
};
use motorpool::servers::{self, Place, Renewed, Servers, ServersError, teller};
use motorpool_catalog::Config;
use motorpool_external::{Guests, OpenError};
use motorpool_supervisor::{LocalServer, PoolHandle};
use std::sync::Arc;

impl From<ServersError> for Failure {
    fn from(error: ServersError) -> Self {
        let what = chain(&error);
        let cure = match error {
            ServersError::KeyFile { .. } => "correct `key_file` of this [[external]], or its permissions",
            ServersError::KeyVariable { .. } => "set it, or correct `key_env` of this [[external]]",
            ServersError::BadKey(_) => "put the key alone on the first line",
            ServersError::BadHeader(_) => "correct `headers` of this [[external]]",
            ServersError::Twice(_) => "call one of them otherwise",
            ServersError::Open(OpenError::Journal(_)) => "check the permissions of the state directory, and its disk",
            ServersError::Open(OpenError::Target { .. }) => "correct this [[external]]",
        };
        Self::new(Exit::Config, what, cure)
    }
}

/// Guests on every server of the configuration; what happens there is told to the pool of `handle`.
pub(crate) fn open(dirs: &Dirs, config: &Config, handle: &PoolHandle) -> Result<Servers, Failure> {
    let place = Place { run: Dirs::of_user()?, journal: Some(dirs.state.join("external.jsonl")) };
    Ok(Servers::open((&config.external, &config.protect), place, teller(handle.clone()))?)
}

/// As the configuration has them now, which nobody goes by yet.
pub(crate) fn renewed(servers: &Servers, config: &Config) -> Result<Renewed, Failure> {
    Ok(servers.renewed((&config.external, &config.protect))?)
}

/// The same for who only looks: nothing is written down and nobody told.
pub(crate) fn guests(config: &Config) -> Result<Guests, Failure> {
    let place = Place { run: Dirs::of_user()?, journal: None };
    Ok(servers::guests((&config.external, &config.protect), place, Arc::new(|_| ()))?)
}

/// What keeps servers of the configuration from being used.
pub(crate) fn check(config: &Config) -> Vec<Failure> {
    servers::check((&config.external, &config.protect)).into_iter().map(Failure::from).collect()
}

/// Those on this machine, whose memory goes by their names.
pub(crate) fn local(config: &Config) -> Vec<LocalServer> {
    servers::local(&config.external)
}
