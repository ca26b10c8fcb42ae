//! The page of the console in a headless Chromium: needs the program `chromium`.

mod access;
mod act;
mod first_screen;
mod layout;
mod live;
mod scene;
mod states;
mod told;
mod values;

use crate::support::chromium::{Chromium, Colors};
use crate::support::process::Ratelimitd;

/// The page of a service, with its first state.
pub fn open(service: &Ratelimitd) -> Chromium {
    let mut browser = open_page(service);
    browser.wait_until(HAS_STATE);
    browser
}

/// The page of a service, as it begins.
fn open_page(service: &Ratelimitd) -> Chromium {
    Chromium::open_url(&format!("http://localhost:{}/console", service.admin_port()), Colors::Light)
}

/// Whether the page has drawn a state.
const HAS_STATE: &str = "document.body?.classList.contains('empty') === false";

/// An expression: whether the text of an element has a part.
pub fn has_text(selector: &str, part: &str) -> String {
    let [selector, part] = [selector, part].map(|text| serde_json::Value::from(text).to_string());
    format!("[...document.querySelectorAll({selector})].some((e) => e.textContent.includes({part}))")
}

/// Presses a button, or what else the selector finds first.
pub fn click(browser: &mut Chromium, selector: &str) {
    browser.wait_until(&format!("document.querySelector(`{selector}`)"));
    browser.evaluate(&format!("document.querySelector(`{selector}`).click()"));
}

/// Fills the fields of the dialog by their names, and submits it.
pub fn submit(browser: &mut Chromium, fields: &[(&str, &str)]) {
    browser.wait_until("document.querySelector('dialog').open");
    for (name, value) in fields {
        let value = serde_json::Value::from(*value);
        browser.evaluate(&format!(
            "(() => {{
                const field = document.querySelector('dialog form').elements['{name}'];
                field.value = {value};
                field.dispatchEvent(new Event('input', {{ bubbles: true }}));
            }})()"
        ));
    }
    click(browser, "dialog form button:not([type])");
}
