//! `store.*`: where the counters live, and the bounds within which decisions stay exact and memory stays bounded.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use super::kinds::{Kind, duration, flag, one_of, positive, positive_u32};
use super::reader::Reader;
use super::redis_server::RedisServer;

/// In front of every counter's key; longer ones cost memory on each of them.
const LONGEST_PREFIX: usize = 64;

/// Where the counters live.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// `store.kind`
    pub kind: StoreKind,
    /// `store.memory.*`; used by `memory`, and by limits whose failure policy is `local`.
    pub memory: MemoryStore,
    /// `store.redis.*`
    pub redis: RedisStore,
}

/// The kind of store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreKind {
    /// This process's own memory.
    Memory,
    /// A Redis server.
    Redis,
}

/// The counters in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryStore {
    /// `store.memory.max_keys`: counters kept, at most.
    pub max_keys: NonZeroUsize,
}

/// The counters in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisStore {
    /// `store.redis.topology`, `.url`, `.username`, `.password`, `.sentinel.*` and `.tls.*`
    pub server: RedisServer,
    /// `store.redis.key_prefix`: in front of every key. At most 64 visible ASCII characters, no braces.
    pub key_prefix: String,
    /// `store.redis.timeout`: how long one decision may take, waiting included. 100 us to 10 s.
    pub timeout: Duration,
    /// `store.redis.connections`: connections of each worker, 1 to 64.
    pub connections: NonZeroUsize,
    /// `store.redis.max_batch`: counters that share one script call, at most; a request that asks more goes alone. 1 to 1,024.
    pub max_batch: NonZeroUsize,
    /// `store.redis.max_queue`: requests of each worker that wait for a script call, at most.
    pub max_queue: NonZeroUsize,
    /// `store.redis.breaker.*`; `None` where `store.redis.breaker.enabled` is false.
    pub breaker: Option<Breaker>,
    /// `store.redis.deny_cache.*`
    pub deny_cache: DenyCache,
}

/// When a server that does not decide is not asked any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// `store.redis.breaker.failures`: calls that fail in a row, 1 to 1,000.
    pub failures: NonZeroU32,
    /// `store.redis.breaker.error_percent`: share of the calls that fail within the window, 1 to 100.
    pub error_percent: NonZeroU32,
    /// `store.redis.breaker.window`: how far back that share looks. 100 ms to 1 min.
    pub window: Duration,
    /// `store.redis.breaker.pause`: the longest time between two probes. 10 ms to 10 s.
    pub pause: Duration,
}

/// Denials that are repeated without Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DenyCache {
    /// `store.redis.deny_cache.enabled`
    pub enabled: bool,
    /// `store.redis.deny_cache.max_age`: how long a denial is repeated, at most. 1 ms to 60 s.
    pub max_age: Duration,
    /// `store.redis.deny_cache.max_keys`: denials kept, at most.
    pub max_keys: NonZeroUsize,
}

impl Store {
    pub(super) fn read(reader: &mut Reader) -> Self {
        let kinds = [("memory", StoreKind::Memory), ("redis", StoreKind::Redis)];
        let kind = reader.read("store.kind", "memory", one_of(kinds));
        Self {
            kind,
            memory: MemoryStore {
                max_keys: reader.read("store.memory.max_keys", "1000000", positive(1_000_000_000)),
            },
            redis: RedisStore::read(reader, kind),
        }
    }
}

impl RedisStore {
    fn read(reader: &mut Reader, kind: StoreKind) -> Self {
        Self {
            server: RedisServer::read(reader, kind),
            key_prefix: reader.read("store.redis.key_prefix", "ratelimitd:", key_prefix()),
            timeout: reader.read("store.redis.timeout", "15ms", duration("100us", "10s")),
            connections: reader.read("store.redis.connections", "2", positive(64)),
            max_batch: reader.read("store.redis.max_batch", "128", positive(1_024)),
            max_queue: reader.read("store.redis.max_queue", "8192", positive(1_000_000)),
            breaker: Breaker::read(reader),
            deny_cache: DenyCache::read(reader),
        }
    }
}

impl DenyCache {
    fn read(reader: &mut Reader) -> Self {
        Self {
            enabled: reader.read("store.redis.deny_cache.enabled", "true", flag()),
            max_age: reader.read("store.redis.deny_cache.max_age", "1s", duration("1ms", "60s")),
            max_keys: reader.read("store.redis.deny_cache.max_keys", "100000", positive(100_000_000)),
        }
    }
}

impl Breaker {
    fn read(reader: &mut Reader) -> Option<Self> {
        let enabled = reader.read("store.redis.breaker.enabled", "true", flag());
        let breaker = Self {
            failures: reader.read("store.redis.breaker.failures", "5", positive_u32(1_000)),
            error_percent: reader.read("store.redis.breaker.error_percent", "50", positive_u32(100)),
            window: reader.read("store.redis.breaker.window", "1s", duration("100ms", "1m")),
            pause: reader.read("store.redis.breaker.pause", "100ms", duration("10ms", "10s")),
        };
        enabled.then_some(breaker)
    }
}

/// Braces would decide the cluster slot in place of the counter's own; control characters would spoil tools.
fn key_prefix() -> Kind<String> {
    let expected = format!("at most {LONGEST_PREFIX} visible ASCII characters, no braces");
    Kind::new(expected, |text| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        (text.len() <= LONGEST_PREFIX && text.bytes().all(is_plain)).then(|| text.to_owned())
    })
}
