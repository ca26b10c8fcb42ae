//! Logs as they lie around: compressed, cut, with bytes that are no text.

#[cfg(target_os = "linux")]
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::Write as _;
#[cfg(target_os = "linux")]
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::{RULES, Simulation};

const MAP: &str = "domain: edge\ndescriptors:\n  - - { key: remote_address, from: remote_addr }\n";

/// Lines of nginx, one per second.
fn log(lines: u32) -> String {
    let mut text = String::new();
    for line in 0..lines {
        let (minute, second) = (line / 60 % 60, line % 60);
        writeln!(
            text,
            "192.0.2.{} - - [15/Apr/2026:20:{minute:02}:{second:02} +0000] \"GET /{line} HTTP/1.1\" 200 612 \"-\" \"curl\"",
            line % 200
        )
        .expect("room");
    }
    text
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("room");
    encoder.finish().expect("room")
}

#[test]
fn compressed_files_of_several_members_are_read() {
    let (first, second) = (log(1_000), log(3_000)[log(1_000).len()..].to_owned());
    let zstd = |text: &str| compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
    let mut skippable = zstd(&first);
    // A frame to skip: its magic number, its length, and its bytes.
    skippable.extend([0x50, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, b'a', b'b', b'c']);
    skippable.extend(zstd(&second));
    let files = [("a.log.gz", [gzip(&first), gzip(&second)].concat()), ("a.log.zst", skippable)];
    for (name, bytes) in files {
        let ended = Simulation::new(RULES).map(MAP).log(name, &bytes).succeed();
        assert_eq!((ended.method("lines"), ended.of_rule("per-address", "asked")), (3_000, 3_000), "{name}");
        assert_eq!(ended.report["method"]["inputs"][0]["bytes"], bytes.len(), "{name}");
    }
}

#[test]
fn a_compression_that_is_not_read_is_an_error_that_names_those_that_are() {
    // `x` and a line break, by the programs.
    let files: [(&str, &[u8]); 2] = [
        ("xz", b"\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4F\x02\x00!\x01\x16\x00\x00\x00t/\xe5\xa3\x01\x00\x01x\x0a\x00\x00\x007JQ\xdc3\xa2\xca\xb0\x00\x01\x1a\x02\xdc.\xa5~\x1f\xb6\xf3}\x01\x00\x00\x00\x00\x04YZ"),
        ("bzip2", b"BZh91AY&SY+>\xcf\x7f\x00\x00\x00\xc0\x80\x00\x10\x00@ \x00!\x00\x82\xb1w$S\x85\x09\x02\xb3\xec\xf7\xf0"),
    ];
    for (program, bytes) in files {
        for simulation in
            [Simulation::new(RULES).map(MAP), Simulation::new(RULES).map(MAP).with(&["--lenient"])]
        {
            let ended = simulation.log("a.log", bytes).run();
            let expected = format!(
                "it is compressed with {program}, but only gzip (.gz) and Zstandard (.zst) are read; decompress it first: \
                 {program} -dc FILE"
            );
            assert_eq!(ended.code, 2, "{}", ended.stderr);
            assert!(ended.stderr.contains("a.log: ") && ended.stderr.contains(&expected), "{}", ended.stderr);
        }
    }
    let letters = Simulation::new(RULES).map(MAP).log("a.log", "BZh9 is how this line begins\n").run();
    assert!(!letters.stderr.contains("compressed"), "{}", letters.stderr);
}

#[test]
fn compressed_standard_input_is_read() {
    let text = log(3_000);
    let whole = Simulation::new(RULES).map(MAP).log("a.log", &text).succeed();
    let zstd = compress_to_vec(text.as_bytes(), CompressionLevel::Fastest);
    for bytes in [gzip(&text), zstd, text.into_bytes()] {
        let report = of_standard_input(&[&bytes[..1], &bytes[1..3], &bytes[3..]]);
        assert_eq!(report["rules"], whole.report["rules"]);
        assert_eq!(report["method"]["inputs"][0]["cut"], serde_json::Value::Null);
    }
    // A name says nothing.
    let named = Simulation::new(RULES).map(MAP).log("a.log", gzip(&log(3_000)));
    assert_eq!(named.succeed().report["rules"], whole.report["rules"]);
}

