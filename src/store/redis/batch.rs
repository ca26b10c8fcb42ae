//! Group commit: requests that arrive while a call is under way go out together as the next one.
//!
//! A batcher takes whatever waits, sends it as one call and gives everyone their part of the answer. It never lingers
//! for more: an idle worker adds no wait, a busy one batches by itself. A call whose fate is unknown is not repeated.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::codec::{Answer, Encoded};
use super::meters::Observer;
use super::pool::{CommandError, Link, LinkPool};
use super::queue::Queue;
use super::script::{self, By, When};
use crate::engine::StoreError;

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Encoded,
    /// After this nobody waits any more.
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Result<Answer, StoreError>>,
}

/// What the batchers of a worker share.
pub(super) struct Shared {
    pub(super) queue: Queue<Job>,
    pub(super) pool: LinkPool,
    pub(super) max_batch: usize,
    pub(super) observer: Arc<dyn Observer>,
}

/// Batches until the queue is closed and empty.
pub(super) async fn run(shared: Arc<Shared>) {
    // The first request should not have to wait for a connection.
    drop(shared.pool.get().await);
    while shared.queue.ready().await {
        // First the connection, then the requests: those that arrive meanwhile go along. One that was closed while it
        // was idle is found out before it costs anyone a decision.
        while !serve(&shared).await {}
    }
}

/// Sends a batch over one connection. False when that had died meanwhile and another is to be tried.
async fn serve(shared: &Shared) -> bool {
    match shared.pool.get().await.as_deref_mut() {
        Ok(Ok(link)) => {
            if !link.is_alive().await {
                return false;
            }
            send(shared, link).await;
        }
        Ok(Err(failure)) => refuse(shared, failure),
        // An attempt ends before this wait does, so none was free: cannot be, each batcher has its own.
        Err(_) => refuse(shared, &StoreError::Timeout),
    }
    true
}

impl Shared {
    /// What waits, up to so many counters: what a call costs Redis, and so how long everybody else waits, goes by
    /// these and not by requests.
    fn take(&self, counters: usize) -> Vec<Job> {
        let now = Instant::now();
        let weigh = |job: &Job| {
            let is_wanted = !job.answer.is_closed() && job.deadline > now;
            is_wanted.then(|| job.request.key_count().max(1))
        };
        let (jobs, left) = self.queue.take(counters, weigh);
        self.observer.queue_depth(left);
        jobs
    }
}

/// Tells everyone who waits that there is no connection.
fn refuse(shared: &Shared, failure: &StoreError) {
    for job in shared.take(usize::MAX) {
        deliver(job, Err(failure.clone()));
    }
}

async fn send(shared: &Shared, link: &mut Link) {
    let jobs = shared.take(shared.max_batch);
    let Some(deadline) = jobs.iter().map(|job| job.deadline).max() else {
        return;
    };
    shared.observer.batch(jobs.len());
    match decide(link, &jobs, deadline).await {
        Ok(numbers) => hand_out(jobs, &numbers),
        Err(failure) => {
            for job in jobs {
                deliver(job, Err(failure.clone()));
            }
        }
    }
}

async fn decide(link: &mut Link, jobs: &[Job], deadline: Instant) -> Result<Vec<i64>, StoreError> {
    let requests = jobs.iter().map(|job| &job.request);
    let call = script::call(requests.clone(), When::Now, By::Hash);
    match link.ask(&call, deadline).await {
        Ok(numbers) => return Ok(numbers),
        Err(CommandError::Failed(failure)) => return Err(failure),
        // A server that was restarted or flushed. The script did not run, so nothing is decided twice.
        Err(CommandError::NoScript) => {}
    }
    let call = script::call(requests, When::Now, By::Text);
    link.ask(&call, deadline).await.map_err(StoreError::from)
}

fn hand_out(jobs: Vec<Job>, numbers: &[i64]) {
    let expected: usize = jobs.iter().map(|job| job.request.width()).sum();
    let split = numbers.split_first().filter(|(_, numbers)| numbers.len() == expected);
    let Some((&now, mut rest)) = split else {
        let failure = format!("{} numbers instead of {}", numbers.len(), expected + 1);
        for job in jobs {
            deliver(job, Err(StoreError::Malformed(failure.clone())));
        }
        return;
    };
    // A clock before 1970 counts from there.
    let now_us = now.max(0).unsigned_abs();
    for job in jobs {
        let (numbers, after) = rest.split_at(job.request.width());
        rest = after;
        let answer = Answer { now_us, numbers: numbers.into() };
        deliver(job, Ok(answer));
    }
}

fn deliver(job: Job, answer: Result<Answer, StoreError>) {
    // A caller who has gone does not want it.
    drop(job.answer.send(answer));
}
