//! Checks the files in lua/ against each other and against the constants in Rust.
//!
//! After a change to a block between BEGIN and END, update its copies:
//! `UPDATE_SCRIPTS=1 cargo test -p ratelimitd-store script::text`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::{fs, iter};

use engine::algorithm::UNDO_SEARCH;

use super::*;
use crate::redis::script::layout::{
    ChargeMode, CounterFormat, EQUAL, GRANT, RESET, ROLE_ENFORCE, ROLE_QUOTA, SEVERAL,
};

fn files() -> impl Iterator<Item = PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/redis/script/lua");
    scripts().map(move |script| folder.join(format!("{}.lua", script.name())))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The line without its comment.
fn code(line: &str) -> &str {
    line.split_once("--").map_or(line, |(code, _comment)| code).trim_end()
}

/// Lines with code between BEGIN and END of a block, without its indentation.
fn block(file: &Path, name: &str) -> Vec<String> {
    let text = read(file);
    let begin = format!("-- BEGIN {name}");
    let mut lines = text.lines().skip_while(|line| line.trim() != begin);
    let first = lines.next().unwrap_or_else(|| panic!("{} has no {begin}", file.display()));
    let indentation = first.len() - begin.len();
    let end = format!("-- END {name}");
    let lines = lines.take_while(|line| line.trim() != end).map(code).filter(|line| !line.is_empty());
    lines.map(|line| line[indentation..].to_owned()).collect()
}

/// The file with every copy updated from its block.
fn with_copies(file: &Path) -> String {
    let text = read(file);
    let mut lines = text.lines();
    let mut written = String::new();
    while let Some(line) = lines.next() {
        written += line;
        written.push('\n');
        let marker = line.trim_start();
        let Some((home, name)) = marker.strip_prefix("-- COPY ").and_then(|copy| copy.split_once(' ')) else {
            continue;
        };
        let indentation = &line[..line.len() - marker.len()];
        for line in block(&file.with_file_name(home), name) {
            written += &format!("{indentation}{line}\n");
        }
        let end = format!("-- END {name}");
        let end = lines.find(|line| line.trim() == end).unwrap_or_else(|| panic!("{marker} has no end"));
        written += &format!("{end}\n");
    }
    written
}

#[test]
fn copies_are_the_same_as_their_blocks() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
    let is_update = std::env::var("UPDATE_SCRIPTS").is_ok();
    for file in files() {
        let expected = with_copies(&file);
        if is_update {
            fs::write(&file, &expected).expect("a writable file");
        }
        let path = file.display();
        assert!(
            read(&file) == expected,
            "{path}: UPDATE_SCRIPTS=1 cargo test -p ratelimitd-store script::text"
        );
    }
}

#[test]
fn the_batch_script_has_a_copy_of_each_kernel() {
    let batch = BATCH.text();
    for kernel in &KERNELS {
        assert_eq!(plain(kernel).is_some(), kernel.counter != CounterFormat::Nothing, "{}", kernel.name);
        // Slots are read again once their request is decided.
        let copies = if kernel.name == "SLOTS" { 2 } else { 1 };
        let block = match kernel.counter {
            CounterFormat::Numbers(_) => "kernel",
            CounterFormat::Facts if kernel.name == "SLOTS" => "read",
            CounterFormat::Facts => "log",
            CounterFormat::Nothing => continue,
        };
        let copy = format!("-- COPY {}.lua {block}\n", kernel.name.to_ascii_lowercase());
        assert_eq!(batch.matches(&copy).count(), copies, "{copy}");
    }
}

#[test]
fn every_file_is_a_script_that_says_what_it_decides() {
    let paths: BTreeSet<PathBuf> = files().collect();
    let folder = paths.first().and_then(|path| path.parent()).expect("a folder");
    let found = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path());
    let found: BTreeSet<PathBuf> =
        found.filter(|path| path.extension().is_some_and(|end| end == "lua")).collect();
    assert_eq!(found, paths);
    let mut purposes = BTreeSet::new();
    for script in scripts() {
        let head: Vec<&str> = script.text().lines().take_while(|line| line.starts_with("--")).collect();
        for part in ["-- KEYS", "-- ARGV[1]  ", "-- Returns  "] {
            assert!(head.iter().any(|line| line.starts_with(part)), "{} has no {part}", script.name());
        }
        let purpose = script.purpose();
        assert!(purpose.starts_with("Decides ") && purpose.len() < 120, "{purpose}");
        assert!(purposes.insert(purpose), "{}: another script has the same purpose", script.name());
    }
}

