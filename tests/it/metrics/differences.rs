//! Where the metrics differ on purpose from those of envoyproxy/ratelimit.

use super::behaviour::Values;

/// A difference in the behaviours with these names; all of them, if there is no name.
pub struct Difference {
    pub behaviours: &'static [&'static str],
    /// Series of theirs that begin so are not here.
    pub gone: &'static [&'static str],
    /// Series that are not there, or have another value there.
    pub here: &'static [(&'static str, u64)],
}

pub const DIFFERENCES: [Difference; 10] = [
    Difference {
        behaviours: &[],
        gone: &["ratelimit_redis_"],
        here: &[],
        // `ratelimit_redis_pool_*`.
    },
    Difference {
        behaviours: &["13-override"],
        gone: &[
            r#"ratelimit_service_rate_limit_total_hits{domain="shop""#,
            r#"ratelimit_service_rate_limit_over_limit{domain="shop""#,
            r#"ratelimit_service_rate_limit_near_limit{domain="shop""#,
            r#"ratelimit_service_rate_limit_within_limit{domain="shop""#,
        ],
        here: &[
            (r#"ratelimit_service_rate_limit_total_hits{domain="override",key1="override"}"#, 4),
            (r#"ratelimit_service_rate_limit_over_limit{domain="override",key1="override"}"#, 1),
            (r#"ratelimit_service_rate_limit_near_limit{domain="override",key1="override"}"#, 1),
            (r#"ratelimit_service_rate_limit_within_limit{domain="override",key1="override"}"#, 3),
        ],
        // One series for all limits that requests bring.
    },
    Difference {
        behaviours: &["13-override"],
        gone: &["ratelimit_service_rate_limit_nodomain_domain_not_found"],
        here: &[("ratelimit_service_rate_limit_domain_not_found", 1)],
        // One series for all unknown domains.
    },
    Difference {
        behaviours: &["14-unknown-domain"],
        gone: &[
            "ratelimit_service_rate_limit_nowhere_domain_not_found",
            "ratelimit_service_rate_limit_else_where_domain_not_found",
        ],
        here: &[("ratelimit_service_rate_limit_domain_not_found", 4)],
        // One series for all unknown domains.
    },
    Difference {
        behaviours: &["17-local-cache"],
        gone: &[
            "ratelimit_localcache_averageAccessTime",
            "ratelimit_localcache_evacuateCount",
            "ratelimit_localcache_expiredCount",
            "ratelimit_localcache_overwriteCount",
        ],
        // A cache without denials is not looked up.
        here: &[("ratelimit_localcache_lookupCount", 6), ("ratelimit_localcache_missCount", 2)],
        // Four of the eight gauges of the local cache.
    },
    Difference {
        behaviours: &["17-local-cache"],
        gone: &[],
        here: &[
            ("ratelimit_localcache_hitCount", 4),
            ("ratelimit_service_rate_limit_shop_user_over_limit_with_local_cache", 6),
        ],
        // Until it is at twice the limit.
    },
    Difference {
        behaviours: &["17-local-cache"],
        gone: &["ratelimit_service_rate_limit_shop_sh_over_limit_with_local_cache"],
        here: &[],
        // Meets only shadow rules is always decided in Redis.
    },
    Difference {
        behaviours: &["20-extra-tags"],
        gone: &["ratelimit_", "runtime_", "reserved_tag"],
        here: &[
            (r#"ratelimit_service_config_load_success{env="prod",region="eu"}"#, 1),
            (
                r#"ratelimit_service_rate_limit_near_limit{domain="shop",key1="user",env="prod",region="eu"}"#,
                1,
            ),
            (
                r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="user",env="prod",region="eu"}"#,
                1,
            ),
            (
                r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",env="prod",region="eu"}"#,
                3,
            ),
            (
                r#"ratelimit_service_rate_limit_within_limit{domain="shop",key1="user",env="prod",region="eu"}"#,
                2,
            ),
            (
                r#"ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit",env="prod",region="eu"}"#,
                3,
            ),
            (r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit",env="prod",region="eu"}"#, 3),
            (r#"runtime_load_attempts{env="prod",region="eu"}"#, 1),
            (r#"runtime_num_values{env="prod",region="eu"}"#, 1),
        ],
        // Tags are labels.
    },
    Difference {
        behaviours: &["22-reload"],
        gone: &["ratelimit_service_rate_limit_total_hits", "ratelimit_service_rate_limit_within_limit"],
        here: &[],
        // Series of a removed rule end.
    },
    Difference {
        behaviours: &["27-mapper-missing"],
        gone: &["ratelimit_server_", "ratelimit_service_rate_limit_shop_user"],
        here: &[
            (r#"ratelimit_service_rate_limit_near_limit{domain="shop",key1="user"}"#, 1),
            (r#"ratelimit_service_rate_limit_over_limit{domain="shop",key1="user"}"#, 1),
            (r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user"}"#, 3),
            (r#"ratelimit_service_rate_limit_total_hits{domain="shop",key1="user",key2="path"}"#, 1),
            (r#"ratelimit_service_rate_limit_within_limit{domain="shop",key1="user"}"#, 2),
            (r#"ratelimit_service_rate_limit_within_limit{domain="shop",key1="user",key2="path"}"#, 1),
            (r#"ratelimit_service_response_time_seconds_count{grpc_method="ShouldRateLimit"}"#, 4),
            (r#"ratelimit_service_total_requests{grpc_method="ShouldRateLimit"}"#, 4),
        ],
        // A mapping file is not read.
    },
];

/// What is expected here of a behaviour that had these values there.
pub fn expected_here(behaviour: &str, there: &Values) -> Values {
    let mut here = there.clone();
    for difference in &DIFFERENCES {
        let applies = difference.behaviours.is_empty() || difference.behaviours.contains(&behaviour);
        if !applies {
            continue;
        }
        here.retain(|series, _| !difference.gone.iter().any(|start| series.starts_with(start)));
        here.extend(difference.here.iter().map(|&(series, value)| (series.to_owned(), value)));
    }
    here
}
