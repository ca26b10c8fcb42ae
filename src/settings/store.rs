//! `store.*`: where the counters are.

use store::deny_cache::DenyCacheOptions;
use store::memory::MemoryOptions;
use store::redis::{RedisOptions, Topology};
use strum::{EnumString, IntoStaticStr, VariantNames};

use super::parsers::{duration, flag, named, positive};
use super::reader::Reader;
use super::redis::redis_from_reader;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub kind: StoreKind,
    /// `store.memory.*`: for `memory`, and for limits whose failure policy is `local`.
    pub memory: MemoryOptions,
    pub redis: RedisOptions,
    /// `store.redis.ready_in_outage`: whether the process stays ready while Redis does not answer.
    pub ready_in_outage: bool,
    /// `store.redis.deny_cache.*`; `None` where `store.redis.deny_cache.enabled` is false.
    pub deny_cache: Option<DenyCacheOptions>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum StoreKind {
    Memory,
    Redis,
}

impl StoreKind {
    /// The name in the settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl Store {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let kind = reader.take("store.kind", "memory", named());
        let max_keys = reader.take("store.memory.max_keys", "1000000", positive(1_000_000_000));
        let (redis, conflicts) = redis_from_reader(reader);
        if kind == StoreKind::Redis {
            conflicts.into_iter().for_each(|conflict| reader.add_problem(conflict));
        }
        Self {
            kind,
            memory: MemoryOptions { max_keys, ..MemoryOptions::default() },
            ready_in_outage: reader.take("store.redis.ready_in_outage", "true", flag()),
            deny_cache: deny_cache(reader, redis.topology == Topology::Cluster || redis.per_second.is_some()),
            redis,
        }
    }
}

fn deny_cache(reader: &mut Reader, store_reserves: bool) -> Option<DenyCacheOptions> {
    let enabled = reader.take("store.redis.deny_cache.enabled", "true", flag());
    let options = DenyCacheOptions {
        max_age: reader.take("store.redis.deny_cache.max_age", "1s", duration("1ms", "60s")),
        max_keys: reader.take("store.redis.deny_cache.max_keys", "100000", positive(100_000_000)),
        // `response.*`, which is read later, may require the other limits.
        skip_other_limits: reader.take("store.redis.deny_cache.skip_other_limits", "false", flag()),
        store_reserves,
    };
    enabled.then_some(options)
}
