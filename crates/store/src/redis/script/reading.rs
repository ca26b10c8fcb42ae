//! The integers that the script returns for a counter, as the engine's reading of it.

use engine::algorithm::{
    BucketState, CalendarState, CounterReading, FixedWindow, Gcra, IntervalBucket, Kernel, LogReading,
    SlidingWindow, Tat, TokenState, WindowState,
};

/// The counter that the numbers describe; `None` if the kernel cannot have such numbers.
pub(super) fn reading(kernel: &Kernel, numbers: &[i64], now_us: u64) -> Option<CounterReading> {
    match kernel {
        Kernel::FixedWindow(kernel) => window_state(kernel, numbers).map(CounterReading::Window),
        Kernel::CalendarWindow(_) => calendar_state(numbers).map(CounterReading::Calendar),
        Kernel::SlidingWindow(kernel) => bucket_state(kernel, numbers, now_us).map(CounterReading::Buckets),
        Kernel::SlidingLog(_) => log_reading(numbers).map(CounterReading::Log),
        Kernel::Gcra(kernel) => tat(kernel, numbers).map(CounterReading::Tat),
        Kernel::IntervalBucket(kernel) => token_state(kernel, numbers).map(CounterReading::Tokens),
        Kernel::Blocked(_) => (*numbers == [0]).then_some(CounterReading::Nothing),
    }
}

fn window_state(kernel: &FixedWindow, numbers: &[i64]) -> Option<WindowState> {
    let &[index, count] = numbers else { return None };
    Some(WindowState { index: window_index(index, kernel.window_us())?, count: exact(count)? })
}

fn calendar_state(numbers: &[i64]) -> Option<CalendarState> {
    let &[start_us, count] = numbers else { return None };
    Some(CalendarState { start_us: exact(start_us)?, count: exact(count)? })
}

/// The script moves the counts to the window of its time, so the window has not ended then.
fn bucket_state(kernel: &SlidingWindow, numbers: &[i64], now_us: u64) -> Option<BucketState> {
    let &[index, current, previous] = numbers else { return None };
    let index =
        window_index(index, kernel.window_us()).filter(|&index| index >= now_us / kernel.window_us())?;
    Some(BucketState { index, current: exact(current)?, previous: exact(previous)? })
}

fn log_reading(numbers: &[i64]) -> Option<LogReading> {
    let &[used, newest_us, next_us, retry_us] = numbers else { return None };
    Some(LogReading {
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

/// A quantity: a number that a double holds exactly.
fn exact(number: i64) -> Option<u64> {
    u64::try_from(number).ok().filter(|&number| number < 1 << 53)
}

/// The index of a window that starts before 2^53 us.
fn window_index(number: i64, window_us: u64) -> Option<u64> {
    let index = exact(number)?;
    index.checked_mul(window_us).filter(|&start_us| start_us < 1 << 53)?;
    Some(index)
}
