//! Accepts connections and assigns each to a worker in use.
//!
//! TLS handshakes run on their own thread, not in a worker: an RSA signature takes a millisecond, and a thousand
//! clients that connect together must not delay other clients' calls. Workers receive finished sessions.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::worker_link::{AcceptedConnection, AcceptedStream, Arriving, Workers};
use crate::net::PortListener;
use crate::net::admission::{Admission, Admitted};
use crate::net::listener::PortStream;
use crate::net::socket::ClientSocket;
use crate::net::tls_port::PortTls;
use crate::telemetry::metrics::CloseReason;

#[derive(Debug)]
pub(super) struct Acceptor {
    workers: Arc<Workers>,
    /// First worker to consider for the next connection: round-robin among equally loaded workers.
    next: usize,
}

impl Acceptor {
    pub(super) fn new(workers: Arc<Workers>) -> Self {
        Self { workers, next: 0 }
    }

    /// Accepts and assigns connections, with `tls` after their handshakes. Never returns. When the acceptor is dropped,
    /// the handshakes end.
    pub(super) async fn run(
        &mut self,
        listener: &PortListener,
        admission: &Admission,
        tls: Option<&PortTls>,
    ) {
        let mut handshakes = JoinSet::new();
        loop {
            let assigned = tokio::select! {
                (stream, client) = listener.next_connection(admission) => match (admission.admit(client), tls) {
                    (Err(reason), _) => Err(reason),
                    (Ok(admitted), None) => self.assign_clear(stream, admitted),
                    (Ok(admitted), Some(tls)) => {
                        if let Some(handshake) = tls.begin(client) {
                            handshakes.spawn(async move { Some((handshake.run(stream).await?, admitted)) });
                        }
                        Ok(())
                    }
                },
                Some(ended) = handshakes.join_next() => match ended {
                    Ok(Some((session, admitted))) => self.assign(AcceptedStream::Tls(session), admitted),
                    // The handshake failed, and is counted.
                    Ok(None) => Ok(()),
                    Err(error) => {
                        tracing::error!(%error, "TLS handshake panicked");
                        Ok(())
                    }
                },
            };
            if let Err(reason) = assigned {
                admission.record(reason, None);
            }
        }
    }

    /// The socket leaves the acceptor's runtime when its worker first reads.
    fn assign_clear(&mut self, stream: PortStream, admitted: Admitted) -> Result<(), CloseReason> {
        let socket = ClientSocket::from(stream);
        socket.moved_flag().set();
        self.assign(AcceptedStream::Clear(socket), admitted)
    }

    /// Assigns the connection to the worker in use with the fewest open connections.
    fn assign(&mut self, stream: AcceptedStream, admitted: Admitted) -> Result<(), CloseReason> {
        let links = &self.workers.links;
        let count = self.workers.in_use().min(links.len());
        let candidates = (0..count).map(|step| (self.next + step) % count);
        let index = candidates.min_by_key(|&index| links[index].open_connections());
        let index = index.ok_or(CloseReason::Handoff)?;
        self.next = index + 1;
        let accepted = AcceptedConnection { stream, admitted, counted: Arc::clone(&links[index].open) };
        let sent = links[index].arriving.try_send(Arriving::New(accepted));
        sent.map_err(|_| CloseReason::Handoff)
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::net::ConnectionBounds;
    use crate::telemetry::metrics::{Metrics, Port};

    /// A newly accepted connection; the client's end is closed immediately.
    async fn connection(listener: &TcpListener) -> PortStream {
        let address = listener.local_addr().expect("an address");
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        client.expect("a connection");
        PortStream::Left(accepted.expect("a connection").0)
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
        let (workers, mut inboxes) = Workers::new(3);
        workers.set_in_use(3);
        let mut acceptor = Acceptor::new(workers);
        let mut open: Vec<Vec<Arriving>> = vec![vec![], vec![], vec![]];
        // (worker whose connection closes first, worker that must get the next connection)
        let table = [(None, 0), (None, 1), (None, 2), (None, 0), (Some(2), 2), (None, 1), (Some(0), 0)];
        for (step, (closes, expected)) in table.into_iter().enumerate() {
            if let Some(worker) = closes {
                open[worker].clear();
            }
            acceptor.assign_clear(connection(&listener).await, admitted()).expect("a worker takes it");
            for (index, inbox) in inboxes.iter_mut().enumerate() {
                let received = inbox.arriving.try_recv().ok();
                assert_eq!(received.is_some(), index == expected, "step {step}, worker {index}");
                open[index].extend(received);
            }
        }
    }

    #[tokio::test]
    async fn a_connection_for_a_worker_that_ended_is_closed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let (workers, inboxes) = Workers::new(1);
        let mut acceptor = Acceptor::new(workers);
        drop(inboxes);
        let assigned = acceptor.assign_clear(connection(&listener).await, admitted());
        assert_eq!(assigned, Err(CloseReason::Handoff));
        assert_eq!(acceptor.workers.links[0].open_connections(), 0);
    }
}
