//! How the numbers came about, and what to do next.

use super::text::{self, counted, grouped};
use crate::markup::Markup;
use crate::report::{Agreement, Method, Report, RequestSample, percent};

pub(super) fn section(report: &Report) -> Markup {
    let mut html = Markup::default();
    html.raw(
        r#"<section id="method" aria-labelledby="method-h"><h2 id="method-h">Method</h2><dl class="method">"#,
    );
    lines(&mut html, &report.method);
    time(&mut html, &report.method);
    keys(&mut html, &report.method);
    if let Some(agreement) = &report.method.agreement {
        agree(&mut html, agreement);
    }
    files(&mut html, &report.method);
    html.raw("</dl>");
    unreadable(&mut html, &report.method);
    limits_of_the_method(&mut html);
    checklist(&mut html, report);
    html.raw("</section>");
    html
}

fn entry(html: &mut Markup, name: &'static str, text: &str) {
    html.fill("<dt>{}</dt><dd>{}</dd>", &[&name, &text]);
}

fn lines(html: &mut Markup, method: &Method) {
    let Method { lines, not_kept, without_descriptor, unreadable, .. } = method;
    let text = format!(
        "{} read; {} left out by keep; {} without a descriptor; {} unreadable",
        grouped(*lines),
        grouped(*not_kept),
        grouped(*without_descriptor),
        grouped(*unreadable)
    );
    entry(html, "Lines", &text);
}

fn time(html: &mut Markup, method: &Method) {
    let order = &method.reordering;
    let mut text = format!(
        "sorted in a window of {}; {} came later",
        text::span(order.window_us),
        counted(order.late, "request")
    );
    if order.late > 0 {
        text += &format!(
            ", at most {} late, and were decided at the time of the request before them",
            text::span(order.most_late_us)
        );
    }
    if order.was_shortened {
        text += "; the window was shorter at times, because more requests lay in it than fit into memory";
    }
    entry(html, "Order", &text);
    entry(html, "Clock of the log", &format!("resolution {}", text::span(method.clock_resolution_us)));
}

fn keys(html: &mut Markup, method: &Method) {
    let RequestSample { one_in, left_out } = method.sample;
    if one_in > 1 {
        let text = format!(
            "1/{one_in} of the keys; all counts are of these, shares are estimates; {} left out. A limit that is not by the sampled key is decided as 1/{one_in} of it",
            counted(left_out, "request")
        );
        entry(html, "Sample", &text);
    }
    let sampling = &method.key_sampling;
    let text = if sampling.level == 0 {
        "all keys counted: exact".to_owned()
    } else {
        format!(
            "counts of keys are estimates from one in {} keys, with a relative standard error of {} %; percentiles have a standard error of at most {} percentage points of keys",
            grouped(1_u64.checked_shl(sampling.level).unwrap_or(u64::MAX)),
            percent(sampling.key_error_ppm),
            // The error of a share p of n keys is the root of p (1 - p) / n, which is largest for a half.
            percent(sampling.key_error_ppm.div_ceil(2))
        )
    };
    entry(html, "Keys", &text);
    if method.evictions > 0 {
        let text = format!(
            "{} evicted because memory was full: limits admitted too much",
            counted(method.evictions, "counter")
        );
        entry(html, "Memory", &text);
    }
}

fn agree(html: &mut Markup, agreement: &Agreement) {
    let mut text = agreement.summary.clone();
    if agreement.has_differences_to_explain() {
        let vanished = agreement
            .by_shift
            .iter()
            .map(|found| format!("{} within {}", grouped(found.vanished), text::span(found.shift_us)));
        text += &format!(
            " Of the {}, these vanish if the times of the log are a little wrong: {}; {} do not.",
            counted(agreement.differences(), "difference"),
            vanished.collect::<Vec<_>>().join(", "),
            grouped(agreement.unexplained())
        );
    }
    entry(html, "Agreement", &text);
}

fn files(html: &mut Markup, method: &Method) {
    html.raw("<dt>Logs</dt><dd>");
    for input in &method.inputs {
        let how = if input.is_recognized { "recognized" } else { "as given" };
        html.fill(
            "<div><code>{}</code> ({}, {}, {} bytes)",
            &[&input.name, &input.format, &how, &grouped(input.bytes)],
        );
        if let Some(reason) = &input.cut {
            html.fill("; <strong>not read to its end: {}</strong>", &[reason]);
        }
        html.raw("</div>");
    }
    html.raw("</dd><dt>Digests (SHA-256)</dt><dd>");
    for file in &method.digests {
        html.fill(
            r#"<div>{} <code>{}</code> <code class="digest">{}</code></div>"#,
            &[&file.role, &file.name, &file.sha256],
        );
    }
    html.fill(
        "</dd><dt>Command</dt><dd><code>ratelimitd {}</code></dd><dt>Version</dt><dd>{}</dd>",
        &[&method.command_line.join(" "), &method.program_version],
    );
}

fn unreadable(html: &mut Markup, method: &Method) {
    if method.unreadable_lines.is_empty() {
        return;
    }
    html.raw("<h3>Lines that could not be read</h3><ol>");
    for line in &method.unreadable_lines {
        html.fill("<li><code>{}:{}</code>: {}</li>", &[&line.input, &line.line, &line.reason]);
    }
    html.raw("</ol>");
}

fn limits_of_the_method(html: &mut Markup) {
    html.raw(
        "<h3>What these numbers cannot say</h3><p>Recorded traffic does not react: a client that is denied may try again or stop. An attack in the log counts as traffic, unless the map’s <code>keep</code> leaves it out. Several users behind one address are one key.</p>",
    );
}

/// What to do until the rules are enforced. Shadow rules must run for two periods of the slowest limit and for one
/// cycle of the traffic.
fn checklist(html: &mut Markup, report: &Report) {
    let longest_s = report.limits.iter().map(|rule| rule.period_s).max().unwrap_or(0);
    html.raw(r#"<h3>Until the rules are enforced</h3><ul class="checklist">"#);
    html.raw(
        "<li>Every rule that has to limit something is in the table, and none is listed as never met.</li>",
    );
    html.raw("<li>Few lines were skipped, and the simulation agrees with the denials in the log, if it has any.</li>");
    html.raw(
        "<li>The keys over each limit are known: no customer is among them who must not be denied.</li>",
    );
    html.fill(
        "<li>The rules run with <code>shadow_mode: true</code> for at least {} (two periods of the slowest limit) and one full cycle of the traffic, usually a week.</li>",
        &[&text::period(longest_s * 2)],
    );
    html.raw("<li>In <code>ratelimitd_decisions_total</code> the share of <code>outcome=\"shadow\"</code> of each rule is near the share of this report.</li>");
    html.raw("<li>One rule after the other is enforced, the one with the fewest keys over it first; the share of <code>over_limit</code> is watched for two periods before the next.</li>");
    html.raw("<li>The former rule file is at hand for the way back.</li></ul>");
}
