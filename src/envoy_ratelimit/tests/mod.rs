//! Replays the recorded reactions of `envoyproxy/ratelimit` to every variable: a bad value, an empty one, an example.

mod companions;
mod redis;

use rules::yaml::{self, Content, Node};

use super::variable::{Effect, ValueKind};
use super::*;
use crate::cli::load_settings::{LoadedSettings, load_settings_with};
use crate::settings::{Settings, SettingsError, SettingsReport};
use companions::companions;

const RECORDED: &str = include_str!("../../../tests/data/operation/settings.yaml");

/// Values with which `envoyproxy/ratelimit` does not start, and this service fails later or not at all: the variable,
/// `true` for the empty value, and what happens instead.
const LATER: [(&str, bool, &str); 25] = [
    ("TRACING_EXPORTER_PROTOCOL", false, "it is not looked at without TRACING_ENABLED"),
    ("USE_DOG_STATSD_MOGRIFIERS", false, "it is not looked at without USE_DOG_STATSD"),
    ("HOST", false, "the name is resolved when the port is bound"),
    ("GRPC_HOST", false, "the same"),
    ("RUNTIME_ROOT", false, "the service starts without rules, not ready"),
    ("RUNTIME_ROOT", true, "the same"),
    ("RUNTIME_SUBDIRECTORY", false, "the same"),
    ("RUNTIME_SUBDIRECTORY", true, "the same"),
    ("RUNTIME_APPDIRECTORY", false, "the same"),
    ("REDIS_AUTH", false, "Redis refuses the password, so the service is not ready"),
    ("REDIS_PERSECOND_AUTH", false, "the same"),
    ("REDIS_TLS_CLIENT_CERT", false, "the file is read when REDIS_TLS is true"),
    ("REDIS_TLS_CLIENT_CERT", true, "the system's authorities are used"),
    ("REDIS_TLS_CLIENT_KEY", false, "as REDIS_TLS_CLIENT_CERT"),
    ("REDIS_TLS_CLIENT_KEY", true, "the same"),
    ("GRPC_SERVER_TLS_CERT", false, "it is not looked at without GRPC_SERVER_USE_TLS"),
    ("GRPC_SERVER_TLS_CERT", true, "the same"),
    ("GRPC_SERVER_TLS_KEY", false, "the same"),
    ("GRPC_SERVER_TLS_KEY", true, "the same"),
    ("GRPC_CLIENT_TLS_CACERT", false, "the same"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", false, "the file is read when the service connects"),
    ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", false, "the same"),
    ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", false, "the same"),
    ("REDIS_TLS_CACERT", false, "the same"),
    ("REDIS_TLS_CACERT", true, "the same"),
];
/// `envoyproxy/ratelimit` does not start with the empty value; ratelimitd ignores it with a warning.
const EMPTY_IS_THE_DEFAULT: [&str; 6] = [
    "LOG_LEVEL",
    "CONFIG_TYPE",
    "REDIS_TYPE",
    "REDIS_SOCKET_TYPE",
    "REDIS_PERSECOND_TYPE",
    "REDIS_PERSECOND_SOCKET_TYPE",
];

/// Variables of versions after the recorded one.
const NEWER: [&str; 1] = ["USE_CALENDAR_MONTH_RATE_LIMIT"];

struct Row {
    name: String,
    kind: String,
    default: String,
    example: String,
    /// The value, and its effect.
    bad: (String, String),
    empty: String,
}

fn field<'n>(node: &'n Node, name: &str) -> &'n Node {
    let Content::Map(pairs) = &node.content else { panic!("not a map: {node:?}") };
    let pair = pairs.iter().find(|(key, _)| text(key) == name);
    &pair.unwrap_or_else(|| panic!("no {name}")).1
}

fn text(node: &Node) -> String {
    let Content::Scalar(scalar) = &node.content else { panic!("not a text: {node:?}") };
    scalar.text.to_string()
}

