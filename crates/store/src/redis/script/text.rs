//! The texts of the scripts. The Lua files are put together: in them, names in capitals stand for constants, conditions
//! and pieces of code, which replace the names here. Each kernel has a plain script for a call with one charge
//! (lua/plain.lua), and the batch script (lua/batch.lua) decides all other calls. Both have the same text of the
//! kernel.
//!
//! Lua in Redis keeps nothing between two calls, so each call pays for what its script defines, used or not. A function
//! costs a call 2,000 to 4,000 instructions, which is 5 to 10 % of a plain decision, because each variable of the
//! script that the function uses becomes an object of its own; a variable costs more than a number in its place. So
//! only sliding logs have functions, and constants are written into the text.

use std::sync::LazyLock;

use engine::algorithm::UNDO_SEARCH;
use redis::{Pipeline, Script};

use super::layout::{
    ChargeMode, CounterFormat, EQUAL, GRANT, KERNELS, KernelLayout, LogUse, MOST_PARAMETERS, RESET,
    ROLE_ENFORCE, ROLE_NON_BINDING, ROLE_QUOTA, SEVERAL, SLIDING_LOG,
};

const PLAIN_LUA: &str = include_str!("lua/plain.lua");
const PLAIN_LOG_LUA: &str = include_str!("lua/plain_log.lua");
const BATCH_LUA: &str = include_str!("lua/batch.lua");
/// A kernel in the batch script.
const KERNEL_LUA: &str = include_str!("lua/kernel.lua");

/// A charge to a sliding log in the batch script.
const LOG_CHARGE_LUA: &str = include_str!("lua/log_charge.lua");

