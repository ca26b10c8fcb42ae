//! Every message with its line: the problems of `tests/data/rules/bad/NAME.yaml` (or of the directory NAME) are exactly
//! the lines of `NAME.expected`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use rules::load;

use super::{REFERENCE, root};

#[test]
fn every_problem_of_every_file_is_named_with_its_line() {
    let directory = root().join("tests/data/rules/bad");
    let mut cases = 0;
    for case in cases_in(&directory) {
        let expected = directory.join(&case).with_extension("expected");
        let expected =
            fs::read_to_string(&expected).unwrap_or_else(|error| panic!("{}: {error}", expected.display()));
        assert_eq!(problems(&directory, &case), expected, "{case}");
        cases += 1;
    }
    assert!(cases >= 24, "only {cases} cases found");
}

fn cases_in(directory: &Path) -> BTreeSet<String> {
    fs::read_dir(directory)
        .expect("the directory of bad files")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
        .filter(|name| !name.ends_with(".expected"))
        .collect()
}

/// All problems of a case, with file names relative to `directory`.
fn problems(directory: &Path, case: &str) -> String {
    let prefix = format!("{}/", directory.display());
    let problems = match load(&[directory.join(case)], REFERENCE) {
        Ok(loaded) => loaded.warnings,
        Err(problems) => problems,
    };
    let lines = problems.all().iter().map(|problem| problem.to_string().replace(&prefix, "") + "\n");
    lines.collect()
}

#[test]
fn missing_and_unreadable_files_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    fs::create_dir(path.join("empty")).expect("a directory");
    fs::write(path.join("empty/.hidden.yaml"), "domain: d").expect("a file");
    fs::write(path.join("empty/notes.txt"), "domain: d").expect("a file");
    fs::create_dir(path.join("dangling")).expect("a directory");
    std::os::unix::fs::symlink("nowhere", path.join("dangling/rules.yaml")).expect("a link");
    let made = std::process::Command::new("mkfifo").args(["pipe", "pipe.yaml"]).current_dir(path).status();
    assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
    fs::write(path.join("large.yaml"), "#".repeat((8 << 20) + 1)).expect("a file");
    let table = [
        // path, message
        ("missing", "missing: cannot read the path: No such file or directory (os error 2)"),
        (
            "empty",
            "empty: no rule files (*.yaml, *.yml) in this directory\n\
             empty/notes.txt: warning: not read, because its name does not end in .yaml or .yml",
        ),
        ("dangling", "dangling/rules.yaml: cannot read the file: No such file or directory (os error 2)"),
        // To open a pipe would wait for its writer.
        ("pipe", "pipe: neither a regular file nor a directory"),
        ("pipe.yaml", "pipe.yaml: neither a regular file nor a directory"),
        ("large.yaml", "large.yaml: cannot read the file: larger than 8388608 bytes"),
    ];
    for (name, expected) in table {
        assert_eq!(problems(path, name), format!("{expected}\n"));
    }
    let none = load(&[], REFERENCE).expect_err("no paths");
    assert_eq!(none.to_string(), "rules: no path to rule files is given");
}

#[test]
fn the_problems_of_several_paths_are_reported_together() {
    let directory = root().join("tests/data/rules/bad");
    let paths = ["syntax.yaml", "empty.yaml", "duplicate-domain"].map(|name| directory.join(name));
    let problems = load(&paths, REFERENCE).expect_err("bad files");
    let files: Vec<_> = problems.all().iter().map(|problem| &*problem.location.file).collect();
    assert_eq!(files.len(), 3);
    assert!(files[0].ends_with("syntax.yaml") && files[1].ends_with("empty.yaml"));
    assert!(files[2].ends_with("duplicate-domain/b.yml"));
}

#[test]
fn every_visible_file_that_is_not_read_is_a_warning() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rules");
    fs::create_dir_all(path.join("below")).expect("a directory");
    fs::write(path.join("good.yaml"), "domain: d\ndescriptors: []\n").expect("a file");
    for name in ["rules.YAML", "ratelimit", "x.json", "below/old.yaml~", ".hidden", "below/.yaml"] {
        fs::write(path.join(name), "domain: d").expect("a file");
    }
    let wrong_name = "warning: not read, because its name does not end in .yaml or .yml";
    let expected: String = ["below/old.yaml~", "ratelimit", "rules.YAML", "x.json"]
        .iter()
        .map(|name| format!("rules/{name}: {wrong_name}\n"))
        .collect();
    assert_eq!(problems(directory.path(), "rules"), expected);
    // A file that is named itself is read, whatever its name is.
    assert_eq!(problems(directory.path(), "rules/rules.YAML"), "");

    for number in 0..300 {
        fs::write(path.join(format!("note{number}")), "").expect("a file");
    }
    let loaded = load(&[path], REFERENCE).expect("one good file");
    assert_eq!(loaded.warnings.all().len(), 101);
    let last = loaded.warnings.all()[100].to_string();
    assert!(last.ends_with("this file and 203 others are not read either"), "{last}");
}
