//! Addresses and credentials of the Redis servers.

use super::{read, values};
use crate::cli::load_settings::{LoadedSettings, load_settings_with};

#[test]
fn addresses_of_redis_are_read_in_all_forms() {
    let keys = [
        "store.redis.topology",
        "store.redis.url",
        "store.redis.sentinel.master",
        "store.redis.username",
        "store.redis.sentinel.username",
    ];
    type Case<'c> = (&'c [(&'c str, &'c str)], [&'c str; 5]);
    let cases: [Case<'_>; 17] = [
        (&[("REDIS_URL", "redis:6379")], ["standalone", "redis://redis:6379", "", "", ""]),
        (&[("REDIS_URL", "[::1]:6379")], ["standalone", "redis://[::1]:6379", "", "", ""]),
        (&[("REDIS_URL", "127.0.0.1:6379/3")], ["standalone", "redis://127.0.0.1:6379/3", "", "", ""]),
        (&[("REDIS_URL", "redis://u:p@r:1/3")], ["standalone", "redis://r:1/3", "", "", ""]),
        (&[("REDIS_URL", "rediss://r:1")], ["standalone", "rediss://r:1", "", "", ""]),
        (&[("REDIS_URL", "/run/r.sock")], ["standalone", "redis+unix:///run/r.sock", "", "", ""]),
        (
            &[("REDIS_URL", "/run/my redis/a%20#1.sock"), ("REDIS_SOCKET_TYPE", "unix")],
            ["standalone", "redis+unix:///run/my%20redis/a%2520%231.sock", "", "", ""],
        ),
        // A port without a host is on this machine.
        (&[("REDIS_URL", ":6379")], ["standalone", "redis://127.0.0.1:6379", "", "", ""]),
        (&[("REDIS_URL", "redis://u:p@:6380/3")], ["standalone", "redis://127.0.0.1:6380/3", "", "", ""]),
        (
            &[("REDIS_URL", ":6379"), ("REDIS_TLS", "true")],
            ["standalone", "rediss://127.0.0.1:6379", "", "", ""],
        ),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,:26379,s2:2")],
            ["sentinel", "redis://127.0.0.1:26379,redis://s2:2", "m", "", ""],
        ),
        (
            &[("RUNTIME_ROOT", "/data")],
            ["standalone", "redis+unix:///var/run/nutcracker/ratelimit.sock", "", "", ""],
        ),
        (
            &[("REDIS_URL", "r:1"), ("REDIS_TLS", "1"), ("REDIS_AUTH", "ann:s3:cret")],
            ["standalone", "rediss://r:1", "", "ann", ""],
        ),
        (
            &[("REDIS_TYPE", "cluster"), ("REDIS_URL", "a:1,b:2")],
            ["cluster", "redis://a:1,redis://b:2", "", "", ""],
        ),
        (
            &[("REDIS_TYPE", "SENTINEL"), ("REDIS_URL", "m,s1:1,redis://s2:2"), ("REDIS_AUTH", "s3cret")],
            ["sentinel", "redis://s1:1,redis://s2:2", "m", "", ""],
        ),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,s1:1"), ("REDIS_SENTINEL_AUTH", "bob:x")],
            ["sentinel", "redis://s1:1", "m", "", "bob"],
        ),
        (
            &[("REDIS_TYPE", "sentinel"), ("REDIS_URL", "m,redis://bob:x@s1:1")],
            ["sentinel", "redis://s1:1", "m", "", "bob"],
        ),
    ];
    for (variables, expected) in cases {
        let variables: Vec<_> = variables.iter().copied().chain([("REDIS_PIPELINE_LIMIT", "0")]).collect();
        let LoadedSettings { settings, report, .. } = read(&variables);
        let found: Vec<_> = values(&report, &keys).into_iter().map(|(_, value)| value).collect();
        assert_eq!(found, expected, "{variables:?}");
        let shown = format!("{settings:?} {report:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("s3:cret"), "{shown}");
    }
}

