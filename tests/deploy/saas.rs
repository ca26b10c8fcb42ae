//! The example of a SaaS, from the plans in billing's file to the day as CSV, with its programs.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::daemon::Daemon;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::{http, ports, wait};
use crate::tools::{REMEDY, document, in_project, read, run};

/// Starts a program of the example, and waits until its port accepts connections.
fn start(name: &'static str, port: u16, arguments: &[&str]) -> Daemon {
    let mut command = Command::new("python3");
    command.arg(in_project("examples/saas").join(name)).args(["--port", &port.to_string()]).args(arguments);
    let mut daemon = Daemon::spawn(name, REMEDY, &mut command);
    let ready = daemon.wait_ready(|_| http::connect(port).ok());
    ready.unwrap_or_else(|problem| panic!("{name}: {problem:?}"));
    daemon
}

/// The service with the settings of the example, and places of its own.
fn service(folder: &Path, mailer: u16) -> Ratelimitd {
    let settings = document(&read("examples/saas/ratelimitd.yaml"));
    let place = |name: &str| folder.join(name).display().to_string();
    let url = settings["notify"]["url"].as_str().expect("a URL");
    let path = in_project("examples/saas").join(settings["exceptions"]["path"].as_str().expect("a file"));
    let plan = Plan::new(&read("examples/saas/rules.yaml"))
        .set("exceptions.path", path.display().to_string())
        .set("ledger.path", place("usage"))
        .set("ledger.interval", settings["ledger"]["interval"].clone())
        .set("notify.url", url.replace("9001", &mailer.to_string()))
        .set("notify.secret_file", place("notify.secret"));
    let columns = settings["exceptions"]["columns"].as_object().expect("columns");
    columns
        .iter()
        .fold(plan, |plan, (name, column)| plan.set(&format!("exceptions.columns.{name}"), column.clone()))
        .start()
}

/// Sends calls of 100 hits. A call that the burst limit denies is sent again.
fn call(service: &Ratelimitd, customer: &str, times: usize) {
    let entries = [json!({"key": "customer", "value": customer})];
    let body = json!({"domain": "shop", "descriptors": [{"entries": entries, "hitsAddend": 100}]});
    let lines = ["POST /json HTTP/1.1", "host: localhost", "content-type: application/json"];
    for _ in 0..times {
        wait::expect("an admitted call", || {
            let stream = http::connect(service.http_port()).expect("a connection");
            http::exchange(stream, &lines, &body.to_string()).expect("an answer").status == 200
        });
    }
}

fn mails(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).expect("the folder of mails");
    let paths = entries.map(|entry| entry.expect("a mail").path());
    let whole = paths.filter(|path| path.extension().is_some_and(|extension| extension == "eml"));
    let mut texts: Vec<_> = whole.map(|path| std::fs::read_to_string(path).expect("a mail")).collect();
    texts.sort_unstable();
    texts
}

#[test]
fn the_saas_example_works_from_the_plans_to_the_invoice() {
    let folder = TempDir::new().expect("a folder");
    let place = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(place("notify.secret"), "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").expect("a secret");
    let (mail_port, page_port) = (ports::free(), ports::free());
    let service = service(folder.path(), mail_port);
    let url = format!("http://127.0.0.1:{}", service.http_port());
    let _page = start("account.py", page_port, &["--ratelimitd", &url]);
    let page =
        |customer: &str| http::get(page_port, &format!("/accounts/{customer}"), &[]).expect("the page").body;
    assert!(page("acme").contains("0 of 10,000 used, plan pro"), "{}", page("acme"));
    assert!(page("globex").contains("monthly: 0 used, no limit"), "{}", page("globex"));

    // The mailer is away when 80 % is reached.
    call(&service, "initech", 8);
    service.log_with("a share of a limit is used");
    let arguments = ["--secret-file", &place("notify.secret"), "--mails", &place("mails")];
    let _mailer = start("mailer.py", mail_port, &arguments);
    let mails = || mails(&folder.path().join("mails"));
    let came = wait::until(Duration::from_secs(60), || (!mails().is_empty()).then_some(()));
    assert!(came.is_some(), "{}", service.log());
    call(&service, "initech", 1);
    let found = mails();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("To: initech@example.com"), "{found:?}");
    assert!(found[0].contains("Subject: 80% of your monthly limit is used"), "{found:?}");
    assert!(page("initech").contains("900 of 1,000 used, plan free"), "{}", page("initech"));
    let stream = http::connect(mail_port).expect("a connection");
    let forged =
        ["POST /limits HTTP/1.1", "webhook-id: a", "webhook-timestamp: 1", "webhook-signature: v1,a"];
    assert_eq!(http::exchange(stream, &forged, "{}").expect("an answer").status, 401);

    let admin = format!("http://127.0.0.1:{}", service.admin_port());
    let ctl = env!("CARGO_BIN_EXE_ratelimitctl");
    let row = [
        "--domain",
        "shop",
        "customer=initech",
        "--limit-name",
        "monthly",
        "--reason",
        "t",
        "--admin",
        &admin,
    ];
    run(ctl, &[&["exceptions", "set", "--multiplier", "2", "--until", "3d"], &row[..]].concat());
    run(ctl, &[&["grant", "--add", "500"], &row[..]].concat());
    assert!(page("initech").contains("900 of 2,500 used"), "{}", page("initech"));
    call(&service, "initech", 11);
    let both = wait::until(Duration::from_secs(60), || (mails().len() == 2).then_some(()));
    assert!(both.is_some(), "80 % of the new number: {:?}", mails());

    let mut service = service;
    service.terminate();
    assert!(service.wait_exit().success(), "{}", service.log());
    let usage =
        ["usage", "--zone", "Europe/Berlin", "--per", "month", "--by", "customer", "--rule", "monthly"];
    let csv = run(ctl, &[&usage[..], &["--json", &place("usage")]].concat());
    let rows: Vec<Value> = csv.lines().map(|row| serde_json::from_str(row).expect("a row")).collect();
    assert_eq!(rows.len(), 1, "{csv}");
    assert_eq!((&rows[0]["customer"], &rows[0]["used"]), (&json!("initech"), &json!(2_000)));
    assert!(page("initech").contains("not available"), "{}", page("initech"));
}
