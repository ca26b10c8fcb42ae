//! The rows that are set at run time, as Redis keeps them: kinds of writes, pages, sums, bounds, and damage.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ::redis::RedisResult;
use ::store::observer::NoopObserver;
use ::store::redis::{PutKind, PutResult, RedisStore, RowPut, RowsPage, StoredRow};
use engine::Cost;

use super::cluster::block_on;
use super::{decide_one, kernels, patient_options, sentinel, store};
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, run};
use crate::support::redis::sentinel::Monitored;
use crate::support::wait;

pub(super) const ROWS: &str = "it:{exceptions}:rows";
pub(super) const CHANGES: &str = "it:{exceptions}:changes";
pub(super) const INSTANCES: &str = "it:{exceptions}:instances";

const SECOND_US: u64 = 1_000_000;
const HOUR_US: u64 = 3_600 * SECOND_US;
const DAY_US: u64 = 24 * HOUR_US;

const SET: PutKind = PutKind::Set { if_version: None };
const BAN: PutKind = PutKind::Ban { for_us: HOUR_US, grow: 2, max_us: 3 * HOUR_US };

fn row(id: &str, kind: PutKind, until_us: Option<u64>, json: &str) -> RowPut {
    let is_automatic = matches!(kind, PutKind::Later | PutKind::Ban { .. });
    let json = (!json.is_empty()).then(|| json.to_owned());
    RowPut { id: id.to_owned(), kind, until_us, is_automatic, json }
}

async fn put(store: &RedisStore, row: RowPut) -> PutResult {
    store.put_rows(0, &[row]).await.expect("Redis answers").remove(0)
}

/// The version, the end and the level of a row that was written.
fn written(result: PutResult) -> (u64, Option<u64>, u32) {
    let PutResult::Written { version, until_us, level } = result else { panic!("{result:?}") };
    (version, until_us, level)
}

async fn poll(store: &RedisStore, since: u64) -> RowsPage {
    store.poll_rows(since, "it", "").await.expect("Redis answers")
}

/// All rows by id, read in pages.
pub(super) async fn all_rows(store: &RedisStore) -> BTreeMap<String, StoredRow> {
    let (mut rows, mut since) = (BTreeMap::new(), 0);
    loop {
        let page = poll(store, since).await;
        since = page.last;
        rows.extend(page.rows.into_iter().map(|row| (row.id.clone(), row)));
        if !page.is_full {
            let sum = rows.values().fold(0, |sum, row: &StoredRow| (sum + row.version) % (1 << 52));
            assert_eq!(page.sum, sum, "the sum is that of the rows");
            return rows;
        }
    }
}

async fn stored(store: &RedisStore, id: &str) -> Option<StoredRow> {
    all_rows(store).await.remove(id)
}

/// The hash and the sorted set have the same rows, and the totals are right.
async fn assert_consistent(redis: &Redis, store: &RedisStore) {
    let rows = all_rows(store).await;
    let hash: BTreeMap<String, String> = redis.run(&["HGETALL", ROWS]).expect("HGETALL");
    let ids: BTreeSet<&String> = hash.keys().filter(|id| !id.is_empty()).collect();
    assert_eq!(ids, rows.keys().collect());
    let scores: Vec<(String, f64)> =
        redis.run(&["ZRANGE", CHANGES, "0", "-1", "WITHSCORES"]).expect("ZRANGE");
    let scores: BTreeMap<String, u64> = scores.into_iter().map(|(id, score)| (id, score as u64)).collect();
    assert_eq!(scores, rows.iter().map(|(id, row)| (id.clone(), row.version)).collect());
    let there: Vec<&StoredRow> = rows.values().filter(|row| row.json.is_some()).collect();
    let automatic = there.iter().filter(|row| row.is_automatic).count();
    let totals = hash.get("").map_or_else(|| "0 0 0".to_owned(), Clone::clone);
    let (_, counts) = totals.split_once(' ').expect("a sum");
    assert_eq!(counts, format!("{} {automatic}", there.len()));
}

