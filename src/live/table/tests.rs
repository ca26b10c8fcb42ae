//! Tables that are cut off, restored and reordered end equal. Bans and versions without Redis.

use std::collections::HashMap;

use engine::RowSource;
use proptest::prelude::*;
use rules::Origin;
use serde_json::json;
use store::redis::{PutKind, PutResult};

use super::*;

/// 2026-11-26T13:46:40Z.
const NOW_US: u64 = 1_795_700_800_000_000;
const SECOND: u64 = 1_000_000;

fn live_row(value: &str, multiplier: u64) -> LiveRow {
    live_row_for(value, multiplier, "INC-42")
}

fn live_row_for(value: &str, multiplier: u64, reason: &str) -> LiveRow {
    let columns = json!({"domain": "shop", "key": "tenant", "value": value, "multiplier": multiplier.to_string(),
        "reason": reason});
    LiveRow::read("rows[0]", &columns, NOW_US).expect("a good row").0
}

fn put(value: &str, multiplier: u64, kind: PutKind, until_us: Option<u64>) -> RowPut {
    let is_automatic = matches!(kind, PutKind::Later | PutKind::Ban { .. });
    let origin = if is_automatic { Origin::Feedback } else { Origin::Operator };
    let row = LiveRow::new((*live_row(value, multiplier).row).clone(), origin, 0);
    RowPut { id: row.id().to_string(), kind, until_us, is_automatic, json: Some(row.stored()) }
}

fn set(value: &str, if_version: Option<u64>) -> RowPut {
    put(value, 2, PutKind::Set { if_version }, None)
}

fn version_of(results: &[PutResult]) -> u64 {
    match results {
        [PutResult::Written { version, .. }] => *version,
        results => panic!("not written: {results:?}"),
    }
}

/// Redis as a table: versions rise, a restored row keeps its version.
#[derive(Clone, Default)]
struct Server {
    rows: BTreeMap<String, StoredRow>,
    newest: u64,
}

impl Server {
    fn sum(&self) -> u64 {
        self.rows.values().fold(0, |sum, row| (sum + row.version) % SUM_MODULUS)
    }

    fn page(&self, since: u64) -> Vec<StoredRow> {
        let mut page: Vec<_> = self.rows.values().filter(|row| row.version > since).cloned().collect();
        page.sort_by_key(|row| row.version);
        page
    }

    fn write(&mut self, put: &RowPut, known: u64, now_us: u64) -> Option<StoredRow> {
        let newest = self.rows.values().map(|row| row.version).max().unwrap_or(0);
        self.newest = newest.max(known).max(now_us);
        let RowPut { id, kind, until_us, is_automatic, json } = put.clone();
        let before = self.rows.get(&id).map_or(0, |row| row.version);
        let version = match kind {
            PutKind::Restore { version, .. } if before < version => version,
            PutKind::Drop { version } if before == version => {
                self.rows.remove(&id);
                return None;
            }
            PutKind::Restore { .. } | PutKind::Drop { .. } => return None,
            _ => self.newest + 1,
        };
        let row = StoredRow { id: id.clone(), version, until_us, level: 0, is_automatic, json };
        self.rows.insert(id, row.clone());
        Some(row)
    }
}

#[derive(Default)]
struct Process {
    table: LiveTable,
    since: u64,
}

