//! The page of a simulation: its size, its texts, and what it does in a browser.

mod browser;
mod sample;

use ::simulate::page;
use ::simulate::report::{
    BoundCheck, FileDigest, InputReport, LimitReport, Recommendation, Report, UnreadableLine,
};

#[test]
fn a_page_of_20_rules_fits_into_400_kilobytes() {
    let largest = || sample::Sample {
        label: "path_/a/long/path/template/{id}.remote_address",
        algorithm: "gcra",
        limit: 4_000,
        old_limit: Some(9_000),
        period_s: 60,
        keys: 5_000,
        top: 90_000,
        steps: 1_500,
    };
    let report = sample::report(&(0..20).map(|_| largest()).collect::<Vec<_>>());
    let page = page::html(&report);
    assert!(page.len() <= 400_000, "{} bytes", page.len());
}

#[test]
fn the_page_names_no_address_to_load_from() {
    let page = page::html(&sample::report(&sample::samples()));
    for loads in ["http:", "https:", "src=", "@import", "url(", "<link", "<iframe", "onclick", "javascript:"]
    {
        // SVG elements in HTML need no namespace; the script names it for elements that it makes.
        let rest = page.replace("\"http://www.w3.org/2000/svg\"", "").replace("url(#", "");
        assert!(!rest.contains(loads), "{loads}");
    }
}

/// Every text that can come from a log, a rule file or the command line.
pub(super) fn hostile(text: &str) -> Report {
    let text = || text.to_owned();
    let mut report = sample::report(&sample::samples());
    let labels: Vec<String> = (0..report.limits.len()).map(|rule| format!("{}{rule}", text())).collect();
    for (rule, label) in report.limits.iter_mut().zip(&labels) {
        rule.rule.clone_from(label);
        (rule.path, rule.algorithm) = (text(), text());
        rule.top_denied.iter_mut().for_each(|key| key.key = text());
        rule.in_force.iter_mut().for_each(|in_force| in_force.algorithm = text());
    }
    report.limits[2].recommendation =
        Some(Recommendation { no_recommendation: Some(text()), ..Recommendation::default() });
    report.limits.push(LimitReport { rule: text(), is_resolved: false, ..LimitReport::default() });
    for (rule, label) in report.algorithms.iter_mut().zip(labels) {
        rule.rule = label;
        rule.algorithms.iter_mut().for_each(|counts| counts.label = text());
    }
    for key in &mut report.worst_keys {
        (key.rule, key.key) = (text(), text());
        key.algorithms.iter_mut().for_each(|count| count.label = text());
    }
    let comparison = report.comparison.as_mut().expect("a comparison");
    (comparison.only_in_judged, comparison.only_in_force) = (vec![text()], vec![text()]);
    report.verdict = text();
    report.method.agreement.as_mut().expect("an agreement").summary = text();
    (report.untested_rules, report.untested_reasons) = (vec![text()], vec![text()]);
    report.bounds = vec![BoundCheck { bound: text(), is_kept: false, broken_by: vec![text()] }];
    report.method.program_version = text();
    report.method.command_line = vec![text()];
    report.method.inputs =
        vec![InputReport { name: text(), format: text(), cut: Some(text()), ..InputReport::default() }];
    report.method.digests = vec![FileDigest { role: text(), name: text(), sha256: text() }];
    report.method.unreadable_lines = vec![UnreadableLine { input: text(), line: 1, reason: text() }];
    report
}

#[test]
fn texts_of_the_data_cannot_become_markup() {
    let text = "\"'><img src=x onerror=alert(1)></script><!--\u{2028}";
    let page = page::html(&hostile(text));
    for markup in ["<img", "onerror=alert(1)>", "<!--", "alert(1)></script>"] {
        assert!(!page.contains(markup), "{markup}");
    }
    let (_, after) = page.split_once(r#"id="data">"#).expect("a JSON block");
    let (json, _) = after.split_once("</script>").expect("the end of the block");
    assert!(!json.contains(['<', '>', '&', '\u{2028}']), "{json}");
    assert!(
        json.matches(r"\u003cimg src=x onerror=alert(1)\u003e").count() > 20,
        "the texts are in the block"
    );
    assert_eq!(page.matches("</script>").count(), 2, "only the two script elements end");
}
