//! The examples of docs/sizing.md follow from the measured figures of docs/benchmarks.md.

const PAGE: &str = include_str!("../../docs/sizing.md");
const BENCHMARKS: &str = include_str!("../../docs/benchmarks.md");
/// Bytes of a counter with a key of 60 bytes.
const COUNTER_BYTES: f64 = 223.0;

/// The rows of the first table with this head, without the line below the head.
fn table<'t>(page: &'t str, head: &str) -> Vec<Vec<&'t str>> {
    let (_, rest) = page.split_once(&format!("\n{head}\n")).expect("the head of the table");
    let rows = rest.lines().skip(1).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The first number of a cell.
fn number(cell: &str) -> f64 {
    let text = cell.split(' ').next().unwrap_or_default().replace(',', "");
    text.parse().unwrap_or_else(|error| panic!("{cell}: {error}"))
}

/// The two sides of a cell such as `38.0 + 15.6`.
fn sides(cell: &str) -> [f64; 2] {
    let (service, redis) = cell.split_once(" + ").expect("two sides");
    [number(service), number(redis)]
}

/// The cost of a row of the measured table: the service with counters in memory, the service with Redis, and Redis.
fn measured(calls: &str) -> [f64; 3] {
    let rows = table(BENCHMARKS, "| calls | memory | Redis, `fixed_window` | Redis, `gcra` |");
    let row = rows.into_iter().find(|row| row[0].ends_with(calls)).unwrap_or_else(|| panic!("{calls}"));
    let [service, redis] = sides(row[3]);
    [if row[1].is_empty() { f64::NAN } else { number(row[1]) }, service, redis]
}

#[test]
fn the_examples_of_a_fleet_are_computed_from_the_measured_figures() {
    let [_, slow, slow_redis] = measured("4 connections, 1000 calls/s");
    let [_, medium, _] = measured("4000 calls/s");
    let [_, _, shared_redis] = measured("8 instances, each 4 connections, 1000 calls/s");
    let [fast_memory, ..] = measured("20000 calls/s");
    // What Redis adds to a call of the service.
    let added = |calls| measured(calls)[1] - measured(calls)[0];
    let costs = [
        (slow, slow_redis),
        (medium, shared_redis),
        // Clusters: the calls per second of an instance, and those to one primary.
        (fast_memory + added("4 connections, 1000 calls/s"), shared_redis),
        (fast_memory + added("500 calls/s"), shared_redis),
    ];
    let head = PAGE.lines().find(|line| line.starts_with("| calls/s | instances |")).expect("the examples");
    let examples = table(PAGE, head);
    assert_eq!(examples.len(), costs.len());
    for (row, (service_us, redis_us)) in examples.iter().zip(costs) {
        let per_second = number(row[0]);
        let cores = |us: f64| format!("{:.2}", per_second * us / 1e6);
        let expected = [format!("{service_us:.1} + {redis_us:.1}"), cores(service_us), cores(redis_us)];
        assert_eq!(row[2..5], expected, "{row:?}");
        // Half of a core for each server.
        let servers = (per_second * redis_us / 1e6 / 0.5).ceil();
        assert_eq!(number(row[5].trim_start_matches("1 or ")), servers, "{row:?}");
        let megabytes = (number(row[6]) * COUNTER_BYTES / 1e6).round();
        assert_eq!(number(row[7]), megabytes, "{row:?}");
        let (instances, workers) = row[1].split_once(" × ").expect("instances and their cores");
        // Clusters have connections to each primary.
        let primaries = if servers > 2.0 { servers } else { 1.0 };
        let connections = number(instances) * (number(workers) + 1.0) * 2.0 * primaries;
        assert_eq!(number(row[8]), connections, "{row:?}");
    }
}