#[test]
fn limits_of_one_second_have_servers_of_their_own_when_they_are_asked_for() {
    let keys = [
        "store.redis.url",
        "store.redis.per_second.topology",
        "store.redis.per_second.url",
        "store.redis.per_second.sentinel.master",
        "store.redis.per_second.username",
    ];
    type Case<'c> = (&'c [(&'c str, &'c str)], [&'c str; 4]);
    let cases: [Case<'_>; 4] = [
        (
            &[("REDIS_PERSECOND", "true")],
            ["standalone", "redis+unix:///var/run/nutcracker/ratelimitpersecond.sock", "", ""],
        ),
        (
            &[
                ("REDIS_PERSECOND", "1"),
                ("REDIS_PERSECOND_SOCKET_TYPE", "tcp"),
                ("REDIS_PERSECOND_URL", "other:6379"),
                ("REDIS_PERSECOND_TLS", "true"),
                ("REDIS_PERSECOND_AUTH", "ann:s3cret"),
            ],
            ["standalone", "rediss://other:6379", "", "ann"],
        ),
        (
            &[
                ("REDIS_PERSECOND", "true"),
                ("REDIS_PERSECOND_TYPE", "sentinel"),
                ("REDIS_PERSECOND_URL", "m,s1:1,s2:2"),
            ],
            ["sentinel", "redis://s1:1,redis://s2:2", "m", ""],
        ),
        (&[("REDIS_PERSECOND", "false"), ("REDIS_PERSECOND_URL", "other:6379")], ["standalone", "", "", ""]),
    ];
    for (variables, expected) in cases {
        let variables: Vec<_> = variables.iter().copied().chain([("REDIS_URL", "main:6379")]).collect();
        let LoadedSettings { settings, report, .. } = read(&variables);
        let found: Vec<_> = values(&report, &keys).into_iter().map(|(_, value)| value).collect();
        assert_eq!(found[0], "redis://main:6379");
        assert_eq!(found[1..], expected, "{variables:?}");
        assert!(!format!("{settings:?} {report:?}").contains("s3cret"));
        let is_warned = report.warnings.iter().any(|line| line.starts_with("REDIS_PERSECOND_URL"));
        assert_eq!(is_warned, expected[1].is_empty(), "{:?}", report.warnings);
    }
}

#[test]
fn addresses_of_redis_that_cannot_work_are_refused() {
    let cases: [&[(&str, &str)]; 10] = [
        &[("REDIS_URL", "redis")],
        &[("REDIS_URL", "")],
        &[("REDIS_URL", ""), ("REDIS_SOCKET_TYPE", "unix")],
        &[("REDIS_URL", "@redis")],
        &[("REDIS_URL", "http://redis:6379")],
        &[("REDIS_URL", "a:1,b:2")],
        &[("REDIS_URL", "r:6379"), ("REDIS_SOCKET_TYPE", "unix")],
        &[("REDIS_URL", "/run/r.sock"), ("REDIS_SOCKET_TYPE", "tcp")],
        &[("REDIS_URL", "/run/r.sock"), ("REDIS_TLS", "true")],
        &[("REDIS_URL", "r:6379"), ("REDIS_TYPE", "SENTINEL")],
    ];
    for variables in cases {
        let variables = variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let error = load_settings_with(None, variables.clone(), Some("ratelimit"));
        let error = error.expect_err("refused").to_string();
        assert!(error.contains("REDIS_URL: expected "), "{error} for {:?}", variables.collect::<Vec<_>>());
    }
}

#[test]
fn a_relative_path_of_a_socket_is_below_the_working_directory() {
    let LoadedSettings { settings, .. } = read(&[("REDIS_URL", "redis.sock"), ("REDIS_SOCKET_TYPE", "unix")]);
    let urls: Vec<_> = settings.store.redis.urls.iter().map(ToString::to_string).collect();
    let directory = std::env::current_dir().expect("a directory");
    assert_eq!(urls, [format!("redis+unix://{}/redis.sock", directory.display())]);
}
