//! Counts a decision for each of its limits: the outcome, and answers by failure policy. `envoy_ratelimit/` counts the
//! hits that envoyproxy/ratelimit counts. `limit_families` creates the meters and exports `limit_counts`.

use std::collections::HashMap;
use std::sync::Arc;

use engine::{
    ChargedLimit, Code, DecidedBy, Decision, Derivation, FailurePolicy, Limit, LimitResult, Plan, Quantity,
    Role, Verdict,
};
use prometheus::IntCounter;

use super::denied_keys::DeniedKeys;
use super::exceptions::ExceptionCounts;
use super::family::CountersBy;
use super::limit_counts::{LimitCounts, SettleCounts, SlotCounts};
use super::requests::RequestResult;
use crate::ledger::{LimitLabels, WorkerLedger};
use crate::notify::WorkerNotices;
use crate::telemetry::envoy_ratelimit::RuleHits;

/// Counters of every limit of a rule set, looked up once when the rules are applied.
#[derive(Debug)]
pub struct LimitMeters {
    /// By `LimitId`; the last one is for per-request overrides. `None` for unlimited rules, which are not counted.
    pub(super) each: Vec<Option<Meter>>,
    /// By domain name.
    pub(super) exceptions: HashMap<Arc<str>, Arc<ExceptionCounts>>,
    pub(super) shadowed: IntCounter,
    pub(super) results: CountersBy<RequestResult>,
    pub(super) without_limit: IntCounter,
    pub(super) near_limit_ppm: u32,
    /// Maximum paths with values, of which a rule's hits are counted separately.
    pub(super) values_per_rule: usize,
}

#[derive(Debug)]
pub(super) struct Meter {
    pub(super) counts: Arc<LimitCounts>,
    /// The kernel of the rule's limit; [`Quantity::Unlimited`] for limits in requests.
    pub(super) rule: Quantity,
    pub(super) policy: FailurePolicy,
    pub(super) hits: Arc<RuleHits>,
    /// `None` for a limit without `settle`.
    pub(super) settles: Option<Arc<SettleCounts>>,
    /// Instead of `settles`, for a concurrency limit.
    pub(super) slots: Option<Arc<SlotCounts>>,
    /// `None` for a limit without `ledger`.
    pub(super) booked: Option<Arc<LimitLabels>>,
}

impl LimitMeters {
    /// Counts a decision, once for its request and once per charge. A settle is not a hit of its limit, and is counted
    /// separately. Keys of charges over their limit are counted in `denied`; limits with `ledger` are booked, and those
    /// with `notify` looked at.
    pub fn record(
        &self,
        decision: &Decision,
        denied: &DeniedKeys,
        (ledger, notices): (&WorkerLedger, &WorkerNotices),
    ) {
        if decision.shadowed {
            self.shadowed.inc();
        }
        let mut is_by_policy = false;
        for (charged, result) in decision.charges() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            if let Some(limit) = &meter.booked {
                ledger.book(limit, decision, (&charged, result.outcome));
            }
            if !charged.limit.spec.notify.is_empty() {
                notices.look(decision, &charged, result.outcome);
            }
            if let Some(slots) = &meter.slots {
                slots.record(decision, &charged, result.outcome);
            }
            if charged.role == Role::Settle {
                if let Some(settles) = &meter.settles {
                    settles.record(decision.settle(charged.index));
                }
                continue;
            }
            if let Some(settles) = &meter.settles
                && decision.grant_in_receipt(&charged).is_some()
            {
                settles.record_receipt();
            }
            let near_above = self.near_above(charged.limit);
            is_by_policy |= meter.record(&result, near_above);
            if let Some(announced) = result.announced() {
                meter.counts.record_announced(announced);
            }
            if result.reserve.is_some_and(|kind| meter.counts.record_reserve(kind)) {
                warn_of_unchecked_charges(&charged);
            }
            if result.outcome.verdict == Verdict::Over {
                denied.count(&meter.counts, meter.rule, decision, &charged);
            }
            meter.hits.record(&charged, &result, near_above, self.values_per_rule);
        }
        self.results.count(match decision.overall {
            Code::OverLimit => RequestResult::Denied,
            Code::Ok if is_by_policy => RequestResult::OkByPolicy,
            Code::Ok => RequestResult::Ok,
        });
    }

    /// Counts a request without a limit. `is_known`: `true` if its domain has rules.
    pub fn record_without_limit(&self, is_known: bool) {
        self.results.count(RequestResult::Ok);
        if is_known {
            self.without_limit.inc();
        }
    }

    /// Counts a request that fails because the store did not answer: an error for each of its limits, and an answer by
    /// policy for limits with the policy `error`, which made it fail.
    pub fn record_failure(&self, plan: &Plan, ledger: &WorkerLedger) {
        for charged in plan.charged() {
            let Some(meter) = self.meter(charged.limit) else { continue };
            if let Some(limit) = &meter.booked {
                ledger.book_failure(limit, plan, &charged);
            }
            if charged.role == Role::Settle {
                if let Some(settles) = &meter.settles {
                    settles.record(None);
                }
                continue;
            }
            meter.counts.error.add(1);
            if meter.policy == FailurePolicy::Error {
                meter.counts.record_policy(meter.policy);
            }
            meter.hits.record_undecided(&charged, self.values_per_rule);
        }
    }

    /// Counts a request whose limits exceptions or tiers have changed.
    pub fn record_exceptions(&self, domain: &str, derivations: &[Derivation]) {
        if let Some(counts) = self.exceptions.get(domain) {
            counts.record(derivations);
        }
    }

    fn meter(&self, limit: &Limit) -> Option<&Meter> {
        self.each.get(limit.id.0 as usize)?.as_ref()
    }

    /// The limit is nearly exhausted if more units than this are used.
    fn near_above(&self, limit: &Limit) -> u64 {
        let (capacity, share) = (limit.spec.capacity(), u64::from(self.near_limit_ppm));
        // Splits off the millions, so that the product fits.
        (capacity / 1_000_000).saturating_mul(share).saturating_add(capacity % 1_000_000 * share / 1_000_000)
    }
}

fn warn_of_unchecked_charges(charged: &ChargedLimit<'_>) {
    let domain = charged.rule.map_or("", |rule| &rule.domain);
    tracing::warn!(
        domain,
        limit = &*charged.limit.label,
        "limit with reserve receives more than two charges per check; unchecked charges return units they \
         never took. Send a check (hits_addend 0) before each request, or remove reserve"
    );
}

impl Meter {
    /// Returns `true` if a failure policy decided.
    fn record(&self, result: &LimitResult<'_>, near_above: u64) -> bool {
        let outcome = result.outcome;
        let is_by_policy = matches!(outcome.decided_by, DecidedBy::Policy(_));
        let used = result.limit.spec.capacity().saturating_sub(outcome.report.remaining);
        let counts = &self.counts;
        let count = match outcome.verdict {
            Verdict::Over if result.never_denies() => &counts.shadow,
            Verdict::Over => &counts.over_limit,
            // The remaining units in a policy's answer are not the limit's.
            Verdict::Fits if used > near_above && !is_by_policy => &counts.near_limit,
            Verdict::Fits => &counts.ok,
        };
        count.add(1);
        if is_by_policy {
            counts.record_policy(self.policy);
        }
        is_by_policy
    }
}
