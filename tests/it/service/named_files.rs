//! Every setting that names a file, with something else in its place: a pipe, a device that never ends, a folder, a
//! file that would fill the memory. The process answers, ends when it is told to, and names the setting.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ratelimitd::settings::Settings;
use tempfile::TempDir;

use crate::support::certificates::{Authority, Identity};
use crate::support::http::{connect, exchange};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::tls::SERVER_NAME;
use crate::support::wait;

const RULES: &str = "
domain: web
descriptors: [{ key: user, rate_limit: { unit: year, requests_per_unit: 3 } }]
";
const WEBHOOK_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const MAP: &str = "domain: web\ndescriptors: [[{ key: user, from: remote_addr }]]\n";
/// What a debug build may need more than before, in KiB.
const MOST_GROWTH_KIB: u64 = 64 << 10;

/// What stands in the place of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Intruder {
    Pipe,
    Zero,
    Folder,
    /// Takes no room on the disk, and 200 MB of memory if it is read.
    Sparse,
}

const INTRUDERS: [Intruder; 4] = [Intruder::Pipe, Intruder::Zero, Intruder::Folder, Intruder::Sparse];

impl Intruder {
    /// Takes the place of what is at `path`.
    fn stand_at(self, path: &Path) {
        let beside = path.with_extension("intruder");
        match self {
            Self::Pipe => {
                let made = Command::new("mkfifo").arg(&beside).status();
                assert!(made.is_ok_and(|status| status.success()), "mkfifo is a part of coreutils");
            }
            Self::Zero => symlink("/dev/zero", &beside).expect("a link"),
            Self::Folder => fs::create_dir(&beside).expect("a folder"),
            Self::Sparse => {
                File::create(&beside).and_then(|file| file.set_len(200_000_000)).expect("a sparse file");
            }
        }
        match fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir(path).expect("an empty folder"),
            // A folder cannot be renamed over a file.
            Ok(_) => fs::remove_file(path).expect("a file"),
            Err(_) => {}
        }
        fs::rename(&beside, path).expect("a rename");
    }
}

/// What the process does about a file that it cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtStart {
    Ends,
    /// It tries again when it connects.
    Serves,
}

/// When the file is read again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Later {
    /// A change is looked for all the time.
    Watched,
    /// For each request that needs the token.
    Asked,
    /// Only to connect to a server, or never.
    Unseen,
}

/// A setting with a good file, and the settings that it needs.
struct Named {
    key: &'static str,
    /// What the errors call it.
    told: String,
    file: PathBuf,
    plan: Plan,
    at_start: AtStart,
    later: Later,
}

/// Good files of all kinds.
struct Files {
    folder: TempDir,
    authority: Authority,
    identity: Identity,
}

impl Files {
    fn new() -> Self {
        let authority = Authority::new();
        let identity = authority.certificate_for(&[SERVER_NAME]);
        let folder = TempDir::new().expect("a folder");
        Self { folder, identity, authority }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path
    }

    /// A copy that a test may replace.
    fn copy(&self, path: &Path) -> PathBuf {
        let copy = self.folder.path().join(path.file_name().expect("a file"));
        fs::copy(path, &copy).expect("a copy");
        copy
    }

