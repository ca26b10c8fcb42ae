//! A Redis Cluster: which node decides a request, and what to do when it is another than we thought.
//!
//! A request whose keys share a slot goes to the primary that has it. One whose keys do not is decided slot by slot
//! (`reserve`). Only primaries are asked, never replicas.

mod cross_slot;
mod endpoints;
mod layout;
mod refresh;
mod slot_map;
mod split;

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use self::cross_slot::CrossSlotRequest;
use self::endpoints::Endpoints;
use self::layout::Range;
use self::refresh::RefreshSignal;
use self::slot_map::{Primary, SlotMap};
use self::split::RequestPart;
use crate::engine::{Charges, Outcomes, StoreError};
use crate::store::breaker::BreakerState;
use crate::store::redis::address::Address;
use crate::store::redis::connect::{Target, endpoints};
use crate::store::redis::error::{OptionsError, Redirect, shut_down};
use crate::store::redis::node::{CallError, CallMode, Cause, Node, NotExecuted, probe_request};
use crate::store::redis::observer::{QueueDepth, RedisObserver};
use crate::store::redis::options::RedisOptions;
use crate::store::redis::script::{Answer, Encoded};
use crate::store::redis::tasks::{TaskError, Tasks};

/// How often a request may be sent on. Each redirect is an answer from a node that knows better, so more than a few
/// mean that the nodes do not agree.
const MAX_HOPS: usize = 5;

/// Keys that are just being moved are there in a moment.
const MOVING_PAUSE: Duration = Duration::from_millis(2);

/// The nodes as one store.
pub(super) struct Cluster {
    options: RedisOptions,
    endpoints: Endpoints,
    map: Mutex<SlotMap>,
    wishes: RefreshSignal,
    /// Whether there has been an answer about the layout, or why there was none.
    told: watch::Sender<Option<Result<(), StoreError>>>,
    /// Of the nodes it is the elder sibling.
    queue_depth: QueueDepth,
    closing: CancellationToken,
    /// The nodes' batchers, and whoever learns of the layout.
    tasks: Tasks,
    /// Requests over several slots, which finish even if nobody waits any more.
    requests: Tasks,
}

/// Why a request has no answer although nodes were asked.
#[derive(Debug)]
enum RouteError {
    Failed(StoreError),
    /// Its keys are partly on one node and partly on another: only one by one can they be asked.
    SlotMigrating,
}

impl Cluster {
    /// Starts to learn of the layout. No node need be there yet.
    pub(super) fn start(
        options: &RedisOptions,
        observer: Arc<dyn RedisObserver>,
    ) -> Result<Arc<Self>, OptionsError> {
        let endpoints =
            Endpoints::new(endpoints(options, &options.credentials)?).ok_or(OptionsError::Zero("urls"))?;
        let cluster = Arc::new(Self {
            options: options.clone(),
            endpoints,
            map: Mutex::default(),
            wishes: RefreshSignal::default(),
            told: watch::Sender::new(None),
            queue_depth: QueueDepth::new(observer),
            closing: CancellationToken::new(),
            tasks: Tasks::new(),
            requests: Tasks::new(),
        });
        let refresh = refresh::run(Arc::clone(&cluster));
        cluster.tasks.spawn_loop("layout refresh", &cluster.closing, refresh);
        Ok(cluster)
    }

    /// Refuses what comes, answers what waits, and ends all tasks.
    pub(super) fn close(&self) {
        self.closing.cancel();
        for node in self.map.lock().nodes() {
            node.node.close();
        }
    }

    /// Closes, and returns when all tasks have ended; requests under way are finished first.
    pub(super) async fn shutdown(&self) -> Result<(), TaskError> {
        let finished = self.requests.join().await;
        self.close();
        self.tasks.join().await.and(finished)
    }

    /// Resolves when a background task has died; pending for ever otherwise.
    pub(super) fn died(&self) -> impl Future<Output = TaskError> + Send + use<> {
        self.tasks.died()
    }

    /// The primaries, and the ways to them.
    pub(super) fn known(&self) -> Vec<(Address, Target)> {
        let map = self.map.lock();
        map.nodes().iter().map(|node| (node.address.clone(), node.node.target().clone())).collect()
    }

    /// The primaries and their breakers.
    pub(super) fn nodes(&self) -> Vec<(String, BreakerState)> {
        let map = self.map.lock();
        map.nodes().iter().map(|node| (node.address.to_string(), node.node.breaker_state())).collect()
    }

