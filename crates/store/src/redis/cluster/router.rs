//! Sends a request to the node that serves its slot, and follows redirects. Owns the slot map and the node clients.

use std::sync::Arc;
use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use redis::FromRedisValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::refresh_signal::RefreshSignal;
use super::slot_map::{Primary, SlotMap};
use super::slot_ranges::SlotRange;
use crate::redis::address::Address;
use crate::redis::connect::{Endpoint, Target, endpoints};
use crate::redis::error::{CommandError, OptionsError, Redirect, RouteError};
use crate::redis::node::{CallError, CallMode, Cause, Node, NotExecuted, QueueDepth};
use crate::redis::options::RedisOptions;
use crate::redis::rows::SideCall;
use crate::redis::script::{EncodedRequest, RequestReply};
use crate::redis::tasks::Tasks;

/// Maximum times that a request is sent. Each redirect comes from a node with a newer slot map, so more than a few mean
/// that the nodes disagree.
const MAX_ATTEMPTS: usize = 5;

/// Pause before resending a request for a key that is being migrated.
const MIGRATION_PAUSE: Duration = Duration::from_millis(2);

pub(in crate::redis) struct Router {
    options: RedisOptions,
    /// Comes before the addresses in the node names.
    prefix: &'static str,
    /// Nodes from the settings, at least one, in their order.
    seeds: Vec<(Address, Endpoint)>,
    map: Mutex<SlotMap<Arc<Node>>>,
    pub(super) refresh_signal: RefreshSignal,
    /// `Ok` after the first successful refresh; until then the last refresh's error, or `None`.
    first_refresh: watch::Sender<Option<Result<(), StoreError>>>,
    queue_depth: QueueDepth,
    /// Cancelled by [`Router::close`].
    pub(super) closing: CancellationToken,
    /// Tasks of all nodes.
    tasks: Arc<Tasks>,
}

type Owner = Arc<Primary<Arc<Node>>>;

#[derive(Clone, Copy)]
struct SentCall {
    slot: Option<u16>,
    key_count: usize,
    mode: CallMode,
}

impl Router {
    pub(super) fn new(
        options: &RedisOptions,
        prefix: &'static str,
        queue_depth: QueueDepth,
        tasks: Arc<Tasks>,
    ) -> Result<Self, OptionsError> {
        let seeds = endpoints(options, &options.credentials)?;
        if seeds.is_empty() {
            return Err(OptionsError::NoUrl);
        }
        Ok(Self {
            options: options.clone(),
            prefix,
            seeds: seeds.into_iter().map(|seed| (seed_address(&seed), seed)).collect(),
            map: Mutex::default(),
            refresh_signal: RefreshSignal::default(),
            first_refresh: watch::Sender::new(None),
            queue_depth,
            closing: CancellationToken::new(),
            tasks,
        })
    }

    /// Closes all nodes, including those that a redirect opens later.
    pub(in crate::redis) fn close(&self) {
        self.closing.cancel();
        for primary in self.map.lock().primaries() {
            primary.node.close();
        }
    }

