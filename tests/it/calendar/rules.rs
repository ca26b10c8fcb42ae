//! Calendars in rule files: counters, months of the settings, and what `explain` and `/rlconfig` show.

use engine::algorithm::Kernel;
use engine::{Descriptor, LimitOverride, Period, Plan, RuleSet, Unit};
use rules::{
    AppliedUpgrades, CalendarOptions, LoadOptions, RuleResource, describe, load_resources, rlconfig,
};
use serde_json::json;

use crate::rules::{REFERENCE, keys, load_bytes, request, rules};

/// 2027-03-20T12:00:00Z.
const NOW_US: u64 = 1_805_544_000_000_000;

fn limit(fields: &str) -> RuleSet {
    rules(&format!("domain: d\ndescriptors:\n  - {{ key: k, rate_limit: {{ {fields} }} }}\n"))
}

fn key(fields: &str) -> String {
    keys(&limit(fields), &request("d", &["k=v"])).remove(0)
}

#[test]
fn the_counter_has_the_calendar_in_its_key_and_not_the_number() {
    let month = "unit: month, algorithm: fixed_window, calendar: Europe/Berlin";
    let berlin = "{d|k=v}#fw:c:Europe/Berlin/month/15";
    assert_eq!(key(&format!("{month}, requests_per_unit: 10, starts: 15")), berlin);
    assert_eq!(key(&format!("{month}, requests_per_unit: 20, starts: 15")), berlin);
    assert_eq!(key(&format!("{month}, requests_per_unit: 20")), "{d|k=v}#fw:c:Europe/Berlin/month/1");
    let day = "unit: day, algorithm: fixed_window, requests_per_unit: 1, calendar: UTC";
    assert_eq!(key(day), "{d|k=v}#fw:c:UTC/day");
}

#[test]
fn two_numbers_of_one_calendar_have_two_counters() {
    let limits = |calendars: [&str; 2]| {
        let limit = |(units, calendar): (u64, &str)| {
            format!(
                "{{ unit: month, requests_per_unit: {units}, algorithm: fixed_window, calendar: {calendar} }}"
            )
        };
        let limits: Vec<_> = [8, 10].into_iter().zip(calendars).map(limit).collect();
        let text =
            format!("domain: d\ndescriptors:\n  - {{ key: k, rate_limits: [{}] }}\n", limits.join(", "));
        keys(&rules(&text), &request("d", &["k=v"]))
    };
    let expected = ["{d|k=v}#fw:c:UTC/month/1/8", "{d|k=v}#fw:c:UTC/month/1/10"];
    assert_eq!(limits(["UTC", "UTC"]), expected);
    let expected = ["{d|k=v}#fw:c:UTC/month/1", "{d|k=v}#fw:c:Europe/Berlin/month/1"];
    assert_eq!(limits(["UTC", "Europe/Berlin"]), expected);
}

#[test]
fn a_blocked_month_tells_the_end_of_the_calendar_month() {
    let rules = limit("unit: month, algorithm: fixed_window, requests_per_unit: 0, calendar: UTC");
    let plan = Plan::new(&rules, &request("d", &["k=v"]), NOW_US).expect("a plan");
    let charge = plan.charges.charge(0);
    let attempt = engine::algorithm::Attempt { now_us: NOW_US, cost: charge.cost };
    let reading = charge.kernel.reading(None, attempt);
    let report = charge.kernel.report(&reading, attempt, engine::Verdict::Over);
    assert_eq!(report.until_reset_us, 1_806_537_600_000_000 - NOW_US, "2027-04-01T00:00:00Z");
}

