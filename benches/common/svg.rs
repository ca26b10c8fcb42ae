//! The pictures of the benchmarks.

use std::fmt::Write as _;

/// The colour of numbers and names beside a panel.
pub const GREY: &str = "#555";

/// A picture under construction.
pub struct Svg(String);

impl Svg {
    /// An empty white picture.
    pub fn new(width: u64, height: u64) -> Self {
        let mut svg = Self(String::new());
        svg.line(&format!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">"#
        ));
        svg.line(&format!(r#"<rect width="{width}" height="{height}" fill="white"/>"#));
        svg
    }

    pub fn line(&mut self, element: &str) {
        writeln!(self.0, "{element}").expect("a String takes any text");
    }

    pub fn finish(mut self) -> String {
        self.line("</svg>");
        self.0
    }
}

/// A number beside the left end of a panel.
pub fn scale_label(left: u64, y: u64, text: &str) -> String {
    format!(r#"<text x="{}" y="{}" text-anchor="end" fill="{GREY}">{text}</text>"#, left - 6, y + 4)
}