/// Pieces of code, which may name other pieces.
const PIECES: [(&str, &str); 11] = [
    ("WRITE_COUNTER", include_str!("lua/write_counter.lua")),
    ("DEFINE_SLIDING_LOG", SLIDING_LOG.lua),
    ("DEFINE_LOG_REFUNDS", include_str!("lua/log_refunds.lua")),
    ("EXPIRE_LOG", include_str!("lua/expire_log.lua")),
    ("READ_PARAMETERS", include_str!("lua/read_parameters.lua")),
    ("STORE_COUNTER", include_str!("lua/store_counter.lua")),
    ("STORE_LOG", include_str!("lua/store_log.lua")),
    ("RECORD_WAITING_LOG", include_str!("lua/waiting_log.lua")),
    ("DECIDE_EQUAL", include_str!("lua/equal.lua")),
    ("SET_ROOM", include_str!("lua/room.lua")),
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
type Names = Vec<(&'static str, String)>;

fn plain_text(kernel: &KernelLayout) -> Option<String> {
    let lua = match kernel.counter {
        CounterFormat::Numbers(_) => PLAIN_LUA,
        CounterFormat::Log => PLAIN_LOG_LUA,
        CounterFormat::Nothing => return None,
    };
    let refunds = format!("(mode >= {})", ChargeMode::Refund as u8);
    let of_call = [
        ("PLAIN_FORMAT", format!("'<ddB{}'", "d".repeat(kernel.parameters.len()))),
        ("NEEDS_SLIDING_LOG", "true".to_owned()),
        ("NEEDS_LOG_REFUNDS", refunds),
        ("GRANT_ID", "nil".to_owned()), // no plain call is an undo
    ];
    let mut names = constants();
    names.extend(kernel_names(kernel));
    names.extend(of_call);
    names.push(("KERNEL", expanded(kernel.lua, &names)));
    Some(expanded(lua, &names))
}

fn batch_text() -> String {
    let mut names = batch_names();
    names.push(("DECIDE_CHARGE", KERNELS.iter().map(|kernel| charge_text(kernel, &names)).collect()));
    expanded(BATCH_LUA, &names)
}

/// The branch of the batch script for a charge of this kernel. The branch of the first kernel begins the chain, and
/// lua/batch.lua ends it.
fn charge_text(kernel: &KernelLayout, names: &[(&'static str, String)]) -> String {
    let lua = match kernel.counter {
        CounterFormat::Numbers(_) => KERNEL_LUA,
        CounterFormat::Log => LOG_CHARGE_LUA,
        CounterFormat::Nothing => return String::new(),
    };
    let keyword = if kernel.number == 1 { "if" } else { "elseif" };
    let mut names: Names = names.iter().cloned().chain(kernel_names(kernel)).collect();
    names.push(("KEYWORD", keyword.to_owned()));
    names.push(("KERNEL", expanded(kernel.lua, &names)));
    expanded(lua, &names)
}

/// The lines without comments, with values and pieces in the place of their names.
fn expanded(lines: &str, names: &[(&'static str, String)]) -> String {
    let mut text = String::new();
    expand(lines, names, &mut text);
    text
}

fn expand(lines: &str, names: &[(&'static str, String)], text: &mut String) {
    for line in lines.lines() {
        let mut rest = line.split_once("--").map_or(line, |(code, _comment)| code);
        while let Some(start) = rest.find(is_part_of_name) {
            let name = &rest[start..];
            let name = &name[..name.find(|symbol| !is_part_of_name(symbol)).unwrap_or(name.len())];
            text.push_str(&rest[..start]);
            if let Some((_, piece)) = PIECES.iter().find(|(piece, _)| *piece == name) {
                expand(piece, names, text);
            } else {
                let value = names.iter().find(|(known, _)| *known == name);
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
    let kernels = KERNELS.iter().map(|kernel| (kernel.name, kernel.number.into()));
    numbers.into_iter().chain(kernels).map(|(name, number)| (name, number.to_string())).collect()
}

/// The names in the batch script.
fn batch_names() -> Names {
    let mut names = constants();
    names.extend([
        ("NEEDS_SLIDING_LOG", format!("logs >= {}", LogUse::Charges as u8)),
        ("NEEDS_LOG_REFUNDS", format!("logs >= {}", LogUse::Refunds as u8)),
        ("NEW_TEXT", "new_text".to_owned()),
    ]);
    names
}

/// The names that differ between kernels.
fn kernel_names(kernel: &KernelLayout) -> Names {
    let count = kernel.parameters.len();
    let shared = (0..count).map(|index| format!("CHARGES[i - {}]", MOST_PARAMETERS - 1 - index));
    let mut names = vec![
        ("PARAMETERS", kernel.parameters.join(", ")),
        ("PARAMETERS_FORMAT", doubles(count)),
        ("THEIR_PARAMETERS", ["one", "two", "three", "four", "five"][..count].join(", ")),
        ("SHARED_PARAMETERS", shared.collect::<Vec<_>>().join(", ")),
        ("KERNEL_NUMBER", kernel.number.to_string()),
    ];
    if let CounterFormat::Numbers(numbers) = kernel.counter {
        let new = numbers.iter().map(|number| format!("new_{number}")).collect::<Vec<_>>().join(", ");
        let state = doubles(numbers.len());
        names.extend([
            ("NUMBERS", numbers.join(", ")),
            ("FIRST_NUMBER", numbers[0].to_owned()),
            ("THEIR_NUMBERS", ["a", "b", "c"][..numbers.len()].join(", ")),
            ("THEIR_NEW_NUMBERS", ["new_a", "new_b", "new_c"][..numbers.len()].join(", ")),
            ("NEW_TEXT", format!("pack({state}, {new})")),
            ("NEW_NUMBERS", new),
            ("STATE_FORMAT", state),
        ]);
    }
    names
}

/// A format of `struct.pack`, as a Lua string.
fn doubles(number: usize) -> String {
    format!("'<{}'", "d".repeat(number))
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
        assert_eq!(in_batch("if NEEDS_SLIDING_LOG then"), "if logs >= 1 then\n");
    }

    #[test]
    fn facts_about_kernels_are_written_into_the_text() {
        let of_kernel = |lines: &str, kernel: &KernelLayout| expanded(lines, &kernel_names(kernel));
        assert_eq!(
            of_kernel("KERNEL_NUMBER: PARAMETERS_FORMAT, STATE_FORMAT", &KERNELS[1]),
            "2: '<ddd', '<dd'\n"
        );
        assert_eq!(of_kernel("THEIR_PARAMETERS, THEIR_NUMBERS", &KERNELS[1]), "one, two, three, a, b\n");
        assert_eq!(of_kernel("SHARED_PARAMETERS", &KERNELS[0]), "CHARGES[i - 4], CHARGES[i - 3]\n");
        assert_eq!(of_kernel("NEW_TEXT", &KERNELS[0]), "pack('<d', new_arrival)\n");
    }

    #[test]
    fn each_kernel_with_a_counter_has_a_plain_script() {
        for kernel in &KERNELS {
            let lua = plain(kernel).map(|script| script.lua.as_str());
            assert_eq!(lua.is_some(), kernel.counter != CounterFormat::Nothing, "{}", kernel.name);
            let is_of_kernel = |lua: &str| {
                let parameters = format!("local NOW, GRACE_MS, mode, {} = ", kernel.parameters.join(", "));
                lua.contains(&parameters) && !lua.contains("REQUESTS")
            };
            assert!(lua.is_none_or(is_of_kernel), "{}: {lua:?}", kernel.name);
        }
    }

    #[test]
    fn the_batch_script_has_a_branch_for_each_kernel() {
        for kernel in &KERNELS {
            let condition = format!("if kernel == {} then", kernel.number);
            let branch = charge_text(kernel, &batch_names());
            assert!(BATCH.lua.contains(&branch) && BATCH.lua.contains(&condition), "{kernel:?}");
            let begins = branch.trim_start().trim_start_matches("else").starts_with(&condition);
            assert_eq!(begins, kernel.counter != CounterFormat::Nothing, "{kernel:?}");
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
        let whole = [PLAIN_LUA, PLAIN_LOG_LUA, BATCH_LUA, KERNEL_LUA, LOG_CHARGE_LUA];
        let used: Vec<&str> = pieces.chain(whole).collect();
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
