//! A batch becomes script calls: one for each slot, all in one round trip, each with a result of its own. A standalone
//! server has no slots, so a batch is one call. Knows nothing of which node has which slot.

use redis::{Cmd, Pipeline};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::job::{CallMode, Job, answer_all};
use crate::engine::StoreError;
use crate::store::redis::connect::Connection;
use crate::store::redis::error::CommandError;
use crate::store::redis::script::{self, Answer, By, When};

/// Requests that share one script call, and its result.
pub(super) struct Call {
    jobs: Vec<Job>,
    result: Result<Vec<Answer>, CommandError>,
}

/// The calls of a batch: one, on a standalone server.
pub(super) type Calls = SmallVec<[Call; 1]>;

/// The numbers that a call returned.
type Numbers = Result<Vec<i64>, CommandError>;

impl Call {
    fn new(jobs: Vec<Job>) -> Self {
        Self { jobs, result: Err(CommandError::NoScript) }
    }

    /// Requests of the same slot share a call; a call of a request in another mode has just that one.
    fn mode(&self) -> CallMode {
        self.jobs[0].mode
    }

    /// Whether the call has not run: it was not sent yet, or the server answered NOSCRIPT.
    fn is_unsettled(&self) -> bool {
        matches!(self.result, Err(CommandError::NoScript))
    }

    fn command(&self, by: By) -> Cmd {
        script::call(self.jobs.iter().map(|job| &job.request), When::Now, by)
    }

    /// Takes the result over. A reply of the wrong shape breaks the connection: the next reply may belong to another
    /// call.
    fn set_result(&mut self, numbers: Numbers, connection: &mut Connection) {
        self.result = numbers.and_then(|numbers| {
            let requests = self.jobs.iter().map(|job| &job.request);
            script::split_reply(requests, &numbers).map_err(|malformed| {
                connection.mark_broken();
                CommandError::Failed(malformed)
            })
        });
    }
}

/// Sends a batch of at least one request, and waits for the results until `deadline`.
pub(super) async fn send(connection: &mut Connection, jobs: Vec<Job>, deadline: Instant) -> Calls {
    let mut calls = group_by_slot(jobs);
    round_trip(connection, &mut calls, By::Hash, deadline).await;
    // NOSCRIPT: the server was restarted or flushed. The script did not run, so this retry, the only one, decides
    // nothing twice.
    if calls.iter().any(Call::is_unsettled) {
        round_trip(connection, &mut calls, By::Text, deadline).await;
    }
    calls
}

/// Healthy unless every call failed. A redirect is the answer of a healthy cluster node; without slots there is no
/// other server, and it is a failure.
pub(super) fn health(calls: &[Call]) -> Result<(), &StoreError> {
    let mut health = Ok(());
    for call in calls {
        match &call.result {
            Err(CommandError::Failed(error)) => health = Err(error),
            Err(CommandError::Redirected { error, .. }) if call.mode() == CallMode::Batched(None) => {
                health = Err(error);
            }
            _ => return Ok(()),
        }
    }
    health
}

/// Answers all requests.
pub(super) fn answer_calls(calls: Calls) {
    for call in calls {
        answer_all(call.jobs, call.result);
    }
}

/// Requests of a slot share a call and keep their order.
fn group_by_slot(jobs: Vec<Job>) -> Calls {
    let is_batched = |job: &Job| matches!(job.mode, CallMode::Batched(_));
    // The usual case, and the only one of a standalone server: nothing to sort.
    if jobs.iter().all(|job| is_batched(job) && job.mode == jobs[0].mode) {
        return Calls::from_iter([Call::new(jobs)]);
    }
    let (mut batched, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(is_batched);
    batched.sort_by_key(|job| if let CallMode::Batched(slot) = job.mode { slot } else { None });
    let mut calls = Calls::new();
    for job in batched {
        match calls.last_mut() {
            Some(call) if call.mode() == job.mode => call.jobs.push(job),
            _ => calls.push(Call::new(vec![job])),
        }
    }
    calls.extend(others.into_iter().map(|job| Call::new(vec![job])));
    calls
}

/// Sends the calls that have not run, and sets their results.
async fn round_trip(connection: &mut Connection, calls: &mut Calls, by: By, deadline: Instant) {
    if let [call] = calls.as_mut_slice()
        && call.mode() != CallMode::Asking
    {
        let numbers = connection.query(&call.command(by), deadline).await;
        call.set_result(numbers, connection);
        return;
    }
    let unsettled: Vec<_> = calls.iter_mut().filter(|call| call.is_unsettled()).collect();
    let results = query_calls(connection, &unsettled, by, deadline).await;
    for (call, numbers) in unsettled.into_iter().zip(results) {
        call.set_result(numbers, connection);
    }
}

/// Sends calls as one pipeline: a result for each.
async fn query_calls(
    connection: &mut Connection,
    calls: &[&mut Call],
    by: By,
    deadline: Instant,
) -> Vec<Numbers> {
    let mut pipeline = Pipeline::with_capacity(calls.len());
    pipeline.ignore_errors();
    for call in calls {
        if call.mode() == CallMode::Asking {
            pipeline.cmd("ASKING").ignore();
        }
        pipeline.add_command(call.command(by));
    }
    let failure = match connection.query_each(&pipeline, deadline).await {
        Ok(results) if results.len() == calls.len() => return results,
        Ok(_) => StoreError::Malformed("not one answer for each call".to_owned()),
        Err(error) => error.into(),
    };
    calls.iter().map(|_| Err(CommandError::Failed(failure.clone()))).collect()
}
