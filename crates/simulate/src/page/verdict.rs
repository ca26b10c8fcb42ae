//! The start of the page: the verdict, the counts behind it, the bounds, and the two rule sets side by side.

use super::data::PageData;
use super::over_time;
use super::text::{self, counted, grouped, share};
use crate::markup::Markup;
use crate::report::{BoundCheck, Comparison, Report, share_ppm};

pub(super) fn section(report: &Report, data: &PageData) -> Markup {
    let mut html = Markup::default();
    html.raw(r#"<section id="verdict" aria-labelledby="verdict-h"><h2 id="verdict-h">Verdict</h2>"#);
    if report.partial {
        html.raw(r#"<p class="warning"><strong>Partial:</strong> the log was not read to its end.</p>"#);
    }
    html.fill(r#"<p class="verdict">{}</p>"#, &[&report.verdict]);
    counts(&mut html, report);
    bounds(&mut html, &report.bounds, &report.untested_reasons);
    if let Some(comparison) = &report.comparison {
        side_by_side(&mut html, report, comparison);
        if let Some(columns) =
            data.comparison().filter(|columns| columns.counts.iter().flatten().any(|n| *n > 0))
        {
            html.fill(
                r#"<figure><figcaption><h3>Denied requests per {}</h3></figcaption>"#,
                &[&text::period(columns.step)],
            );
            html.append(&over_time::comparison_picture(columns));
            html.raw(
                r#"<p class="legend"><span class="key both">by both</span><span class="key over">only by the new rules</span><span class="key old">only by the rules in force</span></p></figure>"#,
            );
        }
    }
    html.raw("</section>");
    html
}

fn counts(html: &mut Markup, report: &Report) {
    let totals = &report.totals;
    let span = text::span(totals.last_us.saturating_sub(totals.first_us));
    html.raw(r#"<dl class="tiles">"#);
    let mut tile = |name: &str, value: String, note: String| {
        html.fill(r#"<div><dt>{}</dt><dd><b>{}</b><small>{}</small></dd></div>"#, &[&name, &value, &note]);
    };
    tile("Requests", grouped(totals.requests), format!("in {span}"));
    tile("Denied", share(totals.denied, totals.denied_share_ppm), counted(totals.denied, "request"));
    if let Some(comparison) = &report.comparison {
        let denied = comparison.in_force_denied;
        tile(
            "Denied by rules in force",
            share(denied, comparison.in_force_denied_share_ppm),
            counted(denied, "request"),
        );
    }
    tile("Keys over a limit", grouped(totals.keys_denied), format!("of {}", grouped(totals.keys)));
    if let (Some(good), Some(denied), Some(ppm)) =
        (totals.good, totals.good_denied, totals.good_denied_share_ppm)
    {
        tile("Good requests denied", grouped(denied), format!("{} of {}", share(denied, ppm), grouped(good)));
    }
    if totals.shadow_denied > 0 {
        tile(
            "Over shadow rules and announced limits only",
            grouped(totals.shadow_denied),
            "would be denied if enforced".to_owned(),
        );
    }
    html.raw("</dl>");
}

fn bounds(html: &mut Markup, bounds: &[BoundCheck], untested: &[String]) {
    if bounds.is_empty() {
        return;
    }
    html.raw(r#"<h3>Bounds</h3><ul class="bounds">"#);
    for bound in bounds {
        let (class, state) = if bound.is_kept { ("kept", "kept") } else { ("broken", "broken") };
        html.fill(r#"<li class="{}"><code>{}</code> <strong>{}</strong>"#, &[&class, &bound.bound, &state]);
        for reason in &bound.broken_by {
            html.fill("<br>{}", &[reason]);
        }
        html.raw("</li>");
    }
    for reason in untested {
        html.fill(r#"<li class="broken"><strong>not tested</strong><br>{}</li>"#, &[reason]);
    }
    html.raw("</ul>");
}

fn side_by_side(html: &mut Markup, report: &Report, comparison: &Comparison) {
    html.raw(
        r#"<h3>New rules and rules in force</h3><div class="columns"><table><caption>Requests by decision</caption><thead><tr><th scope="col">Decision</th><th scope="col" class="n">Requests</th><th scope="col" class="n">Share</th></tr></thead><tbody>"#,
    );
    let rows = [
        ("both admit", comparison.both_admit),
        ("only the new rules deny", comparison.only_judged_denies),
        ("only the rules in force deny", comparison.only_in_force_denies),
        ("both deny", comparison.both_deny),
    ];
    for (decision, count) in rows {
        let share = share(count, share_ppm(count, report.totals.requests));
        html.fill(
            r#"<tr><th scope="row">{}</th><td class=n>{}</td><td class=n>{}</td></tr>"#,
            &[&decision, &grouped(count), &share],
        );
    }
    html.raw("</tbody></table><ul>");
    html.fill("<li>{} newly over a limit", &[&counted(comparison.keys_newly_over, "key")]);
    if let Some(good) = comparison.keys_newly_over_good_only {
        html.fill(", {} of them with good requests only", &[&grouped(good)]);
    }
    html.fill("</li><li>{} no longer over a limit</li>", &[&counted(comparison.keys_freed, "key")]);
    if let Some(good) = comparison.good_only_judged_denies {
        html.fill("<li>{} denied only by the new rules</li>", &[&counted(good, "good request")]);
    }
    let lists = [
        ("Limits only in the new rules", &comparison.only_in_judged),
        ("Limits only in force", &comparison.only_in_force),
    ];
    for (name, labels) in lists.into_iter().filter(|(_, labels)| !labels.is_empty()) {
        html.fill("<li>{}: {}</li>", &[&name, &labels.join(", ")]);
    }
    html.raw("</ul></div>");
}
