//! A worker's task that asks the store for units and returns unused ones. No caller waits for it.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::ticks;
use engine::algorithm::Kernel;
use engine::{Charge, Charges, Charging, Cost, FailurePolicy, Role, Store};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::table::{Leases, SWEEP_US};

/// Most asks that wait for the task. A process sends one per key at a time.
pub(super) const WAITING_ASKS: usize = 4_096;
/// Longest time in which a stopping process returns its units.
const STOP_WITHIN: Duration = Duration::from_secs(1);

/// Units to ask for, or an undo of unused ones.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    /// The lease's own key: a later lease on the same counter allocates another.
    pub(super) key: Arc<str>,
    pub(super) kernel: Kernel,
    pub(super) cost: Cost,
}

/// Asks for units and returns them, through the store below the layer.
#[derive(Debug)]
pub struct Lender<S, C> {
    pub(super) below: Arc<S>,
    pub(super) leases: Arc<Leases>,
    pub(super) clock: C,
    pub(super) asks: mpsc::Receiver<Errand>,
}

impl<S: Store, C: Clock> Lender<S, C> {
    /// Runs until `stop`, or until the layer is dropped. Then returns all units, within a second.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut ticks = ticks(Duration::from_micros(SWEEP_US));
        let Self { below, leases, clock, asks } = &mut self;
        let (below, leases, clock) = (&*below, &*leases, &*clock);
        let run = |errand| run(below, leases, clock, errand);
        let mut running = FuturesUnordered::new();
        // Without leases the task does not wake.
        let mut has_leases = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = leases.began.notified() => has_leases = true,
                ask = asks.recv() => match ask {
                    Some(ask) => running.push(run(ask)),
                    None => break,
                },
                Some(()) = running.next() => {}
                _ = ticks.tick(), if has_leases => {
                    running.extend(leases.sweep(clock.now_us()).into_iter().map(run));
                    has_leases = !leases.is_empty();
                }
            }
        }
        let finish = async {
            while running.next().await.is_some() {}
            running.extend(leases.take_out(clock.now_us(), true).into_iter().map(run));
            while running.next().await.is_some() {}
        };
        if tokio::time::timeout(STOP_WITHIN, finish).await.is_err() {
            tracing::warn!("the store did not take back all unused units in time; they count as used");
        }
    }
}

pub(super) async fn run<S: Store, C: Clock>(below: &S, leases: &Leases, clock: &C, errand: Errand) {
    let Errand { ref key, kernel, cost } = errand;
    let (charging, role) = match cost.is_refund() {
        true => (Charging::Postpaid, Role::Booked),
        false => (Charging::Prepaid, Role::Enforce),
    };
    let mut charges = Charges::default();
    let charge = Charge { kernel, cost, charging, role, on_store_failure: FailurePolicy::Error };
    charges.push(charge, |text| text.push_str(key));
    let sent_us = clock.now_us();
    let result = below.decide(&charges).await.map(|outcomes| outcomes.by_charge[0]);
    leases.answered(&errand, result.as_ref(), (sent_us, clock.now_us()));
}
