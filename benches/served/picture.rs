//! The pictures: what a call costs at a pace, a curve for each process, and at saturation, a bar for each row.

use crate::svg::{self, Svg};

/// Colours for light and dark pages. `text` and the paper override the colours of `svg`.
const STYLE: &str = "<style>
  text, text.name { fill: #333 } text.service { fill: #337 } text.redis { fill: #b22 } text.memory { fill: #287 }
  rect.service { fill: #337 } rect.redis { fill: #c33 } .grid { stroke: #ddd; stroke-width: 1 }
  path { fill: none; stroke-width: 2 } path.service { stroke: #337 } path.redis { stroke: #c33 } path.memory { stroke: #2a8a7a }
  circle.service { fill: #337 } circle.redis { fill: #c33 } circle.memory { fill: #2a8a7a }
  @media (prefers-color-scheme: dark) {
    svg > rect:first-of-type { fill: #0d1117 } text, text.name { fill: #c9d1d9 } .grid { stroke: #30363d }
    text.service { fill: #9db4ff } text.redis { fill: #ff8a80 } text.memory { fill: #5fd3bf }
    rect.service, circle.service { fill: #7d98f5 } rect.redis, circle.redis { fill: #ff6b60 } circle.memory { fill: #4fc3af }
    path.service { stroke: #7d98f5 } path.redis { stroke: #ff6b60 } path.memory { stroke: #4fc3af }
  }
</style>";

/// A row of the picture of saturation: CPU of one call in microseconds.
#[derive(Clone, Debug)]
pub struct Bar {
    pub title: String,
    pub service_us: f64,
    pub redis_us: f64,
}

const BAR: u64 = 14;
const BAR_STEP: u64 = 22;
const BARS_LEFT: u64 = 330;
const BARS_WIDTH: u64 = 420;
const BARS_TOP: u64 = 40;

/// The picture of saturation, if it has bars.
pub fn draw_cost(bars: &[Bar]) -> Option<String> {
    if bars.is_empty() {
        return None;
    }
    let most = bars.iter().map(|bar| bar.service_us + bar.redis_us).fold(1.0, f64::max);
    let mut svg = Svg::new(BARS_LEFT + BARS_WIDTH + 70, BARS_TOP + BAR_STEP * bars.len() as u64 + 10);
    svg.line(STYLE);
    let names = [("service", "CPU of the service, µs"), ("redis", "CPU of Redis, µs")];
    for (place, (class, text)) in names.into_iter().enumerate() {
        let x = BARS_LEFT + 190 * place as u64;
        svg.line(&format!(r#"<rect x="{x}" y="12" width="{BAR}" height="{BAR}" class="{class}"/>"#));
        svg.line(&format!(r#"<text x="{}" y="24">{text}</text>"#, x + BAR + 6));
    }
    for (place, bar) in bars.iter().enumerate() {
        let y = BARS_TOP + BAR_STEP * place as u64;
        let width = |us: f64| us * BARS_WIDTH as f64 / most;
        let (service, redis) = (width(bar.service_us), width(bar.redis_us));
        let middle = y + BAR / 2;
        svg.line(&svg::scale_label(BARS_LEFT, middle, &bar.title));
        svg.line(&format!(
            r#"<rect x="{BARS_LEFT}" y="{y}" width="{service:.0}" height="{BAR}" class="service"/>"#
        ));
        let end = BARS_LEFT as f64 + service;
        svg.line(&format!(r#"<rect x="{end:.0}" y="{y}" width="{redis:.0}" height="{BAR}" class="redis"/>"#));
        let total = bar.service_us + bar.redis_us;
        svg.line(&format!(r#"<text x="{:.0}" y="{}">{total:.1}</text>"#, end + redis + 5.0, middle + 4));
    }
    Some(svg.finish())
}

/// What a call costs one process, in microseconds of CPU, at each pace.
#[derive(Clone, Debug)]
pub struct Curve {
    pub name: &'static str,
    /// Its colour in the style.
    pub class: &'static str,
    pub points: Vec<Point>,
}

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub per_second: u64,
    pub us: f64,
}

const LEFT: u64 = 60;
const WIDTH: u64 = 700;
const TOP: u64 = 60;
const HEIGHT: u64 = 260;

/// The picture of ordinary days, if every curve has points. Calls per second grow by factors to the right.
pub fn draw_pace(curves: &[Curve]) -> Option<String> {
    let points = || curves.iter().flat_map(|curve| &curve.points);
    let least = points().map(|point| point.per_second).min()?;
    let most = points().map(|point| point.per_second).max().filter(|most| *most > least)?;
    if curves.iter().any(|curve| curve.points.len() < 2) {
        return None;
    }
    let step = scale_step(points().map(|point| point.us).fold(1.0, f64::max));
    let steps = (points().map(|point| point.us).fold(1.0, f64::max) / step).ceil();
    let across = (most as f64 / least as f64).ln();
    let x = |per_second: u64| LEFT as f64 + WIDTH as f64 * (per_second as f64 / least as f64).ln() / across;
    let y = |us: f64| (TOP + HEIGHT) as f64 - HEIGHT as f64 * us / (step * steps);
    let mut svg = Svg::new(LEFT + WIDTH + 40, TOP + HEIGHT + 60);
    svg.line(STYLE);
    for place in 0..=steps as u64 {
        let us = step * place as f64;
        svg.line(&format!(r#"<path d="M{LEFT} {:.0}H{}" class="grid"/>"#, y(us), LEFT + WIDTH));
        svg.line(&svg::scale_label(LEFT, y(us) as u64, &format!("{us:.0}")));
    }
    for point in curves.iter().take(1).flat_map(|curve| &curve.points) {
        let (x, below) = (x(point.per_second), TOP + HEIGHT + 20);
        svg.line(&format!(
            r#"<text x="{x:.0}" y="{below}" text-anchor="middle">{}</text>"#,
            point.per_second
        ));
    }
    let middle = LEFT + WIDTH / 2;
    svg.line(&format!(
        r#"<text x="{middle}" y="{}" text-anchor="middle">calls per second (by factors)</text>"#,
        TOP + HEIGHT + 45
    ));
    svg.line(r#"<text x="10" y="20" class="name">CPU of a call, µs</text>"#);
    for (place, curve) in curves.iter().enumerate() {
        // The numbers of the lowest curve stand below it, so that they do not cover those of the curve above.
        let is_lowest = |point: &Point| {
            points().filter(|other| other.per_second == point.per_second).all(|other| other.us >= point.us)
        };
        let place_of = |point: &Point| (x(point.per_second), y(point.us), is_lowest(point));
        draw_curve(&mut svg, curve, 150 + 215 * place as u64, place_of);
    }
    Some(svg.finish())
}

/// A curve with its points, and its name at this distance from the left.
fn draw_curve(svg: &mut Svg, curve: &Curve, name_at: u64, place: impl Fn(&Point) -> (f64, f64, bool)) {
    let class = curve.class;
    let path: Vec<_> = curve.points.iter().map(&place).map(|(x, y, _)| format!("{x:.0} {y:.0}")).collect();
    svg.line(&format!(r#"<path d="M{}" class="{class}"/>"#, path.join("L")));
    for point in &curve.points {
        let (x, y, is_lowest) = place(point);
        svg.line(&format!(r#"<circle cx="{x:.0}" cy="{y:.0}" r="3" class="{class}"/>"#));
        svg.line(&format!(
            r#"<text x="{x:.0}" y="{:.0}" text-anchor="middle" font-size="10" class="{class}">{:.0}</text>"#,
            if is_lowest { y + 15.0 } else { y - 7.0 },
            point.us
        ));
    }
    svg.line(&format!(r#"<path d="M{name_at} 16h20" class="{class}"/>"#));
    svg.line(&format!(r#"<text x="{}" y="20" class="{class}">{}</text>"#, name_at + 26, curve.name));
}

/// 1, 2 or 5 times a power of ten, so that a scale has four to ten steps.
fn scale_step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 4.0).log10().floor());
    let times = [5.0, 2.0, 1.0].into_iter().find(|times| times * power <= most / 4.0);
    times.unwrap_or(1.0) * power
}
