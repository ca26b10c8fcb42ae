//! Exception files: what is read, what is rejected with which line and reason, and what a load has changed.

use std::fs;
use std::path::Path;

use engine::{Defaults, Glob};

use super::*;
use crate::source::RuleDirectory;
use crate::{CalendarOptions, CalendarYears, LoadOptions, load};

mod billing;
mod later_rows;
mod values;

/// 2026-11-24T00:00:00Z.
const NOW_US: u64 = 1_795_478_400_000_000;
const HEADER: &str = "domain,key,value,tier\n";

/// A directory with files, and its last load.
struct Folder {
    folder: tempfile::TempDir,
    loaded: LoadedExceptions,
}

impl Folder {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), loaded: LoadedExceptions::default() }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), text).expect("room for a file");
    }

    fn load(&mut self) -> Result<&LoadedExceptions, String> {
        let scope = ExceptionScope { now_us: NOW_US, entries: None, columns: None };
        let loaded = load_exceptions(self.path(), scope, &self.loaded);
        self.loaded = loaded.map_err(|problems| self.told(&problems))?;
        Ok(&self.loaded)
    }

    /// The problems without the name of the folder.
    fn told(&self, problems: &Problems) -> String {
        problems.to_string().replace(&format!("{}/", self.path().display()), "")
    }

    /// The changes of each file: added, removed, changed.
    fn changes(&mut self) -> Vec<(String, u64, [u64; 3])> {
        let loaded = self.load().expect("valid files");
        let told = |file: &FileSummary| {
            let name = file.name.rsplit('/').next().unwrap_or_default().to_owned();
            let RowChanges { added, removed, changed } = file.changes;
            (name, file.rows, [added, removed, changed])
        };
        loaded.files.iter().chain(&loaded.gone).map(told).collect()
    }
}

fn problems_of(name: &str, text: impl AsRef<[u8]>) -> String {
    let mut folder = Folder::new();
    folder.write(name, text);
    match folder.load().map(|loaded| loaded.warnings.clone()) {
        Ok(warnings) => folder.told(&warnings),
        Err(errors) => errors,
    }
}

#[test]
fn a_bad_csv_file_is_refused_with_line_and_reason() {
    let table = [
        ("", "a.csv:1: the file is empty; one without rows has the row with the names of its columns alone"),
        ("\r\n\n", "a.csv:1: the file is empty"),
        ("domain,key,value,tier\n", ""),
        ("\u{feff}domain,key,value,tier\r\nllm,tenant,acme,pro\r\n", ""),
        ("tier,value,key,domain\npro,\"a,\"\"b\",tenant,*\n", ""),
        (
            "llm,tenant,acme,pro\n",
            "a.csv:1: unknown column 'llm': the first row of a CSV file names domain, key",
        ),
        (
            "domain,key,value\n",
            "a.csv:1: no column 'tier' or 'limit': the first row names domain, key, value, tier",
        ),
        (
            "domain,key,tier\n",
            "a.csv:1: no column 'value': the first row names it, or exceptions.columns.value says",
        ),
        ("domian,key,value,tier\n", "a.csv:1: unknown column 'domian'; did you mean 'domain'?"),
        ("domain,key,value,tier,tier\n", "a.csv:1: duplicate column 'tier'"),
        (
            "domain,key,value,tier,multiplier\n",
            "a.csv:1: the column 'multiplier' belongs in a YAML file; a CSV file has domain",
        ),
        ("domain;key;value;tier\nllm;tenant;a,b;pro\nllm;tenant;\"c;d\";pro\n", ""),
        ("domain\tkey\tvalue\ttier\nllm\ttenant\ta;b\tpro\n", ""),
        (
            "domain;key;value;tier\nllm;tenant;a;b;pro\n",
            "a.csv:2: expected 4 columns, found 5; a value with a semicolon must be in quotes",
        ),
        ("llm,tenant,acme\n", "a.csv:3: expected 4 columns, found 3; a value with a comma must be in quotes"),
        ("llm,tenant,a,b,pro\n", "a.csv:3: expected 4 columns, found 5"),
        ("\r\n\nllm,tenant,,pro\n", "a.csv:5: column 'value' is empty"),
        (",tenant,acme,pro\n", "a.csv:3: column 'domain' is empty"),
        (
            "llm,tenant,acme, pro\n",
            "a.csv:3: warning: 'tier' begins or ends with a space, which is a part of it",
        ),
        ("l*,tenant,acme,pro\n", "a.csv:3: the domain of a CSV row is a name, or '*' for all domains"),
        ("llm,remote_address,10.0.0.0/8,pro\n", "a.csv:3: rows for networks belong in a YAML file"),
        ("llm,tenant,\"a\nb\",pro\n", "a.csv:3: unclosed quote\na.csv:4: unclosed quote"),
        (
            "\u{feff}\u{feff}domain,key,value,tier\n",
            "a.csv:1: the row begins with a byte order mark (U+FEFF)",
        ),
        ("\u{feff}llm,tenant,acme,pro\n", "a.csv:3: the row begins with a byte order mark (U+FEFF)"),
        ("llm,tenant,\"a \"\"b\"\"\",pro\nllm,tenant,c\r\n", "a.csv:4: expected 4 columns, found 3"),
    ];
    for (text, expected) in table {
        // Most cases are about rows: a valid one precedes them.
        let has_header = text.is_empty() || expected.starts_with("a.csv:1:") || text.contains("value");
        let before = if has_header { String::new() } else { format!("{HEADER}llm,tenant,good,pro\n") };
        let told = problems_of("a.csv", before + text);
        assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{text:?}: {told}");
    }
}

