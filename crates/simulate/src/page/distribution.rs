//! The cumulative distribution of the keys' peaks, and the table of their percentiles.

use super::chart::{self, Frame};
use super::data::{RuleData, is_swept, recommended};
use super::demand::demand_scale;
use super::scale::{Coordinate, Scale};
use super::text::{self, grouped};
use crate::markup::Markup;
use crate::report::{LimitReport, Percentiles, share_ppm};

const WIDTH: u32 = 520;
const HEIGHT: u32 = 300;
const X: (f64, f64) = (55.0, 505.0);
const Y: (f64, f64) = (255.0, 62.0);

/// The share of keys that stay within a limit. Those that stay within a fixed window never asked for more units in one
/// period, so the curve is that of their peaks.
pub(super) fn picture(place: usize, rule: &LimitReport, data: &RuleData) -> Markup {
    let x = demand_scale(rule, X);
    // Hundredths of a percent: integers that are fine enough for a picture.
    let y = Scale::linear((0, 10_000), Y);
    let (title, axis) = match is_swept(rule) {
        true => (format!("Keys of {} within a limit", rule.rule), "keys never over a limit of"),
        false => {
            (format!("Distribution of the peaks of the keys of {}", rule.rule), "keys with a peak of at most")
        }
    };
    let frame = Frame {
        kind: "peaks",
        rule: place,
        title: &title,
        description: &description(rule),
        width: WIDTH,
        height: HEIGHT,
    };
    let mut svg = chart::begin(&frame, &x, &y);
    chart::x_axis(&mut svg, &x, &y, &chart::short_ticks(&x));
    share_axis(&mut svg, &y);
    let unit = format!("units in {}", text::own_period(rule));
    let bottom = Coordinate(Y.0);
    svg.fill(
        r#"<text class="axis-name end" x="{}" y="{}">{}</text><text class="axis-name" x="13" y="14">{}</text>"#,
        &[&Coordinate(X.1), &Coordinate(Y.0 + 32.0), &unit, &axis],
    );

    let what_if = &data.what_if;
    let share = |keys_over: u64| y.at(10_000 - (share_ppm(keys_over, rule.keys) / 100).min(10_000));
    let points = what_if.limit.iter().zip(&what_if.keys).map(|(limit, over)| (x.at(*limit), share(*over)));
    if let Some(first) = what_if.limit.first() {
        // Nothing is known below the first limit that was tried.
        let left = if is_swept(rule) { x.at(*first) } else { Coordinate(X.0) };
        let curve = chart::steps(points, Coordinate(X.1));
        svg.fill(
            r#"<clipPath id="peaks-{}"><rect x="56.5" y="0" width="447" height="253.5"/></clipPath><path class="curve under" clip-path="url(#peaks-{})" d="M{} {}L{}V{}Z"/>"#,
            &[&place, &place, &left, &bottom, &curve.trim_start_matches('M'), &bottom],
        );
    }
    let peaks = named(&rule.own_peaks).into_iter().filter(|_| !is_swept(rule));
    for (name, peak, hundredths) in peaks {
        svg.fill(
            r#"<circle class="percentile" cx="{}" cy="{}" r="3.5"><title>{}: {}</title></circle>"#,
            &[&x.at(peak), &y.at(hundredths), &name, &grouped(peak)],
        );
    }
    marks(&mut svg, rule, &x);
    svg.raw("</svg>");
    svg
}

/// The limits as vertical lines, each label in a row of its own above the picture.
fn marks(svg: &mut Markup, rule: &LimitReport, x: &Scale) {
    let in_force = rule.units_in_force();
    let lines = [
        ("mark old", "in force", in_force, 28.0),
        ("mark recommended", "recommended", recommended(rule), 41.0),
    ];
    for (class, name, limit, row) in lines {
        let Some(limit) = limit else { continue };
        let at = x.at(limit);
        // The label stands on the side that has room.
        let is_right = at.0 > 380.0;
        svg.fill(
            r#"<g class="{}{}"><path d="M{} {}V{}"/><text x="{}" y="{}">{} {}</text></g>"#,
            &[
                &class,
                &if is_right { " end" } else { "" },
                &at,
                &Coordinate(row + 3.0),
                &Coordinate(Y.0),
                &Coordinate(if is_right { at.0 - 4.0 } else { at.0 + 4.0 }),
                &Coordinate(row),
                &name,
                &grouped(limit),
            ],
        );
    }
    let limit = rule.limit;
    svg.fill(
        r#"<g class="limit" transform="translate({} 0)"><path d="M0 57V{}"/><text x="0" y="54">limit {}</text></g>"#,
        &[&x.at(limit), &Coordinate(Y.0), &grouped(limit)],
    );
}

fn share_axis(svg: &mut Markup, y: &Scale) {
    svg.raw(r#"<g class="labels y">"#);
    for percent in [0, 25, 50, 75, 90, 100] {
        let at = y.at(percent * 100).0 + 4.0;
        svg.fill(r#"<text x="{}" y="{}">{} %</text>"#, &[&Coordinate(X.0 - 6.0), &Coordinate(at), &percent]);
    }
    svg.raw(r#"</g><path class="grid" d=""#);
    for percent in [0, 25, 50, 75, 90, 100] {
        svg.fill("M{} {}H{}", &[&Coordinate(X.0), &y.at(percent * 100), &Coordinate(X.1)]);
    }
    svg.raw(r#""/>"#);
}

/// Name, value, and share of keys in hundredths of a percent.
fn named(peaks: &Percentiles) -> [(&'static str, u64, u64); 5] {
    [
        ("50 %", peaks.p50, 5_000),
        ("90 %", peaks.p90, 9_000),
        ("99 %", peaks.p99, 9_900),
        ("99.9 %", peaks.p999, 9_990),
        ("all", peaks.max, 10_000),
    ]
}

fn description(rule: &LimitReport) -> String {
    let parts =
        named(&rule.own_peaks).map(|(name, peak, _)| format!("{name} of keys: at most {}", grouped(peak)));
    format!("Most units of a key in one period of {}. {}.", text::own_period(rule), parts.join("; "))
}

/// Percentiles for windows of all lengths; the limit's own period first.
pub(super) fn table(rule: &LimitReport) -> Markup {
    let mut html = Markup::default();
    html.fill(
        r#"<div class="scroll" tabindex="0" role="region" aria-label="Peaks of keys of {}"><table class="peaks"><caption>Most units of a key in one window: the value that this share of keys does not exceed</caption>"#,
        &[&rule.rule],
    );
    html.raw(r#"<thead><tr><th scope="col">Window</th>"#);
    for (name, _, _) in named(&rule.own_peaks) {
        html.fill(r#"<th scope="col" class="n">{}</th>"#, &[&name]);
    }
    html.raw("</tr></thead><tbody>");
    row(&mut html, &format!("{} (the limit’s period)", text::own_period(rule)), &rule.own_peaks);
    for window in rule.peaks.iter().filter(|window| window.window_s != rule.period_s) {
        row(&mut html, &text::period(window.window_s), &window.percentiles);
    }
    html.raw("</tbody></table></div>");
    html
}

fn row(html: &mut Markup, window: &str, peaks: &Percentiles) {
    html.fill(r#"<tr><th scope="row">{}</th>"#, &[&window]);
    for (_, peak, _) in named(peaks) {
        html.fill("<td>{}", &[&grouped(peak)]);
    }
    html.raw("</tr>");
}
