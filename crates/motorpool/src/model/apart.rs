//! [`apart`]: work that reads whole files and waits for locks, kept off the runtime's workers: a few of them would keep
//! everybody else from being served.
use std::{io, thread};
use tokio::{runtime::Builder, sync::oneshot};

/// Does `work` on a thread of its own, which goes on when nobody waits for it any more, and ends with the program at the
/// latest. An error when there is no thread, or it broke off.
pub(super) async fn apart<T, W>(work: impl FnOnce() -> W + Send + 'static) -> io::Result<T>
where
    T: Send + 'static,
    W: Future<Output = T>,
{
    let (tell, told) = oneshot::channel();
    thread::Builder::new().name("apart".into()).spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build();
        let _ = tell.send(runtime.map(|runtime| runtime.block_on(work())));
    })?;
    told.await.unwrap_or_else(|_| Err(io::Error::other("the work broke off")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_came_of_the_work_is_told_and_so_is_that_nothing_came() {
        assert_eq!(apart(|| async { 7 }).await.expect("done"), 7);
        let broken = apart(|| async { panic!("on purpose") }).await;
        assert_eq!(broken.map_err(|error| error.to_string()), Err::<(), _>("the work broke off".into()));
    }
}
