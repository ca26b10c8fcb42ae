//! Group commit: requests that arrive while a call is in flight are sent together as the next call.
//!
//! Before sending, a batcher lets its worker's other tasks run until they add no more requests; the worker has then
//! read everything that has arrived. It never waits for a request that has not arrived, so an idle worker adds no
//! delay. A call that may have run is not repeated.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::StoreError;
use tokio::task::yield_now;
use tokio::time::{Instant, timeout, timeout_at};

use super::calls::{self, FinishedCalls, QueuedRequest, fail_unsent};
use super::state::NodeState;
use crate::redis::connect::{Connection, checkout, checkout_timeout};

/// An idle batcher PINGs its connection after this time. That is before the connection counts as idle, when a decision
/// would have to wait for the PING.
const KEEP_ALIVE_AFTER: Duration = Duration::from_millis(500);

/// A batcher sends immediately once this many requests wait. A larger call would save Redis little, and Redis is idle
/// meanwhile.
const ENOUGH_TO_GATHER: usize = 64;
/// The same after a batch with several requests per counter: equal charges are sent once, so a call with twice as many
/// of them takes Redis little longer.
const ENOUGH_FOR_HOT_COUNTERS: usize = 128;

/// Sends batches until the queue is closed and empty.
pub(super) async fn run(node: Arc<NodeState>) {
    // Connects before the first request arrives.
    drop(node.pool.get().await);
    let mut has_failed = false;
    loop {
        if node.queue.len() == 0 {
            node.forget_load();
        }
        match timeout(KEEP_ALIVE_AFTER, node.queue.ready()).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(_idle) => {
                // One failed attempt can be chance. Each consecutive failure counts like a failed call, so that an
                // outage is noticed without requests.
                let started = Instant::now();
                let failure = keep_alive(&node).await.err();
                if let Some(failure) = failure.as_ref().filter(|_| has_failed) {
                    node.record_result(started, Err(failure));
                }
                has_failed = failure.is_some();
                continue;
            }
        }
        // Tries another connection while the pool returns dead ones.
        while !send_next(&node).await {}
    }
}

/// PINGs the connection that was idle longest, or opens one. Stops when a request arrives: the next batch detects a
/// dead connection itself.
///
/// # Errors
/// Why no connection can be opened.
async fn keep_alive(node: &NodeState) -> Result<(), StoreError> {
    let ping = async {
        let mut pooled = checkout(&node.pool, Instant::now() + checkout_timeout(&node.target)).await?;
        let connection = pooled.as_mut().map_err(|failure| failure.cause.clone())?;
        connection.keep_alive().await;
        Ok(())
    };
    tokio::select! {
        _ = node.queue.ready() => Ok(()),
        result = ping => result,
    }
}

/// Sends the next batch. Returns `false` if the connection turned out to be dead before anything was sent on it.
async fn send_next(node: &NodeState) -> bool {
    // The connection comes first: requests that arrive while it is opened join the batch.
    let started = Instant::now();
    match checkout(&node.pool, started + node.timeout).await {
        Ok(mut pooled) => match pooled.as_mut() {
            Ok(connection) => {
                if !connection.is_alive(node.timeout / 2).await {
                    return false;
                }
                send_batch(node, connection).await;
            }
            Err(failure) => fail_waiting(node, started, &failure.cause),
        },
        Err(failure) => {
            // Requests that arrived during the attempt can still be in time for the next one.
            node.drop_late();
            node.record_result(started, Err(&failure));
        }
    }
    true
}

/// Fails all waiting requests because there is no connection. `started`: when the batcher asked for one.
fn fail_waiting(node: &NodeState, started: Instant, failure: &StoreError) {
    let waiting = node.drain();
    if !waiting.is_empty() {
        node.record_result(started, Err(failure));
    }
    fail_unsent(waiting, failure);
}

/// Lets other tasks run until they add no more requests, or enough requests wait.
async fn gather(node: &NodeState) {
    let is_hot = node.is_hot.load(Ordering::Relaxed);
    let enough = node.max_batch.min(if is_hot { ENOUGH_FOR_HOT_COUNTERS } else { ENOUGH_TO_GATHER });
    let mut waiting = 0;
    loop {
        let before = std::mem::replace(&mut waiting, node.queue.len());
        if waiting <= before || waiting >= enough {
            return;
        }
        yield_now().await;
    }
}

async fn send_batch(node: &NodeState, connection: &mut Connection) {
    gather(node).await;
    let requests = node.take_batch();
    if !requests.is_empty() {
        node.observer.batch(requests.len());
        let calls = measured_send(node, connection, requests).await;
        calls::answer_calls(calls);
    }
}

/// Sends a batch, and records its duration and whether it failed.
async fn measured_send(
    node: &NodeState,
    connection: &mut Connection,
    requests: Vec<QueuedRequest>,
) -> FinishedCalls {
    let sent = Instant::now();
    let deadlines = requests.iter().map(|request| request.deadline);
    let (first, deadline) = (deadlines.clone().min().unwrap_or(sent), deadlines.max().unwrap_or(sent));
    // A late reply is still read although no caller waits for it. That costs less than a new connection, which would be
    // more work for a slow server.
    let logs_apart = node.logs_apart.load(Ordering::Relaxed);
    let mut sending = pin!(calls::send(connection, requests, deadline + node.timeout, logs_apart));
    let calls = if let Ok(calls) = timeout_at(deadline, &mut sending).await {
        if let Some(health) = calls::health(&calls) {
            node.record_result(sent, health);
        }
        calls
    } else {
        // The call counts as one failure, whatever its late reply.
        node.record_result(sent, Err(&StoreError::Timeout));
        sending.await
    };
    if calls::are_logs_apart(&calls, logs_apart) != logs_apart {
        node.logs_apart.store(!logs_apart, Ordering::Relaxed);
    }
    if let Some(is_hot) = calls::are_hot(&calls) {
        node.is_hot.store(is_hot, Ordering::Relaxed);
    }
    let answered = Instant::now();
    let mut control = node.queue_control.lock();
    control.record_call(answered - sent);
    if answered > first {
        control.record_late_answer(sent, answered);
    }
    drop(control);
    calls
}
