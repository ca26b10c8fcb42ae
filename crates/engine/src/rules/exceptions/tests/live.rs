//! Live rows beside rows of files.

use proptest::prelude::*;

use super::*;

const SECOND: u64 = 1_000_000;

#[test]
fn a_live_row_comes_after_the_rows_of_files() {
    let on = |effect| row("tenant", "acme", effect);
    // The known answers 10 to 14 of the design, and more.
    let table = [
        (vec![on(tier("pro"))], vec![on(times("2"))], "1200"),
        (vec![on(limit(100))], vec![on(limit(50))], "50"),
        (vec![on(block())], vec![on(exempt())], "blocked"),
        (vec![on(exempt())], vec![on(block())], "blocked"),
        (vec![], vec![on_limits("other.*", "*", on(limit(5)))], "60"),
        (vec![], vec![of_domain("e", on(limit(5)))], "60"),
        (vec![], vec![of_domain("*", on(limit(5)))], "5"),
        // Of two live rows the later version wins, whatever their domains.
        (vec![], vec![of_domain("*", on(limit(5))), on(limit(6))], "6"),
        (vec![], vec![on(limit(6)), of_domain("d*", on(limit(5)))], "5"),
        // If a file row names limits, it still wins over a live row that does not.
        (vec![on_limits("tenant", "*", on(limit(7)))], vec![on(limit(5))], "7"),
    ];
    for (files, live, expected) in table {
        let rules = with_live(&with(&rules(), files.clone()), live.clone());
        assert_eq!(limits(&rules, &[("tenant", "acme")]), expected, "{files:?}, {live:?}");
        assert_eq!(limits(&rules, &[("tenant", "other")]), "60", "{files:?}, {live:?}");
    }
}

#[test]
fn a_live_row_exempts_an_address_of_a_blocked_network() {
    let net = |value: &str, effect| row("ip", value, effect);
    let block = net("10.0.0.0/8", block());
    let both = with_live(&rules(), [block.clone(), net("10.0.0.7/32", exempt())]);
    let in_file = with_live(&with(&rules(), [block.clone()]), [net("10.0.0.7/32", exempt())]);
    let block_is_live = with_live(&with(&rules(), [net("10.0.0.7/32", exempt())]), [block]);
    for rules in [both, in_file, block_is_live] {
        assert_eq!(limits(&rules, &[("ip", "10.0.0.7")]), "unlimited");
        assert_eq!(limits(&rules, &[("ip", "::ffff:10.0.0.7")]), "unlimited");
        assert_eq!(limits(&rules, &[("ip", "10.0.0.8")]), "blocked");
        assert_eq!(limits(&rules, &[("ip", "11.0.0.8")]), "60");
    }
}

#[test]
fn a_row_starts_at_its_time() {
    let starts = ExceptionRow { from_us: Some(10 * SECOND), ..row("tenant", "acme", limit(50)) };
    for rules in [with(&rules(), [starts.clone()]), with_live(&rules(), [starts.clone()])] {
        let at = |now_us| limits_of(&rules, descriptor(&[("tenant", "acme")]), now_us).join(", ");
        assert_eq!(
            [at(9 * SECOND), at(10 * SECOND - 1), at(10 * SECOND)],
            ["60", "60", "50"].map(str::to_owned)
        );
    }
    let never = ExceptionRow { until_us: Some(10 * SECOND), ..starts };
    let rules = with(&rules(), [never]);
    assert_eq!(limits_of(&rules, descriptor(&[("tenant", "acme")]), 10 * SECOND), ["60"]);
}

#[test]
fn rows_are_replaced_and_removed_and_a_clone_keeps_its_rows() {
    let mut live = LiveRows::default();
    let one = live_row("a", 1, row("tenant", "acme", limit(5)));
    let other = live_row("b", 2, row("ip", "10.0.0.0/8", limit(6)));
    live.insert(Arc::clone(&one));
    live.insert(Arc::clone(&other));
    let before = live.clone();
    let replaced = live_row("a", 3, row("ip", "10.1.0.0/16", limit(7)));
    live.remove(&one);
    live.insert(Arc::clone(&replaced));
    assert_eq!((live.len(), live.rows().count()), (2, 2));
    let limits_with = |live: &LiveRows, pairs| limits(&rules().with_exceptions(Arc::default(), live), pairs);
    let (acme, ip): (Pairs<'_>, Pairs<'_>) = (&[("tenant", "acme")], &[("ip", "10.1.0.1")]);
    assert_eq!((limits_with(&live, acme), limits_with(&live, ip)), ("60".to_owned(), "7".to_owned()));
    // A clone keeps its rows.
    assert_eq!((limits_with(&before, acme), limits_with(&before, ip)), ("5".to_owned(), "6".to_owned()));
    live.remove(&replaced);
    // Neither a row that is gone nor an equal one.
    live.remove(&one);
    live.remove(&Arc::new((*other).clone()));
    assert_eq!((limits_with(&live, ip), live.len()), ("6".to_owned(), 1));
    live.remove(&other);
    assert!(live.is_empty() && live.groups_for("d").is_empty());
    let rules = rules().with_exceptions(Arc::default(), &live);
    assert!(rules.exceptions().is_none() && rules.live_rows().is_none() && !rules.depends_on_time());
}

