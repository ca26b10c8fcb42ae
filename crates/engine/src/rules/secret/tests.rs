//! Which values are hidden, and what is shown instead.

use proptest::prelude::*;

use super::*;
use crate::{
    Algorithm, Caller, Defaults, Descriptor, DomainSpec, Limit, LimitOverride, LimitSpec, Period, Plan,
    Request, RuleSet, RuleSpec, Unit,
};

const TOKEN: &str = "sk-4f8a0c1b9d2e7f6a";
/// The hash of `api_key=TOKEN` in domain `api`, computed with Python's hmac.
const HASH: &str = "%k28e4584c9f8fa78ad51b0d49593a606e";

type Pairs<'p> = &'p [(&'p str, &'p str)];

fn hashing(secret: &str) -> ValueHashing {
    ValueHashing { key: Some(HashKey::new(secret.as_bytes())), all_values: false }
}

fn with_key() -> ValueHashing {
    hashing("a key for the tests of this module")
}

fn node(composite: &str, secret: bool, descriptors: Vec<NodeSpec>) -> NodeSpec {
    let (key, value) = composite.split_once('=').unwrap_or((composite, ""));
    let limit = LimitSpec::new(Algorithm::FixedWindow, 5, Period::one(Unit::Minute));
    let limit = Limit::new(limit).expect("a valid limit");
    let rule = Some(RuleSpec { limits: vec![limit], ..RuleSpec::default() });
    let (key, value) = (key.to_owned(), value.to_owned());
    NodeSpec { key, value, secret, rule, descriptors, ..NodeSpec::default() }
}

fn domain(name: &str, descriptors: Vec<NodeSpec>) -> DomainSpec {
    DomainSpec { domain: name.to_owned(), descriptors, ..DomainSpec::default() }
}

/// `api_key` is secret below a tenant, `token` by an exact value, `session` by a wildcard.
fn specs() -> Vec<DomainSpec> {
    let tenant = node("tenant", false, vec![node("api_key", true, vec![node("path", false, vec![])])]);
    let exact = format!("token={TOKEN}");
    let nodes = vec![
        tenant,
        node("api_key", false, vec![]),
        node(&exact, true, vec![]),
        node("session=s-*", true, vec![]),
    ];
    vec![domain("api", nodes), domain("other", vec![node("api_key", false, vec![])])]
}

fn rules(hashing: ValueHashing) -> RuleSet {
    RuleSet::compile(&specs(), Defaults::ENVOY_RATELIMIT, hashing).expect("the rules are valid")
}

fn request(domain: &str, pairs: Pairs<'_>) -> Request {
    let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
    let descriptor = Descriptor { entries: pairs.iter().map(entry).collect(), ..Descriptor::default() };
    Request {
        domain: domain.to_owned(),
        hits_addend: 1,
        descriptors: vec![descriptor],
        caller: Caller::default(),
    }
}

/// The values of a request's one descriptor as they are shown.
fn shown(rules: &RuleSet, request: &Request) -> Vec<String> {
    let plan = Plan::new(rules, request, 0).expect("the request is valid");
    let entries = request.descriptors[0].entries.iter().enumerate();
    entries.map(|(at, entry)| plan.hidden.get(0, at).unwrap_or(&entry.value).to_owned()).collect()
}

fn first_key(rules: &RuleSet, request: &Request) -> String {
    let plan = Plan::new(rules, request, 0).expect("the request is valid");
    plan.charges.keys().next().expect("a charge").to_owned()
}

