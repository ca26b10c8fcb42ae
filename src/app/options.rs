//! Server options that are not settings: constants, and the number of cores.

use std::num::NonZeroUsize;
use std::thread;
use std::time::Duration;

use store::redis::{RedisOptions, Topology};

use crate::grpc::GrpcOptions;
use crate::settings::Settings;

/// The bytes of the requests of all ports that have arrived in part. Room for 64 of the longest messages that settings
/// allow.
pub(super) const MAX_UNFINISHED_BYTES: usize = 64 * 1024 * 1024;
/// How long a burst lasts at most until all of its calls have started, in timeouts of the store: a little less than the
/// breaker takes to open when Redis hangs. If calls still wait then, more arrive than can be decided.
const BURST_IN_TIMEOUTS: u32 = 3;
/// The longest hold, for a store with a long timeout.
const LONGEST_HOLD: Duration = Duration::from_millis(100);
/// A Redis Cluster has at least three primaries.
const LEAST_PRIMARIES: usize = 3;
/// Decisions take milliseconds, so a request that takes longer than this hangs.
pub(super) const FINISH_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn grpc_options(Settings { server, store, .. }: &Settings) -> GrpcOptions {
    let cores = thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    GrpcOptions {
        workers: server.workers.unwrap_or(cores),
        decisions_at_once: decisions_at_once(&store.redis),
        hold_at_most: store.redis.timeout.saturating_mul(BURST_IN_TIMEOUTS).min(LONGEST_HOLD),
        max_connection_age: server.grpc.max_connection_age,
        finish_within: FINISH_WITHIN,
    }
}

/// The number of decisions that Redis gets at once from a worker, if each of its connections has a full batch in
/// flight. More decisions would only wait in the queue while their time limits run. The queue must have room for all of
/// them: they may arrive before the first is sent.
fn decisions_at_once(redis: &RedisOptions) -> NonZeroUsize {
    let servers = match redis.topology {
        Topology::Standalone | Topology::Sentinel(_) => 1,
        Topology::Cluster => LEAST_PRIMARIES,
    };
    let decisions = redis.max_batch.saturating_mul(redis.connections as usize).saturating_mul(servers);
    NonZeroUsize::new(decisions.min(redis.max_queue)).unwrap_or(NonZeroUsize::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_decisions_are_under_way_than_the_queue_takes_at_once() {
        for (topology, max_queue, expected) in [
            (Topology::Standalone, 8_192, 256),
            (Topology::Cluster, 8_192, 768),
            (Topology::Standalone, 256, 256),
            (Topology::Standalone, 100, 100),
            (Topology::Cluster, 300, 300),
            (Topology::Standalone, 1, 1),
        ] {
            let redis = RedisOptions { topology, max_queue, ..RedisOptions::default() };
            assert_eq!(decisions_at_once(&redis).get(), expected, "{redis:?}");
        }
    }
}
