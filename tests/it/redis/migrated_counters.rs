//! `ratelimitctl migrate --counters` on a Redis with keys as envoyproxy/ratelimit writes them.

use std::collections::BTreeMap;
use std::process::{Command, Output};

use ::base::clock::{Clock as _, SystemClock};
use serde_json::Value;
use tempfile::TempDir;

use crate::cli::counter_changes::{RULES as CHANGED, check_changes};
use crate::cli::counters::counters_of;
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;

const RULES: &str = "
domain: shop
descriptors:
  - { key: plan_id, rate_limit: { unit: year, requests_per_unit: 100 } }
  - { key: plan_id, value: gold, rate_limit: { unit: month, requests_per_unit: 1000 } }
  - key: user
    rate_limit: { unit: year, requests_per_unit: 10 }
    descriptors:
      - { key: path, rate_limit: { unit: year, requests_per_unit: 50 } }
  - { key: files, value: files/*, share_threshold: true, rate_limit: { unit: year, requests_per_unit: 7 } }
  - { key: bucket, rate_limit: { unit: year, requests_per_unit: 7, algorithm: gcra } }
  - { key: zoned, rate_limit: { unit: year, requests_per_unit: 7, algorithm: fixed_window, calendar: Europe/Berlin } }
";

struct Migration {
    old: Redis,
    service: Ratelimitd,
    root: TempDir,
}

impl Migration {
    fn start(new: &Redis) -> Self {
        let root = TempDir::new().expect("a directory");
        let rules = root.path().join("ratelimit/config");
        std::fs::create_dir_all(&rules).expect("a directory");
        std::fs::write(rules.join("shop.yaml"), RULES).expect("a file");
        Self { old: Redis::start(), service: Plan::new(RULES).redis(&new.url()).start(), root }
    }

    fn write(&self, key: &str, value: &str) {
        self.old.run::<()>(&["SET", key, value]).expect("SET");
    }

    fn run(&self, variables: &[(&str, &str)], arguments: &[&str]) -> (Option<i32>, String, String) {
        let admin = format!("http://127.0.0.1:{}", self.service.admin_port());
        let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"))
            .env_clear()
            .env("RUNTIME_ROOT", self.root.path())
            .env("RUNTIME_SUBDIRECTORY", "ratelimit")
            .envs(variables.iter().copied())
            .args(["migrate", "--counters", "--reason", "go-live", "--admin", &admin])
            .args(arguments)
            .output()
            .expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
        (status.code(), text(stdout), text(stderr))
    }

    fn left(&self, descriptor: &str) -> u64 {
        let (_, answer, error) = counters_of(&self.service, "shop", &["show", "--json", descriptor]);
        let answer: Value = serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{error}"));
        answer["counters"][0]["remaining"].as_u64().expect("units")
    }
}

#[test]
fn the_counters_of_running_windows_are_copied_and_all_others_named() {
    let new = Redis::start();
    let migration = Migration::start(&new);
    let now_s = SystemClock.now_us() / 1_000_000;
    let start = |window_s: u64| now_s / window_s * window_s;
    let (month, year) = (start(30 * 86_400), start(365 * 86_400));
    let copied = [
        (format!("mine:shop_plan_id_free_{year}"), "60", "plan_id=free", 40),
        (format!("mine:shop_plan_id_gold_{month}"), "1001", "plan_id=gold", 0),
        (format!("mine:shop_plan_id__{year}"), "1", "plan_id=", 99),
        (format!("mine:shop_plan_id_a_b_c_{year}"), "2", "plan_id=a_b_c", 98),
        (format!("mine:shop_user_ann_{year}"), "3", "user=ann", 7),
        (format!("mine:shop_user_ann_maria_{year}"), "4", "user=ann_maria", 6),
        (format!("mine:shop_files_files/*_{year}"), "5", "files=files/a.txt", 2),
    ];
    for (key, value, ..) in &copied {
        migration.write(key, value);
    }
    let no_window = "no limit for it is a fixed_window without a calendar whose window starts then";
    let unclear: BTreeMap<String, String> = [
        (
            // user=ann_path_/x, or user=ann,path=/x
            format!("mine:shop_user_ann_path_/x_{year}"),
            "ambiguous: it can be of ".to_owned(),
        ),
        (format!("mine:shop_nobody_x_{year}"), "no rule has a limit for it".to_owned()),
        (format!("mine:other_user_x_{year}"), "no rule has a limit for it".to_owned()),
        (format!("mine:shop_bucket_x_{year}"), no_window.to_owned()),
        (format!("mine:shop_zoned_x_{year}"), no_window.to_owned()),
        (format!("mine:shop_plan_id_free_{}", year + 60), no_window.to_owned()),
    ]
    .into();
    for key in unclear.keys() {
        migration.write(key, "6");
    }
    // Windows that are over, keys of others, and of another prefix.
    migration.write(&format!("mine:shop_plan_id_old_{}", year - 365 * 86_400), "9");
    migration.write(&format!("mine:shop_plan_id_text_{year}"), "nine");
    migration.write(&format!("shop_plan_id_elsewhere_{year}"), "9");
    migration.old.run::<()>(&["RPUSH", &format!("mine:shop_plan_id_list_{year}"), "9"]).expect("RPUSH");

    let url = migration.old.url();
    let prefix = ("CACHE_KEY_PREFIX", "mine:");
    // The server of the environment, and one that is named; again, because it sets.
    let address = format!("127.0.0.1:{}", migration.old.port());
    let from_environment = [prefix, ("REDIS_URL", &*address), ("REDIS_SOCKET_TYPE", "tcp")];
    for (variables, arguments) in
        [(&from_environment[..], &[][..]), (&[prefix], &["--from", &url]), (&[prefix], &["--from", &url])]
    {
        let (code, output, error) = migration.run(variables, arguments);
        assert_eq!((code, output.as_str()), (Some(1), "7 counters set, 6 not\n"), "{error}");
        let mut reasons: BTreeMap<String, String> = BTreeMap::new();
        for line in error.lines() {
            let (key, reason) = line.split_once(": ").expect("a key and a reason");
            reasons.insert(key.to_owned(), reason.to_owned());
        }
        assert_eq!(reasons.keys().collect::<Vec<_>>(), unclear.keys().collect::<Vec<_>>());
        for (key, reason) in &unclear {
            assert!(reasons[key].starts_with(reason), "{key}: {}", reasons[key]);
        }
        let both = &reasons[&format!("mine:shop_user_ann_path_/x_{year}")];
        assert!(both.contains("shop user=ann,path=/x") && both.contains("shop user=ann_path_/x"), "{both}");
        for (key, _, descriptor, left) in &copied {
            assert_eq!(migration.left(descriptor), *left, "{key}");
        }
    }
    assert_eq!(migration.left("plan_id=old"), 100);
    assert_eq!(migration.left("plan_id=text"), 100);
    assert_eq!(migration.left("user=ann,path=/x"), 50, "not guessed");
    // Without a prefix, only the keys without one.
    let (code, output, error) = migration.run(&[], &["--from", &url]);
    assert_eq!(code, Some(1), "{error}");
    assert!(output.starts_with("1 counters set"), "{output}{error}");
    assert_eq!(migration.left("plan_id=elsewhere"), 91);
}

/// More counters than one page and one call have.
#[test]
fn many_counters_are_copied() {
    let new = Redis::start();
    let migration = Migration::start(&new);
    let year = SystemClock.now_us() / 1_000_000 / (365 * 86_400) * (365 * 86_400);
    let keys: Vec<String> = (0..3_000).map(|index| format!("shop_user_u{index}_{year}")).collect();
    let pairs = keys.iter().enumerate().flat_map(|(index, key)| [key.clone(), (index % 10).to_string()]);
    let words: Vec<String> = ["MSET".to_owned()].into_iter().chain(pairs).collect();
    migration.old.run::<()>(&words.iter().map(String::as_str).collect::<Vec<_>>()).expect("MSET");
    let (code, output, error) = migration.run(&[], &["--from", &migration.old.url()]);
    assert_eq!((code, error.as_str()), (Some(0), ""));
    let set: u64 = output.split(' ').next().and_then(|set| set.parse().ok()).expect("a number");
    assert!(set >= 3_000 && output.ends_with(" counters set, 0 not\n"), "{output}");
    for index in [0, 7, 1_234, 2_999] {
        assert_eq!(migration.left(&format!("user=u{index}")), 10 - index % 10);
    }
}

#[test]
fn a_migration_without_a_server_or_rules_says_what_is_missing() {
    let new = Redis::start();
    let mut migration = Migration::start(&new);
    migration.write(&format!("shop_user_ann_{}", 365 * 86_400), "1");
    let (code, _, error) = migration.run(&[("REDIS_TYPE", "cluster"), ("REDIS_URL", "127.0.0.1:1")], &[]);
    assert_eq!(code, Some(2));
    assert!(error.contains("keys of a cluster are listed from each primary"), "{error}");
    let url = migration.old.url();
    migration.old.stop();
    let (code, output, error) = migration.run(&[], &["--from", &url]);
    assert_eq!((code, output.as_str()), (Some(2), "0 counters set, 0 not\n"), "{error}");
    assert!(error.contains("the old Redis: "), "{error}");
    std::fs::write(migration.root.path().join("ratelimit/config/shop.yaml"), "domain: [").expect("a file");
    let (code, _, error) = migration.run(&[], &["--from", &url]);
    assert_eq!(code, Some(1), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_in_redis_are_set_and_added_to() {
    let redis = Redis::start();
    let service = Plan::new(CHANGED).redis(&redis.url()).set("store.redis.timeout", "5s").start();
    check_changes(&service, "ratelimitd:{shop|customer=acme}").await;
}
