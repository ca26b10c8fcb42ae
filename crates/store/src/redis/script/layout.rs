//! Constants shared by Rust and Lua: the kernels, and the marks, modes and roles in a request. The scripts in lua/ use
//! the same names and values, and describe how a request is laid out.

use engine::algorithm::Kernel;

/// A kernel of the script. The engine's `Kernel::Gcra` is two of these, because fractions cost extra.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelLayout {
    /// Name of the Lua constant; in lower case, the script's name.
    pub(super) name: &'static str,
    /// Id in a request, from 1.
    pub(super) number: u8,
    /// The script that decides one charge; `None` for a kernel without a counter.
    pub(super) lua: Option<&'static str>,
    /// Lua names of the parameters, which follow the mode in a request as doubles.
    pub(super) parameters: &'static [&'static str],
    pub(super) counter: CounterFormat,
    /// `None` if equal charges are sent one by one. A kernel with a rule has its case in lua/batch.lua.
    pub(super) repeat: Option<RepeatRule>,
}

/// What Redis stores for a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CounterFormat {
    /// One string of doubles, returned as integers, with these names in Lua.
    Numbers(&'static [&'static str]),
    /// A list or a sorted set, about which the script returns four integers.
    Facts,
    /// No counter: the script returns the integer 0.
    Nothing,
}

/// What each of several equal charges adds to a counter's integers, in terms of the charge's parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RepeatRule {
    /// The first parameter is added to the second integer.
    Units,
    /// The first parameter is subtracted from the second integer.
    Tokens,
    /// The first parameter is added to the first integer.
    Time,
    /// The first two parameters are added to the first two integers. The second integer is a fraction, below the fifth
    /// parameter.
    TimeAndFraction,
}

/// All kernels by id, which is the order in which the script compares a charge's kernel: most common first.
pub(super) const KERNELS: [KernelLayout; 9] = [
    KernelLayout {
        name: "GCRA_WHOLE",
        number: 1,
        lua: Some(include_str!("lua/gcra_whole.lua")),
        parameters: &["cost", "burst"],
        counter: CounterFormat::Numbers(&["arrival"]),
        repeat: Some(RepeatRule::Time),
    },
    KernelLayout {
        name: "FIXED_WINDOW",
        number: 2,
        lua: Some(include_str!("lua/fixed_window.lua")),
        parameters: &["units", "limit", "window"],
        counter: CounterFormat::Numbers(&["index", "count"]),
        repeat: Some(RepeatRule::Units),
    },
    KernelLayout {
        name: "GCRA",
        number: 3,
        lua: Some(include_str!("lua/gcra.lua")),
        parameters: &["cost", "cost_part", "burst", "burst_part", "denominator"],
        counter: CounterFormat::Numbers(&["arrival", "part"]),
        repeat: Some(RepeatRule::TimeAndFraction),
    },
    KernelLayout {
        name: "SLIDING_WINDOW",
        number: 4,
        lua: Some(include_str!("lua/sliding_window.lua")),
        parameters: &["units", "limit", "window"],
        counter: CounterFormat::Numbers(&["index", "current", "previous"]),
        repeat: Some(RepeatRule::Units),
    },
    KernelLayout {
        name: "INTERVAL_BUCKET",
        number: 5,
        lua: Some(include_str!("lua/interval_bucket.lua")),
        parameters: &["units", "capacity", "refill", "interval"],
        counter: CounterFormat::Numbers(&["last", "tokens"]),
        repeat: Some(RepeatRule::Tokens),
    },
    KernelLayout {
        name: "SLIDING_LOG",
        number: 6,
        lua: Some(include_str!("lua/sliding_log.lua")),
        parameters: &["units", "limit", "window"],
        counter: CounterFormat::Facts,
        repeat: None,
    },
    KernelLayout {
        name: "BLOCKED",
        number: 7,
        lua: None,
        parameters: &[],
        counter: CounterFormat::Nothing,
        repeat: None,
    },
    KernelLayout {
        name: "CALENDAR_WINDOW",
        number: 8,
        lua: Some(include_str!("lua/calendar_window.lua")),
        parameters: &["units", "limit", "first", "middle", "last"],
        counter: CounterFormat::Numbers(&["start", "count"]),
        repeat: Some(RepeatRule::Units),
    },
    KernelLayout {
        name: "SLOTS",
        number: 9,
        lua: Some(include_str!("lua/slots.lua")),
        parameters: &["units", "limit", "hold", "id"],
        counter: CounterFormat::Facts,
        repeat: None,
    },
];

// All other code uses these names, so a kernel that is missing above does not compile.
const GCRA_WHOLE: &KernelLayout = &KERNELS[0];
const FIXED_WINDOW: &KernelLayout = &KERNELS[1];
const GCRA: &KernelLayout = &KERNELS[2];
const SLIDING_WINDOW: &KernelLayout = &KERNELS[3];
const INTERVAL_BUCKET: &KernelLayout = &KERNELS[4];
pub(super) const SLIDING_LOG: &KernelLayout = &KERNELS[5];
const BLOCKED: &KernelLayout = &KERNELS[6];
const CALENDAR_WINDOW: &KernelLayout = &KERNELS[7];
const SLOTS: &KernelLayout = &KERNELS[8];

