//! The slot map, redirects and failover.

use super::*;

/// The other node's error for a slot, `MOVED 100 b.test:7000`.
fn redirect(code: &'static str, call: &ReceivedCall) -> Reply {
    Reply::Error(match (code, call.host) {
        ("MOVED", "a.test") => "MOVED 100 b.test:7000",
        ("MOVED", _) => "MOVED 100 a.test:7000",
        ("ASK", "a.test") => "ASK 100 b.test:7000",
        ("ASK", _) => "ASK 100 a.test:7000",
        (other, _) => panic!("{other} has no address"),
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_goes_to_the_primary_that_serves_its_slot() {
    let case = case(|_| None);
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.calls(), [1, 0]);
    case.hit(HIGH).await.expect("an answer");
    assert_eq!(case.calls(), [1, 1]);
    assert_eq!(case.refreshes(), 1, "the slot map is loaded once");
}

#[tokio::test(start_paused = true)]
async fn after_moved_the_slot_belongs_to_the_named_node_and_the_slot_map_is_refreshed() {
    let case = case(|call| (call.host == "a.test").then(|| redirect("MOVED", call)));
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.calls(), [1, 1]);
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.calls(), [1, 2], "the slot is assigned to b.test");
    sleep(1_000 * MS).await;
    assert_eq!(case.refreshes(), 2);
}