#[test]
fn rows_of_a_csv_file_that_are_too_long_too_wide_or_not_text_are_refused() {
    let bytes = [HEADER.as_bytes(), b"llm,tenant,\xff,pro\nllm,tenant\n"].concat();
    let told = problems_of("a.csv", bytes);
    assert!(
        told.starts_with("a.csv:2: the row is not UTF-8\na.csv:3: expected 4 columns, found 2"),
        "{told}"
    );
    let long = format!("{HEADER}llm,tenant,{},pro\nllm\n", "x".repeat(70_000));
    let told = problems_of("a.csv", long);
    assert!(told.starts_with("a.csv:2: the row is longer than 65536 bytes\na.csv:3: expected 4"), "{told}");
    let wide = format!("{HEADER}{}\n", "x,".repeat(40));
    assert!(problems_of("a.csv", wide).starts_with("a.csv:2: expected 4 columns, found 41"));
    let swapped: String = (0..1_001).map(|n| format!("llm,t{n},tenant,pro\n")).collect();
    let told = problems_of("a.csv", format!("{HEADER}{swapped}"));
    assert_eq!(
        told,
        "a.csv:1002: more than 1000 different pairs of domain and key: are the columns in order?"
    );
    let rows = "llm,tenant\n".repeat(3_000);
    assert!(
        problems_of("a.csv", format!("{HEADER}{rows}")).contains("stopped reading the file after 99 errors")
    );
}

/// A YAML file with one row.
fn row(columns: &str) -> String {
    format!("- {{ domain: llm, key: tenant, value: acme, {columns} }}\n")
}

fn check_problems(text: &str, expected: &str) {
    let told = problems_of("a.yaml", text);
    assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{text:?}: {told}");
}