    /// `None` for a setting that names no file.
    fn named(&self, key: &'static str) -> Option<Named> {
        let plan = Plan::new(RULES).set("server.drain", "0s");
        let set = |plan: Plan, key: &str, path: &Path| plan.set(key, path.display().to_string());
        let pair = |plan: Plan, section: &str| {
            let plan = set(plan, &format!("{section}.cert_file"), &self.identity.certificate);
            set(plan, &format!("{section}.key_file"), &self.identity.key)
        };
        let pem = || match key.rsplit('.').next() {
            Some("cert_file") => self.copy(&self.identity.certificate),
            Some("key_file") => self.copy(&self.identity.key),
            _ => self.copy(&self.authority.file()),
        };
        let named =
            |file, plan, at_start, later| Named { key, told: key.to_owned(), file, plan, at_start, later };
        let section = key.rsplit_once('.').map_or("", |(section, _)| section);
        let found = match key {
            "server.http.check.map" => {
                named(self.write("map.yaml", MAP), plan, AtStart::Ends, Later::Watched)
            }
            "server.admin.token_file"
            | "server.admin.operator_token_file"
            | "server.http.usage_token_file" => {
                named(self.write("token", "s3cret"), plan, AtStart::Ends, Later::Asked)
            }
            _ if ["server.grpc.tls", "server.http.tls", "server.admin.tls"].contains(&section) => {
                named(pem(), pair(plan, section), AtStart::Ends, Later::Watched)
            }
            "rules.path" => named(self.write("rules.yaml", RULES), plan, AtStart::Ends, Later::Watched),
            "exceptions.path" => named(self.write("rows.yaml", "[]"), plan, AtStart::Ends, Later::Watched),
            "secrets.key_file" => {
                named(self.write("key", &"k".repeat(32)), plan, AtStart::Ends, Later::Unseen)
            }
            "rules.xds.tls.ca_file" | "rules.xds.tls.cert_file" | "rules.xds.tls.key_file" => {
                let plan = Plan::new(RULES).set("server.drain", "0s").wait_for_livez();
                let plan = plan.set("rules.xds.address", "localhost:1").set("rules.xds.tls.enabled", true);
                let plan = if key.ends_with("ca_file") { plan } else { pair(plan, section) };
                let told = section.to_owned();
                Named { told, ..named(pem(), plan, AtStart::Serves, Later::Unseen) }
            }
            "store.redis.tls.ca_file" | "store.redis.tls.cert_file" | "store.redis.tls.key_file" => {
                let plan = plan_of_redis("rediss://localhost:1");
                let plan = set(plan, "store.redis.tls.ca_file", &self.authority.file());
                let plan = if key.ends_with("ca_file") { plan } else { pair(plan, section) };
                named(pem(), plan, AtStart::Ends, Later::Unseen)
            }
            _ if key.ends_with(".password_file") => {
                named(self.write("password", "s3cret"), plan_with_password(key), AtStart::Ends, Later::Unseen)
            }
            _ if section == "server.rights" => {
                let file = self.write("token", "s3cret");
                Named { told: section.to_owned(), ..named(file, plan, AtStart::Ends, Later::Watched) }
            }
            "notify.secret_file" => {
                let plan = plan.set("notify.url", "http://localhost:1/");
                named(self.write("secret", WEBHOOK_SECRET), plan, AtStart::Ends, Later::Unseen)
            }
            "notify.ca_file" => {
                let plan = plan.set("notify.url", "https://localhost:1/");
                let plan = set(plan, "notify.secret_file", &self.write("secret", WEBHOOK_SECRET));
                named(pem(), plan, AtStart::Ends, Later::Unseen)
            }
            "traces.ca_file" => {
                let plan = plan.set("traces.endpoint", "https://localhost:1/v1/traces");
                named(pem(), plan, AtStart::Ends, Later::Unseen)
            }
            _ => return None,
        };
        Some(found)
    }
}

/// Redis does not have to answer.
fn plan_of_redis(url: &str) -> Plan {
    Plan::new(RULES).set("server.drain", "0s").redis(url).wait_for_livez()
}

/// The servers that ask for the password.
fn plan_with_password(key: &str) -> Plan {
    let groups = ["store.redis.per_second", "store.redis.home"];
    let section = groups.into_iter().find(|group| key.starts_with(group)).unwrap_or("store.redis");
    let plan = plan_of_redis("redis://127.0.0.1:1").set(&format!("{section}.url"), "redis://127.0.0.1:1");
    if !key.contains("sentinel") {
        return plan;
    }
    let plan = plan.set(&format!("{section}.topology"), "sentinel");
    plan.set(&format!("{section}.sentinel.master"), "main")
}

/// The keys of the settings whose values are paths of files.
fn keys() -> Vec<&'static str> {
    let all = Settings::catalogue().into_iter();
    let is_file =
        |expected: &str| expected.starts_with("the path of a file") || expected.contains("paths of files");
    let files = all.filter(|setting| is_file(&setting.expected));
    files.map(|setting| &*setting.key.leak()).collect()
}

fn named(files: &Files, key: &'static str) -> Named {
    files.named(key).unwrap_or_else(|| panic!("{key} names a file: say here what it needs"))
}

