//! The variables of listeners, log, rules, xDS, health, answers and limits. [`all`] has the whole table.

use super::redis_table::{REDIS, REDIS_PER_SECOND};
use super::stats_table::{LIBRARIES, MEMCACHED, STATS, TRACES};
use super::variable::Effect::{Meaningless, Sets};
use super::variable::RatelimitVariable;
use super::variable::ValueKind::{Decimal, Duration, Flag, Map, Text, Whole};

const GRPC: &[&str] = &["server.grpc.address"];
const HTTP: &[&str] = &["server.http.address"];
const ADMIN: &[&str] = &["server.admin.address"];

/// Every variable, in the order of the documentation.
pub(super) fn all() -> impl Iterator<Item = &'static RatelimitVariable> {
    let groups: [&[RatelimitVariable]; 11] = [
        &LISTENERS,
        &TLS,
        &LOG,
        &RULES,
        &XDS,
        &ANSWERS,
        &REDIS,
        &REDIS_PER_SECOND,
        &MEMCACHED,
        &STATS,
        &TRACES,
    ];
    groups.into_iter().flatten()
}

/// The variables that its libraries read. They say nothing about whose environment it is.
pub(super) fn of_libraries() -> impl Iterator<Item = &'static RatelimitVariable> {
    LIBRARIES.iter()
}

pub(super) fn find_of_library(name: &str) -> Option<&'static RatelimitVariable> {
    of_libraries().find(|variable| variable.name == name)
}

/// The variable of that name. Names are exact: no other letter case, no prefix.
pub(super) fn find(name: &str) -> Option<&'static RatelimitVariable> {
    all().find(|variable| variable.name == name)
}

const EVERY_ADDRESS: &str = "`0.0.0.0`, `::` and nothing are every address of IPv4 and IPv6, like there";

static LISTENERS: [RatelimitVariable; 9] = [
    RatelimitVariable::common("HOST", Text, "0.0.0.0", Sets(HTTP)).but(EVERY_ADDRESS),
    RatelimitVariable::common("PORT", Whole, "8080", Sets(HTTP)),
    RatelimitVariable::common("DEBUG_HOST", Text, "0.0.0.0", Sets(ADMIN)).but(
        "no `/stats` and no `/debug/pprof/`; `/counters/*` answer only callers on this host, or with the token of \
         `server.admin.token_file`",
    ),
    RatelimitVariable::common("DEBUG_PORT", Whole, "6070", Sets(ADMIN)).but("a port in use ends the start"),
    RatelimitVariable::common("GRPC_UDS", Text, "", Sets(GRPC)).but(
        "the file that a killed process left is replaced, and does not end the start; no abstract sockets (`@name`)",
    ),
    RatelimitVariable::common("GRPC_HOST", Text, "0.0.0.0", Sets(GRPC)).but(EVERY_ADDRESS),
    RatelimitVariable::common("GRPC_PORT", Whole, "8081", Sets(GRPC)),
    RatelimitVariable::own(
        "GRPC_MAX_CONNECTION_AGE",
        Duration,
        "24h",
        Sets(&["server.grpc.max_connection_age"]),
    )
    .but("1s to 365d; 0 is never"),
    RatelimitVariable::own(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Duration,
        "1h",
        Meaningless("a call takes milliseconds, and the calls of a connection that is too old are finished"),
    ),
];

static TLS: [RatelimitVariable; 5] = [
    RatelimitVariable::own("GRPC_SERVER_USE_TLS", Flag, "false", Sets(&["server.grpc.tls.cert_file"])),
    RatelimitVariable::own("GRPC_SERVER_TLS_CERT", Text, "", Sets(&["server.grpc.tls.cert_file"]))
        .but("a bad new file keeps the old one, and does not end the process"),
    RatelimitVariable::own("GRPC_SERVER_TLS_KEY", Text, "", Sets(&["server.grpc.tls.key_file"]))
        .but("it may be in another directory than the certificate"),
    RatelimitVariable::own("GRPC_CLIENT_TLS_CACERT", Text, "", Sets(&["server.grpc.tls.client_ca_file"]))
        .but("only this file is trusted, not the system's authorities as well; read again when it changes"),
    RatelimitVariable::own("GRPC_CLIENT_TLS_SAN", Text, "", Sets(&["server.grpc.tls.client_san"])),
];

