//! A cluster of two scripted nodes under paused time: `a.test` serves the lower half of the slots, `b.test` the upper
//! half.

mod cross_slot;
mod routing;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use engine::algorithm::{FixedWindow, Kernel, Verdict};
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Outcomes, Role, Store as _, StoreError};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::observer::{NoopObserver, Observer};
use crate::redis::RedisStore;
use crate::redis::options::Topology;
use crate::redis::slot::{SLOTS, tag_for_slot};
use crate::redis::testing::{FakeServer, Reply};

const MS: Duration = Duration::from_millis(1);

const LOW: u16 = 100;
const HIGH: u16 = SLOTS - 100;

/// First slot, last slot and host of each primary.
type Slots = Vec<(u16, u16, &'static str)>;

fn halves() -> Slots {
    vec![(0, SLOTS / 2 - 1, "a.test"), (SLOTS / 2, SLOTS - 1, "b.test")]
}

/// A node's answer to a script call; `None` grants all charges.
type Answering = dyn Fn(&ReceivedCall) -> Option<Reply> + Send + Sync;

/// What comes before the first request of a call: the server's time (-1.0, which ends in one replaced character), how
/// long counters are kept, two facts about the call, and the number of equal requests.
const HEADER_CHARS: usize = 7 + 8 + 2 + 2;

struct ReceivedCall {
    host: &'static str,
    words: Vec<String>,
}

impl ReceivedCall {
    /// The requests of the call, see lua/batch.lua: an undo starts with the mark 101.
    fn record(&self) -> String {
        self.words[self.words.len() - 1].chars().skip(HEADER_CHARS).collect()
    }

    fn is_undo(&self) -> bool {
        self.record().starts_with('e')
    }

    fn key_count(&self) -> usize {
        self.words[2].parse().expect("a number of keys")
    }

    /// A reply that makes every charge a fixed window of index 0 with this many units.
    fn counts(&self, units: i64) -> Reply {
        let windows = (0..self.key_count()).flat_map(|_| [Reply::Int(0), Reply::Int(units)]);
        Reply::Array(std::iter::once(Reply::Int(1)).chain(windows).collect())
    }

    fn denied(&self) -> Reply {
        let windows = (0..self.key_count()).flat_map(|_| [Reply::Int(-1), Reply::Int(5)]);
        Reply::Array(std::iter::once(Reply::Int(1)).chain(windows).collect())
    }
}

struct TestCluster {
    slots: Arc<Mutex<Slots>>,
    nodes: [FakeServer; 2],
    store: RedisStore,
    lost_undos: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct LostUndos(Arc<AtomicUsize>);

impl Observer for LostUndos {
    fn lost_undo(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn options() -> RedisOptions {
    RedisOptions {
        urls: vec!["redis://a.test:7000".parse().expect("a URL")],
        topology: Topology::Cluster,
        connections: 1,
        ..RedisOptions::default()
    }
}

fn slots_reply(slots: &Slots) -> Reply {
    let range = |&(first, last, host): &(u16, u16, &str)| {
        let node = Reply::Array(vec![Reply::Bulk(host.to_owned()), Reply::Int(7_000)]);
        Reply::Array(vec![Reply::Int(first.into()), Reply::Int(last.into()), node])
    };
    Reply::Array(slots.iter().map(range).collect())
}

fn case(answering: impl Fn(&ReceivedCall) -> Option<Reply> + Send + Sync + 'static) -> TestCluster {
    let (slots, answering): (_, Arc<Answering>) = (Arc::new(Mutex::new(halves())), Arc::new(answering));
    let nodes = ["a.test", "b.test"].map(|host| {
        let (slots, answering) = (Arc::clone(&slots), Arc::clone(&answering));
        FakeServer::listen(host, 7_000, move |command| match command[0].as_str() {
            "CLUSTER" => Some(slots_reply(&slots.lock())),
            "EVALSHA" => answering(&ReceivedCall { host, words: command.to_vec() }),
            _ => None,
        })
    });
    let lost_undos = Arc::default();
    let observer = Arc::new(LostUndos(Arc::clone(&lost_undos)));
    let store = RedisStore::new(&options(), observer).expect("good options");
    TestCluster { slots, nodes, store, lost_undos }
}

/// Keys are unique, also within a slot.
fn charges(all: &[(u16, Cost)]) -> Charges {
    let mut charges = Charges::default();
    for (index, &(slot, cost)) in all.iter().enumerate() {
        let charge = Charge {
            kernel: Kernel::FixedWindow(FixedWindow::new(5, 1_000_000)),
            cost,
            charging: Charging::Prepaid,
            role: Role::Enforce,
            on_store_failure: FailurePolicy::Error,
        };
        charges.push(charge, |key| key.push_str(&format!("k{index}{{{}}}", tag_for_slot(slot))));
    }
    charges
}

impl TestCluster {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        self.store.decide(charges).await
    }

    /// Takes one unit from a counter of this slot.
    async fn hit(&self, slot: u16) -> Result<Outcomes, StoreError> {
        self.decide(&charges(&[(slot, Cost::take(1))])).await
    }

    fn calls(&self) -> [usize; 2] {
        self.nodes.each_ref().map(|node| node.commands("EVALSHA").len())
    }

    /// Number of times that the slot map was loaded.
    fn refreshes(&self) -> usize {
        self.nodes.iter().map(|node| node.commands("CLUSTER").len()).sum()
    }
}

fn verdicts(outcomes: &Outcomes) -> Vec<Verdict> {
    outcomes.by_charge.iter().map(|outcome| outcome.verdict).collect()
}

fn remaining(outcomes: &Outcomes) -> Vec<u64> {
    outcomes.by_charge.iter().map(|outcome| outcome.report.remaining).collect()
}