impl Process {
    /// As `poll.rs` does.
    fn poll(&mut self, server: &mut Server, now_us: u64) {
        for row in server.page(self.since) {
            self.since = row.version;
            self.table.apply(row);
        }
        if self.table.sum() == server.sum() {
            return;
        }
        let all = server.page(0);
        let stored: HashMap<String, u64> = all.iter().map(|row| (row.id.clone(), row.version)).collect();
        for row in all {
            self.table.apply(row);
        }
        self.table.forget_missing(&stored, false, now_us);
        if self.table.sum() != server.sum() {
            for put in self.table.lost(&stored) {
                server.write(&put, self.table.newest(), now_us);
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set { process: usize, value: u8, multiplier: u64, lasts: Option<u64> },
    Remove { process: usize, value: u8 },
    Poll(usize),
    Sweep(usize),
    Wait(u64),
    Flush,
    Copy,
    Failover,
}

fn step() -> impl Strategy<Value = Step> {
    let process = 0..3_usize;
    prop_oneof![
        4 => (process.clone(), 0..4_u8, 1..9_u64, prop::option::of(1..40_u64))
            .prop_map(|(process, value, multiplier, lasts)| Step::Set { process, value, multiplier, lasts }),
        2 => (process.clone(), 0..4_u8).prop_map(|(process, value)| Step::Remove { process, value }),
        6 => process.clone().prop_map(Step::Poll),
        2 => process.prop_map(Step::Sweep),
        2 => (1..20_u64).prop_map(Step::Wait),
        1 => Just(Step::Wait(8 * 86_400)),
        1 => Just(Step::Flush),
        1 => Just(Step::Copy),
        1 => Just(Step::Failover),
    ]
}

proptest! {
    #[test]
    fn tables_end_equal_and_lose_no_row(steps in prop::collection::vec(step(), 1..60)) {
        let mut processes: [Process; 3] = Default::default();
        let (mut server, mut copy) = (Server::default(), Server::default());
        let mut written: HashMap<String, StoredRow> = HashMap::new();
        let mut now_us = NOW_US;
        for step in steps {
            // Versions are times: a later write's version is greater, whatever Redis lost.
            now_us += 1_000;
            match step {
                Step::Set { process, value, multiplier, lasts } => {
                    let until_us = lasts.map(|seconds| now_us + seconds * SECOND);
                    let kind = PutKind::Set { if_version: None };
                    let put = put(&value.to_string(), multiplier, kind, until_us);
                    let known = processes[process].table.newest();
                    let row = server.write(&put, known, now_us).expect("a set is written");
                    processes[process].table.apply(row.clone());
                    written.insert(row.id.clone(), row);
                }
                Step::Remove { process, value } => {
                    let put = RowPut { json: None, ..set(&value.to_string(), None) };
                    let known = processes[process].table.newest();
                    let row = server.write(&put, known, now_us).expect("a removal is written");
                    processes[process].table.apply(row.clone());
                    written.insert(row.id.clone(), row);
                }
                Step::Poll(process) => processes[process].poll(&mut server, now_us),
                Step::Sweep(process) => {
                    for put in processes[process].table.sweep(now_us).0 {
                        server.write(&put, 0, now_us);
                        processes[process].table.forget(&put.id);
                    }
                }
                Step::Wait(seconds) => {
                    // Nobody is cut off for 7 days.
                    for _ in 0..2 {
                        processes.iter_mut().for_each(|process| process.poll(&mut server, now_us));
                    }
                    if seconds * SECOND > KEPT_US {
                        // No replica is that far behind.
                        copy = server.clone();
                    }
                    now_us += seconds * SECOND;
                }
                Step::Flush => server = Server::default(),
                Step::Copy => copy = server.clone(),
                Step::Failover => server = copy.clone(),
            }
        }
        for _ in 0..4 {
            processes.iter_mut().for_each(|process| process.poll(&mut server, now_us));
        }
        for process in &processes {
            prop_assert_eq!(process.table.sum(), server.sum());
            for (id, row) in &written {
                let is_lasting = row.json.is_some() && row.until_us.is_none_or(|until_us| until_us > now_us);
                let stored = process.table.get(id).map(|known| known.stored());
                if is_lasting {
                    prop_assert_eq!(stored.as_ref(), Some(row));
                    prop_assert!(process.table.live().rows().any(|live| **live.source.name() == **id));
                } else {
                    // Forgotten, or as it was last.
                    prop_assert!(stored.is_none_or(|stored| stored == *row));
                }
            }
        }
    }

    #[test]
    fn the_order_of_rows_does_not_matter(
        rows in prop::collection::vec((0..5_u8, prop::option::of(1..9_u64)), 1..30)
            .prop_flat_map(|rows| (Just(rows.clone()), Just((0..rows.len()).collect::<Vec<_>>()).prop_shuffle()))
    ) {
        let (rows, order) = rows;
        let stored = |index: usize| {
            let (value, multiplier) = rows[index];
            let put = put(&value.to_string(), multiplier.unwrap_or(1), PutKind::Set { if_version: None }, None);
            let json = put.json.filter(|_| multiplier.is_some());
            let version = NOW_US + index as u64;
            StoredRow { id: put.id, version, until_us: None, level: 0, is_automatic: false, json }
        };
        let [mut first, mut second] = <[LiveTable; 2]>::default();
        for index in 0..rows.len() {
            first.apply(stored(index));
        }
        // Each row twice, as after a full read.
        for index in order.iter().chain(&order) {
            second.apply(stored(*index));
        }
        prop_assert_eq!(&first.rows, &second.rows);
        prop_assert_eq!(first.sum(), second.sum());
        let ids = |table: &LiveTable| {
            let mut ids: Vec<_> = table.live().rows().map(|row| row.source.clone()).collect();
            ids.sort_by(|one, other| one.name().cmp(other.name()));
            ids
        };
        prop_assert_eq!(ids(&first), ids(&second));
    }
}

#[test]
fn a_set_is_judged_by_its_version_and_all_rows_are_written_or_none() {
    let mut table = LiveTable::default();
    let first = version_of(&table.put_all(&[set("acme", Some(0))], NOW_US));
    assert_eq!(first, NOW_US);
    assert!(matches!(&table.put_all(&[set("acme", Some(0))], NOW_US)[..], [PutResult::Conflict(Some(_))]));
    let second = version_of(&table.put_all(&[set("acme", Some(first))], NOW_US - SECOND));
    assert_eq!(second, first + 1, "a clock that steps back does not lower a version");
    let results = table.put_all(&[set("other", None), set("acme", Some(first))], NOW_US);
    let expected = matches!(&results[..], [PutResult::Unwritten, PutResult::Conflict(Some(row))] if row.version == second);
    assert!(expected, "{results:?}");
    assert!(table.get(live_row("other", 2).id()).is_none());
    let removal = RowPut { json: None, ..set("acme", None) };
    let removed = version_of(&table.put_all(&[removal], NOW_US));
    assert!(table.live().is_empty());
    version_of(&table.put_all(&[set("acme", Some(0))], NOW_US));
    assert!(matches!(&table.put_all(&[set("acme", Some(removed))], NOW_US)[..], [PutResult::Conflict(_)]));
}

#[test]
fn bans_grow_until_their_maximum_and_start_anew_after_a_pause() {
    // for 300 s, grow 2, max 3,600 s; at s, until s (0: kept), level
    let table_of = [
        (2, 302, 0),
        (301, 0, 0),
        (364, 964, 1),
        (966, 2_166, 2),
        (2_166, 4_566, 3),
        (4_566, 8_166, 4),
        (8_200, 11_800, 5),
        (15_399, 18_999, 6),
        (22_599, 22_899, 0),
    ];
    let mut table = LiveTable::default();
    let kind = PutKind::Ban { for_us: 300 * SECOND, grow: 2, max_us: 3_600 * SECOND };
    for (at, until, level) in table_of {
        let results = table.put_all(&[put("evil", 2, kind, None)], NOW_US + at * SECOND);
        match &results[..] {
            [PutResult::Kept(_)] => assert_eq!(until, 0, "at {at}"),
            [PutResult::Written { until_us, level: found, .. }] => {
                let found_until = until_us.map(|until_us| (until_us - NOW_US) / SECOND);
                assert_eq!((found_until, *found), (Some(until), level), "at {at}");
            }
            results => panic!("at {at}: {results:?}"),
        }
    }
}

#[test]
fn feedback_only_extends() {
    let mut table = LiveTable::default();
    let mut until = |seconds: u64| {
        let put = put("stripe", 2, PutKind::Later, Some(NOW_US + seconds * SECOND));
        matches!(&table.put_all(&[put], NOW_US)[..], [PutResult::Written { .. }])
    };
    assert_eq!([until(30), until(20), until(30), until(31)], [true, false, false, true]);
}

#[test]
fn rows_that_are_over_are_forgotten_after_7_days_and_automatic_ones_when_there_are_many() {
    let mut table = LiveTable::default();
    table.put_all(&[put("acme", 2, PutKind::Set { if_version: None }, Some(NOW_US + 1))], NOW_US);
    let over_us = NOW_US + 1 + KEPT_US + CLOCK_RESERVE_US;
    // Nothing changes before the row ends, and then before it can be dropped.
    assert_eq!((table.live().len(), table.sweep(NOW_US)), (1, (vec![], NOW_US + 1)));
    assert_eq!(table.sweep(NOW_US + 1), (vec![], over_us));
    assert!(table.live().is_empty(), "an ended row is not for requests");
    assert_eq!(table.sweep(over_us - 1), (vec![], over_us));
    let (drops, due_us) = table.sweep(over_us);
    assert_eq!((drops.len(), due_us), (1, over_us));
    table.put_all(&drops, over_us);
    assert_eq!((table.rows.len(), table.sum(), table.present), (0, 0, 0));
    assert_eq!(table.sweep(over_us), (vec![], u64::MAX));

    let bans: Vec<_> = (0..=MANY_AUTOMATIC)
        .map(|index| put(&index.to_string(), 2, PutKind::Later, Some(NOW_US + 1 + index as u64)))
        .collect();
    table.put_all(&bans[1..], NOW_US);
    let later_us = NOW_US + SECOND + CLOCK_RESERVE_US;
    assert_eq!(table.sweep(later_us).0, vec![], "few enough");
    table.put_all(&bans[..1], NOW_US);
    let (drops, _) = table.sweep(later_us);
    assert_eq!((drops.len(), &drops[0].id, &drops[1].id), (MOST_DROPS, &bans[0].id, &bans[1].id));
}

#[test]
fn there_is_room_for_100_000_rows_and_20_000_automatic_ones() {
    let mut table = LiveTable::default();
    let automatic: Vec<_> =
        (0..20_000).map(|index| put(&index.to_string(), 2, PutKind::Later, Some(NOW_US + SECOND))).collect();
    let results = table.put_all(&automatic, NOW_US);
    assert!(results.iter().all(|result| matches!(result, PutResult::Written { .. })));
    let one_more = put("more", 2, PutKind::Later, Some(NOW_US + SECOND));
    assert_eq!(table.put_all(&[one_more], NOW_US), [PutResult::Full]);
    let others: Vec<_> = (20_000..100_000).map(|index| set(&index.to_string(), None)).collect();
    table.put_all(&others, NOW_US);
    assert_eq!(table.put_all(&[set("more", None)], NOW_US), [PutResult::Full]);
    version_of(&table.put_all(&others[..1], NOW_US));
}

#[test]
fn a_row_of_another_release_is_kept_and_changes_nothing() {
    let mut table = LiveTable::default();
    let row = live_row("acme", 2);
    let stored = |version, json: &str| StoredRow {
        id: row.id().to_string(),
        version,
        until_us: None,
        level: 0,
        is_automatic: false,
        json: Some(json.to_owned()),
    };
    assert_eq!(table.apply(stored(1, &row.stored())), Applied::Added);
    let unknown = r#"{"domain":"shop","key":"tenant","value":"acme","shape":"round"}"#;
    assert_eq!(table.apply(stored(2, unknown)), Applied::Unread);
    assert!(table.live().is_empty());
    let lost = table.lost(&HashMap::new());
    assert_eq!(lost.len(), 1);
    assert_eq!(
        (lost[0].json.as_deref(), lost[0].kind),
        (Some(unknown), PutKind::Restore { version: 2, level: 0 })
    );
    assert_eq!(table.apply(stored(3, &row.stored())), Applied::Added);
    assert_eq!(
        table.live().rows().map(|row| row.source.clone()).collect::<Vec<_>>(),
        [RowSource::Live { id: row.id().clone(), version: 3 }]
    );
}

#[test]
fn rows_share_what_they_say_and_what_no_row_says_is_forgotten() {
    let mut table = LiveTable::default();
    table.put_all(&[set("one", None), set("other", None)], NOW_US);
    let terms: Vec<_> = table.live().rows().map(|row| Arc::as_ptr(&row.terms)).collect();
    assert_eq!((terms.len(), terms[0]), (2, terms[1]));
    for reason in 0..3 * FEW_TERMS {
        let json = Some(live_row_for("one", 2, &reason.to_string()).stored());
        table.put_all(&[RowPut { json, ..set("one", None) }], NOW_US);
    }
    assert_eq!(table.live().len(), 2);
    assert!(table.terms.len() <= 2 * 2 + FEW_TERMS, "{}", table.terms.len());
}

#[test]
fn a_dropped_row_that_was_written_again_stays() {
    let mut table = LiveTable::default();
    let ended = put("acme", 2, PutKind::Set { if_version: None }, Some(NOW_US + SECOND));
    version_of(&table.put_all(&[ended], NOW_US));
    let later_us = NOW_US + 2 * KEPT_US;
    let (over, _) = table.sweep(later_us);
    assert_eq!(over.len(), 1);
    version_of(&table.put_all(&[set("acme", None)], later_us));
    assert_eq!(table.put_all(&over, later_us), [PutResult::Newer]);
    over.iter().for_each(|put| table.forget_dropped(put));
    assert_eq!(table.live().len(), 1, "the new row");
}

#[test]
fn rows_that_a_wrong_clock_ended_are_in_force_again() {
    let mut table = LiveTable::default();
    let rows = [("first", 30), ("second", 60)].map(|(value, minutes)| {
        put(value, 2, PutKind::Set { if_version: None }, Some(NOW_US + minutes * 60 * SECOND))
    });
    table.put_all(&rows, NOW_US);
    let mut rows_at = |minutes: u64| {
        table.sweep(NOW_US + minutes * 60 * SECOND);
        table.live().len()
    };
    assert_eq!([0, 40, 70, 40, 1].map(&mut rows_at), [2, 1, 0, 1, 2]);
}
