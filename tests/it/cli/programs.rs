//! Which commands each of the two programs has.

use std::process::{Command, Output};

use ratelimitd::cli::{OF_RATELIMITCTL, OF_RATELIMITD};

const RATELIMITD: &str = env!("CARGO_BIN_EXE_ratelimitd");
const RATELIMITCTL: &str = env!("CARGO_BIN_EXE_ratelimitctl");

/// The exit code, and standard error.
fn run(program: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = Command::new(program).args(arguments).output().expect("it runs");
    assert!(stdout.is_empty(), "{arguments:?}: {stdout:?}");
    (status.code(), String::from_utf8(stderr).expect("UTF-8"))
}

#[test]
fn a_command_of_the_other_program_is_answered_with_its_name() {
    for (program, others) in [(RATELIMITD, OF_RATELIMITCTL), (RATELIMITCTL, OF_RATELIMITD)] {
        let name = others.program;
        for command in others.commands.split(' ') {
            let told = format!("error: {command} is a command of {name}: run {name} {command}\n");
            assert_eq!(run(program, &[command, "--domain", "edge"]), (Some(2), told.clone()));
            assert_eq!(run(program, &["help", command]), (Some(2), told));
        }
    }
}

#[test]
fn a_command_of_neither_program_is_unknown() {
    for program in [RATELIMITD, RATELIMITCTL] {
        let (code, told) = run(program, &["nonsense"]);
        assert!(code == Some(2) && told.contains("unrecognized subcommand 'nonsense'"), "{told}");
    }
}

#[test]
fn only_the_service_can_be_run_without_a_command() {
    let (code, told) = run(RATELIMITCTL, &[]);
    assert!(code == Some(2) && told.contains("Usage: ratelimitctl <COMMAND>"), "{told}");
}
