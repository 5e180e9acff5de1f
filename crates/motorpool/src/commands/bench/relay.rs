//! A blind relay: bytes from one socket to another, both ways, and nothing else. No proxy costs less.
use super::{
    BenchError,
    way::{Address, Way},
};
use crate::os;
use std::{io, net::Ipv4Addr, time::Duration};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream, UnixStream},
    sync::{mpsc, oneshot},
};

/// One that runs, on a thread of its own as another program would. Dropped, it ends.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) way: Way,
    asks: mpsc::UnboundedSender<oneshot::Sender<Option<Duration>>>,
}

impl Relay {
    /// Before `to`.
    pub(crate) fn before(to: &Way) -> Result<Self, BenchError> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(BenchError::Prepare)?;
        listener.set_nonblocking(true).map_err(BenchError::Prepare)?;
        let address = listener.local_addr().map_err(BenchError::Prepare)?.to_string();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(BenchError::Prepare)?;
        let (asks, mut asked) = mpsc::unbounded_channel::<oneshot::Sender<_>>();
        let target = to.address.clone();
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let serving = tokio::spawn(serve(listener, target));
                while let Some(asker) = asked.recv().await {
                    let _ = asker.send(os::thread_cpu_time());
                }
                serving.abort();
            });
        });
        let way = Way { name: "relay".into(), address: Address::Tcp(address), model: to.model.clone() };
        Ok(Self { way, asks })
    }

    /// The processor time that it took so far, its own and the kernel's for it, where a thread's is told.
    pub(crate) async fn cpu(&self) -> Option<Duration> {
        let (asker, answer) = oneshot::channel();
        self.asks.send(asker).ok()?;
        answer.await.ok()?
    }
}

async fn serve(listener: std::net::TcpListener, target: Address) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (client, _) = listener.accept().await?;
        let target = target.clone();
        // A client that breaks off is an everyday event.
        tokio::spawn(async move { drop(pass(client, target).await) });
    }
}

async fn pass(mut client: TcpStream, target: Address) -> io::Result<()> {
    client.set_nodelay(true)?;
    match target {
        Address::Unix(path) => copy_bidirectional(&mut client, &mut UnixStream::connect(path).await?).await,
        Address::Tcp(address) => {
            let mut server = TcpStream::connect(address).await?;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        }
    }
    .map(drop)
}
