//! `simulate`: access logs in every format, the numbers of its report, and what it refuses.

mod agreement;
mod bounds;
mod envoy;
mod figures;
mod formats;
mod input;
mod interrupt;
mod maps;
mod nginx;
mod same_as_replay;
mod sample;
mod schema;
mod side_by_side;
mod soft_limits;
mod terminal;
mod what_if;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::support::chromium::{Chromium, Colors};

/// Five requests per minute for each address, in windows, and a rule that no log meets.
pub(crate) const RULES: &str = "
domain: edge
descriptors:
  - key: remote_address
    rate_limit: { name: per-address, unit: minute, requests_per_unit: 5, algorithm: fixed_window }
  - key: never
    rate_limit: { unit: second, requests_per_unit: 1 }
";

/// A folder with rules, maps and logs, and the arguments of a simulation.
pub(crate) struct Simulation {
    folder: TempDir,
    arguments: Vec<String>,
}

/// What a simulation ended with.
pub(crate) struct Ended {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
    /// The document of --report-json; null if there is none.
    pub report: Value,
}

/// Opens the page of a simulation, as its script draws it.
fn open_page(html: &Path) -> Chromium {
    let mut browser = Chromium::start(Colors::Light);
    show_page(&mut browser, html);
    browser
}

/// Opens the page of a simulation in place of the one before.
fn show_page(browser: &mut Chromium, html: &Path) {
    browser.show(&std::fs::read_to_string(html).expect("a page"));
}

impl Simulation {
    /// Judges these rules.
    pub fn new(rules: &str) -> Self {
        let simulation =
            Self { folder: TempDir::new().expect("a temporary directory"), arguments: Vec::new() };
        simulation.file("--rules", "rules.yaml", rules.as_bytes())
    }

    pub fn map(self, text: &str) -> Self {
        self.file("--map", "map.yaml", text.as_bytes())
    }

    pub fn log(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.file("", name, bytes.as_ref())
    }

    /// Writes a file, and adds its path after `option`.
    pub fn file(mut self, option: &str, name: &str, bytes: &[u8]) -> Self {
        let path = self.path(name);
        std::fs::write(&path, bytes).expect("room for the file");
        self.arguments.extend((!option.is_empty()).then(|| option.to_owned()));
        self.arguments.push(path.display().to_string());
        self
    }

    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|&argument| argument.to_owned()));
        self
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn run(&self) -> Ended {
        let json = self.path("report.json");
        let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
        command.arg("simulate").args(&self.arguments).arg("--report-json").arg(&json);
        let Output { status, stdout, stderr } = command.output().expect("the binary runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        let report = std::fs::read_to_string(&json).ok();
        Ended {
            code: status.code().expect("an exit code"),
            stdout: text(stdout),
            stderr: text(stderr),
            report: report.map_or(Value::Null, |text| serde_json::from_str(&text).expect("JSON")),
        }
    }

    /// Runs without an error.
    pub fn succeed(&self) -> Ended {
        let ended = self.run();
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended
    }
}

impl Ended {
    /// A number of the rule with this label.
    pub fn of_rule(&self, rule: &str, field: &str) -> u64 {
        let rules = self.report["rules"].as_array().expect("a list of rules");
        let found = rules.iter().find(|found| found["rule"] == rule);
        let found = found.unwrap_or_else(|| panic!("no rule {rule} in {}", self.report));
        found[field].as_u64().unwrap_or_else(|| panic!("no number {field} in {found}"))
    }

    pub fn method(&self, field: &str) -> u64 {
        self.report["method"][field].as_u64().unwrap_or_else(|| panic!("no number {field}"))
    }
}