fn rows() -> Vec<Row> {
    let document = yaml::parse(RECORDED).expect("YAML");
    let root = document.root.expect("a document");
    let Content::List(rows) = &field(&root, "settings").content else { panic!("not a list") };
    let row = |row: &Node| {
        let bad = field(row, "bad");
        Row {
            name: text(field(row, "name")),
            kind: text(field(row, "type")),
            default: text(field(row, "default")),
            example: text(field(row, "example")),
            bad: (text(field(bad, "value")), text(field(bad, "then"))),
            empty: text(field(row, "empty")),
        }
    };
    rows.iter().map(row).collect()
}

fn load(name: &str, value: &str) -> Result<LoadedSettings, SettingsError> {
    // Without it the other variables of the second group have no effect.
    let switch = name.starts_with("REDIS_PERSECOND_").then_some(("REDIS_PERSECOND", "true"));
    let variables = switch.into_iter().chain([(name, value)]);
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    load_settings_with(None, variables, Some("ratelimit"))
}

fn is_later(name: &str, is_empty: bool) -> bool {
    LATER.iter().any(|&(later, of_empty, _)| (later, of_empty) == (name, is_empty))
}

#[test]
fn the_table_has_the_recorded_variables_with_their_types_and_defaults() {
    let recorded = rows();
    assert_eq!(recorded.len(), 114);
    let newer: Vec<_> = table::OWN
        .iter()
        .map(|variable| variable.name)
        .filter(|name| recorded.iter().all(|row| row.name != *name))
        .collect();
    assert_eq!(newer, NEWER);
    for row in recorded {
        let variable = table::find(&row.name).unwrap_or_else(|| panic!("{} is missing", row.name));
        let kind = match variable.kind {
            ValueKind::Text => "text",
            ValueKind::Flag => "true or false",
            ValueKind::Whole => "whole number",
            ValueKind::Decimal => "number",
            ValueKind::Duration => "duration",
            ValueKind::List => "list of texts",
            ValueKind::Map => "map of texts",
        };
        assert_eq!((kind, variable.default), (row.kind.as_str(), row.default.as_str()), "{}", row.name);
    }
}

#[test]
fn calendar_months_are_those_of_utc() {
    let zone = |value| {
        let loaded = load("USE_CALENDAR_MONTH_RATE_LIMIT", value).expect("valid settings");
        loaded.settings.month_zone
    };
    assert_eq!((zone("true").as_deref(), zone("false")), (Some("UTC"), None));
    assert!(load("USE_CALENDAR_MONTH_RATE_LIMIT", "maybe").is_err());
}

#[test]
fn a_value_that_ends_the_start_there_is_an_error_that_names_variable_and_value() {
    for Row { name, bad: (value, then), .. } in rows() {
        let variable = table::find(&name).expect("in the table");
        let loaded = load(&name, &value);
        let ends = then.starts_with("exit") || then.starts_with("does not serve");
        // Both services ignore a string unless another variable gives it an effect.
        let is_text = matches!(variable.kind, ValueKind::Text | ValueKind::List);
        let is_unused = is_text && matches!(variable.effect, Effect::Meaningless(_));
        if ends && !is_unused && !is_later(&name, false) {
            let error = loaded.expect_err(&name).to_string();
            assert!(error.contains(&name), "{name}: {error}");
            let is_quoted = error.contains(&format!("found {value:?}"));
            assert!(is_quoted || variable.is_secret, "{name}: {error}");
        } else {
            assert!(loaded.is_ok(), "{name}={value}: {loaded:?}, there: {then}");
        }
    }
}

