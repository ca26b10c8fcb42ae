//! The thread that does the TLS handshakes of all ports. An RSA signature takes a millisecond, and clients can request
//! any number of them: on any other thread they would delay its work, including health and metrics.

use std::io;
use std::thread::{self, JoinHandle};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The Linux kernel shows at most 15 bytes.
const THREAD_NAME: &str = "tls-handshakes";
/// Task polls between two polls of the sockets. A poll can take milliseconds, and a client that could finish its
/// handshake occupies a slot meanwhile.
const EVENT_INTERVAL: u32 = 1;

/// A thread with a runtime for handshakes. Stopped when dropped.
#[derive(Debug)]
pub struct HandshakeThread {
    runtime: Handle,
    thread: JoinHandle<()>,
    /// Resolves when the thread ends.
    ended: oneshot::Receiver<()>,
    stop: DropGuard,
}

impl HandshakeThread {
    /// # Errors
    /// If the system cannot create the thread, or the runtime cannot be built.
    pub fn start() -> io::Result<Self> {
        Self::start_with(CancellationToken::cancelled_owned)
    }

    /// The thread runs until the future that `work` returns is ready. `work` gets the token that stops it.
    fn start_with<T>(work: impl FnOnce(CancellationToken) -> T + Send + 'static) -> io::Result<Self>
    where
        T: Future<Output = ()>,
    {
        let runtime = Builder::new_current_thread().enable_all().event_interval(EVENT_INTERVAL).build()?;
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let (ends, ended) = oneshot::channel();
        let stopped = stop.clone();
        let run = move || {
            // Dropped at the end, also after a panic.
            let _ends: oneshot::Sender<()> = ends;
            // Unfinished handshakes end with the runtime.
            runtime.block_on(work(stopped));
        };
        let thread = thread::Builder::new().name(THREAD_NAME.to_owned()).spawn(run)?;
        Ok(Self { runtime: handle, thread, ended, stop: stop.drop_guard() })
    }

    /// The runtime on which handshakes are spawned.
    pub fn runtime(&self) -> Handle {
        self.runtime.clone()
    }

    /// Waits until `stop`, then ends and joins the thread.
    ///
    /// # Errors
    /// If the thread ends earlier.
    pub async fn run(self, stop: &CancellationToken) -> io::Result<()> {
        let Self { thread, mut ended, stop: told, .. } = self;
        let is_early = stop.run_until_cancelled(&mut ended).await.is_some();
        drop(told);
        if !is_early {
            // Always an error: the thread drops its half.
            let _ = ended.await;
        }
        // Does not block: the thread has nothing left to do.
        match thread.join() {
            Err(_) => Err(io::Error::other("it panicked")),
            Ok(()) if is_early => Err(io::Error::other("ended unexpectedly")),
            Ok(()) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_thread_ends_when_it_is_told_to() {
        let thread = HandshakeThread::start().expect("a thread");
        let named = thread.runtime().spawn(async { thread::current().name().map(str::to_owned) });
        assert_eq!(named.await.expect("no panic").as_deref(), Some(THREAD_NAME));
        let stop = CancellationToken::new();
        stop.cancel();
        thread.run(&stop).await.expect("it was told to stop");
    }

    #[tokio::test]
    async fn a_thread_that_ends_by_itself_is_an_error_with_the_reason() {
        let stop = CancellationToken::new();
        let ended = HandshakeThread::start_with(async |_| {}).expect("a thread").run(&stop).await;
        assert_eq!(ended.expect_err("an early end").to_string(), "ended unexpectedly");
        let panicking = HandshakeThread::start_with(async |_| panic!("as if by mistake"));
        let ended = panicking.expect("a thread").run(&stop).await;
        assert_eq!(ended.expect_err("a panic").to_string(), "it panicked");
    }
}