#[test]
fn a_hash_stands_in_place_of_the_value_in_the_key() {
    let rules = rules(with_key());
    let entry = ("api_key", TOKEN);
    let table: [(Pairs<'_>, String); 4] = [
        (&[entry], format!("{{api|api_key={HASH}}}#fw:60000000")),
        (&[("tenant", "a"), entry], format!("{{api|tenant=a}}|api_key={HASH}#fw:60000000")),
        (
            &[("tenant", "a"), entry, ("path", "/")],
            format!("{{api|tenant=a}}|api_key={HASH}|path=/#fw:60000000"),
        ),
        (&[("tenant", "a")], "{api|tenant=a}#fw:60000000".to_owned()),
    ];
    for (pairs, key) in table {
        assert_eq!(first_key(&rules, &request("api", pairs)), key);
    }
    let mut with_override = request("api", &[("unknown", "x"), entry]);
    let limit = LimitOverride { requests_per_unit: 7, period: Period::one(Unit::Minute) };
    with_override.descriptors[0].limit = Some(limit);
    let key = format!("{{api|unknown=x}}|api_key={HASH}#o:fw:60000000");
    assert_eq!(first_key(&rules, &with_override), key);
}

#[test]
fn a_secret_key_is_secret_wherever_it_stands_in_the_domain() {
    let rules = rules(with_key());
    let is_hidden = |domain: &str, pairs: Pairs<'_>| -> Vec<bool> {
        shown(&rules, &request(domain, pairs)).iter().map(|value| value.starts_with(MARK)).collect()
    };
    let table: [(&str, Pairs<'_>, &[bool]); 11] = [
        ("api", &[("api_key", TOKEN)], &[true]),
        ("api", &[("x", "y"), ("api_key", TOKEN), ("api_key", "")], &[false, true, true]),
        ("api", &[("token", "not the value of the rule")], &[true]),
        ("api", &[("session", "no wildcard matches this")], &[true]),
        // Nodes match `key_value`, wherever it is split.
        ("api", &[("api", "key")], &[true]),
        ("api", &[("sess", "x"), ("s", "ession_s-1")], &[false, false]),
        ("api", &[("session_s-1", "x")], &[true]),
        ("api", &[("tok", "en_x"), ("api_key_id", "5"), ("Api_key", "x")], &[false, false, false]),
        ("other", &[("api_key", TOKEN)], &[false]),
        ("a domain without rules", &[("api_key", TOKEN), ("x", "y")], &[true, false]),
        ("a domain without rules", &[("token", TOKEN), ("session", "1")], &[true, true]),
    ];
    for (domain, pairs, expected) in table {
        assert_eq!(is_hidden(domain, pairs), expected, "{domain}: {pairs:?}");
    }
}

#[test]
fn exact_values_of_secret_rules_match_and_are_not_in_the_name_of_the_rule() {
    let rules = rules(with_key());
    let plan = Plan::new(&rules, &request("api", &[("token", TOKEN)]), 0).expect("the request is valid");
    let label = plan.limits().next().expect("the rule matches").label.to_string();
    assert!(label.starts_with("api.token_%k") && !label.contains(TOKEN), "{label}");
    let other = Plan::new(&rules, &request("api", &[("token", "other")]), 0).expect("the request is valid");
    assert!(other.charges.is_empty(), "another value does not match");
    let paths: Vec<_> = rules.rules().iter().map(|rule| rule.path.to_string()).collect();
    assert!(paths.contains(&"api.session_s-*".to_owned()), "a wildcard keeps its name: {paths:?}");
}

#[test]
fn hashes_differ_by_key_of_the_service_domain_and_key_of_the_entry() {
    let hash = |secret: &str, domain: &str, key: &str, value: &str| {
        ValueHasher::new(HashKey::new(secret.as_bytes())).hash(domain, key, value)
    };
    let hashes = [
        hash("one", "d", "k", "v"),
        hash("two", "d", "k", "v"),
        hash("one", "dk", "", "v"),
        hash("one", "", "dk", "v"),
        hash("one", "d", "", "kv"),
        hash("one", "d", "k", ""),
    ];
    let different: HashSet<_> = hashes.iter().collect();
    assert_eq!(different.len(), hashes.len());
    assert_eq!(hashes[0], hash("one", "d", "k", "v"));
}

#[test]
fn every_value_can_be_hashed_and_names_of_rules_stay() {
    let all = ValueHashing { all_values: true, ..with_key() };
    let nodes = vec![node("plan=gold", false, vec![])];
    let rules = RuleSet::compile(&[domain("shop", nodes)], Defaults::ENVOY_RATELIMIT, all);
    let rules = rules.expect("the rules are valid");
    for (domain, pairs) in [("shop", [("plan", "gold")]), ("no rules", [("plan", "gold")])] {
        assert!(shown(&rules, &request(domain, &pairs))[0].starts_with(MARK), "{domain}");
    }
    let key = first_key(&rules, &request("shop", &[("plan", "gold")]));
    assert!(key.starts_with("{shop|plan=%k"), "{key}");
    assert_eq!(&*rules.rules()[0].path, "shop.plan_gold");
}

#[test]
fn secret_values_without_a_key_are_refused() {
    let compile = |specs: &[DomainSpec], all_values| {
        let hashing = ValueHashing { key: None, all_values };
        RuleSet::compile(specs, Defaults::ENVOY_RATELIMIT, hashing).map(|_| ())
    };
    assert_eq!(compile(&specs(), false), Err(CompileError::NoHashKey));
    assert_eq!(compile(&[], true), Err(CompileError::NoHashKey));
    assert_eq!(compile(&specs()[1..], false), Ok(()));
}

#[test]
fn keys_are_never_displayed() {
    let shown = format!("{:?} {:?}", with_key(), SecretValues::new([], with_key()));
    assert_eq!(
        shown, "ValueHashing { key: Some(HashKey), all_values: false } Ok(None)",
        "no byte of the key"
    );
}

fn pair() -> impl Strategy<Value = (&'static str, String)> {
    let keys = prop_oneof![Just("tenant"), Just("api_key"), Just("path"), Just("token"), Just("session")];
    (keys, prop_oneof!["(s-)?SECRET[a-z]{0,40}", Just(TOKEN.to_owned())])
}

proptest! {
    #[test]
    fn a_secret_value_is_nowhere_in_a_plan(
        pairs in proptest::collection::vec(pair(), 1..5),
        known_domain in any::<bool>(),
    ) {
        let rules = rules(with_key());
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (*key, value.as_str())).collect();
        let request = request(if known_domain { "api" } else { "nowhere" }, &pairs);
        let plan = format!("{:?}", Plan::new(&rules, &request, 0).expect("the request is valid"));
        let shown = shown(&rules, &request);
        for ((key, value), shown) in pairs.iter().zip(shown) {
            if ["api_key", "token", "session"].contains(key) {
                prop_assert!(shown.starts_with(MARK));
                let is_public = pairs.iter().any(|(key, public)| {
                    ["tenant", "path"].contains(key) && public.contains(value)
                });
                prop_assert!(is_public || !plan.contains(value), "{value} in {plan}");
            } else {
                prop_assert_eq!(&shown, value);
            }
        }
    }
}
