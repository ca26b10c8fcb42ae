//! What the person on call sees without scrolling: who is denied.

use serde_json::{Value, json};

use super::scene::{Scene, Story};
use super::{HAS_STATE, has_text};
use crate::support::chromium::{Chromium, Colors};

fn open(story: Story) -> (Scene, Chromium) {
    let scene = Scene::start(story, 60);
    let mut browser = Chromium::open_url(&scene.url(), Colors::Light);
    browser.set_size(1_280, 800);
    browser.wait_until(HAS_STATE);
    browser.wait_until("document.querySelectorAll('#key-table tbody tr').length > 2");
    (scene, browser)
}

#[test]
fn an_incident_is_on_the_first_screen() {
    let (_scene, mut browser) = open(Story::Incident);
    three_denied_keys_are_on_the_first_screen(Story::Incident, &mut browser);
    a_block_that_works_is_seen(&mut browser);
    the_fields_have_labels_and_only_the_number_that_counts_is_shown(&mut browser);
    browser.evaluate("document.querySelector('dialog').close()");
    browser.set_size(390, 844);
    a_phone_shows_the_actions_of_the_first_key_without_scrolling(&mut browser);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

#[test]
fn an_outage_is_on_the_first_screen() {
    let (_scene, mut browser) = open(Story::Outage);
    three_denied_keys_are_on_the_first_screen(Story::Outage, &mut browser);
    a_redis_that_is_away_has_no_latency(&mut browser);
    no_text_of_the_chart_is_cut_and_its_title_is_the_time_that_it_shows(&mut browser);
    browser.set_size(390, 844);
    a_phone_shows_the_actions_of_the_first_key_without_scrolling(&mut browser);
    no_text_of_the_chart_is_cut_and_its_title_is_the_time_that_it_shows(&mut browser);
    assert_eq!(browser.complaints(), [&Value::Null; 0]);
}

/// The lower edges of what the selector finds, in pixels of the page.
fn bottoms(browser: &mut Chromium, selector: &str) -> Vec<f64> {
    let found = format!(
        "[...document.querySelectorAll('{selector}')].map((e) => e.getBoundingClientRect().bottom + scrollY)"
    );
    let found = browser.evaluate(&found);
    found.as_array().expect("a list").iter().map(|bottom| bottom.as_f64().expect("a number")).collect()
}

fn three_denied_keys_are_on_the_first_screen(story: Story, browser: &mut Chromium) {
    let rows = bottoms(browser, "#key-table tbody tr");
    assert!(rows.len() >= 3 && rows[2] <= 800.0, "{story:?}: {rows:?}");
    assert_eq!(browser.evaluate("document.querySelectorAll('main svg[role=img]').length"), 1, "one chart");
    // One line, of which nothing is cut, and which says nothing of Redis: the notices do.
    let one_line = "(() => {
        const sentence = document.querySelector('#verdict'), line = parseFloat(getComputedStyle(sentence).lineHeight);
        return [sentence.clientHeight < 1.5 * line, sentence.scrollWidth <= sentence.clientWidth];
    })()";
    assert_eq!(browser.evaluate(one_line), json!([true, true]), "{story:?}");
    let words = browser.texts("#verdict").remove(0);
    assert!(words.contains("by edge.tenant.path_/search") || story == Story::Outage, "{words}");
    assert!(!words.contains("Redis") && !words.contains("policy"), "{words}");
}

fn a_phone_shows_the_actions_of_the_first_key_without_scrolling(browser: &mut Chromium) {
    let boxes = browser.evaluate(
        "[...document.querySelectorAll('#key-table tbody tr:first-child button')]
            .map((e) => [e.getBoundingClientRect().left, e.getBoundingClientRect().right, e.getBoundingClientRect().bottom])",
    );
    let boxes: Vec<[f64; 3]> = serde_json::from_value(boxes).expect("numbers");
    assert_eq!(boxes.len(), 3, "look, reset, except: {boxes:?}");
    for [left, right, bottom] in boxes {
        assert!(left >= 0.0 && right <= 390.0 && bottom <= 844.0, "{left} {right} {bottom}");
    }
    let sentence = "document.querySelector('#verdict').clientHeight";
    assert!(browser.evaluate(sentence).as_f64().is_some_and(|height| height < 40.0), "one line");
    let table = "[...document.querySelectorAll('#key-table')].some((e) => e.parentElement.scrollWidth > e.parentElement.clientWidth)";
    assert_eq!(browser.evaluate(table), false, "the table does not scroll sideways");
}

