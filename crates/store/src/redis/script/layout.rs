//! The numbers that Rust and Lua share: kernels, modes and roles in a request, and the width of a reply. The unit test
//! below compares this file with the Lua text. lua/decide.lua describes how a request is laid out.

use engine::algorithm::Kernel;

/// A kernel of the script. The engine's `Kernel::Gcra` is two of these: fractions cost extra.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct KernelLayout {
    /// Name of the Lua function; in capitals, name of the Lua constant with its number.
    pub(super) name: &'static str,
    /// The kernel in a request, from 1.
    pub(super) number: u8,
    /// How many doubles follow the mode in a request.
    parameters: usize,
    /// How many integers the script returns for a charge. The kernel's state in Redis has as many numbers, except that
    /// a log is a list, of which four facts are returned, and a blocked limit has no state.
    pub(super) reply_width: usize,
    /// What an equal charge adds to the counter; `None` if equal charges are sent one by one.
    pub(super) step: Option<StepOf>,
}

/// What each of several equal charges adds to the numbers of a counter, by the parameters of the charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOf {
    /// The first parameter, to the second number.
    Units,
    /// The same, subtracted.
    Tokens,
    /// The first parameter, to the first number.
    Time,
    /// The first two parameters, to the first two numbers. The second number is a fraction, below the fifth parameter.
    TimeAndFraction,
}

/// All kernels, in the order of their numbers.
const KERNELS: [KernelLayout; 7] = [
    KernelLayout::new("fixed_window", 1, 3, 2, Some(StepOf::Units)),
    KernelLayout::new("sliding_window", 2, 3, 3, Some(StepOf::Units)),
    KernelLayout::new("sliding_log", 3, 3, 4, None),
    KernelLayout::new("gcra_whole", 4, 2, 1, Some(StepOf::Time)),
    KernelLayout::new("gcra", 5, 5, 2, Some(StepOf::TimeAndFraction)),
    KernelLayout::new("interval_bucket", 6, 4, 2, Some(StepOf::Tokens)),
    KernelLayout::new("blocked", 7, 0, 1, None),
];

// Other code uses the rows by these names only, so a kernel without a row does not compile.
const FIXED_WINDOW: &KernelLayout = &KERNELS[0];
const SLIDING_WINDOW: &KernelLayout = &KERNELS[1];
const SLIDING_LOG: &KernelLayout = &KERNELS[2];
const GCRA_WHOLE: &KernelLayout = &KERNELS[3];
const GCRA: &KernelLayout = &KERNELS[4];
const INTERVAL_BUCKET: &KernelLayout = &KERNELS[5];
const BLOCKED: &KernelLayout = &KERNELS[6];

/// In place of a kernel: several charges that are decided together.
pub(super) const SEVERAL: u8 = 0;
/// In place of a kernel: a counter to reset.
pub(super) const RESET: u8 = 100;
/// Before a charge to undo: the id of its grant follows.
pub(super) const GRANT: u8 = 101;
/// Before a charge that several requests make: their number follows.
pub(super) const EQUAL: u8 = 102;

/// Before requests that differ in their keys only. The number of the requests follows, then how many keys each has, and
/// how many integers the reply to each has.
pub(super) const ALIKE: u8 = 103;

/// In the features of a request: it has several charges.
pub(super) const FEATURE_SEVERAL: u16 = 1;
/// In the features of a request: it resets a counter.
pub(super) const FEATURE_RESET: u16 = 2;
/// In the features of a call: several requests make an equal charge.
pub(super) const FEATURE_EQUAL: u16 = FEATURE_RESET << (KERNELS.len() + 1);
/// In the features of a call: a key occurs more than once.
pub(super) const FEATURE_KEYS_REPEAT: u16 = FEATURE_EQUAL << 1;
/// In the features of a call: it has a request that is neither equal nor alike.
pub(super) const FEATURE_ONE_BY_ONE: u16 = FEATURE_KEYS_REPEAT << 1;
/// In the features of a request: it has a charge to a sliding log.
pub(super) const FEATURE_SLIDING_LOG: u16 = SLIDING_LOG.feature();

const _: () = {
    let mut index = 0;
    while index < KERNELS.len() {
        assert!(KERNELS[index].number as usize == index + 1, "Lua uses the numbers as indices");
        index += 1;
    }
    assert!(KERNELS.len() < RESET as usize, "the number of a kernel is taken");
    assert!(KERNELS.len() + 5 <= u16::BITS as usize, "no feature bit is left for a kernel");
};

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

impl KernelLayout {
    const fn new(
        name: &'static str,
        number: u8,
        parameters: usize,
        reply_width: usize,
        step: Option<StepOf>,
    ) -> Self {
        Self { name, number, parameters, reply_width, step }
    }

