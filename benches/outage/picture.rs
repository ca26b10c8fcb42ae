//! The picture: answers per second, stacked by source, above the p99 latency.

use super::callers::Outcome;
use super::over_time;
use super::svg::{self, Svg};
use super::{BIN_MS, Bin, RATE, events};

const LEFT: u64 = 60;
const BIN_WIDTH: u64 = 4;
const TOP: u64 = 50;
const HEIGHT: u64 = 200;
/// The top of the lower panel. Its scale is logarithmic: 0.01 ms to 100 ms, four steps of a factor of 10.
const LATENCY_TOP: u64 = 300;
const STEP: u64 = 25;
const STEPS: [&str; 5] = ["100 ms", "10 ms", "1 ms", "0.1 ms", "0.01 ms"];

fn color(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "#2a7",
        Outcome::OverLimit => "#c33",
        Outcome::Allow => "#9d9",
        Outcome::Deny => "#e99",
        Outcome::Local => "#79b",
        Outcome::Error => "#555",
    }
}

fn x(at_ms: u64) -> u64 {
    LEFT + at_ms / BIN_MS * BIN_WIDTH
}

/// The picture as SVG.
pub fn draw(bins: &[Bin]) -> String {
    let width = LEFT + bins.len() as u64 * BIN_WIDTH + 20;
    let mut svg = Svg::new(width, 450);
    let mut line = |text: String| svg.line(&text);
    line(format!(
        r#"<text x="{LEFT}" y="16">answers per second to {RATE} calls per second, by source</text>"#
    ));
    for event in events() {
        line(over_time::event(x(event.at_ms), (42, 410), event.name));
    }
    for share in 0..=2 {
        let y = TOP + HEIGHT - HEIGHT * share / 2;
        line(svg::scale_label(LEFT, y, &(RATE * share / 2).to_string()));
    }
    for (place, bin) in bins.iter().enumerate() {
        column(place as u64, bin).into_iter().for_each(&mut line);
    }
    latencies(bins).into_iter().for_each(&mut line);
    legend().into_iter().for_each(&mut line);
    svg.finish()
}

/// The column of one bin.
fn column(place: u64, bin: &Bin) -> Vec<String> {
    let x = LEFT + place * BIN_WIDTH;
    let full = RATE * BIN_MS / 1_000;
    let (mut below, mut parts) = (0, Vec::new());
    for outcome in Outcome::ALL {
        let from = TOP + HEIGHT - (HEIGHT * below / full).min(HEIGHT);
        below += bin.answers[outcome as usize];
        let to = TOP + HEIGHT - (HEIGHT * below / full).min(HEIGHT);
        if to < from {
            let (height, color) = (from - to, color(outcome));
            parts.push(format!(
                r#"<rect x="{x}" y="{to}" width="{BIN_WIDTH}" height="{height}" fill="{color}"/>"#
            ));
        }
    }
    parts
}

fn latencies(bins: &[Bin]) -> Vec<String> {
    let mut lines = vec![format!(r#"<text x="{LEFT}" y="{}">p99 latency</text>"#, LATENCY_TOP - 14)];
    for (step, label) in STEPS.iter().enumerate() {
        let y = LATENCY_TOP + step as u64 * STEP;
        let end = LEFT + bins.len() as u64 * BIN_WIDTH;
        lines.push(over_time::grid_line(y, (LEFT, end)));
        lines.push(svg::scale_label(LEFT, y, label));
    }
    let point = |(place, bin): (usize, &Bin)| {
        let tenths = bin.p99().as_secs_f64().max(1e-5) / 0.1;
        let y = LATENCY_TOP as f64 - tenths.log10() * STEP as f64;
        ((LEFT + place as u64 * BIN_WIDTH + BIN_WIDTH / 2) as f64, y)
    };
    lines.push(over_time::curve(bins.iter().enumerate().map(point)));
    for second in (0..=bins.len() as u64 * BIN_MS / 1_000).step_by(2) {
        lines.push(over_time::time_label(x(second * 1_000), 424, &format!("{second} s")));
    }
    lines
}

fn legend() -> Vec<String> {
    let entry = |(place, outcome): (usize, Outcome)| {
        let x = LEFT + place as u64 * 120;
        format!(
            r#"<rect x="{x}" y="433" width="10" height="10" fill="{}"/><text x="{}" y="442">{}</text>"#,
            color(outcome),
            x + 14,
            outcome.name()
        )
    };
    Outcome::ALL.into_iter().enumerate().map(entry).collect()
}
