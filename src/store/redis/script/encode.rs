//! How a request is written for the script, in the layout that lua/decide.lua describes. Knows nothing of connections.

use smallvec::SmallVec;

use crate::engine::algorithm::{Facts, Gcra, Kernel};
use crate::engine::{Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Outcome, Role, Verdict};

/// One request as the script reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Encoded {
    keys: String,
    key_ends: SmallVec<[u32; 2]>,
    record: SmallVec<[u8; 64]>,
    width: usize,
    uses: u16,
}

/// In [`Encoded::uses`]: several charges.
const SEVERAL: u16 = 128;
/// The same: a counter to be forgotten, and what stands for it in place of a kernel.
const FORGET: u16 = 256;
const FORGET_NUMBER: u8 = 8;

impl Encoded {
    /// Writes a request, its keys with the prefix before them.
    pub(crate) fn new(charges: &Charges, prefix: &str) -> Self {
        let mut encoded = Self { width: numbers(charges), ..Self::default() };
        let is_single = charges.len() == 1;
        if !is_single {
            encoded.uses |= SEVERAL;
            encoded.record.push(0);
            // The bounds on requests keep both far below that.
            encoded.u16(u16::try_from(charges.len()).unwrap_or(u16::MAX));
            encoded.u16(charges.quota_groups());
        }
        for (key, charge) in charges.iter() {
            encoded.kernel(&charge.kernel, mode(charge));
            if !is_single {
                encoded.u16(role(charge));
            }
            encoded.numbers(key, charge, prefix);
        }
        encoded
    }

    /// Writes that a charge is undone whose request was not held back and which had this outcome; `None` where nothing
    /// was recorded that could be.
    pub(crate) fn undo((key, charge): (&str, &Charge), granted: &Outcome, prefix: &str) -> Option<Self> {
        let DecidedBy::Store(standing) = &granted.decided_by else { return None };
        let is_recorded = charge.charging == Charging::Prepaid && granted.verdict == Verdict::Fits;
        if !is_recorded || charge.cost.taken() == 0 {
            return None;
        }
        let receipt = receipt(standing)?;
        let mut encoded = Self { width: width(&charge.kernel), ..Self::default() };
        encoded.record.push(BEFORE_UNDO);
        encoded.f64s([receipt]);
        encoded.kernel(&charge.kernel, UNDO);
        encoded.numbers(key, charge, prefix);
        Some(encoded)
    }

    /// Writes that a counter is to be forgotten.
    pub(crate) fn reset(key: &str, prefix: &str) -> Self {
        let mut encoded = Self { width: 1, uses: FORGET, ..Self::default() };
        encoded.record.extend_from_slice(&[FORGET_NUMBER, 0]);
        encoded.key(prefix, key);
        encoded
    }

    pub(crate) fn key_count(&self) -> usize {
        self.key_ends.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let starts = std::iter::once(0).chain(self.key_ends.iter().copied());
        starts.zip(&self.key_ends).map(|(start, &end)| &self.keys[start as usize..end as usize])
    }

    pub(crate) fn record(&self) -> &[u8] {
        &self.record
    }

    /// What of the script it uses, as the script is told it.
    pub(crate) fn uses(&self) -> u16 {
        self.uses
    }

    /// How many numbers the script returns for it.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// About how many bytes it adds to a command.
    pub(crate) fn size(&self) -> usize {
        self.keys.len() + self.record.len() + 8 * self.key_ends.len()
    }

    fn kernel(&mut self, kernel: &Kernel, mode: u8) {
        let number = kernel_number(kernel);
        self.uses |= 1 << (number - 1);
        self.record.extend_from_slice(&[number, mode]);
    }

