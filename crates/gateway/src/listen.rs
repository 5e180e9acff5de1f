//! Connections: taken, bounded, guarded, served, and let finish.
use crate::{
    body::ReplyBody,
    errors::Failure,
    family::Caller,
    inward::Inward,
    keys::{KeysNeeded, Visitor},
    reload::Scene,
    route::family_of,
    service::{Door, failed, name_request},
    tls::{Certificates, Greeted},
    wire::{Place, Socket, Stalling, Wire},
};
use http::{HeaderValue, Request, Response, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, io, net::IpAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream, UnixListener, UnixStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// A head must arrive within this, from its connection's or its predecessor's end on. Idle connections end so, too.
const HEAD_WITHIN: Duration = Duration::from_secs(75);
/// Connections past the limit that are told so at a time; those past these are closed.
const TURNED_AWAY: usize = 64;
/// A head of theirs must arrive within this.
const LAST_HEAD_WITHIN: Duration = Duration::from_secs(5);
/// Connections that have their last answer and still send; those past these are closed.
const PARTING: usize = 256;
/// Headers of one request.
const HEADERS: usize = 128;
/// After an accept that failed, for want of descriptors most likely.
const BREATHE: Duration = Duration::from_millis(50);

/// Where requests come in.
#[derive(Debug)]
pub enum Listener {
    /// An address.
    Tcp(TcpListener),
    /// One that is encrypted.
    Tls(TcpListener, Arc<Certificates>),
    /// Our control socket: only processes of our own user, no rules on `Host` and `Origin`.
    Control(UnixListener),
}

/// Bounds of what is taken.
#[derive(Debug)]
pub(crate) struct Doorkeeper {
    scene: Scene,
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
    parting: Semaphore,
    builder: http1::Builder,
    stop: watch::Receiver<bool>,
}

impl Doorkeeper {
    pub(crate) fn new(scene: Scene, stop: watch::Receiver<bool>) -> Self {
        let service = scene.now();
        let limits = &service.context.settings.limits;
        let mut builder = http1::Builder::new();
        let header_bytes = usize::try_from(limits.header.get()).unwrap_or(usize::MAX).max(8192);
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(header_bytes)
            .max_headers(HEADERS)
            .half_close(false);
        Self {
            places: Arc::new(Semaphore::new(usize::try_from(limits.connections).unwrap_or(usize::MAX))),
            turned_away: Arc::new(Semaphore::new(TURNED_AWAY)),
            parting: Semaphore::new(PARTING),
            builder,
            scene,
            stop,
        }
    }

    /// Takes connections until told to stop, then waits for the last to end.
    pub(crate) async fn keep(self: Arc<Self>, listener: Listener) {
        let mut connections = JoinSet::new();
        let mut stop = self.stop.clone();
        let keys = self.keys_at(&listener);
        loop {
            tokio::select! {
                biased;
                () = told(&mut stop) => break,
                Some(_) = connections.join_next() => {}
                taken = accept(&listener) => match taken {
                    Ok(Some(Taken::Tcp(stream, peer))) => {
                        self.admit(&mut connections, stream.into(), Door::Address(Visitor { peer, keys }));
                    }
                    Ok(Some(Taken::Tls(stream, peer, certificates))) => {
                        self.greet(&mut connections, (stream, certificates), Door::Address(Visitor { peer, keys }));
                    }
                    Ok(Some(Taken::Unix(stream))) => self.admit(&mut connections, stream.into(), Door::Control),
                    Ok(None) => {}
                    Err(error) => {
                        tracing::warn!(%error, "a connection could not be taken");
                        tokio::time::sleep(BREATHE).await;
                    }
                },
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {}
    }

    /// Whether who comes in there needs a key at any rate.
    fn keys_at(&self, listener: &Listener) -> KeysNeeded {
        let address = match listener {
            Listener::Tcp(listener) | Listener::Tls(listener, _) => listener.local_addr().ok(),
            Listener::Control(_) => return KeysNeeded::OnceThereAre,
        };
        let is_near = address.is_some_and(|address| address.ip().to_canonical().is_loopback());
        if is_near { KeysNeeded::OnceThereAre } else { self.scene.now().context.settings.keys_from_afar }
    }

    fn admit(self: &Arc<Self>, connections: &mut JoinSet<()>, socket: Socket, door: Door) {
        let Some(entrance) = self.entrance(door) else { return };
        let keeper = Arc::clone(self);
        connections.spawn(async move {
            let stream = Stalling::new(socket.clone(), keeper.write_stall());
            keeper.welcome(stream, socket, entrance).await;
        });
    }

    /// The same, encrypted: the handshake is within the connection's place.
    fn greet(
        self: &Arc<Self>,
        connections: &mut JoinSet<()>,
        (stream, certificates): (TcpStream, Arc<Certificates>),
        door: Door,
    ) {
        let Some((entrance, place)) = self.entrance(door) else { return };
        let keeper = Arc::clone(self);
        connections.spawn(async move {
            let write_stall = keeper.write_stall();
            match certificates.greet(stream, write_stall).await {
                Some(Greeted::Encrypted(stream)) => {
                    let socket = stream.get_ref().0.get_ref().clone();
                    keeper.welcome(stream, socket, (entrance, place)).await;
                }
                Some(Greeted::Plain(stream)) => {
                    let socket = Socket::from(stream);
                    let stream = Stalling::new(socket.clone(), write_stall);
                    keeper.welcome(stream, socket, (Entrance::Unencrypted, place)).await;
                }
                None => {}
            }
        });
    }

    fn write_stall(&self) -> Duration {
        self.scene.now().context.settings.limits.write_stall
    }

    /// How a connection is served, and its place; `None`: there is no room even to say that there is none.
    fn entrance(&self, door: Door) -> Option<(Entrance, Option<Place>)> {
        // The operator gets in when everybody else has filled the house.
        if door == Door::Control {
            return Some((Entrance::Open(door), None));
        }
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some((Entrance::Open(door), Some(place)));
        }
        let place = Arc::clone(&self.turned_away).try_acquire_owned().ok()?;
        Some((Entrance::Full, Some(place)))
    }

    /// `stream` is what `socket` carries. Its place is free as soon as the last answer is written.
    async fn welcome<S>(&self, stream: S, socket: Socket, (entrance, place): (Entrance, Option<Place>))
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let stream = (Wire::new(stream, place), &socket);
        let ended = match entrance {
            Entrance::Open(door) => {
                let scene = self.scene.clone();
                let answer = move |request| {
                    let service = scene.now();
                    async move { service.respond(door, request).await }
                };
                self.serve(stream, &self.builder, answer).await
            }
            Entrance::Full => self.refuse(stream, &Failure::Overloaded("`limits.connections` are open")).await,
            Entrance::Unencrypted => {
                let message = "this address is encrypted: write `https://` where you wrote `http://`".into();
                let plain = Failure::InvalidRequest { message, param: None };
                self.refuse(stream, &plain).await
            }
        };
        if ended == Ended::ByUs {
            self.part(socket).await;
        }
    }

    /// Has a client read its last answer although it still sends.
    async fn part(&self, socket: Socket) {
        let Ok(_place) = self.parting.try_acquire() else { return };
        let mut stop = self.stop.clone();
        tokio::select! {
            biased;
            () = socket.part() => {}
            () = told(&mut stop) => {}
        }
    }

    /// Answers the one request of a connection that is not served, as its API says it.
    async fn refuse<S>(&self, stream: (Wire<S>, &Socket), failure: &Failure) -> Ended
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let id = self.scene.now().context.fresh_id();
        let mut builder = self.builder.clone();
        builder.header_read_timeout(LAST_HEAD_WITHIN);
        let answer = |request: Request<Incoming>| {
            let response = last_word(failure, request.uri().path(), &id);
            async { Ok(response) }
        };
        self.serve(stream, &builder, answer).await
    }

    /// Until either side ends it. Whoever has gone takes the request that is served with it, whatever follows that unread.
    async fn serve<S, A>(
        &self,
        (stream, socket): (Wire<S>, &Socket),
        builder: &http1::Builder,
        answer: impl Fn(Request<Incoming>) -> A + Send,
    ) -> Ended
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A: Future<Output = Result<Response<ReplyBody>, Infallible>> + Send,
    {
        let mut stop = self.stop.clone();
        let unguarded = stream.unguarded();
        let is_upgraded = unguarded.clone();
        let answer = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(unguarded.clone());
            answer(request)
        });
        let connection = builder.serve_connection(TokioIo::new(stream), answer).with_upgrades();
        let mut connection = Inward::new(connection);
        let mut left = std::pin::pin!(socket.left());
        let ended = tokio::select! {
            biased;
            ended = &mut connection => ended,
            () = left.as_mut() => return Ended::ByClient,
            () = told(&mut stop) => {
                connection.inner().graceful_shutdown();
                tokio::select! {
                    biased;
                    ended = connection => ended,
                    () = left => return Ended::ByClient,
                }
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = &error as &dyn std::error::Error, "a connection ended");
        }
        if is_upgraded.is_told() { Ended::AsHttp } else { Ended::ByUs }
    }
}

