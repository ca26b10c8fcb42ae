//! How exceptions and tiers change limits: tables of exceptions, requests and limits, and a naive model.

mod block_end;
mod counters;
mod grants;
mod live;
mod model;

use std::sync::Arc;

use super::*;
use crate::request::plan::{Planning, find_matches};
use crate::{
    Algorithm, Amount, Caller, Change, ChangedBy, Defaults, Descriptor, DomainSpec, Entry, HashKey, Limit,
    LimitOverride, LimitSpec, NodeSpec, Period, Plan, Quantity, Request, RuleSet, RuleSpec, Tier, Unfit,
    Unit, ValueHashing,
};

type Pairs<'p> = &'p [(&'p str, &'p str)];

/// 60 per minute, with the tiers of the known answers.
fn sixty(name: Option<&str>) -> LimitSpec {
    let limited = |requests_per_unit| Tier::Limited { requests_per_unit, burst: None };
    let tiers = [("pro", limited(600)), ("trial", limited(20)), ("internal", Tier::Unlimited)];
    LimitSpec {
        name: name.map(str::to_owned),
        tiers: tiers.map(|(name, tier)| (name.to_owned(), tier)).into(),
        ..LimitSpec::new(Algorithm::FixedWindow, 60, Period::one(Unit::Minute))
    }
}

fn plain(number: u64, name: Option<&str>) -> LimitSpec {
    LimitSpec { tiers: Default::default(), requests_per_unit: number, ..sixty(name) }
}

fn node(key: &str, limits: Vec<LimitSpec>, descriptors: Vec<NodeSpec>) -> NodeSpec {
    let limits: Vec<_> = limits.into_iter().map(|spec| Limit::new(spec).expect("a valid limit")).collect();
    let rule = (!limits.is_empty()).then(|| RuleSpec { limits, ..RuleSpec::default() });
    NodeSpec { key: key.to_owned(), rule, descriptors, ..NodeSpec::default() }
}

/// `tenant` has 60 with tiers; below it, `path` has two limits, and `tier` is a tier. `plain` has no tiers.
fn rules() -> RuleSet {
    let path = node("path", vec![sixty(Some("short")), plain(1_000, Some("long"))], vec![]);
    let tier = NodeSpec { tier: true, ..node("tier", vec![sixty(None)], vec![]) };
    let shadow = NodeSpec {
        rule: node("", vec![plain(7, None)], vec![]).rule.map(|rule| RuleSpec { shadow: true, ..rule }),
        ..node("shadow", vec![], vec![])
    };
    let nodes = vec![
        node("tenant", vec![sixty(None)], vec![path, tier]),
        node("ip", vec![sixty(None)], vec![]),
        node("plain", vec![plain(9, None)], vec![]),
        shadow,
    ];
    let domain = |name: &str| DomainSpec {
        domain: name.to_owned(),
        descriptors: nodes.clone(),
        ..DomainSpec::default()
    };
    RuleSet::compile(&[domain("d"), domain("e")], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE)
        .expect("valid rules")
}

/// A row of `d` for all limits, which changes nothing; from line 1 of `a.yaml`.
fn row(key: &str, value: &str, effect: Effect) -> ExceptionRow {
    let value = match value.parse() {
        Ok(network) => RowValue::Network(network),
        Err(_) => RowValue::Exact(value.into()),
    };
    ExceptionRow {
        source: RowSource::File { file: "a.yaml".into(), line: 1 },
        value,
        from_us: None,
        until_us: None,
        terms: RowTerms { domain: Glob::new("d"), key: key.into(), effect, ..RowTerms::default() }.into(),
    }
}

/// The row, only for limits with this path and name.
fn on_limits(path: &str, name: &str, row: ExceptionRow) -> ExceptionRow {
    row.with(|terms| (terms.path, terms.limit_name) = (Glob::new(path), Glob::new(name)))
}