fn no_text_of_the_chart_is_cut_and_its_title_is_the_time_that_it_shows(browser: &mut Chromium) {
    browser.wait_until(&has_text("#chart text.bad", "Redis unavailable"));
    let cut = "(() => {
        const chart = document.querySelector('#chart').getBoundingClientRect();
        return [...document.querySelectorAll('#chart text')].map((text) => [text.textContent, text.getBoundingClientRect()])
            .filter(([, box]) => box.right > chart.right + 0.5 || box.left < chart.left - 0.5).map(([text]) => text);
    })()";
    // The page draws again a moment after its size has changed.
    browser.wait_until(&format!("{cut}.length === 0"));
    for _ in 0..3 {
        assert_eq!(browser.evaluate(cut), json!([]));
        let about = browser.texts("#about").remove(0);
        browser.wait_until(&format!("!({})", has_text("#about", &about)));
    }
    let title = browser.texts("#time-h").remove(0);
    let seconds = title.strip_prefix("Last ").and_then(|rest| rest.strip_suffix(" s"));
    let seconds: Option<u64> = seconds.and_then(|seconds| seconds.parse().ok());
    assert!(seconds.is_some_and(|seconds| (60..120).contains(&seconds)), "{title}");
}

fn a_block_that_works_is_seen(browser: &mut Chromium) {
    browser.wait_until(&has_text("#key-table .badge.block", "blocked until 16:09:31 (blocks.yaml:12)"));
    browser.wait_until(&has_text("#rows", "1 row blocks: "));
    let rows = "document.querySelectorAll('#key-table .badge').length";
    assert_eq!(browser.evaluate(rows), 1, "one row of the key");
}

fn a_redis_that_is_away_has_no_latency(browser: &mut Chromium) {
    browser.wait_until(&has_text("#tiles > div:last-child", "Redisunavailable since"));
    assert!(!browser.texts("#store").remove(0).contains("µs"));
}

fn the_fields_have_labels_and_only_the_number_that_counts_is_shown(browser: &mut Chromium) {
    assert_eq!(browser.texts("#ask label"), ["Domain", "Descriptor", "Hits"]);
    browser.evaluate("document.querySelector('#key-table [data-do=except]').click()");
    browser.wait_until("document.querySelector('dialog').open");
    let form = "(() => {
        const { effect, until, multiplier, limit, go } = document.querySelector('dialog form').elements;
        return [effect.value, until.value, go.textContent, multiplier.checkVisibility(), limit.checkVisibility()];
    })()";
    assert_eq!(browser.evaluate(form), json!(["block", "1h", "Block", false, false]));
    let height = "document.querySelector('dialog').clientHeight";
    let before = browser.evaluate(height);
    browser.evaluate(
        "(() => {
            const { effect } = document.querySelector('dialog form').elements;
            effect.value = 'multiplier';
            effect.dispatchEvent(new Event('input', { bubbles: true }));
        })()",
    );
    assert_eq!(browser.evaluate(form), json!(["multiplier", "1h", "Multiply", true, false]));
    assert!(browser.texts("dialog p").remove(0).contains("1,800 per minute becomes 3,600 per minute."));
    let after = browser.evaluate(height);
    let moved = after.as_f64().zip(before.as_f64()).map(|(after, before)| after - before);
    assert!(
        moved.is_some_and(|moved| moved.abs() < 4.0),
        "the buttons stay in their place: {before} {after}"
    );
    assert_eq!(
        browser.evaluate("getComputedStyle(document.querySelector('#tabs')).columnGap"),
        "6px",
        "the filters stand apart"
    );
}
