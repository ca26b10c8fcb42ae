//! `ratelimitctl usage`: sums by columns and periods, and what it says about missing lines.

use std::fs;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::service::usage;

/// 2026-11-30, 22:45 UTC, so 23:45 in Berlin.
const T0: u64 = 1_796_078_700;

fn text(process: &str) -> String {
    let line = |seq: u64, fields: &str| format!("{{\"process\":\"{process}\",\"seq\":{seq},{fields}}}\n");
    let sums = |seq: u64, at: u64, rule: &str, rest: &str| {
        line(seq, &format!("\"at\":{at},\"domain\":\"api\",\"rule\":\"{rule}\",{rest}"))
    };
    let key = |customer: &str| format!("\"entries\":[\"customer={customer}\"]");
    [
        line(0, "\"begin\":{\"version\":\"1\",\"interval_s\":60}"),
        sums(1, T0, "monthly", &format!("{},\"of\":10,\"ok\":4,\"units\":8,\"back\":3", key("a,b"))),
        sums(
            2,
            T0 + 900,
            "monthly",
            &format!("{},\"of\":20,\"ok\":1,\"over\":2,\"units\":1,\"refused\":5", key("a,b")),
        ),
        sums(3, T0 + 900, "monthly", &format!("{},\"of\":10,\"policy\":7", key("c"))),
        sums(4, T0, "monthly", "\"unattributed\":true,\"units\":9"),
        sums(5, T0, "burst", &format!("{},\"of\":3,\"ok\":1,\"units\":1,\"mode\":\"shadow\"", key("c"))),
        line(6, "\"at\":1796078700,\"domain\":\"api\",\"rule\":\"monthly\",\"reached\":0.8"),
        line(7, "\"end\":true"),
    ]
    .concat()
}

/// Runs the command on these files.
fn run(files: &[(&str, &[u8])], arguments: &str) -> (Option<i32>, String, String) {
    let directory = tempfile::tempdir().expect("a directory");
    for (name, bytes) in files {
        fs::write(directory.path().join(name), bytes).expect("a file");
    }
    let path = directory.path().to_str().expect("UTF-8");
    let arguments: Vec<_> = arguments.split_whitespace().chain([path]).collect();
    let (code, text, errors) = usage(&arguments);
    (code, text, errors.replace(path, "DIR"))
}

fn zipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("room");
    encoder.finish().expect("room")
}

#[test]
fn sums_are_as_in_the_lines_however_often_these_are_read() {
    let text = text("p.1");
    let gz = zipped(&text);
    let files = [("usage-1-p.1.jsonl", text.as_bytes()), ("usage-1-p.1.jsonl.gz", &gz), ("notes.txt", b"x")];
    let table = [
        (
            "--by customer --rule monthly",
            "customer  requests  over  units  returned  used  refused  policy  of
(no key)         0     0      9         0     9        0       0   -
a,b              5     2      9         3     6        5       0  20
c                0     0      0         0     7        0       7  10
processes: 1, lines: 8
",
        ),
        (
            "--per day --zone europe/berlin --where customer=a,b --csv",
            "day,rule,requests,over,units,returned,used,refused,policy,unknown,of
2026-11-30,monthly,4,0,8,3,5,0,0,0,10
2026-12-01,monthly,1,2,1,0,1,5,0,0,20
",
        ),
        (
            "--by domain,mode,customer --mode enforced --top 1 --csv",
            "domain,mode,customer,requests,over,units,returned,used,refused,policy,unknown,of
api,enforced,(no key),0,0,9,0,9,0,0,0,
",
        ),
        (
            "--by customer --since 2026-12-01 --zone Europe/Berlin --csv",
            "customer,requests,over,units,returned,used,refused,policy,unknown,of
\"a,b\",1,2,1,0,1,5,0,0,20
c,0,0,0,0,7,0,7,0,10
",
        ),
        (
            "--rule burst --until 2026-11-30T23:00:00Z --json",
            "{\"over\":0,\"of\":3,\"policy\":0,\"refused\":0,\"requests\":1,\"returned\":0,\"rule\":\"burst\",\"units\":1,\"unknown\":0,\"used\":1}
",
        ),
        (
            "--per hour --by process --rule burst --csv",
            "hour,process,requests,over,units,returned,used,refused,policy,unknown,of
2026-11-30 22:00 +00:00,p.1,1,0,1,0,1,0,0,0,3
",
        ),
    ];
    for (arguments, expected) in table {
        let (code, found, errors) = run(&files, arguments);
        let found = if arguments.contains("--json") {
            let value: serde_json::Value = serde_json::from_str(&found).expect("JSON");
            assert_eq!(value, serde_json::from_str::<serde_json::Value>(expected).expect("JSON"));
            expected.to_owned()
        } else {
            found
        };
        assert_eq!((found.as_str(), code, errors.as_str()), (expected, Some(0), ""), "{arguments}");
    }
}