    /// The kernel of this number in a request.
    pub(super) fn by_number(number: u8) -> Option<&'static Self> {
        KERNELS.get(usize::from(number).checked_sub(1)?)
    }

    pub(super) fn for_kernel(kernel: &Kernel) -> &'static Self {
        match kernel {
            Kernel::FixedWindow(_) => FIXED_WINDOW,
            Kernel::SlidingWindow(_) => SLIDING_WINDOW,
            Kernel::SlidingLog(_) => SLIDING_LOG,
            Kernel::Gcra(gcra) if gcra.denominator() == 1 => GCRA_WHOLE,
            Kernel::Gcra(_) => GCRA,
            Kernel::IntervalBucket(_) => INTERVAL_BUCKET,
            Kernel::Blocked(_) => BLOCKED,
        }
    }

    /// All kernels, in the order of their numbers.
    pub(super) fn all() -> &'static [Self] {
        &KERNELS
    }

    /// Whether the script decides this charge of an alike request without the kernel's function.
    pub(super) fn is_decided_inline(&self, mode: ChargeMode) -> bool {
        *self == *BLOCKED || *self == *GCRA_WHOLE && mode == ChargeMode::Take
    }

    /// Bytes of the parameters in a request.
    pub(super) const fn parameters_size(&self) -> usize {
        8 * self.parameters
    }

    /// The bit of the kernel in the features of a request.
    pub(super) const fn feature(&self) -> u16 {
        FEATURE_RESET << self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::script::TEXT;

    fn assert_in_lua(expected: &str) {
        let lua = TEXT.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(lua.contains(expected), "the Lua text must have: {expected}");
    }

    fn list<T: ToString>(values: impl Iterator<Item = T>) -> String {
        values.map(|value| value.to_string()).collect::<Vec<_>>().join(", ")
    }

    fn doubles(number: usize) -> String {
        format!("'{}{}'", if number == 0 { "" } else { "<" }, "d".repeat(number))
    }

    /// The kernels with a counter that is one string.
    fn kernels_with_text() -> impl Iterator<Item = &'static KernelLayout> {
        KERNELS.iter().filter(|&kernel| kernel.parameters > 0 && kernel != SLIDING_LOG)
    }

    #[test]
    fn lua_has_the_same_kernels_for_requests_one_by_one() {
        // A kernel without parameters is always defined.
        let function = |kernel: &KernelLayout| {
            [kernel.name, if kernel.parameters > 0 { " or false" } else { "" }].concat()
        };
        assert_in_lua(&format!("local KERNELS = {{ {}, }} ", list(KERNELS.iter().map(function))));
        let formats = list(KERNELS.iter().map(|kernel| doubles(kernel.parameters)));
        assert_in_lua(&format!("local FORMATS = {{ {formats} }} "));
        let sizes = list(KERNELS.iter().map(KernelLayout::parameters_size));
        assert_in_lua(&format!("local SIZES = {{ {sizes} }} "));
        let widths = list(KERNELS.iter().map(|kernel| kernel.reply_width));
        assert_in_lua(&format!("local WIDTHS = {{ {widths} }} "));
        let state = |kernel: &KernelLayout| {
            let has_text = kernels_with_text().any(|with_text| with_text == kernel);
            if has_text { doubles(kernel.reply_width) } else { "false".to_owned() }
        };
        assert_in_lua(&format!("local STATES = {{ {} }} ", list(KERNELS.iter().map(state))));
    }

    #[test]
    fn lua_has_the_same_kernels_for_equal_and_alike_requests() {
        let variables = "decide, room, parameters, size, own_width, state";
        for kernel in kernels_with_text() {
            let KernelLayout { name, number, parameters, reply_width, .. } = kernel;
            let (formats, size) = (doubles(*parameters), kernel.parameters_size());
            assert_in_lua(&format!(
                "if kernel == {number} then {variables} = {name}, {name}_room, {formats}, {size}, \
                 {reply_width}, {} ",
                doubles(*reply_width)
            ));
            assert!(kernel.step.is_some(), "{kernel:?} has a function of its room");
        }
        assert_in_lua(&format!(
            "elseif kernel == {} then parameters, size, own_width = '', 0, {} else error(",
            BLOCKED.number, BLOCKED.reply_width
        ));
    }

    #[test]
    fn lua_defines_each_kernel_under_its_feature() {
        let text = TEXT.as_str();
        let sections: Vec<_> = text.split("if (FEATURES % ").skip(1).collect();
        for kernel in KERNELS.iter().filter(|kernel| kernel.parameters > 0) {
            let bit = kernel.feature();
            let condition = format!("{} >= {bit}) then", u32::from(bit) * 2);
            let function = format!(" function {}(", kernel.name);
            let is_defined = |section: &&str| section.starts_with(&condition) && section.contains(&function);
            assert_eq!(
                sections.iter().filter(|section| is_defined(section)).count(),
                1,
                "{kernel:?}: {condition}"
            );
        }
    }
}
