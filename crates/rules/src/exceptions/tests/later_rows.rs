//! Tests that the later of two rows for one value wins, both in the service's table of tiers and when one request is
//! explained with line numbers.

use engine::{
    Algorithm, Caller, Descriptor, DomainSpec, Limit, LimitSpec, LiveRows, NodeSpec, Period, Plan, Request,
    RuleSet, RuleSpec, Tier, Unit, ValueHashing,
};

use super::*;

#[test]
fn a_later_row_counts_for_the_service_and_for_one_request() {
    let (domain, every) = ("llm,tenant,acme,low,", "*,tenant,acme,pro,");
    let until = "llm,tenant,acme,pro,2099-01-01T00:00:00Z";
    for (rows, expected) in [
        ([vec![domain, every], vec![]], "pro"),
        ([vec![every, domain], vec![]], "low"),
        ([vec![domain, every, domain], vec![]], "low"),
        ([vec![domain], vec![every]], "pro"),
        ([vec![every], vec![domain]], "low"),
        ([vec![until, domain], vec![]], "low"),
        ([vec![domain, until], vec![]], "pro"),
        ([vec![until, domain, every], vec![]], "pro"),
        ([vec![until], vec![domain]], "low"),
        ([vec![domain], vec![until]], "pro"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, rows) in ["a.csv", "b.csv"].into_iter().zip(&rows) {
            let text = format!("domain,key,value,tier,until\n{}\n", rows.join("\n"));
            fs::write(folder.path().join(name), text).expect("room for a file");
        }
        let entries = [Entry { key: "tenant".to_owned(), value: "acme".to_owned() }];
        let load = |entries, previous: &LoadedExceptions| {
            load_exceptions(
                folder.path(),
                ExceptionScope { now_us: NOW_US, entries, columns: None },
                previous,
            )
            .expect("valid files")
        };
        let service = load(None, &LoadedExceptions::default());
        let request = load(Some(&entries), &LoadedExceptions::default());
        for loaded in [&service, &request] {
            let number = number_of(Arc::clone(&loaded.exceptions), &entries);
            assert_eq!(number, if expected == "pro" { 600 } else { 6 }, "{rows:?}");
        }
        let again = load(None, &service);
        assert!(again.files.iter().all(|file| file.changes.is_empty()), "{rows:?}: {:?}", again.files);
    }
}

/// The limit of a descriptor with these entries in the domain `llm`.
fn number_of(exceptions: Arc<Exceptions>, entries: &[Entry]) -> u64 {
    let tiers = [("low", 6), ("pro", 600)]
        .map(|(name, requests_per_unit)| (name.to_owned(), Tier::Limited { requests_per_unit, burst: None }));
    let spec = LimitSpec {
        tiers: tiers.into(),
        ..LimitSpec::new(Algorithm::FixedWindow, 60, Period::one(Unit::Minute))
    };
    let limits = vec![Limit::new(spec).expect("a valid limit")];
    let rule = Some(RuleSpec { limits, ..RuleSpec::default() });
    let descriptors = vec![NodeSpec { key: "tenant".to_owned(), rule, ..NodeSpec::default() }];
    let domain = DomainSpec { domain: "llm".to_owned(), descriptors, ..DomainSpec::default() };
    let rules = RuleSet::compile(&[domain], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE);
    let rules = rules.expect("valid rules").with_exceptions(exceptions, &LiveRows::default());
    let descriptors = vec![Descriptor { entries: entries.to_vec(), ..Descriptor::default() }];
    let request =
        Request { domain: "llm".to_owned(), hits_addend: 1, descriptors, caller: Caller::default() };
    let plan = Plan::new(&rules, &request, NOW_US).expect("a plan");
    plan.limits().next().expect("a limit").spec.requests_per_unit
}
