//! Background tasks of a store: started, watched for panics, and joined.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, pending};
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A background task ended or panicked while the store was open.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    #[error("the Redis store's {task} panicked: {message}")]
    Panicked { task: &'static str, message: String },
    #[error("the Redis store's {task} ended unexpectedly")]
    Ended { task: &'static str },
}

/// Tasks on one runtime. They continue when this is dropped.
#[derive(Debug)]
pub(crate) struct Tasks {
    runtime: Handle,
    running: Mutex<JoinSet<()>>,
    /// The first error.
    failure: watch::Sender<Option<TaskError>>,
}

impl Tasks {
    /// For tasks on the current runtime.
    pub(crate) fn new() -> Self {
        Self { runtime: Handle::current(), running: Mutex::default(), failure: watch::Sender::new(None) }
    }

    /// Starts a task that ends by itself.
    pub(crate) fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        let failure = self.failure.clone();
        let task = async move {
            if let Err(panic) = AssertUnwindSafe(task).catch_unwind().await {
                let message = panic_message(panic.as_ref());
                report(&failure, TaskError::Panicked { task: name, message });
            }
        };
        let mut running = self.running.lock();
        while running.try_join_next().is_some() {}
        running.spawn_on(task, &self.runtime);
    }

    /// Starts a task that must not end before `closing` is cancelled.
    pub(crate) fn spawn_until_closed(
        &self,
        name: &'static str,
        closing: &CancellationToken,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (closing, failure) = (closing.clone(), self.failure.clone());
        self.spawn(name, async move {
            task.await;
            if !closing.is_cancelled() {
                report(&failure, TaskError::Ended { task: name });
            }
        });
    }

    /// Starts a task that runs until `closing` is cancelled.
    pub(crate) fn spawn_loop(
        &self,
        name: &'static str,
        closing: &CancellationToken,
        task: impl Future<Output = Infallible> + Send + 'static,
    ) {
        let task = closing.clone().run_until_cancelled_owned(task);
        self.spawn(name, async move {
            task.await;
        });
    }

    /// Waits until all tasks have ended.
    ///
    /// # Errors
    /// The first [`TaskError`], if any.
    pub(crate) async fn join(&self) -> Result<(), TaskError> {
        let mut running = std::mem::take(&mut *self.running.lock());
        while running.join_next().await.is_some() {}
        self.failure.borrow().clone().map_or(Ok(()), Err)
    }

    /// Resolves at the first [`TaskError`]; pending forever without one.
    pub(crate) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        let mut failure = self.failure.subscribe();
        async move {
            let reported = failure.wait_for(Option::is_some).await.ok().and_then(|failure| failure.clone());
            match reported {
                Some(error) => error,
                // All tasks have ended.
                None => pending().await,
            }
        }
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.running.get_mut().detach_all();
    }
}

fn report(failure: &watch::Sender<Option<TaskError>>, error: TaskError) {
    failure.send_if_modified(|first| {
        let is_first = first.is_none();
        first.get_or_insert(error);
        is_first
    });
}

/// The message given to `panic!`.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message").to_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn a_panic_is_reported_at_once_and_again_when_joined() {
        let (tasks, closing) = (Tasks::new(), CancellationToken::new());
        tasks.spawn_loop("batcher", &closing, pending());
        tasks.spawn_until_closed("probe", &closing, async { panic!("out of {}", "luck") });
        let panicked = TaskError::Panicked { task: "probe", message: "out of luck".to_owned() };
        assert_eq!(tasks.died().await, panicked);
        assert_eq!(tasks.died().await, panicked, "also for a later caller");
        closing.cancel();
        assert_eq!(tasks.join().await, Err(panicked));
    }

    #[tokio::test]
    async fn a_task_that_ends_too_early_is_reported() {
        let (tasks, closing) = (Tasks::new(), CancellationToken::new());
        tasks.spawn_until_closed("batcher", &closing, async {});
        assert_eq!(tasks.died().await, TaskError::Ended { task: "batcher" });
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_when_they_should_are_not_reported() {
        let (tasks, closing) = (Tasks::new(), CancellationToken::new());
        tasks.spawn("request", async {});
        tasks.spawn_loop("probe", &closing, pending());
        tasks.spawn_until_closed("batcher", &closing, closing.clone().cancelled_owned());
        let died = tasks.died();
        closing.cancel();
        assert_eq!(tasks.join().await, Ok(()));
        drop(tasks);
        timeout(Duration::from_secs(60), died).await.expect_err("no task has died");
    }
}
