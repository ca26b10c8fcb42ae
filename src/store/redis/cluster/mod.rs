//! A Redis Cluster: which node decides a request, and what to do when it is another than we thought.
//!
//! A request whose keys share a slot goes to the primary that has it. One whose keys do not is decided slot by slot
//! (`reserve`). Only primaries are asked, never replicas.

pub(super) mod calls;
mod doors;
mod map;
mod parts;
mod refresh;
mod reserve;
pub(super) mod slots;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinError;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::doors::Doors;
use self::map::{Map, Node};
use self::parts::Part;
use self::refresh::Wishes;
use self::slots::{Address, Range};
use super::batch::Manner;
use super::codec::{Answer, Encoded};
use super::guard;
use super::lane::{Lane, ended};
use super::meters::{Gauge, Observer};
use super::options::{OptionsError, RedisOptions};
use super::sentinel::Way;
use super::setback::{NotRun, Obstacle, Redirect, Setback};
use super::tasks::Tasks;
use crate::engine::{Charges, Outcomes, StoreError};
use crate::store::breaker::BreakerState;

/// How often a request may be sent on. Each redirect is an answer from a node that knows better, so more than a few
/// mean that the nodes do not agree.
const MOST_HOPS: usize = 5;

/// Keys that are just being moved are there in a moment.
const MOVING_PAUSE: Duration = Duration::from_millis(2);

/// The nodes as one store.
pub(super) struct Cluster {
    options: RedisOptions,
    doors: Doors,
    map: Mutex<Map>,
    wishes: Wishes,
    /// Whether there has been an answer about the layout, or why there was none.
    told: watch::Sender<Option<Result<(), StoreError>>>,
    /// Of the lanes it is the elder sibling.
    gauge: Gauge,
    closing: CancellationToken,
    /// The lanes' batchers, and whoever learns of the layout.
    tasks: Tasks,
    /// Requests over several slots, which finish even if nobody waits any more.
    requests: Tasks,
}

/// Why a request has no answer although nodes were asked.
#[derive(Debug)]
enum Missed {
    Failed(StoreError),
    /// Its keys are partly on one node and partly on another: only one by one can they be asked.
    Torn,
}

impl Cluster {
    /// Starts to learn of the layout. No node need be there yet.
    pub(super) fn start(
        options: &RedisOptions,
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Self>, OptionsError> {
        let doors = Doors::new(options.doors(&options.credentials)?).ok_or(OptionsError::Zero("urls"))?;
        let cluster = Arc::new(Self {
            options: options.clone(),
            doors,
            map: Mutex::default(),
            wishes: Wishes::default(),
            told: watch::Sender::new(None),
            gauge: Gauge::new(observer),
            closing: CancellationToken::new(),
            tasks: Tasks::new(),
            requests: Tasks::new(),
        });
        let learning = refresh::run(Arc::clone(&cluster));
        let closing = cluster.closing.clone();
        cluster.tasks.spawn(async move {
            // It ends only by being cancelled.
            closing.run_until_cancelled_owned(learning).await;
        });
        Ok(cluster)
    }

    /// Refuses what comes, answers what waits, and ends all tasks.
    pub(super) fn close(&self) {
        self.closing.cancel();
        for node in self.map.lock().nodes() {
            node.lane.close();
        }
    }

    /// Closes, and returns when all tasks have ended; requests under way are finished first.
    pub(super) async fn shutdown(&self) -> Result<(), JoinError> {
        let finished = self.requests.ended().await;
        self.close();
        self.tasks.ended().await.and(finished)
    }

    /// The primaries, and the ways to them.
    pub(super) fn known(&self) -> Vec<(Address, Way)> {
        let map = self.map.lock();
        map.nodes().iter().map(|node| (node.address.clone(), node.lane.way().clone())).collect()
    }

    /// The primaries and their breakers.
    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        let map = self.map.lock();
        map.nodes().iter().map(|node| (node.address.to_string(), node.lane.breaker())).collect()
    }