static LOG: [RatelimitVariable; 2] = [
    RatelimitVariable::common("LOG_LEVEL", Text, "WARN", Sets(&["log.level"])).but(
        "`info` unless set; `panic` and `fatal` mean `error`; at the start, a line that says how a variable is read \
         has the level `info`, a line about a variable without effect `warn`",
    ),
    RatelimitVariable::common("LOG_FORMAT", Text, "text", Sets(&["log.format"]))
        .but("`json` is `envoy_ratelimit`: the keys `@timestamp`, `@message`, `level`"),
];

const PATH: &[&str] = &["rules.path", "rules.directory"];

static RULES: [RatelimitVariable; 10] = [
    RatelimitVariable::own(
        "CONFIG_TYPE",
        Text,
        "FILE",
        Sets(&["rules.path", "rules.xds.address"]),
    ),
    RatelimitVariable::own(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        Flag,
        "false",
        Sets(&["rules.xds.start_without_rules"]),
    )
    .but("with rule files the service always starts, and is not ready until its first rules are valid"),
    RatelimitVariable::own("MERGE_DOMAIN_CONFIG", Flag, "false", Sets(&["rules.merge_domains"]))
        .but("files are merged in the order of their names, not at random"),
    RatelimitVariable::own("RUNTIME_ROOT", Text, "/srv/runtime_data/current", Sets(PATH)).but(
        "a missing directory at the start: the service is not ready until the directory is there; the same later: \
         the rules stay",
    ),
    RatelimitVariable::own("RUNTIME_SUBDIRECTORY", Text, "", Sets(PATH))
        .but("if it is empty and `RUNTIME_WATCH_ROOT` true, the rules of `RUNTIME_APPDIRECTORY` are read, not ignored"),
    RatelimitVariable::own("RUNTIME_APPDIRECTORY", Text, "config", Sets(PATH)),
    RatelimitVariable::own("RUNTIME_IGNOREDOTFILES", Flag, "false", Meaningless(DOT_FILES))
        .but("a file with several names is read once"),
    RatelimitVariable::own("RUNTIME_WATCH_ROOT", Flag, "true", Sets(PATH)).but(
        "every kind of change takes effect within a second, in place and by links, whether true or false; if true, \
         files `RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY.*` are read as well, like there",
    ),
    RatelimitVariable::own(
        "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED",
        Flag,
        "false",
        Sets(&["rules.require_domain"]),
    ),
    RatelimitVariable::own(
        "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION",
        Flag,
        "false",
        Sets(&["store.redis.ready_in_outage"]),
    )
    .but(
        "not healthy while the circuit breakers of every worker are open, in a cluster those of every primary; \
         `envoyproxy/ratelimit` is not healthy while no connection is open",
    ),
];

