//! The text of the script: the Lua files, in which constants, conditions and pieces of code replace their names in
//! capitals.
//!
//! Lua in Redis keeps nothing between two calls. A variable of the script costs each call more than a number in its
//! place, and a function may cost a call as much as a decision. So Rust writes numbers and pieces of code into the
//! text.

use std::sync::LazyLock;

use redis::{Cmd, Script};

use super::layout::{
    ALIKE, ChargeMode, CounterFormat, EQUAL, FEATURE_EQUAL, FEATURE_KEYS_REPEAT, FEATURE_ONE_BY_ONE,
    FEATURE_RESET, FEATURE_SEVERAL, GRANT, KERNELS, KernelLayout, RESET, ROLE_ENFORCE, ROLE_NON_BINDING,
    ROLE_QUOTA, SEVERAL,
};

/// Reads the counters. The kernels follow.
const COUNTERS: &str = include_str!("lua/counters.lua");
/// Decides one request, and then takes all requests of the call. Both follow the kernels.
const REQUESTS: [&str; 2] = [include_str!("lua/decide.lua"), include_str!("lua/batch.lua")];

/// Pieces of code, which may name other pieces.
const PIECES: [(&str, &str); 4] = [
    ("DECIDE_EQUAL", include_str!("lua/equal.lua")),
    ("DECIDE_ALIKE", include_str!("lua/alike.lua")),
    ("LOAD_ARRIVAL", include_str!("lua/load_arrival.lua")),
    ("WRITE_COUNTER", include_str!("lua/write_counter.lua")),
];

/// Up to this number every whole number is a double.
const EXACT: u64 = 1 << 53;
/// Keys in one MGET. The Lua stack holds 8,000 values.
const KEYS_AT_ONCE: u64 = 4_000;
/// Expiry times, in microseconds, are rounded up to whole seconds. The expiry of a counter in use then seldom changes,
/// and SETRANGE costs Redis a third less than PSETEX.
const EXPIRY_STEP: u64 = 1_000_000;

pub(super) static TEXT: LazyLock<String> = LazyLock::new(|| {
    let kernels = KERNELS.iter().map(|kernel| kernel.lua);
    let files: String = [COUNTERS].into_iter().chain(kernels).chain(REQUESTS).collect();
    let mut text = String::new();
    expand(&files, &constants(), &mut text);
    text
});

pub(super) static SCRIPT: LazyLock<Script> = LazyLock::new(|| Script::new(&TEXT));

/// The SHA1 of the script, by which `EVALSHA` names it.
#[must_use]
pub fn script_sha1() -> &'static str {
    SCRIPT.get_hash()
}

/// The command that loads the script into a server.
pub(crate) fn load() -> Cmd {
    let mut command = Cmd::new();
    command.arg("SCRIPT").arg("LOAD").arg(TEXT.as_str());
    command
}

