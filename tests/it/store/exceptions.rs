//! The known answers of exceptions and tiers: a limit of 60 per minute with the tiers pro 600 and internal unlimited.
//! Each store has one test that calls [`known_answers`].

use std::sync::Arc;
use std::time::Duration;

use ::base::clock::{Clock, ManualClock};
use ::store::deny_cache::{DenyCache, DenyCacheOptions, DenyCached};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    Applied, Change, Code, Decision, Descriptor, Enforcement, ExceptionRow, Exceptions, ExceptionsBuilder,
    Glob, LimitOverride, LiveRows, Period, Plan, Request, RetryAfter, RowSource, RowTerms, RowValue, RuleSet,
    Store, TierRow, Unit,
};

use crate::rules::{descriptor, request, rules};

/// A minute boundary.
const T0: u64 = 1_700_000_040_000_000;
const MINUTE_US: u64 = 60_000_000;

const RULES: &str = "
domain: DOMAIN
shard_by: domain
descriptors:
  - key: tenant
    rate_limit: { unit: minute, requests_per_unit: 60, algorithm: fixed_window, tiers: { pro: 600, internal: unlimited } }
    descriptors:
      - key: tier
        tier: true
        rate_limit: { unit: minute, requests_per_unit: 60, algorithm: fixed_window, tiers: { pro: 600 } }
";

struct Subject<S> {
    store: S,
    clock: Arc<ManualClock>,
    domain: String,
    rules: RuleSet,
}

/// Rows of `domain` for a tenant, as `TENANT: COLUMN VALUE, ...; ...`; a tier alone is a row of a CSV file.
fn table(domain: &str, rows: &str) -> Exceptions {
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    let rows = rows.split("; ").filter(|row| !row.is_empty());
    for (line, row) in (1..).zip(rows) {
        let (tenant, columns) = row.split_once(": ").expect("a tenant");
        if let Some(tier) = columns.strip_prefix("tier ").filter(|tier| !tier.contains(' ')) {
            let file = &Arc::from("tenants.csv");
            let row = TierRow { file, domain, key: "tenant", value: tenant, tier };
            builder.add_tier(row).expect("few tiers");
        } else {
            builder.add_row(full_row(line, domain, (tenant, columns)));
        }
    }
    builder.build(&Exceptions::default(), |_| {})
}

fn full_row(line: u32, domain: &str, (tenant, columns): (&str, &str)) -> ExceptionRow {
    let mut row = ExceptionRow {
        source: RowSource::File { file: "rows.yaml".into(), line },
        value: RowValue::Exact(tenant.into()),
        from_us: None,
        until_us: None,
        terms: Arc::default(),
    };
    let mut terms = RowTerms { domain: Glob::new(domain), key: "tenant".into(), ..RowTerms::default() };
    for column in columns.split(", ") {
        let (name, value) = column.split_once(' ').unwrap_or((column, ""));
        match name {
            "limit" => terms.effect.limit = Some(value.parse().expect("a number")),
            "multiplier" => terms.effect.multiplier = Some(value.parse().expect("a multiplier")),
            "block" => terms.effect.block = true,
            "exempt" => terms.effect.exempt = true,
            "shadow_mode" => terms.effect.shadow_mode = Some(true),
            "path" => terms.path = Glob::new(value),
            "until" => row.until_us = Some(value.parse().expect("a time")),
            _ => panic!("{column}"),
        }
    }
    ExceptionRow { terms: terms.into(), ..row }
}

impl<S: Store> Subject<S> {
    /// Decides a request of one descriptor with these rows in force.
    async fn decide(&self, rows: &str, descriptor: Descriptor) -> Decision {
        self.decide_all(rows, vec![descriptor]).await
    }

    async fn decide_all(&self, rows: &str, descriptors: Vec<Descriptor>) -> Decision {
        let rules = self.rules.with_exceptions(Arc::new(table(&self.domain, rows)), &LiveRows::default());
        let request = Request { descriptors, ..request(&self.domain, &[]) };
        let plan = Plan::new(&rules, &request, self.clock.now_us()).expect("a plan");
        let outcomes = self.store.decide(&plan.charges).await.expect("the store answers");
        Decision::merge(plan, outcomes, Enforcement::Enforce)
    }

