//! `settings` and `migrate`: what the environment means, as text that can be read and used again.

use std::process::{Command, Output};

use tempfile::TempDir;

const RULES: &str =
    "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 2 } }]\n";

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitd"));
    command.env_clear().args(arguments).envs(variables.iter().copied());
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

#[test]
fn the_printed_settings_mean_the_same_as_the_environment() {
    let directory = TempDir::new().expect("a directory");
    let rules = directory.path().join("ratelimit/config");
    std::fs::create_dir_all(&rules).expect("a directory");
    std::fs::write(rules.join("a.yaml"), RULES).expect("a file");
    let root = directory.path().display().to_string();
    let variables = [
        ("RUNTIME_ROOT", root.as_str()),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("REDIS_URL", "redis:6379"),
        ("REDIS_AUTH", "ann:hunter2"),
        ("NEAR_LIMIT_RATIO", "0.75"),
        ("REDIS_POOL_SIZE", "20"),
    ];
    let (code, text, problems) = run(&["migrate"], &variables);
    assert_eq!((code, problems.as_str()), (Some(0), ""), "{text}");
    for line in [
        "    url: 'redis://redis:6379'  # environment variable REDIS_URL",
        "    # password: a secret (environment variable REDIS_AUTH); set RATELIMITD__STORE__REDIS__PASSWORD",
        "near_limit_ratio: '0.750000'  # environment variable NEAR_LIMIT_RATIO",
        "# REDIS_POOL_SIZE has no meaning here: requests share calls",
        "# they can be used: files 1, domains 1, rules 1",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("hunter2"), "{text}");

    let file = directory.path().join("ratelimitd.yaml");
    std::fs::write(&file, &text).expect("a file");
    let (code, from_environment, problems) = run(&["settings"], &variables);
    assert_eq!(code, Some(0), "{problems}");
    let path = file.display().to_string();
    let password = [("RATELIMITD__STORE__REDIS__PASSWORD", "hunter2")];
    let (code, from_file, problems) = run(&["settings", "--config", &path], &password);
    assert_eq!(code, Some(0), "{problems}");
    let values = |text: &str| {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(|line| line.split("  # ").next().unwrap_or_default().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(values(&from_file), values(&from_environment));
    assert!(
        !from_file.contains("hunter2") && from_file.contains("store.redis.password: (secret)"),
        "{from_file}"
    );
}

#[test]
fn variables_of_ours_are_part_of_the_printed_settings_and_win() {
    let variables = [
        ("NEAR_LIMIT_RATIO", "0.75"),
        ("RATELIMITD__NEAR_LIMIT_RATIO", "0.5"),
        ("RATELIMITD__STORE__REDIS__TIMEOUT", "20ms"),
        ("RATELIMITD__STORE__REDIS__PASSWORD", "hunter2"),
        ("REDIS_URL", "redis:6379"),
    ];
    let (code, text, problems) = run(&["migrate", "--settings-only"], &variables);
    assert_eq!((code, problems.as_str()), (Some(0), ""), "{text}");
    for line in [
        "near_limit_ratio: '0.5'  # environment variable RATELIMITD__NEAR_LIMIT_RATIO",
        "    timeout: '20ms'  # environment variable RATELIMITD__STORE__REDIS__TIMEOUT",
        "    # password: a secret (environment variable RATELIMITD__STORE__REDIS__PASSWORD); set \
         RATELIMITD__STORE__REDIS__PASSWORD",
        "# NEAR_LIMIT_RATIO: not used, because near_limit_ratio is set (environment variable \
         RATELIMITD__NEAR_LIMIT_RATIO)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("hunter2") && !text.contains("'0.75"), "{text}");
}

#[test]
fn what_cannot_be_migrated_is_told() {
    let (code, text, problems) = run(&["migrate"], &[("BACKEND_TYPE", "memcache"), ("PORT", "abc")]);
    assert_eq!((code, text.as_str()), (Some(1), ""));
    for reason in ["BACKEND_TYPE: expected redis", "PORT: expected a whole number", "found \"abc\""] {
        assert!(problems.contains(reason), "{reason}: {problems}");
    }
    let (code, text, _) = run(&["migrate"], &[("RUNTIME_ROOT", "/nowhere"), ("RUNTIME_SUBDIRECTORY", "x")]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("# they cannot be used: the service would start, not ready"), "{text}");
}

#[test]
fn settings_are_printed_with_their_sources() {
    let variables = [("RATELIMITD__SHADOW_MODE", "true"), ("PORT", "80")];
    let (code, text, _) = run(&["settings", "--changed"], &variables);
    let expected = "# the variables of envoyproxy/ratelimit are not read: other programs use the names PORT, too; set \
                    envoy_ratelimit_environment to on to read them, or to off\n\
                    shadow_mode: true  # environment variable RATELIMITD__SHADOW_MODE\n";
    assert_eq!((code, text.as_str()), (Some(0), expected));
}

#[test]
fn a_timeout_that_envoy_does_not_wait_for_by_default_is_named_with_what_to_set() {
    let told = "# What to set in Envoy:\n# store.redis.timeout is 100ms, but Envoy waits 20ms for an answer";
    let timeout = |text| ("RATELIMITD__STORE__REDIS__TIMEOUT", text);
    let table = [
        (vec![("REDIS_URL", "redis:6379")], Some(told)),
        (
            vec![("REDIS_URL", "redis:6379"), timeout("20ms")],
            Some("# store.redis.timeout is 20ms, but Envoy waits 20ms"),
        ),
        (vec![("REDIS_URL", "redis:6379"), timeout("19ms")], None),
        (vec![("RATELIMITD__STORE__KIND", "memory")], None),
    ];
    for (variables, expected) in table {
        let (code, text, problems) = run(&["migrate", "--settings-only"], &variables);
        assert_eq!((code, problems.as_str()), (Some(0), ""), "{text}");
        match expected {
            Some(line) => assert!(text.contains(line), "{variables:?}: {text}"),
            None => assert!(!text.contains("What to set in Envoy"), "{variables:?}: {text}"),
        }
    }
    let (_, text, _) = run(&["migrate", "--settings-only"], &[("REDIS_URL", "redis:6379")]);
    assert!(text.contains("Set timeout of the filter above 100ms, such as 0.15s, or"), "{text}");
}
