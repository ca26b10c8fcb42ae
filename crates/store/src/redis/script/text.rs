//! The texts of the scripts. The Lua files are put together: in them, names in capitals stand for constants, conditions
//! and pieces of code, which replace the names here. Each kernel has a plain script for a call with one charge
//! (lua/plain.lua), and the batch script (lua/batch.lua) decides all other calls. Both have the same text of the
//! kernel.
//!
//! Lua in Redis keeps nothing between two calls, so each call pays for what its script defines, used or not. A function
//! costs a call 2,000 to 4,000 instructions, which is 5 to 10 % of a plain decision, because each variable of the
//! script that the function uses becomes an object of its own; a variable costs more than a number in its place. So
//! usual requests are decided with few functions, and constants are written into the text.

use std::sync::LazyLock;

use engine::algorithm::UNDO_SEARCH;
use redis::{Pipeline, Script};

use super::layout::{
    ChargeMode, CounterFormat, EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_LOG_REFUNDS,
    FEATURE_ONE_BY_ONE, FEATURE_RESET, FEATURE_SEVERAL, GCRA_WHOLE, GRANT, KERNELS, KernelLayout, RESET,
    ROLE_ENFORCE, ROLE_NON_BINDING, ROLE_QUOTA, SAME_SHAPE, SEVERAL, SLIDING_LOG,
};

const PLAIN_LUA: &str = include_str!("lua/plain.lua");
const PLAIN_LOG_LUA: &str = include_str!("lua/plain_log.lua");
const BATCH_LUA: &str = include_str!("lua/batch.lua");
/// A kernel as a function of the batch script.
const KERNEL_LUA: &str = include_str!("lua/kernel.lua");

/// Pieces of code, which may name other pieces.
const PIECES: [(&str, &str); 9] = [
    ("WRITE_COUNTER", include_str!("lua/write_counter.lua")),
    ("DEFINE_SLIDING_LOG", SLIDING_LOG.lua),
    ("DEFINE_LOG_REFUNDS", include_str!("lua/log_refunds.lua")),
    ("EXPIRE_LOG", include_str!("lua/expire_log.lua")),
    ("DEFINE_DECIDE_ONE", include_str!("lua/decide.lua")),
    ("DECIDE_EQUAL", include_str!("lua/equal.lua")),
    ("SET_ROOM", include_str!("lua/room.lua")),
    ("DECIDE_SAME_SHAPE", include_str!("lua/same_shape.lua")),
    ("DEFINE_AT_MOST", include_str!("lua/at_most.lua")),
];

/// Up to this number every whole number is a double.
const EXACT: u64 = 1 << 53;
/// Keys in one MGET. The Lua stack holds 8,000 values.
const KEYS_AT_ONCE: u64 = 4_000;
/// Expiry times, in microseconds, are rounded up to whole seconds. The expiry of a counter in use then seldom changes,
/// and SETRANGE costs Redis a third less than PSETEX.
const EXPIRY_STEP: u64 = 1_000_000;

/// A script, as servers know it.
pub(super) struct ScriptText {
    pub(super) lua: String,
    pub(super) sha1: String,
}

/// Decides any call.
pub(super) static BATCH: LazyLock<ScriptText> = LazyLock::new(|| ScriptText::new(batch_text()));

/// The plain script of each kernel in the order of [`KERNELS`]; `None` for a kernel without a counter.
static PLAIN: LazyLock<Vec<Option<ScriptText>>> =
    LazyLock::new(|| KERNELS.iter().map(|kernel| plain_text(kernel).map(ScriptText::new)).collect());

impl ScriptText {
    fn new(lua: String) -> Self {
        let sha1 = Script::new(&lua).get_hash().to_owned();
        Self { lua, sha1 }
    }
}

/// The script that decides one charge of this kernel; `None` if the kernel has no counter.
pub(super) fn plain(kernel: &KernelLayout) -> Option<&'static ScriptText> {
    PLAIN.get(usize::from(kernel.number).checked_sub(1)?)?.as_ref()
}

/// The SHA1 of the batch script, by which `EVALSHA` names it.
#[must_use]
pub fn script_sha1() -> &'static str {
    &BATCH.sha1
}

/// The commands that load all scripts into a server.
pub(crate) fn load() -> Pipeline {
    let mut commands = Pipeline::new();
    for script in PLAIN.iter().flatten().chain([&*BATCH]) {
        commands.cmd("SCRIPT").arg("LOAD").arg(&script.lua).ignore();
    }
    commands
}

/// Names in capitals, and what stands for each of them in a script.
type Names = Vec<(String, String)>;

