//! Decides recorded requests on a virtual clock: how operators try a rule set on yesterday's traffic.
//!
//! Knows lines of JSON and a [`Judge`]; whether the judge is memory or Redis makes no difference to what comes out.

mod judge;
mod line;
mod summary;

use std::io::{BufRead, Write};

pub use judge::{Judge, JudgeError, MemoryJudge, RedisJudge};
pub use line::LineError;
pub use summary::Summary;

use crate::engine::{Charges, Decision, Enforcement, Plan, RuleSet};
use line::Recorded;

/// Requests that are read, decided and written together.
const CHUNK: usize = 1_024;

/// Why a replay ended early. What was decided before is written.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// A line is not a request.
    #[error("line {number}: {cause}")]
    Line {
        /// From 1.
        number: u64,
        /// What is wrong with it.
        cause: LineError,
    },
    /// The input cannot be read.
    #[error("cannot read the requests: {0}")]
    Read(#[source] std::io::Error),
    /// The output cannot be written.
    #[error("cannot write the answers: {0}")]
    Write(#[source] std::io::Error),
    /// The store cannot decide.
    #[error(transparent)]
    Judge(#[from] JudgeError),
}

/// A request that is planned and waits for its outcomes.
struct Pending {
    t_us: u64,
    plan: Plan,
}

/// Replays `requests` by `rules`, one line of JSON in, one out. Calls `progress` with the bytes read so far.
///
/// # Errors
/// [`ReplayError`] at the first line that cannot be decided or read or written.
pub fn replay(
    rules: &RuleSet,
    judge: &mut impl Judge,
    (mut requests, answers): (impl BufRead, &mut impl Write),
    mut progress: impl FnMut(u64),
) -> Result<Summary, ReplayError> {
    let mut summary = Summary::default();
    let (mut text, mut number, mut bytes) = (String::new(), 0, 0);
    let mut pending: Vec<Pending> = Vec::with_capacity(CHUNK);
    loop {
        text.clear();
        let read = requests.read_line(&mut text).map_err(ReplayError::Read)?;
        if read > 0 {
            (number, bytes) = (number + 1, bytes + read as u64);
            match plan(rules, &text) {
                Ok(planned) => pending.extend(planned),
                Err(cause) => {
                    settle(judge, &mut pending, answers, &mut summary)?;
                    return Err(ReplayError::Line { number, cause });
                }
            }
        }
        if read == 0 || pending.len() == CHUNK {
            settle(judge, &mut pending, answers, &mut summary)?;
            progress(bytes);
        }
        if read == 0 {
            answers.flush().map_err(ReplayError::Write)?;
            return Ok(summary);
        }
    }
}

/// The request on one line; blank lines hold none.
fn plan(rules: &RuleSet, text: &str) -> Result<Option<Pending>, LineError> {
    if text.trim().is_empty() {
        return Ok(None);
    }
    let Recorded { t_us, request } = Recorded::parse(text)?;
    let plan = rules.plan(&request)?;
    Ok(Some(Pending { t_us, plan }))
}

/// Decides everything pending and writes the answers.
fn settle(
    judge: &mut impl Judge,
    pending: &mut Vec<Pending>,
    answers: &mut impl Write,
    summary: &mut Summary,
) -> Result<(), ReplayError> {
    let asked: Vec<(u64, &Charges)> =
        pending.iter().map(|pending| (pending.t_us, &pending.plan.charges)).collect();
    let outcomes = judge.decide(&asked)?;
    for (Pending { t_us, plan }, outcomes) in pending.drain(..).zip(outcomes) {
        let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
        summary.count(&decision);
        line::write_answer(answers, t_us, &decision).map_err(ReplayError::Write)?;
    }
    Ok(())
}