/// Who ended a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// It has closed the connection, or its side of it.
    ByClient,
    ByUs,
    /// It is something else now, and somebody else's.
    AsHttp,
}

/// Returns when we are told to stop, or nobody is left to tell us.
async fn told(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|told| *told).await;
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Entrance {
    Open(Door),
    /// There is no place: it is told so.
    Full,
    /// Its client does not encrypt: it is told so.
    Unencrypted,
}

fn last_word(failure: &Failure, path: &str, id: &str) -> Response<ReplyBody> {
    let mut response = failed(failure, &Caller { family: family_of(path), request: id.into() });
    if let Ok(id) = HeaderValue::from_str(id) {
        name_request(response.headers_mut(), &id);
    }
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

enum Taken {
    Tcp(TcpStream, IpAddr),
    Tls(TcpStream, IpAddr, Arc<Certificates>),
    Unix(UnixStream),
}

/// `None`: somebody who may not.
async fn accept(listener: &Listener) -> io::Result<Option<Taken>> {
    match listener {
        Listener::Tcp(listener) => accept_tcp(listener).await.map(|(stream, peer)| Some(Taken::Tcp(stream, peer))),
        Listener::Tls(listener, certificates) => {
            let (stream, peer) = accept_tcp(listener).await?;
            Ok(Some(Taken::Tls(stream, peer, Arc::clone(certificates))))
        }
        Listener::Control(listener) => {
            let (stream, _) = listener.accept().await?;
            let peer = stream.peer_cred()?;
            if peer.uid() != nix::unistd::geteuid().as_raw() {
                tracing::warn!(uid = peer.uid(), "another user's process was refused on the control socket");
                return Ok(None);
            }
            let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok());
            if pid.is_some_and(motorpool_supervisor::is_below_us) {
                tracing::warn!(pid, "a process of an engine was refused on the control socket");
                return Ok(None);
            }
            Ok(Some(Taken::Unix(stream)))
        }
    }
}

async fn accept_tcp(listener: &TcpListener) -> io::Result<(TcpStream, IpAddr)> {
    let (stream, peer) = listener.accept().await?;
    // Frames of a stream go out as they come.
    stream.set_nodelay(true)?;
    Ok((stream, peer.ip().to_canonical()))
}
