//! How the page looks and is operated: keyboard, names, contrast, widths, many rules.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::scene::{Scene, Story};
use super::{HAS_STATE, has_text};
use crate::support::chromium::{Chromium, Colors};

/// Virtual key codes.
const TAB: u32 = 9;
const ESCAPE: u32 = 27;

/// Seconds of history that a test needs.
const SHORT: u64 = 60;

fn open(scene: &Scene, colors: Colors) -> Chromium {
    let mut browser = Chromium::open_url(&scene.url(), colors);
    browser.wait_until(HAS_STATE);
    browser
}

#[test]
fn the_page_is_operated_with_keyboard_pointer_and_screen_reader() {
    let scene = Scene::start(Story::Incident, SHORT);
    let mut browser = open(&scene, Colors::Light);
    a_screen_reader_gets_a_name_for_everything(&mut browser);
    the_focus_stays_and_keys_do_what_they_say(&mut browser);
    the_pointer_is_told_what_it_points_at(&mut browser);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
    // It pauses the page.
    let mut browser = open(&scene, Colors::Light);
    the_tab_key_reaches_every_control_in_the_order_of_the_page(&mut browser);
}

/// What has the focus: its place among all elements, whether its outline shows, and what it is.
const FOCUS: &str = "(() => {
    const focused = document.activeElement;
    const style = getComputedStyle(focused);
    return [
        [...document.querySelectorAll('*')].indexOf(focused),
        style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        focused.localName,
    ];
})()";

fn the_tab_key_reaches_every_control_in_the_order_of_the_page(browser: &mut Chromium) {
    // What is drawn anew each second must not move while the test counts.
    browser.press("p", 80);
    browser.wait_until(&has_text("#live", "paused"));
    let (mut before, mut reached) = (-1, 0);
    loop {
        browser.press("Tab", TAB);
        let focus = browser.evaluate(FOCUS);
        let place = focus[0].as_i64().expect("a place");
        if place <= before || focus[2] == "body" {
            break;
        }
        assert_eq!(focus[1], true, "no outline: {focus}");
        before = place;
        reached += 1;
    }
    let expected = browser.evaluate(
        "[...document.querySelectorAll('a, button, input, select')].filter((e) => e.checkVisibility()).length",
    );
    assert_eq!(json!(reached), expected);
}

fn a_screen_reader_gets_a_name_for_everything(browser: &mut Chromium) {
    browser.evaluate("document.querySelector('[data-do=except]').click()");
    browser.wait_until("document.querySelector('dialog').open");
    for has_dialog in [true, false] {
        let tree = browser.call("Accessibility.getFullAXTree", json!({}));
        let nodes = tree["nodes"].as_array().expect("nodes");
        let mut roles = BTreeSet::new();
        for node in nodes.iter().filter(|node| node["ignored"] == false) {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let needs_a_name = [
                "button",
                "textbox",
                "searchbox",
                "spinbutton",
                "combobox",
                "table",
                "region",
                "dialog",
                "link",
                "image",
                "columnheader",
                "rowheader",
                "list",
                "group",
            ];
            if needs_a_name.contains(&role) {
                assert_ne!(node["name"]["value"], "", "{role}: {node}");
                roles.insert(role.to_owned());
            }
        }
        let expected: &[&str] =
            if has_dialog { &["dialog", "combobox"] } else { &["table", "region", "spinbutton"] };
        assert!(expected.iter().all(|role| roles.contains(*role)), "{roles:?}");
        browser.evaluate("document.querySelector('dialog').close()");
    }
}

fn the_focus_stays_and_keys_do_what_they_say(browser: &mut Chromium) {
    let focused = "[document.activeElement.dataset.do, document.activeElement.closest('tr')?.dataset.key]";
    browser.evaluate("document.querySelectorAll('#key-table [data-do=look]')[1].focus()");
    let before = browser.evaluate(focused);
    for _ in 0..3 {
        let about = browser.texts("#about").remove(0);
        browser.wait_until(&format!("!({})", has_text("#about", &about)));
        assert_eq!(browser.evaluate(focused), before, "another second");
    }
    browser.press("/", 191);
    assert_eq!(browser.evaluate("document.activeElement.id"), "filter");
    browser.call("Input.insertText", json!({"text": "login"}));
    browser.wait_until(&has_text("#rule-table tbody", "login-attempts"));
    assert_eq!(browser.evaluate("document.querySelectorAll('#rule-table tbody tr').length"), 1);
    browser.press("Escape", ESCAPE);
    browser.wait_until("document.querySelectorAll('#rule-table tbody tr').length > 1");
    browser.evaluate("document.querySelector('#rule-table tbody button').click()");
    browser.wait_until("document.querySelector('#rule-table tbody .on')");
    browser.wait_until(&has_text("#time-of", "decisions per second of edge.tenant.path_/search"));
    browser.evaluate("document.activeElement.blur()");
    browser.press("Escape", ESCAPE);
    browser.wait_until(&has_text("#time-of", "requests per second"));
    browser.evaluate("navigator.clipboard.writeText = async (text) => { window.copied = text; }");
    browser.press("c", 67);
    let copied = browser.wait_until("window.copied");
    assert!(copied.as_str().is_some_and(|text| text.contains("are denied")), "{copied}");
}