#[test]
fn an_empty_value_is_an_error_only_where_no_default_is_safe() {
    for Row { name, empty, .. } in rows() {
        let variable = table::find(&name).expect("in the table");
        let loaded = load(&name, "");
        let ends = empty.starts_with("exit") || empty.starts_with("does not serve");
        let warns = |report: &SettingsReport| report.warnings.iter().any(|line| line.starts_with(&name));
        if variable.kind.refuses_empty() || EMPTY_IS_THE_DEFAULT.contains(&name.as_str()) {
            assert!(ends, "{name}: {empty}");
            assert!(warns(&loaded.expect("the default").report), "{name} without a warning");
        } else if ["REDIS_URL", "REDIS_PERSECOND_URL"].contains(&name.as_str()) {
            assert!(loaded.expect_err(&name).to_string().contains(&name));
        } else {
            let is_known =
                !ends || is_later(&name, true) || matches!(variable.effect, Effect::Meaningless(_));
            assert!(loaded.is_ok() && is_known, "{name}: {loaded:?}, there: {empty}");
        }
    }
}

#[test]
fn every_example_is_taken_over_or_told() {
    for Row { name, example, .. } in rows() {
        let variable = table::find(&name).expect("in the table");
        let loaded = load(&name, &example);
        match variable.effect {
            Effect::Meaningless(_) => {
                let LoadedSettings { report, .. } = loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
                let told =
                    report.warnings.iter().filter(|line| line.starts_with(&format!("{name} is ignored")));
                assert_eq!(told.count(), 1, "{name}: {:?}", report.warnings);
            }
            Effect::Sets(keys) => sets_one_of(&name, &example, keys, loaded),
        }
    }
}

/// The example changes one of the settings in the table, alone or with its companions.
fn sets_one_of(name: &str, example: &str, keys: &str, alone: Result<LoadedSettings, SettingsError>) {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    let beside = companions(name).into_iter().chain([(name, example)]).map(owned);
    let beside = load_settings_with(None, beside, Some("ratelimit"));
    let is_set = |report: &SettingsReport| {
        report.settings.iter().any(|setting| {
            let names = setting.source().strip_prefix("environment variable ").unwrap_or_default();
            keys.split(", ").any(|key| key == setting.key) && names.split(", ").any(|from| from == name)
        })
    };
    let loaded = [alone, beside].into_iter().flatten();
    assert!(loaded.into_iter().any(|loaded| is_set(&loaded.report)), "{name} sets none of {keys}");
}

fn read(variables: &[(&str, &str)]) -> LoadedSettings {
    let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    load_settings_with(None, variables, None).unwrap_or_else(|error| panic!("{error}"))
}

/// The current values of settings, by key.
fn values<'k>(report: &SettingsReport, keys: &[&'k str]) -> Vec<(&'k str, String)> {
    let value = |key: &'k str| {
        let setting = report.settings.iter().find(|setting| setting.key == key);
        (key, setting.expect("a setting").value.clone())
    };
    keys.iter().map(|key| value(key)).collect()
}

#[test]
fn only_names_that_no_other_program_has_switch_it_on() {
    let common = [("HOST", "::"), ("PORT", "80"), ("LOG_LEVEL", "debug"), ("REDIS_URL", "redis:6379")];
    let LoadedSettings { settings, environment, .. } = read(&common);
    assert_eq!(settings, Settings::default());
    assert_eq!(environment, EnvironmentUse::Common(vec!["HOST", "LOG_LEVEL", "PORT", "REDIS_URL"]));
    for telling in table::OWN.iter().filter(|variable| variable.is_telling) {
        let value = if telling.default.is_empty() { "1" } else { telling.default };
        let written = Written::collect(None, [(telling.name.into(), value.into())]).expect("no file");
        let decided = EnvironmentUse::decide(None, &written);
        assert_eq!(decided, EnvironmentUse::ReadForVariable(telling.name));
    }
    let on = [("RATELIMITD__ENVOY_RATELIMIT_ENVIRONMENT", "on"), ("PORT", "81")];
    let line = read(&on).environment.to_string();
    assert!(line.contains("envoy_ratelimit_environment is on") && line.contains("RATELIMITD__"), "{line}");
    let off = [("RATELIMITD__ENVOY_RATELIMIT_ENVIRONMENT", "off"), ("RUNTIME_ROOT", "/data")];
    let LoadedSettings { settings, environment, .. } = read(&off);
    assert_eq!(settings, Settings::default());
    assert_eq!(environment, EnvironmentUse::Forbidden(vec!["RUNTIME_ROOT"]));
    let links = [("GRPC_PORT", "tcp://10.0.0.1:9000"), ("REDIS_PERSECOND_PORT_6379_TCP_ADDR", "10.0.0.2")];
    assert_eq!(read(&links).environment, EnvironmentUse::Absent);
}

