//! Values that are addresses, rows for one request, and what may replace a file.

use std::fs;

use super::*;

const BLOCK: &str = "- { domain: llm, key: tenant, value: acme, block: true }\n";

/// A full disk, a wrong redirection, or a mount without its source.
#[test]
fn what_takes_the_place_of_a_file_does_not_lift_its_rows() {
    let not_regular = ": cannot read the file: not a regular file";
    for (name, text) in [("a.csv", format!("{HEADER}llm,tenant,acme,pro\n")), ("a.yaml", BLOCK.to_owned())] {
        let mut folder = Folder::new();
        folder.write(name, &text);
        assert_eq!(folder.load().map(|loaded| loaded.files.len()), Ok(1));
        let path = folder.path().join(name);
        let mut told = |expected: &str| {
            let told = folder.load().expect_err("an error");
            assert!(told.starts_with(&format!("{name}{expected}")), "{told}");
            assert_eq!(folder.loaded.files.len(), 1, "the old rows stay");
        };
        fs::write(&path, "").expect("a file");
        told(":1: the file is empty");
        fs::remove_file(&path).expect("a file");
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
        told(not_regular);
        fs::remove_file(&path).expect("a pipe");
        std::os::unix::fs::symlink("/dev/zero", &path).expect("a link");
        told(not_regular);
        fs::remove_file(&path).expect("a link");
        let socket = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
        told(not_regular);
        drop(socket);
        fs::remove_file(&path).expect("a socket");
        fs::create_dir(&path).expect("a folder");
        told(": a directory with the name of a file");
        let scope = ExceptionScope { now_us: NOW_US, entries: None, columns: None };
        let alone = load_exceptions(&path, scope, &LoadedExceptions::default());
        assert!(alone.expect_err("a folder").to_string().ends_with("a directory with the name of a file"));
    }
}

#[test]
fn an_address_is_the_same_one_in_every_spelling() {
    let mut folder = Folder::new();
    folder.write("a.csv", format!("{HEADER}llm,ip,2001:DB8:0::1,pro\nllm,ip,10.0.0.7,pro\nllm,ip,x:1,pro\n"));
    folder.write(
        "b.yaml",
        "- { domain: llm, key: ip, value: '2001:DEAD::1', block: true }\n\
         - { domain: llm, key: ip, value: 203.0.113.7, block: true }\n\
         - { domain: llm, key: ip, value: '203.0.113.8:80', block: true }\n",
    );
    let sources = |value: &str| -> Vec<String> {
        let entries = [Entry { key: "ip".to_owned(), value: value.to_owned() }];
        let scope = ExceptionScope { now_us: NOW_US, entries: Some(&entries), columns: None };
        let loaded =
            load_exceptions(folder.path(), scope, &LoadedExceptions::default()).expect("valid files");
        let of = |row: &engine::ExceptionRow| row.source.to_string().rsplit('/').next().map(str::to_owned);
        loaded.exceptions.rows().filter_map(of).collect()
    };
    let table: [(&str, &[&str]); 10] = [
        ("::ffff:203.0.113.7", &["b.yaml:2"]),
        ("203.0.113.7:1234", &["b.yaml:2"]),
        ("2001:dead:0::1", &["b.yaml:1"]),
        ("[2001:dead::1]:443", &["b.yaml:1"]),
        ("2001:dead::1%eth0", &["b.yaml:1"]),
        ("203.0.113.8:80", &["b.yaml:3"]),
        ("203.0.113.8", &[]),
        ("2001:db8::1", &["a.csv:2"]),
        ("::ffff:10.0.0.7", &["a.csv:3"]),
        ("x:1", &["a.csv:4"]),
    ];
    for (value, expected) in table {
        assert_eq!(sources(value), expected, "{value}");
    }
    folder.load().expect("valid files");
    let table = folder.loaded.exceptions.table();
    let mark = |value: &str| table.get(table.space("llm", "ip"), value);
    assert!(mark("2001:db8::1").is_some() && mark("10.0.0.7").is_some() && mark("x:1").is_some());
}

#[test]
fn rows_for_one_request_keep_their_lines() {
    let mut folder = Folder::new();
    folder.write("a.csv", format!("{HEADER}llm,tenant,other,pro\nllm,tenant,acme,pro\n*,user,acme,pro\n"));
    folder.write(
        "b.yaml",
        "- { domain: llm, key: ip, value: 10.0.0.0/8, block: true }\n- { domain: llm, key: ip, value: 10.0.0.7, exempt: true }\n",
    );
    let rows = |folder: &Folder, key: &str, value: &str| -> Vec<String> {
        let entries = [Entry { key: key.to_owned(), value: value.to_owned() }];
        let scope = ExceptionScope { now_us: NOW_US, entries: Some(&entries), columns: None };
        let loaded =
            load_exceptions(folder.path(), scope, &LoadedExceptions::default()).expect("valid files");
        assert!(loaded.exceptions.table().is_empty());
        let source = |row: &engine::ExceptionRow| {
            row.source.to_string().rsplit('/').next().unwrap_or_default().to_owned()
        };
        loaded.exceptions.rows().map(source).collect()
    };
    assert_eq!(rows(&folder, "tenant", "acme"), ["a.csv:3"]);
    assert_eq!(rows(&folder, "user", "acme"), ["a.csv:4"]);
    assert_eq!(rows(&folder, "ip", "10.0.0.7"), ["b.yaml:1", "b.yaml:2"]);
    assert_eq!(rows(&folder, "ip", "11.0.0.7"), [""; 0]);
    folder.write("a.csv", "x\n");
    assert!(folder.load().is_err(), "a mistake is one for every request");
}
