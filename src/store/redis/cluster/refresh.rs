//! Learns which node has which slot: at the start, when something hints that it has changed, and for a while after.
//! One question at a time, to any node that answers, never in a storm.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::Cluster;
use super::layout::{self, Range};
use crate::engine::StoreError;
use crate::store::redis::address::Address;
use crate::store::redis::connect::Target;
use crate::store::redis::error::store_error;

/// The longest one node may take to answer, connecting included.
const NODE_TIMEOUT: Duration = Duration::from_millis(250);

/// Between two questions at least, while the answers bring news...
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// ...and while they do not: so soon the end of a failover is noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(400);

/// After the last hint it is asked again for so long...
const TROUBLE: Duration = Duration::from_secs(30);
/// ...every now and then.
const NOW_AND_THEN: Duration = Duration::from_secs(2);

/// What is wished of the next question.
#[derive(Default)]
pub(super) struct RefreshSignal {
    wished: Notify,
    hints: Mutex<Hints>,
}

#[derive(Default)]
struct Hints {
    last: Option<Instant>,
    /// Nodes that failed since the last answer: asked last.
    suspects: Vec<Address>,
}

impl RefreshSignal {
    /// Something hints that the layout has changed; and a node that failed may not know.
    pub(super) fn wish(&self, suspect: Option<&Address>) {
        let mut hints = self.hints.lock();
        hints.last = Some(Instant::now());
        if let Some(suspect) = suspect.filter(|suspect| !hints.suspects.contains(suspect)) {
            hints.suspects.push(suspect.clone());
        }
        drop(hints);
        self.wished.notify_one();
    }

    fn suspects(&self) -> Vec<Address> {
        std::mem::take(&mut self.hints.lock().suspects)
    }

    /// Waits for a wish, or until it is time to look again anytarget. Returns whether it was a wish.
    async fn next(&self) -> bool {
        let troubled = self.hints.lock().last.is_some_and(|last| last.elapsed() < TROUBLE);
        if troubled {
            return timeout(jittered(NOW_AND_THEN), self.wished.notified()).await.is_ok();
        }
        self.wished.notified().await;
        true
    }
}

/// Asks for ever.
pub(super) async fn run(cluster: Arc<Cluster>) -> Infallible {
    let mut pause = SHORTEST_PAUSE;
    loop {
        let brought_news = match ask(&cluster).await {
            Ok(layout) => cluster.adopt(&layout),
            Err(failure) => {
                cluster.is_unknown(failure);
                false
            }
        };
        pause = if brought_news { SHORTEST_PAUSE } else { LONGEST_PAUSE.min(2 * pause) };
        sleep(jittered(pause)).await;
        if cluster.is_lost() {
            continue;
        }
        let quiet_since = Instant::now();
        let is_wished = cluster.wishes.next().await;
        if !is_wished || quiet_since.elapsed() > NOW_AND_THEN {
            pause = SHORTEST_PAUSE;
        }
    }
}

/// The layout as the first node that answers tells it.
async fn ask(cluster: &Cluster) -> Result<Vec<Range>, StoreError> {
    let suspects = cluster.wishes.suspects();
    let mut nodes = cluster.known();
    fastrand::shuffle(&mut nodes);
    let seeds = cluster.endpoints.seeds().iter().cloned();
    nodes.extend(seeds.map(|(address, endpoint)| (address, Target::Server(endpoint))));
    nodes.sort_by_key(|(address, _)| suspects.contains(address));
    let mut failure = StoreError::Unreachable("no node is known".to_owned());
    for (address, target) in nodes {
        match timeout(NODE_TIMEOUT, ask_one(&address, &target)).await {
            Ok(Ok(layout)) => return Ok(layout),
            Ok(Err(reason)) => failure = reason,
            Err(_elapsed) => failure = StoreError::Timeout,
        }
    }
    Err(failure)
}

async fn ask_one(address: &Address, target: &Target) -> Result<Vec<Range>, StoreError> {
    let (mut wire, _) = target.connect().await?;
    let question = redis::cmd("CLUSTER").arg("SLOTS").to_owned();
    let answer: Value = question.query_async(&mut wire.connection).await.map_err(store_error)?;
    layout::layout(&answer, address)
}

/// A quarter more or less, so that processes that lost the same node do not ask in step.
fn jittered(pause: Duration) -> Duration {
    pause * fastrand::u32(75..=125) / 100
}
