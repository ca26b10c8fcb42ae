//! Handles to the workers, for the acceptor, the balancer and the other workers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use tokio::runtime::RuntimeMetrics;
use tokio::sync::{Notify, mpsc};

use super::fast::MovingConnection;
use crate::net::admission::Admitted;
use crate::net::socket::{ClientSocket, TlsSession};

/// Maximum connections on their way to one worker. All callers may connect together, for example after a restart. A
/// longer queue means that the worker has stopped.
const ARRIVING_QUEUE: usize = 1_024;
/// Maximum unfinished orders of a worker.
const ORDERS_QUEUE: usize = 4;

/// All workers. Shared by the acceptor, the balancer and the workers.
#[derive(Debug)]
pub(super) struct Workers {
    pub(super) links: Vec<WorkerLink>,
    /// The first `in_use` workers serve connections.
    in_use: AtomicUsize,
    /// Notified when a worker holds a call.
    pub(super) burst: Arc<Notify>,
}

#[derive(Debug)]
pub(super) struct WorkerLink {
    /// Each open connection of the worker has a clone.
    pub(super) open: CountedConnection,
    /// Metrics of its runtime; empty until it runs.
    pub(super) metrics: OnceLock<RuntimeMetrics>,
    pub(super) arriving: mpsc::Sender<Arriving>,
    pub(super) orders: mpsc::Sender<GiveAway>,
}

pub(super) enum Arriving {
    New(AcceptedConnection),
    Moved(MovingConnection),
}

/// Counts one connection of a worker until dropped: the worker has the other clone.
pub(super) type CountedConnection = Arc<()>;

/// A connection that its worker does not serve yet.
#[derive(Debug)]
pub(super) struct AcceptedConnection {
    pub(super) stream: AcceptedStream,
    /// Its slot among the port's connections.
    pub(super) admitted: Admitted,
    pub(super) counted: CountedConnection,
}

#[derive(Debug)]
pub(super) enum AcceptedStream {
    Clear(ClientSocket),
    /// A session after its handshake.
    Tls(TlsSession),
}

/// An order to a worker: hand connections to another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GiveAway {
    pub(super) to: usize,
    pub(super) connections: usize,
}

/// The receiving ends of one worker.
pub(super) struct Inbox {
    pub(super) arriving: mpsc::Receiver<Arriving>,
    pub(super) orders: mpsc::Receiver<GiveAway>,
}

impl Workers {
    /// Returns the links to `workers` workers, of which the first is in use, and each worker's inbox.
    pub(super) fn new(workers: usize) -> (Arc<Self>, Vec<Inbox>) {
        let link = |_| {
            let (arriving, arriving_receiver) = mpsc::channel(ARRIVING_QUEUE);
            let (orders, orders_receiver) = mpsc::channel(ORDERS_QUEUE);
            let link = WorkerLink { open: Arc::default(), metrics: OnceLock::new(), arriving, orders };
            (link, Inbox { arriving: arriving_receiver, orders: orders_receiver })
        };
        let (links, inboxes) = (0..workers).map(link).unzip();
        (Arc::new(Self { links, in_use: AtomicUsize::new(1), burst: Arc::default() }), inboxes)
    }

    pub(super) fn in_use(&self) -> usize {
        self.in_use.load(Ordering::Relaxed)
    }

    pub(super) fn set_in_use(&self, workers: usize) {
        self.in_use.store(workers, Ordering::Relaxed);
    }
}

impl WorkerLink {
    pub(super) fn open_connections(&self) -> usize {
        Arc::strong_count(&self.open) - 1
    }
}
