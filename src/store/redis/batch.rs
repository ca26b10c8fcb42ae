//! Group commit: requests that arrive while a call is under way go out together as the next one.
//!
//! A batcher takes whatever waits, sends it as one call and gives everyone their part of the answer. It never lingers
//! for more: an idle worker adds no wait, a busy one batches by itself. A call whose fate is unknown is not repeated.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::cluster::calls;
use super::codec::{Answer, Encoded};
use super::guard::Guard;
use super::meters::Gauge;
use super::options::Topology;
use super::pace::Pace;
use super::pool::{self, CommandError, Link, LinkPool};
use super::queue::{Queue, Taken};
use super::script::{self, By, When};
use super::sentinel::Way;
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
    /// Where the connections lead.
    pub(super) way: Way,
    pub(super) guard: Guard,
    pub(super) pace: Mutex<Pacing>,
    pub(super) max_batch: usize,
    pub(super) max_queue: usize,
    /// The longest a decision may take.
    pub(super) timeout: Duration,
    /// What a probe asks to decide.
    pub(super) probe: Mutex<Encoded>,
    pub(super) calls: Calls,
    pub(super) gauge: Gauge,
}

/// The pace; when requests were last taken up, and whether others were left waiting then.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    pace: Pace,
    last_take: Option<Instant>,
    was_busy: bool,
}

/// A batcher that has had nothing to do for so long looks after a connection: sooner than one is trusted no more.
const LOOK_AFTER: Duration = Duration::from_millis(500);

/// Batches until the queue is closed and empty.
pub(super) async fn run(shared: Arc<Shared>) {
    // The first request should not have to wait for a connection.
    drop(shared.pool.get().await);
    loop {
        match timeout(LOOK_AFTER, shared.queue.ready()).await {
            Ok(true) => {}
            Ok(false) => break,
            Err(_idle) => {
                look_after(&shared).await;
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
async fn look_after(shared: &Shared) {
    let looking = async {
        let attempt = pool::connection(&shared.pool, Instant::now() + pool::PATIENCE).await;
        // Why there is none, the next request will be told.
        if let Ok(mut attempt) = attempt
            && let Ok(link) = attempt.as_mut()
        {
            link.look_after(shared.timeout).await;
        }
    };
    tokio::select! {
        _ = shared.queue.ready() => {}
        () = looking => {}
    }
}

/// Sends a batch over one connection. False when that had died meanwhile and another is to be tried.
async fn serve(shared: &Shared) -> bool {
    match pool::connection(&shared.pool, Instant::now() + shared.timeout).await {
        Ok(mut attempt) => match attempt.as_mut() {
            Ok(link) => {
                if !link.is_alive(shared.timeout / 2).await {
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
            shared.pace.lock().interrupted();
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
        self.gauge.queue_depth(taken.left);
        self.pace(now, &taken);
        for job in taken.passed.into_iter().filter(|job| job.deadline > now) {
            deliver(job.answer, Err(Setback::Failed(StoreError::Overloaded)));
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

    /// Waits for what a call comes to, and takes note of how long it took and whether the server is well.
    async fn watch<T>(
        &self,
        call: impl Future<Output = T>,
        deadline: Instant,
        health: impl Fn(&T) -> Result<(), &StoreError>,
    ) -> T {
        let sent = Instant::now();
        let mut call = pin!(call);
        let answer = if let Ok(answer) = timeout_at(deadline, &mut call).await {
            self.note(health(&answer));
            answer
        } else {
            // One call, one failure, whatever comes of it later.
            self.note(Err(&StoreError::Timeout));
            call.await
        };
        self.pace.lock().pace.called(sent.elapsed());
        answer
    }

    /// Takes note of how a call ended; tells everyone who waits when there is to be no other.
    fn note(&self, result: Result<(), &StoreError>) {
        if let Err(open) = self.guard.note(result) {
            turn_away(self.everyone(), &open);
        }
    }

    /// Empties the queue, not to decide.
    fn everyone(&self) -> Vec<Job> {
        let waiting = self.queue.take(usize::MAX, |_| Some(0)).items;
        self.gauge.queue_depth(0);
        self.pace.lock().interrupted();
        waiting
    }
}

impl Pacing {
    /// Requests were not decided for a while: the time until the next ones says nothing of the server's pace.
    fn interrupted(&mut self) {
        self.last_take = None;
        self.was_busy = false;
    }
}

/// Tells everyone who waits that there is no connection.
fn refuse(shared: &Shared, failure: &StoreError) {
    let waiting = shared.everyone();
    if !waiting.is_empty() {
        shared.note(Err(failure));
    }
    turn_away(waiting, failure);
}

/// Tells them that they have not been sent.
fn turn_away(jobs: Vec<Job>, failure: &StoreError) {
    for Job { request, answer, .. } in jobs {
        deliver(answer, Err(Setback::unsent(request, failure.clone())));
    }
}

async fn send(shared: &Shared, link: &mut Link) {
    let jobs = shared.take();
    let Some(deadline) = jobs.iter().map(|job| job.deadline).max() else {
        return;
    };
    shared.gauge.observer().batch(jobs.len());
    // An answer that comes late is worth waiting for as long again, though nobody else does: it costs less than a new
    // connection, and a server that is slow has better things to do than to open one.
    let patience = deadline + shared.timeout;
    match shared.calls {
        Calls::One => {
            let requests = jobs.iter().map(|job| &job.request);
            let deciding = decide(link, requests, patience);
            let answer = shared.watch(deciding, deadline, |answer| answer.as_ref().map(|_| ())).await;
            hand_out(answer.map_err(CommandError::Failed), jobs);
        }
        Calls::PerSlot => {
            let deciding = calls::send(link, jobs, patience);
            let calls = shared.watch(deciding, deadline, |calls| calls::health(calls)).await;
            calls::hand_out(calls);
        }
    }
}

/// Gives everyone who shared a call what came of it.
pub(super) fn hand_out(answer: Result<Vec<Answer>, CommandError>, jobs: Vec<Job>) {
    match answer {
        Ok(answers) => {
            for (job, answer) in jobs.into_iter().zip(answers) {
                deliver(job.answer, Ok(answer));
            }
        }
        Err(CommandError::Redirected { redirect, .. }) => {
            for Job { request, answer, .. } in jobs {
                deliver(answer, Err(Setback::redirected(request, redirect.clone())));
            }
        }
        Err(failure) => {
            let failure = StoreError::from(failure);
            for job in jobs {
                deliver(job.answer, Err(Setback::Failed(failure.clone())));
            }
        }
    }
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
pub(super) fn cut<'a>(
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

fn deliver(to: oneshot::Sender<Result<Answer, Setback>>, answer: Result<Answer, Setback>) {
    // A caller who has gone does not want it.
    drop(to.send(answer));
}
