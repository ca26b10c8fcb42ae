//! The variables of memcached, metrics and traces.

use super::variable::Effect::{Meaningless, Refused};
use super::variable::ValueKind::{Decimal, Duration, Flag, List, Map, Text, Whole};
use super::variable::{Effect, ReferenceVariable};

const ONLY_MEMCACHED: Effect = Meaningless("only with BACKEND_TYPE=memcache, which is refused");

pub(super) static MEMCACHED: [ReferenceVariable; 9] = [
    ReferenceVariable::common("MEMCACHE_HOST_PORT", List, "", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_MAX_IDLE_CONNS", Whole, "2", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_SRV", Text, "", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_SRV_REFRESH", Duration, "0", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_TLS", Flag, "false", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_TLS_CLIENT_CERT", Text, "", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_TLS_CLIENT_KEY", Text, "", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_TLS_CACERT", Text, "", ONLY_MEMCACHED),
    ReferenceVariable::common("MEMCACHE_TLS_SKIP_HOSTNAME_VERIFICATION", Flag, "false", ONLY_MEMCACHED),
];

const NO_STATSD: &str = "there is no statsd client yet; `/metrics` on the HTTP port has all metrics";
const ONLY_STATSD: Effect = Meaningless("only with statsd or DogStatsD");

pub(super) static STATS: [ReferenceVariable; 13] = [
    ReferenceVariable::own(
        "USE_DOG_STATSD",
        Flag,
        "false",
        Refused { except: &["false"], reason: NO_STATSD },
    ),
    ReferenceVariable::own("USE_DOG_STATSD_MOGRIFIERS", List, "", ONLY_STATSD),
    ReferenceVariable::own("USE_STATSD", Flag, "true", Refused { except: &["false"], reason: NO_STATSD })
        .but("unless set, nothing is sent"),
    ReferenceVariable::common("STATSD_HOST", Text, "localhost", ONLY_STATSD),
    ReferenceVariable::common("STATSD_PORT", Whole, "8125", ONLY_STATSD),
    ReferenceVariable::common(
        "EXTRA_TAGS",
        Map,
        "",
        Refused { except: &[""], reason: "metrics have no tags of their own yet" },
    ),
    ReferenceVariable::own(
        "STATS_FLUSH_INTERVAL",
        Duration,
        "10s",
        Meaningless("metrics are read at once, and nothing is flushed"),
    ),
    ReferenceVariable::own(
        "DISABLE_STATS",
        Flag,
        "false",
        Meaningless("`/metrics` on the HTTP port costs nothing until it is read"),
    ),
    ReferenceVariable::common(
        "USE_PROMETHEUS",
        Flag,
        "false",
        Meaningless("`/metrics` on the HTTP port is always there, under the mapped names as well"),
    ),
    ReferenceVariable::common(
        "PROMETHEUS_ADDR",
        Text,
        ":9090",
        Refused { except: &[], reason: "`/metrics` has no port of its own yet" },
    ),
    ReferenceVariable::common(
        "PROMETHEUS_PATH",
        Text,
        "/metrics",
        Refused { except: &["/metrics"], reason: "the path of `/metrics` cannot be changed yet" },
    ),
    ReferenceVariable::own(
        "PROMETHEUS_MAPPER_YAML",
        Text,
        "",
        Refused { except: &[""], reason: "no mapping but the built-in one is known yet" },
    ),
    ReferenceVariable::own(
        "PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS",
        Flag,
        "false",
        Refused { except: &["false"], reason: "response times are in seconds" },
    ),
];

const NO_TRACES: Effect = Meaningless("only with TRACING_ENABLED=true, which is refused");

pub(super) static TRACES: [ReferenceVariable; 6] = [
    ReferenceVariable::common(
        "TRACING_ENABLED",
        Flag,
        "false",
        Refused { except: &["false"], reason: "there are no traces yet" },
    ),
    ReferenceVariable::common("TRACING_SERVICE_NAME", Text, "RateLimit", NO_TRACES),
    ReferenceVariable::common("TRACING_SERVICE_NAMESPACE", Text, "", NO_TRACES),
    ReferenceVariable::common("TRACING_SERVICE_INSTANCE_ID", Text, "", NO_TRACES),
    ReferenceVariable::common("TRACING_EXPORTER_PROTOCOL", Text, "http", NO_TRACES),
    ReferenceVariable::common("TRACING_SAMPLING_RATE", Decimal, "1", NO_TRACES),
];
