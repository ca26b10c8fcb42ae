//! Accepts connections and assigns each to a worker. Envoy opens few connections and keeps them, so a bad distribution
//! would leave cores idle for hours.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::connection::{AcceptedConnection, OpenConnections};
use crate::transport::accept;

/// Connections that may wait for one worker. A longer queue means that the worker no longer runs.
const HANDOFF_QUEUE: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Acceptor {
    workers: Vec<WorkerSender>,
    /// The first worker to consider for the next connection: round-robin among equally loaded workers.
    next: usize,
}

/// The sending half of the channel to one worker.
#[derive(Debug)]
struct WorkerSender {
    connections: mpsc::Sender<AcceptedConnection>,
    open: OpenConnections,
}

impl Acceptor {
    /// Adds a worker; its connections arrive at the receiver.
    pub(super) fn add_worker(&mut self) -> mpsc::Receiver<AcceptedConnection> {
        let (connections, receiver) = mpsc::channel(HANDOFF_QUEUE);
        self.workers.push(WorkerSender { connections, open: OpenConnections::default() });
        receiver
    }

    /// Accepts connections until it is dropped. Never returns.
    pub(super) async fn run(&mut self, listener: &TcpListener, max_connections: usize) {
        loop {
            let stream = accept::next_connection(listener).await;
            let open: usize = self.workers.iter().map(|worker| worker.open.count()).sum();
            if open >= max_connections {
                tracing::warn!(open, "connection closed: the maximum number of connections is open");
                continue;
            }
            self.assign(stream);
        }
    }

    /// Assigns the connection to the worker with the fewest open connections.
    fn assign(&mut self, stream: TcpStream) {
        let count = self.workers.len();
        let candidates = (0..count).map(|step| (self.next + step) % count);
        let Some(index) = candidates.min_by_key(|&index| self.workers[index].open.count()) else {
            return;
        };
        self.next = index + 1;
        let worker = &self.workers[index];
        let permit = worker.open.acquire();
        let sent = stream
            .into_std()
            .map(|stream| worker.connections.try_send(AcceptedConnection { stream, permit }));
        if !matches!(sent, Ok(Ok(()))) {
            tracing::warn!(
                worker = index,
                "connection closed: the handoff queue of its worker is full or closed"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection that was just accepted; its client's end is closed at once.
    async fn connection(listener: &TcpListener) -> TcpStream {
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        client.expect("a connection");
        accepted.expect("a connection").0
    }

    #[tokio::test]
    async fn the_worker_with_the_fewest_open_connections_gets_the_next() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut acceptor = Acceptor::default();
        let mut workers = [acceptor.add_worker(), acceptor.add_worker(), acceptor.add_worker()];
        let mut open: Vec<Vec<AcceptedConnection>> = vec![vec![], vec![], vec![]];
        // The worker whose connections close first, and the worker that must get the next connection.
        let table = [(None, 0), (None, 1), (None, 2), (None, 0), (Some(2), 2), (None, 1), (Some(0), 0)];
        for (step, (closes, expected)) in table.into_iter().enumerate() {
            if let Some(worker) = closes {
                open[worker].clear();
            }
            acceptor.assign(connection(&listener).await);
            for (index, worker) in workers.iter_mut().enumerate() {
                let received = worker.try_recv().ok();
                assert_eq!(received.is_some(), index == expected, "step {step}, worker {index}");
                open[index].extend(received);
            }
        }
    }

    #[tokio::test]
    async fn a_connection_for_a_worker_that_ended_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let mut acceptor = Acceptor::default();
        drop(acceptor.add_worker());
        acceptor.assign(connection(&listener).await);
        assert_eq!(acceptor.workers[0].open.count(), 0);
    }
}
