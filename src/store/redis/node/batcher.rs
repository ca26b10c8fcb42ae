//! Group commit: requests that arrive while a call is under way go out together as the next one.
//!
//! A batcher takes whatever waits, sends it as one call and gives everyone their part of the answer. It never lingers
//! for more: an idle worker adds no wait, a busy one batches by itself. A call whose fate is unknown is not repeated.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::calls;
use super::job::{hand_out, turn_away};
use super::state::{Calls, NodeState};
use crate::engine::StoreError;
use crate::store::redis::connect::{CHECKOUT_TIMEOUT, Connection, checkout};
use crate::store::redis::error::CommandError;
use crate::store::redis::script::{self, Answer, By, Encoded, When, split_reply};

/// A batcher that has had nothing to do for so long looks after a connection: sooner than one is trusted no more.
const KEEP_ALIVE_AFTER: Duration = Duration::from_millis(500);

/// Batches until the queue is closed and empty.
pub(super) async fn run(shared: Arc<NodeState>) {
    // The first request should not have to wait for a connection.
    drop(shared.pool.get().await);
    loop {
        match timeout(KEEP_ALIVE_AFTER, shared.queue.ready()).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(_idle) => {
                keep_alive(&shared).await;
                continue;
            }
        }
        // First the connection, then the requests: those that arrive meanwhile go along. One that was closed while it
        // was idle is found out before it costs anyone a decision.
        while !serve(&shared).await {}
    }
}

/// Finds out whether the connection that was idle longest still is one, for as long as nobody asks anything: decisions come
/// first, and find it out by themselves.
async fn keep_alive(shared: &NodeState) {
    let looking = async {
        let attempt = checkout(&shared.pool, Instant::now() + CHECKOUT_TIMEOUT).await;
        // Why there is none, the next request will be told.
        if let Ok(mut attempt) = attempt
            && let Ok(connection) = attempt.as_mut()
        {
            connection.keep_alive(shared.timeout).await;
        }
    };
    tokio::select! {
        _ = shared.queue.ready() => {}
        () = looking => {}
    }
}

/// Sends a batch over one connection. False when that had died meanwhile and another is to be tried.
async fn serve(shared: &NodeState) -> bool {
    match checkout(&shared.pool, Instant::now() + shared.timeout).await {
        Ok(mut attempt) => match attempt.as_mut() {
            Ok(connection) => {
                if !connection.is_alive(shared.timeout / 2).await {
                    return false;
                }
                send(shared, connection).await;
            }
            Err(failure) => refuse(shared, &failure.cause),
        },
        Err(failure) => {
            // Those who came while it was tried may still be in time for the next one.
            let now = Instant::now();
            shared.queue.forget(|job| job.deadline <= now);
            shared.pace.lock().interrupted();
            shared.record(Err(&failure));
        }
    }
    true
}

/// Tells everyone who waits that there is no connection.
fn refuse(shared: &NodeState, failure: &StoreError) {
    let waiting = shared.everyone();
    if !waiting.is_empty() {
        shared.record(Err(failure));
    }
    turn_away(waiting, failure);
}

async fn send(shared: &NodeState, connection: &mut Connection) {
    let jobs = shared.take();
    let Some(deadline) = jobs.iter().map(|job| job.deadline).max() else {
        return;
    };
    shared.queue_depth.observer().batch(jobs.len());
    // An answer that comes late is worth waiting for as long again, though nobody else does: it costs less than a new
    // connection, and a server that is slow has better things to do than to open one.
    let patience = deadline + shared.timeout;
    match shared.calls {
        Calls::One => {
            let requests = jobs.iter().map(|job| &job.request);
            let deciding = decide(connection, requests, patience);
            let answer = shared.watch(deciding, deadline, |answer| answer.as_ref().map(|_| ())).await;
            hand_out(answer.map_err(CommandError::Failed), jobs);
        }
        Calls::PerSlot => {
            let deciding = calls::send(connection, jobs, patience);
            let calls = shared.watch(deciding, deadline, |calls| calls::health(calls)).await;
            calls::hand_out(calls);
        }
    }
}

/// Decides requests in one call.
pub(super) async fn decide<'a>(
    connection: &mut Connection,
    requests: impl Iterator<Item = &'a Encoded> + Clone,
    deadline: Instant,
) -> Result<Vec<Answer>, StoreError> {
    let call = script::call(requests.clone(), When::Now, By::Hash);
    let answer: Result<Vec<i64>, _> = match connection.query(&call, deadline).await {
        // A server that was restarted or flushed. The script did not run, so nothing is decided twice.
        Err(CommandError::NoScript) => {
            let call = script::call(requests.clone(), When::Now, By::Text);
            connection.query(&call, deadline).await
        }
        answer => answer,
    };
    let answers = split_reply(requests, &answer.map_err(StoreError::from)?);
    if answers.is_err() {
        // Whose answer that was, and what else is on its way, nobody knows.
        connection.mark_broken();
    }
    answers
}