#[test]
fn a_bad_grant_or_start_is_refused_with_line_and_reason() {
    for (text, expected) in [
        (row("add: 500, from: 2026-11-20T00:00:00Z"), ""),
        (row("block: true, from: 2026-12-01T00:00:00Z, until: 2026-12-02T00:00:00+01:00"), ""),
        (
            row("add: 5, multiplier: 2, from: 2026-11-20T00:00:00Z"),
            "a.yaml:1: set 'add' or 'multiplier', not both",
        ),
        (row("add: 5, block: true, from: 2026-11-20T00:00:00Z"), "a.yaml:1: set 'block' or 'add', not both"),
        (row("add: 5"), "a.yaml:1: 'add' needs 'from': the units are for the window"),
        (row("add: 0, from: 2026-11-20T00:00:00Z"), "a.yaml:1: 'add' must be a whole number from 1 to 45035"),
        (row("add: 4503599627370497, from: 2026-11-20T00:00:00Z"), "a.yaml:1: 'add' must be a whole number"),
        (row("block: true, from: 2026-12-01"), "a.yaml:1: 'from' must be a time with a UTC offset"),
        (
            row("block: true, from: 2026-12-01T00:00:00Z, until: 2026-12-01T00:00:00Z"),
            "a.yaml:1: warning: 'until' is not after 'from': the row is never in force",
        ),
    ] {
        check_problems(&text, expected);
    }
}

#[test]
fn a_bad_yaml_file_is_refused_with_line_and_reason() {
    let table = [
        (String::new(), "a.yaml:1: the file is empty; one without rows is `[]`"),
        ("# nothing\n".to_owned(), "a.yaml:1: the file is empty"),
        ("[]\n".to_owned(), ""),
        (row("tier: pro, until: 2026-12-01T00:00:00Z, reason: INC-42, by: oncall"), ""),
        (row("multiplier: 0.5, path: 'tenant*', limit_name: x"), ""),
        (row("limit: 0"), ""),
        (row("shadow_mode: false"), ""),
        ("rows: []\n".to_owned(), "a.yaml:1: expected a list of rows"),
        ("- x\n".to_owned(), "a.yaml:1: a row must be a map"),
        ("- { domain: llm, key: tenant, block: true }\n".to_owned(), "a.yaml:1: 'value' is missing"),
        (
            "- domain: llm\n  key: tenant\n  value:\n  block: true\n".to_owned(),
            "a.yaml:3: 'value' has no value",
        ),
        (
            "- domain: llm\n  key: tenant\n  value: [a]\n  block: true\n".to_owned(),
            "a.yaml:3: 'value' must be a string, found a list",
        ),
        (
            "- domain: llm\n  key: tenant\n  valeu: acme\n  block: true\n".to_owned(),
            "a.yaml:1: 'value' is missing\na.yaml:3: unknown column 'valeu'; did you mean 'value'?",
        ),
        (row("reason: x"), "a.yaml:1: the row changes nothing: it needs tier, limit, multiplier, add, block"),
        (row("block: false"), "a.yaml:1: the row changes nothing"),
        (row("block: true, exempt: true"), "a.yaml:1: set 'block' or 'exempt', not both"),
        (row("exempt: true, tier: pro"), "a.yaml:1: set 'exempt' or 'tier', not both"),
        (row("tier: pro, limit: 5"), "a.yaml:1: warning: 'tier' has no effect next to 'limit'"),
        (row("block: maybe"), "a.yaml:1: 'block' must be true or false"),
        (row("limit: -1"), "a.yaml:1: 'limit' must be a whole number from 0 to 4503599627370496"),
        (row("limit: 1.5"), "a.yaml:1: 'limit' must be a whole number"),
        (row("limit: '5'"), "a.yaml:1: 'limit' must be a whole number"),
        (row("multiplier: 0"), "a.yaml:1: 'multiplier': out of range"),
        (row("multiplier: 1e3"), "a.yaml:1: 'multiplier': not a number"),
        (row("block: true, until: 2026-12-01"), "a.yaml:1: 'until' must be a time with a UTC offset"),
        (row("block: true, until: 2h"), "a.yaml:1: 'until' must be a time"),
        (
            row("block: true, until: 2026-11-24T00:00:00Z"),
            "a.yaml:1: warning: expired: 'until' is in the past",
        ),
        (format!("{0}{0}", row("block: true")), "a.yaml:2: warning: duplicates line 1; this row wins"),
        (format!("{}{}", row("block: true"), row("multiplier: 2")), ""),
        (format!("{}{}", row("block: true"), row("block: true, from: 2099-01-01T00:00:00Z")), ""),
        (
            "- { domain: a, key: k, value: 10.0.0.0/33, block: true }\n".to_owned(),
            "a.yaml:1: 'value': not a network such as",
        ),
        (
            "- { domain: a, key: k, value: 10.1.2.3/8, block: true }\n".to_owned(),
            "a.yaml:1: 'value': the address has bits after the prefix; the network is 10.0.0.0/8",
        ),
        ("- { domain: a, key: k, value: 10.0.0.0/8, block: true }\n".to_owned(), ""),
        (format!("{}---\n[]\n", row("block: true")), "a.yaml:2: warning: only the first YAML document"),
        ("- { domain: a\n".to_owned(), "a.yaml:2:"),
    ];
    for (text, expected) in table {
        check_problems(&text, expected);
    }
    assert_eq!(problems_of("a.yml", b"- \xff\n"), "a.yml:1: the file is not UTF-8");
    // A merge key is one of the ways to write less.
    let merged = "- &office { domain: a, key: k, value: x, exempt: true }\n- { <<: *office, value: y }\n";
    assert_eq!(problems_of("a.yaml", merged), "");
}

