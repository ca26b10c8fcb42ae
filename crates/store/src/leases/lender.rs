//! A worker's task that asks the store for units and returns unused ones. No caller waits for it.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use engine::algorithm::{Attempt, Kernel};
use engine::{Charges, Cost, DecidedBy, Store, StoreError};
use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::lease::{Lease, Return, charge};
use super::table::{Leases, SWEEP_US};

/// Most asks that wait for the task. A process sends one per key at a time.
const WAITING_ASKS: usize = 4_096;
/// Longest time in which a stopping process returns its units.
const STOP_WITHIN: Duration = Duration::from_millis(250);

/// A charge ahead of the requests that need it.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    /// [`Lease::serial`].
    pub(super) lease: u64,
    pub(super) key: Arc<str>,
    pub(super) kernel: Kernel,
    pub(super) units: u64,
}

impl Ask {
    pub(super) fn of(lease: &Lease, units: u64) -> Self {
        Self { lease: lease.serial, key: Arc::clone(&lease.key), kernel: lease.kernel, units }
    }
}

/// Sends asks to the task.
pub(super) type Asks = mpsc::Sender<Ask>;

/// Asks for units and returns them, through the store below the layer.
#[derive(Debug)]
pub struct Lender<S, C> {
    below: Arc<S>,
    leases: Arc<Leases>,
    clock: C,
    pub(super) asks: mpsc::Receiver<Ask>,
}

impl<S: Store, C: Clock> Lender<S, C> {
    pub(super) fn new(below: Arc<S>, leases: Arc<Leases>, clock: C) -> (Asks, Self) {
        let (sender, asks) = mpsc::channel(WAITING_ASKS);
        (sender, Self { below, leases, clock, asks })
    }

    /// Runs until `stop`, or until the layer is dropped. Then returns all units, within 250 ms.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(Duration::from_micros(SWEEP_US));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let Self { below, leases, clock, asks } = &mut self;
        let lending = Lending { below, leases, clock };
        let (mut asking, mut returning) = (FuturesUnordered::new(), FuturesUnordered::new());
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                ask = asks.recv() => match ask {
                    Some(ask) => asking.push(lending.ask(ask)),
                    None => break,
                },
                Some(()) = asking.next() => {}
                Some(()) = returning.next() => {}
                _ = ticks.tick(), if !lending.leases.is_empty() => {
                    let returns = lending.leases.sweep(lending.clock.now_us());
                    returning.extend(returns.into_iter().map(|unused| lending.give_back(unused)));
                }
            }
        }
        let finish = async {
            while asking.next().await.is_some() || returning.next().await.is_some() {}
            lending.give_all_back().await;
        };
        if tokio::time::timeout(STOP_WITHIN, finish).await.is_err() {
            tracing::warn!("the store did not take back all unused units in time; they count as used");
        }
    }
}

/// The calls of a [`Lender`].
#[derive(Debug)]
pub(super) struct Lending<'l, S, C> {
    pub(super) below: &'l S,
    pub(super) leases: &'l Leases,
    pub(super) clock: &'l C,
}

impl<S: Store, C: Clock> Lending<'_, S, C> {
    async fn decide(&self, key: &str, kernel: Kernel, cost: Cost) -> Result<engine::Outcome, StoreError> {
        let mut charges = Charges::default();
        charges.push(charge(kernel, cost), |text| text.push_str(key));
        Ok(self.below.decide(&charges).await?.by_charge[0])
    }

    pub(super) async fn ask(&self, ask: Ask) {
        let sent_us = self.clock.now_us();
        let result = self.decide(&ask.key, ask.kernel, Cost::take(ask.units)).await;
        self.leases.asked(&ask, result.as_ref(), (sent_us, self.clock.now_us()));
    }

    pub(super) async fn give_back(&self, unused: Return) {
        let Return { key, kernel, cost } = unused;
        let has_returned =
            self.decide(&key, kernel, cost).await.is_ok_and(|outcome| match outcome.decided_by {
                DecidedBy::Store(after) => {
                    kernel.has_returned(&after.reading, Attempt { now_us: after.now_us, cost })
                }
                _ => false,
            });
        self.leases.returned(&key, cost.refunded(), has_returned);
    }

    pub(super) async fn give_all_back(&self) {
        let returns = self.leases.close(self.clock.now_us());
        join_all(returns.into_iter().map(|unused| self.give_back(unused))).await;
    }
}
