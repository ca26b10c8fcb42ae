//! Encodes a request as keys and bytes for a script, and decodes the integers that it returns into outcomes. Each
//! script in lua/ describes its format: a kernel's script the format of a single charge, batch.lua of all other
//! requests.

use engine::algorithm::{
    Attempt, BucketState, CalendarState, CounterReading, Gcra, Kernel, LogReading, SlotsReading, Tat,
    TokenState, Verdict, WindowState,
};
use engine::{
    Caller, Charge, Charges, Charging, Cost, CounterSnapshot, DecidedBy, Outcome, Outcomes, Role, StoreError,
};
use smallvec::SmallVec;

use super::layout::{
    ChargeMode, GRANT, KernelLayout, LogUse, RESET, ROLE_ENFORCE, ROLE_NON_BINDING, ROLE_QUOTA, RepeatRule,
    SEVERAL, SLIDING_LOG,
};
use super::text::{self, Script};

/// A request as the script reads it.
#[derive(Clone, Debug, Default)]
pub(crate) struct EncodedRequest {
    /// All keys, concatenated.
    keys: String,
    key_ends: SmallVec<[u32; 2]>,
    /// What the script reads of the request apart from its keys; lua/batch.lua describes it.
    bytes: SmallVec<[u8; 64]>,
    /// Number of integers that the script returns for the request.
    pub(crate) reply_width: usize,
    pub(super) log_use: LogUse,
    has_slots: bool,
    /// The caller under which the request is queued. Not sent.
    pub(crate) caller: Caller,
    /// `true` if the request undoes a charge of a denied request.
    pub(crate) is_undo: bool,
}

impl EncodedRequest {
    /// `prefix` comes before each key.
    pub(crate) fn new(charges: &Charges, prefix: &str) -> Self {
        let mut encoded =
            Self { reply_width: reply_width(charges), caller: charges.caller(), ..Self::default() };
        let is_single = charges.len() == 1;
        if !is_single {
            encoded.bytes.push(SEVERAL);
            // The bounds on requests keep the count far below this maximum.
            encoded.push_u16(u16::try_from(charges.len()).unwrap_or(u16::MAX));
            encoded.push_u16(charges.quota_groups());
        }
        for (key, charge) in charges.iter() {
            if let Some(grant) = charge.cost.grant() {
                debug_assert!(is_single, "the script knows one grant for each request");
                encoded.bytes.push(GRANT);
                encoded.push_f64s([grant.id]);
            }
            encoded.push_kernel(&charge.kernel, charge_mode(charge, charges.is_known_denied()));
            if !is_single {
                encoded.push_u16(role_number(charge));
            }
            encoded.push_counter(key, charge, prefix);
        }
        encoded
    }

    /// Encodes the undo of a prepaid charge that was granted with this outcome. `None` if the charge recorded nothing,
    /// or renewed a slot.
    pub(crate) fn undo(key: &str, charge: &Charge, granted: &Outcome, prefix: &str) -> Option<Self> {
        let DecidedBy::Store(snapshot) = &granted.decided_by else { return None };
        let is_recorded = charge.charging == Charging::Prepaid && granted.verdict == Verdict::Fits;
        if !is_recorded || charge.cost.taken() == 0 || charge.cost.is_renewal() {
            return None;
        }
        let grant = charge.grant(&snapshot.reading)?;
        let cost = Cost::undo(charge.cost.taken(), grant);
        let undo = Charge { cost, charging: Charging::Postpaid, ..charge.clone() };
        let mut charges = Charges::default();
        charges.push(undo, |text| text.push_str(key));
        Some(Self { is_undo: true, ..Self::new(&charges, prefix) })
    }

    pub(crate) fn reset(key: &str, prefix: &str) -> Self {
        let mut encoded = Self { reply_width: 1, ..Self::default() };
        encoded.bytes.push(RESET);
        encoded.push_key(prefix, key);
        encoded
    }

    /// Encodes [`Reset::replace`](engine::Reset::replace): a reset and a charge that are decided together. The charge
    /// is to a counter.
    pub(crate) fn replace(key: &str, charge: &Charge, prefix: &str) -> Self {
        let reply_width = 1 + KernelLayout::for_kernel(&charge.kernel).reply_width();
        let mut encoded = Self { reply_width, ..Self::default() };
        encoded.bytes.push(SEVERAL);
        encoded.push_u16(2);
        encoded.push_u16(0);
        encoded.bytes.extend_from_slice(&[RESET, ChargeMode::Peek as u8]);
        encoded.push_u16(ROLE_NON_BINDING);
        encoded.push_key(prefix, key);
        encoded.push_kernel(&charge.kernel, charge_mode(charge, false));
        encoded.push_u16(ROLE_NON_BINDING);
        encoded.push_counter(key, charge, prefix);
        encoded
    }

