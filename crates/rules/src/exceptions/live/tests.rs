//! A row is the same after it was written as JSON and read again, and problems name the row's place.

use engine::{Effect, ExceptionRow, Glob, Multiplier, RowTerms, RowValue};
use proptest::prelude::*;

use serde_json::json;

use super::*;

/// 2026-11-26T13:46:40Z.
const NOW_US: u64 = 1_795_700_800_000_000;

fn read(columns: &Value) -> Result<LiveRow, String> {
    LiveRow::read("rows[0]", columns, NOW_US).map(|(row, _)| row).map_err(|problems| problems.to_string())
}

fn with(more: &Value) -> Value {
    let mut columns = json!({"domain": "shop", "key": "tenant", "value": "acme", "reason": "INC-42"});
    columns.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    columns
}

#[test]
fn a_row_has_the_columns_of_a_file_and_an_end_that_may_be_a_duration() {
    let row = read(&with(&json!({"multiplier": 1.5, "until": "2h", "by": "ann"}))).expect("a good row");
    let shown = json!({
        "domain": "shop", "key": "tenant", "value": "acme", "multiplier": "1.5",
        "until": "2026-11-26T15:46:40Z", "reason": "INC-42", "by": "ann",
    });
    assert_eq!((Value::Object(row.columns()), row.origin), (shown, Origin::Operator));
    let row = read(&with(&json!({"block": true, "until": "2026-12-01T01:00:00+01:00"}))).expect("a good row");
    assert_eq!(row.row.until_us, Some(1_796_083_200_000_000));
    let grant = read(&with(&json!({"add": 500}))).expect("a good row");
    assert_eq!((grant.origin, grant.row.from_us), (Origin::Grant, Some(NOW_US)));
    let later = read(&with(&json!({"add": 500, "from": "2026-12-01T00:00:00Z"}))).expect("a good row");
    assert_eq!(later.row.from_us, Some(1_796_083_200_000_000));
}

#[test]
fn problems_have_the_place_of_the_row() {
    let long = "x".repeat(1_025);
    let table = [
        (json!(7), "rows[0]: a row must be a map, such as"),
        (with(&json!({})), "rows[0]: the row changes nothing"),
        (with(&json!({"block": true, "exempt": true})), "rows[0]: set 'block' or 'exempt', not both"),
        (with(&json!({"blok": true})), "rows[0]: unknown column 'blok'; did you mean 'block'?"),
        (with(&json!({"block": "true"})), "rows[0]: 'block' must be true or false"),
        (with(&json!({"limit": 1.5})), "rows[0]: 'limit' must be a whole number"),
        (with(&json!({"limit": null})), "rows[0]: 'limit' has no value"),
        (with(&json!({"limit": {"a": 1}})), "rows[0]: 'limit' must be a string"),
        (
            with(&json!({"block": true, "until": "tomorrow"})),
            "rows[0]: 'until' must be a time with a UTC offset, such as 2026-12-01T00:00:00Z or \
             2026-12-01T01:00:00+01:00, or a duration such as 2h (--until, --for)",
        ),
        (with(&json!({"block": true, "until": "2"})), "rows[0]: 'until' must be a time"),
        (with(&json!({"block": true, "until": "2026-11-26T13:46:40Z"})), "rows[0]: the end is in the past"),
        (with(&json!({"block": true, "until": "0s"})), "rows[0]: the end is in the past"),
        (with(&json!({"block": true, "value": long})), "rows[0]: 'value' is longer than 1024 bytes"),
        (with(&json!({"block": true, "by": "é".repeat(101)})), "rows[0]: 'by' is longer than 100 characters"),
        (
            with(&json!({"block": true, "reason": "é".repeat(201)})),
            "rows[0]: a change needs a reason of 1 to 200 characters",
        ),
        (
            json!({"domain": "shop", "key": "tenant", "value": "acme", "block": true}),
            "rows[0]: a change needs a reason of 1 to 200 characters",
        ),
        (
            with(&json!({"block": true, "path": "x".repeat(2_000)})),
            "rows[0]: the row is longer than 2048 bytes of JSON",
        ),
        (with(&json!({"block": true, "value": "10.0.0.0/33"})), "rows[0]: 'value':"),
        (with(&json!({"block": true, "origin": "penalty"})), "rows[0]: unknown column 'origin'"),
    ];
    for (columns, expected) in table {
        let told = read(&columns).expect_err("refused");
        assert!(told.starts_with(expected), "{columns}: {told}");
    }
}

#[test]
fn an_id_is_of_what_the_row_is_for() {
    let id = |columns: &Value| read(columns).expect("a good row").id().to_string();
    let acme = id(&with(&json!({"multiplier": "2"})));
    assert_eq!(acme.len(), 12);
    assert!(acme.bytes().all(|byte| byte.is_ascii_digit() || byte.is_ascii_lowercase()), "{acme}");
    assert_eq!(acme, id(&with(&json!({"limit": 5, "until": "1h", "reason": "other", "path": "*"}))));
    let others = [
        json!({"add": 2}),
        json!({"limit": 5, "value": "acme2"}),
        json!({"limit": 5, "key": "tenan", "value": "tacme"}),
        json!({"limit": 5, "domain": "*"}),
        json!({"limit": 5, "path": "tenant"}),
        json!({"limit": 5, "limit_name": "tenant"}),
    ];
    let mut ids: Vec<_> = others.iter().map(|more| id(&with(more))).chain([acme]).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 7);
    let address = |value: &str| id(&with(&json!({"block": true, "value": value})));
    assert_eq!(address("2001:DB8::1"), address("2001:db8:0::1/128"));
}

