//! One module per command: what it asks, what it prints.
pub(crate) mod bench;
mod config;
mod denials;
mod doctor;
mod drain;
mod engine;
mod events;
mod key;
mod load;
mod logs;
pub(crate) mod model;
mod plan;
mod ps;
mod queue;
mod reload;
mod residency;
mod run;
mod serve;
mod shell;
mod sim;
#[cfg(feature = "top")]
mod top;
mod up;
pub(crate) mod usage;

pub(crate) use config::Config;
pub(crate) use drain::{Cancel, Drain, Restart};
pub(crate) use shell::{Completions, Man};
#[cfg(feature = "top")]
pub(crate) use top::Top;

use crate::{
    args::{Cli, Command},
    client::Client,
    dirs::Dirs,
    exit::{Exit, Failure},
    out,
    settings::Settings,
};

/// Does what the command line says.
pub(crate) async fn perform(cli: Cli) -> Result<(), Failure> {
    let (dirs, out) = (Dirs::find(cli.common.state_dir.as_deref())?, cli.common.out());
    let config = cli.common.config.as_deref();
    let settings = || Settings::load(&dirs, config);
    let client = match cli.common.remote()? {
        Some(_) if cli.command.is_local() => {
            let what = "this command is about this machine, and --server names another one";
            return Err(Failure::new(Exit::Usage, what, "leave --server and MOTORPOOL_SERVER out, or run it there"));
        }
        Some(remote) => Client::of(remote),
        None => Client::new(&dirs.live_control_socket()),
    };
    match cli.command {
        Command::Up(command) => up::perform(&dirs, out, (config, command)).await,
        Command::Serve(command) => serve::perform(&dirs, out, (&settings()?, command.reach)).await,
        Command::Run(command) => out::while_read(run::perform(&client, out, command)).await,
        Command::Ps => ps::perform(&client, out).await,
        Command::Models => ps::models(&client, out).await,
        Command::Load(command) => load::load(&client, out, command).await,
        Command::Unload(command) => load::unload(&client, out, command).await,
        Command::Reload => reload::perform(&client, out).await,
        Command::Drain(command) => drain::drain(&client, out, command).await,
        Command::Restart(command) => drain::restart(&client, out, command).await,
        Command::Cancel(command) => drain::cancel(&client, out, command).await,
        #[cfg(feature = "top")]
        Command::Top(command) => top::perform(&client, out, command).await,
        Command::Reset(command) => load::reset(&client, out, command).await,
        Command::Logs(command) => out::while_read(logs::perform((&client, &dirs), out, (config, command))).await,
        Command::Queue { command } => queue::perform(&client, out, command).await,
        Command::Residency { command } => residency::perform(&client, out, command).await,
        Command::Events(command) => out::while_read(events::perform(&client, out, command)).await,
        Command::Usage(command) => usage::perform(&client, out, command).await,
        Command::Sim(command) => sim::perform(out, &command),
        Command::Denials(command) => denials::perform(out, command),
        Command::Plan(command) if client.is_elsewhere() => plan::plan_there(&client, out, command).await,
        Command::Explain(command) if client.is_elsewhere() => plan::explain_there(&client, out, command).await,
        Command::Plan(command) => plan::plan((&dirs, &client), out, (settings()?, command)).await,
        Command::Explain(command) => plan::explain((&dirs, &client), out, (settings()?, command)).await,
        Command::Bench(command) => bench::perform(&dirs, out, (settings()?, command)).await,
        Command::Doctor => doctor::perform(&dirs, out, config).await,
        Command::Key(command) => key::perform(&dirs, out, (config, command)),
        Command::Engine(command) => engine::perform(&dirs, out, (settings()?, command)).await,
        Command::Completions(command) => shell::completions(out, &command),
        Command::Man(command) => shell::man(out, &command),
        Command::Config(command) => config::perform(&dirs, out, (config, command)),
        Command::Model(command) => model::perform(&dirs, out, (settings()?, command)).await,
    }
}
