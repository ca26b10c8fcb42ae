use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use super::*;

pub(super) fn load_layers(
    file: Option<&Path>,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Result<Settings, SettingsError> {
    Settings::load(Written::collect(file, variables)?).map(|(settings, _)| settings)
}

/// The file's line, or the variable, of an origin.
pub(super) fn short(origin: &str) -> String {
    match origin.strip_prefix("environment variable ") {
        Some(name) => name.to_owned(),
        None if origin == "the default" => "default".to_owned(),
        None => format!("file:{}", origin.rsplit(':').next().unwrap_or_default()),
    }
}

fn with(variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    load_layers(None, owned(variables))
}

fn owned(variables: &[(&str, &str)]) -> Vec<(String, String)> {
    let owned = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    owned.collect()
}

fn with_file(yaml: &str, variables: &[(&str, &str)]) -> Result<Settings, SettingsError> {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(yaml.as_bytes()).expect("room for a few bytes");
    load_layers(Some(file.path()), owned(variables))
}

/// The problems without the temporary file's path.
fn problems(result: Result<Settings, SettingsError>) -> Vec<String> {
    let Err(SettingsError::Invalid(problems)) = result else {
        panic!("expected problems, got {result:?}");
    };
    let line =
        |problem: &SettingProblem| format!("{}: {}: {}", short(&problem.origin), problem.key, problem.fault);
    problems.0.iter().map(line).collect()
}

#[test]
fn every_default_is_valid() {
    assert_eq!(with(&[]).expect("the defaults are valid"), Settings::default());
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let yaml = "
server:
  drain: 1m
  workers: 3
store:
  kind: redis
  redis:
    timeout: 20ms
near_limit_ratio: 0.75
shadow_mode: true
";
    let variables = [
        ("RATELIMITD__STORE__REDIS__TIMEOUT", "30ms"),
        ("RATELIMITD__STORE__REDIS__KEY_PREFIX", ""),
        ("RATELIMITD_PORT", "tcp://10.0.0.1:8081"),
        ("PATH", "/bin"),
    ];
    let settings = with_file(yaml, &variables).expect("valid settings");
    assert_eq!(settings.server.drain, Duration::from_mins(1));
    assert_eq!(settings.server.workers.map(std::num::NonZeroUsize::get), Some(3));
    assert_eq!(settings.store.kind, StoreKind::Redis);
    assert_eq!(settings.store.redis.timeout, Duration::from_millis(30));
    assert_eq!(settings.store.redis.key_prefix, "");
    assert_eq!(settings.near_limit_ppm, 750_000);
    assert_eq!(settings.enforcement, Enforcement::Shadow);
    assert_eq!(settings.server.grpc, Settings::default().server.grpc);
}

#[test]
fn every_problem_is_named_with_its_key_its_source_and_what_was_expected() {
    let yaml = "
server:
  drain: 5
  max_descriptors: 0
  grpc:
    address: localhost
rules:
  path:
store:
  kind: [memory]
  memory:
    maxkeys: 15
logg:
  level: info
log:
";
    let variables = [
        ("RATELIMITD__STORE__KIDN", "redis"),
        ("RATELIMITD__STORE__MEMORY", "lots"),
        ("RATELIMITD__NEAR_LIMIT_RATIO", "80%"),
    ];
    let expected = [
        r#"file:14: logg.level: no such setting; did you mean 'log'?"#,
        r#"RATELIMITD__NEAR_LIMIT_RATIO: near_limit_ratio: expected a number from 0 to 1 with at most six decimals, found "80%""#,
        r#"file:8: rules.path: expected the path of a file or directory, found nothing"#,
        r#"file:3: server.drain: expected a duration from 0s to 1h, found "5""#,
        r#"file:6: server.grpc.address: expected an IP address or a host name, and a port, like 0.0.0.0:8081, [::]:8081 or localhost:8081, or unix:/path/to/socket, found "localhost""#,
        r#"file:4: server.max_descriptors: expected a whole number from 1 to 1024, found "0""#,
        r#"RATELIMITD__STORE__KIDN: store.kidn: no such setting; did you mean 'kind'?"#,
        r#"file:10: store.kind: expected one of memory, redis, found a list"#,
        r#"RATELIMITD__STORE__MEMORY: store.memory: a section, not a value; known settings: max_keys"#,
        r#"file:12: store.memory.maxkeys: no such setting; did you mean 'max_keys'?"#,
    ];
    assert_eq!(problems(with_file(yaml, &variables)), expected);
}

#[test]
fn a_variable_with_the_wrong_number_of_underscores_is_refused_with_the_right_name() {
    let cases = [
        ("RATELIMITD_STORE_KIND", "RATELIMITD__STORE__KIND", "store.kind"),
        ("RATELIMITD_STORE__KIND", "RATELIMITD__STORE__KIND", "store.kind"),
        ("RATELIMITD__STORE_KIND", "RATELIMITD__STORE__KIND", "store.kind"),
        ("ratelimitd_shadow_mode", "RATELIMITD__SHADOW_MODE", "shadow_mode"),
        (
            "RATELIMITD__STORE__REDIS_KEY__PREFIX",
            "RATELIMITD__STORE__REDIS__KEY_PREFIX",
            "store.redis.key_prefix",
        ),
    ];
    for (written, right, key) in cases {
        let told = format!("{written}: {key}: two underscores separate the levels of a key: {right}");
        assert_eq!(problems(with(&[(written, "redis")])), [told]);
    }
    for setting in Settings::catalogue() {
        let single = setting.variable.replace("__", "_");
        assert_eq!(problems(with(&[(&single, setting.default)])).len(), 1, "{single}");
    }
}

#[test]
fn a_setting_of_two_variables_is_refused_with_both_names() {
    let variables = [("RATELIMITD__STORE__KIND", "memory"), ("ratelimitd__store__kind", "redis")];
    let told = "ratelimitd__store__kind: store.kind: also set by RATELIMITD__STORE__KIND; remove one of them";
    assert_eq!(problems(with(&variables)), [told]);
}

#[test]
fn an_error_reads_as_a_list_of_what_to_put_right() {
    let error = with(&[("RATELIMITD__STORE__KIND", "redi"), ("RATELIMITD__LOG__FORMAT", "xml")]);
    let expected = "invalid settings:
  log.format: expected one of text, json, envoy_ratelimit, found \"xml\" (environment variable RATELIMITD__LOG__FORMAT)
  store.kind: expected one of memory, redis, found \"redi\" (environment variable RATELIMITD__STORE__KIND)";
    assert_eq!(error.map_err(|error| error.to_string()), Err(expected.to_owned()));
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let missing = load_layers(Some(Path::new("/nowhere/settings.yaml")), []);
    let message = missing.expect_err("there is no such file").to_string();
    assert!(message.starts_with("settings file /nowhere/settings.yaml: "), "{message}");
    let message = with_file("a: [", &[]).expect_err("not YAML").to_string();
    assert!(message.contains(":2: while parsing"), "{message}");
    for (yaml, told) in [
        ("a: 1\n---\nb: 2\n", (2, "another YAML document starts here; the settings must be one document")),
        ("a: 1\n\na: 2\n", (3, "'a' is also set on line 1")),
        ("a:\n  [b]: 2\n", (2, "a key must be a string, not a list or a map")),
    ] {
        let Err(SettingsError::Syntax { line, reason, .. }) = with_file(yaml, &[]) else {
            panic!("{yaml} is refused");
        };
        assert_eq!((line, reason.as_str()), told, "{yaml}");
    }
    let list = with_file("- server", &[]);
    assert!(matches!(list, Err(SettingsError::NotSections { .. })));
    assert!(with_file("# nothing but a comment\n", &[]).is_ok());
}

#[test]
fn paths_of_a_router_and_addresses_with_passwords_are_refused() {
    let refused = [
        ("RATELIMITD__METRICS__PATH", "/:x"),
        ("RATELIMITD__METRICS__PATH", "/*x"),
        ("RATELIMITD__SERVER__ADMIN__DASHBOARD_URL", "https://me:secret@grafana.example/"),
        ("RATELIMITD__SERVER__ADMIN__DASHBOARD_URL", "https://me@grafana.example/"),
    ];
    for variable in refused {
        assert_eq!(problems(with(&[variable])).len(), 1, "{variable:?}");
    }
    assert!(with(&[("RATELIMITD__SERVER__ADMIN__DASHBOARD_URL", "https://grafana.example/d/1")]).is_ok());
}

#[test]
fn durations_and_numbers_outside_their_range_are_refused() {
    let cases = [
        // (variable, in range, out of range)
        ("STORE__REDIS__TIMEOUT", ["100us", "10s"], ["0s", "10s 1ms"]),
        ("STORE__REDIS__MAX_BATCH", ["1", "1024"], ["0", "1025"]),
        ("STORE__REDIS__CONNECTIONS", ["1", "64"], ["0", "65"]),
        ("STORE__REDIS__MAX_QUEUE", ["1", "1000000"], ["0", "-1"]),
        ("STORE__REDIS__BREAKER__FAILURES", ["1", "1000"], ["0", "1001"]),
        ("STORE__REDIS__BREAKER__ERROR_PERCENT", ["1", "100"], ["0", "101"]),
        ("STORE__REDIS__BREAKER__WINDOW", ["100ms", "1m"], ["99ms", "61s"]),
        ("STORE__REDIS__BREAKER__PAUSE", ["10ms", "10s"], ["0s", "11s"]),
        ("FAILURE__LOCAL_SHARE", ["1", "1000"], ["0", "0.25"]),
        ("FAILURE__LOCAL_SHARE", ["auto", "2"], ["Auto", "1001"]),
        ("STORE__MEMORY__MAX_KEYS", ["1", "1000000000"], ["0", "1e6"]),
        // Braces would decide the cluster slot.
        ("STORE__REDIS__KEY_PREFIX", ["", "edge:"], ["{edge}", "a b"]),
        ("SERVER__GRPC__MAX_CONNECTION_AGE", ["0s", "1s"], ["500ms", "-1s"]),
        ("SERVER__WORKERS", ["0", "1024"], ["1025", "all"]),
        ("SERVER__ADMIN__ADDRESS", ["[::1]:6070", "0.0.0.0:0"], [":6070", "6070"]),
        ("SERVER__ADMIN__ADDRESS", ["off", "unix:/run/admin.sock"], ["", "unix:admin.sock"]),
        ("SERVER__ADMIN__HOSTS", ["limits.internal", "a, B-1.local"], ["a,,b", "a:6070"]),
        ("RULES__PATH", ["rules", "/etc/rules.yaml"], ["", ""]),
        ("DEFAULTS__CHARGING", ["auto", "prepaid"], ["", "Prepaid"]),
        ("DEFAULTS__ON_STORE_FAILURE", ["local", "error"], ["fail", ""]),
        ("SHADOW_MODE", ["true", "false"], ["yes", "1"]),
    ];
    for (variable, valid, invalid) in cases {
        let name = format!("RATELIMITD__{variable}");
        for value in valid {
            assert!(with(&[(&name, value)]).is_ok(), "{name}={value}");
        }
        for value in invalid {
            assert_eq!(problems(with(&[(&name, value)])).len(), 1, "{name}={value}");
        }
    }
}

#[test]
fn the_near_limit_ratio_is_taken_exactly_as_written() {
    let cases = [
        ("0", Some(0)),
        ("0.8", Some(800_000)),
        ("0.800000", Some(800_000)),
        ("0.000001", Some(1)),
        ("0.333333", Some(333_333)),
        ("1", Some(1_000_000)),
        ("1.0", Some(1_000_000)),
        ("1.000001", None),
        ("0.0000001", None),
        ("-0.1", None),
        ("+0.1", None),
        (".8", None),
        ("0.", None),
        ("8e-1", None),
        ("NaN", None),
        ("99999999999999999999", None),
    ];
    for (written, ppm) in cases {
        let read = with(&[("RATELIMITD__NEAR_LIMIT_RATIO", written)]);
        assert_eq!(read.ok().map(|settings| settings.near_limit_ppm), ppm, "{written}");
        let read = with_file(&format!("near_limit_ratio: {written}"), &[]);
        assert_eq!(read.ok().map(|settings| settings.near_limit_ppm), ppm, "{written} in a file");
    }
}

#[test]
fn a_value_means_what_is_written_in_the_file_and_in_the_environment() {
    let texts = [
        "007", "0x1F", "2024.10", "1e3", "+5", "1_000", ".5", "True", "yes", "0o17", "hunter 2", "-1", "nan",
    ];
    let keys = [
        ("store.redis.username", "store:\n  redis:\n    username: "),
        ("store.redis.password", "store:\n  redis:\n    password: "),
        ("rules.path", "rules:\n  path: "),
        ("server.workers", "server:\n  workers: "),
        ("near_limit_ratio", "near_limit_ratio: "),
        ("shadow_mode", "shadow_mode: "),
        ("log.level", "log:\n  level: "),
    ];
    for (key, yaml) in keys {
        let variable = layers::variable(key);
        for text in texts {
            let expected = with(&[(&variable, text)]);
            for quote in ["", "'", "\""] {
                let written = with_file(&format!("{yaml}{quote}{text}{quote}\n"), &[]);
                match (&expected, written) {
                    (Ok(expected), Ok(written)) => assert_eq!(*expected, written, "{key} {text}"),
                    (Err(_), Err(_)) => {}
                    (_, written) => panic!("{key} {text}: {expected:?}, but in the file {written:?}"),
                }
            }
        }
    }
    let password = with_file("store:\n  redis:\n    password: 007\n", &[]).expect("a password");
    assert_eq!(
        password.store.redis.credentials,
        with(&[("RATELIMITD__STORE__REDIS__PASSWORD", "007")]).expect("the same").store.redis.credentials
    );
    assert!(
        with(&[("RATELIMITD__SHADOW_MODE", "TRUE")])
            .is_ok_and(|settings| settings.enforcement == Enforcement::Shadow)
    );
}

#[test]
fn nothing_written_is_an_empty_text_where_that_is_the_default() {
    let empty = "store:\n  redis:\n    username:\n    password: # in the environment\n    tls:\n      ca_file:\nlog: {}\nserver: ~\n";
    assert_eq!(with_file(empty, &[]).expect("empty texts"), Settings::default());
    let refused = "store:\n  redis:\n    username: ~\n    password: null\n    key_prefix:\n";
    let expected = [
        "file:5: store.redis.key_prefix: expected at most 64 visible ASCII characters, no braces, found nothing",
        "file:4: store.redis.password: expected a password, or nothing, found null, which is a string only in quotes",
        "file:3: store.redis.username: expected an ACL user, or nothing, found null, which is a string only \
         in quotes",
    ];
    assert_eq!(problems(with_file(refused, &[])), expected);
    assert!(with_file("store:\n  redis:\n    username: 'null'\n", &[]).is_ok());
}

#[test]
fn a_key_with_dots_does_not_nest() {
    let yaml = "store.redis.url: redis://a\nstore:\n  redis.url: redis://b\n  redis:\n    url: redis://c\n";
    let told = "one key with dots in it; nest it instead, each section on a line of its own, indented below the one before";
    let expected = [format!("file:1: store.redis.url: {told}"), format!("file:3: store.redis.url: {told}")];
    assert_eq!(problems(with_file(yaml, &[])), expected);
}

#[test]
fn servers_that_do_not_go_together_are_refused_where_redis_is_used() {
    let cases: [(&[(&str, &str)], &str); 8] = [
        (&[("URL", "redis://a,redis://b")], "URL: store.redis.url: several addresses"),
        (&[("URL", "redis://a,rediss://b"), ("TOPOLOGY", "cluster")], "URL: store.redis.url: TLS"),
        (
            &[("URL", "redis://a/3"), ("TOPOLOGY", "cluster")],
            "URL: store.redis.url: a cluster has no databases",
        ),
        (&[("URL", "unix:///a"), ("TOPOLOGY", "cluster")], "URL: store.redis.url: sockets"),
        (&[("TOPOLOGY", "sentinel")], "default: store.redis.sentinel.master: expected the name"),
        (&[("TLS__CERT_FILE", "a.pem")], "TLS__CERT_FILE: store.redis.tls.cert_file: cert_file and key_file"),
        (
            &[("PASSWORD", "hunter2"), ("PASSWORD_FILE", "p")],
            "PASSWORD_FILE: store.redis.password_file: the password",
        ),
        (
            &[("URL", "redis://a, redis://:hunter2@b,c"), ("TOPOLOGY", "cluster")],
            "URL: store.redis.url: expected redis://",
        ),
    ];
    for (written, told) in cases {
        let mut variables: Vec<_> =
            written.iter().map(|(key, value)| (format!("RATELIMITD__STORE__REDIS__{key}"), *value)).collect();
        variables.push(("RATELIMITD__STORE__KIND".to_owned(), "redis"));
        let variables: Vec<_> = variables.iter().map(|(key, value)| (key.as_str(), *value)).collect();
        let found = problems(with(&variables));
        let told = told
            .strip_prefix("default")
            .map_or_else(|| format!("RATELIMITD__STORE__REDIS__{told}"), |told| format!("default{told}"));
        assert!(found.len() == 1 && found[0].starts_with(&told), "{found:?} for {written:?}");
    }
    assert!(
        with(&[("RATELIMITD__STORE__REDIS__URL", "redis://a,redis://b")]).is_ok(),
        "memory needs no address"
    );
    assert!(
        with(&[("RATELIMITD__STORE__REDIS__URL", "rediss://a"), ("RATELIMITD__STORE__KIND", "redis")])
            .is_ok()
    );
}

#[test]
fn a_share_by_the_number_of_instances_needs_redis_to_list_them() {
    let share = |more: &[(&str, &str)]| {
        let auto = [("RATELIMITD__FAILURE__LOCAL_SHARE", "auto")];
        with(&[&auto[..], more].concat()).map(|settings| settings.local_share)
    };
    let redis = ("RATELIMITD__STORE__KIND", "redis");
    let off = ("RATELIMITD__EXCEPTIONS__REDIS", "false");
    // In memory, the setting does not apply.
    for more in [&[redis][..], &[off], &[]] {
        assert!(matches!(share(more), Ok(None)), "{more:?}");
    }
    let told = problems(share(&[redis, off]).map(|_| Settings::default()));
    assert_eq!(
        told,
        [
            "RATELIMITD__FAILURE__LOCAL_SHARE: failure.local_share: `auto` needs exceptions.redis: true, with which Redis \
         lists the instances"
        ]
    );
}

#[test]
fn a_password_never_shows() {
    let cases: [&[(&str, &str)]; 6] = [
        &[("RATELIMITD__STORE__REDIS__PASSWORD", "hunter2")],
        &[("RATELIMITD__STORE__REDIS__SENTINEL__PASSWORD", "hunter2")],
        &[("RATELIMITD__STORE__REDIS__URL", "redis://user:hunter2@redis:6379")],
        &[("RATELIMITD__STORE__REDIS__URL", "redis://user:hunter2@redis:port")],
        &[("RATELIMITD__STORE__REDIS__ULR", "redis://user:hunter2@redis:6379")],
        &[("RATELIMITD__STORE__REDIS", "redis://user:hunter2@redis:6379")],
    ];
    for variables in cases {
        let shown = match with(variables) {
            Ok(settings) => format!("{settings:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!shown.contains("hunter2"), "{shown}");
        let yaml = format!("store:\n  redis:\n    url: {}\n", variables[0].1);
        let shown = format!("{:?}", with_file(&yaml, &[]));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let shown = format!("{:?}", with_file("redis://user:hunter2@redis", &[]));
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn every_setting_can_be_set_by_its_variable() {
    for setting in Settings::catalogue() {
        let read = with(&[(&setting.variable, setting.default)]);
        assert_eq!(read.expect(&setting.key), Settings::default());
    }
}

#[test]
fn errors_of_misplaced_values_do_not_repeat_secrets() {
    let table = [
        // (file, variable, part of the error)
        ("", ("RATELIMITD__STORE__KIND", "redis://u:SECRET@h"), "store.kind: expected one of memory, redis"),
        ("", ("RATELIMITD__STORE__KIND", "u:SECRET@h"), "may contain a password"),
        ("", ("RATELIMITD__SERVER__GRPC__ADDRESS", "redis://:SECRET@h:1"), "server.grpc.address: expected"),
        (
            "store: {redis: {password: {SECRET: 1}}}",
            ("X", ""),
            "store.redis.password: expected text, found a section",
        ),
        ("store: {redis: {password: {a: {SECRET: 1}}}}", ("X", ""), "store.redis.password: expected text"),
        ("store: {redis: {password: {SEC.SECRET: 1}}}", ("X", ""), "store.redis.password: expected text"),
        ("store: {redis: {url: {'redis://:SECRET@h': }}}", ("X", ""), "store.redis.url: expected text"),
    ];
    for (file, variable, expected) in table {
        let error = with_file(file, &[variable]).expect_err("refused").to_string();
        assert!(error.contains(expected), "{file} {variable:?}: {error}");
        assert!(!error.contains("SECRET"), "{error}");
    }
}