/// The report of a log that comes in parts.
fn of_standard_input(parts: &[&[u8]]) -> serde_json::Value {
    let simulation = Simulation::new(RULES).map(MAP);
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    command.args(["simulate", "--report-json", "-", "--rules"]).arg(simulation.path("rules.yaml"));
    command.arg("--map").arg(simulation.path("map.yaml")).arg("-");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the binary runs");
    let mut stdin = child.stdin.take().expect("a pipe");
    parts.iter().for_each(|part| stdin.write_all(part).expect("the log is read"));
    drop(stdin);
    let output = child.wait_with_output().expect("it ends");
    serde_json::from_slice(&output.stdout).expect("JSON")
}

// Other systems allow no such name.
#[cfg(target_os = "linux")]
#[test]
fn a_file_whose_name_is_no_text_is_read() {
    let simulation = Simulation::new(RULES).map(MAP);
    let path = simulation.folder.path().join(OsStr::from_bytes(b"a\xff.log"));
    std::fs::write(&path, log(100)).expect("room for the file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    let ended = command.arg("simulate").args(&simulation.arguments).arg(&path).output().expect("it runs");
    let stdout = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && stdout.contains("per-address"), "{ended:?}");
}

#[test]
fn a_compressed_file_that_is_cut_is_read_as_far_as_it_goes_and_ends_with_code_2() {
    // Lines that do not compress well, so that the cut is not in the first of them.
    let whole = gzip(&log(20_000));
    let cut = &whole[..whole.len() / 2];
    let simulation = Simulation::new(RULES).map(MAP).log("a.log.gz", cut);
    let ended = simulation.run();
    assert_eq!(ended.code, 2, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("a file is cut") && ended.stdout.contains("not read to its end"),
        "{}",
        ended.stdout
    );
    assert!((1_000..20_000).contains(&ended.method("lines")), "{}", ended.method("lines"));
    let lenient = simulation.with(&["--lenient"]).succeed();
    assert_eq!(lenient.method("lines"), ended.method("lines"));
}

#[test]
fn a_plain_file_that_is_cut_in_a_line_has_one_line_that_cannot_be_read() {
    let text = log(200);
    let ended = Simulation::new(RULES).map(MAP).log("a.log", &text[..text.len() - 40]).succeed();
    assert_eq!((ended.method("lines"), ended.method("unreadable")), (200, 1));
    let line = &ended.report["method"]["unreadable_lines"][0];
    assert_eq!(line["line"], 200);
    assert!(
        line["reason"].as_str().is_some_and(|reason| reason.contains("request line in quotes")),
        "{line}"
    );
}

#[test]
fn an_empty_log_is_no_error() {
    for text in ["", "\n\r\n", "\u{feff}"] {
        let ended = Simulation::new(RULES).map(MAP).log("a.log", text).succeed();
        assert_eq!(ended.report["totals"]["requests"], 0);
        assert!(ended.stdout.contains("No line of the log became a request"), "{}", ended.stdout);
    }
}

#[test]
fn line_ends_a_byte_order_mark_and_a_missing_last_line_end_change_nothing() {
    let text = log(50);
    let variants = [text.replace('\n', "\r\n"), format!("\u{feff}{text}"), text.trim_end().to_owned()];
    for text in variants {
        let ended = Simulation::new(RULES).map(MAP).log("a.log", &text).succeed();
        assert_eq!((ended.method("lines"), ended.method("unreadable")), (50, 0));
    }
}

#[test]
fn lines_that_cannot_be_read_are_counted_and_the_first_ten_are_shown() {
    let mut bytes = log(1_000).into_bytes();
    bytes.extend_from_slice(
        b"192.0.2.1 - - [15/Apr/2026:20:20:00 +0000] \"GET /\xff HTTP/1.1\" 200 1 \"-\" \"a\"\n",
    );
    bytes.extend(std::iter::repeat_n(b'x', 3 << 20));
    bytes.push(b'\n');
    let few = Simulation::new(RULES).map(MAP).log("a.log", &bytes).succeed();
    assert_eq!((few.method("lines"), few.method("unreadable")), (1_002, 2));
    let lines = &few.report["method"]["unreadable_lines"];
    assert_eq!((&lines[0]["line"], &lines[1]["line"]), (&1_001.into(), &1_002.into()));
    assert_eq!(lines[0]["reason"], "invalid UTF-8 after 49 bytes");
    assert_eq!(lines[1]["reason"], "longer than 1048576 bytes");

    bytes.extend_from_slice("nonsense\n".repeat(20).as_bytes());
    let simulation = Simulation::new(RULES).map(MAP).log("a.log", &bytes);
    let many = simulation.run();
    assert_eq!((many.code, many.method("unreadable")), (2, 22), "more than 1 %");
    assert!(many.stderr.contains("cannot read 22 of 1022 lines"), "{}", many.stderr);
    assert_eq!(many.report["method"]["unreadable_lines"].as_array().map(Vec::len), Some(10));
    assert_eq!(simulation.with(&["--lenient"]).succeed().method("unreadable"), 22);
}

