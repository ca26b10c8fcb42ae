//! Outcomes from the integers that the script returns; lua/counters.lua lists them. Knows nothing of connections.

use engine::algorithm::{
    Attempt, BucketState, Facts, FixedWindow, Gcra, IntervalBucket, Kernel, LogFacts, SlidingWindow, Tat,
    TokenState, Verdict, WindowState,
};
use engine::{Charge, Charges, CounterSnapshot, DecidedBy, Outcome, Outcomes, StoreError};
use smallvec::SmallVec;

use super::layout::KernelLayout;

/// The script's reply to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// Time of the decision, microseconds since the epoch.
    pub(crate) now_us: u64,
    pub(crate) numbers: SmallVec<[i64; 4]>,
}

impl Answer {
    /// The answer to a reset: whether the counter existed.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the script cannot have returned these numbers.
    pub(crate) fn was_reset(&self) -> Result<bool, StoreError> {
        match *self.numbers {
            [0] => Ok(true),
            [-1] => Ok(false),
            _ => Err(malformed("not the answer to a reset")),
        }
    }

    /// The answer to a request with these charges.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the script cannot have returned these numbers.
    pub(crate) fn outcomes(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let mut rest = self.numbers.as_slice();
        let mut outcomes = Outcomes::default();
        for charge in charges.values() {
            let width = KernelLayout::for_kernel(&charge.kernel).reply_width;
            let Some((numbers, after)) = rest.split_at_checked(width) else {
                return Err(malformed("too few numbers"));
            };
            outcomes.by_charge.push(Some(outcome(charge, numbers, self.now_us)?));
            rest = after;
        }
        if rest.is_empty() { Ok(outcomes) } else { Err(malformed("too many numbers")) }
    }
}

/// The outcome of one charge.
///
/// # Errors
/// [`StoreError::Malformed`] if the script cannot have returned these numbers.
pub(crate) fn outcome(charge: &Charge, numbers: &[i64], now_us: u64) -> Result<Outcome, StoreError> {
    let mut numbers: SmallVec<[i64; 4]> = numbers.into();
    let mut verdict = Verdict::Fits;
    if let Some(first) = numbers.first_mut().filter(|first| **first < 0) {
        *first = -1 - *first;
        verdict = if charge.cost.is_refund() { Verdict::Fits } else { Verdict::Over };
    }
    let facts = facts(&charge.kernel, &numbers, now_us).ok_or_else(|| malformed("a number out of range"))?;
    let attempt = Attempt { now_us, cost: charge.cost };
    let report = charge.kernel.report(&facts, attempt, verdict);
    Ok(Outcome { verdict, report, decided_by: DecidedBy::Store(CounterSnapshot { now_us, facts }) })
}

/// The outcome of a charge after its undo.
///
/// # Errors
/// [`StoreError::Refused`] if the script could not undo the grant, [`StoreError::Malformed`] if it cannot have returned
/// these numbers.
pub(crate) fn undone(charge: &Charge, answer: &Answer) -> Result<Outcome, StoreError> {
    let outcome = outcome(charge, &answer.numbers, answer.now_us)?;
    match outcome.verdict {
        Verdict::Fits => Ok(outcome),
        Verdict::Over => Err(StoreError::Refused("the log has too many later grants for an undo".to_owned())),
    }
}

/// The counter that the numbers describe; `None` where they leave the range of the kernel.
fn facts(kernel: &Kernel, numbers: &[i64], now_us: u64) -> Option<Facts> {
    match kernel {
        Kernel::FixedWindow(kernel) => window_state(kernel, numbers).map(Facts::Window),
        Kernel::SlidingWindow(kernel) => bucket_state(kernel, numbers, now_us).map(Facts::Buckets),
        Kernel::SlidingLog(_) => log_facts(numbers).map(Facts::Log),
        Kernel::Gcra(kernel) => tat(kernel, numbers).map(Facts::Tat),
        Kernel::IntervalBucket(kernel) => token_state(kernel, numbers).map(Facts::Tokens),
        Kernel::Blocked(_) => (*numbers == [0]).then_some(Facts::Nothing),
    }
}

fn window_state(kernel: &FixedWindow, numbers: &[i64]) -> Option<WindowState> {
    let &[index, count] = numbers else { return None };
    Some(WindowState { index: window_index(index, kernel.window_us())?, count: exact(count)? })
}

/// The script moves the counts to the window of its time, so the window has not ended then.
fn bucket_state(kernel: &SlidingWindow, numbers: &[i64], now_us: u64) -> Option<BucketState> {
    let &[index, current, previous] = numbers else { return None };
    let index =
        window_index(index, kernel.window_us()).filter(|&index| index >= now_us / kernel.window_us())?;
    Some(BucketState { index, current: exact(current)?, previous: exact(previous)? })
}

fn log_facts(numbers: &[i64]) -> Option<LogFacts> {
    let &[used, newest_us, next_us, retry_us] = numbers else { return None };
    Some(LogFacts {
        used: exact(used)?,
        newest_us: exact(newest_us)?,
        next_us: exact(next_us)?,
        retry_us: exact(retry_us)?,
    })
}

fn tat(kernel: &Gcra, numbers: &[i64]) -> Option<Tat> {
    let (whole_us, fraction) = match *numbers {
        [whole_us] => (whole_us, 0),
        [whole_us, fraction] => (whole_us, fraction),
        _ => return None,
    };
    let fraction = exact(fraction).filter(|&fraction| fraction < kernel.denominator())?;
    Some(Tat { whole_us: exact(whole_us)?, fraction })
}

fn token_state(kernel: &IntervalBucket, numbers: &[i64]) -> Option<TokenState> {
    let &[start_us, tokens] = numbers else { return None };
    let tokens = Some(tokens).filter(|tokens| tokens.unsigned_abs() <= kernel.capacity())?;
    Some(TokenState { tokens, start_us: exact(start_us)? })
}

/// A quantity: what a double holds exactly.
fn exact(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < 1 << 53)
}

/// The index of a window that starts before 2^53 us.
fn window_index(number: i64, window_us: u64) -> Option<u64> {
    let index = exact(number)?;
    index.checked_mul(window_us).filter(|&start_us| start_us < 1 << 53)?;
    Some(index)
}

fn malformed(what: &str) -> StoreError {
    StoreError::Malformed(what.to_owned())
}
