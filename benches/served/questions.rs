//! The questions that the tables of this benchmark answer, and the measurements of each.

use std::time::Duration;

use crate::load::Pace;
use crate::scenario::{ALGORITHMS, Scenario, Spread, Store};
use crate::servers::{Programs, Server};

/// A row.
#[derive(Clone, Debug)]
pub struct Row {
    pub title: String,
    pub scenario: Scenario,
}

/// A table.
#[derive(Clone, Debug)]
pub struct Question {
    pub text: String,
    /// For one of [`SHAPES`]: its rows are the services and stores that are compared.
    pub shape: Option<Shape>,
    pub rows: Vec<Row>,
}

/// How calls come to a deployment.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub instances: usize,
    /// To all instances together.
    pub connections: usize,
    pub pace: Pace,
}

const fn day(connections: usize, per_second: u64) -> Shape {
    Shape { instances: 1, connections, pace: Pace::Open { per_second } }
}

const fn saturation(connections: usize) -> Shape {
    Shape { instances: 1, connections, pace: Pace::Closed { in_flight: 256 } }
}

/// Ordinary days, from few calls to many; a fleet; and saturation over few and many connections.
const SHAPES: [Shape; 12] = [
    day(4, 500),
    day(4, 1_000),
    day(4, 2_000),
    day(16, 4_000),
    day(16, 8_000),
    day(64, 20_000),
    day(64, 30_000),
    Shape { instances: 8, connections: 32, pace: Pace::Open { per_second: 8_000 } },
    saturation(4),
    saturation(16),
    saturation(64),
    saturation(256),
];

impl Shape {
    fn text(self) -> String {
        let Self { instances, connections, pace } = self;
        let each = connections / instances;
        match pace {
            Pace::Open { per_second } if instances == 1 => {
                format!("{connections} connections, {per_second} calls/s")
            }
            Pace::Open { per_second } => {
                let rate = per_second / instances as u64;
                format!("{instances} instances, each {each} connections, {rate} calls/s")
            }
            Pace::Closed { in_flight } => {
                format!("{connections} connections, {} in flight on each", in_flight / connections)
            }
            Pace::Bursts { .. } => format!("{connections} connections, {pace}"),
        }
    }

    /// The rows of the services and stores that can have this shape.
    fn question(self, columns: &[Row]) -> Question {
        let Self { instances, connections, pace } = self;
        let row_of = |column: &Row| {
            // Counters in memory are not shared.
            let fits = instances == 1 || column.scenario.store == Store::Redis;
            fits.then(|| row(&column.title, Scenario { instances, connections, pace, ..column.scenario }))
        };
        Question { text: self.text(), shape: Some(self), rows: columns.iter().filter_map(row_of).collect() }
    }
}

fn row(title: impl Into<String>, scenario: Scenario) -> Row {
    Row { title: title.into(), scenario }
}

/// What does a call cost at my pace?
pub fn shapes() -> Vec<Question> {
    SHAPES.map(|shape| shape.question(&ours())).into()
}

/// The same, beside the peers whose programs are known.
pub fn beside_peers(programs: Programs<'_>) -> Vec<Question> {
    let mut columns = ours();
    if programs.envoyproxy.is_some() {
        for pool in [10, 64] {
            let server = Server::Envoyproxy { pool };
            columns.push(row(
                format!("envoyproxy/ratelimit, pool of {pool}"),
                Scenario { server, algorithm: "fixed_window", ..REDIS },
            ));
        }
    }
    if programs.limitador.is_some() {
        let server = Server::Limitador;
        columns.push(row("Limitador, Redis", Scenario { server, ..REDIS }));
        columns.push(row("Limitador, memory", Scenario { server, ..MEMORY }));
    }
    SHAPES.map(|shape| shape.question(&columns)).into()
}

/// What does a call of `/check` cost beside one of gRPC? Each connection has at most one request in flight; those of
/// gRPC have as many at saturation.
pub fn check() -> Vec<Question> {
    let server = Server::Check;
    let columns = [
        row("`/check`, memory", Scenario { server, ..MEMORY }),
        row("gRPC, memory", MEMORY),
        row("`/check`, Redis", Scenario { server, ..REDIS }),
        row("gRPC, Redis", REDIS),
    ];
    let saturation = Shape { instances: 1, connections: 64, pace: Pace::Closed { in_flight: 64 } };
    [day(16, 8_000), saturation].map(|shape| shape.question(&columns)).into()
}

