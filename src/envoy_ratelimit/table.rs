//! The variables of `envoyproxy/ratelimit`, by subject.

use super::variable::Effect::{Meaningless, Sets};
use super::variable::ValueKind::{Decimal, Duration, Flag, List, Map, Text, Whole};
use super::variable::{Effect, RatelimitVariable, common, own};

/// Names are exact: case matters, and there is no prefix.
pub(super) fn find(name: &str) -> Option<&'static RatelimitVariable> {
    OWN.iter().find(|variable| variable.name == name)
}

/// Finds a variable of the program or of its libraries.
pub(super) fn known(name: &str) -> Option<&'static RatelimitVariable> {
    OWN.iter().chain(&LIBRARIES).find(|variable| variable.name == name)
}

const GRPC: &str = "server.grpc.address";
const HTTP: &str = "server.http.address";
const ADMIN: &str = "server.admin.address";
const EVERY_ADDRESS: &str =
    "`0.0.0.0`, `::` and nothing mean every IPv4 and IPv6 address, as in envoyproxy/ratelimit";
const PATH: &str = "rules.path, rules.directory";
const FILES: &str = "ignored unless both are set, as in envoyproxy/ratelimit; read again on change";
const SERVERS: &str = "store.redis.url";
const STARTUP: Effect =
    Meaningless("the service starts without Redis, is not ready, and retries ten times a second");
const PER_SECOND_SERVERS: &str = "store.redis.per_second.url";
const POOL_SIZE: &str = "requests share calls, so `store.redis.connections` (2 for each worker) is enough";
const WINDOW: &str =
    "requests that arrive while a call is in flight share the next one; a wait would save nothing";
const PIPELINE_LIMIT: &str = "envoyproxy/ratelimit ignores it too; `store.redis.max_batch` limits a batch";
const PARALLELISM: &str = "the nodes of a cluster are always asked at the same time";
const DIAL_TIMEOUT: &str =
    "it limits connecting only; `store.redis.timeout` limits each decision, including connecting";
const NO_POOL: &str = "there is no pool that could be empty; a full queue answers at once";
const EMPTY_POOL_VALUES: &str =
    "`CREATE` and `ERROR`, with which envoyproxy/ratelimit does not start, are accepted";
const ONLY_MEMCACHED: Effect = Meaningless("only with BACKEND_TYPE=memcache, which is refused");
const STATSD_ADDRESS: &str = "metrics.statsd.address";
const TRACES_ENDPOINT: Effect = Sets("traces.endpoint");
const STATSD_TAGS: Effect = Sets("metrics.statsd.tags");
const TRACES_HEADERS: Effect = Sets("traces.headers");
const TRACES_TIMEOUT: Effect = Sets("traces.timeout");
const TRACES_CA: Effect = Sets("traces.ca_file");
const NO_COMPRESSION: Effect = Meaningless("spans are sent uncompressed, which every collector takes");
const NO_CLIENT_CERTIFICATE: Effect =
    Meaningless("a collector that asks for a client certificate gets no spans");
const SCHEME_DECIDES: Effect = Meaningless("the scheme of the endpoint decides");