/// Adds the lines to the text, with constants and pieces in the place of their names, and without comments.
fn expand(lines: &str, constants: &[(String, String)], text: &mut String) {
    for line in lines.lines() {
        let mut rest = line.split_once("--").map_or(line, |(code, _comment)| code);
        while let Some(start) = rest.find(is_part_of_name) {
            let name = &rest[start..];
            let name = &name[..name.find(|symbol| !is_part_of_name(symbol)).unwrap_or(name.len())];
            text.push_str(&rest[..start]);
            if let Some((_, piece)) = PIECES.iter().find(|(piece, _)| *piece == name) {
                expand(piece, constants, text);
            } else {
                let constant = constants.iter().find(|(constant, _)| constant == name);
                text.push_str(constant.map_or(name, |(_, value)| value));
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

/// The names and their values.
fn constants() -> Vec<(String, String)> {
    let numbers = [
        ("EXACT", EXACT),
        ("KEYS_AT_ONCE", KEYS_AT_ONCE),
        ("EXPIRY_STEP", EXPIRY_STEP),
        ("SEVERAL", SEVERAL.into()),
        ("RESET", RESET.into()),
        ("GRANT", GRANT.into()),
        ("EQUAL", EQUAL.into()),
        ("ALIKE", ALIKE.into()),
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
    let features = [
        ("NEEDS_SEVERAL", FEATURE_SEVERAL),
        ("NEEDS_RESET", FEATURE_RESET),
        ("NEEDS_EQUAL", FEATURE_EQUAL),
        ("NEEDS_ONE_BY_ONE", FEATURE_ONE_BY_ONE),
        ("HAS_REPEATED_KEYS", FEATURE_KEYS_REPEAT),
    ];
    let facts = [
        ("KERNEL_FUNCTIONS", table(KernelLayout::lua_function)),
        ("KERNEL_FORMATS", table(|kernel| doubles(kernel.parameters))),
        ("KERNEL_SIZES", table(|kernel| kernel.parameters_size().to_string())),
        ("KERNEL_WIDTHS", table(|kernel| kernel.reply_width().to_string())),
        ("KERNEL_STATES", table(KernelLayout::lua_state)),
        ("SET_KERNEL_FACTS", set_kernel_facts()),
    ];
    let kernels = KERNELS.iter().flat_map(|kernel| {
        let name = kernel.name.to_uppercase();
        [(format!("NEEDS_{name}"), condition(kernel.feature())), (name, kernel.number.to_string())]
    });
    let numbers = numbers.map(|(name, number)| (name.to_owned(), number.to_string()));
    let features = features.map(|(name, bit)| (name.to_owned(), condition(bit)));
    let facts = facts.map(|(name, text)| (name.to_owned(), text));
    numbers.into_iter().chain(features).chain(facts).chain(kernels).collect()
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

/// Lua that sets variables to the facts about `kernel`, which has no log. The facts are its functions, the format and
/// the size of its parameters, the number of integers in a reply, and the format of its state.
fn set_kernel_facts() -> String {
    const VARIABLES: &str = "decide, room, parameters, size, width, state";
    let mut text = format!("local {VARIABLES} ");
    let mut keyword = "if";
    for kernel in &KERNELS {
        let KernelLayout { name, number, parameters, .. } = kernel;
        let functions = match kernel.counter {
            CounterFormat::Numbers(_) => format!("{name}, {name}_room"),
            CounterFormat::Nothing => "nil, nil".to_owned(),
            CounterFormat::Log => continue,
        };
        let (format, size) = (doubles(*parameters), kernel.parameters_size());
        let (width, state) = (kernel.reply_width(), kernel.lua_state());
        text.push_str(&format!(
            "{keyword} kernel == {number} then {VARIABLES} = {functions}, {format}, {size}, {width}, {state} "
        ));
        keyword = "elseif";
    }
    text.push_str("else error('no kernel ' .. kernel) end");
    text
}

impl KernelLayout {
    /// The function of the kernel, if the call needs it. A kernel without parameters is always defined.
    fn lua_function(&self) -> String {
        format!("{}{}", self.name, if self.parameters > 0 { " or false" } else { "" })
    }

    /// The format of a counter that is text.
    fn lua_state(&self) -> String {
        match self.counter {
            CounterFormat::Numbers(numbers) => doubles(numbers),
            CounterFormat::Log | CounterFormat::Nothing => "false".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn expanded(lines: &str) -> String {
        let mut text = String::new();
        expand(lines, &constants(), &mut text);
        text
    }

    #[test]
    fn whole_names_are_replaced_and_comments_left_out() {
        let text = "if mode == RECORD then -- RECORD\n  call('DEL', RECORD_1, GCRA)\n\nend";
        let expected = "if mode == 2 then \n  call('DEL', RECORD_1, 3)\n\nend\n";
        assert_eq!(expanded(text), expected);
        assert_eq!(expanded("if NEEDS_GCRA then"), "if (FEATURES % 32 >= 16) then\n");
    }

    #[test]
    fn facts_about_kernels_are_written_into_the_text() {
        assert!(expanded("KERNEL_FUNCTIONS").starts_with("{ gcra_whole or false, fixed_window or false, "));
        assert_eq!(expanded("KERNEL_FORMATS"), "{ '<dd', '<ddd', '<ddddd', '<ddd', '<dddd', '<ddd', '' }\n");
        assert_eq!(expanded("KERNEL_SIZES"), "{ 16, 24, 40, 24, 32, 24, 0 }\n");
        assert_eq!(expanded("KERNEL_WIDTHS"), "{ 1, 2, 2, 3, 2, 4, 1 }\n");
        assert_eq!(expanded("KERNEL_STATES"), "{ '<d', '<dd', '<dd', '<ddd', '<dd', false, false }\n");
    }

    #[test]
    fn every_lua_file_is_part_of_the_script() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/script/lua");
        let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let script = squeezed(&TEXT);
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("an entry").path();
            let text = std::fs::read_to_string(&path).expect("a Lua file is text");
            let is_part = script.contains(&squeezed(&expanded(&text)));
            assert!(is_part, "{} is not in the script", path.display());
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
        let variables: HashSet<&str> = TEXT.lines().filter_map(defined).flat_map(names).collect();
        let is_number = |name: &&str| name.starts_with(|symbol: char| symbol.is_ascii_digit());
        for name in TEXT.lines().flat_map(without_strings).flat_map(names).filter(|name| !is_number(name)) {
            assert!(variables.contains(name) || name == "_" || name == "ARGV", "{name} has no value");
        }
    }
}