fn plain_text(kernel: &KernelLayout) -> Option<String> {
    let lua = match kernel.counter {
        CounterFormat::Numbers(_) => PLAIN_LUA,
        CounterFormat::Log => PLAIN_LOG_LUA,
        CounterFormat::Nothing => return None,
    };
    let mut names = constants();
    names.extend(kernel_names(kernel));
    let refunds = format!("(mode >= {})", ChargeMode::Refund as u8);
    let of_call = [
        ("PLAIN_FORMAT", format!("'<ddB{}'", "d".repeat(kernel.parameters.len()))),
        ("NEEDS_SLIDING_LOG", "true".to_owned()),
        ("NEEDS_LOG_REFUNDS", refunds),
        ("GRANT_ID", "nil".to_owned()), // no plain call is an undo
        ("KEY", "key".to_owned()),
        ("STORED_TEXT", "text".to_owned()),
    ];
    names.extend(of_call.map(|(name, value)| (name.to_owned(), value)));
    names.push(("KERNEL".to_owned(), expanded(kernel.lua, &names)));
    Some(expanded(lua, &names))
}

fn batch_text() -> String {
    let mut names = batch_names();
    let stored = ("stored_unused_from".to_owned(), "STORED_UNUSED_FROM[counter]".to_owned());
    let in_kernels: Names = names.iter().cloned().chain([stored]).collect();
    let numbers = KERNELS.iter().filter(|kernel| matches!(kernel.counter, CounterFormat::Numbers(_)));
    let functions = numbers.map(|kernel| {
        let mut of_kernel = kernel_names(kernel);
        of_kernel.push(("KERNEL".to_owned(), expanded(kernel.lua, &in_kernels)));
        expanded(KERNEL_LUA, &of_kernel)
    });
    names.push(("DEFINE_KERNELS".to_owned(), functions.collect()));
    names.push(("DECIDE_GCRA_WHOLE".to_owned(), expanded(GCRA_WHOLE.lua, &in_kernels)));
    expanded(BATCH_LUA, &names)
}

/// The lines without comments, with values and pieces in the place of their names.
fn expanded(lines: &str, names: &[(String, String)]) -> String {
    let mut text = String::new();
    expand(lines, names, &mut text);
    text
}

fn expand(lines: &str, names: &[(String, String)], text: &mut String) {
    for line in lines.lines() {
        let mut rest = line.split_once("--").map_or(line, |(code, _comment)| code);
        while let Some(start) = rest.find(is_part_of_name) {
            let name = &rest[start..];
            let name = &name[..name.find(|symbol| !is_part_of_name(symbol)).unwrap_or(name.len())];
            text.push_str(&rest[..start]);
            if let Some((_, piece)) = PIECES.iter().find(|(piece, _)| *piece == name) {
                expand(piece, names, text);
            } else {
                let value = names.iter().find(|(known, _)| known == name);
                text.push_str(value.map_or(name, |(_, value)| value));
            }
            rest = &rest[start + name.len()..];
        }
        text.push_str(rest);
        text.push('\n');
    }
}

fn is_part_of_name(symbol: char) -> bool {
    symbol.is_ascii_alphanumeric() || symbol == '_'
}

/// The names with the same value in all scripts.
fn constants() -> Names {
    let numbers = [
        ("EXACT", EXACT),
        ("KEYS_AT_ONCE", KEYS_AT_ONCE),
        ("EXPIRY_STEP", EXPIRY_STEP),
        ("UNDO_SEARCH", UNDO_SEARCH as u64),
        ("SEVERAL", SEVERAL.into()),
        ("RESET", RESET.into()),
        ("GRANT", GRANT.into()),
        ("EQUAL", EQUAL.into()),
        ("SAME_SHAPE", SAME_SHAPE.into()),
        ("PEEK", ChargeMode::Peek as u64),
        ("TAKE", ChargeMode::Take as u64),
        ("RECORD", ChargeMode::Record as u64),
        ("REFUND", ChargeMode::Refund as u64),
        ("REFUND_RECORDED", ChargeMode::RefundRecorded as u64),
        ("UNDO", ChargeMode::Undo as u64),
        ("ENFORCE", ROLE_ENFORCE.into()),
        ("NON_BINDING", ROLE_NON_BINDING.into()),
        ("QUOTA", ROLE_QUOTA.into()),
    ];
    let kernels = KERNELS.iter().map(|kernel| (kernel.name.to_uppercase(), kernel.number.to_string()));
    numbers.map(|(name, number)| (name.to_owned(), number.to_string())).into_iter().chain(kernels).collect()
}