/// What do users ask? Every store by every protocol, at two paces and at saturation, with one limit and with several,
/// admitted and denied. `scripts/lay-out` trains the service with these rows.
pub fn training() -> Vec<Question> {
    let few = Pace::Open { per_second: 2_000 };
    let many = Pace::Open { per_second: 8_000 };
    let paces = [few, many, Pace::Closed { in_flight: 64 }];
    let of_store = |(name, store): (&str, Scenario)| {
        let of_pace = |pace| {
            ["gcra", "fixed_window", "sliding_window"]
                .map(|algorithm| row(format!("{name}, `{algorithm}`"), Scenario { algorithm, pace, ..store }))
        };
        let mut rows = paces.map(of_pace).concat();
        rows.extend(
            [2, 5].map(|limits| {
                row(format!("{name}, limits: {limits}"), Scenario { limits, pace: few, ..store })
            }),
        );
        rows.push(row(
            format!("{name}, one key, denied"),
            Scenario { spread: Spread::One, limit: 10, pace: many, ..store },
        ));
        for (path, server) in [("/check", Server::Check), ("/json", Server::Json)] {
            rows.push(row(
                format!("{name}, `{path}`"),
                Scenario { server, connections: 16, pace: few, ..store },
            ));
        }
        rows
    };
    let rows = STORES.into_iter().flat_map(of_store).collect();
    vec![Question { text: "Training".to_owned(), shape: None, rows }]
}

fn ours() -> Vec<Row> {
    vec![
        row("memory", MEMORY),
        row("Redis, `fixed_window`", Scenario { algorithm: "fixed_window", ..REDIS }),
        row("Redis, `gcra`", REDIS),
        row("floor, memory", Scenario { server: Server::Floor, ..MEMORY }),
        row("floor, Redis", Scenario { server: Server::Floor, ..REDIS }),
    ]
}

/// The question of the rows that the picture of saturation shows.
pub const SATURATION: &str = "What does a call cost at saturation?";

/// All tables.
pub fn all() -> Vec<Question> {
    let mut all = shapes();
    for (text, rows) in [
        (SATURATION, cost()),
        ("How does the cost grow with the limits of a request?", limits()),
        ("How does it grow with the rules in force?", rules()),
        ("How does it grow with the distance to Redis?", distance()),
        ("What do hot keys cost?", keys()),
        ("What does `lease: auto` save?", leases()),
    ] {
        all.push(Question { text: text.to_owned(), shape: None, rows });
    }
    all
}

const MEMORY: Scenario = Scenario::DEFAULT;
const REDIS: Scenario = Scenario { store: Store::Redis, ..MEMORY };
const STORES: [(&str, Scenario); 2] = [("memory", MEMORY), ("Redis", REDIS)];

fn cost() -> Vec<Row> {
    let mut rows = Vec::new();
    for in_flight in [64, 256] {
        let pace = Pace::Closed { in_flight };
        rows.push(row("floor, Redis", Scenario { server: Server::Floor, pace, ..REDIS }));
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

fn distance() -> Vec<Row> {
    let distances = [250, 1_000, 5_000].map(|us| {
        let each_way = Duration::from_micros(us);
        row(format!("Redis, delay both ways: {:?}", each_way * 2), Scenario { each_way, ..REDIS })
    });
    distances.into()
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

/// Limits that no call reaches, with `lease: off` and `auto`.
fn leases() -> Vec<Row> {
    let pace = Pace::Open { per_second: 8_000 };
    let minute = Scenario { unit: "minute", limit: 1_000_000_000, algorithm: "fixed_window", ..REDIS };
    let day = Scenario { connections: 16, pace, ..minute };
    let days = [
        ("one key", Scenario { spread: Spread::One, ..day }),
        ("one key", Scenario { spread: Spread::One, instances: 4, ..day }),
        ("10,000 keys by Zipf", Scenario { spread: Spread::Zipf, keys: 10_000, ..day }),
        ("a limit per user and one per route", Scenario { limits: 2, has_route: true, ..day }),
    ];
    let both = |(title, off): (&str, Scenario)| {
        let auto = Scenario { options: ", lease: auto", ..off };
        [row(format!("{title}, `lease: off`"), off), row(format!("{title}, `lease: auto`"), auto)]
    };
    days.into_iter().flat_map(both).collect()
}
