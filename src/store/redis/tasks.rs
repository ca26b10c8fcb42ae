//! What runs on behalf of a store. Knows who still runs; knows nothing of what they do.

use std::future::Future;

use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinSet};

/// Tasks on one runtime, which can be waited for. When this is dropped they go on.
#[derive(Debug)]
pub(crate) struct Tasks {
    runtime: Handle,
    running: Mutex<Running>,
}

#[derive(Debug, Default)]
struct Running {
    tasks: JoinSet<()>,
    /// The first that ended otherwise than by returning.
    died: Option<JoinError>,
}

impl Tasks {
    /// None yet, on the current runtime.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), running: Mutex::default() }
    }

    /// Starts one more.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut running = self.running.lock();
        running.tidy();
        running.tasks.spawn_on(task, &self.runtime);
    }

    /// Waits until all have ended.
    pub(crate) async fn ended(&self) -> Result<(), JoinError> {
        let mut running = std::mem::take(&mut *self.running.lock());
        while let Some(ended) = running.tasks.join_next().await {
            running.note(ended);
        }
        running.died.take().map_or(Ok(()), Err)
    }
}

impl Running {
    /// Forgets those that have ended.
    fn tidy(&mut self) {
        while let Some(ended) = self.tasks.try_join_next() {
            self.note(ended);
        }
    }

    fn note(&mut self, ended: Result<(), JoinError>) {
        if let Err(death) = ended {
            self.died.get_or_insert(death);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tasks.detach_all();
    }
}
