//! The tables: all measurements in turn, several rounds of them, and of each figure the least, the median and the most.

use std::fmt;
use std::time::Duration;

use crate::figures::{Figures, Spread};
use crate::load::Pace;
use crate::picture::{Bar, Curve, Point};
use crate::questions::{self, Question, Row};
use crate::scenario::{Measured, Scenario};
use crate::servers::{Programs, Server};

/// How the rows are measured.
pub struct Plan<'a> {
    pub programs: Programs<'a>,
    /// The time of one measurement.
    pub duration: Duration,
    pub rounds: usize,
    /// Only rows whose title, or question, contains this.
    pub only: Option<&'a str>,
}

impl Plan<'_> {
    fn figures(&self, row: &Row) -> Figures {
        Figures::new(&row.scenario.run(self.programs, self.duration))
    }
}

/// A row, with its figures in each round.
struct Answered {
    row: Row,
    figures: Vec<Figures>,
}

impl Answered {
    fn median(&self, figure: fn(&Figures) -> Option<f64>) -> Option<f64> {
        Spread::new(&self.figures, figure).median()
    }

    /// The CPU of a call: of the service and of Redis together.
    fn total(&self) -> Option<f64> {
        self.median(|figures| Some(figures.service_us? + figures.redis_us.unwrap_or_default()))
    }

    /// The row of the floor with the same store.
    fn floor<'r>(&self, rows: &'r [Self]) -> Option<&'r Self> {
        let is_floor =
            |other: &Scenario| other.server == Server::Floor && other.store == self.row.scenario.store;
        rows.iter().find(|other| is_floor(&other.row.scenario))
    }

    /// The CPU of a call, and its rate if this service cannot keep the pace.
    fn cost(&self) -> String {
        let us = |figure| self.median(figure).unwrap_or_default();
        let mut cost = format!("{:.1}", us(|figures| figures.service_us));
        if self.median(|figures| figures.redis_us).is_some() {
            cost += &format!(" + {:.1}", us(|figures| figures.redis_us));
        }
        let rate = us(|figures| Some(figures.per_second));
        match self.row.scenario.pace {
            Pace::Open { per_second } if rate < per_second as f64 * 0.95 => {
                format!("{cost} (at {rate:.0}/s)")
            }
            _ => cost,
        }
    }
}

/// A question, with its answers.
pub struct Answers {
    question: Question,
    rows: Vec<Answered>,
}

/// Measures all rows; in each round each row once, every other round in the opposite order.
pub fn measure(plan: &Plan<'_>, questions: Vec<Question>) -> Vec<Answers> {
    let wanted = questions.into_iter().filter_map(|question| wanted(question, plan.only));
    let mut all: Vec<_> = wanted.collect();
    for round in 1..=plan.rounds {
        eprintln!("round {round} of {}", plan.rounds);
        let mut rows: Vec<_> = all.iter_mut().flat_map(|answers| &mut answers.rows).collect();
        if round % 2 == 0 {
            rows.reverse();
        }
        for answered in rows {
            answered.figures.push(plan.figures(&answered.row));
        }
    }
    all
}

fn wanted(mut question: Question, only: Option<&str>) -> Option<Answers> {
    let rows = std::mem::take(&mut question.rows).into_iter();
    let is_wanted =
        |row: &Row| only.is_none_or(|only| question.text.contains(only) || row.title.contains(only));
    let rows = rows.filter(is_wanted);
    let rows: Vec<_> = rows.map(|row| Answered { row, figures: Vec::new() }).collect();
    (!rows.is_empty()).then_some(Answers { question, rows })
}

pub fn print(all: &[Answers]) {
    let (shapes, others): (Vec<_>, Vec<_>) = all.iter().partition(|answers| answers.question.shape.is_some());
    if !shapes.is_empty() {
        print_summary(&shapes);
        println!("\nEach row\n");
        print_head();
        for answered in shapes.iter().flat_map(|answers| &answers.rows) {
            print_row(&answered.row, &answered.figures);
        }
        print_generators(&shapes);
    }
    for Answers { question, rows } in others {
        println!("\n{}\n", question.text);
        print_head();
        for Answered { row, figures } in rows {
            print_row(row, figures);
        }
        let generator = Generator::new(rows.iter().flat_map(|answered| &answered.figures));
        println!("\nThe generator takes at most {:.1} µs of CPU per call.", generator.us);
    }
}

/// A row for each shape, a column for each service and store.
fn print_summary(shapes: &[&Answers]) {
    let mut columns: Vec<&str> = Vec::new();
    for answered in shapes.iter().flat_map(|answers| &answers.rows) {
        if !columns.contains(&answered.row.title.as_str()) {
            columns.push(&answered.row.title);
        }
    }
    let print = |cell: fn(&Answered, &[Answered]) -> Option<String>| {
        println!("| calls | {} |", columns.join(" | "));
        println!("|---|{}", "--:|".repeat(columns.len()));
        for Answers { question, rows } in shapes {
            let of_column = |column: &&str| rows.iter().find(|answered| answered.row.title == **column);
            let cells =
                columns.iter().map(|column| of_column(column).and_then(|answered| cell(answered, rows)));
            let cells: Vec<_> = cells.map(Option::unwrap_or_default).collect();
            println!("| {} | {} |", question.text, cells.join(" | "));
        }
    };
    println!("\nCPU of a call in µs, service + Redis\n");
    print(|answered, _| Some(answered.cost()));
    println!("\nCPU of a call, service and Redis together, in times of the floor with the same store\n");
    print(|answered, rows| Some(format!("{:.2}", answered.total()? / answered.floor(rows)?.total()?)));
}

