//! The programs of these tests, and the files that they read.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use config::{Config, File, FileFormat};
use serde_json::Value;

/// The command that installs every program.
pub const REMEDY: &str = "make check-deploy";

/// A path from the root of the project.
pub fn in_project(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

pub fn read(path: &str) -> String {
    std::fs::read_to_string(in_project(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A program that `make check-deploy` builds into `.tools/bin`.
pub fn built(name: &str) -> PathBuf {
    let program = in_project(".tools/bin").join(name);
    assert!(program.exists(), "{} is missing: run `{REMEDY}`", program.display());
    program
}

/// Runs a program in the root of the project. Fails the test unless it succeeds. Returns its standard output.
pub fn run(program: impl AsRef<OsStr>, arguments: &[&str]) -> String {
    let (succeeds, output) = try_run(program.as_ref(), arguments);
    assert!(succeeds, "{} {arguments:?}:\n{output}", program.as_ref().display());
    output
}

/// Like [`run`], for a program that may fail. Returns standard error, too, if it did.
pub fn try_run(program: impl AsRef<OsStr>, arguments: &[&str]) -> (bool, String) {
    let program = program.as_ref();
    let output = Command::new(program)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap_or_else(|error| panic!("{} does not start ({error}): run `{REMEDY}`", program.display()));
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        text += &String::from_utf8_lossy(&output.stderr);
    }
    (output.status.success(), text)
}

/// The documents of a YAML text that are not empty.
pub fn documents(text: &str) -> Vec<Value> {
    let texts = text.split("\n---").map(|text| text.trim_start_matches("---"));
    let has_content =
        |text: &&str| text.lines().any(|line| !line.trim().is_empty() && !line.starts_with('#'));
    texts.filter(has_content).map(document).collect()
}

/// A YAML text of one document, as JSON.
pub fn document(text: &str) -> Value {
    let document = Config::builder().add_source(File::from_str(text, FileFormat::Yaml)).build();
    let value = document.and_then(Config::try_deserialize::<Value>);
    value.unwrap_or_else(|error| panic!("not YAML ({error}):\n{text}"))
}

/// The elements of a list that may be missing.
pub fn elements(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}
