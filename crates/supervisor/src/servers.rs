//! [`Servers`]: which processes are those of model servers that somebody else runs here, so that what they hold of graphics
//! devices and of system memory goes by the name that the operator gave them.
//!
//! Who listens on a server's port is the server, and all that descends from it. It is looked for among all processes once in
//! a minute at most; one that was found is only asked whether it still listens.
use crate::cards::{Called, Names};
use motorpool_devices::{ProcessFacts, descendants_in, listener, listens, observe_memory};
use motorpool_vocab::{Bytes, Now};
use parking_lot::{Mutex, MutexGuard};
use std::{sync::Arc, time::Duration};

/// From one search among all processes to the next.
const SEARCH_EVERY: Duration = Duration::from_mins(1);

/// A model server on this machine that somebody else runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalServer {
    /// What it is called in the configuration.
    pub name: String,
    /// The port that it listens on.
    pub port: u16,
}

/// All of them, for whoever tells which there are, and whoever looks for them.
#[derive(Clone, Debug, Default)]
pub struct LocalServers(Arc<Mutex<Servers>>);

impl LocalServers {
    /// These.
    pub fn new(servers: Vec<LocalServer>) -> Self {
        let all = Self::default();
        all.are(servers);
        all
    }

    /// From now on there are these.
    pub fn are(&self, servers: Vec<LocalServer>) {
        self.0.lock().0 = servers.into_iter().map(|server| (server, Found::Nowhere(None))).collect();
    }

    pub(crate) fn all(&self) -> MutexGuard<'_, Servers> {
        self.0.lock()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Servers(Vec<(LocalServer, Found)>);

#[derive(Clone, Copy, Debug)]
enum Found {
    /// By its process.
    Here(u32),
    /// Looked for then; `None`: never.
    Nowhere(Option<Now>),
}

impl Servers {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls the processes of each in `table` by its name.
    pub(crate) fn rename(&mut self, now: Now, table: &[ProcessFacts], names: &mut Names) {
        for (server, found) in &mut self.0 {
            *found = search(server.port, *found, (now, table));
            let Found::Here(pid) = *found else { continue };
            for one in descendants_in(table, pid).into_iter().chain([pid]) {
                names.insert(one, Called { name: name_of(server), counted_as: pid });
            }
        }
    }

    /// What each that is here holds of system memory that nobody shares, swapped out or not.
    pub(crate) fn holding(&mut self, now: Now, table: &[ProcessFacts]) -> Vec<(String, Bytes)> {
        let held = |pid: u32| {
            let tree = descendants_in(table, pid).into_iter().chain([pid]);
            Bytes::sum(tree.filter_map(observe_memory).map(|memory| memory.anonymous.saturating_add(memory.swapped)))
        };
        let mut all = Vec::new();
        for (server, found) in &mut self.0 {
            *found = search(server.port, *found, (now, table));
            if let Found::Here(pid) = *found {
                all.push((name_of(server), held(pid)));
            }
        }
        all
    }
}

fn name_of(server: &LocalServer) -> String {
    format!("external server {}", server.name)
}

fn search(port: u16, found: Found, (now, table): (Now, &[ProcessFacts])) -> Found {
    match found {
        Found::Here(pid) if listens(port, &[pid]) => return found,
        Found::Nowhere(Some(at)) if now.since(at) < SEARCH_EVERY => return found,
        Found::Here(_) | Found::Nowhere(_) => {}
    }
    let pids: Vec<u32> = table.iter().map(|process| process.pid).collect();
    listener(port, &pids).map_or(Found::Nowhere(Some(now)), Found::Here)
}

#[cfg(test)]
mod tests {
    use super::*;
    use motorpool_devices::processes;
    use std::net::TcpListener;

    #[test]
    fn whoever_listens_on_the_port_goes_by_the_servers_name_as_long_as_it_does() {
        let socket = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = socket.local_addr().expect("bound").port();
        let servers = LocalServers::new(vec![LocalServer { name: "desk".into(), port }]);
        let me = std::process::id();
        let named = |now: Now| {
            let mut names = Names::new();
            servers.all().rename(now, &processes(), &mut names);
            names.get(&me).map(|called| (called.name.clone(), called.counted_as))
        };
        let start = Now::from_nanos(1);
        assert_eq!(named(start), Some(("external server desk".to_owned(), me)));
        let others = LocalServers::new(vec![LocalServer { name: "desk".into(), port }]);
        let held = others.all().holding(start, &processes());
        assert!(
            matches!(&held[..], [(name, bytes)] if name == "external server desk" && *bytes > Bytes::mib(1)),
            "{held:?}"
        );
        drop(socket);
        assert_eq!(others.all().holding(start, &processes()), []);
        assert_eq!(named(start), None);
        let again = TcpListener::bind(("127.0.0.1", port)).expect("it is free again");
        assert_eq!(named(start.after(Duration::from_secs(59))), None, "searched once in a minute");
        assert!(named(start.after(SEARCH_EVERY)).is_some());
        servers.are(vec![LocalServer { name: "attic".into(), port }]);
        assert_eq!(named(start.after(SEARCH_EVERY)), Some(("external server attic".to_owned(), me)));
        servers.are(vec![]);
        assert_eq!(named(start.after(SEARCH_EVERY)), None);
        drop(again);
    }
}
