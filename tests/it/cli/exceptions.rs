//! Which row of the exceptions applied, and how the number came about: in `explain`, `check`, `counters show` and the
//! metadata of an answer.

use std::fs;
use std::process::Command;

use tempfile::TempDir;

use super::counters::counters_of;
use crate::support::process::{Plan, Ratelimitd};

const RULES: &str = "
domain: llm
descriptors:
  - key: tenant
    rate_limit: { name: per-minute, unit: year, requests_per_unit: 60, algorithm: fixed_window, tiers: { pro: 600 } }
  - key: api_key
    secret: true
    rate_limit: { name: per-key, unit: year, requests_per_unit: 60, algorithm: fixed_window, tiers: { pro: 600 } }
";

const CSV: &str =
    "domain,key,value,tier\nllm,tenant,other,free\nllm,tenant,acme,pro\nllm,api_key,sk-secret-1,pro\n";

const ROWS: &str = "
- { domain: llm, key: tenant, value: acme, multiplier: 2, until: 2099-12-01T00:00:00Z, reason: INC-42, by: oncall }
- { domain: llm, key: tenant, value: evil, block: true, reason: abuse }
- { domain: llm, key: tenant, value: mon, exempt: true }
";

/// The files of exceptions, and a service that reads them.
struct Fixture {
    directory: TempDir,
    service: Ratelimitd,
}

impl Fixture {
    fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        fs::write(directory.path().join("tenants.csv"), CSV).expect("a file");
        fs::write(directory.path().join("urgent.yaml"), ROWS).expect("a file");
        let path = directory.path().to_str().expect("UTF-8");
        let plan = Plan::new(RULES)
            .set("exceptions.path", path)
            .set("secrets.key", "the-key-for-the-hashes-of-this-test-of-rows");
        let service = plan.set("response.dynamic_metadata", "true").start();
        Self { directory, service }
    }

    /// The output of a command, without the directory of the files.
    fn shown(&self, text: &str) -> String {
        text.replace(&format!("{}/", self.directory.path().display()), "")
    }

    fn check(&self, descriptor: &str) -> String {
        let address = format!("127.0.0.1:{}", self.service.grpc_port());
        let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
            .args(["check", "--address", &address, "--timeout", "10s", "--domain", "llm", descriptor])
            .output()
            .expect("the binary runs");
        self.shown(&String::from_utf8(output.stdout).expect("UTF-8"))
    }

    fn counters(&self, descriptor: &str) -> String {
        let (_, text, error) = counters_of(&self.service, "llm", &["show", descriptor]);
        self.shown(&(text + &error))
    }

    fn explain(&self, rules: &str, descriptor: &str) -> String {
        let file = self.directory.path().join("rules");
        fs::write(&file, rules).expect("a file");
        let output = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
            .env("RATELIMITD__SECRETS__KEY", "the-key-for-the-hashes-of-this-test-of-rows")
            .args(["explain", "--domain", "llm", "--rules"])
            .arg(&file)
            .arg("--exceptions")
            .arg(self.directory.path())
            .arg(descriptor)
            .output()
            .expect("the binary runs");
        self.shown(
            &(String::from_utf8(output.stdout).expect("UTF-8") + &String::from_utf8_lossy(&output.stderr)),
        )
    }
}

const ACME: &str = "60 -> tier pro 600 (tenants.csv) -> x2 = 1200 until 2099-12-01T00:00:00Z (urgent.yaml:2)";

#[test]
fn every_answer_says_which_row_applied() {
    let fixture = Fixture::start();
    let checked = fixture.check("tenant=acme");
    assert!(checked.contains("tenant=acme: OK, 1199 of 1200 per year left"), "{checked}");
    assert!(checked.contains(&format!("  exception for per-minute: {ACME}\n")), "{checked}");
    let shown = fixture.counters("tenant=acme");
    assert!(
        shown.contains("1199 of 1200 left") && shown.ends_with(&format!("  exception: {ACME}\n")),
        "{shown}"
    );
    let explained = fixture.explain(RULES, "tenant=acme");
    // `explain` reads the file, so that it knows the line.
    let way = ACME.replace("tenants.csv", "tenants.csv:3");
    for line in [
        format!("exception         {way}\n"),
        "reason            INC-42 (by oncall), urgent.yaml:2\n".to_owned(),
    ] {
        assert!(explained.contains(&line), "{explained}");
    }
    let plain = fixture.check("tenant=x");
    assert!(plain.contains("59 of 60 per year left") && !plain.contains("exception"), "{plain}");
    let unknown = fixture.check("tenant=other");
    assert!(unknown.contains("exception for per-minute: 60 -> unknown tier free (tenants.csv)"), "{unknown}");
}

#[test]
fn blocked_and_exempt_values_are_told() {
    let fixture = Fixture::start();
    let blocked = fixture.check("tenant=evil");
    assert!(
        blocked.starts_with(
            "OVER LIMIT\n  tenant=evil: OVER LIMIT, 0 of 0 per year left, blocked for at least "
        ),
        "{blocked}"
    );
    assert!(blocked.contains("exception for per-minute: 60 -> blocked (urgent.yaml:3)"), "{blocked}");
    let elsewhere = fixture.check("route=unknown,tenant=evil");
    assert!(
        elsewhere.starts_with("OVER LIMIT\n") && elsewhere.contains("no limit -> blocked (urgent.yaml:3)"),
        "{elsewhere}"
    );
    let exempt = fixture.check("tenant=mon");
    assert!(
        exempt.contains("tenant=mon: OK, unlimited") && exempt.contains("60 -> exempt (urgent.yaml:4)"),
        "{exempt}"
    );
    let explained = fixture.explain(RULES, "tenant=evil");
    assert!(explained.contains("admits            nothing, because a row blocks"), "{explained}");
    assert!(explained.contains("reason            abuse, urgent.yaml:3"), "{explained}");
}

#[test]
fn a_secret_value_is_found_and_never_shown() {
    let fixture = Fixture::start();
    let all = [
        fixture.check("api_key=sk-secret-1"),
        fixture.counters("api_key=sk-secret-1"),
        fixture.explain(RULES, "api_key=sk-secret-1"),
    ];
    for text in &all {
        assert!(text.contains("60 -> tier pro 600 (tenants.csv"), "{text}");
        assert!(!text.contains("sk-secret-1") && text.contains("%k"), "{text}");
    }
}
