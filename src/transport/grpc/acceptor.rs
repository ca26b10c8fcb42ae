//! Accepts connections and assigns each to a worker. Envoy opens few connections and keeps them, so a bad distribution
//! would leave cores idle for hours.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::connection::{AcceptedConnection, OpenConnections};
use crate::transport::accept;

/// Connections that may wait for one worker. A worker with more does not run any more.
const HANDOFF_QUEUE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Acceptor {
    slots: Vec<WorkerSlot>,
    /// The first worker to consider for the next connection: round-robin among equally loaded workers.
    next: usize,
}

/// The acceptor's end of one worker.
#[derive(Debug)]
struct WorkerSlot {
    connections: mpsc::Sender<AcceptedConnection>,
    open: OpenConnections,
}

impl Acceptor {
    /// Adds a worker; its connections arrive at the receiver.
    pub(super) fn add_worker(&mut self) -> mpsc::Receiver<AcceptedConnection> {
        let (connections, receiver) = mpsc::channel(HANDOFF_QUEUE);
        self.slots.push(WorkerSlot { connections, open: OpenConnections::default() });
        receiver
    }

    /// Accepts connections until it is dropped. Never returns.
    pub(super) async fn run(&mut self, listener: &TcpListener, max_connections: usize) {
        loop {
            let stream = accept::next_connection(listener).await;
            let open: usize = self.slots.iter().map(|slot| slot.open.count()).sum();
            if open >= max_connections {
                tracing::warn!(open, "connection refused: the maximum number of connections is open");
                continue;
            }
            self.assign(stream);
        }
    }

    /// Assigns the connection to the worker with the fewest open connections.
    fn assign(&mut self, stream: TcpStream) {
        let count = self.slots.len();
        let candidates = (0..count).map(|step| (self.next + step) % count);
        let Some(index) = candidates.min_by_key(|&index| self.slots[index].open.count()) else {
            return;
        };
        self.next = index + 1;
        let slot = &self.slots[index];
        let permit = slot.open.acquire();
        let sent =
            stream.into_std().map(|stream| slot.connections.try_send(AcceptedConnection { stream, permit }));
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!(worker = index, "connection refused: its worker accepts none");
        }
    }
}
