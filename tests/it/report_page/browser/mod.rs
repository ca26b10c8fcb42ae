//! The page in a headless Chromium: needs the program `chromium`.

mod access;
mod drawing;

use std::process::Command;

use ::simulate::page;
use ::simulate::report::{LimitReport, Report, WhatIfPoint, share_ppm};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{hostile, sample};
use crate::support::chromium::{Chromium, Colors};

/// Virtual key codes.
const ENTER: u32 = 13;
const END: u32 = 35;
const HOME: u32 = 36;
const RIGHT: u32 = 39;

/// The page and the JSON of the example, written by the program.
fn example() -> (String, Value) {
    let folder = TempDir::new().expect("a temporary directory");
    let (html, json) = (folder.path().join("report.html"), folder.path().join("report.json"));
    let arguments = "simulate --rules rules.yaml --compare rules-in-force.yaml --map map.yaml --recommend";
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratelimitctl"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/simulate")).args(arguments.split(' '));
    command.arg("--report").arg(&html).arg("--report-json").arg(&json).arg("access.log.gz");
    let output = command.output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = |path| std::fs::read_to_string(path).expect("a report");
    (text(&html), serde_json::from_str(&text(&json)).expect("JSON"))
}

#[test]
fn the_program_writes_the_same_numbers_to_page_and_json() {
    let (page, report) = example();
    let mut browser = Chromium::open(&page, Colors::Light);
    let rules = report["rules"].as_array().expect("rules");
    for (place, rule) in rules.iter().enumerate() {
        let cells = browser.texts(&format!("#rule-table tbody tr:nth-child({}) > *", place + 1));
        let numbers = [&rule["asked"], &rule["over"], &rule["keys"], &rule["keys_over"]];
        let shown = [&cells[2], &cells[3], &cells[7], &cells[8]];
        assert_eq!(shown.map(|cell| json!(digits(cell))), numbers.map(Clone::clone), "{cells:?}");
        assert!(
            browser.texts(&format!("#rule-{place} h2"))[0]
                .starts_with(rule["rule"].as_str().expect("a label"))
        );
    }
    assert_eq!(browser.texts("#rule-table tbody tr").len(), rules.len());
    assert_eq!(json!(browser.texts(".verdict")), json!([report["verdict"]]));
    assert_eq!(json!(browser.texts("#rules .warning code")), report["unmet_rules"]);
    let digests =
        report["method"]["digests"].as_array().expect("digests").iter().map(|file| file["sha256"].clone());
    assert_eq!(json!(browser.texts(".digest")), Value::Array(digests.collect()));
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

fn report() -> Report {
    sample::report(&sample::samples())
}

/// Digits of a text, without the commas between groups.
fn digits(text: &str) -> u64 {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number in {text:?}"))
}

/// Parts per million of a text such as `0.42 %`.
fn ppm(text: &str) -> u64 {
    let (whole, decimals) =
        text.trim_end_matches(" %").split_once('.').unwrap_or((text.trim_end_matches(" %"), ""));
    digits(whole) * 10_000 + digits(&format!("{decimals:0<4}"))
}

#[test]
fn the_numbers_of_the_page_are_those_of_the_report() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let rows = browser.texts("#rule-table tbody tr");
    assert_eq!(rows.len(), report.limits.len());
    for (place, rule) in report.limits.iter().enumerate() {
        let cells = browser.texts(&format!("#rule-table tbody tr:nth-child({}) > *", place + 1));
        assert!(cells[0].starts_with(&rule.rule), "{cells:?}");
        assert_eq!(
            (digits(&cells[2]), digits(&cells[3]), ppm(&cells[4])),
            (rule.asked, rule.over, rule.over_share_ppm)
        );
        if let Some(in_force) = &rule.in_force {
            assert_eq!(
                (ppm(&cells[5]), digits(&cells[9])),
                (in_force.over_share_ppm, in_force.keys_newly_over),
                "{cells:?}"
            );
        }
        assert_eq!(Some(digits(&cells[6])), rule.good_over);
        assert_eq!((digits(&cells[7]), digits(&cells[8])), (rule.keys, rule.keys_over));
        let peaks = browser.texts(&format!("#rule-{place} .peaks tbody tr:first-child td"));
        let own = rule.own_peaks;
        let expected = [own.p50, own.p90, own.p99, own.p999, own.max];
        assert_eq!(peaks.iter().map(|cell| digits(cell)).collect::<Vec<_>>(), expected);
    }
    assert_eq!(browser.texts(".verdict"), [report.verdict.as_str()]);
    for (place, key) in report.worst_keys.iter().enumerate() {
        let table = format!(".worst table:nth-child({})", place + 1);
        let caption = browser.texts(&format!("{table} caption")).remove(0);
        assert!(caption.starts_with(&key.key) && caption.contains(&key.rule), "{caption}");
        let shown = browser.texts(&format!("{table} tbody .n"));
        let expected: Vec<u64> = key.algorithms.iter().map(|count| count.over).collect();
        assert_eq!(shown.iter().map(|cell| digits(cell)).collect::<Vec<_>>(), expected);
        // The longest bar has the length of its column, the others their share of it.
        let bars = browser.evaluate(&format!(
            "[...document.querySelectorAll('{table} rect')].map((bar) => bar.width.baseVal.value)"
        ));
        let most = *expected.iter().max().expect("algorithms");
        assert_eq!(bars, json!(expected.iter().map(|over| over * 1_000 / most).collect::<Vec<u64>>()));
    }
    let by_hour = browser.texts("#rule-0 .heat tbody tr:first-child td");
    let over = report.limits[0].timeline.over.iter();
    // 15 minutes a step; Monday is the first day of the sample.
    let noon: u64 = over.skip(12 * 4).take(4).sum();
    assert!(noon >= 1_000, "{noon}");
    assert_eq!(by_hour[12], format!("{:.1}K", noon as f64 / 1_000.0));
    let tiles = browser.texts(".tiles b");
    assert_eq!((digits(&tiles[0]), ppm(&tiles[1])), (report.totals.requests, report.totals.denied_share_ppm));
    let comparison = report.comparison.as_ref().expect("a comparison");
    let decisions = browser.texts("#verdict tbody td:nth-child(2)");
    let counted = [
        comparison.both_admit,
        comparison.only_judged_denies,
        comparison.only_in_force_denies,
        comparison.both_deny,
    ];
    assert_eq!(decisions.iter().map(|cell| digits(cell)).collect::<Vec<_>>(), counted);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn sums_have_times_if_the_first_rule_has_no_section() {
    let mut report = report();
    let quiet = LimitReport { over: 0, asked: 0, ..report.limits[0].clone() };
    report.limits.insert(0, quiet);
    report.limits.extend(vec![report.limits[1].clone(); 20]);
    report.algorithms.insert(0, report.algorithms[0].clone());
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let described = browser.evaluate("document.querySelector('#algorithms svg desc').textContent");
    assert!(
        described.as_str().is_some_and(|text| text.starts_with("From 2026-11-16 00:00:00 to")),
        "{described}"
    );
}

/// The sentence under the slider for a point of the report.
fn effect(report: &Report, point: WhatIfPoint) -> String {
    let rule = &report.limits[0];
    let share = share_ppm(point.denied, rule.asked);
    let percent = format!("{}.{:04}", share / 10_000, share % 10_000);
    let percent = percent.trim_end_matches('0').trim_end_matches('.');
    format!(
        "{} per 1 min: {} requests over it ({percent} %), {} of them good; {} keys hit of {}",
        point.limit,
        point.denied,
        point.good_denied.expect("good requests"),
        point.keys_over,
        rule.keys
    )
}

#[test]
fn the_slider_works_with_the_keyboard() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let rule = &report.limits[0];
    let points = &rule.what_if.points;
    let judged = *points.iter().find(|point| point.limit == rule.limit).expect("the limit is a point");
    let shown = |browser: &mut Chromium| {
        let limit = browser.evaluate("document.getElementById('slider-0').getAttribute('aria-valuetext')");
        let limit = digits(limit.as_str().expect("a text").trim_end_matches(" per 1 min"));
        (limit, browser.texts("#effect-0").remove(0).replace(',', ""))
    };
    let expected = |limit: u64| {
        let point = *points.iter().find(|point| point.limit == limit).expect("a point of the report");
        effect(&report, point).replace(',', "")
    };
    browser.evaluate("document.getElementById('slider-0').focus()");
    let line = "document.querySelector('#rule-0 .demand .limit').getAttribute('transform')";
    let start = browser.evaluate(line);
    let (limit, text) = shown(&mut browser);
    assert_eq!((limit, text), (judged.limit, expected(judged.limit)));

    browser.press("ArrowRight", RIGHT);
    let (next, text) = shown(&mut browser);
    assert!(next > judged.limit, "{next}");
    assert_eq!(text, expected(next));
    assert_ne!(browser.evaluate(line), start, "the line moves");

    browser.press("End", END);
    assert_eq!(shown(&mut browser).0, points.last().expect("points").limit);
    assert!(
        browser.texts("#effect-0")[0].contains(": 0 requests over it (0 %)"),
        "the last point denies nothing"
    );
    browser.press("Home", HOME);
    assert_eq!(shown(&mut browser), (1, expected(1)));

    browser.evaluate("document.querySelector('#rule-0 .marks button:nth-child(2)').focus()");
    browser.press("Enter", ENTER);
    let in_force = rule.in_force.as_ref().expect("a limit in force");
    assert_eq!(shown(&mut browser), (in_force.limit, expected(in_force.limit)));
    let whom = browser.texts("#rule-0 .whom").remove(0);
    let hit = rule.top_denied[..10].iter().filter(|key| key.own_peak > Some(in_force.limit)).count();
    assert!(
        whom.contains(&format!("the 10 keys most often over the judged limit, {hit} would be hit: ")),
        "{whom}"
    );
    assert!(whom.contains(&rule.top_denied[0].key), "{whom}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn tables_are_sorted_with_the_keyboard() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let column = |browser: &mut Chromium| {
        let cells = browser.texts("#key-table tbody td:nth-child(3)");
        cells.iter().map(|cell| digits(cell)).collect::<Vec<_>>()
    };
    let focus = "document.querySelector('#key-table thead th:nth-child(3) button').focus()";
    let order = "document.querySelector('#key-table thead th:nth-child(3)').getAttribute('aria-sort')";
    assert_eq!(browser.evaluate(order), "none");
    browser.evaluate("document.querySelector('#key-table thead th:nth-child(1) button').click()");
    let unsorted = column(&mut browser);
    browser.evaluate(focus);
    browser.press("Enter", ENTER);
    let mut sorted = unsorted.clone();
    sorted.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
    assert_ne!(unsorted, sorted, "by key the counts are in another order");
    assert_eq!((column(&mut browser), browser.evaluate(order)), (sorted.clone(), json!("descending")));
    browser.press("Enter", ENTER);
    sorted.reverse();
    assert_eq!((column(&mut browser), browser.evaluate(order)), (sorted, json!("ascending")));
    assert_eq!(browser.texts("#status"), ["Sorted by Over, ascending"]);
}