/// The row for another domain.
fn of_domain(domain: &str, row: ExceptionRow) -> ExceptionRow {
    row.with(|terms| terms.domain = Glob::new(domain))
}

fn tier(name: &str) -> Effect {
    Effect { tier: Some(name.into()), ..Effect::default() }
}

fn limit(number: u64) -> Effect {
    Effect { limit: Some(number), ..Effect::default() }
}

fn times(multiplier: &str) -> Effect {
    Effect { multiplier: Some(multiplier.parse().expect("a multiplier")), ..Effect::default() }
}

fn block() -> Effect {
    Effect { block: true, ..Effect::default() }
}

fn exempt() -> Effect {
    Effect { exempt: true, ..Effect::default() }
}

fn shadow(mode: bool) -> Effect {
    Effect { shadow_mode: Some(mode), ..Effect::default() }
}

fn with(rules: &RuleSet, rows: impl IntoIterator<Item = ExceptionRow>) -> RuleSet {
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    rows.into_iter().for_each(|row| builder.add_row(row));
    rules.with_exceptions(Arc::new(builder.build(&Exceptions::default(), |_| {})), &LiveRows::default())
}

fn live_row(id: &str, version: u64, row: ExceptionRow) -> Arc<ExceptionRow> {
    Arc::new(ExceptionRow { source: RowSource::Live { id: id.into(), version }, ..row })
}

/// Adds live rows in the order of their versions to rows of files.
fn with_live(files: &RuleSet, rows: impl IntoIterator<Item = ExceptionRow>) -> RuleSet {
    let mut live = LiveRows::default();
    for (version, row) in (1..).zip(rows) {
        live.insert(live_row(&format!("id{version}"), version, row));
    }
    files.with_exceptions(files.exceptions().cloned().unwrap_or_default(), &live)
}

fn descriptor(pairs: Pairs<'_>) -> Descriptor {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    Descriptor { entries: pairs.iter().map(entry).collect(), ..Descriptor::default() }
}

fn request(descriptors: Vec<Descriptor>) -> Request {
    Request { domain: "d".to_owned(), hits_addend: 1, descriptors, caller: Caller::default() }
}

fn limit_text(limit: &Limit) -> String {
    let number = match limit.quantity {
        _ if limit.blocked => "blocked".to_owned(),
        Quantity::Unlimited => "unlimited".to_owned(),
        Quantity::Limited(_) => limit.spec.requests_per_unit.to_string(),
    };
    if limit.shadow { format!("{number} shadow") } else { number }
}

/// The limits of a descriptor, in the order of its rule.
fn limits_of(rules: &RuleSet, descriptor: Descriptor, now_us: u64) -> Vec<String> {
    let request = request(vec![descriptor]);
    let domain = rules.domain("d").expect("the domain has rules");
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.as_slice());
    let hidden = rules.hidden_values("d", Some(domain), entries);
    let planning = Planning { rules, domain, request: &request, at: now_us.into() };
    let matches = find_matches(&planning, &hidden, &mut Vec::new()).expect("a valid request");
    matches.iter().flat_map(|matched| matched.limits()).map(|limit| limit_text(limit)).collect()
}

fn limits(rules: &RuleSet, pairs: Pairs<'_>) -> String {
    limits_of(rules, descriptor(pairs), 0).join(", ")
}

