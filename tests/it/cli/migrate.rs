//! `settings` and `migrate`: what the environment means, as text that can be read and used again.

use std::path::Path;
use std::process::{Command, Output};

use boon::{Compiler, SchemaIndex, Schemas};
use ratelimitd::envoy_ratelimit::ratelimit_variables;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::program::program_of;
use crate::support::yaml;

const RULES: &str =
    "domain: a\ndescriptors: [{ key: k, rate_limit: { unit: hour, requests_per_unit: 2 } }]\n";

fn run(arguments: &[&str], variables: &[(&str, &str)]) -> (Option<i32>, String, String) {
    let mut command = Command::new(program_of(arguments));
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
        "near_limit_ratio: 0.750000  # environment variable NEAR_LIMIT_RATIO",
        "# REDIS_POOL_SIZE is ignored: requests share calls",
        "# valid: files 1, domains 1, rules 1",
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
        "near_limit_ratio: 0.5  # environment variable RATELIMITD__NEAR_LIMIT_RATIO",
        "    timeout: '20ms'  # environment variable RATELIMITD__STORE__REDIS__TIMEOUT",
        "    # password: a secret (environment variable RATELIMITD__STORE__REDIS__PASSWORD); set \
         RATELIMITD__STORE__REDIS__PASSWORD",
        "# NEAR_LIMIT_RATIO: not used, because near_limit_ratio is set (environment variable \
         RATELIMITD__NEAR_LIMIT_RATIO)",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert!(!text.contains("hunter2") && !text.contains("ratio: 0.75"), "{text}");
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
    assert!(text.contains("# invalid: the service would start, not ready"), "{text}");
    // The exception, as in envoyproxy/ratelimit.
    let (code, text, _) = run(&["migrate"], &[("RUNTIME_ROOT", "/nowhere")]);
    assert!(code == Some(0) && !text.contains("not ready"), "{text}");
    let (code, text, _) = run(&["migrate"], &[("RUNTIME_ROOT", "/nowhere"), ("RUNTIME_WATCH_ROOT", "false")]);
    assert!(code == Some(1) && text.contains("not ready"), "{text}");
}

#[test]
fn settings_are_printed_with_their_sources() {
    let variables = [("RATELIMITD__SHADOW_MODE", "true"), ("PORT", "80")];
    let (code, text, _) = run(&["settings", "--changed"], &variables);
    let expected = "# ignoring the variables of envoyproxy/ratelimit: other programs use the names PORT, \
                    too; set \
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

/// The values of variables that get neither their default of `envoyproxy/ratelimit` nor `true` in place of `false`.
const VALUES: [(&str, &str); 40] = [
    ("GRPC_UDS", ""),
    ("GRPC_MAX_CONNECTION_AGE", "2h"),
    ("GRPC_SERVER_TLS_CERT", "/tls/tls.crt"),
    ("GRPC_SERVER_TLS_KEY", "/tls/tls.key"),
    ("GRPC_CLIENT_TLS_CACERT", "/tls/ca.crt"),
    ("GRPC_CLIENT_TLS_SAN", "envoy.example.com"),
    ("LOG_LEVEL", "debug"),
    ("LOG_FORMAT", "json"),
    ("RUNTIME_SUBDIRECTORY", "ratelimit"),
    ("LIMIT_LIMIT_HEADER", "x-limit"),
    ("LIMIT_REMAINING_HEADER", "x-remaining"),
    ("LIMIT_RESET_HEADER", "x-reset"),
    ("NEAR_LIMIT_RATIO", "0.75"),
    ("CACHE_KEY_PREFIX", "123"),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "1000000"),
    ("CONFIG_GRPC_XDS_SERVER_URL", "xds:18000"),
    ("CONFIG_GRPC_XDS_NODE_ID", "2024"),
    ("CONFIG_GRPC_XDS_NODE_METADATA", "a=b"),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "a:b"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", "/tls/tls.crt"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "/tls/tls.key"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "/tls/ca.crt"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_SAN", "xds.example.com"),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "2048"),
    ("REDIS_SOCKET_TYPE", "tcp"),
    ("REDIS_TYPE", "SENTINEL"),
    ("REDIS_URL", "main,one:26379,two:26379"),
    ("REDIS_AUTH", "ann:hunter2"),
    ("REDIS_SENTINEL_AUTH", "hunter2"),
    ("REDIS_TLS_CACERT", "/tls/ca.crt"),
    ("REDIS_TLS_CLIENT_CERT", "/tls/tls.crt"),
    ("REDIS_TLS_CLIENT_KEY", "/tls/tls.key"),
    ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
    ("REDIS_PERSECOND_URL", "second:6379"),
    ("REDIS_PERSECOND_AUTH", "hunter2"),
    ("EXTRA_TAGS", "team:edge"),
    ("USE_DOG_STATSD_MOGRIFIERS", "ONE"),
    ("DD_ENV", "prod"),
    ("OTEL_EXPORTER_OTLP_HEADERS", "a=hunter2"),
    ("OTEL_EXPORTER_OTLP_TIMEOUT", "2000"),
];

