//! Every metric's name, help and labels. Injected, no globals. Labels come from the rule files only, so their number
//! is bounded by what operators wrote.

use prometheus::{IntCounter, IntCounterVec, Opts, Registry, TextEncoder};

use crate::engine::{Decision, Judged, Plan, RuleSet, Verdict};

/// All metrics of one process. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Registry,
    decisions: IntCounterVec,
    unknown_domains: IntCounter,
    near_limit_ppm: u32,
}

/// The counters of every limit of one rule set, looked up once when the rules are loaded.
#[derive(Debug)]
pub struct LimitMeters {
    /// By `LimitId`; the last one is that of per-request overrides.
    each: Vec<Meter>,
    near_limit_ppm: u32,
}

#[derive(Clone, Debug)]
struct Meter {
    ok: IntCounter,
    near_limit: IntCounter,
    over_limit: IntCounter,
    shadow: IntCounter,
    error: IntCounter,
}

impl Metrics {
    /// Registers everything. `near_limit_ppm` is the share of a limit, in millionths, above which a hit counts as near it.
    ///
    /// # Errors
    /// When two metrics have one name.
    pub fn new(near_limit_ppm: u32) -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let decisions = IntCounterVec::new(
            Opts::new("ratelimitd_decisions_total", "Decisions by limit and outcome"),
            &["domain", "rule", "outcome"],
        )?;
        registry.register(Box::new(decisions.clone()))?;
        let unknown_domains = IntCounter::new(
            "ratelimitd_unknown_domain_total",
            "Requests for a domain that no rule file names",
        )?;
        registry.register(Box::new(unknown_domains.clone()))?;
        Ok(Self { registry, decisions, unknown_domains, near_limit_ppm })
    }

    /// The text exposition format.
    ///
    /// # Errors
    /// When a metric cannot be encoded.
    pub fn render(&self) -> Result<String, prometheus::Error> {
        TextEncoder::new().encode_to_string(&self.registry.gather())
    }

    /// Counts a request for a domain without rules.
    pub fn domain_not_found(&self) {
        self.unknown_domains.inc();
    }

    /// Looks up the counters of every limit of `rules`.
    #[must_use]
    pub fn limit_meters(&self, rules: &RuleSet) -> LimitMeters {
        let of_rules = rules
            .rules()
            .iter()
            .flat_map(|rule| rule.limits.iter().map(|limit| self.meter(&rule.domain, &limit.label)));
        let each = of_rules.chain([self.meter("override", "override")]).collect();
        LimitMeters { each, near_limit_ppm: self.near_limit_ppm }
    }

    fn meter(&self, domain: &str, rule: &str) -> Meter {
        let counter = |outcome| self.decisions.with_label_values(&[domain, rule, outcome]);
        Meter {
            ok: counter("ok"),
            near_limit: counter("near_limit"),
            over_limit: counter("over_limit"),
            shadow: counter("shadow"),
            error: counter("error"),
        }
    }
}

impl LimitMeters {
    /// Counts a decision, once for every counter it asked.
    pub fn record(&self, decision: &Decision) {
        for judged in decision.judged_limits() {
            self.counter(&judged).inc();
        }
    }

    /// Counts a request that the store did not answer.
    pub fn record_failure(&self, plan: &Plan) {
        for limit in plan.limits() {
            self.each[limit.id.0 as usize].error.inc();
        }
    }

    fn counter(&self, judged: &Judged<'_>) -> &IntCounter {
        let meter = &self.each[judged.limit.id.0 as usize];
        match judged.outcome.verdict {
            Verdict::Over if judged.is_shadow() => &meter.shadow,
            Verdict::Over => &meter.over_limit,
            Verdict::Fits if self.is_near(judged) => &meter.near_limit,
            Verdict::Fits => &meter.ok,
        }
    }

    /// Whether more than the configured share of the limit is used.
    fn is_near(&self, judged: &Judged<'_>) -> bool {
        let limit = u64::from(judged.limit.spec.max_cost());
        let used = limit.saturating_sub(judged.outcome.report.remaining);
        used > limit * u64::from(self.near_limit_ppm) / 1_000_000
    }
}
