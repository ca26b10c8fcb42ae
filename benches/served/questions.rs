//! The questions that the tables of this benchmark answer, and the measurements of each.

use std::time::Duration;

use crate::load::Pace;
use crate::reference;
use crate::scenario::{ALGORITHMS, Scenario, Spread, Store};

/// What is measured for a row.
#[derive(Clone, Copy, Debug)]
pub enum Measurement {
    /// A service and its store.
    Service(Scenario),
    /// Redis alone, with redis-benchmark.
    RedisAlone,
}

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    pub title: String,
    pub measurement: Measurement,
}

impl Row {
    /// How calls are started.
    pub fn pace(&self) -> String {
        match self.measurement {
            Measurement::Service(scenario) => scenario.pace.to_string(),
            Measurement::RedisAlone => reference::IN_FLIGHT.to_string(),
        }
    }
}

/// A table.
#[derive(Clone, Debug)]
pub struct Question {
    pub text: &'static str,
    pub rows: Vec<Row>,
}

fn row(title: impl Into<String>, scenario: Scenario) -> Row {
    Row { title: title.into(), measurement: Measurement::Service(scenario) }
}

/// All tables.
pub fn all() -> Vec<Question> {
    vec![
        Question { text: "What does a call cost?", rows: cost() },
        Question { text: "How does the cost grow with the limits of a request?", rows: limits() },
        Question { text: "How does it grow with the rules in force?", rows: rules() },
        Question {
            text: "How does it grow with connections and with the distance to Redis?",
            rows: network(),
        },
        Question { text: "What do hot keys cost?", rows: keys() },
        Question { text: "How long does a call take at 2,000 calls per second?", rows: latency() },
    ]
}

const MEMORY: Scenario = Scenario::DEFAULT;
const REDIS: Scenario = Scenario { store: Store::Redis, ..MEMORY };
const STORES: [(&str, Scenario); 2] = [("memory", MEMORY), ("Redis", REDIS)];

fn cost() -> Vec<Row> {
    let mut rows = vec![Row {
        title: "redis-benchmark, 1 GCRA decision per EVALSHA, -P 64".to_owned(),
        measurement: Measurement::RedisAlone,
    }];
    for in_flight in [64, 256] {
        let pace = Pace::Closed { in_flight };
        rows.push(row("no rules, no store", Scenario { store: Store::None, pace, ..MEMORY }));
        for (name, store) in STORES {
            for algorithm in ALGORITHMS {
                rows.push(row(format!("{name}, `{algorithm}`"), Scenario { algorithm, pace, ..store }));
            }
        }
    }
    rows
}

fn limits() -> Vec<Row> {
    let of_store = |(name, store): (&str, Scenario)| {
        [1, 2, 3, 5].map(|limits| row(format!("{name}, limits: {limits}"), Scenario { limits, ..store }))
    };
    STORES.into_iter().flat_map(of_store).collect()
}

fn rules() -> Vec<Row> {
    [0, 100, 10_000]
        .map(|rules| row(format!("memory, other rules at the level: {rules}"), Scenario { rules, ..MEMORY }))
        .into()
}

fn network() -> Vec<Row> {
    let connections = [1, 4, 32, 256].map(|connections| {
        row(format!("Redis, connections: {connections}"), Scenario { connections, ..REDIS })
    });
    let distances = [250, 1_000, 5_000].map(|us| {
        let each_way = Duration::from_micros(us);
        row(format!("Redis, delay both ways: {:?}", each_way * 2), Scenario { each_way, ..REDIS })
    });
    connections.into_iter().chain(distances).collect()
}

fn keys() -> Vec<Row> {
    let never_over = Scenario { limit: 1_000_000_000, ..REDIS };
    let mut rows = Vec::new();
    for in_flight in [64, 256] {
        let pace = Pace::Closed { in_flight };
        rows.extend([
            row("Redis, 1,000 keys alike", Scenario { pace, ..never_over }),
            row("Redis, 1,000 keys by Zipf", Scenario { spread: Spread::Zipf, pace, ..never_over }),
            row("Redis, one hot key", Scenario { spread: Spread::One, pace, ..never_over }),
            row("Redis, attack on one key", Scenario { spread: Spread::One, limit: 10, pace, ..REDIS }),
        ]);
    }
    rows
}

fn latency() -> Vec<Row> {
    let pace = Pace::Open { per_second: 2_000 };
    vec![
        row("no rules, no store", Scenario { store: Store::None, pace, ..MEMORY }),
        row("memory", Scenario { pace, ..MEMORY }),
        row("Redis", Scenario { pace, ..REDIS }),
    ]
}