#[tokio::test]
async fn a_row_that_is_set_replaced_and_removed_has_rising_versions() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    assert_eq!(poll(&store, 0).await.rows, []);
    let json = r#"{"key":"tenant","value":"ac me\n","multiplier":"2"}"#;
    let (first, until_us, level) = written(put(&store, row("a", SET, Some(7 * DAY_US), json)).await);
    assert_eq!((until_us, level), (Some(7 * DAY_US), 0));
    let page = poll(&store, 0).await;
    assert!(first <= page.now_us && page.now_us - first < DAY_US, "a version is a time: {first}");
    let expected = StoredRow {
        id: "a".to_owned(),
        version: first,
        until_us,
        level: 0,
        is_automatic: false,
        json: Some(json.to_owned()),
    };
    assert_eq!(
        page,
        RowsPage {
            sum: first,
            now_us: page.now_us,
            last: first,
            rows: vec![expected],
            skipped: Vec::new(),
            is_full: false
        }
    );
    let (second, until_us, _) = written(put(&store, row("a", SET, None, "{}")).await);
    assert!(second > first && until_us.is_none());
    let (removed, ..) = written(put(&store, row("a", SET, None, "")).await);
    assert!(removed > second);
    assert_eq!(poll(&store, removed).await.rows, []);
    let page = poll(&store, second).await;
    assert_eq!((page.rows[0].version, &page.rows[0].json, page.sum), (removed, &None, removed));
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn a_set_with_a_version_needs_this_version_and_0_needs_that_no_row_is_in_force() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let with = |if_version| row("a", PutKind::Set { if_version: Some(if_version) }, None, "{}");
    assert_eq!(put(&store, with(5)).await, PutResult::Conflict(None));
    let (first, ..) = written(put(&store, with(0)).await);
    let there = stored(&store, "a").await;
    assert_eq!(put(&store, with(0)).await, PutResult::Conflict(there.clone()));
    assert_eq!(put(&store, with(first - 1)).await, PutResult::Conflict(there));
    let (second, ..) = written(put(&store, with(first)).await);
    let (removed, ..) = written(put(&store, RowPut { json: None, ..with(second) }).await);
    written(put(&store, with(0)).await);
    let gone = stored(&store, "a").await.map(|row| row.version);
    assert!(gone > Some(removed), "a removed row is no row");
    // A row that has ended is no row either.
    written(put(&store, row("b", SET, Some(1), "{}")).await);
    written(put(&store, RowPut { id: "b".to_owned(), ..with(0) }).await);
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn a_later_row_is_written_only_if_it_ends_later_than_the_row_in_force() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let now_us = poll(&store, 0).await.now_us;
    let later = |seconds: u64| row("a", PutKind::Later, Some(now_us + HOUR_US + seconds * SECOND_US), "{}");
    let ends = |seconds: u64| Some(now_us + HOUR_US + seconds * SECOND_US);
    assert_eq!(written(put(&store, later(30)).await).1, ends(30));
    for earlier in [15, 30] {
        let PutResult::Kept(kept) = put(&store, later(earlier)).await else { panic!("{earlier}") };
        assert_eq!((kept.until_us, kept.json.as_deref(), kept.is_automatic), (ends(30), Some("{}"), true));
    }
    assert_eq!(written(put(&store, later(40)).await).1, ends(40));
    written(put(&store, row("a", SET, None, "")).await);
    assert_eq!(written(put(&store, later(1)).await).1, ends(1), "the row was removed");
    written(put(&store, row("a", SET, Some(1), "{}")).await);
    assert_eq!(written(put(&store, later(1)).await).1, ends(1), "the row has ended");
    let endless = RowPut { until_us: None, ..later(0) };
    assert_eq!(written(put(&store, endless.clone()).await).1, None);
    assert!(matches!(put(&store, endless).await, PutResult::Kept(_)));
    assert!(matches!(put(&store, later(60)).await, PutResult::Kept(_)), "nothing ends later than never");
}

