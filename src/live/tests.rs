//! Pauses and changes without Redis, and with a Redis that is away.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicUsize;

use base::clock::ManualClock;
use engine::RuleSet;
use futures_util::future::join_all;
use serde_json::json;
use store::observer::NoopObserver;
use store::redis::RedisOptions;

use super::*;

/// 2026-11-26T13:46:40Z.
const NOW_US: u64 = 1_795_700_800_000_000;
const SECOND: u64 = 1_000_000;

struct Tested {
    live: LiveExceptions,
    rulebook: Arc<Rulebook>,
    clock: Arc<ManualClock>,
    changes: Arc<AtomicUsize>,
}

impl Tested {
    fn new(keeper: Keeper) -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let rulebook = Arc::new(Rulebook::new(RuleSet::empty(), metrics.clone()));
        let clock = Arc::new(ManualClock::at(NOW_US));
        let changes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&changes);
        let live = LiveExceptions::new(LiveOptions {
            keeper,
            rulebook: Arc::clone(&rulebook),
            metrics,
            clock: Arc::clone(&clock) as _,
            on_change: Box::new(move || {
                counted.fetch_add(1, Ordering::Relaxed);
            }),
            mask: Arc::new(|_, _, _| "…".to_owned()),
            confirmed_at: Arc::default(),
            instance: "test".to_owned(),
            status: Arc::new(|_| String::new()),
        });
        Self { live, rulebook, clock, changes }
    }

    /// When each row for requests ends, in seconds after `NOW_US`.
    fn ends(&self) -> Vec<Option<u64>> {
        let rules = self.rulebook.rules();
        let rows = rules.live_rows().into_iter().flat_map(LiveRows::rows);
        rows.map(|row| row.until_us.map(|until_us| (until_us - NOW_US) / SECOND)).collect()
    }

    async fn pause(&self, end: PauseEnd) -> Result<Paused, LiveError> {
        let pause = Pause {
            domain: "shop".into(),
            key: "api".into(),
            value: "stripe".into(),
            path: Some("api".into()),
            reason: "12 denials within 1m".to_owned(),
            end,
        };
        self.live.pause(pause).await
    }

    async fn feedback(&self, seconds: u64) -> Result<Paused, LiveError> {
        self.pause(PauseEnd::Feedback { until_us: NOW_US + seconds * SECOND }).await
    }
}

fn author() -> Author {
    Author { reason: Some("INC-42".to_owned()), by: None, peer: IpAddr::V4(Ipv4Addr::LOCALHOST) }
}

#[tokio::test]
async fn a_ban_is_in_effect_at_once_and_grows_until_it_is_removed() {
    let tested = Tested::new(Keeper::Process);
    let ban = || tested.pause(PauseEnd::Ban { for_us: 300 * SECOND, grow: 2, max_us: 3_600 * SECOND });
    let banned = |seconds: u64, level| Paused::Set { until_us: Some(NOW_US + seconds * SECOND), level };
    assert_eq!(ban().await.expect("room"), banned(300, 0));
    assert_eq!((tested.ends(), tested.changes.load(Ordering::Relaxed)), (vec![Some(300)], 1));
    assert_eq!(ban().await.expect("room"), Paused::Kept);
    assert_eq!(tested.changes.load(Ordering::Relaxed), 1);
    tested.clock.set(NOW_US + 400 * SECOND);
    assert_eq!(ban().await.expect("room"), banned(1_000, 1));
    let value = json!({"domain": "shop", "key": "api", "value": "stripe"});
    let removed = tested.live.remove(vec![value.clone()], &[], &author()).await.expect("a row");
    assert_eq!((removed.len(), tested.ends()), (1, vec![]));
    assert_eq!(ban().await.expect("room"), banned(700, 0), "growth is forgotten");
    assert!(matches!(
        tested.live.remove(vec![json!({"domain": "shop", "key": "api", "value": "x"})], &[], &author()).await,
        Err(LiveError::NoRow)
    ));
}

#[tokio::test]
async fn feedback_counts_if_it_ends_more_than_a_second_later() {
    let tested = Tested::new(Keeper::Process);
    for (seconds, is_kept, end) in [(30, false, 30), (20, true, 30), (31, true, 30), (32, false, 32)] {
        let paused = tested.feedback(seconds).await.expect("room");
        assert_eq!((paused == Paused::Kept, tested.ends()), (is_kept, vec![Some(end)]), "{seconds}");
    }
}

