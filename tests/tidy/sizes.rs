//! How large files, functions and lines may grow.

use std::path::Path;

use crate::source::{everything, report};

/// Lines of code. Blank lines and comments do not count, so that no file saves on comments to stay below it.
const LONGEST_FILE: usize = 600;
const LONGEST_FUNCTION: usize = 70;
const LONGEST_MAIN: usize = 40;
const LONGEST_COMMENT: usize = 120;

/// The lines of code of a file, and of the tests at its end. Tests do not make a file long, but they have the same
/// bound.
fn code_lines(text: &str) -> [usize; 2] {
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    let starts_tests =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].starts_with("mod ") && pair[1].ends_with('{');
    let tests = lines.windows(2).position(starts_tests).unwrap_or(lines.len());
    let is_code = |line: &&&str| !line.is_empty() && !line.trim_start().starts_with("//");
    [&lines[..tests], &lines[tests..]].map(|part| part.iter().filter(is_code).count())
}

#[test]
fn only_lines_of_code_count_and_tests_count_apart() {
    let production = "//! Docs.\n\n/// More.\nfn f() {\n    // Why.\n    g();\n}\n";
    let tests = "#[cfg(test)]\nmod tests {\n    // Why.\n\n    fn h() {}\n}\n";
    assert_eq!(code_lines(production), [3, 0]);
    assert_eq!(code_lines(&format!("{production}\n{tests}")), [3, 4]);
    assert_eq!(code_lines(&format!("#[cfg(test)]\nmod tests;\n{production}")), [5, 0]);
}

#[test]
fn files_and_functions_stay_readable() {
    let mut problems = Vec::new();
    for source in everything() {
        let most = if source.path == Path::new("src/main.rs") { LONGEST_MAIN } else { LONGEST_FILE };
        for lines in code_lines(&source.text).into_iter().filter(|lines| *lines > most) {
            problems.push(format!("{}: {lines} lines of code, more than {most}", source.name()));
        }
        for (line, length) in long_functions(&source.text) {
            problems.push(format!(
                "{}:{line}: a function of {length} lines, more than {LONGEST_FUNCTION}",
                source.name()
            ));
        }
    }
    report(&problems);
}

/// Functions longer than the budget: from the line with `fn` to the closing brace at its indentation.
fn long_functions(text: &str) -> Vec<(usize, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut long = Vec::new();
    for (at, line) in lines.iter().enumerate().filter(|(_, line)| starts_a_function(line)) {
        let indent = line.len() - line.trim_start().len();
        let close = format!("{}}}", &line[..indent]);
        if let Some(length) =
            lines[at..].iter().position(|line| *line == close).filter(|&length| length > LONGEST_FUNCTION)
        {
            long.push((at + 1, length));
        }
    }
    long
}

/// Whether `fn` is the first word after visibility and qualifiers, and the line does not end the function.
fn starts_a_function(line: &str) -> bool {
    let mut rest = line.trim();
    if rest.ends_with([';', '}']) {
        return false;
    }
    if let Some(after) = rest.strip_prefix("pub(") {
        rest = after.split_once(')').map_or("", |(_, after)| after.trim_start());
    }
    let qualifiers = ["pub ", "default ", "const ", "async ", "unsafe ", "extern \"C\" "];
    while let Some(after) = qualifiers.iter().find_map(|qualifier| rest.strip_prefix(qualifier)) {
        rest = after;
    }
    rest.starts_with("fn ")
}

#[test]
fn every_spelling_of_a_function_is_measured() {
    for start in [
        "fn f() {",
        "pub fn f() {",
        "pub(crate) fn f() {",
        "pub(super) async fn f(",
        "pub(in crate::store) fn f() {",
        "pub const fn f() {",
        "async fn f<T: Clone>(",
        "pub unsafe extern \"C\" fn f() {",
    ] {
        for indent in ["", "    "] {
            let function = |lines: usize| {
                format!("// before\n{indent}{start}\n{}{indent}}}\n", "        x();\n".repeat(lines))
            };
            assert_eq!(long_functions(&function(LONGEST_FUNCTION)), [(2, LONGEST_FUNCTION + 1)], "{start}");
            assert!(long_functions(&function(LONGEST_FUNCTION - 1)).is_empty(), "{start}");
        }
    }
    for start in ["fn f();", "pub fn f() {}", "let f: fn(u8) = g;", "// fn f() {"] {
        assert!(!starts_a_function(start), "{start}");
    }
}

/// Comment lines that are too wide. Code has its width from rustfmt.
fn wide_comments(text: &str) -> Vec<(usize, usize)> {
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    let comments = lines.filter(|(_, line)| line.trim_start().starts_with("//"));
    let widths = comments.map(|(at, line)| (at, line.chars().count()));
    widths.filter(|(_, width)| *width > LONGEST_COMMENT).collect()
}

#[test]
fn comments_are_not_wide() {
    let mut problems = Vec::new();
    for source in everything() {
        let wide = wide_comments(&source.text).into_iter();
        problems.extend(wide.map(|(line, width)| format!("{}:{line}: {width} characters", source.name())));
    }
    report(&problems);
}

#[test]
fn the_width_of_a_comment_is_counted_in_characters() {
    let comment = |width: usize| format!("code();\n    // {}\n", "é".repeat(width - 7));
    assert_eq!(wide_comments(&comment(121)), [(2, 121)]);
    assert!(wide_comments(&comment(120)).is_empty());
    assert!(wide_comments(&"x".repeat(200)).is_empty(), "code is not a comment");
}