    /// Whether any primary answers.
    pub(super) async fn ping(&self, deadline: Instant) -> Result<(), StoreError> {
        self.owner(None, deadline).await?;
        let nodes = self.map.lock().nodes().to_vec();
        let ask = |node: Arc<Primary>| async move {
            node.node.call(Encoded::default(), CallMode::Batched(None), deadline).await
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
        let slot = split::slot(&request).flatten();
        self.ask(request, slot, deadline).await.map_err(StoreError::from)
    }

    /// Decides a request, which is what the charges are when written down.
    pub(super) async fn decide(
        self: &Arc<Self>,
        charges: &Charges,
        request: Encoded,
        deadline: Instant,
    ) -> Result<Outcomes, StoreError> {
        let parts = match split::slot(&request) {
            Some(slot) => match self.ask(request, slot, deadline).await {
                Ok(answer) => return answer.outcomes(charges),
                Err(RouteError::Failed(failure)) => return Err(failure),
                Err(RouteError::SlotMigrating) => RequestPart::singles(charges),
            },
            None => RequestPart::by_slot(charges, &request),
        };
        let (reply, replied) = oneshot::channel();
        let request = CrossSlotRequest::new(Arc::clone(self), charges.clone(), deadline);
        self.requests.spawn("request", request.run(parts, reply));
        replied.await.unwrap_or_else(|_| Err(shut_down()))
    }

    /// Has a request decided whose keys share a slot, by whoever has it in the end.
    async fn ask(
        &self,
        request: Encoded,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<Answer, RouteError> {
        let mut node = self.owner(slot, deadline).await?;
        let (mut request, mut mode) = (request, CallMode::Batched(slot));
        for _ in 0..MAX_HOPS {
            let not_run = match node.node.call(request, mode, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(CallError::NotExecuted(not_run)) => not_run,
                Err(CallError::Failed(failure)) => {
                    if matches!(failure, StoreError::Timeout | StoreError::Unreachable(_)) {
                        self.wishes.wish(Some(&node.address));
                    }
                    return Err(RouteError::Failed(failure));
                }
            };
            let NotExecuted { request: again, cause } = *not_run;
            (node, mode) = match cause {
                Cause::NotSent(failure) => (self.instead_of(&node, slot, failure)?, CallMode::Batched(slot)),
                Cause::Redirected(redirect) => {
                    let keys = again.key_count();
                    self.redirected(&node, redirect, Place { slot, keys, mode }, deadline).await?
                }
            };
            request = again;
        }
        Err(RouteError::Failed(StoreError::Refused("the nodes do not agree who has the slot".to_owned())))
    }

    /// The node that has the slot, as soon as that is known.
    async fn owner(&self, slot: Option<u16>, deadline: Instant) -> Result<Arc<Primary>, StoreError> {
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
        node: &Arc<Primary>,
        slot: Option<u16>,
        failure: StoreError,
    ) -> Result<Arc<Primary>, RouteError> {
        self.wishes.wish(Some(&node.address));
        let owner = self.map.lock().owner(slot);
        owner.filter(|owner| !Arc::ptr_eq(owner, node)).ok_or(RouteError::Failed(failure))
    }

    /// Whom to ask instead, and how.
    async fn redirected(
        &self,
        from: &Arc<Primary>,
        redirect: Redirect,
        place: Place,
        deadline: Instant,
    ) -> Result<(Arc<Primary>, CallMode), RouteError> {
        match redirect {
            Redirect::Moved(to) => {
                self.wishes.wish(None);
                let node = self.named(to.reported_by(&from.address));
                if let Some(slot) = place.slot {
                    self.map.lock().give(slot, &node.address);
                }
                Ok((node, CallMode::Batched(place.slot)))
            }
            Redirect::Ask(to) => Ok((self.named(to.reported_by(&from.address)), CallMode::Asking)),
            // Others that shared the call had keys elsewhere; or its own keys are torn apart, and may stay so for long.
            Redirect::TryAgain if matches!(place.mode, CallMode::Batched(_)) => {
                Ok((Arc::clone(from), CallMode::Single))
            }
            Redirect::TryAgain if place.keys > 1 => Err(RouteError::SlotMigrating),
            Redirect::TryAgain => {
                sleep(MOVING_PAUSE).await;
                Ok((self.owner(place.slot, deadline).await?, CallMode::Single))
            }
            Redirect::Down => {
                self.wishes.wish(Some(&from.address));
                Err(RouteError::Failed(redirect.into()))
            }
        }
    }

    fn named(&self, address: Address) -> Arc<Primary> {
        self.map.lock().named(&address, |address| self.open(address))
    }

    fn open(&self, address: &Address) -> Node {
        let node = Node::start(
            Target::Server(self.endpoints.to(address)),
            &self.options,
            self.queue_depth.for_node(),
            &self.tasks,
        );
        if self.closing.is_cancelled() {
            node.close();
        }
        node
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
                node.node.set_probe(probe_request(&self.options.key_prefix, slot));
            }
        }
        drop(map);
        for node in left {
            node.node.retire();
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
    mode: CallMode,
}

impl From<StoreError> for RouteError {
    fn from(failure: StoreError) -> Self {
        Self::Failed(failure)
    }
}
