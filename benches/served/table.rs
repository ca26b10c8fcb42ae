//! The tables: all measurements in turn, several rounds of them, and of each figure the least, the median and the most.

use std::fmt;
use std::time::Duration;

use crate::picture::Bar;
use crate::questions::{self, Measurement, Question, Row};
use crate::reference;
use crate::scenario::{Measured, Program};

/// The figures of one measurement; a row has some of them.
#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    per_second: f64,
    service_us: Option<f64>,
    redis_us: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    denied: u64,
    failed: u64,
}

impl Figures {
    fn of(measured: &Measured) -> Self {
        let tally = &measured.tally;
        let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / tally.answered.max(1) as f64;
        let quantile = |q| Some(tally.latency.value_at_quantile(q) as f64);
        Self {
            per_second: tally.answered as f64 / tally.elapsed.as_secs_f64(),
            service_us: measured.service.map(each),
            redis_us: measured.redis.map(each),
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            denied: tally.over_limit,
            failed: tally.failed + tally.broken,
        }
    }

    fn measure(row: &Row, program: Program<'_>, duration: Duration) -> Self {
        match row.measurement {
            Measurement::Service(scenario) => Self::of(&scenario.run(program, duration)),
            Measurement::RedisAlone => {
                let reference = reference::run(100_000 * duration.as_secs());
                let redis_us = Some(reference.redis_us);
                Self { per_second: reference.per_second, redis_us, ..Self::default() }
            }
        }
    }
}

/// A row, with its figures in each round.
struct Answered {
    row: Row,
    figures: Vec<Figures>,
}

/// A question, with its answers.
pub struct Answers {
    question: &'static str,
    rows: Vec<Answered>,
}

/// Measures all rows whose title, or question, contains `only`; in each round each row once.
pub fn measure(program: Program<'_>, duration: Duration, rounds: usize, only: Option<&str>) -> Vec<Answers> {
    let mut all: Vec<_> =
        questions::all().into_iter().filter_map(|question| wanted(question, only)).collect();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}");
        for answered in all.iter_mut().flat_map(|answers| &mut answers.rows) {
            answered.figures.push(Figures::measure(&answered.row, program, duration));
        }
    }
    all
}

fn wanted(question: Question, only: Option<&str>) -> Option<Answers> {
    let is_wanted =
        |row: &Row| only.is_none_or(|only| question.text.contains(only) || row.title.contains(only));
    let rows = question.rows.into_iter().filter(is_wanted);
    let rows: Vec<_> = rows.map(|row| Answered { row, figures: Vec::new() }).collect();
    (!rows.is_empty()).then_some(Answers { question: question.text, rows })
}

pub fn print(all: &[Answers]) {
    for answers in all {
        println!("\n{}\n", answers.question);
        print_head();
        for Answered { row, figures } in &answers.rows {
            print_row(&row.title, &row.pace(), figures);
        }
    }
}

/// What a call costs, by the medians of the rows of the first question with 256 calls in flight.
pub fn bars(all: &[Answers]) -> Vec<Bar> {
    let rows = all.first().map_or(&[][..], |answers| &answers.rows);
    let bar = |answered: &Answered| {
        let median = |figure: fn(&Figures) -> Option<f64>| {
            Spread::of(&answered.figures, figure).median().unwrap_or_default()
        };
        Bar {
            title: answered.row.title.replace('`', ""),
            service_us: median(|figures| figures.service_us),
            redis_us: median(|figures| figures.redis_us),
        }
    };
    rows.iter().filter(|answered| answered.row.pace() == "256").map(bar).collect()
}

/// Prints a table with one row, for a server that runs already.
pub fn print_one(title: &str, pace: &str, measured: &Measured) {
    print_head();
    print_row(title, pace, &[Figures::of(measured)]);
}

fn print_head() {
    println!(
        "| what | in flight | decisions/s | service µs | Redis µs | p50 µs | p99 µs | denied | failed |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|--:|--:|");
}

fn print_row(title: &str, pace: &str, figures: &[Figures]) {
    let spread = |figure| Spread::of(figures, figure);
    let sum = |count: fn(&Figures) -> u64| figures.iter().map(count).sum::<u64>();
    println!(
        "| {title} | {pace} | {:.0} | {:.2} | {:.2} | {:.0} | {:.0} | {} | {} |",
        spread(|figures| Some(figures.per_second)),
        spread(|figures| figures.service_us),
        spread(|figures| figures.redis_us),
        spread(|figures| figures.p50_us),
        spread(|figures| figures.p99_us),
        sum(|figures| figures.denied),
        sum(|figures| figures.failed),
    );
}

/// One figure in several rounds, in ascending order. It is shown as `least / median / most`, in one round as it is.
struct Spread(Vec<f64>);

impl Spread {
    fn of(figures: &[Figures], figure: fn(&Figures) -> Option<f64>) -> Self {
        let mut sorted: Vec<_> = figures.iter().filter_map(figure).collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }

    fn median(&self) -> Option<f64> {
        self.0.get(self.0.len() / 2).copied()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precision = formatter.precision().unwrap_or(0);
        match (self.0.as_slice(), self.median()) {
            ([least, .., most], Some(median)) => {
                write!(formatter, "{least:.precision$} / {median:.precision$} / {most:.precision$}")
            }
            (_, Some(one)) => write!(formatter, "{one:.precision$}"),
            (_, None) => Ok(()),
        }
    }
}
