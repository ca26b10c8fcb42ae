//! The picture of keys by demand, with the limit line that the slider moves.

use super::chart::{self, Frame};
use super::data::{RuleData, is_swept, recommended};
use super::scale::{Coordinate, Scale};
use super::text::{self, grouped};
use crate::markup::Markup;
use crate::report::LimitReport;

const WIDTH: u32 = 520;
const HEIGHT: u32 = 300;
const X: (f64, f64) = (50.0, 505.0);
const Y: (f64, f64) = (255.0, 30.0);

/// Demand against rank, both logarithmic.
pub(super) fn picture(place: usize, rule: &LimitReport, data: &RuleData) -> Markup {
    let x = Scale::logarithmic(rule.keys, X);
    let y = demand_scale(rule, Y);
    let title = format!("Keys of {} by demand, descending", rule.rule);
    let frame = Frame {
        kind: "demand",
        rule: place,
        title: &title,
        description: &description(rule),
        width: WIDTH,
        height: HEIGHT,
    };
    let mut svg = chart::begin(&frame, &x, &y);
    chart::y_axis(&mut svg, &x, &y, "");
    chart::x_axis(&mut svg, &x, &y, &chart::short_ticks(&x));
    let unit = format!("most units in {}", text::own_period(rule));
    chart::axis_names(&mut svg, &x, &y, ("rank of the key", &unit));

    let ranks = data.demand.rank.iter().zip(&data.demand.units);
    let curve = chart::steps(ranks.map(|(rank, units)| (x.at(*rank), y.at(*units))), x.at(rule.keys));
    let limit = y.at(rule.limit);
    if !data.demand.rank.is_empty() {
        // The curve is closed along the axes, and drawn twice: as a line without the axes, and as the area above the
        // limit.
        let (left, bottom) = (Coordinate(X.0), Coordinate(Y.0));
        svg.fill(
            r#"<clipPath id="above-{}"><rect x="0" y="0" width="{}" height="{}"/></clipPath><clipPath id="ranks-{}"><rect x="51.5" y="0" width="468" height="253.5"/></clipPath>"#,
            &[&place, &WIDTH, &limit, &place],
        );
        svg.fill(r##"<defs><path id="demand-{}" d="{}V{}H{}Z"/></defs>"##, &[&place, &curve, &bottom, &left]);
        // Only in a fixed window the keys above the limit are those over it.
        if !is_swept(rule) {
            svg.fill(
                r##"<use class="hit" href="#demand-{}" clip-path="url(#above-{})"/>"##,
                &[&place, &place],
            );
        }
        svg.fill(r##"<use class="curve" href="#demand-{}" clip-path="url(#ranks-{})"/>"##, &[&place, &place]);
    }
    let in_force = rule.units_in_force();
    let marks = [("old", "in force", in_force), ("recommended", "recommended", recommended(rule))];
    let marks = || marks.iter().filter_map(|(class, name, limit)| Some((*class, *name, (*limit)?)));
    for (class, _, limit) in marks() {
        mark_line(&mut svg, class, y.at(limit));
    }
    svg.fill(
        r#"<g class="limit" transform="translate(0 {})"><path d="M{} 0H{}"/><text x="{}" y="-4">limit {}</text></g>"#,
        &[&limit, &Coordinate(X.0), &Coordinate(X.1), &Coordinate(X.1), &grouped(rule.limit)],
    );
    // After all lines: no line crosses a label where the limits are near each other.
    for (class, name, limit) in marks() {
        mark_label(&mut svg, class, y.at(limit), &format!("{name} {}", grouped(limit)));
    }
    svg.raw("</svg>");
    svg
}

/// The axis of units, which holds all demands and all limits.
pub(super) fn demand_scale(rule: &LimitReport, ends: (f64, f64)) -> Scale {
    let in_force = rule.in_force.as_ref().map_or(0, |in_force| in_force.limit);
    let points = rule.what_if.points.last().map_or(0, |point| point.limit);
    let demands = rule.keys_by_demand.first().map_or(0, |point| point.units);
    let limits = rule.limit.max(in_force).max(recommended(rule).unwrap_or(0));
    Scale::logarithmic(points.max(demands).max(limits), ends)
}

/// A limit that stays where it is.
fn mark_line(svg: &mut Markup, class: &'static str, at: Coordinate) {
    svg.fill(
        r#"<g class="mark {}"><path d="M{} {}H{}"/></g>"#,
        &[&class, &Coordinate(X.0), &at, &Coordinate(X.1)],
    );
}

/// The labels of the three limits stand side by side, in case the limits are near.
fn mark_label(svg: &mut Markup, class: &'static str, at: Coordinate, label: &str) {
    let end = if class == "old" { X.1 - 100.0 } else { X.1 - 200.0 };
    svg.fill(
        r#"<g class="mark {}"><text x="{}" y="{}">{}</text></g>"#,
        &[&class, &Coordinate(end), &Coordinate(at.0 - 4.0), &label],
    );
}

fn description(rule: &LimitReport) -> String {
    let most = rule.keys_by_demand.first().map_or(0, |point| point.units);
    format!(
        "{}. The key with the highest demand asked for {} units in one period of {}; the limit is {}. Half of the keys never asked for more than {}.",
        text::counted(rule.keys, "key"),
        grouped(most),
        text::own_period(rule),
        grouped(rule.limit),
        grouped(rule.own_peaks.p50),
    )
}