static ANSWERS: [RatelimitVariable; 14] = [
    RatelimitVariable::own("LIMIT_RESPONSE_HEADERS_ENABLED", Flag, "false", Sets(&["response.headers"])),
    RatelimitVariable::own("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", Sets(&["response.limit_header"])).but("if it is empty: the default name"),
    RatelimitVariable::own("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", Sets(&["response.remaining_header"])).but("if it is empty: the default name"),
    RatelimitVariable::own("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", Sets(&["response.reset_header"])).but("if it is empty: the default name"),
    RatelimitVariable::own("RESPONSE_DYNAMIC_METADATA", Flag, "false", Sets(&["response.dynamic_metadata"])),
    RatelimitVariable::own(
        "EXPIRATION_JITTER_MAX_SECONDS",
        Whole,
        "300",
        Meaningless("a counter expires one second after it no longer affects decisions"),
    ),
    RatelimitVariable::own(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Whole,
        "0",
        Sets(&["store.redis.deny_cache.enabled", "store.redis.deny_cache.max_keys"]),
    )
    .but("the deny cache is exact, and on unless the variable is 0; 128 bytes are one denial"),
    RatelimitVariable::own("NEAR_LIMIT_RATIO", Decimal, "0.8", Sets(&["near_limit_ratio"]))
        .but("0 to 1, rounded to six decimals"),
    RatelimitVariable::common("CACHE_KEY_PREFIX", Text, "", Sets(&["store.redis.key_prefix"])).but(
        "`ratelimitd:` unless set; at most 64 visible ASCII characters without braces; the format of the keys \
         differs, so no counter is shared with `envoyproxy/ratelimit`",
    ),
    RatelimitVariable::own("BACKEND_TYPE", Text, "redis", Sets(&["store.kind"]))
        .but("`memcache` is refused: there is no memcached store"),
    RatelimitVariable::own(
        "STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT",
        Flag,
        "false",
        Sets(&["defaults.charging"]),
    )
    .but(
        "`prepaid`: a denied request is charged to no limit, also not to the limit that denies it. A rule whose cost \
         is reported after the response (`apply_on_stream_done`) needs `charging: postpaid`: without it, a cost above \
         the remaining units is not recorded",
    ),
    RatelimitVariable::own(
        "USE_CALENDAR_MONTH_RATE_LIMIT",
        Flag,
        "false",
        Sets(&["defaults.month_calendar"]),
    )
    .but("`UTC`: months start on their first day in UTC, also those of limits in requests"),
    RatelimitVariable::common("SHADOW_MODE", Flag, "false", Sets(&["shadow_mode"])),
    RatelimitVariable::common("QUOTA_MODE", Flag, "false", Sets(&["quota_mode"])),
];

/// The variables of rules by xDS. They are read only with `CONFIG_TYPE=GRPC_XDS_SOTW`.
static XDS: [RatelimitVariable; 15] = [
    RatelimitVariable::own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", Sets(&["rules.xds.node_id"])),
    RatelimitVariable::own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", Sets(&["rules.xds.node_metadata"])),
    RatelimitVariable::own(
        "CONFIG_GRPC_XDS_SERVER_URL",
        Text,
        "localhost:18000",
        Sets(&["rules.xds.address"]),
    )
    .but("a value without a port ends the start"),
    RatelimitVariable::own(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Duration,
        "3s",
        Meaningless("it has no effect there either"),
    ),
    RatelimitVariable::own(
        "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
        Map,
        "",
        Sets(&["rules.xds.headers"]),
    )
    .but("headers that gRPC sets itself are refused")
    .secret(),
    RatelimitVariable::own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Flag, "false", Sets(&["rules.xds.tls.enabled"])),
    RatelimitVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", Sets(&["rules.xds.tls.cert_file"]))
        .but(FILES),
    RatelimitVariable::own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", Sets(&["rules.xds.tls.key_file"]))
        .but(FILES),
    RatelimitVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", Sets(&["rules.xds.tls.ca_file"]))
        .but("only this file is trusted, not the system's authorities as well; read again when it changes"),
    RatelimitVariable::own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", Sets(&["rules.xds.tls.server_name"])),
    RatelimitVariable::own(
        "XDS_CLIENT_BACKOFF_INITIAL_INTERVAL",
        Duration,
        "10s",
        Sets(&["rules.xds.backoff.initial"]),
    )
    .but("`1s` unless set"),
    RatelimitVariable::own(
        "XDS_CLIENT_BACKOFF_MAX_INTERVAL",
        Duration,
        "60s",
        Sets(&["rules.xds.backoff.max"]),
    )
    .but("`30s` unless this or the initial interval is set"),
    RatelimitVariable::own(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        Decimal,
        "0.5",
        Meaningless("pauses double; there they never grow with the default"),
    ),
    RatelimitVariable::own("XDS_CLIENT_BACKOFF_JITTER", Flag, "true", Sets(&["rules.xds.backoff.jitter"])),
    RatelimitVariable::own(
        "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES",
        Whole,
        "",
        Sets(&["rules.xds.max_message_bytes"]),
    ),
];

const DOT_FILES: &str =
    "a file or directory whose name begins with a dot is never read, and a warning names it";
const FILES: &str = "one of the two alone is not used, like there; read again when it changes";