    async fn answer(&self, rows: &str, tenant: &str, hits: u64) -> String {
        answer(&self.decide(rows, hits_of(tenant, hits)).await)
    }

    /// Later windows: nothing is used.
    fn start_again(&self) {
        self.clock.set(self.clock.now_us() + 2 * MINUTE_US);
    }
}

fn hits_of(tenant: &str, hits: u64) -> Descriptor {
    Descriptor { hits: Some(hits), ..descriptor(&format!("tenant={tenant}")) }
}

/// Code, limit, and remaining units, and how many seconds to wait for a denied request: `OVER 60 0 r60`.
fn answer(decision: &Decision) -> String {
    let status = decision.statuses().next().expect("one descriptor");
    let code = if status.code == Code::Ok { "OK" } else { "OVER" };
    match status.applied {
        Applied::Limited(result) => {
            let wait = match result.outcome.report.retry_after.us() {
                Some(us) if status.code == Code::OverLimit => format!(" r{}", us / 1_000_000),
                _ => String::new(),
            };
            let shadow = if result.never_denies() { " shadow" } else { "" };
            let (number, left) = (result.limit.spec.requests_per_unit, result.outcome.report.remaining);
            format!("{code} {number} {left}{wait}{shadow}")
        }
        Applied::Unlimited(_) => format!("{code} unlimited"),
        Applied::Nothing | Applied::Paused(..) => format!("{code} no limit"),
    }
}

/// Checks the known answers on an empty store. `clock` is the clock that the store reads. The keys of all counters have
/// the hash tag `{domain}`.
pub(crate) async fn known_answers(store: impl Store, clock: Arc<ManualClock>, domain: &str) {
    clock.set(T0);
    let rules = rules(&RULES.replace("DOMAIN", domain));
    let subject = Subject { store, clock, domain: domain.to_owned(), rules };
    numbers(&subject).await;
    denials_and_admissions(&subject).await;
    blocks_with_an_end(&subject).await;
    rows_without_effect(&subject).await;
    the_tier_of_the_request(&subject).await;
}

async fn numbers<S: Store>(subject: &Subject<S>) {
    assert_eq!(subject.answer("", "x", 1).await, "OK 60 59", "row 1");
    assert_eq!(subject.answer("acme: tier pro", "acme", 501).await, "OK 600 99", "row 2");
    assert_eq!(subject.answer("", "acme", 1).await, "OVER 60 0 r60", "row 3: the row is removed");
    assert_eq!(subject.answer("acme: tier pro", "acme", 1).await, "OK 600 98", "row 4: the tier again");
    subject.start_again();
    let rows = "acme: tier pro; acme: multiplier 2";
    assert_eq!(subject.answer(rows, "acme", 1).await, "OK 1200 1199", "row 5");
    subject.start_again();
    let rows = "acme: limit 50; acme: multiplier 0.5";
    assert_eq!(subject.answer(rows, "acme", 1).await, "OK 25 24", "row 6");
    subject.start_again();
}

async fn denials_and_admissions<S: Store>(subject: &Subject<S>) {
    for hits in [0, 1] {
        let answer = subject.answer("evil: block", "evil", hits).await;
        assert!(answer.starts_with("OVER 0 0"), "row 7, {hits} hits: {answer}");
    }
    assert_eq!(subject.answer("mon: exempt", "mon", 1_000).await, "OK unlimited", "row 8");
    assert_eq!(subject.answer("", "mon", 1).await, "OK 60 59", "row 8: nothing was counted");
    let both = subject.answer("mon: exempt; mon: block", "mon", 1).await;
    assert!(both.starts_with("OVER 0 0"), "row 8, and a row that blocks: {both}");
    subject.start_again();
    assert_eq!(subject.answer("", "x", 60).await, "OK 60 0");
    assert_eq!(subject.answer("x: shadow_mode", "x", 1).await, "OK 60 0 shadow", "row 9");
    subject.start_again();
}

