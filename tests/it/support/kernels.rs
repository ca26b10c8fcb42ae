//! Kernels with numbers of the test's choosing, without a rule file.

use ratelimitd::engine::Pacing;
use ratelimitd::engine::algorithm::Gcra;

/// `limit` units per `period_us`, `burst` at once.
pub fn gcra(limit: u64, period_us: u64, burst: u64, pacing: Pacing) -> Gcra {
    let (mut divisor, mut rest) = (period_us, limit);
    while rest > 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    Gcra { limit, period_us, burst, pacing, numerator: period_us / divisor, denominator: limit / divisor }
}
