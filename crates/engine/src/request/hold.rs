//! Holds: a caller reserves an estimate, and commits the real cost with the id that it got, at most once.
//!
//! The id, `h1.<end>.<receipt>`, contains the end in seconds since the epoch, in base 36, and the reservation's
//! [`Receipt`]. Nothing is stored until the commit, which leaves a mark.

use std::fmt;
use std::time::Duration;

use super::plan::charge::{Charge, Charges, Role};
use super::receipt::{Base36, Receipt, base36};
use crate::limit::algorithm::{Cost, Gcra, Kernel, Pacing};
use crate::limit::spec::{Charging, FailurePolicy};

/// The version, which is the first field.
const VERSION: &str = "h1";

/// Longest time from a reservation to its commit.
pub const LONGEST_HOLD: Duration = Duration::from_secs(24 * 3_600);

/// The clocks of instances and stores may differ by this many seconds.
const CLOCKS_DIFFER_S: u64 = 60;

const SECOND_US: u64 = 1_000_000;

/// An admitted reservation. `Display` and [`Hold::read`] define the id's format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Seconds since the epoch. From then on nothing is booked.
    end_s: u64,
    pub receipt: Receipt,
}

impl Hold {
    /// `now_us`: microseconds since the epoch. `ttl`: 1 s to [`LONGEST_HOLD`]; other times become the nearest of these.
    pub fn new(receipt: Receipt, now_us: u64, ttl: Duration) -> Self {
        let ttl = ttl.clamp(Duration::from_secs(1), LONGEST_HOLD);
        Self { end_s: now_us.div_ceil(SECOND_US) + ttl.as_secs(), receipt }
    }

    /// Reads an id of any length and content, in bounded time and memory. `None` if it is unreadable, or ends later
    /// than a new hold.
    pub fn read(id: &str, now_us: u64) -> Option<Self> {
        let (end, receipt) = id.strip_prefix(VERSION)?.strip_prefix('.')?.split_once('.')?;
        let latest = now_us / SECOND_US + LONGEST_HOLD.as_secs() + CLOCKS_DIFFER_S;
        let end_s = base36(end).filter(|&end| end <= latest)?;
        Some(Self { end_s, receipt: receipt.parse().ok()? })
    }

    /// Microseconds since the epoch.
    pub fn end_us(&self) -> u64 {
        self.end_s * SECOND_US
    }

    /// Returns the mark as a charge, which only fits for the first commit; `None` after the hold's end.
    ///
    /// It is the only unit of a limit until the end. The state of GCRA is an instant, here the end, so the key needs no
    /// period. No rule uses this key, because no domain is empty.
    pub fn mark(&self, now_us: u64) -> Option<Charges> {
        let left_s = self.end_s.checked_sub(now_us / SECOND_US).filter(|&left| left > 0)?;
        let kernel = Gcra::new(1, (left_s + CLOCKS_DIFFER_S) * SECOND_US, 1, Pacing::Meter);
        let charge = Charge {
            kernel: Kernel::Gcra(kernel),
            cost: Cost::take(1),
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        let mut mark = Charges::default();
        mark.push(charge, |key| *key += &format!("{{|hold={}}}#hold", Base36(self.receipt.nonce)));
        Some(mark)
    }

    /// Returns a peek on the mark, which is over after the commit; `None` after the hold's end.
    pub fn peek(&self, now_us: u64) -> Option<Charges> {
        let peek = |charge: &Charge| Charge { cost: Cost::PEEK, ..charge.clone() };
        Some(self.mark(now_us)?.filter_map(|_, charge| Some(peek(charge))))
    }
}

impl fmt::Display for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{VERSION}.{}.{}", Base36(self.end_s), self.receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_US: u64 = 1_700_000_000_500_000;

    fn hold(ttl_s: u64) -> Hold {
        Hold::new(Receipt::new(35), NOW_US, Duration::from_secs(ttl_s))
    }

    #[test]
    fn an_id_reads_as_documented() {
        let id = hold(3_600).to_string();
        // 1,700,003,601 in base 36.
        assert_eq!(id, "h1.s44z69.1.z");
        assert_eq!(Hold::read(&id, NOW_US), Some(hold(3_600)));
        for ttl_s in [1, 86_400] {
            assert_eq!(Hold::read(&hold(ttl_s).to_string(), NOW_US), Some(hold(ttl_s)));
        }
        assert_eq!((hold(0), hold(u64::MAX)), (hold(1), hold(86_400)));
    }

    #[test]
    fn another_text_is_unreadable() {
        let late = format!("h1.{}.1.z", Base36(NOW_US / SECOND_US + 86_400 + 61));
        let long = format!("h1.1.1.z{}", ".1-1-1".repeat(257));
        for id in
            ["", "abc", "1.z", "h1", "h1.", "h1.1", "h1.1.", "h1.1.2.z", "h1..1.z", "h1.-1.1.z", &late, &long]
        {
            assert_eq!(Hold::read(id, NOW_US), None, "{id}");
        }
        assert_eq!(Hold::read(&"h1.".repeat(1 << 22), NOW_US), None);
    }

    #[test]
    fn a_mark_fits_once_before_the_end_and_never_after_it() {
        let hold = hold(10);
        let state_after = |now_us| {
            let mark = hold.mark(now_us).expect("not ended");
            let (key, charge) = mark.get(0);
            assert_eq!(key, "{|hold=z}#hold");
            (charge.kernel, charge.kernel.period_us().expect("a period"))
        };
        // A period of one second belongs to another server.
        assert_eq!(state_after(hold.end_us() - 1).1, (1 + CLOCKS_DIFFER_S) * SECOND_US);
        assert_eq!(hold.mark(hold.end_us()), None);
    }
}
