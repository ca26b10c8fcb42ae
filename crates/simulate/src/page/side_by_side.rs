//! Each limit as every algorithm.

use super::data::{PageData, Series};
use super::over_time;
use super::text::{self, counted, grouped, share};
use crate::markup::Markup;
use crate::report::{AlgorithmsOfLimit, KeyByAlgorithm, Report};

/// Rules whose curves are drawn: those with most requests over the limit.
const DRAWN: usize = 3;

/// Nothing without `--algorithms`.
pub(super) fn section(report: &Report, data: &PageData) -> Markup {
    let mut html = Markup::default();
    if report.algorithms.is_empty() {
        return html;
    }
    html.raw(
        r#"<section id="algorithms" aria-labelledby="algorithms-h"><h2 id="algorithms-h">Algorithms side by side</h2><p>The same traffic and the same limits, with all limits of the rule set as one algorithm. The pictures show the keys and the rules with most requests over the limit.</p>"#,
    );
    table(&mut html, report);
    keys(&mut html, &report.worst_keys, report.method.key_sampling.level > 0);
    for (place, rule) in worst(&report.algorithms).into_iter().enumerate() {
        picture(&mut html, (place, rule), report, data.points());
    }
    html.raw("</section>");
    html
}

fn worst(rules: &[AlgorithmsOfLimit]) -> Vec<&AlgorithmsOfLimit> {
    let over = |rule: &AlgorithmsOfLimit| rule.algorithms.iter().map(|counts| counts.over).max().unwrap_or(0);
    let mut rules: Vec<&AlgorithmsOfLimit> = rules.iter().filter(|rule| over(rule) > 0).collect();
    rules.sort_by_key(|rule| std::cmp::Reverse(over(rule)));
    rules.truncate(DRAWN);
    rules
}

fn table(html: &mut Markup, report: &Report) {
    html.raw(
        r#"<div class="scroll" tabindex="0" role="region" aria-labelledby="algorithms-h"><table class="sortable" id="algorithm-table"><caption>Requests over each limit, by algorithm</caption><thead><tr><th scope="col">Rule</th><th scope="col">Algorithm</th><th scope="col" class="n">Burst</th><th scope="col" class="n">Requests</th><th scope="col" class="n">Over</th><th scope="col" class="n">Share over</th><th scope="col" class="n">Keys over</th></tr></thead><tbody>"#,
    );
    // Limits of one rule may have one label.
    for (rule, found) in report.limits.iter().zip(&report.algorithms) {
        let limit = format!("{} {} per {}", rule.rule, grouped(rule.limit), text::own_period(rule));
        for counts in &found.algorithms {
            html.fill(
                "<tr><th scope=row>{}</th><td>{}<td>{}<td>{}<td>{}<td>{}<td>{}</tr>",
                &[
                    &limit,
                    &counts.label,
                    &grouped(counts.burst),
                    &grouped(counts.asked),
                    &grouped(counts.over),
                    &share(counts.over, counts.over_share_ppm),
                    &grouped(counts.keys_over),
                ],
            );
        }
    }
    html.raw("</tbody></table></div>");
}

/// A table with bars for each key; the longest bar is that of the largest count of the key.
fn keys(html: &mut Markup, keys: &[KeyByAlgorithm], are_sampled: bool) {
    if keys.is_empty() {
        return;
    }
    html.raw(r#"<h3 id="worst-h">The keys with most requests over a limit</h3>"#);
    if are_sampled {
        html.raw(
            r#"<p class="note">Of the keys in the sample: a key with more denials may not be in it.</p>"#,
        );
    }
    html.raw(r#"<div class="worst">"#);
    for key in keys {
        let most = key.algorithms.iter().map(|count| count.over).max().unwrap_or(0).max(1);
        html.fill(
            r#"<table><caption><code>{}</code> of {}: {}</caption><thead><tr><th scope="col">Algorithm</th><th scope="col" colspan="2" class="n">Over</th></tr></thead><tbody>"#,
            &[&text::cut(&key.key), &key.rule, &counted(key.asked, "request")],
        );
        for (place, count) in key.algorithms.iter().enumerate() {
            // A width of at most 1,000 in a picture that is stretched to the column.
            let length = u128::from(count.over) * 1_000 / u128::from(most);
            html.fill(
                r#"<tr><th scope="row">{}</th><td><svg class="bar a{}" viewBox="0 0 1000 10" preserveAspectRatio="none" aria-hidden="true"><rect width="{}" height="10"/></svg></td><td class="n">{}</td></tr>"#,
                &[
                    &count.label,
                    &(place % 6),
                    &length,
                    &grouped(count.over),
                ],
            );
        }
        html.raw("</tbody></table>");
    }
    html.raw("</div>");
}

fn picture(html: &mut Markup, (place, rule): (usize, &AlgorithmsOfLimit), report: &Report, points: usize) {
    // All rules have the same steps.
    let Some(timeline) = report.limits.first().map(|rule| &rule.timeline) else { return };
    let lists: Vec<(&'static str, &[u64])> =
        rule.algorithms.iter().map(|counts| ("", counts.over_by_step.as_slice())).collect();
    let columns = Series::new((timeline.start_us, timeline.step_s), &lists, points);
    let title = format!("Requests over the limit of {}, summed up, by algorithm", rule.rule);
    html.fill(
        r#"<figure><figcaption><h3>{}: requests over the limit, summed up</h3></figcaption>"#,
        &[&rule.rule],
    );
    html.append(&over_time::cumulative_picture(place, &title, &columns));
    html.raw(r#"<p class="legend">"#);
    for (place, counts) in rule.algorithms.iter().enumerate() {
        html.fill(
            r#"<span class="key line a{}">{}: {}</span>"#,
            &[&(place % 6), &counts.label, &text::counted(counts.over, "request")],
        );
    }
    html.raw("</p></figure>");
}
