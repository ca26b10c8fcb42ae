//! A worker as the acceptor, the balancer and the other workers see it.

use std::sync::{Arc, OnceLock};

use tokio::runtime::RuntimeMetrics;
use tokio::sync::mpsc;

use super::acceptor::{AcceptedConnection, OpenConnections};
use super::balance::GiveAway;
use super::placement::MovingConnection;

/// The most connections that may be on their way to one worker. All callers may connect at once, for example after a
/// restart. A longer queue means that the worker no longer runs.
const ARRIVING_QUEUE: usize = 1_024;
/// The most orders that a worker may have got and not carried out.
const ORDERS_QUEUE: usize = 4;

#[derive(Debug)]
pub(super) struct WorkerLink {
    pub(super) open: OpenConnections,
    /// The metrics of its runtime; none until it runs.
    pub(super) metrics: OnceLock<RuntimeMetrics>,
    pub(super) arriving: mpsc::Sender<Arriving>,
    pub(super) orders: mpsc::Sender<GiveAway>,
}

/// A connection on its way to a worker.
pub(super) enum Arriving {
    New(AcceptedConnection),
    Moved(MovingConnection),
}

/// What comes to one worker.
pub(super) struct Inbox {
    pub(super) arriving: mpsc::Receiver<Arriving>,
    pub(super) orders: mpsc::Receiver<GiveAway>,
}

/// The links to this number of workers, and the inbox of each.
pub(super) fn links(workers: usize) -> (Arc<[WorkerLink]>, Vec<Inbox>) {
    let link = |_| {
        let (arriving, arriving_receiver) = mpsc::channel(ARRIVING_QUEUE);
        let (orders, orders_receiver) = mpsc::channel(ORDERS_QUEUE);
        let link =
            WorkerLink { open: OpenConnections::default(), metrics: OnceLock::new(), arriving, orders };
        (link, Inbox { arriving: arriving_receiver, orders: orders_receiver })
    };
    let (links, inboxes): (Vec<_>, _) = (0..workers).map(link).unzip();
    (links.into(), inboxes)
}
