//! `install-help`: a man page for each command, and completions that know each command and each option.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

const PROGRAMS: [(&str, &str); 2] =
    [("ratelimitd", env!("CARGO_BIN_EXE_ratelimitd")), ("ratelimitctl", env!("CARGO_BIN_EXE_ratelimitctl"))];

fn run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).output().expect("the binary runs")
}

fn help(program: &str, command: &[&str]) -> String {
    String::from_utf8(run(program, &[command, &["--help"]].concat()).stdout).expect("UTF-8")
}

fn install_into(prefix: &Path) -> Output {
    run(env!("CARGO_BIN_EXE_ratelimitctl"), &["install-help", prefix.to_str().expect("UTF-8")])
}

fn install() -> TempDir {
    let prefix = TempDir::new().expect("a folder");
    let output = install_into(prefix.path());
    assert!(output.status.success(), "{output:?}");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
    prefix
}

/// The commands that the help of `command` lists.
fn commands_below(help: &str) -> Vec<&str> {
    let listed = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
    let lines = listed.lines().take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").collect()
}

/// Each command of a program with its help, `counters show` as `counters-show`.
fn every_help((name, program): (&str, &str)) -> BTreeMap<String, String> {
    let root = help(program, &[]);
    let mut found = BTreeMap::new();
    for command in commands_below(&root) {
        let text = help(program, &[command]);
        for below in commands_below(&text) {
            found.insert(format!("{name}-{command}-{below}"), help(program, &[command, below]));
        }
        found.insert(format!("{name}-{command}"), text);
    }
    found.insert(name.to_owned(), root);
    assert!(found.len() >= 5, "{:?}", found.keys());
    found
}

fn long_options(help: &str) -> Vec<&str> {
    let starts = help.lines().map(str::trim_start).map(|line| line.strip_prefix("-h, ").unwrap_or(line));
    let named = starts.filter(|line| line.starts_with("--"));
    named.filter_map(|line| line.split([' ', '=', ',']).next()).collect()
}

/// The text of a section of a man page.
fn section<'p>(page: &'p str, title: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("\n.SH {title}\n")).unwrap_or_else(|| panic!("{title}: {page}"));
    rest.split_once("\n.SH ").map_or(rest, |(text, _)| text)
}

/// The options of a man page, under one heading or several.
fn options(page: &str) -> String {
    let is_of_options =
        |section: &&str| section.lines().next().is_some_and(|title| title.contains("OPTIONS"));
    page.split("\n.SH ").filter(is_of_options).collect()
}

#[test]
fn every_command_has_a_man_page_with_its_description_and_its_options() {
    let prefix = install();
    let folder = prefix.path().join("share/man/man1");
    let helps: BTreeMap<_, _> = PROGRAMS.into_iter().flat_map(every_help).collect();
    for (name, help) in &helps {
        let page = fs::read_to_string(folder.join(format!("{name}.1"))).expect(name);
        let page = page.replace("\\-", "-");
        let (shown, description) = section(&page, "NAME").split_once(" - ").expect(name);
        assert_eq!(shown, name, "{page}");
        assert!(description.trim().len() > 20, "{name}: {description}");
        assert!(help.starts_with(description.trim().trim_end_matches('.')), "{name}: {description}");
        for option in long_options(help) {
            assert!(options(&page).contains(option), "{name} {option}");
        }
        // Command lines stay as they are.
        assert_eq!(page.contains("\n.nf\n"), help.contains("\nExample"), "{name}: {page}");
        // Each entry of the options says what it is for.
        for entry in options(&page).split(".TP\n").skip(1) {
            assert!(entry.lines().nth(1).is_some_and(|text| !text.trim().is_empty()), "{name}: {entry}");
        }
    }
    let pages = fs::read_dir(&folder).expect("a folder").count();
    assert_eq!(pages, helps.len(), "a page of a command that --help does not show");
}

#[test]
fn the_completions_know_every_command_and_option() {
    let prefix = install();
    for program in PROGRAMS {
        let helps = every_help(program);
        let files = [
            "bash-completion/completions/NAME",
            "zsh/site-functions/_NAME",
            "fish/vendor_completions.d/NAME.fish",
        ];
        for file in files.map(|file| format!("share/{}", file.replace("NAME", program.0))) {
            completions_know(&helps, &prefix.path().join(file));
        }
    }
}

fn completions_know(helps: &BTreeMap<String, String>, file: &Path) {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{file:?}: {error}"));
    for (name, help) in helps {
        let command = name
            .trim_start_matches("ratelimitd-")
            .trim_start_matches("ratelimitctl-")
            .trim_start_matches("counters-")
            .trim_start_matches("usage-")
            .trim_start_matches("exceptions-")
            .trim_start_matches("rules-");
        assert!(text.contains(command), "{file:?}: {name}");
        for option in long_options(help) {
            // fish has the names of options without the hyphens.
            assert!(text.contains(option.trim_start_matches('-')), "{file:?}: {name} {option}");
        }
    }
}

/// What bash offers for the last of the words.
fn offered_by_bash(prefix: &TempDir, line: &str) -> Vec<String> {
    let script = r#"source "$1"; COMP_WORDS=($2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "_$COMP_WORDS" "$COMP_WORDS" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
        printf '%s\n' "${COMPREPLY[@]}""#;
    let program = line.split(' ').next().expect("a program");
    let completions = prefix.path().join("share/bash-completion/completions").join(program);
    let arguments = ["-c", script, "bash", completions.to_str().expect("UTF-8"), line];
    let output = Command::new("bash").args(arguments).output().expect("bash runs");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).expect("UTF-8").lines().map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_and_options() {
    let prefix = install();
    assert_eq!(offered_by_bash(&prefix, "ratelimitd val"), ["validate"]);
    assert_eq!(offered_by_bash(&prefix, "ratelimitctl counters res"), ["reset"]);
    assert_eq!(offered_by_bash(&prefix, "ratelimitd validate --str"), ["--strict"]);
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let prefix = TempDir::new().expect("a folder");
    let file = prefix.path().join("share");
    fs::write(&file, "not a folder").expect("a file");
    let output = install_into(prefix.path());
    assert_eq!(output.status.code(), Some(1));
    let reason = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(reason.starts_with(&format!("ratelimitctl install-help: {}", file.display())), "{reason}");
}
