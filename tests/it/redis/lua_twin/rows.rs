//! Rows that are set at run time: rows.lua decides each write as the process does that keeps them itself.

use std::collections::BTreeMap;

use ::base::clock::{Clock as _, SystemClock};
use ::store::redis::{PutKind, PutResult, RedisStore, RowPut, RowTotals, StoredRow, decide_puts};
use proptest::prelude::*;
use tokio::runtime::Runtime;

use crate::redis::rows::all_rows;
use crate::redis::{patient_options, store};
use crate::support::properties;
use crate::support::redis::Redis;

const MINUTE_US: u64 = 60_000_000;
const HOUR_US: u64 = 60 * MINUTE_US;
/// More than the time of a case: the server's clock is not that of the model.
const CLOCK_RESERVE_US: u64 = 2 * MINUTE_US;

/// A time, not near another one.
#[derive(Clone, Copy, Debug)]
enum Time {
    LongAgo(u64),
    MinutesAgo(u64),
    InHours(u64),
}

impl Time {
    fn us(self, start_us: u64) -> u64 {
        match self {
            Self::LongAgo(us) => us,
            Self::MinutesAgo(minutes) => start_us - minutes * MINUTE_US,
            Self::InHours(hours) => start_us + hours * HOUR_US,
        }
    }
}

/// Which version a write names.
#[derive(Clone, Copy, Debug)]
enum Version {
    OfTheRow,
    At(Time),
}

#[derive(Clone, Debug)]
enum Kind {
    Set(Option<Option<Version>>),
    Later,
    Ban { grow: u64 },
    Restore(Version, u32),
    Drop(Version),
}

#[derive(Clone, Debug)]
struct Write {
    id: &'static str,
    kind: Kind,
    until: Option<Time>,
    is_automatic: bool,
    json: Option<&'static str>,
}

fn time() -> impl Strategy<Value = Time> {
    prop_oneof![
        (1..5_u64).prop_map(Time::LongAgo),
        (10..50_u64).prop_map(Time::MinutesAgo),
        (1..4_u64).prop_map(Time::InHours)
    ]
}

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![3 => Just(Version::OfTheRow), 1 => time().prop_map(Version::At)]
}

fn write() -> impl Strategy<Value = Write> {
    let if_version =
        prop_oneof![Just(None), Just(Some(None)), version().prop_map(|version| Some(Some(version)))];
    let kind = prop_oneof![
        4 => if_version.prop_map(Kind::Set),
        2 => Just(Kind::Later),
        2 => (1..4_u64).prop_map(|grow| Kind::Ban { grow }),
        2 => (version(), 0..5_u32).prop_map(|(version, level)| Kind::Restore(version, level)),
        2 => version().prop_map(Kind::Drop),
    ];
    let id = prop::sample::select(vec!["a", "b", "c"]);
    let json = prop::option::weighted(0.7, prop::sample::select(vec!["{}", "{\"key\": \"a b\\n\"}"]));
    (id, kind, prop::option::of(time()), any::<bool>(), json).prop_map(
        |(id, kind, until, is_automatic, json)| {
            let json = json.filter(|_| !matches!(kind, Kind::Drop(_)));
            Write { id, kind, until, is_automatic, json }
        },
    )
}

#[derive(Default)]
struct Model {
    rows: BTreeMap<String, StoredRow>,
    start_us: u64,
}

impl Model {
    fn row_put(&self, Write { id, kind, until, is_automatic, json }: &Write) -> RowPut {
        let version = |version: Version| match version {
            Version::OfTheRow => self.rows.get(*id).map_or(7, |row| row.version),
            Version::At(time) => time.us(self.start_us),
        };
        let kind = match *kind {
            Kind::Set(None) => PutKind::Set { if_version: None },
            Kind::Set(Some(wanted)) => PutKind::Set { if_version: Some(wanted.map_or(0, version)) },
            Kind::Later => PutKind::Later,
            Kind::Ban { grow } => PutKind::Ban { for_us: HOUR_US, grow, max_us: 6 * HOUR_US },
            Kind::Restore(restored, level) => PutKind::Restore { version: version(restored), level },
            Kind::Drop(dropped) => PutKind::Drop { version: version(dropped) },
        };
        let until_us = until.map(|until| until.us(self.start_us));
        RowPut {
            id: (*id).to_owned(),
            kind,
            until_us,
            is_automatic: *is_automatic,
            json: json.map(str::to_owned),
        }
    }