#[test]
fn a_domain_without_rows_is_not_looked_up() {
    let rules = rules();
    let domain = |rules: &RuleSet, name| rules.exceptions_of(rules.domain(name).expect("a domain")).is_some();
    let live = with_live(&rules, [row("tenant", "acme", limit(5))]);
    assert_eq!((domain(&live, "d"), domain(&live, "e")), (true, false));
    let both = with_live(
        &with(&rules, [row("tenant", "acme", limit(5))]),
        [of_domain("e*", row("ip", "x", limit(5)))],
    );
    assert_eq!((domain(&both, "d"), domain(&both, "e")), (true, true));
    // The rows of files stay when the last live row goes.
    let without = both.with_exceptions(both.exceptions().cloned().unwrap_or_default(), &LiveRows::default());
    assert_eq!((domain(&without, "d"), domain(&without, "e")), (true, false));
}

#[test]
fn the_derivation_names_the_live_row() {
    let rules = with_live(&rules(), [row("tenant", "acme", times("2"))]);
    let plan = Plan::new(&rules, &request(vec![descriptor(&[("tenant", "acme")])]), 0).expect("a plan");
    let step = &plan.derivations()[0].steps[0];
    let ChangedBy::Row(row) = &step.by else { panic!("a row changed the limit") };
    assert_eq!(row.source.to_string(), "live row id1");
}

/// The id of a row, and the row; `None`: it is removed.
fn edit() -> impl Strategy<Value = (usize, Option<ExceptionRow>)> {
    (0..8_usize, proptest::option::weighted(0.7, model::full_row()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]
    #[test]
    fn changed_live_rows_answer_as_new_ones_and_as_files(
        edits in proptest::collection::vec(edit(), 0..24),
        of_files in proptest::collection::vec(model::full_row(), 0..4),
        key in proptest::sample::select(&["ip", "tenant", "plain"][..]),
        value in proptest::sample::select(&model::ADDRESSES[..]),
        now_us in model::NOW_US - 2..model::NOW_US + 2,
    ) {
        let files = with(&rules(), of_files.clone());
        let all_files = || files.exceptions().cloned().unwrap_or_default();
        let mut live = LiveRows::default();
        let mut changed = files.clone();
        let mut known: Vec<Option<Arc<ExceptionRow>>> = vec![None; 8];
        for (version, (id, row)) in (1..).zip(edits) {
            if let Some(known) = known[id].take() {
                live.remove(&known);
            }
            known[id] = row.map(|row| live_row(&id.to_string(), version, row));
            known[id].iter().for_each(|row| live.insert(Arc::clone(row)));
            // Each rule set is made from the one before.
            changed = changed.with_exceptions(all_files(), &live);
        }
        prop_assert_eq!(live.len(), known.iter().flatten().count());
        let mut fresh = LiveRows::default();
        known.iter().rev().flatten().for_each(|row| fresh.insert(Arc::clone(row)));
        let mut in_order: Vec<_> = known.iter().flatten().collect();
        in_order.sort_by_key(|row| match row.source {
            RowSource::Live { version, .. } => version,
            RowSource::File { .. } => 0,
        });
        let in_file = in_order.into_iter().map(|row| {
            let source = RowSource::File { file: "a.yaml".into(), line: 1 };
            ExceptionRow { source, ..(**row).clone() }
        });
        let as_files = with(&rules(), of_files.into_iter().chain(in_file));
        let fresh = rules().with_exceptions(all_files(), &fresh);
        let changes = |rules: &RuleSet| {
            let plan = Plan::new(rules, &request(vec![descriptor(&[(key, value)])]), now_us).expect("a plan");
            let steps = plan.derivations().iter().flat_map(|derivation| &derivation.steps);
            steps.map(|step| step.change.clone()).collect::<Vec<_>>()
        };
        let answer = |rules: &RuleSet| (limits_of(rules, descriptor(&[(key, value)]), now_us), changes(rules));
        prop_assert_eq!(answer(&changed), answer(&fresh));
        prop_assert_eq!(answer(&changed), answer(&as_files));
        prop_assert_eq!(changed.exceptions().is_some(), fresh.exceptions().is_some());
    }
}
