//! The checker of rule files of `envoyproxy/ratelimit` by its name: its recorded command lines, with the same exit
//! codes and lines.

use std::os::unix::fs::symlink;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const RECORDED: &str = include_str!("../../data/operation/commands.json");

struct Case {
    arguments: Vec<String>,
    files: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    stdout: String,
    code: i64,
}

fn cases(program: &str) -> Vec<Case> {
    let all: Value = serde_json::from_str(RECORDED).expect("JSON");
    all[program].as_array().expect("a list").iter().map(case).collect()
}

fn case(value: &Value) -> Case {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let pairs = |name: &str| {
        let map = value.get(name).and_then(Value::as_object);
        map.into_iter().flatten().map(|(name, value)| (name.clone(), text(value))).collect()
    };
    Case {
        arguments: value["args"].as_array().expect("a list").iter().map(text).collect(),
        files: pairs("files"),
        environment: pairs("environment"),
        stdout: text(&value["stdout"]),
        code: value["exit"].as_i64().expect("a number"),
    }
}

/// Runs the binary under the name, in a directory with the files.
fn run(program: &str, case: &Case, arguments: &[String]) -> Output {
    let directory = TempDir::new().expect("a directory");
    for (name, text) in case.files.iter().chain(&[("empty/.keep".to_owned(), String::new())]) {
        let path = directory.path().join("work").join(name);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    std::fs::remove_file(directory.path().join("work/empty/.keep")).expect("a file");
    let link = directory.path().join(program);
    symlink(env!("CARGO_BIN_EXE_ratelimitd"), &link).expect("a link");
    let mut command = Command::new(link);
    command.current_dir(directory.path().join("work")).env_clear().envs(case.environment.iter().cloned());
    command.args(arguments).output().expect("the program runs")
}

#[test]
fn config_check_ends_as_recorded() {
    let cases = cases("ratelimit_config_check");
    assert!(cases.len() >= 25, "{}", cases.len());
    for case in cases {
        let output = run("ratelimit_config_check", &case, &case.arguments);
        let found = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let told = format!("{:?}: {found:?}", case.arguments);
        assert_eq!(output.status.code().map(i64::from), Some(case.code), "{told}");
        // Messages about rules name the line, and those about settings are ours; the other lines are the same.
        let is_same = |line: &&str| !line.starts_with("error loading ") && !line.starts_with(' ');
        let lines = |text: &str| text.lines().filter(is_same).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(lines(&found.0), lines(&case.stdout), "{told}");
    }
}