async fn blocks_with_an_end<S: Store>(subject: &Subject<S>) {
    let now = subject.clock.now_us();
    let rows = format!("evil: block, until {}", now + 90_000_001);
    for hits in [0, 1] {
        let decision = subject.decide(&rows, hits_of("evil", hits)).await;
        assert_eq!(answer(&decision), "OVER 0 0 r90", "row 13, {hits} hits");
        let result = decision.limit_results().next().expect("a limit");
        assert_eq!(result.outcome.report.until_reset_us, 90_000_001, "row 13, {hits} hits");
    }
    assert_eq!(subject.answer("", "x", 60).await, "OK 60 0");
    // Beside a limit that only the store can decide; again, which a cache of denials answers.
    for passed_us in [0, 1] {
        subject.clock.set(now + passed_us);
        let both = vec![hits_of("x", 1), hits_of("evil", 1)];
        let decision = subject.decide_all(&rows, both).await;
        assert_eq!(
            decision.retry_after(),
            RetryAfter::In(90_000_001 - passed_us),
            "row 14: the longest wait"
        );
    }
    let soon = format!("evil: block, until {}", now + 1_000_001);
    let decision = subject.decide_all(&soon, vec![hits_of("x", 1), hits_of("evil", 1)]).await;
    assert_eq!(decision.retry_after(), RetryAfter::In(MINUTE_US - 1), "row 15: that of the other limit");
    subject.clock.set(now);
    subject.start_again();
}

async fn rows_without_effect<S: Store>(subject: &Subject<S>) {
    let until = subject.clock.now_us();
    assert_eq!(
        subject.answer(&format!("x: multiplier 2, until {until}"), "x", 1).await,
        "OK 60 59",
        "row 10"
    );
    let before = format!("x: multiplier 2, until {}", until + 1);
    assert_eq!(subject.answer(&before, "x", 1).await, "OK 120 118", "row 10, before its end");
    assert_eq!(subject.answer("x: limit 5, path other.*", "x", 1).await, "OK 60 57", "row 10, another path");
    subject.start_again();
    let decision = subject.decide("acme: tier gold", hits_of("acme", 1)).await;
    assert_eq!(answer(&decision), "OK 60 59", "row 11");
    let changes: Vec<_> =
        decision.derivations().iter().flat_map(|way| &way.steps).map(|step| &step.change).collect();
    assert_eq!(changes, [&Change::UnknownTier(Some("gold".into()))], "row 11: the unknown tier is told");
    let own = LimitOverride { requests_per_unit: 5, period: Period::one(Unit::Minute) };
    let own = Descriptor { limit: Some(own), ..hits_of("acme", 1) };
    assert_eq!(answer(&subject.decide("acme: tier pro", own).await), "OK 5 4", "row 12");
    subject.start_again();
}

async fn the_tier_of_the_request<S: Store>(subject: &Subject<S>) {
    let of_tier = |tier: &str, hits| {
        let descriptor = descriptor(&format!("tenant=acme,tier={tier}"));
        subject.decide("acme: tier internal", Descriptor { hits: Some(hits), ..descriptor })
    };
    assert_eq!(answer(&of_tier("pro", 100).await), "OK 600 500");
    assert_eq!(answer(&of_tier("free", 1).await), "OVER 60 0 r60", "another tier has the same counter");
    assert_eq!(answer(&of_tier("pro", 1).await), "OK 600 499");
    subject.start_again();
}

fn memory() -> (Arc<MemoryStore<Arc<ManualClock>>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(T0));
    (Arc::new(MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock))), clock)
}

/// A deny cache in front of a store does not repeat a denial that a larger number lifts.
pub(crate) fn with_deny_cache<S: Store>(
    store: S,
    clock: &Arc<ManualClock>,
) -> DenyCached<S, Arc<ManualClock>> {
    let cache = DenyCache::new(DenyCacheOptions {
        max_keys: 100,
        max_age: Duration::from_secs(60),
        store_reserves: false,
    });
    DenyCached::new(store, Some((Arc::new(cache), Arc::clone(clock))))
}

#[tokio::test]
async fn the_memory_store_gives_the_known_answers() {
    let (store, clock) = memory();
    known_answers(store, clock, "llm").await;
}

#[tokio::test]
async fn a_deny_cache_gives_the_known_answers() {
    let (store, clock) = memory();
    known_answers(with_deny_cache(store, &clock), clock, "llm").await;
}
