//! Decides a request: validates it, plans it by the current rules, asks the store, counts the decision. Awaits only the
//! store, and does not depend on a wire format. Entry point: [`Handler`], shared by all transports.

use std::future::Future;
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use arc_swap::ArcSwap;
use base::clock::Clock;
use engine::{
    Bounds, Charges, Code, Decision, Enforcement, Exceptions, LiveRows, Outcomes, Plan, PlannedAt,
    RawRequest, Request, RuleSet, Store, StoreError,
};
use futures_util::future::join_all;
use parking_lot::Mutex;
use strum::{EnumString, VariantNames};

use super::{Answer, CallOrigin, Failures, NoDecision, PauseEvents, ResponseOptions, Rights};
use crate::ledger::WorkerLedger;
use crate::notify::WorkerNotices;
use crate::telemetry::metrics::{DeniedKeys, LimitMeters, Metrics, RequestFailure, RequestMeter};
use crate::telemetry::traces::{CallSpan, Tracer};

/// Handles the decision calls (`ShouldRateLimit`, `/json` and `/check`): validates a request, decides it, counts the
/// call.
#[derive(Debug)]
pub struct Handler<S> {
    pub limiter: Limiter<S>,
    pub bounds: Bounds,
    /// Maximum gRPC message and maximum `/json` body.
    pub max_message_bytes: usize,
    pub response: ResponseOptions,
    pub meter: RequestMeter,
    pub tracer: Tracer,
    pub failures: Failures,
    pub on_invalid: OnInvalid,
    pub rights: Rights,
}

/// The answer to an invalid request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, EnumString, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum OnInvalid {
    /// An error. Envoy admits the request unless `failure_mode_deny` is set.
    #[default]
    Error,
    /// OVER_LIMIT.
    Deny,
}

impl<S: Store> Handler<S> {
    /// Decides the request that `read` returns, and converts the answer to `A`, the caller's format. This call's
    /// duration is the measured one. Writes the request and the decision to `span`.
    pub(crate) fn decide<A>(
        &self,
        read: impl FnOnce() -> Result<RawRequest, NoDecision>,
        CallOrigin { caller, rights }: CallOrigin,
        span: &mut CallSpan,
    ) -> impl Future<Output = Result<A, NoDecision>>
    where
        A: for<'a> From<Answer<'a>>,
    {
        let read = move |bounds: &Bounds| {
            let mut request = Request { caller, ..read()?.validate(bounds)? };
            rights.check_request(&mut request)?;
            Ok(request)
        };
        self.decide_request(read, &self.response, span)
    }

    /// Decides the request that `read` returns, within the bounds, and converts the answer, which has the parts that
    /// `response` selects.
    pub(crate) async fn decide_request<A>(
        &self,
        read: impl FnOnce(&Bounds) -> Result<Request, NoDecision>,
        response: &ResponseOptions,
        span: &mut CallSpan,
    ) -> Result<A, NoDecision>
    where
        A: for<'a> From<Answer<'a>>,
    {
        let _timer = self.meter.start();
        let request = match read(&self.bounds) {
            Ok(request) => request,
            Err(error) => return self.refuse(error, span),
        };
        span.add_request(&request.domain, request.descriptors.len());
        // Not by `decide_hold`, because one more future costs each call of Redis about 200 instructions.
        let answer = |decision: &Decision| {
            span.add_decision(decision);
            A::from(Answer::new(&request, decision, response))
        };
        match self.limiter.decide(&request, answer).await {
            Ok(answer) => Ok(answer),
            Err(error) => self.refuse(error, span),
        }
    }

    /// Decides the request of a hold. Does not count a failure.
    pub(super) async fn decide_hold<A>(
        &self,
        request: &Request,
        answer: impl FnOnce(&Decision) -> A,
        span: &mut CallSpan,
    ) -> Result<A, NoDecision> {
        span.add_request(&request.domain, request.descriptors.len());
        let answer = |decision: &Decision| {
            span.add_decision(decision);
            answer(decision)
        };
        self.limiter.decide(request, answer).await
    }

    /// Counts and logs a failed call. The settings can turn an invalid request into a denial.
    pub(crate) fn refuse<A>(&self, error: NoDecision, span: &mut CallSpan) -> Result<A, NoDecision>
    where
        A: for<'a> From<Answer<'a>>,
    {
        let error = self.fail(error, span);
        match (error.failure(), self.on_invalid) {
            (RequestFailure::Invalid, OnInvalid::Deny) => Ok(A::from(Answer::denial())),
            _ => Err(error),
        }
    }