#[test]
fn the_settings_give_months_a_calendar() {
    let calendars = CalendarOptions { month_zone: Some("UTC".into()), ..REFERENCE.calendars };
    let options = LoadOptions { calendars, ..REFERENCE };
    let text = b"
domain: d
descriptors:
  - { key: month, rate_limit: { unit: month, requests_per_unit: 5 } }
  - { key: months, rate_limit: { unit: month, unit_multiplier: 2, requests_per_unit: 5 } }
  - { key: year, rate_limit: { unit: year, requests_per_unit: 5 } }
  - { key: gcra, rate_limit: { unit: month, requests_per_unit: 5, algorithm: gcra } }
  - { key: own, rate_limit: { unit: month, requests_per_unit: 5, calendar: Europe/Berlin } }
";
    let rules = load_bytes(text, options).expect("valid rules").rules;
    let calendars: Vec<_> = rules
        .limits()
        .iter()
        .map(|limit| limit.spec.calendar.as_ref().map(ToString::to_string).unwrap_or_default())
        .collect();
    assert_eq!(calendars, ["UTC/month/1", "", "", "", "Europe/Berlin/month/1"]);
    // A limit that comes with the request.
    let of_request = |unit| {
        let limit = LimitOverride { requests_per_unit: 5, period: Period::one(unit) };
        let mut request = request("d", &["k=v"]);
        request.descriptors = vec![Descriptor { limit: Some(limit), ..request.descriptors.remove(0) }];
        let plan = Plan::new(&rules, &request, NOW_US).expect("a plan");
        let (key, charge) = plan.charges.get(0);
        (key.to_owned(), matches!(charge.kernel, Kernel::CalendarWindow(_)))
    };
    assert_eq!(of_request(Unit::Month), ("{d|k=v}#o:fw:c:UTC/month/1".to_owned(), true));
    assert!(!of_request(Unit::Day).1);
}

#[test]
fn the_settings_give_months_of_an_xds_server_a_calendar() {
    let descriptor =
        |unit: &str| json!({ "key": unit, "rate_limit": { "unit": unit, "requests_per_unit": 5 } });
    let descriptors = ["MONTH", "DAY"].map(descriptor);
    let rules = json!({ "domain": "d", "descriptors": descriptors });
    let resource = RuleResource { name: "r".into(), rules: Ok(&rules) };
    let calendars = CalendarOptions { month_zone: Some("UTC".into()), ..REFERENCE.calendars };
    let loaded =
        load_resources(vec![resource], &LoadOptions { calendars, ..REFERENCE }).expect("valid rules");
    let has_calendar: Vec<_> =
        loaded.rules.limits().iter().map(|limit| limit.spec.calendar.is_some()).collect();
    assert_eq!(has_calendar, [true, false]);
}

#[test]
fn explain_shows_the_window_in_local_time() {
    let rules = limit(
        "unit: month, algorithm: fixed_window, requests_per_unit: 5, calendar: Europe/Berlin, starts: 15",
    );
    let explained = |rules: &RuleSet| {
        describe(rules, &AppliedUpgrades::default(), &request("d", &["k=v"]), NOW_US).expect("a plan").text
    };
    let text = explained(&rules);
    for line in [
        "    admits            5 per month, in windows of the calendar Europe/Berlin/month/15\n",
        "    window            2027-03-15 00:00:00 +01:00 to 2027-04-15 00:00:00 +02:00 (Europe/Berlin)\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    let expected = "d.k: unit=MONTH requests_per_unit=5, shadow_mode: false, quota_mode: false, \
                    calendar: Europe/Berlin/month/15, charging: prepaid\n";
    assert_eq!(rlconfig(&rules), expected);
    for (fields, admits) in [
        ("unit: month", "5 per month of 30 days, in windows aligned to the Unix epoch"),
        (
            "unit: year, algorithm: sliding_window",
            "5 per year of 365 days, estimated over the last year of 365 days",
        ),
        (
            "unit: month, unit_multiplier: 2",
            "5 per 2 months of 30 days, in windows aligned to the Unix epoch",
        ),
        ("unit: week", "5 per week, in windows aligned to the Unix epoch"),
    ] {
        let text = explained(&limit(&format!("requests_per_unit: 5, {fields}")));
        assert!(text.contains(&format!("    admits            {admits}")), "{text}");
    }
}
