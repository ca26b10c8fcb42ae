//! What the console reads once a second, to keep the differences.

use std::sync::Arc;

use engine::ExceptionKind;

use super::Metrics;
use super::denied_keys::{CountedKeys, DeniedKeys, LimitRef};
use super::family::DurationBuckets;
use super::limit_counts::LimitCounts;
use super::ports::CloseReason;
use super::requests::{RequestFailure, RequestResult};
use super::series::Series;
use crate::ledger::LimitLabels;

/// Totals since the process started, and gauges.
#[derive(Clone, Debug, Default)]
pub struct MetricsSample {
    /// In the order of [`RequestResult::ALL`].
    pub results: [u64; RequestResult::ALL.len()],
    /// In the order of [`RequestFailure::ALL`].
    pub failures: [u64; RequestFailure::ALL.len()],
    /// Requests without a limit although their domain has rules.
    pub without_limit: u64,
    pub unknown_domains: u64,
    /// Requests that only `shadow_mode` admitted.
    pub shadowed: u64,
    /// Requests that an exception blocked; `exempt`: those with a limit from which an exception exempted them.
    pub blocked: u64,
    pub exempt: u64,
    /// Values banned by penalties.
    pub bans: u64,
    pub calls: DurationBuckets,
    /// Decisions of Redis.
    pub store_calls: DurationBuckets,
    /// Decisions that Redis refused because it was overloaded.
    pub store_overloads: u64,
    pub batches: u64,
    pub batched_requests: u64,
    pub queued: u64,
    /// Connections that were not accepted.
    pub refused_connections: u64,
    pub lost_log_lines: u64,
}

/// The limits of the current rules.
#[derive(Debug)]
pub struct LimitsInForce(Arc<Series<LimitLabels, LimitCounts>>);

/// Counts of the limits with the same labels, since the process started.
#[derive(Clone, Debug)]
pub struct LimitReading<'a> {
    pub limit: LimitRef,
    pub domain: &'a Arc<str>,
    pub rule: &'a Arc<str>,
    /// Decisions, also by failure policy, or without an answer.
    pub asked: u64,
    /// Decisions over the limit, denied or not.
    pub over: u64,
    /// Of these, the ones not denied: in shadow mode, of an announced limit, of a charge to a limit with `reserve`.
    pub shadow: u64,
}

impl LimitsInForce {
    pub fn readings(&self) -> impl Iterator<Item = LimitReading<'_>> {
        self.0.iter().map(|(labels, counts)| {
            let shadow = counts.shadow.get();
            let over = counts.over_limit.get() + shadow;
            let asked = counts.ok.get() + counts.near_limit.get() + over + counts.error.get();
            let (domain, rule) = (&labels.domain, &labels.rule);
            LimitReading { limit: LimitRef(Arc::clone(counts)), domain, rule, asked, over, shadow }
        })
    }
}

impl Metrics {
    pub fn sample(&self) -> MetricsSample {
        let families = &self.families;
        let (batches, batched_requests) = families.stores.batches_so_far();
        let accepts = [CloseReason::Full, CloseReason::Address, CloseReason::Handoff, CloseReason::Accept];
        MetricsSample {
            results: families.requests.results(),
            failures: families.requests.failures(),
            without_limit: families.limits.without_limit.get(),
            unknown_domains: families.unknown_domains.get(),
            shadowed: families.limits.shadowed.get(),
            blocked: families.exceptions.requests(ExceptionKind::Block),
            exempt: families.exceptions.requests(ExceptionKind::Exempt),
            bans: families.pauses.bans(),
            calls: families.requests.durations(),
            store_calls: families.stores.durations("redis"),
            store_overloads: families.stores.overloads("redis"),
            batches,
            batched_requests,
            queued: families.stores.queued(),
            refused_connections: families.connections.closed_for(&accepts),
            lost_log_lines: families.lost_log_lines.as_ref().map_or(0, |lost| lost()),
        }
    }

    /// The current limits with their counts.
    pub fn limits_in_force(&self) -> LimitsInForce {
        LimitsInForce(self.families.limits.decisions.in_force())
    }

    /// Counts the denied keys of one worker for [`take_denied_keys`](Self::take_denied_keys), which must then be called
    /// regularly.
    pub fn denied_keys(&self) -> DeniedKeys {
        self.families.denied_keys.add()
    }

    /// Takes the keys that each worker has denied since the last call.
    pub fn take_denied_keys(&self) -> Vec<CountedKeys> {
        self.families.denied_keys.take()
    }
}