#[test]
fn standard_input_and_several_files_are_read_in_order() {
    let text = log(600);
    let (first, second) = text.split_at(text.len() / 2);
    let whole = Simulation::new(RULES).map(MAP).log("a.log", &text).succeed();
    // The cut is within a line: each file has a part of it.
    let line_end = first.rfind('\n').expect("a line") + 1;
    let simulation =
        Simulation::new(RULES).map(MAP).log("1.log", &text[..line_end]).log("2.log", &text[line_end..]);
    assert_eq!(simulation.succeed().report["rules"], whole.report["rules"]);

    let report = of_standard_input(&[first.as_bytes(), second.as_bytes()]);
    assert_eq!(report["rules"], whole.report["rules"]);
}

#[test]
fn requests_are_sorted_within_the_window_and_late_ones_are_counted() {
    let mut lines: Vec<String> = log(300).lines().map(str::to_owned).collect();
    let in_order = Simulation::new(RULES).map(MAP).log("a.log", lines.join("\n")).succeed();
    // Every line up to 30 seconds late.
    for start in (0..lines.len()).step_by(30) {
        let end = lines.len().min(start + 30);
        lines[start..end].reverse();
    }
    let simulation = Simulation::new(RULES).map(MAP).log("a.log", lines.join("\n"));
    let sorted = simulation.succeed();
    assert_eq!(sorted.report["rules"], in_order.report["rules"]);
    assert_eq!(sorted.report["method"]["reordering"]["late"], 0);
    let simulation = simulation.with(&["--reorder", "10s"]);
    let late = simulation.run();
    assert!(late.report["method"]["reordering"]["late"].as_u64().is_some_and(|late| late > 100));
    assert!(late.stdout.contains("arrived after the --reorder window of 10s"), "{}", late.stdout);
    assert!(late.stdout.contains("raise --reorder"), "{}", late.stdout);
    let problem = "of 300 requests came too late; --lenient accepts that\n";
    assert!(late.code == 2 && late.stderr.ends_with(problem), "{}", late.stderr);
    simulation.with(&["--lenient"]).succeed();
}

#[test]
fn two_lines_of_a_wrong_clock_are_a_problem_that_no_window_solves() {
    let future = log(1).replace("2026", "2027") + &log(1).replace("2026", "2028");
    let ended = Simulation::new(RULES).map(MAP).log("a.log", future + &log(300)).run();
    assert!(ended.code == 2 && ended.stdout.contains("; check the clock of the log."), "{}", ended.stdout);
}

#[test]
fn a_line_of_csv_has_the_columns_of_the_header() {
    let map =
        "domain: edge\ntime: { from: t, unit: s }\ndescriptors:\n  - - { key: remote_address, from: ip }\n";
    let log = "t,ip,path\n1776284220,192.0.2.1,/\n1776284220,192.0.2.1\n1776284220,192.0.2.1,/a,b\n";
    let ended = Simulation::new(RULES).map(map).log("a.csv", log).with(&["--lenient"]).succeed();
    assert_eq!((ended.method("lines"), ended.method("unreadable")), (3, 2), "{}", ended.stdout);
    assert!(ended.stdout.contains("it does not have as many columns as the header"), "{}", ended.stdout);
}

#[test]
fn a_missing_file_is_named_before_anything_is_read() {
    let ended = Simulation::new(RULES).map(MAP).with(&["/no/such/access.log"]).run();
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("/no/such/access.log"), "{}", ended.stderr);
}
