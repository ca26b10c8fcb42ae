//! The page for a screen reader, for the keyboard, and on paper.

use ::simulate::page;
use serde_json::{Value, json};

use super::report;
use crate::support::chromium::{Chromium, Colors};

/// A virtual key code.
const TAB: u32 = 9;

#[test]
fn a_screen_reader_gets_a_name_for_everything() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let tree = browser.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().expect("nodes").clone();
    let named = |role: &str| -> Vec<String> {
        let nodes = nodes.iter().filter(|node| node["role"]["value"] == role && node["ignored"] == false);
        nodes.map(|node| node["name"]["value"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let pictures = [named("image"), named("img")].concat();
    assert!(pictures.len() > 2 * report.limits.len(), "{pictures:?}");
    for (role, names) in [
        ("picture", pictures),
        ("slider", named("slider")),
        ("table", named("table")),
        ("button", named("button")),
        ("region", named("region")),
        ("columnheader", named("columnheader")),
    ] {
        assert!(!names.is_empty() && names.iter().all(|name| !name.is_empty()), "{role}: {names:?}");
    }
    assert_eq!(named("slider")[0], "What if the limit per 1 min were");
    let live = nodes.iter().filter(|node| {
        let properties = node["properties"].as_array().into_iter().flatten();
        properties
            .into_iter()
            .any(|property| property["name"] == "live" && property["value"]["value"] == "polite")
    });
    assert!(live.count() > report.limits.len(), "the effects of the sliders and the sorting are announced");
}

/// What has the focus: its place among all elements, whether its outline shows, and what it is.
const FOCUS: &str = "(() => {
    const focused = document.activeElement;
    const style = getComputedStyle(focused);
    return [
        [...document.querySelectorAll('*')].indexOf(focused),
        style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        focused.type === 'range' ? 'slider' : focused.localName,
    ];
})()";

#[test]
fn the_tab_key_reaches_every_control_in_the_order_of_the_page() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Light);
    let (mut before, mut reached) = (-1, Vec::new());
    loop {
        browser.press("Tab", TAB);
        let focus = browser.evaluate(FOCUS);
        let place = focus[0].as_i64().expect("a place");
        if place <= before || focus[2] == "body" {
            break;
        }
        assert_eq!(focus[1], true, "no outline: {focus}");
        before = place;
        reached.push(focus[2].as_str().expect("a name").to_owned());
    }
    let count = |name: &str| reached.iter().filter(|found| *found == name).count();
    assert_eq!(reached.first().map(String::as_str), Some("a"), "the link that skips to the rules");
    assert_eq!(count("slider"), report.limits.len(), "{reached:?}");
    let expected = browser.evaluate(
        "[...document.querySelectorAll('a, button, summary, [tabindex=\"0\"]')].filter((e) => e.checkVisibility()).length",
    );
    assert_eq!(json!(reached.len() - count("slider")), expected, "{reached:?}");
}

#[test]
fn a_printed_page_is_light_and_has_all_rules_without_controls() {
    let report = report();
    let mut browser = Chromium::open(&page::html(&report), Colors::Dark);
    let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print", "features": dark}));
    // A4 less margins of 1 cm.
    browser.set_size(718, 1_000);
    assert_eq!(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth > innerWidth"), false);
    let shown = |browser: &mut Chromium, selector: &str| {
        browser.evaluate(&format!(
            "[...document.querySelectorAll('{selector}')].filter((e) => e.checkVisibility()).length"
        ))
    };
    for hidden in ["nav", "input", "details", ".marks button"] {
        assert_eq!(shown(&mut browser, hidden), 0, "{hidden}");
    }
    assert_eq!(shown(&mut browser, "section.rule"), report.limits.len());
    assert_eq!(shown(&mut browser, "output"), report.limits.len(), "the effect of the judged limit");
    // No table is wider than the paper: what does not fit would be cut off.
    let cut = "[...document.querySelectorAll('table, svg')].filter((e) => e.checkVisibility())
        .filter((e) => e.getBoundingClientRect().right > innerWidth).map((e) => e.className + e.id)";
    assert_eq!(browser.evaluate(cut), json!([]));
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}