    pub(crate) fn key_count(&self) -> usize {
        self.key_ends.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let starts = std::iter::once(0).chain(self.key_ends.iter().copied());
        starts.zip(&self.key_ends).map(|(start, &end)| &self.keys[start as usize..end as usize])
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the plain script that decides the request, and its argument after the time: the mode and the parameters.
    /// `None` unless the request is a single charge to a counter, and not an undo.
    pub(super) fn plain_charge(&self) -> Option<(&'static Script, &[u8])> {
        let (&number, charge) = self.bytes.split_first()?;
        Some((text::plain(KernelLayout::by_number(number)?)?, charge))
    }

    /// Returns what each of several equal charges adds to the counter. `None` unless the request is a single charge in
    /// mode Peek, Take or Record of a kernel that repeats charges.
    pub(super) fn repeat_rule(&self) -> Option<RepeatRule> {
        let &[number, mode, ..] = self.bytes.as_slice() else { return None };
        KernelLayout::by_number(number).filter(|_| mode <= ChargeMode::Record as u8)?.repeat
    }

    /// `true` if a charge of the request is to a sliding log or to slots, for which the script needs further commands.
    pub(crate) fn needs_more_commands(&self) -> bool {
        self.log_use >= LogUse::Charges || self.has_slots
    }

    /// Returns a parameter of a single charge. Its kernel must have that many.
    pub(super) fn parameter(&self, index: usize) -> i64 {
        let parameters = &self.bytes[2..];
        let bytes = parameters.as_chunks().0[index];
        // Whole numbers below 2^53, see `push_f64s`.
        f64::from_le_bytes(bytes) as i64
    }

    /// Approximate bytes that the request adds to a command.
    pub(crate) fn size(&self) -> usize {
        self.keys.len() + self.bytes.len() + 8 * self.key_ends.len()
    }

    fn push_kernel(&mut self, kernel: &Kernel, mode: ChargeMode) {
        let layout = KernelLayout::for_kernel(kernel);
        if *layout == *SLIDING_LOG {
            let is_refund = mode as u8 >= ChargeMode::Refund as u8;
            self.log_use = self.log_use.max(if is_refund { LogUse::Refunds } else { LogUse::Charges });
        }
        self.has_slots |= !kernel.is_freed_by_time();
        self.bytes.extend_from_slice(&[layout.number, mode as u8]);
    }

    /// Adds the kernel's parameters, and the key if the kernel has a counter.
    fn push_counter(&mut self, key: &str, charge: &Charge, prefix: &str) {
        let units = charge.cost.needed() + charge.cost.refunded();
        let start = self.bytes.len();
        match charge.kernel {
            Kernel::FixedWindow(k) => self.push_f64s([units, k.limit, k.window_us]),
            Kernel::CalendarWindow(k) => {
                let [first_us, middle_us, last_us] = k.boundaries();
                self.push_f64s([units, k.limit, first_us, middle_us, last_us]);
            }
            Kernel::SlidingWindow(k) => self.push_f64s([units, k.limit, k.window_us]),
            Kernel::SlidingLog(k) => self.push_f64s([units, k.limit, k.window_us]),
            Kernel::IntervalBucket(k) => self.push_f64s([units, k.capacity, k.refill, k.interval_us]),
            Kernel::Slots(k) => {
                self.push_f64s([charge.cost.needed().min(1), k.limit, k.hold_us, charge.cost.slot_id()]);
            }
            Kernel::Gcra(k) => self.push_gcra(&k, charge.cost),
            Kernel::Blocked(_) => return,
        }
        debug_assert_eq!(
            self.bytes.len() - start,
            KernelLayout::for_kernel(&charge.kernel).parameters_size()
        );
        self.push_key(prefix, key);
    }

    fn push_gcra(&mut self, kernel: &Gcra, cost: Cost) {
        let cost = match cost.grant() {
            Some(grant) => kernel.drain_of_grant(cost.refunded(), grant),
            None => kernel.drain(cost.needed() + cost.refunded()),
        };
        let burst = kernel.drain(kernel.burst);
        if kernel.denominator == 1 {
            self.push_f64s([cost.whole_us, burst.whole_us]);
        } else {
            let denominator = kernel.denominator;
            self.push_f64s([cost.whole_us, cost.fraction, burst.whole_us, burst.fraction, denominator]);
        }
    }

    fn push_key(&mut self, prefix: &str, key: &str) {
        self.keys.reserve(prefix.len() + key.len());
        self.keys.push_str(prefix);
        self.keys.push_str(key);
        // `Charges` keeps a request's keys far below 4 GiB.
        self.key_ends.push(u32::try_from(self.keys.len()).unwrap_or(u32::MAX));
    }

    /// Adds integers as Lua stores them. The engine keeps each below 2^53, so the doubles are exact.
    fn push_f64s<const N: usize>(&mut self, numbers: [u64; N]) {
        let bytes = numbers.map(|number| (number as f64).to_le_bytes());
        self.bytes.extend_from_slice(bytes.as_flattened());
    }

    fn push_u16(&mut self, number: u16) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }
}

