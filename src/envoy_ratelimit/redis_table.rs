//! The variables of the two groups of Redis servers.

use super::variable::Effect::{Meaningless, Sets};
use super::variable::RatelimitVariable;
use super::variable::ValueKind::{Duration, Flag, Text, Whole};

const SERVERS: &[&str] = &["store.redis.url"];

pub(super) static REDIS: [RatelimitVariable; 20] = [
    RatelimitVariable::own("REDIS_SOCKET_TYPE", Text, "unix", Sets(SERVERS))
        .but("`tcp` or `unix`; unless set, the form of `REDIS_URL` decides"),
    RatelimitVariable::common("REDIS_TYPE", Text, "SINGLE", Sets(&["store.redis.topology"])),
    RatelimitVariable::common(
        "REDIS_URL",
        Text,
        "/var/run/nutcracker/ratelimit.sock",
        Sets(&["store.redis.url", "store.redis.sentinel.master"]),
    )
    .but("`rediss://` and `host:port/database` work; never logged with its password")
    .secret(),
    RatelimitVariable::common("REDIS_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    RatelimitVariable::common(
        "REDIS_AUTH",
        Text,
        "",
        Sets(&["store.redis.username", "store.redis.password"]),
    )
    .secret(),
    RatelimitVariable::common("REDIS_TLS", Flag, "false", Sets(SERVERS)).but("`rediss://` in the URL"),
    RatelimitVariable::common(
        "REDIS_TLS_CLIENT_CERT",
        Text,
        "",
        Sets(&["store.redis.tls.cert_file", "store.redis.tls.key_file"]),
    ),
    RatelimitVariable::common(
        "REDIS_TLS_CLIENT_KEY",
        Text,
        "",
        Sets(&["store.redis.tls.cert_file", "store.redis.tls.key_file"]),
    ),
    RatelimitVariable::common(
        "REDIS_TLS_CACERT",
        Text,
        "",
        Sets(&["store.redis.tls.ca_file", "store.redis.tls.system_authorities"]),
    ),
    RatelimitVariable::own(
        "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION",
        Flag,
        "false",
        Sets(&["store.redis.tls.verify_name"]),
    ),
    RatelimitVariable::own("REDIS_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    RatelimitVariable::own("REDIS_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    RatelimitVariable::own("REDIS_CLUSTER_PIPELINE_PARALLELISM", Whole, "1", Meaningless(PARALLELISM)),
    RatelimitVariable::own("REDIS_PERSECOND", Flag, "false", Sets(PER_SECOND_SERVERS))
        .but("the limits with a period of one second; a request over both is decided as one"),
    RatelimitVariable::common(
        "REDIS_SENTINEL_AUTH",
        Text,
        "",
        Sets(&["store.redis.sentinel.username", "store.redis.sentinel.password"]),
    )
    .secret(),
    RatelimitVariable::common("REDIS_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    RatelimitVariable::own("REDIS_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL))
        .but(EMPTY_POOL_VALUES),
    RatelimitVariable::own("REDIS_STARTUP_INITIAL_INTERVAL", Duration, "1s", STARTUP),
    RatelimitVariable::own("REDIS_STARTUP_MAX_INTERVAL", Duration, "30s", STARTUP),
    RatelimitVariable::own("REDIS_STARTUP_MAX_ELAPSED_TIME", Duration, "0", STARTUP),
];

const STARTUP: super::variable::Effect = Meaningless(
    "the service starts without Redis, is not ready, and tries ten times a second until Redis answers",
);

const PER_SECOND_SERVERS: &[&str] = &["store.redis.per_second.url"];

pub(super) static REDIS_PER_SECOND: [RatelimitVariable; 12] = [
    RatelimitVariable::own("REDIS_PERSECOND_SOCKET_TYPE", Text, "unix", Sets(PER_SECOND_SERVERS))
        .but("`tcp` or `unix`; unless set, the form of `REDIS_PERSECOND_URL` decides"),
    RatelimitVariable::own(
        "REDIS_PERSECOND_TYPE",
        Text,
        "SINGLE",
        Sets(&["store.redis.per_second.topology"]),
    ),
    RatelimitVariable::own(
        "REDIS_PERSECOND_URL",
        Text,
        "/var/run/nutcracker/ratelimitpersecond.sock",
        Sets(&["store.redis.per_second.url", "store.redis.per_second.sentinel.master"]),
    )
    .but("as `REDIS_URL`")
    .secret(),
    RatelimitVariable::own("REDIS_PERSECOND_POOL_SIZE", Whole, "10", Meaningless(POOL_SIZE)),
    RatelimitVariable::own(
        "REDIS_PERSECOND_AUTH",
        Text,
        "",
        Sets(&["store.redis.per_second.username", "store.redis.per_second.password"]),
    )
    .secret(),
    RatelimitVariable::own("REDIS_PERSECOND_TLS", Flag, "false", Sets(PER_SECOND_SERVERS))
        .but("`rediss://` in the URL; the files are those of `REDIS_TLS_*`"),
    RatelimitVariable::own(
        "REDIS_PERSECOND_SENTINEL_AUTH",
        Text,
        "",
        Sets(&["store.redis.per_second.sentinel.username", "store.redis.per_second.sentinel.password"]),
    )
    .secret(),
    RatelimitVariable::own("REDIS_PERSECOND_PIPELINE_WINDOW", Duration, "0", Meaningless(WINDOW)),
    RatelimitVariable::own("REDIS_PERSECOND_PIPELINE_LIMIT", Whole, "0", Meaningless(PIPELINE_LIMIT)),
    RatelimitVariable::own(
        "REDIS_PERSECOND_CLUSTER_PIPELINE_PARALLELISM",
        Whole,
        "1",
        Meaningless(PARALLELISM),
    ),
    RatelimitVariable::own("REDIS_PERSECOND_TIMEOUT", Duration, "10s", Meaningless(DIAL_TIMEOUT)),
    RatelimitVariable::own("REDIS_PERSECOND_POOL_ON_EMPTY_BEHAVIOR", Text, "WAIT", Meaningless(NO_POOL))
        .but(EMPTY_POOL_VALUES),
];

const POOL_SIZE: &str = "requests share calls, so `store.redis.connections` (2 for each worker) is enough";
const WINDOW: &str =
    "requests that arrive while a call is in flight share the next one; a wait would save nothing";
const PIPELINE_LIMIT: &str = "it has no effect there either; `store.redis.max_batch` bounds a batch";
const PARALLELISM: &str = "the nodes of a cluster are always asked at the same time";
const DIAL_TIMEOUT: &str =
    "it bounds connecting only; `store.redis.timeout` bounds each decision, and connecting with it";
const NO_POOL: &str = "there is no pool that could be empty; a full queue answers at once";
const EMPTY_POOL_VALUES: &str = "`CREATE` and `ERROR`, which end the start there, are accepted";