#[test]
fn a_problem_does_not_quote_the_value_of_a_row() {
    for (name, text) in [
        ("a.yaml", "- { domain: a, key: k, value: 10.9.8.7/s3cret, block: true, x: 1 }\n".to_owned()),
        ("a.csv", format!("{HEADER}a,k, s3cret,pro,more\n")),
        ("b.csv", format!("{HEADER}a,k, s3cret,pro\na,k,s3cret\n")),
    ] {
        let told = problems_of(name, text);
        assert!(!told.is_empty() && !told.contains("s3cret"), "{told}");
    }
}

#[test]
fn the_bounds_of_files_and_rows_are_told() {
    let mut folder = Folder::new();
    folder.write("a.csv", HEADER);
    let file = fs::File::options().write(true).open(folder.path().join("a.csv")).expect("the file");
    file.set_len(MAX_EXCEPTION_BYTES + 1).expect("a sparse file");
    let told = folder.load().expect_err("too large");
    assert_eq!(told, "a.csv: cannot read the file: larger than 134217728 bytes");
    fs::remove_file(folder.path().join("a.csv")).expect("the file");

    let rows: String =
        (0..=MAX_FULL_ROWS).map(|n| format!("- {{domain: a, key: k, value: {n}, block: true}}\n")).collect();
    let (first, second) = rows.split_at(rows.len() / 2);
    let cut = first.rfind('-').expect("a row");
    folder.write("a.yaml", &first[..cut]);
    folder.write("b.yaml", format!("{}{second}", &first[cut..]));
    let told = folder.load().expect_err("too many rows");
    assert!(told.contains(": all files together have more than 100000 rows"), "{told}");
}

#[test]
fn files_are_found_by_their_names_and_read_in_their_order() {
    let mut folder = Folder::new();
    assert_eq!(folder.load().map(|loaded| loaded.files.len()), Ok(0), "no file is no row");
    folder.write("b.csv", format!("{HEADER}llm,tenant,acme,second\n"));
    folder.write("a.csv", format!("{HEADER}llm,tenant,acme,first\n"));
    folder.write(".hidden.csv", "x");
    folder.write("README.md", "x");
    let loaded = folder.load().expect("valid files");
    assert_eq!(loaded.files.len(), 2);
    let table = loaded.exceptions.table();
    let mark = table.get(table.space("llm", "tenant"), "acme").expect("a row");
    assert_eq!(loaded.exceptions.tier(mark).map(|tier| &*tier.tier), Some("second"));
    let warnings = loaded.warnings.clone();
    let told = folder.told(&warnings);
    assert!(
        told.contains("README.md: warning: not read, because its name does not end in .csv, .yaml or .yml")
    );
    assert!(
        told.contains("b.csv: warning: 1 rows duplicate the domain, key and value of an earlier row"),
        "{told}"
    );
    let missing = load_exceptions(
        &folder.path().join("none"),
        ExceptionScope { now_us: NOW_US, entries: None, columns: None },
        &LoadedExceptions::default(),
    );
    assert!(missing.expect_err("no such directory").to_string().contains("cannot read the path"));
}