/// Number of integers that the script returns for a request.
fn reply_width(charges: &Charges) -> usize {
    charges.values().map(|charge| KernelLayout::for_kernel(&charge.kernel).reply_width()).sum()
}

/// Returns a charge's mode. `is_denied`: `true` if the request is known to be denied, so that its prepaid charges are
/// not recorded.
fn charge_mode(charge: &Charge, is_denied: bool) -> ChargeMode {
    if !charge.cost.changes_counter() || is_denied && charge.charging == Charging::Prepaid {
        return ChargeMode::Peek;
    }
    if charge.cost.grant().is_some() {
        return ChargeMode::Undo;
    }
    match (charge.cost.is_refund(), charge.charging) {
        (false, Charging::Prepaid) => ChargeMode::Take,
        (false, Charging::Postpaid) => ChargeMode::Record,
        (true, Charging::Prepaid) => ChargeMode::Refund,
        (true, Charging::Postpaid) => ChargeMode::RefundRecorded,
    }
}

fn role_number(charge: &Charge) -> u16 {
    match charge.role {
        // A refund of 0 units always fits, but is sent as a peek, which may not fit and must then deny nothing.
        _ if charge.cost == Cost::refund(0) => ROLE_NON_BINDING,
        Role::Enforce => ROLE_ENFORCE,
        Role::Shadow | Role::Announced | Role::Booked | Role::IdleQuota | Role::Settle => ROLE_NON_BINDING,
        Role::Quota(group) => ROLE_QUOTA + group,
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestReply {
    /// Decision time, microseconds since the epoch.
    pub(crate) now_us: u64,
    pub(crate) numbers: SmallVec<[i64; 4]>,
}

impl RequestReply {
    /// Returns `true` if the reset counter existed.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the script cannot have returned these integers.
    pub(crate) fn was_reset(&self) -> Result<bool, StoreError> {
        match *self.numbers {
            [0] => Ok(true),
            [-1] => Ok(false),
            _ => Err(malformed("not the answer to a reset")),
        }
    }

    /// Decodes the answer to [`EncodedRequest::replace`] with this charge.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the script cannot have returned these integers.
    pub(crate) fn replaced(&self, charge: &Charge) -> Result<Outcome, StoreError> {
        let Some((0 | -1, numbers)) = self.numbers.split_first() else {
            return Err(malformed("not the answer to a reset"));
        };
        outcome(charge, numbers, self.now_us)
    }

    /// Decodes the answer to a request with these charges.
    ///
    /// # Errors
    /// [`StoreError::Malformed`] if the script cannot have returned these integers.
    pub(crate) fn outcomes(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let mut rest = self.numbers.as_slice();
        let mut outcomes = Outcomes::default();
        for charge in charges.values() {
            let width = KernelLayout::for_kernel(&charge.kernel).reply_width();
            let Some((numbers, after)) = rest.split_at_checked(width) else {
                return Err(malformed("too few numbers"));
            };
            outcomes.by_charge.push(outcome(charge, numbers, self.now_us)?);
            rest = after;
        }
        if rest.is_empty() { Ok(outcomes) } else { Err(malformed("too many numbers")) }
    }
}

/// Decodes the outcome of one charge.
///
/// # Errors
/// [`StoreError::Malformed`] if the script cannot have returned these integers.
pub(crate) fn outcome(charge: &Charge, numbers: &[i64], now_us: u64) -> Result<Outcome, StoreError> {
    let mut numbers: SmallVec<[i64; 4]> = numbers.into();
    let mut verdict = Verdict::Fits;
    if let Some(first) = numbers.first_mut().filter(|first| **first < 0) {
        *first = -1 - *first;
        // A refund always fits, except for an impossible undo.
        let fits = charge.cost.is_refund() && charge.cost.grant().is_none();
        verdict = if fits { Verdict::Fits } else { Verdict::Over };
    }
    let reading =
        reading(&charge.kernel, &numbers, now_us).ok_or_else(|| malformed("a number out of range"))?;
    let attempt = Attempt { now_us, cost: charge.cost };
    let report = charge.kernel.report(&reading, attempt, verdict);
    Ok(Outcome { verdict, report, decided_by: DecidedBy::Store(CounterSnapshot { now_us, reading }) })
}

/// Decodes a charge's outcome after its undo.
///
/// # Errors
/// [`StoreError::Refused`] if the script could not undo the grant, [`StoreError::Malformed`] if it cannot have returned
/// these integers.
pub(crate) fn undone(charge: &Charge, answer: &RequestReply) -> Result<Outcome, StoreError> {
    let outcome = outcome(charge, &answer.numbers, answer.now_us)?;
    match outcome.verdict {
        Verdict::Fits => Ok(outcome),
        Verdict::Over => Err(StoreError::Refused("the log has too many later grants for an undo".to_owned())),
    }
}

fn malformed(what: &str) -> StoreError {
    StoreError::Malformed(what.to_owned())
}

/// Decodes a counter; `None` if the kernel cannot have these integers.
fn reading(kernel: &Kernel, numbers: &[i64], now_us: u64) -> Option<CounterReading> {
    Some(match kernel {
        Kernel::FixedWindow(kernel) => {
            let [index, count] = exact(numbers)?;
            CounterReading::Window(WindowState { index: window_index(index, kernel.window_us)?, count })
        }
        Kernel::CalendarWindow(_) => {
            let [start_us, count] = exact(numbers)?;
            CounterReading::Calendar(CalendarState { start_us, count })
        }
        Kernel::SlidingWindow(kernel) => {
            let [index, current, previous] = exact(numbers)?;
            // The script advances the counts to its time's window, so the window has not ended then.
            let index = Some(index).filter(|index| *index >= now_us / kernel.window_us)?;
            let index = window_index(index, kernel.window_us)?;
            CounterReading::Buckets(BucketState { index, current, previous })
        }
        Kernel::SlidingLog(_) => {
            let [used, newest_us, next_us, retry_us] = exact(numbers)?;
            CounterReading::Log(LogReading { used, newest_us, next_us, retry_us })
        }
        Kernel::Slots(_) => {
            let [open, frees_us, last_us, removed] = exact(numbers)?;
            CounterReading::Slots(SlotsReading { open, frees_us, last_us, removed })
        }
        Kernel::Gcra(kernel) => {
            let [whole_us, fraction] = match *numbers {
                [whole_us] => exact(&[whole_us, 0])?,
                _ => exact(numbers)?,
            };
            CounterReading::Tat(Tat { whole_us, fraction: below(fraction, kernel.denominator)? })
        }
        Kernel::IntervalBucket(kernel) => {
            let &[start_us, tokens] = numbers else { return None };
            let [start_us] = exact(&[start_us])?;
            below(tokens.unsigned_abs(), kernel.capacity + 1)?;
            CounterReading::Tokens(TokenState { tokens, start_us })
        }
        Kernel::Blocked(_) if *numbers == [0] => CounterReading::Nothing,
        Kernel::Blocked(_) => return None,
    })
}

/// Returns quantities: integers that doubles hold exactly.
fn exact<const N: usize>(numbers: &[i64]) -> Option<[u64; N]> {
    let numbers: [i64; N] = numbers.try_into().ok()?;
    numbers.iter().all(|number| (0..1 << 53).contains(number)).then(|| numbers.map(i64::cast_unsigned))
}

fn below(number: u64, bound: u64) -> Option<u64> {
    (number < bound).then_some(number)
}

/// Returns the index if the window starts before 2^53 us.
fn window_index(index: u64, window_us: u64) -> Option<u64> {
    index.checked_mul(window_us).filter(|&start_us| start_us < 1 << 53)?;
    Some(index)
}