    /// Counts and logs a failed call. Returns the error.
    pub(crate) fn fail(&self, error: NoDecision, span: &mut CallSpan) -> NoDecision {
        span.add_failure(error.failure());
        self.failures.record(error)
    }
}

/// The current rules with their exceptions and metrics, replaced together. Shared by every limiter of the process.
#[derive(Debug)]
pub struct Rulebook {
    current: ArcSwap<RulesInForce>,
    /// Exceptions of the current rules and of later ones. Locked while something is replaced, never by a request.
    exceptions: Mutex<KeptExceptions>,
    pub(super) metrics: Metrics,
}

#[derive(Debug, Default)]
struct KeptExceptions {
    files: Arc<Exceptions>,
    live: LiveRows,
}

#[derive(Debug)]
struct RulesInForce {
    rules: Arc<RuleSet>,
    /// Shared by rule sets that differ only in their exceptions.
    meters: Arc<LimitMeters>,
    /// `false` until the first rules are loaded. Until then every request fails.
    are_loaded: bool,
    /// `true` if plans depend on their time, or on an id for slots. Otherwise neither is made for them.
    depend_on_arrival: bool,
    /// `true` if a denial may be an offence.
    have_penalties: bool,
}

impl RulesInForce {
    fn new(rules: RuleSet, meters: Arc<LimitMeters>, are_loaded: bool) -> Self {
        let depend_on_arrival = rules.depends_on_time() || rules.has_slots();
        let have_penalties = rules.has_penalties();
        Self { rules: Arc::new(rules), meters, are_loaded, depend_on_arrival, have_penalties }
    }
}

impl Rulebook {
    pub fn new(rules: RuleSet, metrics: Metrics) -> Self {
        Self::with(rules, true, metrics)
    }

    /// Starts without rules: every request fails until [`replace`](Self::replace).
    pub fn without_rules(metrics: Metrics) -> Self {
        Self::with(RuleSet::empty(), false, metrics)
    }

    fn with(rules: RuleSet, are_loaded: bool, metrics: Metrics) -> Self {
        let meters = Arc::new(metrics.limit_meters(&rules));
        let current = ArcSwap::from_pointee(RulesInForce::new(rules, meters, are_loaded));
        Self { current, exceptions: Mutex::default(), metrics }
    }

    /// Replaces the rules and keeps the exceptions. Requests in progress finish with the old rules. Takes milliseconds
    /// for thousands of rules, so call it from a thread that serves no requests.
    pub fn replace(&self, rules: RuleSet) -> OldRules {
        let exceptions = self.exceptions.lock();
        let meters = Arc::new(self.metrics.limit_meters(&rules));
        let rules = rules.with_exceptions(Arc::clone(&exceptions.files), &exceptions.live);
        OldRules(self.current.swap(Arc::new(RulesInForce::new(rules, meters, true))))
    }

    /// Replaces the exceptions of files and keeps the rules. Requests in progress finish with the old exceptions. Call
    /// it from a thread that serves no requests.
    pub fn replace_exceptions(&self, exceptions: Arc<Exceptions>) -> OldRules {
        self.change_exceptions(|kept| kept.files = exceptions)
    }

    /// Replaces the live rows, as [`replace_exceptions`](Self::replace_exceptions) replaces the rows of files.
    pub fn replace_live_rows(&self, live: LiveRows) -> OldRules {
        self.change_exceptions(|kept| kept.live = live)
    }

    fn change_exceptions(&self, change: impl FnOnce(&mut KeptExceptions)) -> OldRules {
        let mut kept = self.exceptions.lock();
        change(&mut kept);
        let current = self.current.load_full();
        let rules = current.rules.with_exceptions(Arc::clone(&kept.files), &kept.live);
        let (meters, are_loaded) = (Arc::clone(&current.meters), current.are_loaded);
        drop(current);
        OldRules(self.current.swap(Arc::new(RulesInForce::new(rules, meters, are_loaded))))
    }

    /// `true` once rules have been loaded.
    pub fn has_rules(&self) -> bool {
        self.current.load().are_loaded
    }

    pub fn rules(&self) -> Arc<RuleSet> {
        Arc::clone(&self.current.load().rules)
    }
}

#[derive(Debug)]
pub struct OldRules(Arc<RulesInForce>);

