//! What the script makes of numbers: texts for people, scales and curves.

use ::simulate::page;
use ::simulate::report::Report;
use serde_json::{Value, json};

use crate::support::chromium::{Chromium, Colors};

/// Checks that each call of a function of the script has this value.
fn assert_values(browser: &mut Chromium, table: &[(&str, Value)]) {
    for (call, value) in table {
        assert_eq!(browser.evaluate(call), *value, "{call}");
    }
}

#[test]
fn an_empty_report_is_a_page_whose_script_draws_what_it_should() {
    let mut browser = Chromium::open(&page::html(&Report::default()), Colors::Light);
    let sections = browser.texts("section");
    assert!(sections.iter().any(|text| text.contains("No request met a limit.")), "{sections:?}");
    assert!(sections.iter().any(|text| text.contains("No key was over a limit.")), "{sections:?}");
    numbers_are_grouped_and_shortened(&mut browser);
    a_share_that_is_not_zero_is_not_shown_as_zero(&mut browser);
    times_are_shown_in_their_largest_units(&mut browser);
    a_long_key_is_cut_between_characters(&mut browser);
    a_logarithmic_axis_gives_each_power_of_ten_the_same_room(&mut browser);
    a_linear_axis_may_start_above_zero_and_point_upwards(&mut browser);
    labels_are_round_times(&mut browser);
    an_area_goes_there_and_back(&mut browser);
    a_rule_without_a_limit_in_force_has_one_area(&mut browser);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

fn numbers_are_grouped_and_shortened(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            ("[0, 999, 1_000, 1_540, 1e6].map(grouped)", json!(["0", "999", "1,000", "1,540", "1,000,000"])),
            (
                "[0, 999, 1_000, 1_540, 12_345, 1e6, 18_446_744_073e9].map(short)",
                json!(["0", "999", "1k", "1.5k", "12k", "1M", "18446744073G"]),
            ),
            ("[counted(1, 'key'), counted(2, 'key')]", json!(["1 key", "2 keys"])),
        ],
    );
}

fn a_share_that_is_not_zero_is_not_shown_as_zero(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            (
                "[[0, 0], [1, 0], [1, 1], [5, 4_200]].map((both) => share(...both))",
                json!(["0 %", "under 0.0001 %", "0.0001 %", "0.42 %"]),
            ),
            ("shareOf(1, 3)", json!("33.3333 %")),
            ("shareOf(0, 0)", json!("0 %")),
        ],
    );
}

fn times_are_shown_in_their_largest_units(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            (
                "[1, 60, 90, 3_600, 86_400, 0].map(period)",
                json!(["1 s", "1 min", "90 s", "1 h", "1 d", "0 s"]),
            ),
            (
                "[7, 250_000, 4e6, 3_600e6, 2 * 86_400e6 + 3 * 3_600e6 + 5e6, 86_400e6 + 5e6].map(span)",
                json!(["7 µs", "250 ms", "4 s", "1 h", "2 d 3 h", "1 d"]),
            ),
            ("time(1_700_000_000_000_000)", json!("2023-11-14 22:13:20")),
        ],
    );
}

fn a_long_key_is_cut_between_characters(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            ("cut('😀'.repeat(81))", json!(format!("{}…", "😀".repeat(80)))),
            ("cut('é'.repeat(80))", json!("é".repeat(80))),
        ],
    );
}

fn a_logarithmic_axis_gives_each_power_of_ten_the_same_room(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            (
                "[1, 10, 100, 1_000].map((value) => place(logarithmic(800, [0, 300]).at(value)))",
                json!(["0", "100", "200", "300"]),
            ),
            ("logarithmic(800, [0, 300]).at(0)", json!(0)),
            ("Math.round(logarithmic(800, [0, 300]).back(200))", json!(100)),
            ("logarithmic(800, [0, 300]).ticks", json!([1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000])),
            ("logarithmic(80_000, [0, 1]).ticks", json!([1, 10, 100, 1_000, 10_000, 100_000])),
            ("logarithmic(2 ** 64, [0, 1]).ticks.length", json!(7)),
            ("logarithmic(0, [0, 1]).ticks", json!([1, 2])),
        ],
    );
}

fn a_linear_axis_may_start_above_zero_and_point_upwards(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            ("[0, 37].map(linear(0, 37, [200, 20]).at)", json!([200, 20])),
            ("linear(0, 37, [200, 20]).ticks", json!([0, 10, 20, 30])),
            ("linear(100, 100, [0, 1]).ticks", json!([100, 101])),
        ],
    );
}

fn labels_are_round_times(browser: &mut Chromium) {
    assert_values(
        browser,
        &[
            (
                "timeTicks({ start: 1_700_000_000, end: 1_700_086_400 }).map(([, label]) => label)",
                json!(["11-15", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]),
            ),
            ("timeTicks({ start: 0, end: 60 }).length <= 9", json!(true)),
            ("timeTicks({ start: 0, end: 1e10 }).length <= 9", json!(true)),
        ],
    );
}

fn an_area_goes_there_and_back(browser: &mut Chromium) {
    // Half of the width is one column, and the whole height is 6. The stack of the first column is 4, 2, 0, that of the
    // second 0, 2, 4.
    let columns =
        "overTime({ start_us: 1.7e15, step_s: 600 }, [['a', [4, 0]], ['b', [2, 2]], ['c', [0, 4]]])";
    let paths = format!(
        "[...comparisonPicture({columns}).querySelectorAll('.area')].map((path) => path.getAttribute('d'))"
    );
    assert_values(
        browser,
        &[(
            &paths,
            json!([
                "M50 71H540V165H1030L1030 165H50Z",
                "M50 24H540V118H1030L1030 165H540V71H50Z",
                "M50 24H1030L1030 118H540V24H50Z",
            ]),
        )],
    );
}

fn a_rule_without_a_limit_in_force_has_one_area(browser: &mut Chromium) {
    let columns =
        "overTime({ start_us: 0, step_s: 600 }, [['Requests', [9, 9]], ['Over the limit', [0, 5]]])";
    let picture = format!("rulePicture({{ rule: 'a' }}, 3, {columns})");
    assert_values(
        browser,
        &[
            (&format!("{picture}.querySelectorAll('.area.over').length"), json!(1)),
            (&format!("{picture}.querySelector('.line') === null"), json!(true)),
        ],
    );
}
