//! How large files and how wide comments may grow. Clippy counts the lines of functions.

use crate::source::{everything, report};

/// Lines of code. Blank lines and comments do not count, so that no file saves on comments to stay below it.
const LONGEST_FILE: usize = 600;
const WIDEST_COMMENT: usize = 120;

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

/// The lines of code of a file, and of the tests at its end. Tests do not make a file long, but they have the same
/// bound.
fn code_lines(text: &str) -> [usize; 2] {
    let (production, tests) = text.split_once("\n#[cfg(test)]\nmod tests {\n").unwrap_or((text, ""));
    let count = |part: &str| part.lines().filter(|line| !line.trim().is_empty() && !is_comment(line)).count();
    [count(production), count(tests)]
}

#[test]
fn files_stay_readable() {
    let mut problems = Vec::new();
    for source in everything() {
        for lines in code_lines(&source.text).into_iter().filter(|lines| *lines > LONGEST_FILE) {
            problems.push(format!("{}: {lines} lines of code, more than {LONGEST_FILE}", source.name()));
        }
        // Code has its width from rustfmt.
        for (at, line) in source.text.lines().enumerate().filter(|(_, line)| is_comment(line)) {
            let width = line.chars().count();
            if width > WIDEST_COMMENT {
                problems.push(format!("{}:{}: {width} characters", source.name(), at + 1));
            }
        }
    }
    report(&problems);
}

#[test]
fn only_lines_of_code_count_and_tests_count_apart() {
    let production = "//! Docs.\n\n/// More.\nfn f() {\n    // Why.\n    g();\n}\n";
    let tests = "#[cfg(test)]\nmod tests {\n    // Why.\n\n    fn h() {}\n}\n";
    assert_eq!(code_lines(production), [3, 0]);
    assert_eq!(code_lines(&format!("{production}\n{tests}")), [3, 2]);
    assert_eq!(code_lines(&format!("#[cfg(test)]\nmod tests;\n{production}")), [5, 0]);
}