#[test]
fn numbers_come_from_limit_tier_and_multiplier() {
    let acme: Pairs<'_> = &[("tenant", "acme")];
    let table: [(Vec<Effect>, &str); 13] = [
        (vec![], "60"),
        (vec![tier("pro")], "600"),
        (vec![tier("internal")], "unlimited"),
        (vec![tier("gold")], "60"),
        (vec![tier("pro"), times("2")], "1200"),
        (vec![limit(50), times("0.5")], "25"),
        (vec![limit(50), tier("pro")], "50"),
        (vec![tier("internal"), times("2")], "unlimited"),
        (vec![limit(0), times("2")], "0"),
        (vec![shadow(true)], "60 shadow"),
        (vec![tier("pro"), block()], "blocked"),
        (vec![exempt(), times("2")], "unlimited"),
        (vec![exempt(), block()], "blocked"),
    ];
    let rules = rules();
    for (effects, expected) in table {
        let rules = with(&rules, effects.iter().map(|effect| row("tenant", "acme", effect.clone())));
        assert_eq!(limits(&rules, acme), expected, "{effects:?}");
        assert_eq!(limits(&rules, &[("tenant", "other")]), "60", "{effects:?}");
        assert_eq!(limits(&rules, &[("ip", "acme")]), "60", "{effects:?}");
    }
}

#[test]
fn a_row_is_for_any_entry_and_for_the_limits_that_it_names() {
    let on = |path: &str, name: &str, effect| on_limits(path, name, row("tenant", "acme", effect));
    let below: Pairs<'_> = &[("tenant", "acme"), ("path", "/x")];
    let table = [
        (vec![row("path", "/x", limit(5))], "5, 5"),
        (vec![row("tenant", "acme", limit(5))], "5, 5"),
        (vec![row("tenant", "acme", tier("pro"))], "600, 1000"), // the second limit has no tiers
        (vec![on("tenant.path", "*", limit(5))], "5, 5"),
        (vec![on("tenant", "*", limit(5))], "60, 1000"),
        (vec![on("*", "long", limit(5))], "60, 5"),
        (vec![on("*", "long", block())], "60, blocked"),
        (vec![on("*.path", "sh*", exempt())], "unlimited, 1000"),
        // An exception that names limits wins over one that does not, and a deeper entry over a higher one.
        (vec![on("*", "long", limit(5)), row("tenant", "acme", limit(6))], "6, 5"),
        (vec![row("path", "/x", limit(5)), row("tenant", "acme", limit(6))], "5, 5"),
        (vec![on("*", "long", limit(6)), row("path", "/x", limit(5))], "5, 6"),
        // The later of equal ones.
        (vec![row("path", "/x", limit(5)), row("path", "/x", limit(6))], "6, 6"),
        // Each column has its own winning row.
        (vec![row("path", "/x", times("2")), row("tenant", "acme", limit(6))], "12, 12"),
    ];
    let rules = rules();
    for (rows, expected) in table {
        let rules = with(&rules, rows.clone());
        assert_eq!(limits(&rules, below), expected, "{rows:?}");
    }
}

#[test]
fn the_tier_of_a_request_wins_over_that_of_a_row() {
    let request = |tier| {
        limits(
            &with(&rules(), [row("tenant", "acme", self::tier("trial"))]),
            &[("tenant", "acme"), ("tier", tier)],
        )
    };
    assert_eq!(request("pro"), "600");
    assert_eq!(request("internal"), "unlimited");
    assert_eq!(request("gold"), "60", "an unknown tier has the number of the rule");
    assert_eq!(limits(&rules(), &[("tenant", "acme"), ("tier", "pro")]), "600", "no row is needed");
    let doubled = with(&rules(), [row("tenant", "acme", times("2"))]);
    assert_eq!(limits(&doubled, &[("tenant", "acme"), ("tier", "pro")]), "1200");
}