/// Bans the value, and returns the hours of the ban and its level.
async fn ban_hours(store: &RedisStore, ban: &RowPut) -> (u64, u32) {
    let (version, until_us, level) = written(put(store, ban.clone()).await);
    ((until_us.expect("an end") - version).div_ceil(HOUR_US), level)
}

/// Replaces the only row by a ban of this level that ended some time ago.
async fn ban_has_ended(store: &RedisStore, before_us: u64, level: u32) {
    let (removed, ..) = written(put(store, row("a", SET, None, "")).await);
    let until_us = Some(poll(store, 0).await.now_us - before_us);
    let kind = PutKind::Restore { version: removed + 1, level };
    let ended = RowPut { kind, ..row("a", BAN, until_us, "{}") };
    assert_eq!(written(put(store, ended).await), (removed + 1, until_us, level));
}

#[tokio::test]
async fn a_ban_is_longer_if_the_last_one_has_just_ended_and_a_value_in_a_ban_is_not_banned_again() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let ban = row("a", BAN, None, "{}");
    assert_eq!(ban_hours(&store, &ban).await, (1, 0));
    let PutResult::Kept(kept) = put(&store, ban.clone()).await else { panic!("it is banned") };
    assert_eq!((kept.level, kept.is_automatic), (0, true));
    // (how long the last ban has ended, its level, hours of the next ban, its level)
    let table = [
        (SECOND_US, 0, 2, 1),
        (SECOND_US, 1, 3, 2),
        (SECOND_US, 4_000, 3, 4_001),
        (3 * HOUR_US - 60 * SECOND_US, 0, 2, 1),
        (3 * HOUR_US, 1, 1, 0),
        (DAY_US, 5, 1, 0),
    ];
    for (before_us, level, hours, next) in table {
        ban_has_ended(&store, before_us, level).await;
        assert_eq!(ban_hours(&store, &ban).await, (hours, next), "{before_us} {level}");
    }
    written(put(&store, RowPut { is_automatic: true, ..row("a", SET, None, "") }).await);
    assert_eq!(ban_hours(&store, &ban).await, (1, 0), "who removes a ban removes its level");
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn a_restore_keeps_its_version_and_never_replaces_a_newer_row() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let restore = |version, json| row("a", PutKind::Restore { version, level: 3 }, Some(DAY_US), json);
    assert_eq!(written(put(&store, restore(1_000, "{}")).await), (1_000, Some(DAY_US), 3));
    assert_eq!(put(&store, restore(1_000, "{}")).await, PutResult::Newer);
    assert_eq!(put(&store, restore(999, "{}")).await, PutResult::Newer);
    assert_eq!(written(put(&store, restore(1_001, "")).await).0, 1_001, "a removal is restored as well");
    assert_eq!(poll(&store, 0).await.rows[0].json, None);
    let (set, ..) = written(put(&store, row("a", SET, None, "{}")).await);
    assert_eq!(put(&store, restore(set - 1, "")).await, PutResult::Newer);
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn only_rows_that_are_long_gone_are_dropped() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let now_us = poll(&store, 0).await.now_us;
    let (short, long) = (now_us - 6 * DAY_US, now_us - 7 * DAY_US - 1);
    // (name, version, end, automatic, removed, is dropped)
    let table = [
        ("permanent", long, None, false, false, false),
        ("in force", long, Some(now_us + HOUR_US), false, false, false),
        ("ban in force", long, Some(now_us + HOUR_US), true, false, false),
        ("ended", 1, Some(short), false, false, false),
        ("long ended", 2, Some(long), false, false, true),
        ("ended ban", 3, Some(now_us), true, false, true),
        ("removed", short, None, false, true, false),
        ("removed ban", short - 1, Some(1), true, true, false),
        ("long removed", long - 1, None, false, true, true),
    ];
    for (id, version, until_us, is_automatic, is_removed, is_dropped) in table {
        let restore = PutKind::Restore { version, level: 0 };
        let json = if is_removed { "" } else { "{}" };
        written(put(&store, RowPut { is_automatic, ..row(id, restore, until_us, json) }).await);
        let drop = |version| RowPut { is_automatic, ..row(id, PutKind::Drop { version }, None, "{}") };
        assert_eq!(put(&store, drop(version + 1)).await, PutResult::Newer, "{id}: another version");
        let result = put(&store, drop(version)).await;
        assert_eq!(matches!(result, PutResult::Written { version: 0, .. }), is_dropped, "{id}: {result:?}");
        assert_eq!(stored(&store, id).await.is_none(), is_dropped, "{id}");
    }
    assert_eq!(put(&store, row("unknown", PutKind::Drop { version: 1 }, None, "")).await, PutResult::Newer);
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn one_refused_row_leaves_all_rows_unwritten() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    written(put(&store, row("taken", SET, None, "{}")).await);
    let before = (all_rows(&store).await, redis.run::<Vec<String>>(&["HGETALL", ROWS]).expect("HGETALL"));
    let none = PutKind::Set { if_version: Some(0) };
    let puts = [
        row("new", SET, None, "{}"),
        row("ban", BAN, None, "{}"),
        row("taken", none, None, "{}"),
        row("old", PutKind::Drop { version: 1 }, None, ""),
    ];
    let results = store.put_rows(0, &puts).await.expect("Redis answers");
    let taken = before.0.get("taken").cloned();
    assert_eq!(
        results,
        [PutResult::Unwritten, PutResult::Unwritten, PutResult::Conflict(taken), PutResult::Newer]
    );
    assert_eq!((all_rows(&store).await, redis.run(&["HGETALL", ROWS]).expect("HGETALL")), before);
    // A row that is kept, newer or gone refuses nothing. An id may occur twice: the second write sees the first.
    let puts = [
        row("new", none, None, "{}"),
        row("new", none, None, "{}"),
        row("taken", PutKind::Restore { version: 1, level: 0 }, None, "{}"),
    ];
    let results = store.put_rows(0, &puts).await.expect("Redis answers");
    assert!(matches!(&results[1], PutResult::Conflict(Some(row)) if row.id == "new"), "{results:?}");
    let puts = [row("new", SET, None, "1"), row("new", SET, None, "2"), puts[2].clone()];
    let results = store.put_rows(0, &puts).await.expect("Redis answers");
    assert_eq!(results[2], PutResult::Newer);
    assert!(written(results[0].clone()).0 < written(results[1].clone()).0);
    assert_eq!(stored(&store, "new").await.and_then(|row| row.json).as_deref(), Some("2"));
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn versions_rise_although_the_clock_steps_back() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let now_us = poll(&store, 0).await.now_us;
    // Another instance has seen a version of a server whose clock was ahead.
    let ahead = now_us + DAY_US;
    let results = store.put_rows(ahead, &[row("a", SET, None, "{}"), row("b", SET, None, "{}")]).await;
    let versions: Vec<u64> = results.expect("Redis answers").into_iter().map(|put| written(put).0).collect();
    assert_eq!(versions, [ahead + 1, ahead + 2]);
    // The server has such a version, and the sender does not know it.
    let results = store.put_rows(5, &[row("c", SET, None, "{}"), row("a", SET, None, "")]).await;
    let versions: Vec<u64> = results.expect("Redis answers").into_iter().map(|put| written(put).0).collect();
    assert_eq!(versions, [ahead + 3, ahead + 4]);
    assert_eq!(all_rows(&store).await.len(), 3);
    // As scores of the sorted set, these are written with an exponent by some servers.
    let restore = PutKind::Restore { version: 2_000_000_000_000_000, level: 0 };
    written(put(&store, row("round", restore, None, "{}")).await);
    assert_eq!(written(put(&store, row("d", SET, None, "{}")).await).0, 2_000_000_000_000_001);
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn thousands_of_rows_are_read_in_pages() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let ids: Vec<String> = (0..2_500).map(|n| format!("row{n:04}")).collect();
    for ids in ids.chunks(1_000) {
        let puts: Vec<RowPut> = ids.iter().map(|id| row(id, SET, None, &"j".repeat(100))).collect();
        let results = store.put_rows(0, &puts).await.expect("Redis answers");
        assert!(results.iter().all(|result| matches!(result, PutResult::Written { .. })));
    }
    let (mut since, mut sizes, mut seen) = (0, Vec::new(), Vec::new());
    loop {
        let page = poll(&store, since).await;
        since = page.last;
        sizes.push((page.rows.len(), page.is_full));
        seen.extend(page.rows.into_iter().map(|row| row.id));
        if !page.is_full {
            break;
        }
    }
    assert_eq!(sizes, [(1_000, true), (1_000, true), (500, false)]);
    assert_eq!(seen, ids, "in the order of the writes");
    assert_consistent(&redis, &store).await;
}