#[test]
fn what_is_missing_is_told() {
    let whole = text("p.1");
    let without = |number: usize| {
        whole
            .lines()
            .enumerate()
            .filter(|(at, _)| *at != number)
            .map(|(_, line)| format!("{line}\n"))
            .collect::<String>()
    };
    let torn = whole[..whole.len() - 5].to_owned();
    let table: [(&str, &str); 4] = [
        (&without(3), "1 lines of p.1 are missing\n"),
        (&torn, "DIR/usage-1-p.1.jsonl:8: cut off\n"),
        (
            &whole.replace("\"seq\":2", "\"seq\":x"),
            "DIR/usage-1-p.1.jsonl:3: no line of a ledger\n1 lines of p.1 are missing\n",
        ),
        (&without(7), ""),
    ];
    for (text, expected) in table {
        let (code, _, errors) = run(&[("usage-1-p.1.jsonl", text.as_bytes())], "");
        let wanted = if expected.is_empty() { Some(0) } else { Some(1) };
        assert_eq!((errors.as_str(), code), (expected, wanted));
    }
    let (code, text, errors) = run(&[], "");
    assert_eq!(
        (code, text.as_str(), errors.as_str()),
        (Some(2), "", "ratelimitctl usage: no line of a ledger was read\n")
    );
    let (code, _, errors) = run(&[], "--since 2026-13-01");
    assert!(code == Some(2) && errors.contains("expected a date"), "{errors}");
}

/// Files of two months with a change of summer time: days of Berlin add up to the months, and to all.
#[test]
fn days_add_up_to_months_over_a_change_of_summer_time() {
    // 2026-09-30, 22:00 UTC: midnight in Berlin. Summer time ends on 2026-10-25.
    let (start, quarters) = (1_790_805_600_u64, (31 * 24 + 1 + 30 * 24) * 4);
    let lines = (0..quarters).map(|quarter| {
        let at = start + quarter * 900;
        format!("{{\"process\":\"p.1\",\"seq\":{quarter},\"at\":{at},\"domain\":\"d\",\"rule\":\"r\",\"units\":1}}\n")
    });
    let end = format!("{{\"process\":\"p.1\",\"seq\":{quarters},\"end\":true}}\n");
    let text: String = lines.chain([end]).collect();
    let sums = |per: &str| -> Vec<(String, u64)> {
        let arguments = format!("--zone Europe/Berlin --per {per} --csv");
        let (code, found, errors) = run(&[("usage-1-p.1.jsonl", text.as_bytes())], &arguments);
        assert_eq!((code, errors.as_str()), (Some(0), ""));
        let row = |line: &str| {
            let cells: Vec<_> = line.split(',').collect();
            (cells[0].to_owned(), cells[4].parse().expect("a number"))
        };
        found.lines().skip(1).map(row).collect()
    };
    let (days, months, hours) = (sums("day"), sums("month"), sums("hour"));
    assert_eq!(months, [("2026-10".to_owned(), 745 * 4), ("2026-11".to_owned(), 720 * 4)]);
    assert_eq!(days.len(), 61);
    assert!(days.iter().all(|(day, units)| *units == if day == "2026-10-25" { 100 } else { 96 }), "{days:?}");
    assert_eq!(hours.len() as u64 * 4, quarters);
}