    pub(in crate::redis) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map.lock().primaries().iter().map(|primary| Arc::clone(&primary.node)).collect()
    }

    /// Returns one slot of each primary. Waits for the first refresh of the slot map.
    pub(in crate::redis) async fn probe_slots(
        &self,
        deadline: Instant,
    ) -> Result<Vec<Option<u16>>, StoreError> {
        self.owner(None, deadline).await?;
        Ok(self.map.lock().first_slots().into_iter().map(Some).collect())
    }

    /// The primaries known now, with their addresses.
    pub(super) fn targets(&self) -> Vec<(Address, Target)> {
        let map = self.map.lock();
        let targets = map.primaries().iter();
        targets.map(|primary| (primary.address.clone(), primary.node.target().clone())).collect()
    }

    /// The nodes from the settings, with their addresses.
    pub(super) fn seeds(&self) -> impl Iterator<Item = (Address, Target)> {
        self.seeds.iter().map(|(address, endpoint)| (address.clone(), Target::Server(endpoint.clone())))
    }

    /// Sends a request whose keys share this slot. Follows redirects.
    pub(in crate::redis) async fn call(
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
        Err(RouteError::Failed(nodes_disagree()))
    }

    /// Makes a side call at the slot's primary. Follows redirects.
    pub(in crate::redis) async fn side_call<T: FromRedisValue>(
        &self,
        call: &SideCall<'_>,
    ) -> Result<T, StoreError> {
        let slot = Some(call.slot());
        let (mut primary, mut mode) = (self.owner(slot, call.deadline).await?, CallMode::Single);
        for _ in 0..MAX_ATTEMPTS {
            match call.send(&primary.node, mode).await {
                Err(CommandError::Redirected { redirect, .. }) => {
                    let sent = SentCall { slot, key_count: call.keys.len(), mode };
                    (primary, mode) = self.follow(&primary, redirect, sent, call.deadline).await?;
                }
                Err(error) => {
                    self.refresh_signal.request_after_failure(&primary.address);
                    return Err(error.into());
                }
                Ok(reply) => return Ok(reply),
            }
        }
        Err(nodes_disagree())
    }

    /// Returns the primary that serves the slot. Waits for the first refresh of the slot map.
    async fn owner(&self, slot: Option<u16>, deadline: Instant) -> Result<Owner, StoreError> {
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
            StoreError::Unreachable("no primary serves the slot".into())
        })
    }

    /// Returns the primary that serves the slot now that `failed` is unreachable, or `failure` if it is still `failed`.
    fn new_owner(&self, failed: &Owner, slot: Option<u16>, failure: StoreError) -> Result<Owner, RouteError> {
        self.refresh_signal.request_after_failure(&failed.address);
        let owner = self.map.lock().owner(slot);
        owner.filter(|owner| !Arc::ptr_eq(owner, failed)).ok_or(RouteError::Failed(failure))
    }

    /// Returns where and how to send a request after a redirect.
    async fn follow(
        &self,
        from: &Owner,
        redirect: Redirect,
        sent: SentCall,
        deadline: Instant,
    ) -> Result<(Owner, CallMode), RouteError> {
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
            // A key of the call is on the other node, perhaps the key of another request: retry this request in a call
            // of its own.
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

    fn redirect_target(&self, address: Address) -> Owner {
        self.map.lock().redirect_target(&address, |address| self.open(address))
    }

    fn open(&self, address: &Address) -> Arc<Node> {
        let target = Target::Server(self.seeds[0].1.at(&address.host, address.port));
        let name = format!("{} {address}", self.prefix).trim_start().to_owned();
        let node = Node::start(name, target, &self.options, self.queue_depth.for_node(), &self.tasks);
        if self.closing.is_cancelled() {
            node.close();
        }
        Arc::new(node)
    }

    /// `true` once a refresh of the slot map has succeeded.
    pub(super) fn is_loaded(&self) -> bool {
        self.map.lock().is_loaded()
    }

    /// Takes over the slots that a node reported. Returns `true` if a primary joined or left.
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

    /// Records that no node reported the slots. Requests fail with this error until the first successful refresh.
    pub(super) fn refresh_failed(&self, failure: StoreError) {
        if !self.is_loaded() {
            self.first_refresh.send_replace(Some(Err(failure)));
        }
    }
}

fn nodes_disagree() -> StoreError {
    StoreError::Refused("the nodes disagree about which one serves the slot".to_owned())
}

/// Returns a seed's address. An empty host in its replies means this host.
fn seed_address(seed: &Endpoint) -> Address {
    // A server behind a Unix socket is on this machine.
    let (host, port) = seed.address().unwrap_or(("localhost", 0));
    Address { host: host.to_owned(), port }
}