#[tokio::test]
async fn the_number_of_rows_is_bounded() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    written(put(&store, row("a", SET, None, "{}")).await);
    let ban = row("ban", BAN, None, "{}");
    written(put(&store, ban.clone()).await);
    let sum = poll(&store, 0).await.sum;
    let set_counts = |count: u32, automatic: u32| {
        redis.run::<()>(&["HSET", ROWS, "", &format!("{sum} {count} {automatic}")]).expect("HSET");
    };
    set_counts(99_999, 20_000);
    let another_ban = RowPut { id: "ban 2".to_owned(), ..ban.clone() };
    assert_eq!(put(&store, another_ban.clone()).await, PutResult::Full, "20,000 bans");
    let puts = [row("b", SET, None, "{}"), row("c", SET, None, "{}")];
    let results = store.put_rows(0, &puts).await.expect("Redis answers");
    assert_eq!(results, [PutResult::Unwritten, PutResult::Full], "one is room for, two are not");
    set_counts(100_000, 19_999);
    assert_eq!(put(&store, another_ban.clone()).await, PutResult::Full);
    assert_eq!(put(&store, puts[0].clone()).await, PutResult::Full);
    assert!(matches!(put(&store, ban).await, PutResult::Kept(_)));
    written(put(&store, row("a", SET, None, "{\"changed\":1}")).await);
    written(put(&store, row("unknown", SET, None, "")).await);
    let restore = PutKind::Restore { version: 1, level: 0 };
    written(put(&store, row("restored", restore, None, "{}")).await);
    written(put(&store, row("a", SET, None, "")).await);
    written(put(&store, row("restored", SET, None, "")).await);
    written(put(&store, puts[0].clone()).await);
}

