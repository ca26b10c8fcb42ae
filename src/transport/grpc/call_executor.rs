//! Runs the calls of one connection, each as a task with a time limit. hyper passes every call here, from its handler
//! to the last byte of its answer; it has no time limit of its own for an answer that the client does not take.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use hyper::rt::Executor;

use super::open_calls::{ConnectionCalls, OpenCall};

/// From the headers of a call to its whole answer. More than the time for a message to arrive (2 s) and the longest
/// `store.redis.timeout` (10 s) together.
pub(super) const CALL_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Clone, Debug)]
pub(super) struct CallExecutor(pub(super) Arc<ConnectionCalls>);

impl<C> Executor<C> for CallExecutor
where
    C: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, call: C) {
        let open = self.0.open();
        #[expect(clippy::disallowed_methods, reason = "a call ends with its connection, which is joined")]
        tokio::spawn(run(call, open));
    }
}

/// Ends early when the time is over: dropping the call resets its stream.
async fn run(call: impl Future<Output = ()>, open: OpenCall) {
    let mut call = pin!(call);
    let mut timer = pin!(None);
    let is_complete = poll_fn(|cx| {
        if call.as_mut().poll(cx).is_ready() {
            return Poll::Ready(true);
        }
        if open.is_stream {
            return Poll::Pending;
        }
        // Most calls are complete at the first poll and need no timer.
        if timer.is_none() {
            timer.set(Some(tokio::time::sleep(CALL_TIMEOUT)));
        }
        match timer.as_mut().as_pin_mut() {
            Some(timer) => timer.poll(cx).map(|()| false),
            None => Poll::Pending,
        }
    });
    if !is_complete.await {
        open.record_untaken();
    }
}