/// Decides requests by the current rules and one store's counters.
#[derive(Debug)]
pub struct Limiter<S> {
    pub rulebook: Arc<Rulebook>,
    pub store: S,
    pub enforcement: Enforcement,
    /// For planning requests. The store decides by its own clock.
    pub clock: Arc<dyn Clock>,
    pub denied: DeniedKeys,
    pub ledger: WorkerLedger,
    pub notices: WorkerNotices,
    pub pauses: PauseEvents,
}

impl OldRules {
    /// Waits until no request uses the rules, for at most a second, then frees them on this thread. Otherwise the last
    /// request to use the rules would free them, and while it frees thousands of rules, other requests of its worker
    /// would wait.
    pub fn free_when_unused(self) {
        for _ in 0..100 {
            if Arc::strong_count(&self.0) == 1 {
                return;
            }
            thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Counts a failed request when dropped: after a store error, or if the call is cancelled before the store answers.
/// `mem::forget` disarms it after a decision.
struct FailureGuard<'r> {
    meters: &'r LimitMeters,
    plan: &'r Plan,
    ledger: &'r WorkerLedger,
}

impl Drop for FailureGuard<'_> {
    fn drop(&mut self) {
        self.meters.record_failure(self.plan, self.ledger);
    }
}

impl<S: Store> Limiter<S> {
    /// Decides one request. Returns what `answer` builds from the decision, which is large and stays in place.
    ///
    /// # Errors
    /// [`NoDecision`] if the request is invalid or the store does not answer.
    pub async fn decide<A>(
        &self,
        request: &Request,
        answer: impl FnOnce(&Decision) -> A,
    ) -> Result<A, NoDecision> {
        let current = self.rulebook.current.load_full();
        let at = match current.depend_on_arrival {
            true => PlannedAt { now_us: self.clock.now_us(), slot_id: fastrand::u64(1..1 << 53) },
            false => PlannedAt::from(0),
        };
        // A plan is large: it is filled in place.
        let mut plan = Plan::default();
        plan.refill(&current.rules, request, at)?;
        if !plan.derivations().is_empty() {
            current.meters.record_exceptions(&request.domain, plan.derivations());
        }
        if plan.charges.is_empty() {
            // Without loaded rules a request does not have charges.
            if !current.are_loaded {
                return Err(NoDecision::NoRules);
            }
            let is_unlimited = plan.unlimited().next().is_some();
            let decision = Decision::merge(plan, Outcomes::default(), self.enforcement);
            if decision.reported_pauses().is_empty() && !is_unlimited {
                self.count_without_limit(&current, request);
            } else {
                current.meters.record(&decision, &self.denied, (&self.ledger, &self.notices));
                self.pauses.send(&decision, request);
            }
            return Ok(answer(&decision));
        }
        let failure = FailureGuard { meters: &current.meters, plan: &plan, ledger: &self.ledger };
        let outcomes = if plan.has_settles() {
            // Boxed because this rare future would enlarge every decision's future.
            Box::pin(self.decide_parts(&plan.charges)).await?
        } else {
            self.store.decide(&plan.charges).await?
        };
        mem::forget(failure);
        let decision = Decision::merge(plan, outcomes, self.enforcement);
        current.meters.record(&decision, &self.denied, (&self.ledger, &self.notices));
        let may_offend = current.have_penalties && decision.overall == Code::OverLimit;
        if may_offend || !decision.reported_pauses().is_empty() {
            self.pauses.send(&decision, request);
        }
        Ok(answer(&decision))
    }

    /// Fails where [`decide`](Self::decide) would, before the store is asked.
    ///
    /// # Errors
    /// [`NoDecision`] if the request is invalid or there are no rules.
    pub fn check(&self, request: &Request) -> Result<(), NoDecision> {
        let current = self.rulebook.current.load();
        if !current.are_loaded {
            return Err(NoDecision::NoRules);
        }
        Ok(Plan::default().refill(&current.rules, request, self.clock.now_us())?)
    }

    /// Decides a request with settles. Each is a decision of its own, so that it is recorded whatever happens to the
    /// others.
    async fn decide_parts(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        let parts = charges.parts();
        let decided = join_all(parts.iter().map(|part| self.store.decide(&part.charges))).await;
        let decided = decided.into_iter().collect::<Result<Vec<_>, _>>()?;
        Ok(Outcomes::of_parts(parts.iter().zip(decided)))
    }

    fn count_without_limit(&self, current: &RulesInForce, request: &Request) {
        let is_known = current.rules.domain(&request.domain).is_some();
        if !is_known {
            self.rulebook.metrics.domain_not_found(request.descriptors.len());
        }
        current.meters.record_without_limit(is_known);
        self.denied.count_without_limit(request, is_known);
    }
}