    /// Whether any primary answers.
    pub(super) async fn ping(&self, deadline: Instant) -> Result<(), StoreError> {
        self.owner(None, deadline).await?;
        let nodes = self.map.lock().nodes().to_vec();
        let ask = |node: Arc<Node>| async move {
            node.lane.ask(Encoded::default(), Manner::Shared(None), deadline).await
        };
        let mut answers: FuturesUnordered<_> = nodes.into_iter().map(ask).collect();
        let mut failure = StoreError::Unreachable("no primary is known".to_owned());
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(_) => return Ok(()),
                Err(setback) => failure = setback.into(),
            }
        }
        self.wishes.wish(None);
        Err(failure)
    }

    /// Has a request decided whose keys share a slot.
    pub(super) async fn submit(&self, request: Encoded, deadline: Instant) -> Result<Answer, StoreError> {
        let slot = parts::slot(&request).flatten();
        self.ask(request, slot, deadline).await.map_err(StoreError::from)
    }

    /// Decides a request, which is what the charges are when written down.
    pub(super) async fn decide(
        self: &Arc<Self>,
        charges: &Charges,
        request: Encoded,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let parts = match parts::slot(&request) {
            Some(slot) => match self.ask(request, slot, deadline).await {
                Ok(answer) => return answer.outcomes(charges),
                Err(Missed::Failed(failure)) => return Err(failure),
                Err(Missed::Torn) => Part::singles(charges),
            },
            None => Part::by_slot(charges, &request),
        };
        let (reply, replied) = oneshot::channel();
        let request = reserve::Request::new(Arc::clone(self), charges.clone(), deadline);
        self.requests.spawn(request.run(parts, reply));
        replied.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Has a request decided whose keys share a slot, by whoever has it in the end.
    async fn ask(&self, request: Encoded, slot: Option<u16>, deadline: Instant) -> Result<Answer, Missed> {
        let mut node = self.owner(slot, deadline).await?;
        let (mut request, mut manner) = (request, Manner::Shared(slot));
        for _ in 0..MOST_HOPS {
            let not_run = match node.lane.ask(request, manner, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(Setback::NotRun(not_run)) => not_run,
                Err(Setback::Failed(failure)) => {
                    if matches!(failure, StoreError::Timeout | StoreError::Unreachable(_)) {
                        self.wishes.wish(Some(&node.address));
                    }
                    return Err(Missed::Failed(failure));
                }
            };
            let NotRun { request: again, obstacle } = *not_run;
            (node, manner) = match obstacle {
                Obstacle::Unsent(failure) => (self.instead_of(&node, slot, failure)?, Manner::Shared(slot)),
                Obstacle::Redirected(redirect) => {
                    let keys = again.key_count();
                    self.redirected(&node, redirect, Place { slot, keys, manner }, deadline).await?
                }
            };
            request = again;
        }
        Err(Missed::Failed(StoreError::Refused("the nodes do not agree who has the slot".to_owned())))
    }

    /// The node that has the slot, as soon as that is known.
    async fn owner(&self, slot: Option<u16>, deadline: Instant) -> Result<Arc<Node>, StoreError> {
        if let Some(node) = self.map.lock().owner(slot) {
            return Ok(node);
        }
        let mut told = self.told.subscribe();
        let told = timeout_at(deadline, told.wait_for(Option::is_some)).await;
        match told.map(|told| told.map(|told| told.clone())) {
            Ok(Ok(Some(Err(failure)))) => return Err(failure),
            Ok(_) => {}
            Err(_elapsed) => return Err(StoreError::Timeout),
        }
        let owner = self.map.lock().owner(slot);
        owner.ok_or_else(|| {
            self.wishes.wish(None);
            StoreError::Unreachable("no primary has the slot".to_owned())
        })
    }

    /// Who has the slot now that `node` cannot be reached, unless it still is that one.
    fn instead_of(
        &self,
        node: &Arc<Node>,
        slot: Option<u16>,
        failure: StoreError,
    ) -> Result<Arc<Node>, Missed> {
        self.wishes.wish(Some(&node.address));
        let owner = self.map.lock().owner(slot);
        owner.filter(|owner| !Arc::ptr_eq(owner, node)).ok_or(Missed::Failed(failure))
    }

    /// Whom to ask instead, and how.
    async fn redirected(
        &self,
        from: &Arc<Node>,
        redirect: Redirect,
        place: Place,
        deadline: Instant,
    ) -> Result<(Arc<Node>, Manner), Missed> {
        match redirect {
            Redirect::Moved(to) => {
                self.wishes.wish(None);
                let node = self.named(to.told_by(&from.address));
                if let Some(slot) = place.slot {
                    self.map.lock().give(slot, &node.address);
                }
                Ok((node, Manner::Shared(place.slot)))
            }
            Redirect::Ask(to) => Ok((self.named(to.told_by(&from.address)), Manner::Asking)),
            // Others that shared the call had keys elsewhere; or its own keys are torn apart, and may stay so for long.
            Redirect::TryAgain if matches!(place.manner, Manner::Shared(_)) => {
                Ok((Arc::clone(from), Manner::Alone))
            }
            Redirect::TryAgain if place.keys > 1 => Err(Missed::Torn),
            Redirect::TryAgain => {
                sleep(MOVING_PAUSE).await;
                Ok((self.owner(place.slot, deadline).await?, Manner::Alone))
            }
            Redirect::Down => {
                self.wishes.wish(Some(&from.address));
                Err(Missed::Failed(redirect.into()))
            }
        }
    }

    fn named(&self, address: Address) -> Arc<Node> {
        self.map.lock().named(&address, |address| self.open(address))
    }

    fn open(&self, address: &Address) -> Lane {
        let lane =
            Lane::open(Way::Server(self.doors.to(address)), &self.options, self.gauge.sibling(), &self.tasks);
        if self.closing.is_cancelled() {
            lane.close();
        }
        lane
    }

    /// Takes over a layout. Whether any node is new or has left.
    fn adopt(&self, layout: &[Range]) -> bool {
        let mut map = self.map.lock();
        let before = map.nodes().len();
        let left = map.adopt(layout, |address| self.open(address));
        let brought_news = !left.is_empty() || map.nodes().len() != before;
        for node in map.nodes() {
            if let Some(range) = layout.iter().find(|range| range.primary == node.address) {
                let slot = Some(*range.slots.start());
                node.lane.probe_with(guard::question(&self.options.key_prefix, slot));
            }
        }
        drop(map);
        for node in left {
            node.lane.retire();
        }
        self.told.send_replace(Some(Ok(())));
        brought_news
    }

    /// No node could be asked. As long as none ever could, decisions fail for that reason.
    fn is_unknown(&self, failure: StoreError) {
        if !self.map.lock().is_known() {
            self.told.send_replace(Some(Err(failure)));
        }
    }

    /// Whether no layout has been seen so far.
    fn is_lost(&self) -> bool {
        !self.map.lock().is_known()
    }
}

/// What a request asks of whom.
#[derive(Clone, Copy)]
struct Place {
    slot: Option<u16>,
    keys: usize,
    manner: Manner,
}

impl From<StoreError> for Missed {
    fn from(failure: StoreError) -> Self {
        Self::Failed(failure)
    }
}