#[tokio::test(start_paused = true)]
async fn ask_redirects_one_request_and_the_slot_stays_with_its_node() {
    let case = case(|call| (call.host == "a.test").then(|| redirect("ASK", call)));
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.nodes[1].commands("ASKING").len(), 1);
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.calls(), [2, 2], "the slot stays with a.test");
    assert_eq!(case.nodes[1].commands("ASKING").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_five_times_at_most_when_the_nodes_disagree() {
    let case = case(|call| Some(redirect("MOVED", call)));
    let refused = "the nodes disagree about which one serves the slot".to_owned();
    assert_eq!(case.hit(LOW).await, Err(StoreError::Refused(refused)));
    assert_eq!(case.calls(), [3, 2]);
}

#[tokio::test(start_paused = true)]
async fn after_tryagain_the_keys_of_a_request_are_decided_one_by_one() {
    // The migration has moved some of the keys: a call with several keys fails, a call with one key succeeds.
    let case = case(|call| {
        (call.key_count() > 1)
            .then_some(Reply::Error("TRYAGAIN Multiple keys request during rehashing of slot"))
    });
    let charges = charges(&[(LOW, Cost::take(1)), (LOW, Cost::take(1))]);
    let outcomes = case.decide(&charges).await.expect("an answer");
    assert_eq!(verdicts(&outcomes), [Verdict::Fits; 2]);
    // One key in a batch; one key in a call of its own; both keys in a batch; each key in a call of its own.
    assert_eq!(case.calls(), [5, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_for_one_key_is_repeated_until_the_key_has_migrated() {
    let refused = AtomicUsize::new(0);
    let case = case(move |_| {
        let is_first = refused.fetch_add(1, Ordering::Relaxed) < 2;
        is_first.then_some(Reply::Error("TRYAGAIN Multiple keys request during rehashing of slot"))
    });
    let started = Instant::now();
    case.hit(LOW).await.expect("an answer");
    assert_eq!((case.calls(), started.elapsed()), ([3, 0], 2 * MS));
}

#[tokio::test(start_paused = true)]
async fn clusterdown_fails_the_request_and_the_slot_map_is_refreshed() {
    let case = case(|_| Some(Reply::Error("CLUSTERDOWN Hash slot not served")));
    let down = StoreError::Refused("the cluster does not serve the slot".to_owned());
    assert_eq!(case.hit(LOW).await, Err(down));
    assert_eq!(case.calls(), [1, 0], "it is not repeated");
    sleep(1_000 * MS).await;
    assert_eq!(case.refreshes(), 2);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_the_slot_map_is_loaded() {
    let case = case(|_| None);
    case.nodes[0].handle(|command| match command[0].as_str() {
        "CLUSTER" => Some(Reply::After(5 * MS, Box::new(slots_reply(&halves())))),
        _ => None,
    });
    let started = Instant::now();
    case.hit(LOW).await.expect("an answer");
    assert_eq!(started.elapsed(), 5 * MS);
}

#[tokio::test(start_paused = true)]
async fn without_a_slot_map_requests_fail_with_the_reason() {
    let case = case(|_| None);
    case.nodes[0].handle(|command| match command[0].as_str() {
        "CLUSTER" => Some(Reply::Error("ERR This instance has cluster support disabled")),
        _ => None,
    });
    let reason = StoreError::Refused("ERR This instance has cluster support disabled".to_owned());
    assert_eq!(case.hit(LOW).await, Err(reason.clone()));
    assert_eq!(case.store.probe().await, Err(reason));
    case.nodes[0].handle(|command| (command[0] == "CLUSTER").then(|| slots_reply(&halves())));
    sleep(1_000 * MS).await;
    case.hit(LOW).await.expect("the slot map is loaded now");
    case.store.probe().await.expect("every primary decides");
}

#[tokio::test(start_paused = true)]
async fn a_probe_needs_the_decision_of_every_primary() {
    let case = case(|_| None);
    case.store.probe().await.expect("every primary decides");
    for node in &case.nodes {
        let hits = node.commands("EVALSHA");
        let keys: Vec<_> = hits.iter().map(|hit| hit[3].as_str()).collect();
        assert!(
            keys.len() == 2 && keys[0] == keys[1],
            "a hit that creates a counter and one that changes it"
        );
        assert!(keys[0].starts_with("ratelimitd:probe{"), "{keys:?}");
    }
    case.nodes[1].handle(|command| {
        (command[0] == "EVALSHA").then_some(Reply::Error("NOPERM no permissions to access a key"))
    });
    let denied = StoreError::Forbidden("NOPERM no permissions to access a key".to_owned());
    assert_eq!(case.store.probe().await, Err(denied));
}

#[tokio::test(start_paused = true)]
async fn a_request_for_a_slot_without_a_primary_fails() {
    let case = case(|_| None);
    case.slots.lock().truncate(1);
    case.hit(LOW).await.expect("an answer");
    assert_eq!(case.hit(HIGH).await, Err(StoreError::Unreachable("no primary serves the slot".into())));
}

#[tokio::test(start_paused = true)]
async fn after_a_failover_requests_go_to_the_new_primary() {
    let case = case(|_| None);
    case.hit(HIGH).await.expect("an answer");
    case.nodes[1].set_refuses(true);
    case.nodes[1].handle(|_| Some(Reply::Close));
    *case.slots.lock() = vec![(0, SLOTS - 1, "a.test")];
    case.hit(HIGH).await.expect_err("the call was sent, so it is not repeated");
    sleep(1_000 * MS).await;
    case.hit(HIGH).await.expect("the new primary answers");
    assert_eq!(case.store.nodes().len(), 1, "the old primary is gone");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_without_a_seed_does_not_start() {
    let options = RedisOptions { urls: Vec::new(), ..options() };
    let refused = RedisStore::new(&options, Arc::new(NoopObserver)).err();
    assert_eq!(refused, Some(OptionsError::NoUrl));
}

/// A reply to a poll without news.
fn no_rows() -> Reply {
    Reply::Array([0, 1, 0, 0].map(Reply::Int).into_iter().chain([Reply::Array(Vec::new())]).collect())
}

#[tokio::test(start_paused = true)]
async fn a_side_call_goes_to_the_node_of_its_slot_and_follows_redirects() {
    for code in ["MOVED", "ASK"] {
        // The slot of the rows, 11,777, is in the upper half.
        let case =
            case(move |call| Some(if call.host == "b.test" { redirect(code, call) } else { no_rows() }));
        for _ in 0..2 {
            case.store.poll_rows(0, "", "").await.expect("an answer");
        }
        let asked = case.nodes[0].commands("ASKING").len();
        let expected = if code == "ASK" { ([2, 2], 2) } else { ([2, 1], 0) };
        assert_eq!((case.calls(), asked), expected, "{code}");
    }
    let case = case(|call| Some(redirect("MOVED", call)));
    let refused = "the nodes disagree about which one serves the slot".to_owned();
    assert_eq!(case.store.poll_rows(0, "", "").await, Err(StoreError::Refused(refused)));
}

#[tokio::test(start_paused = true)]
async fn a_side_call_is_not_repeated_while_its_keys_are_on_two_nodes() {
    let case = case(|_| Some(Reply::Error("TRYAGAIN Multiple keys request during rehashing of slot")));
    let moving = "the keys are being moved to another node".to_owned();
    assert_eq!(case.store.poll_rows(0, "", "").await, Err(StoreError::Refused(moving)));
    assert_eq!(case.calls(), [0, 1]);
}
