//! The precedence of exceptions by definition, one row after the other, compared with the look-up in the tables.

use std::net::IpAddr;

use proptest::prelude::*;

use super::*;

pub(super) const NOW_US: u64 = 1_000;

/// A row and, if its file only assigns tiers, whether it comes through the table.
#[derive(Clone, Debug)]
struct ModelRow {
    row: ExceptionRow,
    in_table: bool,
    /// Whether it is the first row of its file, although the row before it is of the same kind.
    starts_file: bool,
}

/// A row that applies to an entry: what decides between two rows; the greater one wins.
#[derive(Clone, Copy, Debug)]
struct Match<'r> {
    row: &'r ExceptionRow,
    order: (bool, usize, u8, usize),
}

fn matches<'r>(rows: &'r [ModelRow], entries: &[Entry], path: &str, name: &str) -> Vec<Match<'r>> {
    let mut matches = Vec::new();
    for (line, ModelRow { row, in_table, .. }) in rows.iter().enumerate() {
        let has_started = row.from_us.is_none_or(|from_us| from_us <= NOW_US);
        let is_in_force = has_started && row.until_us.is_none_or(|until_us| NOW_US < until_us);
        let is_for_limit = row.path.matches(path) && row.limit_name.matches(name);
        for (index, entry) in entries.iter().enumerate().filter(|(_, entry)| *entry.key == *row.key) {
            let precision = match &row.value {
                RowValue::Exact(value) => {
                    // A row with a port applies to exactly this string.
                    let is_address = *in_table && value.parse::<IpAddr>().is_ok();
                    let is_same = is_address && address(value) == address(&entry.value);
                    (is_same || **value == *entry.value).then_some(255)
                }
                RowValue::Network(network) => {
                    let is_inside = address(&entry.value).is_some_and(|address| network.contains(address));
                    let is_whole = ["10.0.0.1/32", "2001:db8::1/128"].contains(&&*network.to_string());
                    is_inside.then(|| if is_whole { 255 } else { network.prefix_len() })
                }
            };
            if let Some(precision) =
                precision.filter(|_| is_in_force && is_for_limit && row.domain.matches("d"))
            {
                let names_limits = row.path != Glob::Any || row.limit_name != Glob::Any;
                matches.push(Match { row, order: (names_limits, index, precision, line) });
            }
        }
    }
    matches
}