/// The names in the batch script.
fn batch_names() -> Names {
    let features = [
        ("NEEDS_SEVERAL", FEATURE_SEVERAL),
        ("NEEDS_RESET", FEATURE_RESET),
        ("NEEDS_EQUAL", FEATURE_EQUAL),
        ("NEEDS_ONE_BY_ONE", FEATURE_ONE_BY_ONE),
        ("NEEDS_SLIDING_LOG", SLIDING_LOG.feature()),
        ("NEEDS_LOG_REFUNDS", FEATURE_LOG_REFUNDS),
        ("HAS_REPEATED_KEYS", FEATURE_KEYS_REPEAT),
    ];
    let facts = [
        ("KERNEL_FUNCTIONS", table(lua_function)),
        ("KERNEL_FORMATS", table(|kernel| doubles(kernel.parameters.len()))),
        ("KERNEL_SIZES", table(|kernel| kernel.parameters_size().to_string())),
        ("KERNEL_WIDTHS", table(|kernel| kernel.reply_width().to_string())),
        ("KERNEL_STATES", table(lua_state)),
        ("SET_KERNEL_FACTS", set_kernel_facts()),
        ("KEY", "KEYS[counter]".to_owned()),
        ("STORED_TEXT", "TEXT[counter]".to_owned()),
        ("NEW_STATE", "state, a, b, c".to_owned()),
    ];
    let features = features.map(|(name, bit)| (name.to_owned(), condition(bit)));
    let facts = facts.map(|(name, text)| (name.to_owned(), text));
    constants().into_iter().chain(features).chain(facts).collect()
}

/// The names that differ between kernels. A log has no numbers.
fn kernel_names(kernel: &KernelLayout) -> Names {
    let CounterFormat::Numbers(numbers) = kernel.counter else { return Vec::new() };
    let new: Vec<String> = numbers.iter().map(|number| format!("new_{number}")).collect();
    let tables = ["A[counter]", "B[counter]", "C[counter]"];
    let names = [
        ("NAME", kernel.name.to_owned()),
        ("NEEDS_NAME", condition(kernel.feature())),
        ("PARAMETERS", kernel.parameters.join(", ")),
        ("NUMBERS", numbers.join(", ")),
        ("FIRST_NUMBER", numbers[0].to_owned()),
        ("NEW_NUMBERS", new.join(", ")),
        ("NEW_STATE", format!("{}, {}", lua_state(kernel), new.join(", "))),
        ("NUMBERS_OF_COUNTER", tables[..numbers.len()].join(", ")),
    ];
    names.map(|(name, value)| (name.to_owned(), value)).into()
}

/// Whether the features of a call have this bit.
fn condition(bit: u16) -> String {
    format!("(FEATURES % {} >= {bit})", 2 * u32::from(bit))
}

/// A Lua table with a fact about each kernel.
fn table(fact: impl Fn(&KernelLayout) -> String) -> String {
    format!("{{ {} }}", KERNELS.iter().map(fact).collect::<Vec<_>>().join(", "))
}

/// A format of `struct.pack`, as a Lua string.
fn doubles(number: usize) -> String {
    format!("'{}{}'", if number == 0 { "" } else { "<" }, "d".repeat(number))
}

/// Lua that sets variables to the facts about `kernel`, which has no log. The facts are its function, the format and
/// the size of its parameters, the number of integers in a reply, and the format of its state.
fn set_kernel_facts() -> String {
    const VARIABLES: &str = "decide, parameters, size, width, state";
    let mut text = format!("local {VARIABLES} ");
    let mut keyword = "if";
    for kernel in KERNELS.iter().filter(|kernel| !matches!(kernel.counter, CounterFormat::Log)) {
        let function = if kernel.parameters.is_empty() { "nil" } else { kernel.name };
        let (format, size) = (doubles(kernel.parameters.len()), kernel.parameters_size());
        let (width, state, number) = (kernel.reply_width(), lua_state(kernel), kernel.number);
        text.push_str(&format!(
            "{keyword} kernel == {number} then {VARIABLES} = {function}, {format}, {size}, {width}, {state} "
        ));
        keyword = "elseif";
    }
    text.push_str("else error('no kernel ' .. kernel) end");
    text
}

/// The function of the kernel, if the call needs it. A kernel without parameters is always defined.
fn lua_function(kernel: &KernelLayout) -> String {
    format!("{}{}", kernel.name, if kernel.parameters.is_empty() { "" } else { " or false" })
}