#[test]
fn the_longest_prefix_counts_and_an_exact_value_before_it() {
    let net = |value: &str, effect| row("ip", value, effect);
    let table = [
        // rows, address, limit
        (vec![net("10.0.0.0/8", block())], "10.0.0.7", "blocked"),
        (vec![net("10.0.0.0/8", block())], "11.0.0.7", "60"),
        (vec![net("10.0.0.0/8", block())], "::ffff:10.0.0.7", "blocked"),
        (vec![net("10.0.0.0/8", block()), net("10.1.0.0/16", exempt())], "10.1.0.7", "unlimited"),
        (vec![net("10.1.0.0/16", exempt()), net("10.0.0.0/8", block())], "10.1.0.7", "unlimited"),
        (vec![net("10.1.0.0/16", block()), net("10.0.0.0/8", exempt())], "10.1.0.7", "blocked"),
        (vec![net("10.0.0.0/8", block()), net("10.1.0.7", exempt())], "10.1.0.7", "unlimited"),
        (vec![net("10.0.0.0/8", block()), net("10.1.0.0/16", exempt())], "10.2.0.7", "blocked"),
        // An exception with another column does not lift the block.
        (vec![net("10.0.0.0/8", block()), net("10.1.0.0/16", times("2"))], "10.1.0.7", "blocked"),
        (vec![net("10.0.0.0/8", limit(5)), net("10.1.0.0/16", limit(6))], "10.1.0.7", "6"),
        (vec![net("10.1.0.0/16", limit(6)), net("10.0.0.0/8", limit(5))], "10.1.0.7", "6"),
        (vec![net("10.0.0.0/8", limit(5)), net("10.1.0.0/16", times("2"))], "10.1.0.7", "10"),
        (vec![net("2001:db8::/32", limit(5))], "2001:DB8::1", "5"),
        (vec![net("::/0", limit(5))], "10.0.0.1", "60"),
    ];
    let rules = rules();
    for (rows, address, expected) in table {
        let rules = with(&rules, rows.clone());
        assert_eq!(limits(&rules, &[("ip", address)]), expected, "{address}, {rows:?}");
    }
}

#[test]
fn a_row_ends_at_its_time() {
    let until = |until_us| ExceptionRow { until_us: Some(until_us), ..row("tenant", "acme", limit(5)) };
    let rules = with(&rules(), [row("tenant", "acme", limit(7)), until(1_000)]);
    let at = |now_us| limits_of(&rules, descriptor(&[("tenant", "acme")]), now_us).join(", ");
    assert_eq!([at(0), at(999), at(1_000)], ["5", "5", "7"].map(str::to_owned));
}

#[test]
fn a_limit_of_the_request_keeps_its_number_unless_a_row_blocks() {
    let own = |pairs: Pairs<'_>| {
        let limit = LimitOverride { requests_per_unit: 5, period: Period::one(Unit::Minute) };
        Descriptor { limit: Some(limit), ..descriptor(pairs) }
    };
    let on = |path: &str, name: &str| on_limits(path, name, row("tenant", "acme", block()));
    let unchanged = [tier("pro"), limit(7), times("2"), exempt(), shadow(true)];
    let rules = rules();
    for effect in unchanged {
        let rules = with(&rules, [row("tenant", "acme", effect.clone())]);
        assert_eq!(limits_of(&rules, own(&[("tenant", "acme")]), 0), ["5"], "{effect:?}");
    }
    let table = [
        (on("*", "*"), "blocked", "blocked", "blocked"),
        (on("tenant", "*"), "blocked", "5", "5"),
        (on("*", "long"), "5", "blocked", "5"),
    ];
    for (row, tenant, path, without_rule) in table {
        let rules = with(&rules, [row.clone()]);
        assert_eq!(limits_of(&rules, own(&[("tenant", "acme")]), 0), [tenant], "{row:?}");
        assert_eq!(limits_of(&rules, own(&[("tenant", "acme"), ("path", "/")]), 0), [path], "{row:?}");
        assert_eq!(limits_of(&rules, own(&[("x", ""), ("tenant", "acme")]), 0), [without_rule], "{row:?}");
    }
}

