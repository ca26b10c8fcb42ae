//! Pictures with the time from left to right: grid lines, events, curves.

use std::fmt::Write as _;

use super::svg::GREY;

/// A dashed line from the top to the bottom, with its name above.
pub fn event(x: u64, (top, bottom): (u64, u64), name: &str) -> String {
    let name_at = (x + 2, top - 4);
    format!(
        r##"<path d="M{x} {top}V{bottom}" stroke="#333" stroke-dasharray="2 3"/><text x="{}" y="{}">{name}</text>"##,
        name_at.0, name_at.1
    )
}

pub fn grid_line(y: u64, (left, right): (u64, u64)) -> String {
    format!(r##"<path d="M{left} {y}H{right}" stroke="#ddd"/>"##)
}

pub fn time_label(x: u64, y: u64, text: &str) -> String {
    format!(r#"<text x="{x}" y="{y}" text-anchor="middle" fill="{GREY}">{text}</text>"#)
}

/// A line through all points.
pub fn curve(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (place, (x, y)) in points.enumerate() {
        let command = if place == 0 { 'M' } else { 'L' };
        write!(path, "{command}{x:.0} {y:.0}").expect("a String takes any text");
    }
    format!(r##"<path d="{path}" fill="none" stroke="#337" stroke-width="1.5"/>"##)
}