#[test]
fn a_load_tells_the_rows_of_each_kind_and_what_has_changed() {
    let mut folder = Folder::new();
    folder
        .write("a.csv", format!("{HEADER}llm,tenant,same,pro\nllm,tenant,moved,pro\nllm,tenant,gone,pro\n"));
    folder.write(
        "b.yaml",
        "- { domain: llm, key: tenant, value: x, tier: pro, multiplier: 2 }\n\
         - { domain: llm, key: tenant, value: y, block: true, reason: abuse }\n",
    );
    let file = |name: &str, rows, changes| (name.to_owned(), rows, changes);
    assert_eq!(folder.changes(), [file("a.csv", 3, [3, 0, 0]), file("b.yaml", 2, [2, 0, 0])]);
    let kinds: Vec<_> = folder.loaded.kinds().iter().map(|(kind, rows)| (kind.into_str(), rows)).collect();
    let expected = [
        ("block", 1),
        ("exempt", 0),
        ("limit", 0),
        ("multiplier", 1),
        ("add", 0),
        ("tier", 4),
        ("shadow_mode", 0),
    ];
    assert_eq!(kinds, expected);

    // One row moves to another tier, one is removed, and two are added, one of them twice.
    folder.write(
        "a.csv",
        format!("{HEADER}llm,tenant,same,pro\nllm,tenant,moved,max\nllm,tenant,new,pro\nllm,tenant,new,max\n*,tenant,x,pro\n"),
    );
    // The factor changes, and the rows swap positions.
    folder.write(
        "b.yaml",
        "- { domain: llm, key: tenant, value: y, block: true, reason: abuse }\n\
         - { domain: llm, key: tenant, value: x, tier: pro, multiplier: 3 }\n",
    );
    assert_eq!(folder.changes(), [file("a.csv", 4, [2, 1, 1]), file("b.yaml", 2, [0, 0, 1])]);
    assert_eq!(folder.changes(), [file("a.csv", 4, [0, 0, 0]), file("b.yaml", 2, [0, 0, 0])]);
    folder.write(
        "b.yaml",
        "- { domain: llm, key: tenant, value: y, block: true, reason: abuse, from: 2026-12-01T00:00:00Z }\n\
         - { domain: llm, key: tenant, value: x, tier: pro, multiplier: 3 }\n",
    );
    assert_eq!(folder.changes(), [file("a.csv", 4, [0, 0, 0]), file("b.yaml", 2, [0, 0, 1])]);

    let scheduled =
        ["multiplier: 4, from: 2026-12-01T00:00:00Z", "multiplier: 5, from: 2027-01-01T00:00:00Z"];
    folder.write("b.yaml", scheduled.map(row).concat());
    folder.changes();
    assert_eq!(folder.changes(), [file("a.csv", 4, [0, 0, 0]), file("b.yaml", 2, [0, 0, 0])]);

    // A file is removed, and its rows are in another one.
    fs::rename(folder.path().join("a.csv"), folder.path().join("c.csv")).expect("a rename");
    let expected = [file("b.yaml", 2, [0, 0, 0]), file("c.csv", 4, [4, 0, 0]), file("a.csv", 0, [0, 4, 0])];
    assert_eq!(folder.changes(), expected);
    folder.write("b.yaml", "[]");
    assert_eq!(folder.changes(), [file("b.yaml", 0, [0, 2, 0]), file("c.csv", 4, [0, 0, 0])]);
}