/// What a call costs at saturation, by the medians of the rows with 256 calls in flight.
pub fn bars(all: &[Answers]) -> Vec<Bar> {
    let answers = all.iter().find(|answers| answers.question.text == questions::SATURATION);
    let rows = answers.map_or(&[][..], |answers| &answers.rows);
    let bar = |answered: &Answered| Bar {
        title: answered.row.title.replace('`', ""),
        service_us: answered.median(|figures| figures.service_us).unwrap_or_default(),
        redis_us: answered.median(|figures| figures.redis_us).unwrap_or_default(),
    };
    let is_shown =
        |answered: &&Answered| matches!(answered.row.scenario.pace, Pace::Closed { in_flight: 256 });
    rows.iter().filter(is_shown).map(bar).collect()
}

/// What a call costs one instance at each pace, by the medians: with counters in memory, and with `gcra` in Redis.
pub fn curves(all: &[Answers]) -> Vec<Curve> {
    let curve = |name, class, title, figure: fn(&Figures) -> Option<f64>| {
        let point = |answers: &Answers| {
            let shape = answers.question.shape.filter(|shape| shape.instances == 1)?;
            let Pace::Open { per_second } = shape.pace else { return None };
            let answered = answers.rows.iter().find(|answered| answered.row.title == title)?;
            Some(Point { per_second, us: answered.median(figure)? })
        };
        Curve { name, class, points: all.iter().filter_map(point).collect() }
    };
    vec![
        curve("service, counters in Redis", "service", "Redis, `gcra`", |figures| figures.service_us),
        curve("Redis", "redis", "Redis, `gcra`", |figures| figures.redis_us),
        curve("service, counters in memory", "memory", "memory", |figures| figures.service_us),
    ]
}

/// Prints a table with one row, for a server that runs already.
pub fn print_one(title: &str, scenario: Scenario, measured: &Measured) {
    let row = Row { title: title.to_owned(), scenario };
    let figures = [Figures::new(measured)];
    print_head();
    print_row(&row, &figures);
    println!("\n{GENERATOR_HEAD}\n| {title} | {} |", Generator::new(figures.iter()));
}

fn print_head() {
    println!(
        "| what | connections | in flight | decisions/s | service µs | Redis µs | service switches | Redis switches \
         | p50 µs | p99 µs | denied | failed |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|");
}

fn print_row(row: &Row, figures: &[Figures]) {
    let spread = |figure| Spread::new(figures, figure);
    let sum = |count: fn(&Figures) -> u64| figures.iter().map(count).sum::<u64>();
    let Scenario { instances, connections, pace, .. } = row.scenario;
    let instances = if instances > 1 { format!("{instances} instances, ") } else { String::new() };
    println!(
        "| {instances}{} | {connections} | {pace} | {:.0} | {:.2} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {} |",
        row.title,
        spread(|figures| Some(figures.per_second)),
        spread(|figures| figures.service_us),
        spread(|figures| figures.redis_us),
        spread(|figures| figures.service_switches),
        spread(|figures| figures.redis_switches),
        spread(|figures| figures.p50_us),
        spread(|figures| figures.p99_us),
        sum(|figures| figures.denied),
        sum(|figures| figures.failed),
    );
}

const GENERATOR_HEAD: &str =
    "| calls | generator µs | late p50 µs | late p99 µs | together % |\n|---|--:|--:|--:|--:|";

/// The generator's own CPU for a call, and how it kept its schedule: the worst of several measurements.
struct Generator {
    us: f64,
    late_p50_us: f64,
    late_p99_us: f64,
    bunched_percent: f64,
}

impl Generator {
    fn new<'a>(figures: impl Iterator<Item = &'a Figures> + Clone) -> Self {
        let most =
            |figure: fn(&Figures) -> Option<f64>| figures.clone().filter_map(figure).fold(0.0, f64::max);
        Self {
            us: most(|figures| figures.generator_us),
            late_p50_us: most(|figures| figures.late_p50_us),
            late_p99_us: most(|figures| figures.late_p99_us),
            bunched_percent: most(|figures| figures.bunched_percent),
        }
    }
}

impl fmt::Display for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { us, late_p50_us, late_p99_us, bunched_percent } = self;
        write!(f, "{us:.1} | {late_p50_us:.0} | {late_p99_us:.0} | {bunched_percent:.1}")
    }
}

/// The generator at each shape, in the worst measurement. A closed loop is never late.
fn print_generators(shapes: &[&Answers]) {
    println!("\nThe generator: its own CPU for a call, and how late and how bunched calls start\n");
    println!("{GENERATOR_HEAD}");
    for Answers { question, rows } in shapes {
        let generator = Generator::new(rows.iter().flat_map(|answered| &answered.figures));
        println!("| {} | {generator} |", question.text);
    }
}