#[test]
fn no_request_leaves_the_page() {
    let mut browser = Chromium::open(&page::html(&report()), Colors::Light);
    // Scrolls through the page and opens all that opens.
    browser.evaluate("window.scrollTo(0, document.body.scrollHeight)");
    browser.evaluate("document.querySelectorAll('details').forEach((details) => { details.open = true; })");
    assert!(browser.texts("details table tbody tr").len() > 100, "the numbers of the pictures");
    let requests = browser.events("Network.requestWillBeSent");
    let addresses: Vec<&str> = requests.iter().filter_map(|sent| sent["request"]["url"].as_str()).collect();
    assert!(matches!(addresses[..], [page] if page.starts_with("file:///")), "{addresses:?}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);

    // Nor could one: the page forbids it to itself.
    let forbidden = "new Promise((resolve) => {
        document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
        fetch('http://127.0.0.1:9/').catch(() => {});
    })";
    assert_eq!(browser.evaluate(forbidden), "connect-src");
}

#[test]
fn texts_of_the_data_are_shown_as_they_are() {
    let text = "'\"><img src=x onerror=\"window.hit=1\"></script><script>window.hit=1</script>";
    let mut browser = Chromium::open(&page::html(&hostile(text)), Colors::Light);
    assert_eq!(browser.evaluate("typeof window.hit"), "undefined");
    assert_eq!(browser.evaluate("document.images.length"), 0);
    assert_eq!(browser.texts("#key-table tbody tr:first-child code"), [text]);
    browser.evaluate("document.getElementById('slider-0').focus()");
    browser.press("Home", HOME);
    assert!(browser.texts("#rule-0 .whom")[0].contains(text));
    assert_eq!(browser.evaluate("typeof window.hit"), "undefined");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn characters_that_turn_a_line_are_not_shown() {
    let page = page::html(&hostile("a\u{202e}b\u{1b}c\u{2028}d"));
    let mut browser = Chromium::open(&page, Colors::Light);
    assert_eq!(browser.texts("#key-table tbody tr:first-child code"), ["a\u{fffd}b\u{fffd}c\u{fffd}d"]);
    let texts = browser.texts("body").remove(0);
    let (_, drawn) = texts.split_once("Verdict").expect("the page");
    let (drawn, _) = drawn.split_once("{\"report\"").expect("the data");
    assert!(!drawn.contains(['\u{202e}', '\u{1b}', '\u{2028}']), "{drawn}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn without_scripts_the_page_says_what_it_needs() {
    let mut browser = Chromium::open("", Colors::Light);
    browser.call("Emulation.setScriptExecutionDisabled", json!({"value": true}));
    let frame = browser.call("Page.getFrameTree", json!({}))["frameTree"]["frame"]["id"].clone();
    browser.call("Page.setDocumentContent", json!({"frameId": frame, "html": page::html(&report())}));
    let shown = browser.evaluate("document.querySelector('main').innerText");
    assert!(shown.as_str().expect("a text").starts_with("This report needs JavaScript."), "{shown}");
}

/// The contrast of two colours by the Web Content Accessibility Guidelines.
const CONTRAST: &str = "(() => {
    const style = getComputedStyle(document.documentElement);
    const light = (name) => {
        const hex = style.getPropertyValue(name).trim().replace(/^#(.)(.)(.)$/, '#$1$1$2$2$3$3');
        const part = (at) => {
            const share = parseInt(hex.slice(at, at + 2), 16) / 255;
            return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
        };
        return 0.2126 * part(1) + 0.7152 * part(3) + 0.0722 * part(5);
    };
    const pairs = ['--ink', '--soft', '--link', '--over', '--old', '--good'].flatMap((text) =>
        ['--paper', '--panel', '--warn'].map((ground) => [text, ground]));
    return pairs.map(([text, ground]) => {
        const [low, high] = [light(text), light(ground)].sort((a, b) => a - b);
        return [text, ground, (high + 0.05) / (low + 0.05)];
    }).filter(([, , contrast]) => !(contrast >= 4.5));
})()";

#[test]
fn the_page_is_readable_in_light_and_dark() {
    let page = page::html(&report());
    let mut grounds = Vec::new();
    for (colors, name) in [(Colors::Light, "light"), (Colors::Dark, "dark")] {
        let mut browser = Chromium::open(&page, colors);
        assert_eq!(browser.evaluate(CONTRAST), json!([]), "{name}: texts with too little contrast");
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        let wide = "document.documentElement.scrollWidth > innerWidth";
        assert_eq!(browser.evaluate(wide), false, "the page does not scroll to the side");
        browser.set_size(400, 800);
        assert_eq!(browser.evaluate(wide), false, "nor on a telephone");
        assert_eq!(browser.complaints(), [&Value::Null; 0]);
    }
    assert_eq!(grounds, ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]);
}