fn the_pointer_is_told_what_it_points_at(browser: &mut Chromium) {
    let place = browser.evaluate(
        "(() => { const box = document.querySelector('#chart').getBoundingClientRect(); return [box.left + box.width / 2, box.top + 40]; })()",
    );
    browser.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": place[0], "y": place[1]}));
    browser.wait_until("!document.querySelector('#tip').hidden");
    let tip = browser.texts("#tip").remove(0);
    assert!(tip.contains(" UTC\nOK ") && tip.contains("/s\ndenied "), "{tip}");
    browser.call("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": 5, "y": 5}));
    browser.wait_until("document.querySelector('#tip').hidden");
}

/// Texts that have less contrast than 4.5:1 with the ground behind them, by the Web Content Accessibility Guidelines.
const PALE: &str = "(() => {
    const parse = (color) => (color.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    const over = ([r, g, b, a = 1], below) => [r, g, b].map((part, i) => part * a + below[i] * (1 - a));
    const ground = (element) => {
        if (!element) return [255, 255, 255];
        const color = parse(getComputedStyle(element).backgroundColor);
        return (color[3] ?? 1) === 1 ? color.slice(0, 3) : over(color, ground(element.parentElement));
    };
    const light = (color) => {
        const [r, g, b] = color.map((part) => part / 255).map((s) => (s <= 0.03928 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const pale = new Map();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const element = walker.currentNode.parentElement;
        if (!walker.currentNode.data.trim() || !element.checkVisibility() || element.closest('script, .unseen')) continue;
        const style = getComputedStyle(element), below = ground(element);
        const text = over(parse(element.closest('svg') ? style.fill : style.color), below);
        const [low, high] = [light(text), light(below)].sort((a, b) => a - b);
        const contrast = (high + 0.05) / (low + 0.05);
        if (contrast < 4.5) pale.set(element.outerHTML.slice(0, 90), contrast);
    }
    return [...pale];
})()";

#[test]
fn the_page_is_readable_in_light_and_dark_and_at_every_width() {
    let scene = Scene::start(Story::Outage, SHORT);
    let mut grounds = Vec::new();
    for colors in [Colors::Light, Colors::Dark] {
        let mut browser = open(&scene, colors);
        browser.evaluate("document.querySelector('#rule-table tbody button').click()");
        browser.wait_until("document.querySelector('#rule-table tbody .on')");
        browser.wait_until("document.querySelectorAll('#notices .bad, #notices .warn').length > 1");
        assert_eq!(browser.evaluate(PALE), json!([]), "{colors:?}: texts with too little contrast");
        grounds.push(browser.evaluate("getComputedStyle(document.body).backgroundColor"));
        for width in [2_560, 1_280, 1_000, 500, 360] {
            browser.set_size(width, 800);
            let wide = "document.documentElement.scrollWidth > innerWidth";
            assert_eq!(browser.evaluate(wide), false, "{colors:?}: the page scrolls sideways at {width}");
        }
        browser.evaluate("document.querySelector('[data-do=except]').click()");
        assert_eq!(browser.evaluate("document.querySelector('dialog').scrollWidth > innerWidth"), false);
        assert_eq!(browser.complaints(), [&Value::Null; 0]);
    }
    assert_eq!(grounds, ["rgb(255, 255, 255)", "rgb(13, 17, 23)"]);
}

#[test]
fn a_printed_page_is_light_and_has_no_controls() {
    let scene = Scene::start(Story::Incident, SHORT);
    let mut browser = open(&scene, Colors::Dark);
    let dark = json!([{"name": "prefers-color-scheme", "value": "dark"}]);
    browser.call("Emulation.setEmulatedMedia", json!({"media": "print", "features": dark}));
    // A4 less margins of 1 cm.
    browser.set_size(718, 1_000);
    assert_eq!(browser.evaluate("getComputedStyle(document.body).backgroundColor"), "rgb(255, 255, 255)");
    let shown = "[...document.querySelectorAll('button, input, footer')].filter((e) => e.checkVisibility() && !e.closest('th')).length";
    assert_eq!(browser.evaluate(shown), 0);
    assert_eq!(browser.evaluate("document.querySelectorAll('#rule-table tbody tr').length > 2"), true);
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth > innerWidth"), false);
}

#[test]
fn a_hundred_of_five_thousand_rules_are_drawn_and_each_is_found() {
    let scene = Scene::start(Story::ManyRules, SHORT * 4);
    let mut browser = open(&scene, Colors::Light);
    let rows = "document.querySelectorAll('#rule-table tbody tr').length";
    assert_eq!(browser.evaluate(rows), 100);
    browser.wait_until(&has_text("#rule-note", "The first 100 of"));
    // Elements and texts that change when the same state is drawn again.
    let redraw = "(() => {
        const changes = new MutationObserver(() => {});
        changes.observe(document.body, { subtree: true, childList: true, characterData: true });
        document.querySelector('#filter').dispatchEvent(new Event('input'));
        return changes.takeRecords().length;
    })()";
    let changed = browser.evaluate(redraw).as_u64().expect("a number");
    assert!(changed < 100, "{changed} changes to draw the same 100 of 5,000 rules");

    // A rule without a request is not in the stream.
    browser.evaluate("document.querySelector('#tabs [data-key=idle]').click()");
    browser.wait_until(&has_text("#rule-table tbody", "edge.tenant_api_t"));
    let name = browser.texts("#rule-table tbody tr:nth-child(1) code").remove(0);
    browser.evaluate(&format!(
        "(() => {{ const filter = document.querySelector('#filter'); filter.value = '{name}'; filter.dispatchEvent(new Event('input')); }})()"
    ));
    browser.wait_until(&has_text("#rule-table tbody tr:nth-child(1)", &name));
    assert!(browser.evaluate(rows).as_u64().is_some_and(|rows| rows < 100), "{name}");
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}
