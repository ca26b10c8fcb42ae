//! Group commit: requests that arrive while a call is under way go out together as the next one.
//!
//! A batcher takes whatever waits, sends it as one call and gives everyone their part of the answer. It never lingers
//! for more: an idle worker adds no wait, a busy one batches by itself. A call whose fate is unknown is not repeated.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::time::Instant;

use super::cluster::calls;
use super::codec::{Answer, Encoded};
use super::meters::Gauge;
use super::options::Topology;
use super::pool::{CommandError, Link, LinkPool};
use super::queue::Queue;
use super::script::{self, By, When};
use super::setback::Setback;
use crate::engine::StoreError;

/// A request that waits for its answer.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) request: Encoded,
    pub(super) manner: Manner,
    /// After this nobody waits any more.
    pub(super) deadline: Instant,
    pub(super) answer: oneshot::Sender<Result<Answer, Setback>>,
}

/// What a request may share a script call with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Manner {
    /// With requests of the same slot, and without one with whatever goes to the same server.
    Shared(Option<u16>),
    /// With nothing.
    Alone,
    /// With nothing, and of a server that does not have the slot yet.
    Asking,
}

/// How the requests of a batch are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// As one call.
    One,
    /// As one call for each slot.
    PerSlot,
}

impl Calls {
    pub(super) fn of(topology: &Topology) -> Self {
        match topology {
            Topology::Cluster => Self::PerSlot,
            Topology::Standalone | Topology::Sentinel(_) => Self::One,
        }
    }
}

/// What the batchers of a lane share.
pub(super) struct Shared {
    pub(super) queue: Queue<Job>,
    pub(super) pool: LinkPool,
    pub(super) max_batch: usize,
    pub(super) calls: Calls,
    pub(super) gauge: Gauge,
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
        self.gauge.queue_depth(left);
        jobs
    }
}

/// Tells everyone who waits that there is no connection.
fn refuse(shared: &Shared, failure: &StoreError) {
    for job in shared.take(usize::MAX) {
        let Job { request, answer, .. } = job;
        deliver(answer, Err(Setback::unsent(request, failure.clone())));
    }
}

async fn send(shared: &Shared, link: &mut Link) {
    let jobs = shared.take(shared.max_batch);
    let Some(deadline) = jobs.iter().map(|job| job.deadline).max() else {
        return;
    };
    shared.gauge.observer().batch(jobs.len());
    match shared.calls {
        Calls::One => hand_out(decide(link, &jobs, deadline).await, jobs),
        Calls::PerSlot => calls::send(link, jobs, deadline).await,
    }
}

async fn decide(link: &mut Link, jobs: &[Job], deadline: Instant) -> Result<Vec<i64>, CommandError> {
    let requests = jobs.iter().map(|job| &job.request);
    let call = script::call(requests.clone(), When::Now, By::Hash);
    match link.ask(&call, deadline).await {
        // A server that was restarted or flushed. The script did not run, so nothing is decided twice.
        Err(CommandError::NoScript) => {}
        answered => return answered,
    }
    let call = script::call(requests, When::Now, By::Text);
    link.ask(&call, deadline).await
}

/// Gives everyone who shared a call their part of what came of it.
pub(super) fn hand_out(answered: Result<Vec<i64>, CommandError>, jobs: Vec<Job>) {
    let expected: usize = jobs.iter().map(|job| job.request.width()).sum();
    let numbers = match answered {
        Ok(numbers) if numbers.len() == expected + 1 => numbers,
        Ok(numbers) => {
            let failure = format!("{} numbers instead of {}", numbers.len(), expected + 1);
            return refuse_all(jobs, CommandError::Failed(StoreError::Malformed(failure)));
        }
        Err(failure) => return refuse_all(jobs, failure),
    };
    // A clock before 1970 counts from there.
    let now_us = numbers[0].max(0).unsigned_abs();
    let mut rest = &numbers[1..];
    for job in jobs {
        let (numbers, after) = rest.split_at(job.request.width());
        rest = after;
        deliver(job.answer, Ok(Answer { now_us, numbers: numbers.into() }));
    }
}

fn refuse_all(jobs: Vec<Job>, failure: CommandError) {
    let redirect =
        if let CommandError::Redirected(redirect) = &failure { Some(redirect.clone()) } else { None };
    let failure = StoreError::from(failure);
    for Job { request, answer, .. } in jobs {
        let setback = match &redirect {
            Some(redirect) => Setback::redirected(request, redirect.clone()),
            None => Setback::Failed(failure.clone()),
        };
        deliver(answer, Err(setback));
    }
}

fn deliver(to: oneshot::Sender<Result<Answer, Setback>>, answer: Result<Answer, Setback>) {
    // A caller who has gone does not want it.
    drop(to.send(answer));
}
