//! The road of a call to Redis and back as four lanes: who works, where a call can wait, and what can refuse it. The
//! bounds in the picture are those of the default settings.

use super::markup::Markup;
use ratelimitd::settings::Settings;

use super::compare_or_update;

const LANES: [(&str, &str); 4] = [
    ("connection task", "one per connection, on its worker"),
    ("call task", "one per call that waits"),
    ("batcher", "two per worker, one queue"),
    ("Redis", "one thread for all instances"),
];
const LANE_HEIGHT: u32 = 112;
const TOP: u32 = 34;
const WIDTH: u32 = 1240;

enum Kind {
    Work,
    /// A place where a call waits, with its bound.
    Wait,
}

/// A box in a lane: a title and two lines below it.
struct Step {
    lane: u32,
    x: u32,
    width: u32,
    kind: Kind,
    title: &'static str,
    lines: [String; 2],
    /// What refuses a call here.
    refusal: Option<&'static str>,
}

fn text(lines: [&str; 2]) -> [String; 2] {
    lines.map(str::to_owned)
}

fn steps() -> Vec<Step> {
    let redis = Settings::default().store.redis;
    let (timeout_ms, batch) = (redis.timeout.as_millis(), redis.max_batch);
    let in_store = u64::from(redis.connections) * batch as u64;
    let work = |lane, x, width, title, lines| Step {
        lane,
        x,
        width,
        kind: Kind::Work,
        title,
        lines: text(lines),
        refusal: None,
    };
    let wait = |lane, x, width, title, lines, refusal| Step {
        lane,
        x,
        width,
        kind: Kind::Wait,
        title,
        lines,
        refusal: Some(refusal),
    };
    vec![
        work(0, 150, 130, "frames", ["HEADERS and DATA", "of one call"]),
        wait(
            0,
            310,
            190,
            "1 held call",
            [format!("while {in_store} are in the store,"), format!("at most {} ms", 3 * timeout_ms)],
            "over 10,000 open calls",
        ),
        work(0, 530, 160, "check, plan, queue", ["request, rules, keys,", "charges: one poll"]),
        wait(
            2,
            530,
            190,
            "2 queue",
            [format!("at most {} requests,", redis.max_queue), format!("at most {timeout_ms} ms")],
            "breaker open, overloaded",
        ),
        wait(
            2,
            750,
            170,
            "3 connection",
            ["requests stay in the queue,".to_owned(), format!("at most {timeout_ms} ms")],
            "no connection",
        ),
        wait(
            3,
            800,
            220,
            "4 call in flight",
            ["one script for all that waits,".to_owned(), format!("at most {batch} counters")],
            "deadline of the call",
        ),
        work(2, 970, 110, "reply", ["a slice of it", "for each call"]),
        work(1, 970, 150, "merge, answer", ["reports, one decision,", "count, protobuf"]),
        work(0, 1070, 130, "frames", ["answers that are ready", "in one write"]),
    ]
}

/// The arrows of a call, as paths between the boxes.
const ARROWS: [&str; 9] = [
    "M280 78H306",
    "M500 78H526",
    "M620 112V262",
    "M720 304H746",
    "M870 336V374",
    "M1000 374V336",
    "M1030 262V224",
    "M1100 150V112",
    "M210 112V134H580V112",
];

fn top(step: &Step) -> u32 {
    TOP + step.lane * LANE_HEIGHT + 10
}

fn draw() -> String {
    let height = TOP + 4 * LANE_HEIGHT + 12;
    let mut svg = Markup::default();
    svg.fill(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" font-size=\"12\">\n",
        &[&WIDTH, &height],
    );
    svg.raw(include_str!("road.svg.head"));
    for (lane, (name, about)) in (0..).zip(LANES) {
        let y = TOP + lane * LANE_HEIGHT;
        svg.fill(
            "<rect class=\"lane\" x=\"0\" y=\"{}\" width=\"{}\" height=\"{}\"/>",
            &[&y, &WIDTH, &(LANE_HEIGHT - 6)],
        );
        svg.fill("<text class=\"name\" x=\"10\" y=\"{}\">{}</text>", &[&(y + 46), &name]);
        for (line, words) in (0..).zip(about.split(", ")) {
            svg.fill("<text class=\"small\" x=\"10\" y=\"{}\">{}</text>", &[&(y + 64 + 14 * line), &words]);
        }
        svg.raw("\n");
    }
    for arrow in ARROWS {
        svg.fill("<path class=\"arrow\" d=\"{}\"/>\n", &[&arrow]);
    }
    for step in &steps() {
        let class = match step.kind {
            Kind::Work => "work",
            Kind::Wait => "wait",
        };
        draw_step(&mut svg, step, class);
    }
    svg.raw("</svg>\n");
    svg.into_text()
}

fn draw_step(svg: &mut Markup, step: &Step, class: &'static str) {
    let (y, middle) = (top(step), step.x + step.width / 2);
    svg.fill(
        "<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"62\" rx=\"6\"/>",
        &[&class, &step.x, &y, &step.width],
    );
    svg.fill("<text class=\"title\" x=\"{}\" y=\"{}\">{}</text>", &[&middle, &(y + 19), &step.title]);
    for (line, words) in (0..).zip(&step.lines) {
        svg.fill(
            "<text class=\"line\" x=\"{}\" y=\"{}\">{}</text>",
            &[&middle, &(y + 37 + 15 * line), words],
        );
    }
    if let Some(refusal) = step.refusal {
        let x = step.x + 8;
        svg.fill("<path class=\"no\" d=\"M{} {}v16\"/>", &[&x, &(y + 62)]);
        svg.fill("<text class=\"refusal\" x=\"{}\" y=\"{}\">no: {}</text>", &[&(x + 8), &(y + 79), &refusal]);
    }
    svg.raw("\n");
}

#[test]
fn the_picture_of_the_road_has_the_bounds_of_the_default_settings() {
    compare_or_update("docs/pictures/road.svg", &draw());
}