#[tokio::test]
async fn a_row_that_another_program_damages_is_named_and_forgotten_and_others_stay() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let ids = ["a", "b", "c", "d", "e", "f"];
    for id in ids {
        written(put(&store, row(id, SET, None, "{}")).await);
    }
    let rows = all_rows(&store).await;
    let b = rows["b"].clone();
    let damage = |id: &str, text: &str| redis.run::<()>(&["HSET", ROWS, id, text]).expect("HSET");
    damage("a", "garbage");
    damage("b", "");
    damage("c", &format!("{} 0 0 2 {{}}", rows["c"].version));
    damage("d", &format!("{} 0 0 0 {{}}", rows["d"].version + 1));
    redis.run::<()>(&["HDEL", ROWS, "e"]).expect("HDEL");
    damage("not in the sorted set", &format!("{} 0 0 0 {{}}", rows["f"].version + 1));
    let page = poll(&store, 0).await;
    assert_eq!(page.skipped, ["a", "b", "c", "d", "e"]);
    assert_eq!((page.rows, page.sum), (vec![rows["f"].clone()], rows["f"].version));
    let page = poll(&store, 0).await;
    assert!(page.skipped.is_empty() && page.rows.len() == 1, "{page:?}");
    // An instance that has the row gives it back.
    let restore = PutKind::Restore { version: b.version, level: b.level };
    written(put(&store, row("b", restore, b.until_us, "{}")).await);
    written(put(&store, row("not in the sorted set", SET, None, "{}")).await);
    assert_eq!(stored(&store, "b").await, Some(b));
    assert_consistent(&redis, &store).await;
    // JSON and ids that are not UTF-8 harm nothing else.
    let version = poll(&store, 0).await.last;
    let bad = [&format!("{version} 0 0 0 ").into_bytes()[..], &[0xff, b'x']].concat();
    let mut connection =
        redis::Client::open(redis.url()).and_then(|client| client.get_connection()).expect("a connection");
    let mut hset = redis::cmd("HSET");
    hset.arg(ROWS).arg("not in the sorted set").arg(bad).query::<()>(&mut connection).expect("HSET");
    let row = stored(&store, "not in the sorted set").await.expect("a row");
    assert_eq!(row.json.as_deref(), Some("\u{fffd}x"));
}