/// The winning value of a column.
fn best<T>(matches: &[Match<'_>], value: impl Fn(&Effect) -> Option<T>) -> Option<T> {
    let set = matches.iter().filter(|matched| value(&matched.row.effect).is_some());
    let counting = set.max_by_key(|matched| matched.order)?;
    value(&counting.row.effect)
}

fn expected(
    rows: &[ModelRow],
    entries: &[Entry],
    limit: &LimitSpec,
    path: &str,
    entry_tier: Option<&str>,
) -> String {
    let matches = matches(rows, entries, path, limit.name.as_deref().unwrap_or_default());
    let access: Vec<_> =
        matches.iter().filter(|matched| matched.row.effect.block || matched.row.effect.exempt).collect();
    let counting = access.iter().filter(|matched| {
        let (_, entry, precision, _) = matched.order;
        !access.iter().any(|other| other.order.1 == entry && other.order.2 > precision)
    });
    let counting: Vec<_> = counting.map(|matched| &matched.row.effect).collect();
    if counting.iter().any(|effect| effect.block) {
        return "blocked".to_owned();
    }
    if !counting.is_empty() {
        return "unlimited".to_owned();
    }
    let row_tier = best(&matches, |effect| effect.tier.clone());
    let tier = entry_tier.map(str::to_owned).or(row_tier.map(|name| name.to_string()));
    let tier = tier.and_then(|name| limit.tiers.get(&name).copied());
    let number = match (best(&matches, |effect| effect.limit), tier) {
        (Some(number), _) => Some(number),
        (None, Some(Tier::Unlimited)) => None,
        (None, Some(Tier::Limited { requests_per_unit, .. })) => Some(requests_per_unit),
        (None, None) => Some(limit.requests_per_unit),
    };
    let multiplier = best(&matches, |effect| effect.multiplier);
    let number = number.map(|number| multiplier.map_or(number, |multiplier| multiplier.times(number)));
    // All starts are in the window of now.
    let grants =
        matches.iter().filter(|matched| matched.row.from_us.is_some() && matched.row.effect.add.is_some());
    let grant = grants.max_by_key(|matched| matched.order).and_then(|matched| matched.row.effect.add);
    let number = number.map(|number| number + grant.unwrap_or_default());
    let number = number.map_or("unlimited".to_owned(), |number| number.to_string());
    let is_shadow = best(&matches, |effect| effect.shadow_mode).unwrap_or(false);
    if is_shadow { format!("{number} shadow") } else { number }
}

pub(super) const ADDRESSES: [&str; 8] = [
    "10.0.0.1",
    "10.1.0.1",
    "::ffff:10.0.0.1",
    "2001:db8::1",
    "2001:DB8:0::1",
    "x",
    "10.0.0.1:80",
    "[2001:db8::1]:443",
];
const NETWORKS: [&str; 7] =
    ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/32", "0.0.0.0/0", "::/0", "2001:db8::/32", "2001:db8::1/128"];

fn address(text: &str) -> Option<IpAddr> {
    let text = match text {
        "10.0.0.1:80" => "10.0.0.1",
        "[2001:db8::1]:443" => "2001:db8::1",
        text => text,
    };
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

fn value() -> impl Strategy<Value = RowValue> {
    let network = proptest::sample::select(&NETWORKS[..]);
    prop_oneof![
        3 => proptest::sample::select(&ADDRESSES[..]).prop_map(|value| RowValue::Exact(value.into())),
        2 => network.prop_map(|text| RowValue::Network(text.parse().expect("a network"))),
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    let tiers = proptest::sample::select(&["pro", "trial", "internal", "gold"][..]);
    let times = proptest::sample::select(&["2", "0.5", "0.001", "1.5"][..]);
    (
        proptest::option::of(tiers.prop_map(Arc::from)),
        proptest::option::weighted(0.3, 0..100_u64),
        proptest::option::weighted(0.3, times.prop_map(|text: &str| text.parse().expect("a multiplier"))),
        proptest::option::weighted(0.2, 1..100_u64),
        proptest::bool::weighted(0.15),
        proptest::bool::weighted(0.15),
        proptest::option::weighted(0.2, any::<bool>()),
    )
        .prop_map(|(tier, limit, multiplier, add, block, exempt, shadow_mode)| Effect {
            tier,
            limit,
            multiplier,
            add,
            block,
            exempt,
            shadow_mode,
        })
}

pub(super) fn full_row() -> impl Strategy<Value = ExceptionRow> {
    let key = proptest::sample::select(&["ip", "tenant", "path", "plain"][..]);
    let domain = proptest::sample::select(&["d", "d", "*", "e", "d*"][..]);
    let path = proptest::sample::select(&["*", "*", "tenant*", "tenant.path", "ip"][..]);
    let name = proptest::sample::select(&["*", "*", "*", "long", "s*", ""][..]);
    let time = || proptest::option::weighted(0.3, NOW_US - 1..NOW_US + 2);
    (key, value(), domain, path, name, effect(), time(), time()).prop_map(
        |(key, value, domain, path, name, effect, from_us, until_us)| {
            let row = ExceptionRow { value, from_us, until_us, ..row(key, "", effect) };
            of_domain(domain, on_limits(path, name, row))
        },
    )
}

fn model_row() -> impl Strategy<Value = ModelRow> {
    let starts_file = any::<bool>();
    let full = (full_row(), starts_file).prop_map(|(row, starts_file)| ModelRow {
        row,
        in_table: false,
        starts_file,
    });
    let tier = proptest::sample::select(&["pro", "trial", "internal", "gold"][..]);
    let address = proptest::sample::select(&ADDRESSES[..]);
    let domain = proptest::sample::select(&["d", "d", "*", "*", "e"][..]);
    let key = proptest::sample::select(&["ip", "tenant"][..]);
    let in_table =
        (key, address, tier, domain, starts_file).prop_map(|(key, value, tier, domain, starts_file)| {
            let has_port = self::address(value).is_some() && value.parse::<IpAddr>().is_err();
            // The file does not tell which of these rows is later: one for every domain with a port, or one for a
            // domain without.
            let domain = if has_port && domain == "*" { "d" } else { domain };
            let value = RowValue::Exact(value.into());
            let row = of_domain(domain, ExceptionRow { value, ..row(key, "", self::tier(tier)) });
            ModelRow { row, in_table: true, starts_file }
        });
    prop_oneof![1 => full, 1 => in_table]
}

/// Consecutive rows of one kind can belong to one file.
fn table(rows: &[ModelRow]) -> Exceptions {
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    let mut file: Arc<str> = "".into();
    for (index, ModelRow { row, in_table, starts_file }) in rows.iter().enumerate() {
        if index == 0 || *starts_file || rows[index - 1].in_table != *in_table {
            file = format!("{index:03}").into();
        }
        match (in_table, &row.value, &row.effect.tier) {
            (true, RowValue::Exact(value), Some(tier)) => {
                let domain = if let Glob::Exact(name) = &row.domain { name } else { "*" };
                let row = TierRow { file: &file, domain, key: &row.key, value, tier };
                builder.add_tier(row).expect("few tiers");
            }
            _ => {
                let source = RowSource::File { file: Arc::clone(&file), line: 1 };
                builder.add_row(ExceptionRow { source, ..row.clone() });
            }
        }
    }
    builder.build(&Exceptions::default(), |_| {})
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn look_ups_equal_the_definition(
        rows in proptest::collection::vec(model_row(), 0..12),
        first in proptest::sample::select(&["ip", "tenant", "plain"][..]),
        values in proptest::array::uniform2(proptest::sample::select(&ADDRESSES[..])),
        below in proptest::sample::select(&["", "path", "pro", "gold"][..]),
    ) {
        let mut pairs = vec![(first, values[0])];
        let short = (sixty(Some("short")), plain(1_000, Some("long")));
        // The limits of the rule, its path, and the tier of the request.
        let (limits, path, entry_tier) = match (first, below) {
            ("tenant", "path") => {
                pairs.push(("path", values[1]));
                (vec![short.0, short.1], "tenant.path", None)
            }
            ("tenant", tier @ ("pro" | "gold")) => {
                pairs.push(("tier", tier));
                (vec![sixty(None)], "tenant.tier", Some(tier))
            }
            ("plain", _) => (vec![plain(9, None)], "plain", None),
            _ => (vec![sixty(None)], first, None),
        };
        let rules = rules().with_exceptions(Arc::new(table(&rows)), &LiveRows::default());
        let descriptor = descriptor(&pairs);
        let expected: Vec<_> =
            limits.iter().map(|limit| expected(&rows, &descriptor.entries, limit, path, entry_tier)).collect();
        prop_assert_eq!(limits_of(&rules, descriptor, NOW_US), expected);
    }
}
