use std::sync::atomic::AtomicBool;

use engine::algorithm::Slots;
use engine::{Charge, Charging, Cost, FailurePolicy, Grant, Role};
use futures_util::FutureExt;
use tokio::task::JoinSet;

use super::*;
use crate::memory::{MemoryOptions, MemoryStore};
use base::clock::ManualClock;

const TIMEOUT: Duration = Duration::from_millis(50);
const HOLD_US: u64 = 60_000_000;

/// Records every request before it answers.
#[derive(Debug)]
struct Below {
    memory: MemoryStore<ManualClock>,
    /// Answered instead.
    failure: Mutex<Option<StoreError>>,
    /// Never answers.
    hangs: AtomicBool,
    requests: AtomicU64,
}

impl Store for Below {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let outcomes = self.memory.decide_at(charges, 1_000_000);
        if self.hangs.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.failure.lock().clone().map_or(Ok(outcomes), Err)
    }
}

struct Fixture {
    below: Arc<Below>,
    layer: ReleaseLater<Arc<Below>>,
    releases: Arc<Releases>,
    stop: CancellationToken,
    task: JoinSet<()>,
}

impl Fixture {
    fn new() -> Self {
        let memory = MemoryStore::new(MemoryOptions::default(), ManualClock::at(1_000_000));
        let (failure, hangs, requests) = (Mutex::new(None), AtomicBool::new(false), AtomicU64::new(0));
        let below = Arc::new(Below { memory, failure, hangs, requests });
        let releases = Arc::<Releases>::default();
        let layer = ReleaseLater::new(Arc::clone(&below), Arc::clone(&releases), TIMEOUT);
        Self { below, layer, releases, stop: CancellationToken::new(), task: JoinSet::new() }
    }

    fn run(mut self) -> Self {
        let task = run(Arc::clone(&self.releases), Arc::clone(&self.below), self.stop.clone());
        self.task.spawn(task);
        self
    }

    fn fail(&self, failure: Option<StoreError>) {
        *self.below.failure.lock() = failure;
    }

    /// Open slots in the store below.
    fn open(&self) -> u64 {
        let outcomes = self.below.memory.decide_at(&charges(Cost::PEEK), 1_000_000);
        5 - outcomes.by_charge[0].report.remaining
    }

    fn waiting(&self) -> u64 {
        self.releases.stats().waiting
    }
}

fn charges(cost: Cost) -> Charges {
    let kernel = Kernel::Slots(Slots::new(5, HOLD_US));
    let role = if cost.is_refund() { Role::Settle } else { Role::Enforce };
    let charging = if cost.is_refund() { Charging::Postpaid } else { Charging::Prepaid };
    let mut charges = Charges::default();
    let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Allow };
    charges.push(charge, |key| key.push('k'));
    charges
}

fn returned(id: u64) -> Cost {
    Cost::undo(1, Grant { id, limit: None })
}

#[tokio::test(start_paused = true)]
async fn a_take_that_was_cancelled_is_released_after_twice_the_timeout() {
    let fixture = Fixture::new().run();
    fixture.below.hangs.store(true, Ordering::Relaxed);
    assert!(fixture.layer.decide(&charges(Cost::slot(1))).now_or_never().is_none());
    fixture.below.hangs.store(false, Ordering::Relaxed);
    assert_eq!((fixture.open(), fixture.waiting()), (1, 1));
    tokio::time::sleep(2 * TIMEOUT - Duration::from_millis(1)).await;
    assert_eq!(fixture.open(), 1, "the take may still be on its way");
    tokio::time::sleep(Duration::from_millis(2)).await;
    assert_eq!((fixture.open(), fixture.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_take_without_an_answer_is_released_but_not_one_that_was_not_sent() {
    let fixture = Fixture::new();
    let open = StoreError::Open(Arc::new(StoreError::Timeout));
    for (failure, waiting) in [(StoreError::Overloaded, 0), (open, 0), (StoreError::Timeout, 1)] {
        fixture.fail(Some(failure.clone()));
        assert!(fixture.layer.decide(&charges(Cost::slot(1))).await.is_err());
        assert_eq!(fixture.waiting(), waiting, "{failure}");
    }
    fixture.fail(None);
    let fixture = fixture.run();
    tokio::time::sleep(3 * TIMEOUT).await;
    assert_eq!((fixture.open(), fixture.waiting()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_failed_is_sent_again_until_the_store_answers() {
    let fixture = Fixture::new().run();
    fixture.layer.decide(&charges(Cost::slot(1))).await.expect("an answer");
    fixture.fail(Some(StoreError::Timeout));
    // The memory below released it; the same id again stands for a lost release.
    assert!(fixture.layer.decide(&charges(returned(1))).await.is_err());
    assert!(!fixture.below.memory.decide_at(&charges(Cost::slot(1)), 1_000_000).is_over(0));
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(fixture.waiting(), 1, "the store fails still");
    fixture.fail(None);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((fixture.open(), fixture.waiting()), (0, 0));
    let before = fixture.below.requests.load(Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fixture.below.requests.load(Ordering::Relaxed), before, "nothing is sent without need");
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_has_ended_is_not_released_any_more() {
    let fixture = Fixture::new().run();
    fixture.fail(Some(StoreError::Timeout));
    assert!(fixture.layer.decide(&charges(returned(1))).await.is_err());
    tokio::time::sleep(Duration::from_micros(HOLD_US) + 2 * RETRY).await;
    assert_eq!(fixture.waiting(), 0);
}

#[tokio::test(start_paused = true)]
async fn answers_renewals_peeks_and_other_limits_leave_nothing_to_release() {
    let fixture = Fixture::new();
    fixture.layer.decide(&charges(Cost::slot(1))).await.expect("an answer");
    fixture.layer.decide(&charges(returned(1))).await.expect("an answer");
    fixture.fail(Some(StoreError::Timeout));
    for cost in [Cost::renewal(1), Cost::PEEK, Cost::refund(0)] {
        assert!(fixture.layer.decide(&charges(cost)).await.is_err());
    }
    let window = Kernel::FixedWindow(engine::algorithm::FixedWindow::new(5, HOLD_US));
    let other = charges(Cost::slot(1))
        .filter_map(|_, charge| Some(Charge { kernel: window, cost: Cost::take(1), ..charge.clone() }));
    assert!(fixture.layer.decide(&other).await.is_err());
    assert_eq!(fixture.releases.stats(), ReleaseStats::default());
}

#[tokio::test(start_paused = true)]
async fn the_oldest_of_too_many_slots_is_given_up() {
    let fixture = Fixture::new();
    fixture.fail(Some(StoreError::Timeout));
    for id in 0..MAX_WAITING as u64 + 7 {
        assert!(fixture.layer.decide(&charges(Cost::slot(id))).await.is_err());
    }
    assert_eq!(fixture.releases.stats(), ReleaseStats { waiting: MAX_WAITING as u64, given_up: 7 });
}

#[tokio::test(start_paused = true)]
async fn a_process_that_stops_releases_what_it_has() {
    let mut fixture = Fixture::new().run();
    fixture.fail(Some(StoreError::Timeout));
    for id in 0..5 {
        assert!(fixture.layer.decide(&charges(Cost::slot(id))).await.is_err());
    }
    fixture.fail(None);
    fixture.stop.cancel();
    fixture.task.join_next().await.expect("a task").expect("no panic");
    assert_eq!((fixture.open(), fixture.waiting()), (0, 0));
}