#[tokio::test]
async fn a_server_that_has_evicted_a_key_has_no_rows_until_they_are_restored() {
    for evicted in [ROWS, CHANGES] {
        let redis = Redis::start();
        let store = store(&patient_options(&redis.url()));
        for id in ["a", "b"] {
            written(put(&store, row(id, SET, None, "{}")).await);
        }
        let rows = all_rows(&store).await;
        redis.run::<()>(&["DEL", evicted]).expect("DEL");
        let page = poll(&store, 0).await;
        assert_eq!((page.sum, page.rows), (0, Vec::new()), "{evicted}");
        for row in rows.values() {
            let kind = PutKind::Restore { version: row.version, level: row.level };
            let (id, until_us, is_automatic) = (row.id.clone(), row.until_us, row.is_automatic);
            written(put(&store, RowPut { id, kind, until_us, is_automatic, json: row.json.clone() }).await);
        }
        assert_eq!(all_rows(&store).await, rows);
        assert_consistent(&redis, &store).await;
    }
}

#[tokio::test]
async fn instances_say_what_they_have_and_are_forgotten_after_a_day() {
    let redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    assert_eq!(store.instances().await, Ok(Vec::new()));
    for (name, status) in [("a", "1 2\n3"), ("b", "{}"), ("a", r#"{"at":1}"#), ("b", "")] {
        store.poll_rows(0, name, status).await.expect("Redis answers");
    }
    let now_us = poll(&store, 0).await.now_us;
    let polled = |age_us: u64, status: &str| format!("{} {status}", now_us - age_us);
    for (name, text) in
        [("old", polled(DAY_US, "{}")), ("late", polled(HOUR_US, "{}")), ("bad", "x".to_owned())]
    {
        redis.run::<()>(&["HSET", INSTANCES, name, &text]).expect("HSET");
    }
    let mut instances = store.instances().await.expect("Redis answers");
    instances.sort_by(|one, other| one.name.cmp(&other.name));
    let found: Vec<(&str, &str, bool)> = instances
        .iter()
        .map(|instance| (&*instance.name, &*instance.status, instance.age_us >= HOUR_US))
        .collect();
    assert_eq!(found, [("a", r#"{"at":1}"#, false), ("b", "{}", false), ("late", "{}", true)]);
    assert!(instances.iter().all(|instance| instance.age_us < 2 * HOUR_US), "{instances:?}");
    let left: BTreeSet<String> = redis.run(&["HKEYS", INSTANCES]).expect("HKEYS");
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn many_connections_set_and_remove_one_row() {
    let redis = Redis::start();
    let writer = || {
        block_on(async {
            let store = store(&patient_options(&redis.url()));
            let mut versions = Vec::new();
            for n in 0..200 {
                let json = if n % 2 == 0 { "{}" } else { "" };
                versions.push(written(put(&store, row("a", SET, None, json)).await).0);
                if n % 10 == 0 {
                    poll(&store, 0).await;
                }
            }
            assert!(versions.is_sorted(), "versions rise");
            versions
        })
    };
    let versions: Vec<u64> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8).map(|_| scope.spawn(writer)).collect();
        writers.into_iter().flat_map(|writer| writer.join().expect("a writer ends")).collect()
    });
    let distinct: BTreeSet<u64> = versions.iter().copied().collect();
    assert_eq!(distinct.len(), 8 * 200);
    block_on(async {
        let store = store(&patient_options(&redis.url()));
        assert_eq!(all_rows(&store).await["a"].version, *distinct.last().expect("a version"));
        assert_consistent(&redis, &store).await;
    });
}

/// The commands of these rows of the table in docs/redis.md, as rules of an ACL.
fn documented_commands(reasons: &[&str]) -> Vec<String> {
    let page = std::fs::read_to_string("docs/redis.md").expect("docs/redis.md");
    let (_, table) = page.split_once("| commands | for |").expect("the table of commands");
    let is_wanted = |line: &&str| reasons.iter().any(|reason| line.ends_with(&format!("| {reason} |")));
    let lines: Vec<&str> = table.lines().filter(is_wanted).collect();
    assert_eq!(lines.len(), reasons.len(), "{lines:?}");
    let commands = lines.iter().flat_map(|line| line.split('`').skip(1).step_by(2));
    commands.map(|command| format!("+{}", command.replace(' ', "|").to_lowercase())).collect()
}

#[tokio::test]
async fn the_documented_commands_suffice() {
    let redis = Redis::start();
    let mut rules = ["ACL", "SETUSER", "limiter", "reset", "on", ">hunter2", "~it:*", "-@all"]
        .map(str::to_owned)
        .to_vec();
    rules.extend(documented_commands(&["every decision", "exceptions that are set at run time"]));
    redis.run::<()>(&rules.iter().map(String::as_str).collect::<Vec<_>>()).expect("ACL SETUSER");
    let store = store(&patient_options(&format!("redis://limiter:hunter2@127.0.0.1:{}", redis.port())));
    written(put(&store, row("a", SET, None, "{}")).await);
    written(put(&store, row("ban", BAN, None, "{}")).await);
    let old = PutKind::Restore { version: 1, level: 0 };
    written(put(&store, row("old", old, None, "")).await);
    written(put(&store, row("old", PutKind::Drop { version: 1 }, None, "")).await);
    store.poll_rows(0, "a", "{}").await.expect("a poll");
    redis.run::<()>(&["HSET", INSTANCES, "old", "1 {}"]).expect("HSET");
    assert_eq!(store.instances().await.expect("instances").len(), 1);
    redis.run::<()>(&["HSET", ROWS, "a", "garbage"]).expect("HSET");
    assert_eq!(poll(&store, 0).await.skipped, ["a"]);
    redis.run::<()>(&["DEL", ROWS]).expect("DEL");
    assert_eq!(poll(&store, 0).await.sum, 0);
    // The user needs each of these commands.
    for command in documented_commands(&["exceptions that are set at run time"]) {
        let used = commands_used(&redis, command.trim_start_matches('+'));
        assert!(used.expect("INFO") > 0, "{command} is not used");
    }
}

/// How often a server has run a command.
fn commands_used(redis: &Redis, command: &str) -> RedisResult<u64> {
    let stats: String = redis.run(&["INFO", "commandstats"])?;
    let prefix = format!("cmdstat_{command}:calls=");
    let calls = stats.lines().find_map(|line| line.strip_prefix(&prefix)?.split(',').next()?.parse().ok());
    Ok(calls.unwrap_or(0))
}

#[tokio::test]
async fn a_server_that_has_forgotten_the_script_gets_its_text() {
    let redis = Redis::start();
    let store =
        RedisStore::new(&patient_options(&redis.url()), Arc::new(NoopObserver)).expect("good options");
    written(put(&store, row("a", SET, None, "{}")).await);
    redis.run::<()>(&["SCRIPT", "FLUSH"]).expect("SCRIPT FLUSH");
    assert_eq!(poll(&store, 0).await.rows.len(), 1);
    assert_eq!(commands_used(&redis, "eval"), Ok(1));
    poll(&store, 0).await;
    assert_eq!(commands_used(&redis, "eval"), Ok(1), "from then on it has the script again");
}

#[tokio::test]
async fn a_server_that_starts_again_is_used_again_and_decisions_have_their_own_connections() {
    let mut redis = Redis::start();
    let store = store(&patient_options(&redis.url()));
    let (_, kernel) = kernels(10)[0];
    let opened = async || (store.connections_opened() == 2).then_some(());
    wait::until_async(wait::PATIENCE, opened).await.expect("connections for decisions");
    for _ in 0..3 {
        poll(&store, 0).await;
    }
    let clients: String = redis.run(&["CLIENT", "LIST"]).expect("CLIENT LIST");
    assert_eq!(clients.lines().count(), 2 + 1 + 1, "decisions, polls, and this test: {clients}");
    decide_one(&store, kernel, "k", Cost::take(1)).await.expect("a decision");
    redis.stop();
    store.poll_rows(0, "it", "").await.expect_err("the server is gone");
    store.put_rows(0, &[row("a", SET, None, "{}")]).await.expect_err("the server is gone");
    redis.restart();
    written(put(&store, row("a", SET, None, "{}")).await);
    assert_eq!(all_rows(&store).await.len(), 1);
}

#[test]
fn a_cluster_keeps_the_rows_in_one_slot_and_the_slot_may_move() {
    let cluster = Cluster::start();
    block_on(async {
        let store = super::cluster::cluster_store(&cluster);
        for id in ["a", "b"] {
            written(put(&store, row(id, SET, None, "{}")).await);
        }
        store.poll_rows(0, "it", "{}").await.expect("a poll");
        let rows = all_rows(&store).await;
        let from = cluster.primary_of(ROWS);
        let slot = run::<u16>(&cluster.nodes()[0], &["CLUSTER", "KEYSLOT", ROWS]).to_string();
        assert_eq!(run::<u64>(&cluster.nodes()[from], &["DBSIZE"]), 3);
        let to = (from + 1) % 3;
        cluster.begin_move(&slot, from, to);
        assert_eq!(all_rows(&store).await, rows, "the keys are still here");
        while cluster.move_some(&slot, from, to) {}
        assert_eq!(all_rows(&store).await, rows, "ASK");
        written(put(&store, row("c", SET, None, "{}")).await);
        cluster.end_move(&slot, from, to);
        assert_eq!(all_rows(&store).await.len(), 3, "MOVED");
        assert_eq!(all_rows(&super::cluster::cluster_store(&cluster)).await.len(), 3);
        assert_eq!(run::<u64>(&cluster.nodes()[from], &["DBSIZE"]), 0);
    });
}

#[test]
fn after_a_failover_the_new_primary_of_the_sentinels_has_the_rows() {
    let mut monitored = Monitored::start();
    let mut options = sentinel::options(&monitored);
    options.timeout = Duration::from_millis(100);
    block_on(async {
        let store = store(&options);
        written(put(&store, row("a", SET, None, "{}")).await);
        wait::expect("the replica to have the row", || {
            monitored.replica.run::<bool>(&["HEXISTS", ROWS, "a"]).is_ok_and(|exists| exists)
        });
        monitored.fail_over();
        let replica = wait::until_async(wait::PATIENCE, async || {
            // Until the failover is over, the old primary may answer, or none. The new one closes its connections.
            let page = store.poll_rows(0, "it", "").await.ok()?;
            commands_used(&monitored.replica, "zrangebyscore").is_ok_and(|used| used > 0).then_some(page)
        });
        let page = replica.await.expect("the new primary answers");
        assert_eq!(page.rows.len(), 1, "{page:?}");
        written(put(&store, row("b", SET, None, "{}")).await);
    });
}