    /// Decides, and compares with what Redis has decided, whose ends of bans it takes over.
    fn check(
        &mut self,
        puts: &[RowPut],
        known_version: u64,
        decided: &[PutResult],
    ) -> Result<(), TestCaseError> {
        let rows = || self.rows.values();
        let present = rows().filter(|row| row.json.is_some());
        let totals = RowTotals {
            newest: rows().map(|row| row.version).fold(known_version, u64::max),
            stored: self.rows.len(),
            present: present.clone().count(),
            automatic: present.filter(|row| row.is_automatic).count(),
        };
        let mut expected = decide_puts(puts, totals, self.start_us, |id| self.rows.get(id).cloned());
        for (expected, decided) in expected.iter_mut().zip(decided) {
            for (expected, decided) in ends_of(expected).zip(ends_of(&mut decided.clone())) {
                let distance_us = expected.unwrap_or(0).abs_diff(decided.unwrap_or(0));
                prop_assert!(distance_us < CLOCK_RESERVE_US, "{:?}: {:?}, {:?}", puts, expected, decided);
                *expected = *decided;
            }
        }
        prop_assert_eq!(decided, &expected[..], "{:?} with {:?}", puts, self.rows);
        for (put, result) in puts.iter().zip(expected) {
            let PutResult::Written { version, until_us, level } = result else { continue };
            let RowPut { id, kind, is_automatic, json, .. } = put.clone();
            match kind {
                PutKind::Drop { .. } => drop(self.rows.remove(&id)),
                _ => {
                    let row = StoredRow { id: id.clone(), version, until_us, level, is_automatic, json };
                    self.rows.insert(id, row);
                }
            }
        }
        Ok(())
    }
}

/// The end in a result.
fn ends_of(result: &mut PutResult) -> impl Iterator<Item = &mut Option<u64>> {
    match result {
        PutResult::Written { until_us, .. } => Some(until_us),
        PutResult::Kept(row) | PutResult::Conflict(Some(row)) => Some(&mut row.until_us),
        PutResult::Newer | PutResult::Conflict(None) | PutResult::Full | PutResult::Unwritten => None,
    }
    .into_iter()
}

async fn check(store: &RedisStore, calls: &[Vec<Write>]) -> Result<(), TestCaseError> {
    let mut model = Model { start_us: SystemClock.now_us(), ..Model::default() };
    // Above the time, so that versions do not depend on it.
    let known_version = model.start_us + 10 * HOUR_US;
    for call in calls {
        let puts: Vec<_> = call.iter().map(|write| model.row_put(write)).collect();
        let decided = store.put_rows(known_version, &puts).await.expect("Redis answers");
        model.check(&puts, known_version, &decided)?;
        prop_assert_eq!(&all_rows(store).await, &model.rows, "after {:?}", puts);
    }
    Ok(())
}

#[test]
fn redis_and_a_process_that_keeps_the_rows_itself_decide_alike() {
    let redis = Redis::start();
    let runtime = Runtime::new().expect("a runtime");
    let store = runtime.block_on(async { store(&patient_options(&redis.url())) });
    let calls = prop::collection::vec(prop::collection::vec(write(), 1..5), 1..12);
    let mut runner = properties::runner(file!());
    let result = runner.run(&calls, |calls| {
        redis.run::<()>(&["FLUSHALL"]).expect("FLUSHALL");
        runtime.block_on(check(&store, &calls))
    });
    if let Err(failure) = result {
        panic!("{failure}");
    }
}