/// Variables that leave others without a meaning, or that this service refuses.
const LEFT_OUT: [&str; 5] =
    ["DISABLE_STATS", "USE_STATSD", "MEMCACHE_HOST_PORT", "MEMCACHE_SRV", "USE_PROMETHEUS"];

fn schema_of_the_chart() -> (Schemas, SchemaIndex) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = std::fs::read_to_string(root.join("deploy/helm/ratelimitd/values.schema.json"));
    let schema: Value = serde_json::from_str(&schema.expect("the schema")).expect("JSON");
    let (mut schemas, mut compiler) = (Schemas::new(), Compiler::new());
    compiler.add_resource("values.json", schema).expect("a resource");
    let index = compiler.compile("values.json", &mut schemas).expect("a schema");
    (schemas, index)
}

#[test]
fn the_schema_of_the_chart_takes_what_every_variable_is_migrated_to() {
    let (schemas, index) = schema_of_the_chart();
    let check = |text: &str| {
        let values = json!({ "settings": yaml::parse(text) });
        schemas.validate(&values, index).map_err(|error| format!("{error:#}\n{text}"))
    };
    assert!(check("store: { redis: { deny_cache: { max_keys: '8192' } } }").is_err(), "a number in quotes");

    let known = ratelimit_variables();
    let mut variables: Vec<(&str, &str)> = known
        .iter()
        .filter(|variable| !LEFT_OUT.contains(&variable.name))
        .map(|variable| match VALUES.iter().find(|(name, _)| *name == variable.name) {
            Some((name, value)) => (*name, *value),
            None if variable.default == "false" => (variable.name, "true"),
            None => (variable.name, variable.default),
        })
        .collect();
    variables.extend([
        ("DOG_STATSD_MOGRIFIER_ONE_PATTERN", r"^a\.(.*)'s$"),
        ("DOG_STATSD_MOGRIFIER_ONE_NAME", "b.$1"),
        ("DOG_STATSD_MOGRIFIER_ONE_TAGS", "c:$1"),
        // Variables of ours: a number with a zero in front, and a list of several lines.
        ("RATELIMITD__STORE__REDIS__MAX_BATCH", "010"),
        ("RATELIMITD__UPGRADES", "- domain: a\n  algorithm: gcra\n"),
    ]);
    for source in ["FILE", "GRPC_XDS_SOTW"] {
        variables.retain(|(name, _)| *name != "CONFIG_TYPE");
        variables.push(("CONFIG_TYPE", source));
        let (code, text, problems) = run(&["migrate", "--settings-only"], &variables);
        assert_eq!((code, problems.as_str()), (Some(0), ""), "{text}");
        check(&text).unwrap_or_else(|error| panic!("{error}"));
        for line in [
            "max_batch: 10  #",
            "near_limit_ratio: 0.750000  #",
            "key_prefix: '123",
            "shadow_mode: true  #",
            "  - domain: a\n    algorithm: gcra",
            "mogrifiers:  #",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        // The settings in force are the same with the file as with the variables, but for the passwords.
        let directory = TempDir::new().expect("a directory");
        let file = directory.path().join("ratelimitd.yaml");
        std::fs::write(&file, &text).expect("a file");
        let (code, from_file, problems) = run(&["settings", "--config", &file.display().to_string()], &[]);
        assert_eq!(code, Some(0), "{problems}");
        let (_, from_environment, _) = run(&["settings"], &variables);
        let values = |text: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.split_once("  # "));
            // Lines of a longer value begin with spaces.
            let lines = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with(['#', ' ']));
            let is_shown = |line: &&str| {
                let parts = [
                    "password",
                    "headers",
                    "mogrifiers",
                    "upgrades",
                    "envoy_ratelimit_environment",
                    "max_batch",
                ];
                !parts.iter().any(|part| line.contains(part))
            };
            lines.map(|(line, _)| line).filter(is_shown).map(str::to_owned).collect()
        };
        assert_eq!(values(&from_file), values(&from_environment));
    }
}