/// Constants shared by both languages, by Lua name.
fn shared_numbers() -> BTreeMap<&'static str, u64> {
    let numbers = [
        ("UNDO_SEARCH", UNDO_SEARCH as u64),
        ("SEVERAL", SEVERAL.into()),
        ("RESET", RESET.into()),
        ("GRANT", GRANT.into()),
        ("EQUAL", EQUAL.into()),
        ("PEEK", ChargeMode::Peek as u64),
        ("TAKE", ChargeMode::Take as u64),
        ("RECORD", ChargeMode::Record as u64),
        ("REFUND", ChargeMode::Refund as u64),
        ("UNDO", ChargeMode::Undo as u64),
        ("ENFORCE", ROLE_ENFORCE.into()),
        ("QUOTA", ROLE_QUOTA.into()),
    ];
    let kernels = KERNELS.iter().map(|kernel| (kernel.name, kernel.number.into()));
    numbers.into_iter().chain(kernels).collect()
}

/// Constants in capitals with their values, in a line such as `local PEEK, TAKE = 0, 1` or `if kernel == 3 then --
/// GCRA`.
fn numbers_in(line: &str) -> Vec<(&str, &str)> {
    let declared = code(line).trim_start().strip_prefix("local ").and_then(|rest| rest.split_once(" = "));
    let compared = line.split_once(" then -- ").map(|(condition, names)| (names, condition));
    let is_in_capitals =
        |name: &&str| name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_');
    let is_number = |word: &&str| word.chars().all(|letter| letter.is_ascii_digit());
    if let Some((names, values)) = declared {
        iter::zip(names.split(", "), values.split(", ")).filter(|(name, _)| is_in_capitals(name)).collect()
    } else if let Some((names, condition)) = compared {
        let names = names.split(':').next().into_iter().flat_map(|names| names.split(", "));
        iter::zip(names.filter(is_in_capitals), condition.split_whitespace().filter(is_number)).collect()
    } else {
        Vec::new()
    }
}

#[test]
fn names_have_the_same_numbers_in_both_languages() {
    let shared = shared_numbers();
    let mut seen = BTreeSet::new();
    for script in scripts() {
        for (name, value) in script.text().lines().flat_map(numbers_in) {
            if let Some(expected) = shared.get(name) {
                assert_eq!(value, expected.to_string(), "{name} in {}", script.name());
                seen.insert(name);
            }
        }
        // Every comparison of a kernel id names the kernel.
        let unnamed = |line: &&str| line.contains("kernel ==") && numbers_in(line).is_empty();
        assert_eq!(script.text().lines().find(unnamed), None, "{}", script.name());
    }
    assert_eq!(seen, shared.keys().copied().collect());
}

#[test]
fn scripts_have_the_parameters_and_numbers_of_their_kernel() {
    for (kernel, script) in KERNELS.iter().filter_map(|kernel| Some((kernel, plain(kernel)?))) {
        let (text, doubles) = (script.text(), |count: usize| "d".repeat(count));
        let count = kernel.parameters.len();
        let (names, format) = (kernel.parameters.join(", "), doubles(count));
        let read = format!("local NOW, GRACE_MS, mode, {names} = unpack_from('<ddB{format}', ARGV[1])\n");
        assert!(text.contains(&read), "{} has no {read}", script.name());
        let (_, branch) = BATCH
            .text()
            .split_once(&format!("if kernel == {} then -- {}\n", kernel.number, kernel.name))
            .expect(kernel.name);
        let theirs = ["one", "two", "three", "four", "five"][..count].join(", ");
        let read = format!(
            "          if not is_known then\n            {theirs}, at = unpack_from('<{format}', REQUESTS, at)"
        );
        assert!(branch.starts_with(&read), "batch: {} has no {read}", kernel.name);
        if let CounterFormat::Numbers(numbers) = kernel.counter {
            let (names, format) = (numbers.join(", "), doubles(numbers.len()));
            let new = numbers.iter().map(|name| format!("new_{name}")).collect::<Vec<_>>().join(", ");
            let packed = format!("pack('<{format}', {new})\n");
            assert!(text.contains(&packed), "{} has no {packed}", script.name());
            let rest = names.split_once(", ").map_or(String::new(), |(_, rest)| format!(", {rest}"));
            let returned = format!("return {{ NOW, fits and {0} or -1 - {0}{rest} }}\n", numbers[0]);
            assert!(text.ends_with(&returned), "{} has no {returned}", script.name());
        }
    }
}

/// TCP sends ten segments at first, and twice as many after each round trip.
#[test]
fn the_scripts_are_loaded_within_three_round_trips() {
    let bytes = load().get_packed_pipeline().len();
    assert!(bytes <= (10 + 20 + 40) * 1_448, "{bytes} bytes");
}