/// The lines of the log that refuse the file.
fn refusals(log: &str, told: &str) -> usize {
    let is_refused = |text: &str| {
        ["regular file", "larger than", "a directory with the name", "no rule files"]
            .iter()
            .any(|reason| text.contains(reason))
    };
    // The problems of rules and rows stand on the lines below.
    let lines: Vec<&str> = log.lines().collect();
    let about = |at: usize| lines[at].contains(told) && !lines[at].contains("setting ");
    (0..lines.len())
        .filter(|at| about(*at) && lines[*at..].iter().take(3).any(|line| is_refused(line)))
        .count()
}

fn start(named: Named) -> Result<Ratelimitd, String> {
    let plan = named.plan.set(named.key, named.file.display().to_string());
    plan.try_start().map_err(|problem| {
        assert!(problem.status.is_some(), "{}: the start hangs: {problem:?}", named.key);
        problem.log
    })
}

#[test]
fn at_the_start_each_file_is_a_regular_one_of_a_bounded_size() {
    let keys = keys();
    assert!(keys.len() >= 29, "{keys:?}");
    let files = Files::new();
    for key in keys {
        for intruder in INTRUDERS {
            let named = named(&files, key);
            // A directory of rules, or of rows.
            if intruder == Intruder::Folder && key.ends_with(".path") {
                continue;
            }
            intruder.stand_at(&named.file);
            let (told, at_start, file) = (named.told.clone(), named.at_start, named.file.clone());
            match (start(named), at_start) {
                (Err(log), AtStart::Ends) => {
                    assert_eq!(refusals(&log, &told), 1, "{key}, {intruder:?}: {log}");
                }
                (Ok(mut service), AtStart::Serves) => {
                    wait::expect("the reason", || refusals(&service.log(), &told) > 0);
                    service.terminate();
                    assert!(service.wait_exit().success(), "{key}, {intruder:?}");
                }
                (Ok(_), AtStart::Ends) => panic!("{key}: {intruder:?} is no file"),
                (Err(log), AtStart::Serves) => panic!("{key}, {intruder:?}: {log}"),
            }
            remove(&file);
        }
    }
}

#[test]
fn a_file_that_is_replaced_changes_nothing_and_is_told() {
    let files = Files::new();
    for key in keys() {
        let named = named(&files, key);
        let (told, later, file) = (named.told.clone(), named.later, named.file.clone());
        if later == Later::Unseen {
            continue;
        }
        // With TLS on the HTTP port nothing answers a probe.
        let named = Named { plan: named.plan.wait_for_log(), ..named };
        let mut service = start(named).unwrap_or_else(|log| panic!("{key}: {log}"));
        let before_kib = service.peak_memory_kib();
        // Each has another error than the one before.
        let others = [Intruder::Zero, Intruder::Sparse, Intruder::Pipe, Intruder::Sparse, Intruder::Folder];
        let path_is_folder = key.ends_with(".path");
        for (index, intruder) in others.into_iter().enumerate() {
            if path_is_folder && intruder == Intruder::Folder && key == "exceptions.path" {
                continue;
            }
            intruder.stand_at(&file);
            if later == Later::Asked {
                let (port, line) = match key {
                    "server.http.usage_token_file" => (service.http_port(), "POST /usage HTTP/1.1"),
                    _ => (service.admin_port(), "POST /counters/reset HTTP/1.1"),
                };
                let head = [line, "host: localhost", "content-type: application/json"];
                let asked = connect(port).and_then(|stream| exchange(stream, &head, "{}"));
                assert_eq!(asked.map(|answer| answer.status).ok(), Some(503), "{key}, {intruder:?}");
                // The log has a line a minute.
                wait::expect("the reason", || refusals(&service.log(), &told) == 1);
                continue;
            }
            wait::expect("the reason", || refusals(&service.log(), &told) > index);
        }
        let grown_kib = service.peak_memory_kib().saturating_sub(before_kib);
        assert!(grown_kib < MOST_GROWTH_KIB, "{key}: {grown_kib} KiB more");
        service.terminate();
        assert!(service.wait_exit().success(), "{key}");
        remove(&file);
    }
}

fn remove(path: &Path) {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir(path).expect("an empty folder"),
        _ => fs::remove_file(path).expect("a file"),
    }
}
