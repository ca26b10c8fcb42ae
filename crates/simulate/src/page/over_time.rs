//! Pictures over time: requests over a limit, rule sets side by side, algorithms side by side.

use super::chart::{self, Frame};
use super::data::Series;
use super::scale::{Coordinate, Scale};
use super::text;
use crate::markup::Markup;

const WIDTH: u32 = 1_060;
const HEIGHT: u32 = 200;
const X: (f64, f64) = (50.0, 1_030.0);
const Y: (f64, f64) = (165.0, 24.0);

/// Candidates for the distance of two labels, in seconds.
const TIME_STEPS: [u64; 14] = [
    60, 300, 900, 1_800, 3_600, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800, 1_209_600, 2_592_000,
    7_776_000,
];

/// Requests over the judged limit as an area, over the limit in force as a line: one request can be over both, so the
/// two are not stacked.
pub(super) fn rule_picture(place: usize, rule: &str, columns: &Series) -> Markup {
    let (over, in_force) = (&columns.counts[1], columns.counts.get(2));
    let most = over.iter().chain(in_force.into_iter().flatten()).max().copied().unwrap_or(0);
    let title = format!("Requests over the limit of {rule} per {}", text::period(columns.step));
    let (mut svg, x, y) = start("time", (place, &title), columns, most);
    area(&mut svg, "over", columns, (over, &vec![0; over.len()]), (&x, &y));
    if let Some(in_force) = in_force {
        let line = chart::steps(points(columns, in_force, &x, &y), Coordinate(X.1));
        svg.fill(r#"<path class="line old" d="{}"/>"#, &[&line]);
    }
    svg.raw("</svg>");
    svg
}

/// Denied requests: by both rule sets, above them by the new rules only, above them by the rules in force only.
pub(super) fn comparison_picture(columns: &Series) -> Markup {
    let sums = |lists: &[Vec<u64>], column: usize| lists.iter().map(|list| list[column]).sum::<u64>();
    let stacked =
        |lists: &[Vec<u64>]| (0..columns.count()).map(|column| sums(lists, column)).collect::<Vec<u64>>();
    let tops: Vec<Vec<u64>> =
        (0..=columns.counts.len()).map(|lists| stacked(&columns.counts[..lists])).collect();
    let most = tops.last().into_iter().flatten().max().copied().unwrap_or(0);
    let title = format!("Denied requests per {}, by rule set", text::period(columns.step));
    let (mut svg, x, y) = start("both", (0, &title), columns, most);
    for (class, pair) in ["both", "over", "old"].into_iter().zip(tops.windows(2)) {
        area(&mut svg, class, columns, (&pair[1], &pair[0]), (&x, &y));
    }
    svg.raw("</svg>");
    svg
}

/// A line for each list, each summed up from the start.
pub(super) fn cumulative_picture(place: usize, title: &str, columns: &Series) -> Markup {
    let summed = |list: &Vec<u64>| {
        let sums = list.iter().scan(0_u64, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        sums.collect::<Vec<u64>>()
    };
    let lists: Vec<Vec<u64>> = columns.counts.iter().map(summed).collect();
    let most = lists.iter().flatten().max().copied().unwrap_or(0);
    let (mut svg, x, y) = start("sums", (place, title), columns, most);
    for (place, list) in lists.iter().enumerate() {
        let line = chart::steps(points(columns, list, &x, &y), Coordinate(X.1));
        svg.fill(r#"<path class="line a{}" d="{}"/>"#, &[&(place % 6), &line]);
    }
    svg.raw("</svg>");
    svg
}

/// The frame, the axes and the scales.
fn start(
    kind: &'static str,
    (rule, title): (usize, &str),
    columns: &Series,
    most: u64,
) -> (Markup, Scale, Scale) {
    let (x, y) = (Scale::linear((columns.start, columns.end()), X), Scale::linear((0, most), Y));
    let sums: Vec<String> = columns.names.iter().zip(&columns.counts).map(sum_in_words).collect();
    let description = format!(
        "From {} to {} UTC. {}.",
        text::time(columns.start * 1_000_000),
        text::time(columns.end() * 1_000_000),
        sums.join("; ")
    );
    let frame = Frame { kind, rule, title, description: &description, width: WIDTH, height: HEIGHT };
    let mut svg = chart::begin(&frame, &x, &y);
    chart::y_axis(&mut svg, &x, &y, "");
    chart::x_axis(&mut svg, &x, &y, &time_ticks(columns.start, columns.end()));
    (svg, x, y)
}

fn sum_in_words((name, list): (&&'static str, &Vec<u64>)) -> String {
    let most = list.iter().max().copied().unwrap_or(0);
    format!(
        "{name}: {} in all, at most {} in one column",
        text::grouped(list.iter().sum()),
        text::grouped(most)
    )
}

fn points(
    columns: &Series,
    list: &[u64],
    x: &Scale,
    y: &Scale,
) -> impl Iterator<Item = (Coordinate, Coordinate)> {
    list.iter()
        .enumerate()
        .map(|(column, count)| (x.at(columns.start + columns.step * column as u64), y.at(*count)))
}

/// The area between two lists.
fn area(
    svg: &mut Markup,
    class: &'static str,
    columns: &Series,
    lists: (&[u64], &[u64]),
    (x, y): (&Scale, &Scale),
) {
    let (above, below) = lists;
    if above.iter().zip(below).all(|(above, below)| above == below) {
        return;
    }
    let top = chart::steps(points(columns, above, x, y), Coordinate(X.1));
    // Back along the lower list: its columns from right to left, each from its right edge.
    let right_edge = |column: usize| x.at(columns.start + columns.step * (column as u64 + 1));
    let edges = below.iter().enumerate().rev().map(|(column, count)| (right_edge(column), y.at(*count)));
    let bottom = chart::steps(edges, Coordinate(X.0));
    svg.fill(r#"<path class="area {}" d="{}L{}Z"/>"#, &[&class, &top, &bottom.trim_start_matches('M')]);
}

/// Labels at round times of the day, at most about eight.
fn time_ticks(start: u64, end: u64) -> Vec<(u64, String)> {
    let fits = |step: &&u64| (end - start) / **step <= 8;
    let step = *TIME_STEPS.iter().find(fits).unwrap_or(&TIME_STEPS[TIME_STEPS.len() - 1]);
    let label = |at: u64| {
        let time = text::time(at * 1_000_000);
        // `2026-11-21 14:05:00`: the day at midnight, else hours and minutes.
        if at.is_multiple_of(86_400) { time[5..10].to_owned() } else { time[11..16].to_owned() }
    };
    let first = start.next_multiple_of(step);
    (0..9).map(|tick| first + tick * step).take_while(|at| *at <= end).map(|at| (at, label(at))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(counts: Vec<Vec<u64>>) -> Series {
        Series { start: 1_700_000_000, step: 600, names: vec!["a", "b", "c"], counts }
    }

    #[test]
    fn labels_are_round_times() {
        let day = time_ticks(1_700_000_000, 1_700_000_000 + 86_400);
        let labels: Vec<&str> = day.iter().map(|(_, label)| label.as_str()).collect();
        assert_eq!(labels, ["11-15", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]);
        assert!(time_ticks(0, 60).len() <= 9 && time_ticks(0, 10_000_000_000).len() <= 9);
    }

    #[test]
    fn an_area_goes_there_and_back() {
        let columns = columns(vec![vec![4, 0], vec![2, 2], vec![0, 4]]);
        let svg = comparison_picture(&columns).into_text();
        // Half of the width is one column, and the whole height is 6. The stack of the first column is 4, 2, 0, that of
        // the second 0, 2, 4.
        for path in [
            r#"<path class="area both" d="M50 71H540V165H1030L1030 165H50Z"/>"#,
            r#"<path class="area over" d="M50 24H540V118H1030L1030 165H540V71H50Z"/>"#,
            r#"<path class="area old" d="M50 24H1030L1030 118H540V24H50Z"/>"#,
        ] {
            assert!(svg.contains(path), "{path} in {svg}");
        }
    }

    #[test]
    fn a_rule_without_a_limit_in_force_has_one_area() {
        let svg = rule_picture(3, "a <rule>", &columns(vec![vec![9, 9], vec![0, 5]])).into_text();
        assert!(svg.contains(r#"<path class="area over""#) && !svg.contains("line old"), "{svg}");
        assert!(svg.contains("a &lt;rule&gt;"), "{svg}");
    }
}