    fn numbers(&mut self, key: &str, charge: &Charge, prefix: &str) {
        if matches!(charge.kernel, Kernel::Blocked(_)) {
            return;
        }
        self.key(prefix, key);
        let units = charge.cost.needed() + charge.cost.refunded();
        match charge.kernel {
            Kernel::FixedWindow(k) => self.f64s([units, k.limit(), k.window_us()]),
            Kernel::SlidingWindow(k) => self.f64s([units, k.limit(), k.window_us()]),
            Kernel::SlidingLog(k) => self.f64s([units, k.limit(), k.window_us()]),
            Kernel::IntervalBucket(k) => self.f64s([units, k.capacity(), k.refill(), k.interval_us()]),
            Kernel::Gcra(k) => self.gcra(&k, units),
            Kernel::Blocked(_) => {}
        }
    }

    fn key(&mut self, prefix: &str, key: &str) {
        self.keys.reserve(prefix.len() + key.len());
        self.keys.push_str(prefix);
        self.keys.push_str(key);
        // The keys of one request are bounded far below 4 GiB, see Charges.
        self.key_ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
    }

    fn gcra(&mut self, kernel: &Gcra, units: u64) {
        let (cost, burst) = (kernel.drain(units), kernel.drain(kernel.burst()));
        if kernel.denominator() == 1 {
            self.f64s([cost.whole_us, burst.whole_us]);
        } else {
            self.f64s([cost.whole_us, cost.fraction, burst.whole_us, burst.fraction, kernel.denominator()]);
        }
    }

    /// Numbers as Lua has them. Each is below 2^53 by the bounds of the engine, so it stays exact.
    fn f64s<const N: usize>(&mut self, numbers: [u64; N]) {
        for number in numbers {
            self.record.extend_from_slice(&(number as f64).to_le_bytes());
        }
    }

    fn u16(&mut self, number: u16) {
        self.record.extend_from_slice(&number.to_le_bytes());
    }
}

/// The number that the script has for a charge's role.
fn role(charge: &Charge) -> u16 {
    match charge.role {
        // What asks and changes nothing is sent as a peek, which must not hold the others back.
        _ if charge.cost == Cost::refund(0) => 1,
        Role::Enforce => 0,
        Role::NonBinding => 1,
        Role::Quota(group) => 2 + group,
    }
}

/// Stands, with the receipt, before a charge that is undone.
const BEFORE_UNDO: u8 = 9;

/// How such a charge asks.
const UNDO: u8 = 5;

/// What tells the script which grant is meant.
fn receipt(granted: &CounterSnapshot) -> Option<u64> {
    match granted.facts {
        Facts::Window(state) => Some(state.index),
        Facts::Buckets(state) => Some(state.index),
        Facts::Log(log) => Some(log.newest_us),
        Facts::Tat(_) => Some(granted.now_us),
        Facts::Tokens(state) => Some(state.last_us),
        Facts::Nothing => None,
    }
}

fn kernel_number(kernel: &Kernel) -> u8 {
    match kernel {
        Kernel::FixedWindow(_) => 1,
        Kernel::SlidingWindow(_) => 2,
        Kernel::SlidingLog(_) => 3,
        Kernel::Gcra(k) if k.denominator() == 1 => 4,
        Kernel::Gcra(_) => 5,
        Kernel::IntervalBucket(_) => 6,
        Kernel::Blocked(_) => 7,
    }
}

/// How many numbers the script returns for a request.
pub(crate) fn numbers(charges: &Charges) -> usize {
    charges.values().map(|charge| width(&charge.kernel)).sum()
}

/// How many numbers the script returns for a charge.
pub(crate) fn width(kernel: &Kernel) -> usize {
    match kernel {
        Kernel::FixedWindow(_) | Kernel::IntervalBucket(_) => 2,
        Kernel::SlidingWindow(_) => 3,
        Kernel::SlidingLog(_) => 4,
        Kernel::Gcra(k) => 1 + usize::from(k.denominator() > 1),
        Kernel::Blocked(_) => 1,
    }
}

/// How a charge asks: peek, take, book, return, return booked.
fn mode(charge: &Charge) -> u8 {
    if !charge.cost.changes() {
        return 0;
    }
    match (charge.cost.is_refund(), charge.charging) {
        (false, Charging::Prepaid) => 1,
        (false, Charging::Postpaid) => 2,
        (true, Charging::Prepaid) => 3,
        (true, Charging::Postpaid) => 4,
    }
}
