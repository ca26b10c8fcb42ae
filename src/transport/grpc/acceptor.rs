//! Accepts connections and assigns each to a worker. Envoy opens few connections and keeps them, so a bad distribution
//! would leave cores idle for hours.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::connection::{AcceptedConnection, OpenConnections};
use crate::telemetry::metrics::CloseReason;
use crate::transport::accept;
use crate::transport::admission::{Admission, Admitted};

/// Connections that may wait for one worker, as when all callers connect anew. A longer queue means that the worker no
/// longer runs.
const HANDOFF_QUEUE: usize = 1_024;

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
    pub(super) async fn run(&mut self, listener: &TcpListener, admission: &Admission) {
        loop {
            let (stream, client) = accept::next_connection(listener, admission).await;
            let assigned = admission.admit(client).and_then(|admitted| self.assign(stream, admitted));
            if let Err(reason) = assigned {
                admission.record(reason, None);
            }
        }
    }

    /// Assigns the connection to the worker with the fewest open connections.
    fn assign(&mut self, stream: TcpStream, admitted: Admitted) -> Result<(), CloseReason> {
        let count = self.workers.len();
        let candidates = (0..count).map(|step| (self.next + step) % count);
        let index = candidates.min_by_key(|&index| self.workers[index].open.count());
        let index = index.ok_or(CloseReason::Handoff)?;
        self.next = index + 1;
        let worker = &self.workers[index];
        let permit = worker.open.acquire(admitted);
        let stream = stream.into_std().map_err(|_| CloseReason::Handoff)?;
        let sent = worker.connections.try_send(AcceptedConnection { stream, permit });
        sent.map_err(|_| CloseReason::Handoff)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::metrics::{Metrics, Port};
    use crate::transport::ConnectionBounds;

    /// A connection that was just accepted; its client's end is closed at once.
    async fn connection(listener: &TcpListener) -> TcpStream {
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        client.expect("a connection");
        accepted.expect("a connection").0
    }

    fn admitted() -> Admitted {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: 1, per_address: 1 };
        let admission = Admission::new(Port::Grpc, bounds, metrics.connections(Port::Grpc));
        admission.admit([127, 0, 0, 1].into()).expect("the first connection")
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
            acceptor.assign(connection(&listener).await, admitted()).expect("a worker takes it");
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
        let assigned = acceptor.assign(connection(&listener).await, admitted());
        assert_eq!(assigned, Err(CloseReason::Handoff));
        assert_eq!(acceptor.workers[0].open.count(), 0);
    }
}