#[test]
fn a_row_that_blocks_denies_a_descriptor_without_a_rule_and_in_spite_of_its_mode() {
    let blocked = with(&rules(), ["tenant", "shadow"].map(|key| row(key, "x", block())));
    assert_eq!(limits(&blocked, &[("unknown", "1"), ("tenant", "x")]), "blocked");
    assert_eq!(limits(&blocked, &[("unknown", "1"), ("tenant", "y")]), "");
    assert_eq!(limits(&blocked, &[("shadow", "x")]), "blocked");
    let enforced = with(&rules(), [row("shadow", "x", shadow(false))]);
    assert_eq!(limits(&enforced, &[("shadow", "x")]), "7");
    assert_eq!(limits(&enforced, &[("shadow", "y")]), "7 shadow");
    let plan = Plan::new(&blocked, &request(vec![descriptor(&[("shadow", "x")])]), 0).expect("a plan");
    assert!(plan.charges.is_certainly_denied() && plan.charges.need_no_store());
}

#[test]
fn a_number_that_a_limit_cannot_have_leaves_it_as_it_is() {
    let spec = LimitSpec::new(Algorithm::SlidingLog, 60, Period::one(Unit::Minute));
    let domain = DomainSpec {
        domain: "d".to_owned(),
        descriptors: vec![node("k", vec![spec], vec![])],
        ..DomainSpec::default()
    };
    let rules =
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules");
    let rules = with(&rules, [row("k", "x", limit(1_000_000)), row("k", "x", times("2"))]);
    let plan = Plan::new(&rules, &request(vec![descriptor(&[("k", "x")])]), 0).expect("a plan");
    assert_eq!(plan.limits().next().expect("a limit").spec.requests_per_unit, 120);
    let [derivation] = plan.derivations() else { panic!("one limit is changed") };
    let changes: Vec<_> = derivation.steps.iter().map(|step| &step.change).collect();
    assert!(
        matches!(changes[..], [Change::Unfit(Unfit::Limit(_)), Change::Multiplied(_, 120)]),
        "{changes:?}"
    );
    assert_eq!((derivation.from, derivation.charge), (Amount::Units(60), Some(0)));
}

#[test]
fn no_limit_replaces_a_blocked_one() {
    let base = node("base", vec![plain(9, Some("base"))], vec![]);
    let other = LimitSpec { replaces: vec!["base".to_owned()], ..plain(5, Some("other")) };
    let domain = DomainSpec {
        domain: "d".to_owned(),
        descriptors: vec![base, node("other", vec![other], vec![])],
        ..DomainSpec::default()
    };
    let rules =
        RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("valid rules");
    let both = request(vec![descriptor(&[("base", "x")]), descriptor(&[("other", "x")])]);
    let charged = |rules: &RuleSet| -> Vec<String> {
        Plan::new(rules, &both, 0).expect("a plan").limits().map(limit_text).collect()
    };
    assert_eq!(charged(&rules), ["5"]);
    assert_eq!(charged(&with(&rules, [row("base", "x", block())])), ["blocked", "5"]);
}

#[test]
fn a_row_finds_a_secret_value_by_the_value_and_by_its_hash() {
    let secret = NodeSpec { secret: true, ..node("api_key", vec![sixty(None)], vec![]) };
    let domain = DomainSpec { domain: "d".to_owned(), descriptors: vec![secret], ..DomainSpec::default() };
    let hashing = ValueHashing { key: Some(HashKey::new(b"a key for this test")), all_values: false };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, hashing).expect("valid rules");
    let pairs: Pairs<'_> = &[("api_key", "sk-1")];
    let entry = &descriptor(pairs).entries[0];
    let hash = rules.hidden_value("d", entry).expect("the value is secret");
    for value in ["sk-1", &hash] {
        let rules = with(&rules, [row("api_key", value, tier("pro"))]);
        assert_eq!(limits(&rules, pairs), "600", "{value}");
        let plan = Plan::new(&rules, &request(vec![descriptor(pairs)]), 0).expect("a plan");
        assert!(!plan.charges.keys().any(|key| key.contains("sk-1")), "{:?}", plan.charges);
        assert_eq!(limits(&rules, &[("api_key", &hash)]), "60", "the hash does not stand for the secret");
    }
}