#[tokio::test]
async fn feedback_takes_effect_while_redis_is_away_and_other_changes_do_not() {
    // Nothing listens there.
    let urls = vec!["redis://127.0.0.1:1".parse().expect("a valid URL")];
    let options = RedisOptions { urls, ..RedisOptions::default() };
    let redis = RedisStore::new(&options, Arc::new(NoopObserver)).expect("valid options");
    let tested = Tested::new(Keeper::Redis(redis));
    let paused = tested.feedback(30).await.expect("room");
    assert_eq!(paused, Paused::Set { until_us: Some(NOW_US + 30 * SECOND), level: 0 });
    assert_eq!(tested.ends(), [Some(30)]);
    let ban = tested.pause(PauseEnd::Ban { for_us: SECOND, grow: 1, max_us: SECOND }).await;
    assert!(matches!(ban, Err(LiveError::Unavailable(_))), "{ban:?}");
    let row = json!({"domain": "shop", "key": "tenant", "value": "acme", "limit": 5});
    let set = tested.live.set(vec![row], &author()).await;
    assert!(matches!(set, Err(LiveError::Unavailable(_))), "{set:?}");
    assert_eq!(tested.ends(), [Some(30)], "nothing else has changed");
}

#[tokio::test]
async fn changes_at_the_same_time_are_all_in_effect_when_they_return() {
    let tested = Tested::new(Keeper::Process);
    let set = |value: usize| {
        let row = json!({"domain": "shop", "key": "tenant", "value": value.to_string(), "limit": 5});
        let (live, rulebook) = (&tested.live, &tested.rulebook);
        async move {
            let set = live.set(vec![row], &author()).await.expect("a good row");
            let rules = rulebook.rules();
            let mut rows = rules.live_rows().into_iter().flat_map(LiveRows::rows);
            assert!(rows.any(|row| **row.source.name() == *set[0].id));
        }
    };
    join_all((0..100).map(set)).await;
    assert_eq!(tested.ends().len(), 100);
    assert_eq!(tested.live.list(&ListRows { limit: Some(60), ..ListRows::default() }).0.len(), 60);
}

#[tokio::test]
async fn a_list_has_pages() {
    let tested = Tested::new(Keeper::Process);
    let rows = (0..7).map(|n| json!({"domain": "shop", "key": "tenant", "value": n.to_string(), "limit": 5}));
    tested.live.set(rows.collect(), &author()).await.expect("good rows");
    let (mut after, mut ids) = (String::new(), Vec::new());
    loop {
        let (page, has_more) = tested.live.list(&ListRows { after, limit: Some(3), ..ListRows::default() });
        ids.extend(page.iter().map(|row| row.id.clone()));
        after = page.last().expect("a row").id.clone();
        if !has_more {
            break;
        }
    }
    assert_eq!(ids.len(), 7);
    assert!(ids.is_sorted());
    let other = ListRows { domain: Some("other".to_owned()), ..ListRows::default() };
    assert!(tested.live.list(&other).0.is_empty());
}

#[tokio::test]
async fn rows_of_operators_are_listed_first_and_each_row_once() {
    let tested = Tested::new(Keeper::Process);
    for n in 0..8 {
        let row = json!({"domain": "shop", "key": "tenant", "value": n.to_string(), "limit": 5});
        tested.live.set(vec![row], &author()).await.expect("a good row");
        let pause = Pause {
            domain: "shop".into(),
            key: "api".into(),
            value: n.to_string().into(),
            path: Some("api".into()),
            reason: "12 denials within 1m".to_owned(),
            end: PauseEnd::Feedback { until_us: NOW_US + SECOND },
        };
        tested.live.pause(pause).await.expect("room");
    }
    let (mut after, mut rows) = (String::new(), Vec::<(bool, String)>::new());
    loop {
        let (page, has_more) = tested.live.list(&ListRows { after, limit: Some(3), ..ListRows::default() });
        rows.extend(page.into_iter().map(|row| (row.origin == "feedback", row.id)));
        after = rows.last().expect("a row").1.clone();
        if !has_more {
            break;
        }
    }
    assert_eq!(rows.len(), 16);
    assert!(rows.is_sorted() && rows[7].0 != rows[8].0, "{rows:?}");
}

#[tokio::test]
async fn lists_and_counts_are_right_when_they_are_read() {
    let tested = Tested::new(Keeper::Process);
    let row = json!({"domain": "shop", "key": "tenant", "value": "acme", "limit": 5, "until": "1m",
        "from": "2026-11-26T13:46:50Z"});
    tested.live.set(vec![row], &author()).await.expect("a good row");
    let table =
        [(0, 0, "later"), (9, 0, "later"), (10, 1, "in_force"), (59, 1, "in_force"), (60, 0, "ended")];
    for (seconds, rows, state) in table {
        tested.clock.set(NOW_US + seconds * SECOND);
        let view = tested.live.view();
        let listed = tested.live.list(&ListRows { ended: true, ..ListRows::default() }).0;
        assert_eq!((view.origins.iter().sum::<u64>(), listed[0].state), (rows, state), "{seconds}");
    }
}
