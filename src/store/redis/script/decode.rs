//! How the numbers that the script returns are read, in the layout that lua/decide.lua describes. Knows nothing of
//! connections.

use smallvec::SmallVec;

use super::encode::width;
use crate::engine::algorithm::{Attempt, BucketState, Facts, Kernel, LogFacts, Tat, TokenState, WindowState};
use crate::engine::{Charge, Charges, CounterSnapshot, DecidedBy, Outcome, Outcomes, StoreError, Verdict};

/// The numbers that the script returned for one request, and when it decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) now_us: u64,
    pub(crate) numbers: SmallVec<[i64; 4]>,
}

impl Answer {
    /// Reads whether there was a counter to be forgotten.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] where the numbers cannot come from the script.
    pub(crate) fn forgotten(&self) -> Result<bool, StoreError> {
        match *self.numbers {
            [0] => Ok(true),
            [-1] => Ok(false),
            _ => Err(malformed("neither forgotten nor unknown")),
        }
    }

    /// Reads the answer to a request.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] where the numbers cannot come from the script.
    pub(crate) fn outcomes(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let mut rest = self.numbers.as_slice();
        let mut outcomes = Outcomes::default();
        for charge in charges.values() {
            let Some((numbers, after)) = rest.split_at_checked(width(&charge.kernel)) else {
                return Err(malformed("too few numbers"));
            };
            outcomes.by_charge.push(Some(outcome(charge, numbers, self.now_us)?));
            rest = after;
        }
        if rest.is_empty() { Ok(outcomes) } else { Err(malformed("too many numbers")) }
    }
}

pub(crate) fn outcome(charge: &Charge, numbers: &[i64], now_us: u64) -> Result<Outcome, StoreError> {
    let mut numbers: SmallVec<[i64; 4]> = numbers.into();
    let mut verdict = Verdict::Fits;
    if let Some(first) = numbers.first_mut().filter(|first| **first < 0) {
        *first = -1 - *first;
        verdict = if charge.cost.is_refund() { Verdict::Fits } else { Verdict::Over };
    }
    let facts = facts(&charge.kernel, &numbers).ok_or_else(|| malformed("a number out of range"))?;
    let ask = Attempt { now_us, cost: charge.cost };
    let report = charge.kernel.report(&facts, ask, verdict);
    Ok(Outcome { verdict, report, decided_by: DecidedBy::Store(CounterSnapshot { now_us, facts }) })
}

/// The counter that the numbers describe; `None` where they are beyond what the kernel computes with.
fn facts(kernel: &Kernel, numbers: &[i64]) -> Option<Facts> {
    Some(match (kernel, numbers) {
        (Kernel::FixedWindow(k), &[index, count]) => {
            Facts::Window(WindowState { index: window_index(index, k.window_us())?, count: quantity(count)? })
        }
        (Kernel::SlidingWindow(k), &[index, current, previous]) => Facts::Buckets(BucketState {
            index: window_index(index, k.window_us())?,
            current: quantity(current)?,
            previous: quantity(previous)?,
        }),
        (Kernel::SlidingLog(_), &[used, newest_us, next_us, retry_us]) => Facts::Log(LogFacts {
            used: quantity(used)?,
            newest_us: quantity(newest_us)?,
            next_us: quantity(next_us)?,
            retry_us: quantity(retry_us)?,
        }),
        (Kernel::Gcra(_), &[whole_us]) => Facts::Tat(Tat { whole_us: quantity(whole_us)?, fraction: 0 }),
        (Kernel::Gcra(k), &[whole_us, fraction]) => Facts::Tat(Tat {
            whole_us: quantity(whole_us)?,
            fraction: quantity(fraction).filter(|&fraction| fraction < k.denominator())?,
        }),
        (Kernel::IntervalBucket(k), &[last_us, tokens]) => Facts::Tokens(TokenState {
            tokens: Some(tokens).filter(|tokens| tokens.unsigned_abs() <= k.capacity())?,
            last_us: quantity(last_us)?,
        }),
        (Kernel::Blocked(_), &[0]) => Facts::Nothing,
        _ => return None,
    })
}

/// A number of the script's: what a double holds exactly.
fn quantity(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < 1 << 53)
}

/// The index of a window whose start is a time.
fn window_index(number: i64, window_us: u64) -> Option<u64> {
    let index = quantity(number)?;
    index.checked_mul(window_us).filter(|&start_us| start_us < 1 << 53)?;
    Some(index)
}

fn malformed(what: &str) -> StoreError {
    StoreError::Malformed(what.to_owned())
}
