//! The picture: a panel for each quantity, over the minutes of the run.

use super::over_time;
use super::samples::{Quantity, Sample};
use super::svg::{self, Svg};

const LEFT: u64 = 70;
const WIDTH: u64 = 800;
const TOP: u64 = 40;
/// Height of a panel, and the distance to the next.
const HEIGHT: u64 = 90;
const PANEL: u64 = HEIGHT + 40;

/// The picture as SVG.
pub fn draw(samples: &[Sample]) -> String {
    let end = samples.last().map_or(1, |sample| sample.second.max(1));
    let bottom = TOP + PANEL * Quantity::ALL.len() as u64;
    let mut svg = Svg::new(LEFT + WIDTH + 20, bottom + 20);
    let warm_up = LEFT + WIDTH / 4;
    svg.line(&over_time::event(warm_up, (TOP - 20, bottom - 30), "end of the warm-up"));
    for (place, quantity) in Quantity::ALL.into_iter().enumerate() {
        panel(&mut svg, TOP + PANEL * place as u64, quantity, (samples, end));
    }
    let minutes = end / 60 + 1;
    for minute in (0..=minutes).step_by(usize::try_from(minutes / 10).unwrap_or(1).max(1)) {
        if minute * 60 <= end + 30 {
            svg.line(&over_time::time_label(
                LEFT + minute * 60 * WIDTH / end,
                bottom,
                &format!("{minute} min"),
            ));
        }
    }
    svg.finish()
}

fn panel(svg: &mut Svg, top: u64, quantity: Quantity, (samples, end): (&[Sample], u64)) {
    let most = samples.iter().map(|sample| quantity.of(sample)).max().unwrap_or_default().max(1);
    let trend = quantity.trend(samples);
    svg.line(&format!(r#"<text x="{LEFT}" y="{}">{}: {trend}</text>"#, top - 8, quantity.name()));
    for share in 0..=2 {
        let y = top + HEIGHT - HEIGHT * share / 2;
        svg.line(&over_time::grid_line(y, (LEFT, LEFT + WIDTH)));
        svg.line(&svg::scale_label(LEFT, y, &(most * share / 2).to_string()));
    }
    let point = |sample: &Sample| {
        let x = LEFT as f64 + (sample.second * WIDTH) as f64 / end as f64;
        let height = (quantity.of(sample) * HEIGHT) as f64 / most as f64;
        (x, (top + HEIGHT) as f64 - height)
    };
    svg.line(&over_time::curve(samples.iter().map(point)));
}
