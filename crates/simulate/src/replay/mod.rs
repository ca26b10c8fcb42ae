//! Decides recorded requests at their recorded times, so that operators can try rules on real traffic.
//!
//! Works on a [`ReplayStore`]: memory and Redis give the same answers.

mod decider;
mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, Read as _, Write};
use std::sync::Arc;

use engine::{Charges, Code, Decision, Enforcement, Plan, RuleSet, Verdict};

use crate::log::MAX_LINE_BYTES;

pub use decider::{MemoryReplay, RedisAccess, RedisReplay, ReplayStore, ReplayStoreError};
pub use line::{LineError, Recorded};

/// Requests decided in one step.
const CHUNK: usize = 1_024;

/// Why a replay stopped. The answers to earlier requests are written.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// `number` counts from 1.
    #[error("line {number}: {cause}")]
    Line { number: u64, cause: LineError },
    /// The file cannot be opened.
    #[error("cannot read the requests: {0}")]
    Read(#[source] std::io::Error),
    /// The output cannot be written.
    #[error("cannot write the answers: {0}")]
    Write(#[source] std::io::Error),
    #[error(transparent)]
    Store(#[from] ReplayStoreError),
}

/// A planned request without outcomes.
struct PendingRequest {
    t_us: u64,
    plan: Plan,
}

/// Replays `requests` by `rules`: writes a line of JSON for each line of JSON. Calls `progress` with the bytes read so
/// far.
///
/// # Errors
/// [`ReplayError`] at the first line that cannot be read, decided or written.
pub fn replay(
    rules: &RuleSet,
    store: &mut impl ReplayStore,
    (mut requests, answers): (impl BufRead, &mut impl Write),
    mut progress: impl FnMut(u64),
) -> Result<Summary, ReplayError> {
    let mut summary = Summary::default();
    let (mut text, mut number, mut bytes) = (String::new(), 0, 0);
    let mut pending: Vec<PendingRequest> = Vec::with_capacity(CHUNK);
    loop {
        text.clear();
        let mut line = (&mut requests).take(MAX_LINE_BYTES as u64 + 1);
        let read = line.read_line(&mut text);
        if !matches!(read, Ok(0)) {
            number += 1;
            match read.map_err(LineError::Read).and_then(|_| plan(rules, &text)) {
                Ok(planned) => pending.extend(planned),
                Err(cause) => {
                    decide_pending(store, &mut pending, answers, &mut summary)?;
                    return Err(ReplayError::Line { number, cause });
                }
            }
        }
        bytes += text.len() as u64;
        let is_end = text.is_empty();
        if is_end || pending.len() == CHUNK {
            decide_pending(store, &mut pending, answers, &mut summary)?;
            progress(bytes);
        }
        if is_end {
            answers.flush().map_err(ReplayError::Write)?;
            return Ok(summary);
        }
    }
}

/// `None` for a blank line.
fn plan(rules: &RuleSet, text: &str) -> Result<Option<PendingRequest>, LineError> {
    if text.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    if text.trim().is_empty() {
        return Ok(None);
    }
    let Recorded { t_us, request } = Recorded::parse(text)?;
    let plan = Plan::new(rules, &request, t_us)?;
    Ok(Some(PendingRequest { t_us, plan }))
}

/// Decides the pending requests and writes the answers.
fn decide_pending(
    store: &mut impl ReplayStore,
    pending: &mut Vec<PendingRequest>,
    answers: &mut impl Write,
    summary: &mut Summary,
) -> Result<(), ReplayError> {
    let requests: Vec<(u64, &Charges)> =
        pending.iter().map(|pending| (pending.t_us, &pending.plan.charges)).collect();
    let outcomes = store.decide(&requests)?;
    for (PendingRequest { t_us, plan }, outcomes) in pending.drain(..).zip(outcomes) {
        let decision = Decision::merge(plan, outcomes, Enforcement::Enforce);
        summary.count(&decision);
        // Each receipt of a replay has a unique nonce, the same in every run.
        let receipt = decision.receipt(|| summary.requests);
        line::write_answer(answers, t_us, &decision, receipt).map_err(ReplayError::Write)?;
    }
    Ok(())
}

/// Requests decided and over limit, in total and by limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    pub requests: u64,
    pub over_limit: u64,
    /// By the label of the limit.
    pub limits: BTreeMap<Arc<str>, LimitCount>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitCount {
    pub decided: u64,
    /// Includes shadow rules.
    pub over_limit: u64,
}

impl Summary {
    pub(super) fn count(&mut self, decision: &Decision) {
        self.requests += 1;
        self.over_limit += u64::from(decision.overall == Code::OverLimit);
        for result in decision.limit_results() {
            let count = self.limits.entry(Arc::clone(&result.limit.label)).or_default();
            count.decided += 1;
            count.over_limit += u64::from(result.outcome.verdict == Verdict::Over);
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} requests, {} over limit", self.requests, self.over_limit)?;
        for (label, count) in &self.limits {
            writeln!(f, "  {label}: {} of {} over limit", count.over_limit, count.decided)?;
        }
        Ok(())
    }
}