/// The format of a counter that is text.
fn lua_state(kernel: &KernelLayout) -> String {
    match kernel.counter {
        CounterFormat::Numbers(numbers) => doubles(numbers.len()),
        CounterFormat::Log | CounterFormat::Nothing => "false".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn in_batch(lines: &str) -> String {
        expanded(lines, &batch_names())
    }

    /// All scripts.
    fn scripts() -> impl Iterator<Item = &'static str> {
        PLAIN.iter().flatten().chain([&*BATCH]).map(|script| script.lua.as_str())
    }

    #[test]
    fn whole_names_are_replaced_and_comments_left_out() {
        let text = "if mode == RECORD then -- RECORD\n  call('DEL', RECORD_1, GCRA)\n\nend";
        let expected = "if mode == 2 then \n  call('DEL', RECORD_1, 3)\n\nend\n";
        assert_eq!(in_batch(text), expected);
        assert_eq!(in_batch("if NEEDS_SLIDING_LOG then"), "if (FEATURES % 256 >= 128) then\n");
    }

    #[test]
    fn facts_about_kernels_are_written_into_the_text() {
        assert!(in_batch("KERNEL_FUNCTIONS").starts_with("{ gcra_whole or false, fixed_window or false, "));
        assert_eq!(
            in_batch("KERNEL_FORMATS"),
            "{ '<dd', '<ddd', '<ddddd', '<ddd', '<dddd', '<ddd', '', '<ddddd' }\n"
        );
        assert_eq!(in_batch("KERNEL_SIZES"), "{ 16, 24, 40, 24, 32, 24, 0, 40 }\n");
        assert_eq!(in_batch("KERNEL_WIDTHS"), "{ 1, 2, 2, 3, 2, 4, 1, 2 }\n");
        assert_eq!(in_batch("KERNEL_STATES"), "{ '<d', '<dd', '<dd', '<ddd', '<dd', false, false, '<dd' }\n");
    }

    #[test]
    fn each_kernel_with_a_counter_has_a_plain_script() {
        for kernel in &KERNELS {
            let lua = plain(kernel).map(|script| script.lua.as_str());
            assert_eq!(lua.is_some(), kernel.counter != CounterFormat::Nothing, "{}", kernel.name);
            let is_of_kernel = |lua: &str| {
                let parameters = format!("local NOW, GRACE_MS, mode, {} = ", kernel.parameters.join(", "));
                lua.contains(&parameters) && !lua.contains("FEATURES")
            };
            assert!(lua.is_none_or(is_of_kernel), "{}: {lua:?}", kernel.name);
        }
    }

    #[test]
    fn the_batch_script_defines_the_function_of_each_kernel_under_its_feature() {
        let sections: Vec<_> = BATCH.lua.split("if (FEATURES % ").skip(1).collect();
        for kernel in KERNELS.iter().filter(|kernel| !kernel.parameters.is_empty()) {
            let bit = kernel.feature();
            let condition = format!("{} >= {bit}) then", u32::from(bit) * 2);
            let function =
                format!(" function {}(counter, mode, {})", kernel.name, kernel.parameters.join(", "));
            let defines = |section: &&&str| section.starts_with(&condition) && section.contains(&function);
            assert_eq!(sections.iter().filter(defines).count(), 1, "{kernel:?}");
        }
    }

    /// TCP sends ten segments at first, and twice as many after each round trip.
    #[test]
    fn the_scripts_are_loaded_within_three_round_trips() {
        let bytes = load().get_packed_pipeline().len();
        assert!(bytes <= (10 + 20 + 40) * 1_448, "{bytes} bytes");
    }

    #[test]
    fn every_lua_file_is_part_of_a_script() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/script/lua");
        let all: String = scripts().collect();
        let pieces = PIECES.iter().map(|(_, lua)| *lua).chain(KERNELS.iter().map(|kernel| kernel.lua));
        let used: Vec<&str> = pieces.chain([PLAIN_LUA, PLAIN_LOG_LUA, BATCH_LUA, KERNEL_LUA]).collect();
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a Lua file is text");
            assert!(used.contains(&text.as_str()), "{} is in no script", path.display());
        }
        for (piece, _) in PIECES {
            assert!(!all.contains(piece), "{piece} is not replaced");
        }
    }

    #[test]
    fn every_other_name_in_capitals_is_a_variable() {
        let names = |text: &'static str| {
            let names = text.split(|symbol| !is_part_of_name(symbol)).filter(|name| !name.is_empty());
            names.filter(|name| !name.contains(|symbol: char| symbol.is_ascii_lowercase() || symbol == '%'))
        };
        let without_strings = |line: &'static str| line.split('\'').step_by(2);
        let defined = |line: &'static str| line.trim_start().strip_prefix("local ")?.split('=').next();
        for script in scripts() {
            let variables: HashSet<&str> = script.lines().filter_map(defined).flat_map(names).collect();
            let is_number = |name: &&str| name.starts_with(|symbol: char| symbol.is_ascii_digit());
            for name in script.lines().flat_map(without_strings).flat_map(names) {
                let is_known =
                    is_number(&name) || variables.contains(name) || ["_", "ARGV", "KEYS"].contains(&name);
                assert!(is_known, "{name} has no value");
            }
        }
    }
}
