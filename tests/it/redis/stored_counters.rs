//! What Redis stores for a counter of each kernel, written down: two versions share one Redis during a rolling update,
//! so a later version must read these counters, and write them in the same way. docs/compatibility.md promises it.

use ::store::redis::{RedisOptions, ReplayClient, TimedBatch};
use engine::algorithm::{
    CalendarWindow, FixedWindow, Gcra, IntervalBucket, Kernel, SlidingLog, SlidingWindow,
};
use engine::{Charges, Cost, Pacing};
use redis::Commands as _;

use super::one_charge;
use crate::support::redis::{Redis, parsed};

const SECOND_US: u64 = 1_000_000;
const MINUTE_US: u64 = 60 * SECOND_US;
/// The start of a minute, which has this number.
const START_US: u64 = 28_333_334 * MINUTE_US;
const FIRST_US: u64 = START_US - 20 * SECOND_US;
const SECOND_CHARGE_US: u64 = START_US + 30 * SECOND_US;

/// A limit of 10 a minute, its counter after charges of 4 and then 2 units, and what then remains.
struct Row {
    kernel: Kernel,
    /// Little-endian doubles, one after the other; of a log in pairs, each pair an element of a list.
    stored: &'static [f64],
    remaining: u64,
}

fn rows() -> [Row; 7] {
    let row = |kernel, stored, remaining| Row { kernel, stored, remaining };
    let gcra = |units| Kernel::Gcra(Gcra::new(units, MINUTE_US, 10, Pacing::Meter));
    let boundaries = [START_US - MINUTE_US, START_US, START_US + MINUTE_US];
    [
        // number of the window, units
        row(Kernel::FixedWindow(FixedWindow::new(10, MINUTE_US)), &[28_333_334.0, 2.0], 8),
        // start of the window, units
        row(Kernel::CalendarWindow(CalendarWindow::new(10, boundaries)), &[1_700_000_040e6, 2.0], 8),
        // number of the window, units in it, units in the window before
        row(Kernel::SlidingWindow(SlidingWindow::new(10, MINUTE_US)), &[28_333_334.0, 2.0, 4.0], 6),
        // a pair without a grant; time of a grant, total of units with it
        row(
            Kernel::SlidingLog(SlidingLog::new(10, MINUTE_US)),
            &[0.0, 0.0, 1_700_000_020e6, 4.0, 1_700_000_070e6, 6.0],
            4,
        ),
        // the time at which the counter is unused again
        row(gcra(10), &[1_700_000_082e6], 8),
        // the same in whole microseconds, and sevenths of one
        row(gcra(7), &[1_700_000_087_142_857.0, 1.0], 8),
        // time of the last refill, tokens
        row(Kernel::IntervalBucket(IntervalBucket::new(10, 3, 30 * SECOND_US)), &[1_700_000_050e6, 7.0], 7),
    ]
}

impl Row {
    fn bytes(&self) -> Vec<u8> {
        self.stored.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    fn is_log(&self) -> bool {
        matches!(self.kernel, Kernel::SlidingLog(_))
    }
}

struct Fixture {
    /// Serves until the end of the test.
    _redis: Redis,
    connection: redis::Connection,
    client: ReplayClient,
    prefix: String,
}

impl Fixture {
    async fn start() -> Self {
        let redis = Redis::start();
        let options = RedisOptions { urls: parsed([redis.url()]), ..RedisOptions::default() };
        let client = ReplayClient::connect(&options).await.expect("Redis answers");
        let connection = redis::Client::open(redis.url()).expect("a URL").get_connection();
        let connection = connection.expect("Redis listens");
        Self { _redis: redis, connection, client, prefix: options.key_prefix }
    }

    /// Returns what remains.
    async fn decide(&mut self, now_us: u64, charges: &Charges) -> u64 {
        let batch = TimedBatch { now_us, requests: &[charges] };
        let decided = self.client.decide(&[batch]).await.expect("Redis decides");
        decided[0][0].by_charge[0].report.remaining
    }
}

#[tokio::test]
async fn each_kernel_writes_the_counter_that_is_written_down() {
    let mut fixture = Fixture::start().await;
    // The counter of slots is in `redis::slots`.
    assert_eq!(rows().len(), Kernel::KINDS - 1, "GCRA is there twice, and a limit of 0 has no counter");
    for row in rows() {
        let name = row.kernel.to_string();
        fixture.decide(FIRST_US, &one_charge(row.kernel, &name, Cost::take(4))).await;
        let remaining = fixture.decide(SECOND_CHARGE_US, &one_charge(row.kernel, &name, Cost::take(2))).await;
        let key = format!("{}{name}", fixture.prefix);
        let stored: Vec<u8> = if row.is_log() {
            let pairs: Vec<Vec<u8>> = fixture.connection.lrange(&key, 0, -1).expect("a list");
            pairs.concat()
        } else {
            fixture.connection.get(&key).expect("a string")
        };
        assert_eq!((stored, remaining), (row.bytes(), row.remaining), "{name}");
    }
}

#[tokio::test]
async fn each_kernel_reads_the_counter_that_is_written_down() {
    let mut fixture = Fixture::start().await;
    for row in rows() {
        let name = row.kernel.to_string();
        let (key, bytes) = (format!("{}{name}", fixture.prefix), row.bytes());
        if row.is_log() {
            let pairs: Vec<&[u8]> = bytes.chunks(16).collect();
            fixture.connection.rpush::<_, _, ()>(&key, pairs).expect("RPUSH");
        } else {
            fixture.connection.set::<_, _, ()>(&key, bytes).expect("SET");
        }
        let peek = one_charge(row.kernel, &name, Cost::PEEK);
        assert_eq!(fixture.decide(SECOND_CHARGE_US, &peek).await, row.remaining, "{name}");
    }
}
