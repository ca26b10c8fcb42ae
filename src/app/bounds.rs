//! Bounds of the process that are not settings: what it asks of the system (small pages, and open files, which are
//! divided among connections and everything else), and constants of its servers.

use std::num::NonZeroUsize;
use std::time::Duration;
use std::{io, thread};

use rustix::process::{Resource, getrlimit, setrlimit};
use store::redis::{RedisOptions, Topology};

use crate::grpc::GrpcOptions;
use crate::net::ConnectionBounds;
use crate::settings::Settings;
use crate::telemetry::metrics::Port;

/// Far more connections than a fleet of Envoys opens; each costs some tens of kilobytes.
const MAX_GRPC_CONNECTIONS: usize = 10_000;
/// Enough for probes, scrapers and people.
const MAX_HTTP_CONNECTIONS: usize = 1_024;

/// Maximum connections of each port, in the order of [`Port`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PortBounds([ConnectionBounds; 4]);

/// Raises the soft limit of open files to the hard one. Returns the resulting limit, and logs both.
pub(super) fn raise_open_files() -> usize {
    let before = getrlimit(Resource::Nofile);
    let mut raised = before;
    raised.current = before.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(%error, "cannot raise the soft limit of open files to the hard limit");
    }
    let now = getrlimit(Resource::Nofile);
    // `None` means unlimited.
    let number =
        |limit: Option<u64>| limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(usize::MAX);
    let limit = number(now.current);
    tracing::info!(limit, soft = number(before.current), hard = number(before.maximum), "open file limit");
    limit
}

impl PortBounds {
    /// Reserves a quarter of the open files for Redis, rule files and listeners, so that connections never take it. The
    /// port for metrics only, which few processes have, uses a little of this quarter.
    pub(super) fn within(open_files: usize, per_address: Option<NonZeroUsize>) -> Self {
        let http = (open_files / 8).clamp(1, MAX_HTTP_CONNECTIONS);
        let admin = (open_files / 16).clamp(1, MAX_HTTP_CONNECTIONS);
        let metrics = (open_files / 64).clamp(1, MAX_HTTP_CONNECTIONS);
        let taken = (open_files / 4).saturating_add(http + admin);
        let grpc = open_files.saturating_sub(taken).clamp(1, MAX_GRPC_CONNECTIONS);
        let bounds = |total: usize| {
            let half = total.div_ceil(2);
            let per_address = per_address.map_or(half, |most| most.get().min(total));
            ConnectionBounds { total, per_address }
        };
        Self([grpc, http, admin, metrics].map(bounds))
    }

    pub(super) fn of(&self, port: Port) -> ConnectionBounds {
        self.0[port as usize]
    }
}

/// Makes the kernel back the memory of this process with pages of 4 KiB only. Memory in use stays as it is, so call it
/// first.
///
/// The allocator keeps each thread's free memory between memory in use. A huge page of 2 MiB is resident as a whole,
/// even if a thread uses one block of it: the service then needs twice the memory, in steps that look like a leak.
///
/// # Errors
/// If the kernel refuses, as one built without huge pages does.
pub fn refuse_huge_pages() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    rustix::thread::disable_transparent_huge_pages(true)?;
    Ok(())
}

/// Bytes of partially received requests on all ports: room for 64 of the longest messages that settings allow.
pub(super) const MAX_UNFINISHED_BYTES: usize = 64 * 1024 * 1024;
/// Maximum time for all calls of a burst to start, in store timeouts: a little less than the breaker takes to open when
/// Redis hangs. If calls still wait then, more arrive than can be decided.
const BURST_IN_TIMEOUTS: u32 = 3;
/// Longest hold, for a store with a long timeout.
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
        fast: server.grpc.fast,
    }
}

/// Returns how many decisions Redis gets from a worker if each of its connections has a full batch in flight. More
/// would only wait in the queue while their time limits run. The queue must have room for all of them: they may arrive
/// before the first is sent.
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
    fn the_ports_leave_a_quarter_of_the_open_files() {
        // (open files, connections for gRPC, HTTP and admin)
        let table = [
            (0, [1, 1, 1]),
            (256, [144, 32, 16]),
            (1_024, [576, 128, 64]),
            (20_000, [10_000, 1_024, 1_024]),
            (usize::MAX, [10_000, 1_024, 1_024]),
        ];
        for (open_files, expected) in table {
            let bounds = PortBounds::within(open_files, None);
            let total = [Port::Grpc, Port::Http, Port::Admin].map(|port| bounds.of(port).total);
            assert_eq!(total, expected, "{open_files} open files");
            if open_files >= 256 {
                assert!(total.iter().sum::<usize>() <= open_files / 4 * 3, "{open_files} open files");
            }
        }
    }

    #[test]
    fn one_address_gets_half_of_a_port_or_as_much_as_set() {
        let of = |per_address| {
            let bounds = PortBounds::within(1_024, NonZeroUsize::new(per_address));
            [Port::Grpc, Port::Http, Port::Admin].map(|port| bounds.of(port).per_address)
        };
        assert_eq!((of(0), of(100), of(9_999)), ([288, 64, 32], [100, 100, 64], [576, 128, 64]));
    }

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
