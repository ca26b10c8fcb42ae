//! Group commit: requests that arrive while a call is under way go out together as the next one.
//!
//! A batcher takes whatever waits, sends it as one call and gives everyone their part of the answer. It never lingers
//! for more: an idle worker adds no wait, a busy one batches by itself. A call whose fate is unknown is not repeated.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::codec::{Answer, Encoded};
use super::guard::Guard;
use super::meters::Observer;
use super::pace::Pace;
use super::pool::{self, CommandError, Link, LinkPool};
use super::queue::{Queue, Taken};
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
    pub(super) guard: Guard,
    pub(super) pace: Mutex<Pacing>,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    /// The longest a decision may take.
    pub(super) timeout: Duration,
    /// What a probe asks to decide.
    pub(super) probe: Encoded,
    pub(super) observer: Arc<dyn Observer>,
}

/// The pace; when requests were last taken up, and whether others were left waiting then.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    pace: Pace,
    last_take: Option<Instant>,
    was_busy: bool,
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
    match pool::connection(&shared.pool, Instant::now() + shared.timeout).await {
        Ok(mut attempt) => match attempt.as_mut() {
            Ok(link) => {
                if !link.is_alive().await {
                    return false;
                }
                send(shared, link).await;
            }
            Err(failure) => refuse(shared, &failure.cause),
        },
        Err(failure) => {
            // Those who came while it was tried may still be in time for the next one.
            let now = Instant::now();
            shared.queue.forget(|job| job.deadline <= now);
            shared.note(Err(&failure));
        }
    }
    true
}

impl Shared {
    /// What waits, up to so many counters: what a call costs Redis, and so how long everybody else waits, goes by
    /// these and not by requests. Whom the answer would reach too late is told at once.
    fn take(&self) -> Vec<Job> {
        let now = Instant::now();
        let latest = now + self.pace.lock().pace.lead(self.timeout);
        let weigh = |job: &Job| {
            let is_wanted = !job.answer.is_closed() && job.deadline > latest;
            is_wanted.then(|| job.request.key_count().max(1))
        };
        let taken = self.queue.take(self.max_batch, weigh);
        self.observer.queue_depth(taken.left);
        self.pace(now, &taken);
        for job in taken.passed.into_iter().filter(|job| job.deadline > now) {
            deliver(job, Err(StoreError::Overloaded));
        }
        taken.items
    }

    /// Learns from what was taken how many may wait from now on: at least a full batch.
    fn pace(&self, now: Instant, taken: &Taken<Job>) {
        let mut pacing = self.pace.lock();
        let last = pacing.last_take.replace(now);
        let was_busy = std::mem::replace(&mut pacing.was_busy, taken.left > 0) || taken.overflowed;
        if let Some(last) = last.filter(|_| was_busy) {
            pacing.pace.taken_while_busy(taken.items.len(), now - last);
            if let Some(bearable) = pacing.pace.bearable(self.timeout) {
                self.queue.set_bound(bearable.max(self.max_batch).min(self.max_queue));
            }
        }
    }

    /// Takes note of how a call ended; tells everyone who waits when there is to be no other.
    fn note(&self, result: Result<(), &StoreError>) {
        if let Err(open) = self.guard.note(result) {
            for job in self.queue.take(usize::MAX, |_| Some(0)).items {
                deliver(job, Err(open.clone()));
            }
        }
    }
}

/// Tells everyone who waits that there is no connection.
fn refuse(shared: &Shared, failure: &StoreError) {
    let waiting = shared.queue.take(usize::MAX, |_| Some(0)).items;
    if !waiting.is_empty() {
        shared.note(Err(failure));
    }
    for job in waiting {
        deliver(job, Err(failure.clone()));
    }
}

async fn send(shared: &Shared, link: &mut Link) {
    let jobs = shared.take();
    if jobs.is_empty() {
        return;
    }
    shared.observer.batch(jobs.len());
    match ask(shared, link, &jobs).await {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                deliver(job, Ok(answer));
            }
        }
        Err(failure) => {
            for job in jobs {
                deliver(job, Err(failure.clone()));
            }
        }
    }
}

/// Has the jobs decided, and takes note of how that went.
async fn ask(shared: &Shared, link: &mut Link, jobs: &[Job]) -> Result<Vec<Answer>, StoreError> {
    let sent = Instant::now();
    let deadline = jobs.iter().map(|job| job.deadline).max().unwrap_or(sent);
    // An answer that comes late is worth waiting for as long again, though nobody else does: it costs less than a new
    // connection, and a server that is slow has better things to do than to open one.
    let requests = jobs.iter().map(|job| &job.request);
    let mut decision = pin!(decide(link, requests, deadline + shared.timeout));
    let answer = match timeout_at(deadline, &mut decision).await {
        Ok(answer) => {
            shared.note(answer.as_ref().map(|_| ()));
            answer
        }
        Err(_) => {
            shared.note(Err(&StoreError::Timeout));
            let late = decision.await;
            if let Err(failure) = &late {
                shared.note(Err(failure));
            }
            late
        }
    };
    shared.pace.lock().pace.called(sent.elapsed());
    answer
}

/// Decides requests in one call.
pub(super) async fn decide<'a>(
    link: &mut Link,
    requests: impl Iterator<Item = &'a Encoded> + Clone,
    deadline: Instant,
) -> Result<Vec<Answer>, StoreError> {
    let call = script::call(requests.clone(), When::Now, By::Hash);
    let answer: Result<Vec<i64>, _> = match link.ask(&call, deadline).await {
        // A server that was restarted or flushed. The script did not run, so nothing is decided twice.
        Err(CommandError::NoScript) => {
            let call = script::call(requests.clone(), When::Now, By::Text);
            link.ask(&call, deadline).await
        }
        answer => answer,
    };
    let answers = cut(requests, &answer.map_err(StoreError::from)?);
    if answers.is_err() {
        // Whose answer that was, and what else is on its way, nobody knows.
        link.give_up();
    }
    answers
}

/// Gives each request its part of the numbers.
fn cut<'a>(
    requests: impl Iterator<Item = &'a Encoded> + Clone,
    numbers: &[i64],
) -> Result<Vec<Answer>, StoreError> {
    let expected: usize = requests.clone().map(Encoded::width).sum();
    let split = numbers.split_first().filter(|(_, numbers)| numbers.len() == expected);
    let Some((&now, mut rest)) = split else {
        let failure = format!("{} numbers instead of {}", numbers.len(), expected + 1);
        return Err(StoreError::Malformed(failure));
    };
    // A clock before 1970 counts from there.
    let now_us = now.max(0).unsigned_abs();
    let answers = requests.map(|request| {
        let (numbers, after) = rest.split_at(request.width());
        rest = after;
        Answer { now_us, numbers: numbers.into() }
    });
    Ok(answers.collect())
}

fn deliver(job: Job, answer: Result<Answer, StoreError>) {
    // A caller who has gone does not want it.
    drop(job.answer.send(answer));
}