#[test]
fn the_environment_of_the_example_of_envoyproxy_ratelimit_is_taken_over() {
    let LoadedSettings { report, environment, .. } = read(&[
        ("REDIS_SOCKET_TYPE", "tcp"),
        ("REDIS_URL", "redis:6379"),
        ("RUNTIME_ROOT", "/data"),
        ("RUNTIME_SUBDIRECTORY", "ratelimit"),
        ("RUNTIME_WATCH_ROOT", "false"),
        ("HOST", "::"),
        ("GRPC_HOST", "::"),
        ("LOG_LEVEL", "debug"),
        ("GRPC_PORT", "tcp://10.0.0.1:9000"),
    ]);
    let expected = [
        ("server.grpc.address", "[::]:8081"),
        ("server.http.address", "[::]:8080"),
        ("server.admin.address", "[::]:6070"),
        ("server.admin.read_by_any_host", "true"),
        ("rules.path", "/data/ratelimit/config"),
        ("rules.directory", "any_files"),
        ("store.kind", "redis"),
        ("store.redis.topology", "standalone"),
        ("store.redis.url", "redis://redis:6379"),
        ("log.level", "debug"),
    ];
    let keys = expected.map(|(key, _)| key);
    assert_eq!(values(&report, &keys), expected.map(|(key, value)| (key, value.to_owned())));
    assert_eq!(environment, EnvironmentUse::ReadForVariable("REDIS_SOCKET_TYPE"));
    let link = "GRPC_PORT: Kubernetes sets it for a service of that name, so it is passed over";
    assert_eq!(report.warnings, [link]);
}

#[test]
fn the_debug_port_is_read_under_any_name_unless_it_is_of_this_host_only() {
    for (host, expected) in [
        ("127.0.0.1", "false"),
        ("::1", "false"),
        ("[::1]", "false"),
        ("localhost", "false"),
        ("", "true"),
        ("::", "true"),
        ("10.0.0.7", "true"),
        ("localhost.example.com", "true"),
    ] {
        let loaded = load("DEBUG_HOST", host).expect("valid");
        let is_read = loaded.settings.server.admin.access.read_by_any_host;
        assert_eq!(is_read.to_string(), expected, "{host:?}");
    }
    let own = [("DEBUG_HOST", "127.0.0.1"), ("RATELIMITD__SERVER__ADMIN__ADDRESS", "0.0.0.0:6070")];
    let own = own.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let loaded = load_settings_with(None, own, Some("ratelimit")).expect("valid");
    assert!(loaded.settings.server.admin.access.read_by_any_host, "the address in force is not DEBUG_HOST");
}

#[test]
fn a_unix_socket_takes_the_place_of_the_grpc_port() {
    let address = |value| {
        let LoadedSettings { report, .. } =
            read(&[("GRPC_UDS", value), ("GRPC_PORT", "81"), ("REDIS_PIPELINE_LIMIT", "0")]);
        values(&report, &["server.grpc.address"])[0].1.clone()
    };
    assert_eq!(address("/run/ratelimit.sock"), "unix:/run/ratelimit.sock");
    assert_eq!(address(""), "[::]:81");
    // As in `envoyproxy/ratelimit`, a path can be relative to the working directory.
    let here = std::env::current_dir().expect("a working directory");
    assert_eq!(address("r.sock"), format!("unix:{}", here.join("r.sock").display()));
    let error = load("GRPC_UDS", "@abstract").expect_err("no file").to_string();
    assert!(error.contains("GRPC_UDS: expected the path of a socket"), "{error}");
}

