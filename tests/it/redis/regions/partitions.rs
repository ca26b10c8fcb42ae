//! Random faults between regions and home, and of the processes. A checker compares what clients saw with the bounds of
//! the limits, over every time.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

use ::base::clock::{Clock as _, SystemClock};
use fastrand::Rng;
use futures_util::future::join_all;

use super::{ONE_WAY, Region};
use crate::redis::cluster::block_on;
use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::redis::Redis;

/// How long the faults last. More by hand: `RATELIMITD_TEST_REGION_SECONDS=3600`.
const SECONDS: u64 = 6;
const REGIONS: usize = 3;
/// Connections to each region, each with a call of one key in each of these times.
const CONNECTIONS: u64 = 3;
const PACE: Duration = Duration::from_millis(3);
/// What clients saw is counted in pieces of this length.
const PIECE_US: u64 = 10_000;

/// Less than the demand, about 1,500 per second for each limit.
const WINDOW: u64 = 20_000;
const WINDOW_US: u64 = 20_000_000;
const BURST: u64 = 8_000;
const UNITS_PER_MINUTE: u64 = 60_000;
const RULES: &str = "
domain: d
descriptors:
  - key: window
    rate_limit: { unit: second, unit_multiplier: 20, requests_per_unit: 20000, algorithm: fixed_window, scope: global, on_store_failure: deny }
  - key: bucket
    rate_limit: { unit: minute, requests_per_unit: 60000, burst: 8000, algorithm: gcra, scope: global, on_store_failure: deny }
";
const KEYS: [&str; 2] = ["window", "bucket"];

/// The admitted calls of one key, by the piece in which they were sent, and by that in which their answer came.
#[derive(Default)]
struct Seen {
    sent: Vec<u64>,
    answered: Vec<u64>,
}

impl Seen {
    fn add(&mut self, [sent, answered]: [u64; 2]) {
        for (pieces, at) in [(&mut self.sent, sent), (&mut self.answered, answered)] {
            let at = usize::try_from(at).expect("a piece of the test");
            pieces.resize(pieces.len().max(at + 1), 0);
            pieces[at] += 1;
        }
    }

    /// Calls that are surely inside these pieces: answered before the end, less those that were sent before the start.
    fn inside(&self, start: usize, end: usize) -> u64 {
        let before = |pieces: &[u64], end: usize| pieces.iter().take(end).sum::<u64>();
        before(&self.answered, end).saturating_sub(before(&self.sent, start))
    }

    /// The most units above what drained, in any time: at most the burst.
    fn largest_burst(&self) -> u64 {
        let drained = |pieces: usize| pieces as u64 * PIECE_US * UNITS_PER_MINUTE / 60_000_000;
        let (mut sent, mut answered, mut lowest, mut largest) = (0, 0, u64::MAX, 0);
        let offset = drained(self.answered.len());
        for piece in 0..self.answered.len() {
            // `sent` minus what drained, at the best start up to here.
            lowest = lowest.min(sent + offset - drained(piece));
            sent += self.sent.get(piece).copied().unwrap_or(0);
            answered += self.answered[piece];
            largest = largest.max((answered + offset - drained(piece + 1)).saturating_sub(lowest));
        }
        largest
    }
}

/// Calls one key of a region at a steady pace. Calls without an answer count as denied, because no client was told.
async fn call(region: &Region, key: &'static str, (seen, start_us): (&Mutex<Seen>, u64), end: &AtomicBool) {
    let (mut rls, mut ticks) = (Rls::connect(region.service.grpc_port()).await, tokio::time::interval(PACE));
    let piece = || (SystemClock.now_us() - start_us) / PIECE_US;
    while !end.load(SeqCst) {
        ticks.tick().await;
        let sent = piece();
        // A service that was stopped answers what it had read in part with DEADLINE_EXCEEDED.
        let answer = rls.send(request("d", vec![descriptor(&[(key, "x")])])).await;
        if answer.is_ok_and(|answer| answer.overall_code() == Code::Ok) {
            seen.lock().expect("not poisoned").add([sent, piece()]);
        }
    }
}

