//! Which keys are denied most.

use super::text::{self, NONE, cut, grouped, grouped_or_none, share};
use crate::markup::Markup;
use crate::report::{DeniedKey, LimitReport, Report, share_ppm};

const SHOWN: usize = 50;

pub(super) fn section(report: &Report) -> Markup {
    let mut html = Markup::default();
    html.raw(r#"<section id="keys" aria-labelledby="keys-h"><h2 id="keys-h">Who is over a limit</h2>"#);
    let keys = most_denied(&report.limits);
    if keys.is_empty() {
        html.raw("<p>No key was over a limit.</p></section>");
        return html;
    }
    html.raw(
        r#"<p>The keys with most requests over a limit. A key that is 16 hexadecimal digits is a hash, the same in every report: run the simulation with <code>--show-keys</code> to see the key itself.</p>"#,
    );
    let (has_good, has_in_force) = (report.totals.good.is_some(), report.comparison.is_some());
    head(&mut html, has_good, has_in_force);
    for (rule, key) in keys {
        row(&mut html, rule, key, (has_good, has_in_force));
    }
    html.raw("</tbody></table></div></section>");
    html
}

fn most_denied(rules: &[LimitReport]) -> Vec<(&LimitReport, &DeniedKey)> {
    let mut keys: Vec<_> =
        rules.iter().flat_map(|rule| rule.top_denied.iter().map(move |key| (rule, key))).collect();
    keys.sort_by_key(|(_, key)| std::cmp::Reverse(key.over));
    keys.truncate(SHOWN);
    keys
}

fn head(html: &mut Markup, has_good: bool, has_in_force: bool) {
    html.raw(
        r#"<div class="scroll" tabindex="0" role="region" aria-labelledby="keys-h"><table class="sortable" id="key-table"><caption>Keys over a limit</caption><thead><tr><th scope="col">Key</th><th scope="col">Rule</th><th scope="col" class="n">Over</th><th scope="col" class="n">Share of its requests</th>"#,
    );
    if has_good {
        html.raw(r#"<th scope="col" class="n">Good over</th>"#);
    }
    if has_in_force {
        html.raw(r#"<th scope="col" class="n">In force</th>"#);
    }
    html.raw(
        r#"<th scope="col" class="n">Peak / limit</th><th scope="col">First (UTC)</th><th scope="col">Last (UTC)</th><th scope="col" class="n">Longest denial</th></tr></thead><tbody>"#,
    );
}

fn row(html: &mut Markup, rule: &LimitReport, key: &DeniedKey, (has_good, has_in_force): (bool, bool)) {
    let at_most = if key.error == 0 { "" } else { "≤ " };
    let part = key.asked.map(|asked| share(key.over, share_ppm(key.over, asked).min(1_000_000)));
    html.fill(
        r#"<tr><th scope="row"><code>{}</code></th><td>{}<td class=n>{}{}<td class=n>{}"#,
        &[&cut(&key.key), &rule.rule, &at_most, &grouped(key.over), &part.unwrap_or_else(|| NONE.to_owned())],
    );
    if has_good {
        html.fill("<td class=n>{}", &[&grouped_or_none(key.good_over)]);
    }
    if has_in_force {
        html.fill("<td class=n>{}", &[&grouped_or_none(key.in_force_over)]);
    }
    let or_none = |text: Option<String>| text.unwrap_or_else(|| NONE.to_owned());
    html.fill(
        "<td class=n>{} / {}<td>{}<td>{}<td class=n data-value=\"{}\">{}</tr>",
        &[
            &grouped_or_none(key.own_peak),
            &grouped(rule.limit),
            &or_none(key.first_over_us.map(text::time_of_year)),
            &or_none(key.last_over_us.map(text::time_of_year)),
            &key.longest_denial_us.unwrap_or(0),
            &or_none(key.longest_denial_us.map(text::span)),
        ],
    );
}
