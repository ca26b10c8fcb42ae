//! How a batch goes to a node of a cluster: one call for each slot, all in one trip, each with an answer or an error of
//! its own. Knows nothing of which node has which slot.

use redis::Pipeline;
use tokio::time::Instant;

use super::job::{self, CallMode, Job};
use crate::engine::StoreError;
use crate::store::redis::connect::Connection;
use crate::store::redis::error::CommandError;
use crate::store::redis::script::{self, Answer, By, Encoded, When};

/// Requests that share a call, and what came of it.
pub(super) struct Call {
    jobs: Vec<Job>,
    answered: Result<Vec<Answer>, CommandError>,
}

/// Sends a batch.
pub(super) async fn send(connection: &mut Connection, jobs: Vec<Job>, deadline: Instant) -> Vec<Call> {
    let mut calls = sorted(jobs);
    ask(connection, &mut calls, By::Hash, deadline).await;
    // A node that was restarted, flushed or has just got the slot. The script did not run, so nothing is decided twice.
    ask(connection, &mut calls, By::Text, deadline).await;
    calls
}

/// Whether the node is well, as far as its answers show: one that has not got the slot, or is to be asked again, is.
pub(super) fn health(calls: &[Call]) -> Result<(), &StoreError> {
    let mut health = Ok(());
    for call in calls {
        match &call.answered {
            Err(CommandError::Failed(failure)) => health = Err(failure),
            _ => return Ok(()),
        }
    }
    health
}

/// Gives everyone their part of the answers.
pub(super) fn hand_out(calls: Vec<Call>) {
    for call in calls {
        job::hand_out(call.answered, call.jobs);
    }
}

/// Whether a node answers, be it that the question's slot is elsewhere.
///
/// # Errors
/// What a decision would meet.
pub(super) async fn probe(
    connection: &mut Connection,
    question: &Encoded,
    deadline: Instant,
) -> Result<(), StoreError> {
    let call = script::call(std::iter::once(question), When::Now, By::Hash);
    match connection.query::<Vec<i64>>(&call, deadline).await {
        Err(CommandError::Failed(failure)) => Err(failure),
        Ok(_) | Err(CommandError::NoScript | CommandError::Redirected { .. }) => Ok(()),
    }
}

/// The requests in the calls that they share, those of each slot in the order in which they came.
fn sorted(mut jobs: Vec<Job>) -> Vec<Call> {
    jobs.sort_by_key(|job| job.mode);
    let mut calls: Vec<Call> = Vec::with_capacity(jobs.len());
    for job in jobs {
        match calls.last_mut() {
            Some(call) if matches!(job.mode, CallMode::Batched(_)) && call.jobs[0].mode == job.mode => {
                call.jobs.push(job);
            }
            _ => calls.push(Call { jobs: vec![job], answered: Err(CommandError::NoScript) }),
        }
    }
    calls
}

/// Sends those calls that have met no script yet: all of them at first.
async fn ask(connection: &mut Connection, calls: &mut [Call], by: By, deadline: Instant) {
    let mut unanswered: Vec<&mut Call> =
        calls.iter_mut().filter(|call| matches!(call.answered, Err(CommandError::NoScript))).collect();
    if unanswered.is_empty() {
        return;
    }
    let mut pipeline = Pipeline::with_capacity(unanswered.len());
    pipeline.ignore_errors();
    for call in &unanswered {
        if call.jobs[0].mode == CallMode::Asking {
            pipeline.cmd("ASKING").ignore();
        }
        let requests = call.jobs.iter().map(|job| &job.request);
        pipeline.add_command(script::call(requests, When::Now, by));
    }
    let expected = unanswered.len();
    let answers = match connection.query_each(&pipeline, deadline).await {
        Ok(answers) if answers.len() == expected => answers,
        Ok(_) => all_failed(expected, &StoreError::Malformed("not one answer for each call".to_owned())),
        Err(failure) => all_failed(expected, &failure.into()),
    };
    for (call, answer) in unanswered.iter_mut().zip(answers) {
        let requests = call.jobs.iter().map(|job| &job.request);
        call.answered = answer.and_then(|numbers| {
            script::split_reply(requests, &numbers).map_err(|malformed| {
                // Whose answer that was, and what else is on its way, nobody knows.
                connection.mark_broken();
                CommandError::Failed(malformed)
            })
        });
    }
}

fn all_failed(calls: usize, failure: &StoreError) -> Vec<Result<Vec<i64>, CommandError>> {
    (0..calls).map(|_| Err(CommandError::Failed(failure.clone()))).collect()
}
