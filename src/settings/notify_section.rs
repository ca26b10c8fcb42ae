//! `notify.*`: where notices are sent.

use super::error::Fault;
use super::parsers::{Parser, duration, optional_path};
use super::reader::Reader;
use crate::notify::WebhookOptions;
use crate::post::HttpTarget;

/// `None` without a URL.
pub(super) fn webhook_from_reader(reader: &mut Reader) -> Option<WebhookOptions> {
    let url = Parser::new("http://host:port/path, https://host:port/path", HttpTarget::parse);
    // Its path and query may contain a token.
    let shown = |text: &str| HttpTarget::parse(text).map_or_else(String::new, |target| target.authority());
    let target = reader.take("notify.url", "", url.or_nothing().secret_shown_as(shown));
    // Takes every setting, so that a malformed one is a problem even without a URL.
    let secret_file = reader.take("notify.secret_file", "", optional_path());
    let ca_file = reader.take("notify.ca_file", "", optional_path());
    let timeout = reader.take("notify.timeout", "5s", duration("100ms", "1m"));
    let target = target?;
    let Some(secret_file) = secret_file else {
        reader.refuse("notify.url", Fault::Unsupported("messages are signed: set notify.secret_file"));
        return None;
    };
    Some(WebhookOptions { target, secret_file, ca_file, timeout })
}
