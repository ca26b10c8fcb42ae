//! The picture: what a call costs the service and Redis, a bar for each row.

use crate::svg::{self, Svg};

const LEFT: u64 = 330;
const WIDTH: u64 = 420;
const TOP: u64 = 40;
const BAR: u64 = 14;
const STEP: u64 = 22;
const SERVICE: &str = "#337";
const REDIS: &str = "#c33";

/// A row of the picture: CPU of one call in microseconds.
#[derive(Clone, Debug)]
pub struct Bar {
    pub title: String,
    pub service_us: f64,
    pub redis_us: f64,
}

/// The picture as SVG.
pub fn draw(bars: &[Bar]) -> String {
    let most = bars.iter().map(|bar| bar.service_us + bar.redis_us).fold(1.0, f64::max);
    let mut svg = Svg::new(LEFT + WIDTH + 70, TOP + STEP * bars.len() as u64 + 10);
    for (place, (colour, text)) in
        [(SERVICE, "CPU of the service, µs"), (REDIS, "CPU of Redis, µs")].into_iter().enumerate()
    {
        let x = LEFT + 190 * place as u64;
        svg.line(&format!(r#"<rect x="{x}" y="12" width="{BAR}" height="{BAR}" fill="{colour}"/>"#));
        svg.line(&format!(r#"<text x="{}" y="24">{text}</text>"#, x + BAR + 6));
    }
    for (place, bar) in bars.iter().enumerate() {
        let y = TOP + STEP * place as u64;
        let width = |us: f64| us * WIDTH as f64 / most;
        let (service, redis) = (width(bar.service_us), width(bar.redis_us));
        let middle = y + BAR / 2;
        svg.line(&svg::scale_label(LEFT, middle, &bar.title));
        svg.line(&format!(
            r#"<rect x="{LEFT}" y="{y}" width="{service:.0}" height="{BAR}" fill="{SERVICE}"/>"#
        ));
        let end = LEFT as f64 + service;
        svg.line(&format!(
            r#"<rect x="{end:.0}" y="{y}" width="{redis:.0}" height="{BAR}" fill="{REDIS}"/>"#
        ));
        let total = bar.service_us + bar.redis_us;
        svg.line(&format!(r#"<text x="{:.0}" y="{}">{total:.1}</text>"#, end + redis + 5.0, middle + 4));
    }
    svg.finish()
}
