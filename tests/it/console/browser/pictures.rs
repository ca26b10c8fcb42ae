//! The pictures of the documentation, from scenes of 15 minutes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::scene::{Scene, Story};
use super::{HAS_STATE, click, has_text};
use crate::support::chromium::{Chromium, Colors};
use crate::support::png;

const QUARTER_HOUR: u64 = 900;
/// A picture of the documentation has at most this many bytes.
const LARGEST: usize = 150_000;

/// Writes the pictures of the documentation if `UPDATE_DOCS` is set. They depend on the fonts of the machine, so they
/// are not compared; without the variable the scenes are short, and no file is written.
#[test]
fn each_story_has_its_picture() {
    #[expect(clippy::disallowed_methods, reason = "a switch of this test, not a setting of the program")]
    let is_update = std::env::var("UPDATE_DOCS").is_ok();
    let seconds = if is_update { QUARTER_HOUR } else { 60 };
    let incident = Scene::start(Story::Incident, seconds);
    for (name, colors) in [("console-light", Colors::Light), ("console-dark", Colors::Dark)] {
        let mut browser = open(&incident, colors, 1_280);
        answer_a_question(&mut browser);
        browser.wait_until(&has_text("#verdict", "by edge.tenant.path_/search"));
        save(&mut browser, is_update, name, 1_280);
    }
    let mut browser = open(&incident, Colors::Light, 390);
    save(&mut browser, is_update, "console-phone", 390);
    for (name, story, words) in [
        ("console-quiet", Story::Quiet, ", none denied."),
        ("console-away", Story::Outage, "requests/s, none denied."),
        ("console-many", Story::ManyRules, "requests/s are denied"),
    ] {
        let scene = Scene::start(story, seconds);
        let mut browser = open(&scene, Colors::Light, 1_280);
        browser.wait_until(&has_text("#verdict", words));
        save(&mut browser, is_update, name, 1_280);
    }
}

fn open(scene: &Scene, colors: Colors, width: u32) -> Chromium {
    let mut browser = Chromium::open_url(&scene.url(), colors);
    browser.set_size(width, 900);
    browser.wait_until(HAS_STATE);
    browser.wait_until(&has_text("#live", "live"));
    browser
}

fn answer_a_question(browser: &mut Chromium) {
    browser
        .evaluate("document.querySelector('#ask').elements.entries.value = 'tenant=acme-corp,path=/search'");
    click(browser, "#ask button");
    browser.wait_until(&has_text("#answer pre", "gcra"));
    click(browser, "#key-table [data-do=look]");
    browser.wait_until(&has_text("#key-table .look", "used, a request now is"));
}

fn save(browser: &mut Chromium, is_update: bool, name: &str, width: u32) {
    let height = browser.evaluate("document.documentElement.scrollHeight").as_u64().expect("a height");
    // The first screens of a page with many rows.
    let height = u32::try_from(height).expect("a page of some thousand pixels").min(2_200);
    let picture = STANDARD.decode(browser.screenshot(0, height, width)).expect("base64");
    let picture = png::with_few_colors(&picture);
    assert!(!picture.is_empty());
    if is_update {
        assert!(picture.len() <= LARGEST, "{name}: {} bytes", picture.len());
        std::fs::write(format!("docs/pictures/{name}.png"), picture).expect("a writable folder");
    }
}
