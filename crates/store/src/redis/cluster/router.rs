//! Sends a request to the node that serves its slot, and follows redirects. Owns the slot map and the clients of the
//! nodes.

use std::sync::Arc;
use std::time::Duration;

use engine::{Charge, StoreError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::refresh_signal::RefreshSignal;
use super::slot_map::{Primary, SlotMap};
use super::slot_ranges::SlotRange;
use crate::redis::address::Address;
use crate::redis::connect::{ConnectTimeouts, Endpoint, Target};
use crate::redis::error::Redirect;
use crate::redis::node::QueueDepth;
use crate::redis::node::{CallError, CallMode, Cause, Node, NotExecuted};
use crate::redis::options::RedisOptions;
use crate::redis::reserve::{Places, RouteError};
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::slot::slot_of_key;
use crate::redis::tasks::Tasks;

/// How many times a request is sent at most. Each redirect comes from a node that knows the slots better, so more than
/// a few mean that the nodes disagree.
const MAX_ATTEMPTS: usize = 5;

/// Pause before a request for a key that is being migrated is sent again.
const MIGRATION_PAUSE: Duration = Duration::from_millis(2);

/// The primaries of a cluster and their slots.
pub(super) struct Router {
    options: RedisOptions,
    endpoints: Endpoints,
    map: Mutex<SlotMap<Node>>,
    refresh_signal: RefreshSignal,
    /// `Ok` after the first successful refresh. Until then the error of the last refresh, or `None`.
    first_refresh: watch::Sender<Option<Result<(), StoreError>>>,
    queue_depth: QueueDepth,
    closing: CancellationToken,
    /// The tasks of all nodes.
    tasks: Arc<Tasks>,
}

/// How a request was sent.
#[derive(Clone, Copy)]
struct SentCall {
    slot: Option<u16>,
    key_count: usize,
    mode: CallMode,
}

impl Router {
    pub(super) fn new(
        options: &RedisOptions,
        endpoints: Endpoints,
        queue_depth: QueueDepth,
        tasks: Arc<Tasks>,
    ) -> Self {
        Self {
            options: options.clone(),
            endpoints,
            map: Mutex::default(),
            refresh_signal: RefreshSignal::default(),
            first_refresh: watch::Sender::new(None),
            queue_depth,
            closing: CancellationToken::new(),
            tasks,
        }
    }

    pub(super) fn refresh_signal(&self) -> &RefreshSignal {
        &self.refresh_signal
    }

    /// Cancelled by [`Router::close`].
    pub(super) fn closing(&self) -> &CancellationToken {
        &self.closing
    }

    /// Closes all nodes, also those that a redirect opens later.
    pub(super) fn close(&self) {
        self.closing.cancel();
        for primary in self.map.lock().primaries() {
            primary.node.close();
        }
    }

    /// The primaries known at present.
    pub(super) fn primaries(&self) -> Vec<Arc<Primary<Node>>> {
        self.map.lock().primaries().to_vec()
    }

    /// The addresses of the primaries known at present, and how to connect to them.
    pub(super) fn targets(&self) -> Vec<(Address, Target)> {
        let primaries = self.primaries();
        primaries.iter().map(|primary| (primary.address.clone(), primary.node.target().clone())).collect()
    }

    /// A slot of each primary that serves one.
    pub(super) fn probe_slots(&self) -> Vec<u16> {
        self.map.lock().first_slots()
    }

    /// The nodes of the settings.
    pub(super) fn seeds(&self) -> impl Iterator<Item = (Address, Target)> {
        let seeds = self.endpoints.seeds().iter();
        seeds.map(|(address, endpoint)| (address.clone(), Target::Server(endpoint.clone())))
    }

    /// Sends a request whose keys share this slot, and returns its answer. Follows redirects.
    pub(super) async fn call(
        &self,
        request: EncodedRequest,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        let mut primary = self.owner(slot, deadline).await?;
        let (mut request, mut mode) = (request, CallMode::Batched(slot));
        for _ in 0..MAX_ATTEMPTS {
            let not_executed = match primary.node.call(request, mode, deadline).await {
                Ok(answer) => return Ok(answer),
                Err(CallError::NotExecuted(not_executed)) => *not_executed,
                Err(CallError::Failed(failure)) => {
                    if matches!(failure, StoreError::Timeout | StoreError::Unreachable(_)) {
                        self.refresh_signal.request_after_failure(&primary.address);
                    }
                    return Err(RouteError::Failed(failure));
                }
            };
            let NotExecuted { request: unanswered, cause } = not_executed;
            (primary, mode) = match cause {
                Cause::NotSent(failure) => {
                    (self.new_owner(&primary, slot, failure)?, CallMode::Batched(slot))
                }
                Cause::Redirected(redirect) => {
                    let sent = SentCall { slot, key_count: unanswered.key_count(), mode };
                    self.follow(&primary, redirect, sent, deadline).await?
                }
            };
            request = unanswered;
        }
        Err(RouteError::Failed(StoreError::Refused(
            "the nodes disagree which one serves the slot".to_owned(),
        )))
    }

    /// The primary that serves the slot. Waits for the first refresh of the slot map.
    pub(super) async fn owner(
        &self,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<Arc<Primary<Node>>, StoreError> {
        if let Some(owner) = self.map.lock().owner(slot) {
            return Ok(owner);
        }
        let mut first_refresh = self.first_refresh.subscribe();
        let loaded = timeout_at(deadline, first_refresh.wait_for(Option::is_some)).await;
        match loaded.map(|loaded| loaded.map(|loaded| loaded.clone())) {
            Ok(Ok(Some(Err(failure)))) => return Err(failure),
            Ok(_) => {}
            Err(_elapsed) => return Err(StoreError::Timeout),
        }
        let owner = self.map.lock().owner(slot);
        owner.ok_or_else(|| {
            self.refresh_signal.request();
            StoreError::Unreachable("no primary has the slot".into())
        })
    }

    /// The primary that serves the slot now, after `failed` could not be reached; `failure` if it still is `failed`.
    fn new_owner(
        &self,
        failed: &Arc<Primary<Node>>,
        slot: Option<u16>,
        failure: StoreError,
    ) -> Result<Arc<Primary<Node>>, RouteError> {
        self.refresh_signal.request_after_failure(&failed.address);
        let owner = self.map.lock().owner(slot);
        owner.filter(|owner| !Arc::ptr_eq(owner, failed)).ok_or(RouteError::Failed(failure))
    }

    /// Where and how to send a request after a redirect.
    async fn follow(
        &self,
        from: &Arc<Primary<Node>>,
        redirect: Redirect,
        sent: SentCall,
        deadline: Instant,
    ) -> Result<(Arc<Primary<Node>>, CallMode), RouteError> {
        match redirect {
            Redirect::Moved(to) => {
                self.refresh_signal.request();
                let primary = self.redirect_target(to.reported_by(&from.address));
                if let Some(slot) = sent.slot {
                    self.map.lock().assign_slot(slot, &primary.address);
                }
                Ok((primary, CallMode::Batched(sent.slot)))
            }
            Redirect::Ask(to) => Ok((self.redirect_target(to.reported_by(&from.address)), CallMode::Asking)),
            // A key of the call is on the other node, perhaps the key of another request: retry this request in a
            // call of its own.
            Redirect::TryAgain if matches!(sent.mode, CallMode::Batched(_)) => {
                Ok((Arc::clone(from), CallMode::Single))
            }
            // The keys of this request are on both nodes, perhaps for a long time.
            Redirect::TryAgain if sent.key_count > 1 => Err(RouteError::SlotMigrating),
            Redirect::TryAgain => {
                sleep(MIGRATION_PAUSE).await;
                Ok((self.owner(sent.slot, deadline).await?, CallMode::Single))
            }
            Redirect::Down => {
                self.refresh_signal.request_after_failure(&from.address);
                Err(RouteError::Failed(redirect.into()))
            }
        }
    }

    fn redirect_target(&self, address: Address) -> Arc<Primary<Node>> {
        self.map.lock().redirect_target(&address, |address| self.open(address))
    }

    fn open(&self, address: &Address) -> Node {
        let target = Target::Server(self.endpoints.at(address));
        let node =
            Node::start(address.to_string(), target, &self.options, self.queue_depth.for_node(), &self.tasks);
        if self.closing.is_cancelled() {
            node.close();
        }
        node
    }

    /// Whether a refresh of the slot map has succeeded.
    pub(super) fn is_loaded(&self) -> bool {
        self.map.lock().is_loaded()
    }

    /// Replaces the slots by those that a node reported. Returns whether a primary joined or left.
    pub(super) fn update_slots(&self, reported: &[SlotRange]) -> bool {
        let mut map = self.map.lock();
        let before = map.primaries().len();
        let left = map.update(reported, |address| self.open(address));
        let has_changed = !left.is_empty() || map.primaries().len() != before;
        for primary in map.primaries() {
            if let Some(range) = reported.iter().find(|range| range.primary == primary.address) {
                primary.node.set_probe_slot(*range.slots.start());
            }
        }
        drop(map);
        for primary in left {
            primary.node.retire();
        }
        self.first_refresh.send_replace(Some(Ok(())));
        has_changed
    }

    /// Records that no node reported the slots. Before the first successful refresh, requests fail with this error.
    pub(super) fn refresh_failed(&self, failure: StoreError) {
        if !self.is_loaded() {
            self.first_refresh.send_replace(Some(Err(failure)));
        }
    }
}

impl Places for Router {
    /// A slot.
    type Place = u16;

    fn place(&self, _charge: &Charge, key: &str) -> u16 {
        slot_of_key(key)
    }

    async fn call(
        &self,
        request: EncodedRequest,
        slot: Option<u16>,
        deadline: Instant,
    ) -> Result<RequestReply, RouteError> {
        Self::call(self, request, slot, deadline).await
    }

    fn key_prefix(&self) -> &str {
        &self.options.key_prefix
    }

    fn time_for(&self, round_trips: u32, least: Duration) -> Duration {
        ConnectTimeouts::new(self.options.timeout).at_least(least, round_trips)
    }

    fn lost_undo(&self, _slot: Option<u16>) {
        self.queue_depth.observer().lost_undo();
    }
}

/// The endpoints of the seeds, and of any other node.
pub(super) struct Endpoints {
    seeds: Vec<(Address, Endpoint)>,
    template: Endpoint,
}

impl Endpoints {
    /// `None` without a seed.
    pub(super) fn new(seeds: Vec<Endpoint>) -> Option<Self> {
        let template = seeds.first()?.clone();
        let seeds = seeds.into_iter().map(|seed| (seed_address(&seed), seed)).collect();
        Some(Self { seeds, template })
    }

    /// The seeds, in the order of the settings.
    pub(super) fn seeds(&self) -> &[(Address, Endpoint)] {
        &self.seeds
    }

    /// The endpoint of the node at this address.
    pub(super) fn at(&self, address: &Address) -> Endpoint {
        self.template.at(&address.host, address.port)
    }
}

/// The address of a seed. Replies of the seed may have an empty host, which then means the host of this address.
fn seed_address(seed: &Endpoint) -> Address {
    // The server behind a Unix socket runs on this machine.
    let (host, port) = seed.address().unwrap_or(("localhost", 0));
    Address { host: host.to_owned(), port }
}