#[test]
fn what_the_rules_do_not_have_is_a_warning() {
    let rules = "domain: llm\ndescriptors:\n- key: tenant\n  rate_limit: { name: tokens, unit: minute, requests_per_unit: 60, algorithm: gcra, tiers: { pro: 600 } }\n- key: path\n  value: /a*\n  rate_limit: { unit: minute, requests_per_unit: 60 }\n- key: op_*\n  rate_limit: { unit: minute, requests_per_unit: 60 }\n";
    let folder = Folder::new();
    folder.write("rules.txt", rules);
    let options = LoadOptions {
        merge_domains: false,
        defaults: Defaults::ENVOY_RATELIMIT,
        upgrades: Vec::new(),
        hashing: engine::ValueHashing::NONE,
        directory: RuleDirectory::YamlFiles,
        calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
        has_home: false,
    };
    let rules = load(&[folder.path().join("rules.txt")], options).expect("valid rules").rules;
    let warnings = |name: &str, text: String| {
        let mut folder = Folder::new();
        folder.write(name, text);
        let checked = check_against_rules(folder.load().expect("valid rows"), &rules);
        assert!(!checked.has_errors());
        folder.told(&checked)
    };
    let row = |columns: &str| format!("- {{ value: x, {columns} }}\n");
    let table = [
        (row("domain: llm, key: tenant, tier: pro"), ""),
        (row("domain: '*', key: tenant, limit: 5, path: tenant, limit_name: tok*"), ""),
        (row("domain: llm, key: op_x, limit: 5"), ""),
        (
            row("domain: lmm, key: tenant, tier: pro"),
            "a.yaml:1: warning: no domain of the rules matches 'domain'",
        ),
        (
            row("domain: llm, key: tennant, tier: pro"),
            "a.yaml:1: warning: no rule of the domain has the key 'tennant': the row changes nothing",
        ),
        (
            row("domain: llm, key: tennant, block: true"),
            "a.yaml:1: warning: no rule of the domain has the key 'tennant': the row blocks only",
        ),
        (
            row("domain: llm, key: tenant, limit: 5, path: other"),
            "a.yaml:1: warning: no limit of the domain matches 'path' and 'limit_name'",
        ),
        (
            row("domain: llm, key: tenant, limit: 5, limit_name: requests"),
            "a.yaml:1: warning: no limit of the domain matches",
        ),
        (
            row("domain: llm, key: tenant, tier: gold"),
            "a.yaml:1: warning: no limit that the row applies to has the tier 'gold'",
        ),
        // The path belongs to a rule without the key.
        (
            row("domain: llm, key: tenant, limit: 5, path: 'path*'"),
            "a.yaml:1: warning: no limit of the domain matches 'path' and 'limit_name'",
        ),
        (row("domain: llm, key: path, add: 5, from: 2026-11-20T00:00:00Z"), ""),
        (
            row("domain: llm, key: tenant, add: 5, from: 2026-11-20T00:00:00Z"),
            "a.yaml:1: warning: no limit that the row applies to has the algorithm 'fixed_window'",
        ),
    ];
    for (text, expected) in table {
        let told = warnings("a.yaml", text);
        assert!(told.starts_with(expected) && told.is_empty() == expected.is_empty(), "{expected}: {told}");
    }
    let csv = format!("{HEADER}llm,tenant,a,pro\nllm,tenant,b,gold\nllm,tenant,c,gold\n");
    let expected = "a.csv:3: warning: no limit that the row applies to has the tier 'gold' (2 rows)";
    assert_eq!(warnings("a.csv", csv), expected);
    assert_eq!(Glob::new("*"), Glob::Any);
}