#[test]
fn what_is_stored_is_read_or_has_a_reason() {
    let row = read(&with(&json!({"block": true, "until": "1h"}))).expect("a good row");
    assert!(!row.stored().contains("until"), "it is stored beside the row");
    for (stored, expected) in [
        ("", "EOF"),
        ("[]", "a row must be a map"),
        ("7", "a row must be a map"),
        (r#"{"origin":"nobody"}"#, "unknown origin"),
        (r#"{"domain":"shop","key":"tenant","value":"acme"}"#, "the row changes nothing"),
    ] {
        let told = LiveRow::from_stored(stored, 1, None).expect_err("refused");
        assert!(told.contains(expected), "{stored}: {told}");
    }
}

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-z0-9*._/:-]{1,12}",
        "\\PC{1,12}",
        Just("true".to_owned()),
        Just("~".to_owned()),
        any::<String>()
    ]
    .prop_filter("a column has a value", |text| !text.is_empty())
}

fn value() -> impl Strategy<Value = RowValue> {
    let of_text = |text: String| super::super::row::parse_value(&text).ok();
    let network = (any::<u32>(), 0..=32_u32).prop_map(|(bits, len)| {
        format!("{}/{len}", std::net::Ipv4Addr::from(bits & u32::MAX.checked_shl(32 - len).unwrap_or(0)))
    });
    let address = any::<std::net::IpAddr>().prop_map(|address| address.to_string());
    prop_oneof![text(), network, address].prop_filter_map("not a network that is wrong", of_text)
}

fn effect() -> impl Strategy<Value = Effect> {
    let multiplier = (1_000..=1_000_000_000_u64).prop_map(|millionths| {
        let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        text.parse::<Multiplier>().expect("in range")
    });
    let number = prop::option::of(0..=1_u64 << 52);
    let changes =
        (prop::option::of(text()), number, prop::option::of(multiplier), prop::option::of(any::<bool>()))
            .prop_filter("it changes something", |(tier, limit, multiplier, shadow)| {
                tier.is_some() || limit.is_some() || multiplier.is_some() || shadow.is_some()
            })
            .prop_map(|(tier, limit, multiplier, shadow_mode)| Effect {
                tier: tier.map(Into::into),
                limit,
                multiplier,
                shadow_mode,
                ..Effect::default()
            });
    prop_oneof![
        Just(Effect { block: true, ..Effect::default() }),
        Just(Effect { exempt: true, ..Effect::default() }),
        (1..=1_u64 << 52).prop_map(|units| Effect { add: Some(units), ..Effect::default() }),
        changes,
    ]
}

fn row() -> impl Strategy<Value = ExceptionRow> {
    let time = || prop::option::of(0..253_402_207_200_000_000_u64);
    let texts = (text(), text(), text(), text(), prop::option::of(text()), prop::option::of(text()));
    (texts, value(), effect(), time(), time()).prop_map(
        |((domain, key, path, limit_name, reason, by), value, effect, from_us, until_us)| ExceptionRow {
            source: RowSource::Live { id: "".into(), version: 0 },
            value,
            from_us,
            until_us,
            terms: Arc::new(RowTerms {
                domain: Glob::new(&domain),
                key: key.into(),
                path: Glob::new(&path),
                limit_name: Glob::new(&limit_name),
                effect,
                reason: reason.map(Into::into),
                by: by.map(Into::into),
            }),
        },
    )
}

proptest! {
    #[test]
    fn a_row_is_the_same_after_it_was_written_and_read(mut row in row(), origin in 0..Origin::COUNT, version in 1..1_u64 << 52) {
        let origin = Origin::all().nth(origin).expect("an origin");
        if origin.is_automatic() {
            let terms = Arc::make_mut(&mut row.terms);
            terms.domain = Glob::Exact(terms.domain.text().to_owned());
            if terms.path != Glob::Any {
                terms.path = Glob::Exact(terms.path.text().to_owned());
            }
        }
        let row = LiveRow::new(row, origin, version);
        let stored = LiveRow::from_stored(&row.stored(), version, row.row.until_us);
        prop_assert_eq!(stored.as_ref(), Ok(&row), "{}", row.stored());
        if origin.is_automatic() {
            return Ok(());
        }
        // The columns are the same as in a file.
        let mut report = FileReport::new(&"row".into());
        let columns = read_columns(&Value::Object(row.columns()), &mut report);
        prop_assert_eq!(columns.map(|columns| LiveRow::new(columns, origin, version)), Some(row));
    }
}

#[test]
fn an_automatic_row_is_for_the_rule_whose_path_has_a_star() {
    let row = read(&with(&json!({"block": true, "path": "tenant.path_/v1/*"}))).expect("a good row");
    let terms = RowTerms { path: Glob::Exact("tenant.path_/v1/*".to_owned()), ..(*row.row.terms).clone() };
    let row = ExceptionRow { terms: terms.into(), ..(*row.row).clone() };
    for (origin, others) in [(Origin::Penalty, false), (Origin::Feedback, false), (Origin::Operator, true)] {
        let row = LiveRow::new(row.clone(), origin, 0);
        let stored = LiveRow::from_stored(&row.stored(), 0, None).expect("a good row");
        assert_eq!(stored.id(), row.id());
        let path = &stored.row.terms.path;
        assert_eq!(
            (path.matches("tenant.path_/v1/*"), path.matches("tenant.path_/v1/status")),
            (true, others)
        );
    }
}
