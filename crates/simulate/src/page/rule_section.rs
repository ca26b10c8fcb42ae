//! The section of one rule: the slider and its pictures.

use super::data::{RuleData, is_swept, recommended};
use super::rule_table::{badges, limit};
use super::text::{self, counted, grouped, share};
use super::{demand, distribution, over_time};
use crate::markup::Markup;
use crate::report::{LimitReport, Recommendation, percent, share_ppm};

/// `place` is the place of the rule in the JSON block.
pub(super) fn section(place: usize, rule: &LimitReport, data: &RuleData) -> Markup {
    let mut html = Markup::default();
    html.fill(
        r#"<section class="rule" id="rule-{}" aria-labelledby="rule-{}-h" data-rule="{}"><h2 id="rule-{}-h">{}"#,
        &[&place, &place, &place, &place, &rule.rule],
    );
    badges(&mut html, rule);
    html.raw(r#"</h2><p class="limit-text">"#);
    // A limit without a name has the path as its label.
    if rule.path != rule.rule {
        html.fill("<code>{}</code> · ", &[&rule.path]);
    }
    html.fill("{}", &[&limit(rule)]);
    if let Some(in_force) = &rule.in_force {
        let limit_in_force = format!("{} per {}", grouped(in_force.limit), text::period(in_force.period_s));
        html.fill(
            r#" · in force: {}, {} ({} over)"#,
            &[&limit_in_force, &in_force.algorithm, &share(in_force.over, in_force.over_share_ppm)],
        );
    }
    html.raw("</p>");
    if !rule.is_resolved {
        html.raw(r#"<p class="warning">The period has fewer than ten ticks of the log’s clock: do not trust the counts of this rule.</p>"#);
    }
    if let Some(recommendation) = &rule.recommendation {
        recommend(&mut html, rule, recommendation);
    }
    slider(&mut html, place, rule, data);
    pictures(&mut html, place, rule, data);
    html.raw("</section>");
    html
}

fn recommend(html: &mut Markup, rule: &LimitReport, recommendation: &Recommendation) {
    if let Some(reason) = &recommendation.no_recommendation {
        html.fill("<p>No recommendation{}: {}.</p>", &[&with_burst(rule), reason]);
        return;
    }
    let Recommendation { limit, needed, needed_low, needed_high, .. } = recommendation;
    let of = if is_swept(rule) { "of those that were tried " } else { "" };
    html.fill(
        r#"<p class="recommendation">Recommended: <strong>{} per {}</strong>{}. {} is the smallest limit {}(95 % interval {} to {}) with at most {} % of keys over it and at most {} % of good requests denied; head-room makes it at least {} %.</p>"#,
        &[
            &grouped(*limit),
            &text::own_period(rule),
            &with_burst(rule),
            &grouped(*needed),
            &of,
            &grouped(*needed_low),
            &needed_high.map_or_else(|| "more than was tried".to_owned(), grouped),
            &percent(recommendation.max_keys_ppm),
            &percent(recommendation.max_good_denied_ppm),
            &recommendation.headroom_percent,
        ],
    );
}

/// `, with the burst of 20`: what all points of the curve have.
fn with_burst(rule: &LimitReport) -> String {
    let held = rule.what_if.held_burst;
    held.map_or_else(String::new, |burst| format!(", with the burst of {}", grouped(burst.into())))
}

/// The slider stands on the points of the what-if curve, so that every number it shows was counted. Without the script
/// it stays hidden, and the effect of the judged limit is shown.
fn slider(html: &mut Markup, place: usize, rule: &LimitReport, data: &RuleData) {
    let what_if = &data.what_if;
    if what_if.limit.is_empty() {
        return;
    }
    html.raw(r#"<div class="what-if"><div class="controls" hidden>"#);
    html.fill(
        r#"<label for="slider-{}">What if the limit per {} were</label><input type="range" id="slider-{}" min="0" max="{}" step="1" value="{}" aria-describedby="effect-{}">"#,
        &[&place, &text::own_period(rule), &place, &(what_if.limit.len() - 1), &what_if.start, &place],
    );
    html.raw(r#"<span class="marks">Move to the limit "#);
    let in_force = rule.units_in_force();
    let marks = [("judged", Some(data.limit)), ("in force", in_force), ("recommended", recommended(rule))];
    for (name, limit) in marks {
        let Some((limit, point)) = limit.and_then(|limit| Some((limit, what_if.place(limit)?))) else {
            continue;
        };
        html.fill(
            r#"<button type="button" data-point="{}">{} {}</button>"#,
            &[&point, &name, &grouped(limit)],
        );
    }
    html.fill(
        r#"</span></div><output id="effect-{}" for="slider-{}" aria-live="polite">"#,
        &[&place, &place],
    );
    html.append(&effect(rule, data));
    html.raw(r#"</output><p class="whom"></p>"#);
    if is_swept(rule) {
        html.fill(
            r#"<p class="note">Each limit was decided as {} of its own{}.</p>"#,
            &[&rule.algorithm, &with_burst(rule)],
        );
    }
    if !rule.what_if.is_exact {
        html.fill(
            r#"<p class="note">An approximation: the curve is of this limit alone. The rule was over the limit in {} when all rules were decided together.</p>"#,
            &[&counted(rule.over, "request")],
        );
    }
    html.raw("</div>");
}

/// The same sentence as the script makes for the other points.
fn effect(rule: &LimitReport, data: &RuleData) -> Markup {
    let (what_if, point) = (&data.what_if, data.what_if.start);
    let (denied, keys) = (what_if.denied[point], what_if.keys[point]);
    let mut html = Markup::default();
    html.fill(
        "<b>{}</b> per {}: <b>{}</b> over it ({})",
        &[
            &grouped(what_if.limit[point]),
            &text::own_period(rule),
            &counted(denied, "request"),
            &share(denied, share_ppm(denied, rule.asked)),
        ],
    );
    if let Some(good) = what_if.good.get(point) {
        html.fill(", {} of them good", &[&grouped(*good)]);
    }
    html.fill("; <b>{}</b> hit of {}", &[&counted(keys, "key"), &grouped(rule.keys)]);
    html
}

fn pictures(html: &mut Markup, place: usize, rule: &LimitReport, data: &RuleData) {
    html.raw(r#"<div class="pair"><figure><figcaption><h3>Keys by demand</h3></figcaption>"#);
    html.append(&demand::picture(place, rule, data));
    numbers(html, place, "demand");
    html.raw("</figure>");
    if !data.what_if.limit.is_empty() {
        html.fill(
            "<figure><figcaption><h3>{}</h3></figcaption>",
            &[&if is_swept(rule) { "Keys within a limit" } else { "Distribution of peaks" }],
        );
        html.append(&distribution::picture(place, rule, data));
        numbers(html, place, "what-if");
        html.raw("</figure>");
    }
    html.raw("</div>");
    html.append(&distribution::table(rule));
    let in_force_over = rule.in_force.as_ref().map_or(0, |in_force| in_force.over);
    if rule.over == 0 && in_force_over == 0 {
        html.raw("<p>No request was over this limit.</p>");
        return;
    }
    html.fill(
        r#"<figure><figcaption><h3>Requests over the limit per {}</h3></figcaption>"#,
        &[&text::period(data.time.step)],
    );
    html.append(&over_time::rule_picture(place, &rule.rule, &data.time));
    html.raw(r#"<p class="legend"><span class="key over">these rules</span>"#);
    if data.time.counts.len() > 2 {
        html.raw(r#"<span class="key old line">rules in force</span>"#);
    }
    html.raw("<span>times in UTC</span></p>");
    numbers(html, place, "time");
    html.raw("</figure>");
    if data.heat.is_some() {
        let span_us = rule.timeline.step_s * rule.timeline.over.len() as u64 * 1_000_000;
        html.fill(
            r#"<div class="heat-map scroll" tabindex="0" role="region" aria-label="Requests over the limit of {} by weekday and hour" hidden><table class="heat"><caption>Requests over the limit by weekday and hour (UTC), summed over {}</caption></table></div>"#,
            &[&rule.rule, &text::span(span_us)],
        );
    }
}

/// The numbers of a picture as a table that the script fills when it is opened.
fn numbers(html: &mut Markup, place: usize, kind: &'static str) {
    html.fill(
        r#"<details class="numbers" data-rule="{}" data-numbers="{}" hidden><summary>Numbers</summary></details>"#,
        &[&place, &kind],
    );
}