/// Every variable, in documentation order.
pub(super) static OWN: [RatelimitVariable; 115] = [
    // Listeners.
    common("HOST", Text, "0.0.0.0", Sets(HTTP)).but(EVERY_ADDRESS),
    common("PORT", Whole, "8080", Sets(HTTP)),
    common("DEBUG_HOST", Text, "0.0.0.0", Sets(ADMIN)).but(
        "no `/stats` and no `/debug/pprof/`; unless it is loopback, each POST, such as `/counters/*`, needs \
         the token of `server.admin.operator_token_file` or `server.admin.token_file`",
    ),
    common("DEBUG_PORT", Whole, "6070", Sets(ADMIN)).but("the service does not start if the port is in use"),
    common("GRPC_UDS", Text, "", Sets(GRPC)).but(
        "the file that a killed process left is replaced, and does not prevent the start; no abstract \
         sockets (`@name`)",
    ),
    common("GRPC_HOST", Text, "0.0.0.0", Sets(GRPC)).but(EVERY_ADDRESS),
    common("GRPC_PORT", Whole, "8081", Sets(GRPC)),
    own("GRPC_MAX_CONNECTION_AGE", Duration, "24h", Sets("server.grpc.max_connection_age"))
        .but("1s to 365d; 0 is never"),
    own(
        "GRPC_MAX_CONNECTION_AGE_GRACE",
        Duration,
        "1h",
        Meaningless("a call takes milliseconds, and the calls of a connection that is too old are finished"),
    ),
    // TLS of the gRPC port.
    own("GRPC_SERVER_USE_TLS", Flag, "false", Sets("server.grpc.tls.cert_file")),
    own("GRPC_SERVER_TLS_CERT", Text, "", Sets("server.grpc.tls.cert_file"))
        .but("a bad new file keeps the old one, and does not end the process"),
    own("GRPC_SERVER_TLS_KEY", Text, "", Sets("server.grpc.tls.key_file"))
        .but("it may be in another directory than the certificate"),
    own("GRPC_CLIENT_TLS_CACERT", Text, "", Sets("server.grpc.tls.client_ca_file"))
        .but("only this file is trusted, not the system's authorities as well; read again when it changes"),
    own("GRPC_CLIENT_TLS_SAN", Text, "", Sets("server.grpc.tls.client_san")),
    // The log.
    common("LOG_LEVEL", Text, "WARN", Sets("log.level")).but(
        "`info` unless set; `panic` and `fatal` mean `error`; at the start, a line that says how a \
         variable is read has the level `info`, a line about a variable without effect `warn`",
    ),
    common("LOG_FORMAT", Text, "text", Sets("log.format"))
        .but("`json` is `envoy_ratelimit`: the keys `@timestamp`, `@message`, `level`"),
    // Rules.
    own("CONFIG_TYPE", Text, "FILE", Sets("rules.path, rules.xds.address")),
    own("FORCE_START_WITHOUT_INITIAL_CONFIG", Flag, "false", Sets("rules.xds.start_without_rules"))
        .but("with rule files the service always starts, and is not ready until its first rules are valid"),
    own("MERGE_DOMAIN_CONFIG", Flag, "false", Sets("rules.merge_domains"))
        .but("files are merged in the order of their names, not at random"),
    own("RUNTIME_ROOT", Text, "/srv/runtime_data/current", Sets(PATH)).but(
        "a missing directory at the start: the service is not ready until the directory is there, but if \
         `RUNTIME_SUBDIRECTORY` is empty and `RUNTIME_WATCH_ROOT` true, it is ready and admits every request, as in \
         envoyproxy/ratelimit; the same later: the rules stay",
    ),
    own("RUNTIME_SUBDIRECTORY", Text, "", Sets(PATH)).but(
        "if it is empty and `RUNTIME_WATCH_ROOT` true, the rules of `RUNTIME_APPDIRECTORY` are read, \
         not ignored",
    ),
    own("RUNTIME_APPDIRECTORY", Text, "config", Sets(PATH)),
    own(
        "RUNTIME_IGNOREDOTFILES",
        Flag,
        "false",
        Meaningless("a file or directory whose name begins with a dot is never read, and a warning names it"),
    )
    .but("a file with several names is read once"),
    own("RUNTIME_WATCH_ROOT", Flag, "true", Sets(PATH)).but(
        "every kind of change takes effect within a second, in place and by links, whether true or \
         false; if true, files `RUNTIME_SUBDIRECTORY/RUNTIME_APPDIRECTORY.*` are read as \
         well",
    ),
    own("HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED", Flag, "false", Sets("rules.require_domain")),
    own("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION", Flag, "false", Sets("store.redis.ready_in_outage")).but(
        "not healthy while the circuit breakers of every worker are open, in a cluster those of every \
         primary; `envoyproxy/ratelimit` is not healthy while no connection is open",
    ),
    // Rules over xDS. Read only with `CONFIG_TYPE=GRPC_XDS_SOTW`.
    own("CONFIG_GRPC_XDS_NODE_ID", Text, "default", Sets("rules.xds.node_id")),
    own("CONFIG_GRPC_XDS_NODE_METADATA", Text, "", Sets("rules.xds.node_metadata")),
    own("CONFIG_GRPC_XDS_SERVER_URL", Text, "localhost:18000", Sets("rules.xds.address"))
        .but("the service does not start with a value without a port"),
    own(
        "CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL",
        Duration,
        "3s",
        Meaningless("envoyproxy/ratelimit ignores it too"),
    ),
    own("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", Map, "", Sets("rules.xds.headers"))
        .but("headers that gRPC sets itself are refused")
        .secret(),
    own("CONFIG_GRPC_XDS_SERVER_USE_TLS", Flag, "false", Sets("rules.xds.tls.enabled")),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_CERT", Text, "", Sets("rules.xds.tls.cert_file")).but(FILES),
    own("CONFIG_GRPC_XDS_CLIENT_TLS_KEY", Text, "", Sets("rules.xds.tls.key_file")).but(FILES),
    own("CONFIG_GRPC_XDS_SERVER_TLS_CACERT", Text, "", Sets("rules.xds.tls.ca_file"))
        .but("only this file is trusted, not the system's authorities as well; read again when it changes"),
    own("CONFIG_GRPC_XDS_SERVER_TLS_SAN", Text, "", Sets("rules.xds.tls.server_name")),
    own("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", Duration, "10s", Sets("rules.xds.backoff.initial"))
        .but("`1s` unless set"),
    own("XDS_CLIENT_BACKOFF_MAX_INTERVAL", Duration, "60s", Sets("rules.xds.backoff.max"))
        .but("`30s` unless this or the initial interval is set"),
    own(
        "XDS_CLIENT_BACKOFF_RANDOM_FACTOR",
        Decimal,
        "0.5",
        Meaningless("pauses double; by default those of envoyproxy/ratelimit never grow"),
    ),
    own("XDS_CLIENT_BACKOFF_JITTER", Flag, "true", Sets("rules.xds.backoff.jitter")),
    own("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", Whole, "", Sets("rules.xds.max_message_bytes")),
    // Answers and limits.
    own("LIMIT_RESPONSE_HEADERS_ENABLED", Flag, "false", Sets("response.headers")),
    own("LIMIT_LIMIT_HEADER", Text, "RateLimit-Limit", Sets("response.limit_header"))
        .but("if it is empty: the default name"),
    own("LIMIT_REMAINING_HEADER", Text, "RateLimit-Remaining", Sets("response.remaining_header"))
        .but("if it is empty: the default name"),
    own("LIMIT_RESET_HEADER", Text, "RateLimit-Reset", Sets("response.reset_header"))
        .but("if it is empty: the default name"),
    own("RESPONSE_DYNAMIC_METADATA", Flag, "false", Sets("response.dynamic_metadata")),
    own(
        "EXPIRATION_JITTER_MAX_SECONDS",
        Whole,
        "300",
        Meaningless("a counter expires one second after it no longer affects decisions"),
    ),
    own(
        "LOCAL_CACHE_SIZE_IN_BYTES",
        Whole,
        "0",
        Sets("store.redis.deny_cache.enabled, store.redis.deny_cache.max_keys"),
    )
    .but("the deny cache is exact, and on unless the variable is 0; 128 bytes are one denial"),
    own("NEAR_LIMIT_RATIO", Decimal, "0.8", Sets("near_limit_ratio")).but("0 to 1, rounded to six decimals"),
    common("CACHE_KEY_PREFIX", Text, "", Sets("store.redis.key_prefix")).but(
        "`ratelimitd:` unless set; at most 64 visible ASCII characters without braces; the format of \
         the keys differs, so no counter is shared with `envoyproxy/ratelimit`",
    ),
    own("BACKEND_TYPE", Text, "redis", Sets("store.kind"))
        .but("`memcache` is refused: there is no memcached store"),
    own("STOP_CACHE_KEY_INCREMENT_WHEN_OVERLIMIT", Flag, "false", Sets("defaults.charging")).but(
        "`prepaid`: a denied request is charged to no limit, also not to the limit that denies it. A \
         rule whose cost is reported after the response (`apply_on_stream_done`) needs `charging: \
         postpaid`: without it, a cost above the remaining units is not recorded",
    ),
    own("USE_CALENDAR_MONTH_RATE_LIMIT", Flag, "false", Sets("defaults.month_calendar"))
        .but("`UTC`: months start on their first day in UTC, also those of limits in requests"),
    common("SHADOW_MODE", Flag, "false", Sets("shadow_mode")),
    common("QUOTA_MODE", Flag, "false", Sets("quota_mode")),
    // Redis.
    own("REDIS_SOCKET_TYPE", Text, "unix", Sets(SERVERS))
        .but("`tcp` or `unix`; unless set, the form of `REDIS_URL` decides"),
    common("REDIS_TYPE", Text, "SINGLE", Sets("store.redis.topology")),
    common(
        "REDIS_URL",
        Text,
        "/var/run/nutcracker/ratelimit.sock",
        Sets("store.redis.url, store.redis.sentinel.master"),
    )
    .but("`rediss://` and `host:port/database` work; never logged with its password")
    .secret(),
    common("REDIS_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    common("REDIS_AUTH", Text, "", Sets("store.redis.username, store.redis.password")).secret(),
    common("REDIS_TLS", Flag, "false", Sets(SERVERS)).but("`rediss://` in the URL"),
    common("REDIS_TLS_CLIENT_CERT", Text, "", Sets("store.redis.tls.cert_file, store.redis.tls.key_file")),
    common("REDIS_TLS_CLIENT_KEY", Text, "", Sets("store.redis.tls.cert_file, store.redis.tls.key_file")),
    common("REDIS_TLS_CACERT", Text, "", Sets("store.redis.tls.ca_file, store.redis.tls.system_authorities")),
    own("REDIS_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", Sets("store.redis.tls.verify_name")),
    own("REDIS_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    own("REDIS_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    own("REDIS_CLUSTER_PIPELINE_PARALLELISM", Whole, "1", Meaningless(PARALLELISM)),
    own("REDIS_PERSECOND", Flag, "false", Sets(PER_SECOND_SERVERS))
        .but("the limits with a period of one second; a request over both is decided as one"),
    common(
        "REDIS_SENTINEL_AUTH",
        Text,
        "",
        Sets("store.redis.sentinel.username, store.redis.sentinel.password"),
    )
    .secret(),
    common("REDIS_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    own("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL)).but(EMPTY_POOL_VALUES),
    own("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", STARTUP),
    own("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", STARTUP),
    own("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", STARTUP),
    // The second group of Redis servers.
    own("REDIS_PERSECOND_SOCKET_TYPE", Text, "unix", Sets(PER_SECOND_SERVERS))
        .but("`tcp` or `unix`; unless set, the form of `REDIS_PERSECOND_URL` decides"),
    own("REDIS_PERSECOND_TYPE", Text, "SINGLE", Sets("store.redis.per_second.topology")),
    own(
        "REDIS_PERSECOND_URL",
        Text,
        "/var/run/nutcracker/ratelimitpersecond.sock",
        Sets("store.redis.per_second.url, store.redis.per_second.sentinel.master"),
    )
    .but("as `REDIS_URL`")
    .secret(),
    own("REDIS_PERSECOND_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    own(
        "REDIS_PERSECOND_AUTH",
        Text,
        "",
        Sets("store.redis.per_second.username, store.redis.per_second.password"),
    )
    .secret(),
    own("REDIS_PERSECOND_TLS", Flag, "false", Sets(PER_SECOND_SERVERS))
        .but("`rediss://` in the URL; the files are those of `REDIS_TLS_*`"),
    own(
        "REDIS_PERSECOND_SENTINEL_AUTH",
        Text,
        "",
        Sets("store.redis.per_second.sentinel.username, store.redis.per_second.sentinel.password"),
    )
    .secret(),
    own("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    own("REDIS_PERSECOND_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    own("REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM", Whole, "1", Meaningless(PARALLELISM)),
    own("REDIS_PERSECOND_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    own("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL)).but(EMPTY_POOL_VALUES),
    // Memcached.
    common("MEMCACHE_HOST_PORT", List, "", ONLY_MEMCACHED),
    common("MEMCACHE_MAX_IDLE_CONNS", Whole, "2", ONLY_MEMCACHED),
    common("MEMCACHE_SRV", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_SRV_REFRESH", Duration, "0", ONLY_MEMCACHED),
    common("MEMCACHE_TLS", Flag, "false", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CLIENT_CERT", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CLIENT_KEY", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_CACERT", Text, "", ONLY_MEMCACHED),
    common("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", ONLY_MEMCACHED),
    // Metrics.
    own("USE_DOG_STATSD", Flag, "false", Sets("metrics.statsd.format, metrics.statsd.address")),
    own("USE_DOG_STATSD_MOGRIFIERS", List, "", Sets("metrics.statsd.mogrifiers"))
        .but(
            "`DOG_STATSD_MOGRIFIER_NAME_PATTERN`, `_NAME` and `_TAGS` are read for each name, as in \
             envoyproxy/ratelimit",
        ),
    own("USE_STATSD", Flag, "true", Sets(STATSD_ADDRESS))
        .but("beside `USE_PROMETHEUS` or `USE_DOG_STATSD` it need not be set to false"),
    common("STATSD_HOST", Text, "localhost", Sets(STATSD_ADDRESS)),
    common("STATSD_PORT", Whole, "8125", Sets(STATSD_ADDRESS)),
    common("EXTRA_TAGS", Map, "", Sets("metrics.extra_tags")).but(
        "labels of every metric; in envoyproxy/ratelimit they break the mapping for Prometheus. A tag without a value \
         is not used, with a warning",
    ),
    own("STATS_FLUSH_INTERVAL", Duration, "10s", Sets("metrics.statsd.flush_interval"))
        .but("`/metrics` is up to date at any time; what was counted is sent at the end, too"),
    own("DISABLE_STATS", Flag, "false", Sets("metrics.address, metrics.statsd.address"))
        .but("`off`; `/metrics` on the HTTP port stays, and costs nothing until it is read"),
    common("USE_PROMETHEUS", Flag, "false", Sets("metrics.address"))
        .but("`/metrics` on the HTTP port is always there, under the mapped names as well"),
    common("PROMETHEUS_ADDR", Text, ":9090", Sets("metrics.address"))
        .but("the service does not start if the port is in use; an empty value turns it off; no `/debug/pprof/`"),
    common("PROMETHEUS_PATH", Text, "/metrics", Sets("metrics.path")).but("an empty value is the default"),
    own(
        "PROMETHEUS_MAPPER_YAML",
        Text,
        "",
        Meaningless(
            "the file is not read: names and labels of the metrics stay those of the default \
         mapping; `PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS` sets the unit of the response \
         times",
        ),
    ),
    own("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", Flag, "false", Sets("metrics.response_time"))
        .but("a mapping with milliseconds, as Envoy Gateway mounts it, is replaced by this variable"),
    // Traces.
    common("TRACING_ENABLED", Flag, "false", TRACES_ENDPOINT)
        .but("one span for each decision call; health checks and calls to Redis have none"),
    common("TRACING_SERVICE_NAME", Text, "RateLimit", Sets("traces.service_name")),
    common("TRACING_SERVICE_NAMESPACE", Text, "", Sets("traces.service_namespace")),
    common("TRACING_SERVICE_INSTANCE_ID", Text, "", Sets("traces.service_instance_id")),
    common("TRACING_EXPORTER_PROTOCOL", Text, "http", Sets("traces.protocol")),
    common("TRACING_SAMPLING_RATE", Decimal, "1", Sets("traces.sampled_share"))
        .but("rounded to six decimals"),
];

/// Variables that its libraries read. They do not reveal whose environment it is.
pub(super) static LIBRARIES: [RatelimitVariable; 21] = [
    common("STATSD_PROTOCOL", Text, "tcp", Sets(STATSD_ADDRESS)),
    common("DD_ENTITY_ID", Text, "", STATSD_TAGS).but("with `USE_DOG_STATSD`, as in envoyproxy/ratelimit"),
    common("DD_ENV", Text, "", STATSD_TAGS).but("the same"),
    common("DD_SERVICE", Text, "", STATSD_TAGS).but("the same"),
    common("DD_VERSION", Text, "", STATSD_TAGS).but("the same"),
    common("OTEL_EXPORTER_OTLP_ENDPOINT", Text, "", TRACES_ENDPOINT)
        .but("with `TRACING_ENABLED`; unless set, `https://localhost:4318` or, with gRPC, `:4317`"),
    common("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Text, "", TRACES_ENDPOINT),
    common("OTEL_EXPORTER_OTLP_HEADERS", Text, "", TRACES_HEADERS).secret(),
    common("OTEL_EXPORTER_OTLP_TRACES_HEADERS", Text, "", TRACES_HEADERS).secret(),
    common("OTEL_EXPORTER_OTLP_TIMEOUT", Text, "", TRACES_TIMEOUT).but("10 to 60000 ms"),
    common("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Text, "", TRACES_TIMEOUT).but("the same"),
    common("OTEL_EXPORTER_OTLP_CERTIFICATE", Text, "", TRACES_CA),
    common("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Text, "", TRACES_CA),
    common("OTEL_EXPORTER_OTLP_COMPRESSION", Text, "", NO_COMPRESSION),
    common("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", Text, "", NO_COMPRESSION),
    common("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    common("OTEL_EXPORTER_OTLP_INSECURE", Text, "", SCHEME_DECIDES),
    common("OTEL_EXPORTER_OTLP_TRACES_INSECURE", Text, "", SCHEME_DECIDES),
];