#[test]
fn a_setting_of_ours_wins_and_says_so() {
    let LoadedSettings { settings, report, .. } = read(&[
        ("RUNTIME_ROOT", "/data"),
        ("RATELIMITD__RULES__PATH", "/rules"),
        ("NEAR_LIMIT_RATIO", "0.5"),
        ("RATELIMITD__NEAR_LIMIT_RATIO", "0.6"),
        ("REDIS_URL", "redis:6379"),
        ("RATELIMITD__STORE__REDIS__URL", "redis://redis:6379"),
    ]);
    assert_eq!(settings.rules.path.to_str(), Some("/rules"));
    assert_eq!(settings.near_limit_ppm, 600_000);
    let expected = [
        "NEAR_LIMIT_RATIO: not used, because near_limit_ratio is set (environment variable \
         RATELIMITD__NEAR_LIMIT_RATIO)",
        "RUNTIME_ROOT: not used, because rules.path is set (environment variable RATELIMITD__RULES__PATH)",
    ];
    assert_eq!(report.warnings, expected);
}

#[test]
fn files_of_tls_without_tls_are_warned_of() {
    let cases = [
        ("GRPC_SERVER_TLS_CERT", "GRPC_SERVER_USE_TLS"),
        ("REDIS_TLS_CACERT", "REDIS_TLS"),
        ("REDIS_TLS_CLIENT_CERT", "REDIS_TLS"),
        ("REDIS_TLS_CLIENT_KEY", "REDIS_TLS"),
        ("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", "CONFIG_GRPC_XDS_SERVER_USE_TLS"),
        ("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", "CONFIG_GRPC_XDS_SERVER_USE_TLS"),
    ];
    for (name, switch) in cases {
        let LoadedSettings { report, .. } = read(&[("CONFIG_TYPE", "GRPC_XDS_SOTW"), (name, "/certs/a.pem")]);
        assert_eq!(report.warnings, [format!("{name} has no effect without {switch}=true")]);
    }
}

#[test]
fn the_warning_about_an_empty_variable_is_true_where_our_default_is_another() {
    let LoadedSettings { settings, report, .. } =
        read(&[("CONFIG_TYPE", "GRPC_XDS_SOTW"), ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "")]);
    let expected = "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL is empty, so it is as if it were not set";
    assert_eq!(report.warnings, [expected]);
    let unset = read(&[("CONFIG_TYPE", "GRPC_XDS_SOTW")]).settings;
    let pause = |settings: &Settings| settings.rules.xds.as_ref().map(|xds| format!("{:?}", xds.backoff));
    assert!(pause(&settings).is_some());
    assert_eq!(pause(&settings), pause(&unset));
}

#[test]
fn a_file_that_only_repeats_defaults_gives_way() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/ratelimitd.yaml");
    let variables = [("RUNTIME_ROOT", "/data"), ("BACKEND_TYPE", "redis"), ("PORT", "80")];
    let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let LoadedSettings { settings, report, .. } =
        load_settings_with(Some(&path), variables, None).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(settings.store.kind, crate::settings::StoreKind::Redis);
    assert_eq!(settings.server.http_address.to_string(), "[::]:80");
    assert_eq!(report.warnings, [""; 0]);
}

#[test]
fn a_store_that_is_not_there_is_refused() {
    let error = load("BACKEND_TYPE", "memcache").expect_err("refused").to_string();
    assert!(
        error.contains("BACKEND_TYPE: expected redis, because there is no store for memcached"),
        "{error}"
    );
}
