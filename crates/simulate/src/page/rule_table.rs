//! The table of all rules.

use super::data::recommended;
use super::text::{self, NONE, grouped, grouped_or_none, share};
use crate::markup::Markup;
use crate::report::{LimitReport, Report};

/// `places` are those of the rules in the JSON block; a rule without one has no section of its own.
pub(super) fn section(report: &Report, places: &[Option<usize>]) -> Markup {
    let columns = RuleColumns::new(report);
    let mut html = Markup::default();
    html.raw(r#"<section id="rules" aria-labelledby="rules-h"><h2 id="rules-h">Rules</h2>"#);
    if report.limits.is_empty() {
        html.raw(r#"<p class="warning">No request met a limit.</p>"#);
    } else {
        html.raw(r#"<div class="scroll" tabindex="0" role="region" aria-labelledby="rules-h"><table class="sortable" id="rule-table"><caption>Limits that requests met</caption>"#);
        columns.head(&mut html);
        html.raw("<tbody>");
        for (rule, place) in report.limits.iter().zip(places) {
            columns.row(&mut html, rule, *place);
        }
        html.raw("</tbody></table></div>");
    }
    untested(&mut html, &report.untested_rules);
    html.raw("</section>");
    html
}

/// Which optional columns the table has.
struct RuleColumns {
    has_in_force: bool,
    has_good: bool,
    has_recommendation: bool,
}

impl RuleColumns {
    fn new(report: &Report) -> Self {
        Self {
            has_in_force: report.comparison.is_some(),
            has_good: report.totals.good.is_some(),
            has_recommendation: report.limits.iter().any(|rule| rule.recommendation.is_some()),
        }
    }

    fn head(&self, html: &mut Markup) {
        html.raw(r#"<thead><tr><th scope="col">Rule</th><th scope="col">Limit</th>"#);
        let mut number = |name: &'static str| {
            html.fill(r#"<th scope="col" class="n">{}</th>"#, &[&name]);
        };
        number("Requests");
        number("Over");
        number("Share over");
        if self.has_in_force {
            number("In force");
        }
        if self.has_good {
            number("Good over");
        }
        number("Keys");
        number("Keys over");
        if self.has_in_force {
            number("Newly over");
        }
        if self.has_recommendation {
            number("Recommended");
        }
        html.raw("</tr></thead>");
    }

    fn row(&self, html: &mut Markup, rule: &LimitReport, place: Option<usize>) {
        html.raw(r#"<tr><th scope="row">"#);
        match place {
            Some(place) => html.fill(r##"<a href="#rule-{}">{}</a>"##, &[&place, &rule.rule]),
            None => html.fill("{}", &[&rule.rule]),
        };
        badges(html, rule);
        html.fill("</th><td>{}", &[&limit(rule)]);
        let mut number = |text: &str| {
            html.fill("<td class=n>{}", &[&text]);
        };
        number(&grouped(rule.asked));
        number(&grouped(rule.over));
        number(&share(rule.over, rule.over_share_ppm));
        if self.has_in_force {
            number(
                &rule.in_force.as_ref().map_or_else(
                    || NONE.to_owned(),
                    |in_force| share(in_force.over, in_force.over_share_ppm),
                ),
            );
        }
        if self.has_good {
            number(&grouped_or_none(rule.good_over));
        }
        number(&grouped(rule.keys));
        number(&grouped(rule.keys_over));
        if self.has_in_force {
            number(&grouped_or_none(rule.in_force.as_ref().map(|in_force| in_force.keys_newly_over)));
        }
        if self.has_recommendation {
            number(&grouped_or_none(recommended(rule)));
        }
        html.raw("</tr>");
    }
}

/// `100 per 1 min, gcra, burst 10`.
pub(super) fn limit(rule: &LimitReport) -> String {
    let rate = format!("{} per {}", grouped(rule.limit), text::own_period(rule));
    let burst =
        if rule.burst == rule.limit { String::new() } else { format!(", burst {}", grouped(rule.burst)) };
    let reserve = rule.reserve.map(|units| format!(", reserve {}", grouped(units))).unwrap_or_default();
    format!("{rate}, {}{burst}{reserve}", rule.algorithm)
}

/// What a reader must know about a rule beside its numbers.
pub(super) fn badges(html: &mut Markup, rule: &LimitReport) {
    if rule.shadow {
        html.raw(r#" <span class="badge" title="shadow_mode: its denials deny nothing">shadow</span>"#);
    }
    if rule.announces {
        html.raw(r#" <span class="badge" title="on_over: announce: it denies nothing">announces</span>"#);
    }
    if !rule.is_resolved {
        html.raw(
            r#" <span class="badge red" title="The period has fewer than ten ticks of the log’s clock">clock too coarse</span>"#,
        );
    }
}

fn untested(html: &mut Markup, paths: &[String]) {
    if paths.is_empty() {
        return;
    }
    html.raw(r#"<div class="warning"><strong>Never met</strong> by a request; a typing error in a rule file or in the map looks like this:<ul>"#);
    for path in paths {
        html.fill("<li><code>{}</code></li>", &[path]);
    }
    html.raw("</ul></div>");
}