/// The batch script names a kernel's parameters `one` to `five`.
const MOST_PARAMETERS: usize = 5;
/// The batch script names a counter's integers `a`, `b` and `c`.
const MOST_NUMBERS: usize = 3;

const _: () = {
    let mut index = 0;
    while index < KERNELS.len() {
        let KernelLayout { number, parameters, counter, repeat, .. } = &KERNELS[index];
        assert!(*number as usize == index + 1, "Lua uses the numbers as indices");
        assert!(parameters.len() <= MOST_PARAMETERS, "lua/batch.lua would drop a parameter");
        match counter {
            CounterFormat::Numbers(numbers) => {
                assert!(!numbers.is_empty() && numbers.len() <= MOST_NUMBERS, "lua/batch.lua has a, b and c");
            }
            _ => assert!(repeat.is_none(), "equal charges add to the numbers of a counter"),
        }
        index += 1;
    }
    assert!(KERNELS.len() < RESET as usize, "the number of a kernel is taken");
};

/// Replaces the kernel: several charges follow that are decided together.
pub(super) const SEVERAL: u8 = 0;
/// Replaces the kernel: a counter is reset. Among several charges it has a mode and a role like them, and takes effect
/// before the next charge is decided.
pub(super) const RESET: u8 = 100;
/// Precedes a charge to undo: its grant's id follows.
pub(super) const GRANT: u8 = 101;
/// Precedes a charge that several requests make to one counter.
pub(super) const EQUAL: u8 = 102;
/// What a request does with sliding logs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum LogUse {
    /// No charges.
    #[default]
    Nothing,
    /// Charges, no refunds.
    Charges,
    /// Some charges return units.
    Refunds,
}

/// What a charge does to its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ChargeMode {
    /// Writes nothing.
    Peek,
    /// Takes units if they fit.
    Take,
    /// Takes units even if they do not fit (postpaid).
    Record,
    /// Refunds units, unless the request is denied.
    Refund,
    /// Refunds units even if the request is denied (postpaid).
    RefundRecorded,
    /// Refunds the units of one grant.
    Undo,
}

/// Denies the request if the charge does not fit.
pub(super) const ROLE_ENFORCE: u16 = 0;
/// Denies nothing.
pub(super) const ROLE_NON_BINDING: u16 = 1;
/// Plus a group: denies the request if every quota group has a charge that does not fit.
pub(super) const ROLE_QUOTA: u16 = 2;

/// When a batch is decided, and how long its counters are kept after they equal empty ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// The server's time. Counters are kept for another second, because a counter that expired early would admit too
    /// much.
    Now,
    /// A time that the caller chooses, in microseconds since the epoch, below 2^52. Counters still expire by the
    /// server's clock, so they are kept for another hour: the caller's time may stand still meanwhile.
    At(u64),
}

impl When {
    /// Start of a call's argument: the time in microseconds, negative for the server's time, and how long counters are
    /// kept, in milliseconds.
    pub(super) fn bytes(self) -> [[u8; 8]; 2] {
        let (now_us, grace_ms) = match self {
            Self::Now => (-1.0, 1e3),
            Self::At(now_us) => (now_us as f64, 3.6e6),
        };
        [f64::to_le_bytes(now_us), f64::to_le_bytes(grace_ms)]
    }
}

impl KernelLayout {
    pub(super) fn for_kernel(kernel: &Kernel) -> &'static Self {
        match kernel {
            Kernel::FixedWindow(_) => FIXED_WINDOW,
            Kernel::CalendarWindow(_) => CALENDAR_WINDOW,
            Kernel::SlidingWindow(_) => SLIDING_WINDOW,
            Kernel::SlidingLog(_) => SLIDING_LOG,
            Kernel::Gcra(gcra) if gcra.denominator == 1 => GCRA_WHOLE,
            Kernel::Gcra(_) => GCRA,
            Kernel::IntervalBucket(_) => INTERVAL_BUCKET,
            Kernel::Slots(_) => SLOTS,
            Kernel::Blocked(_) => BLOCKED,
        }
    }

    pub(super) fn by_number(number: u8) -> Option<&'static Self> {
        KERNELS.get(usize::from(number).checked_sub(1)?)
    }

    /// Size of the parameters in a request, bytes.
    pub(super) const fn parameters_size(&self) -> usize {
        8 * self.parameters.len()
    }

    /// Number of integers that the script returns for a charge.
    pub(super) const fn reply_width(&self) -> usize {
        match self.counter {
            CounterFormat::Numbers(numbers) => numbers.len(),
            CounterFormat::Facts => 4,
            CounterFormat::Nothing => 1,
        }
    }
}
