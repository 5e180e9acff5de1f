//! A [`PoolHandle`] without a pool behind it, for the tests of crates that only ask: what is asked comes out of
//! [`Detached`], and the test answers.
use crate::{
    Lease, PoolHandle,
    handle::{Post, Shared, Warm, open_handle},
};
use motorpool_pool::{Ask, Denial, Grant, Input, Refusal, RequestId};
use motorpool_vocab::{EngineKey, ExitRecord, Snapshot};
use std::{collections::VecDeque, path::PathBuf, sync::Arc};
use tokio::sync::{mpsc, oneshot, watch};

/// The other end of a handle.
#[derive(Debug)]
pub struct Detached {
    handle: PoolHandle,
    shared: Arc<Shared>,
    posts: mpsc::UnboundedReceiver<Post>,
    visits: VecDeque<Input>,
    snapshots: watch::Sender<Arc<Snapshot>>,
}

/// What was asked or told.
#[derive(Debug)]
pub enum Told {
    /// Somebody wants a lease.
    Lease(Wish),
    /// Somebody wants a model resident.
    Load(Ask, oneshot::Sender<Result<EngineKey, Refusal>>),
    /// Somebody does not wait any more.
    Cancelled(RequestId),
    /// A lease came back.
    Left(RequestId),
    /// Anything else; a question in it goes unanswered.
    Other,
}

/// A wish for a lease. Dropped, it is refused for shutting down.
#[derive(Debug)]
pub struct Wish {
    /// Its number, and its lease's.
    pub id: RequestId,
    /// What is wished.
    pub ask: Ask,
    answer: oneshot::Sender<Result<Lease, Refusal>>,
    handle: PoolHandle,
}

impl Wish {
    /// Grants a lease at a gate that counts it in.
    pub fn grant(self, grant: Grant) {
        let lease = Lease::new(self.id, Arc::new(grant), self.handle.door());
        let _ = self.answer.send(Ok(lease));
    }

    /// Refuses.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.answer.send(Err(refusal));
    }
}

impl Detached {
    /// A handle and its other end. The handle is turning and settled.
    pub fn new(logs: PathBuf) -> (PoolHandle, Self) {
        let (shared, snapshots) = Shared::new(logs);
        shared.settled();
        let (handle, posts) = open_handle(Arc::clone(&shared));
        (handle.clone(), Self { handle, shared, posts, visits: VecDeque::new(), snapshots })
    }

    /// The next word.
    pub async fn next(&mut self) -> Told {
        loop {
            // Until a look finds nothing: then the next word rings.
            self.visits.extend(self.shared.visits.look());
            match self.visits.pop_front() {
                Some(Input::Left { id, .. }) => return Told::Left(id),
                Some(_) => return Told::Other,
                None => {}
            }
            tokio::select! {
                biased;
                post = self.posts.recv() => return self.told(post),
                () = self.shared.visits.ring() => {}
            }
        }
    }

    fn told(&self, post: Option<Post>) -> Told {
        match post {
            Some(Post::Lease { id, ask, answer, .. }) => {
                Told::Lease(Wish { id, ask, answer, handle: self.handle.clone() })
            }
            Some(Post::Load { ask, answer, .. }) => Told::Load(ask, answer),
            Some(Post::Input(Input::Cancel { id })) => Told::Cancelled(id),
            Some(Post::Input(_) | Post::Consider { .. } | Post::Operate { .. } | Post::Echo { .. }) | None => {
                Told::Other
            }
        }
    }

    /// How a child ended.
    pub fn remember(&self, exit: ExitRecord) {
        self.shared.remember(exit);
    }

    /// An engine serves whom anybody may ask, and at whose gate who finds it open enters by himself.
    pub fn serves(&self, grant: Grant) {
        let mut warm = Warm::clone(&self.shared.warm.load());
        warm.entry(grant.key.model().clone()).or_default().push(Arc::new(grant));
        self.shared.warm.store(Arc::new(warm));
    }

    /// A build was refused.
    pub fn deny(&self, denial: Denial) {
        self.shared.deny(denial);
    }

    /// What the handle shows from now on.
    pub fn show(&self, snapshot: Snapshot) {
        self.snapshots.send_replace(Arc::new(snapshot));
    }
}
