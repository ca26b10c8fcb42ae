//! The variables of memcached, metrics and traces.

use super::variable::Effect::{Meaningless, Sets};
use super::variable::ValueKind::{Decimal, Duration, Flag, List, Map, Text, Whole};
use super::variable::{Effect, RatelimitVariable};

const ONLY_MEMCACHED: Effect = Meaningless("only with BACKEND_TYPE=memcache, which is refused");

pub(super) static MEMCACHED: [RatelimitVariable; 9] = [
    RatelimitVariable::common("MEMCACHE_HOST_PORT", List, "", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_MAX_IDLE_CONNS", Whole, "2", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_SRV", Text, "", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_SRV_REFRESH", Duration, "0", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_TLS", Flag, "false", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_TLS_CLIENT_CERT", Text, "", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_TLS_CLIENT_KEY", Text, "", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_TLS_CACERT", Text, "", ONLY_MEMCACHED),
    RatelimitVariable::common("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", ONLY_MEMCACHED),
];

const STATSD_ADDRESS: &[&str] = &["metrics.statsd.address"];

const BUILT_IN_MAPPING: Effect = Meaningless(
    "the file is not read: names and labels of the metrics stay those of the default mapping; \
     `PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS` sets the unit of the response times",
);

pub(super) static STATS: [RatelimitVariable; 13] = [
    RatelimitVariable::own(
        "USE_DOG_STATSD",
        Flag,
        "false",
        Sets(&["metrics.statsd.format", "metrics.statsd.address"]),
    ),
    RatelimitVariable::own("USE_DOG_STATSD_MOGRIFIERS", List, "", Sets(&["metrics.statsd.mogrifiers"]))
        .but("`DOG_STATSD_MOGRIFIER_NAME_PATTERN`, `_NAME` and `_TAGS` are read for each name, like there"),
    RatelimitVariable::own("USE_STATSD", Flag, "true", Sets(STATSD_ADDRESS))
        .but("beside `USE_PROMETHEUS` or `USE_DOG_STATSD` it need not be set to false"),
    RatelimitVariable::common("STATSD_HOST", Text, "localhost", Sets(STATSD_ADDRESS)),
    RatelimitVariable::common("STATSD_PORT", Whole, "8125", Sets(STATSD_ADDRESS)),
    RatelimitVariable::common("EXTRA_TAGS", Map, "", Sets(&["metrics.extra_tags"]))
        .but(
            "labels of every metric; there they break the mapping for Prometheus. A tag without a value is not used, \
             with a warning",
        ),
    RatelimitVariable::own("STATS_FLUSH_INTERVAL", Duration, "10s", Sets(&["metrics.statsd.flush_interval"]))
        .but("`/metrics` is up to date at any time; what was counted is sent at the end, too"),
    RatelimitVariable::own(
        "DISABLE_STATS",
        Flag,
        "false",
        Sets(&["metrics.address", "metrics.statsd.address"]),
    )
    .but("`off`; `/metrics` on the HTTP port stays, and costs nothing until it is read"),
    RatelimitVariable::common("USE_PROMETHEUS", Flag, "false", Sets(&["metrics.address"]))
        .but("`/metrics` on the HTTP port is always there, under the mapped names as well"),
    RatelimitVariable::common("PROMETHEUS_ADDR", Text, ":9090", Sets(&["metrics.address"]))
        .but("a port in use ends the start; an empty value is no port; no `/debug/pprof/`"),
    RatelimitVariable::common("PROMETHEUS_PATH", Text, "/metrics", Sets(&["metrics.path"]))
        .but("an empty value is the default"),
    RatelimitVariable::own("PROMETHEUS_MAPPER_YAML", Text, "", BUILT_IN_MAPPING),
    RatelimitVariable::own(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Flag,
        "false",
        Sets(&["metrics.response_time"]),
    )
    .but("a mapping with milliseconds, as Envoy Gateway mounts it, is replaced by this variable"),
];

const TRACES_ENDPOINT: Effect = Sets(&["traces.endpoint"]);

pub(super) static TRACES: [RatelimitVariable; 6] = [
    RatelimitVariable::common("TRACING_ENABLED", Flag, "false", TRACES_ENDPOINT)
        .but("one span for each decision call; health checks and calls to Redis have none"),
    RatelimitVariable::common("TRACING_SERVICE_NAME", Text, "RateLimit", Sets(&["traces.service_name"])),
    RatelimitVariable::common("TRACING_SERVICE_NAMESPACE", Text, "", Sets(&["traces.service_namespace"])),
    RatelimitVariable::common("TRACING_SERVICE_INSTANCE_ID", Text, "", Sets(&["traces.service_instance_id"])),
    RatelimitVariable::common("TRACING_EXPORTER_PROTOCOL", Text, "http", Sets(&["traces.protocol"])),
    RatelimitVariable::common("TRACING_SAMPLING_RATE", Decimal, "1", Sets(&["traces.sampled_share"]))
        .but("rounded to six decimals"),
];

const STATSD_TAGS: Effect = Sets(&["metrics.statsd.tags"]);

const TRACES_HEADERS: Effect = Sets(&["traces.headers"]);
const TRACES_TIMEOUT: Effect = Sets(&["traces.timeout"]);
const TRACES_CA: Effect = Sets(&["traces.ca_file"]);
const NO_COMPRESSION: Effect = Meaningless("spans are sent uncompressed, which every collector takes");
const NO_CLIENT_CERTIFICATE: Effect =
    Meaningless("a collector that asks for a client certificate gets no spans");
const SCHEME_DECIDES: Effect = Meaningless("the scheme of the endpoint decides");

/// Read by the libraries of envoyproxy/ratelimit.
pub(super) static LIBRARIES: [RatelimitVariable; 21] = [
    RatelimitVariable::common("STATSD_PROTOCOL", Text, "tcp", Sets(STATSD_ADDRESS)),
    RatelimitVariable::common("DD_ENTITY_ID", Text, "", STATSD_TAGS).but("with `USE_DOG_STATSD`, like there"),
    RatelimitVariable::common("DD_ENV", Text, "", STATSD_TAGS).but("the same"),
    RatelimitVariable::common("DD_SERVICE", Text, "", STATSD_TAGS).but("the same"),
    RatelimitVariable::common("DD_VERSION", Text, "", STATSD_TAGS).but("the same"),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_ENDPOINT", Text, "", TRACES_ENDPOINT).but(
        "with `TRACING_ENABLED`; unless set, `https://localhost:4318` or, with gRPC, `:4317`, like there",
    ),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", Text, "", TRACES_ENDPOINT),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_HEADERS", Text, "", TRACES_HEADERS).secret(),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_HEADERS", Text, "", TRACES_HEADERS).secret(),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TIMEOUT", Text, "", TRACES_TIMEOUT).but("10 to 60000 ms"),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", Text, "", TRACES_TIMEOUT).but("the same"),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_CERTIFICATE", Text, "", TRACES_CA),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", Text, "", TRACES_CA),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_COMPRESSION", Text, "", NO_COMPRESSION),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_COMPRESSION", Text, "", NO_COMPRESSION),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", Text, "", NO_CLIENT_CERTIFICATE),
    RatelimitVariable::common(
        "OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE",
        Text,
        "",
        NO_CLIENT_CERTIFICATE,
    ),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY", Text, "", NO_CLIENT_CERTIFICATE),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_INSECURE", Text, "", SCHEME_DECIDES),
    RatelimitVariable::common("OTEL_EXPORTER_OTLP_TRACES_INSECURE", Text, "", SCHEME_DECIDES),
];