/// One fault at a time, each for up to 3 s, with as much time without one.
async fn faults(regions: &[Region], seed: u64, seconds: u64) -> [u64; 6] {
    let (mut random, mut ticks) = (Rng::with_seed(seed), tokio::time::interval(Duration::from_millis(250)));
    let (mut counts, mut region, mut left) = ([0; 6], 0, 0);
    for tick in 0..seconds * 4 {
        ticks.tick().await;
        if left > 0 {
            left -= 1;
            continue;
        }
        regions[region].heal();
        regions[region].service.signal(&["CONT"]);
        left = random.u64(1..12);
        if tick % 2 == 0 {
            continue;
        }
        region = random.usize(..regions.len());
        let (fault, to_home) = (random.usize(..counts.len()), &regions[region].to_home);
        counts[fault] += 1;
        match fault {
            0 => to_home.blackhole(),
            1 => to_home.hold_answers(),
            2 => to_home.delay(ONE_WAY, Duration::from_secs(2)),
            3 => to_home.cut(),
            4 => {
                to_home.refuse();
                to_home.cut();
            }
            _ => regions[region].service.signal(&["STOP"]),
        }
    }
    for region in regions {
        region.heal();
        region.service.signal(&["CONT"]);
    }
    counts
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a switch of the test run, not a setting of the program")]
fn no_partition_lets_regions_exceed_a_limit() {
    let seconds = std::env::var("RATELIMITD_TEST_REGION_SECONDS").ok().and_then(|text| text.parse().ok());
    let (seconds, seed) = (seconds.unwrap_or(SECONDS), fastrand::u64(..));
    println!("seed {seed}");
    let home = Redis::start();
    let regions: Vec<Region> = (0..REGIONS).map(|_| Region::start(home.address(), RULES)).collect();
    // The pieces begin with a window.
    let start_us = SystemClock.now_us() / WINDOW_US * WINDOW_US;
    let seen = <[Mutex<Seen>; 2]>::default();
    let end = AtomicBool::new(false);
    let counts = std::thread::scope(|scope| {
        for region in &regions {
            scope.spawn(|| {
                let calls = KEYS.iter().zip(&seen).flat_map(|(key, seen)| {
                    (0..CONNECTIONS).map(|_| call(region, key, (seen, start_us), &end)).collect::<Vec<_>>()
                });
                block_on(join_all(calls));
            });
        }
        let counts = block_on(faults(&regions, seed, seconds));
        end.store(true, SeqCst);
        counts
    });
    let [window, bucket] = seen.map(|seen| seen.into_inner().expect("not poisoned"));
    let length = usize::try_from(WINDOW_US / PIECE_US).expect("it is small");
    let windows: Vec<u64> = (0..window.answered.len().div_ceil(length))
        .map(|index| window.inside(index * length, (index + 1) * length))
        .collect();
    let (most, burst) = (windows.iter().copied().max().unwrap_or(0), bucket.largest_burst());
    let admitted = [&window, &bucket].map(|seen| seen.answered.iter().sum::<u64>());
    println!(
        "faults {counts:?}; admitted {admitted:?}; at most {most} in a window, bursts of at most {burst}"
    );
    assert!(most <= WINDOW, "{windows:?}, seed {seed}");
    assert!(burst <= BURST, "{burst}, seed {seed}");
    assert!(admitted.iter().all(|admitted| *admitted > 100 * seconds), "{admitted:?}");
}

/// The checker finds calls above the bounds.
#[test]
fn the_checker_counts_calls_inside_each_time() {
    let mut seen = Seen::default();
    (0..BURST).for_each(|_| seen.add([5, 6]));
    assert_eq!(seen.inside(5, 7), BURST);
    assert_eq!(seen.inside(6, 7), 0, "they were sent before");
    // 20 units drain in the two pieces.
    assert_eq!(seen.largest_burst(), BURST - 20);
    (0..50).for_each(|_| seen.add([8, 8]));
    // 40 units drain in the four pieces.
    assert_eq!(seen.largest_burst(), BURST + 50 - 40);
}
