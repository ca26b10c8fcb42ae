//! What all pictures of the page have: a frame with a title for screen readers, axes, lines.

use std::fmt::Write as _;

use super::scale::{Coordinate, Scale};
use super::text;
use crate::markup::Markup;

/// The name and the size of a picture.
pub(super) struct Frame<'a> {
    /// What the script of the page shows for a place in the picture.
    pub kind: &'static str,
    /// The place of the rule in the JSON block.
    pub rule: usize,
    pub title: &'a str,
    /// The content in words.
    pub description: &'a str,
    pub width: u32,
    pub height: u32,
}

/// Starts an SVG element. The script reads the axes from it.
pub(super) fn begin(frame: &Frame, x: &Scale, y: &Scale) -> Markup {
    let mut svg = Markup::default();
    let Frame { kind, rule, title, description, width, height } = frame;
    svg.fill(
        r#"<svg class="chart {}" data-chart="{}" data-rule="{}" data-x="{}" data-y="{}" viewBox="0 0 {} {}" role="img""#,
        &[kind, kind, rule, x, y, width, height],
    );
    svg.fill(
        r#" aria-labelledby="{}-{}-t" aria-describedby="{}-{}-d"><title id="{}-{}-t">{}</title><desc id="{}-{}-d">{}</desc>"#,
        &[kind, rule, kind, rule, kind, rule, title, kind, rule, description],
    );
    svg
}

/// A horizontal grid line and a label for each tick of the y axis.
pub(super) fn y_axis(svg: &mut Markup, x: &Scale, y: &Scale, unit: &str) {
    let ((left, right), mut grid) = (x.ends(), String::new());
    svg.raw(r#"<g class="labels y">"#);
    for tick in y.ticks() {
        let at = y.at(tick);
        write!(grid, "M{left} {at}H{right}").expect("a String takes any text");
        svg.fill(
            r#"<text x="{}" y="{}">{}{}</text>"#,
            &[&Coordinate(left.0 - 6.0), &Coordinate(at.0 + 4.0), &text::short(tick), &unit],
        );
    }
    svg.fill(r#"</g><path class="grid" d="{}"/>"#, &[&grid]);
}

/// A vertical grid line and a label below for each tick of the x axis.
pub(super) fn x_axis(svg: &mut Markup, x: &Scale, y: &Scale, ticks: &[(u64, String)]) {
    let ((bottom, top), mut grid) = (y.ends(), String::new());
    svg.raw(r#"<g class="labels x">"#);
    for (tick, label) in ticks {
        let at = x.at(*tick);
        write!(grid, "M{at} {top}V{bottom}").expect("a String takes any text");
        svg.fill(r#"<text x="{}" y="{}">{}</text>"#, &[&at, &Coordinate(bottom.0 + 16.0), label]);
    }
    svg.fill(r#"</g><path class="grid" d="{}"/>"#, &[&grid]);
}

/// The ticks of a scale with short labels.
pub(super) fn short_ticks(scale: &Scale) -> Vec<(u64, String)> {
    scale.ticks().into_iter().map(|tick| (tick, text::short(tick))).collect()
}

/// The name of an axis, at its end.
pub(super) fn axis_names(svg: &mut Markup, x: &Scale, y: &Scale, (below, beside): (&str, &str)) {
    let ((left, right), (bottom, top)) = (x.ends(), y.ends());
    svg.fill(
        r#"<text class="axis-name end" x="{}" y="{}">{}</text><text class="axis-name" x="{}" y="{}">{}</text>"#,
        &[
            &right,
            &Coordinate(bottom.0 + 32.0),
            &below,
            &Coordinate(left.0 - 42.0),
            &Coordinate(top.0 - 10.0),
            &beside,
        ],
    );
}

/// The data of a path that stays at each value until the next x. The last value is held until `end`. Rounded to pixels,
/// which makes the page a fifth smaller.
pub(super) fn steps(points: impl Iterator<Item = (Coordinate, Coordinate)>, end: Coordinate) -> String {
    let mut path = String::new();
    let mut before = None;
    for (x, y) in points {
        match before {
            None => write!(path, "M{x:.0} {y:.0}"),
            Some(same) if same == y => Ok(()),
            Some(_) => write!(path, "H{x:.0}V{y:.0}"),
        }
        .expect("a String takes any text");
        before = Some(y);
    }
    write!(path, "H{end:.0}").expect("a String takes any text");
    path
}
