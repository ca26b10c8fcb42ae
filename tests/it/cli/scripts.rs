//! `scripts`: the list and the texts are what the service sends to Redis.

use std::fs;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    let mut program = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    program.arg("scripts").args(arguments).output().expect("the binary runs")
}

fn printed(arguments: &[&str]) -> String {
    let output = run(arguments);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

#[test]
fn the_list_has_the_name_the_sha1_and_the_purpose_of_each_file() {
    let list = printed(&[]);
    let mut names = Vec::new();
    for line in list.lines() {
        let (name, rest) = line.split_once(' ').expect("a name");
        let (sha1, purpose) = rest.trim_start().split_once("  ").expect("a SHA1");
        let file = format!("crates/store/src/redis/script/lua/{name}.lua");
        let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert_eq!(printed(&[name]), text, "{name}");
        assert_eq!(redis::Script::new(&text).get_hash(), sha1, "{name}");
        assert!(purpose.starts_with("Decides "), "{line}");
        names.push(name);
    }
    let expected = [
        "gcra_whole",
        "fixed_window",
        "gcra",
        "sliding_window",
        "interval_bucket",
        "sliding_log",
        "calendar_window",
        "slots",
        "batch",
        "rows",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_name_of_no_script_is_refused_with_the_names_that_there_are() {
    let output = run(&["plain"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout.is_empty() && told.contains("plain") && told.contains("gcra_whole"), "{told}");
}
