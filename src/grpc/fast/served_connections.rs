//! The connections that a worker serves: from the acceptor, and from other workers.

use std::cmp::Reverse;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::connection::ConnectionServer;
use super::placement::{MovingConnection, PlacedConnection, Placement};
use crate::decide::CertificateRights;
use crate::grpc::worker_link::{
    AcceptedConnection, AcceptedStream, Arriving, CountedConnection, GiveAway, Workers,
};
use crate::net::admission::Admitted;
use crate::net::socket::{MovedFlag, client_certificate};

pub(super) struct ServedConnections {
    server: Arc<ConnectionServer>,
    workers: Arc<Workers>,
    own: usize,
    tasks: JoinSet<Option<MovingConnection>>,
    /// Placements of the open connections, and of some that have ended.
    placements: Vec<Arc<Placement>>,
}

/// Placements of ended connections are removed when the list exceeds twice the number of connections plus this.
const ENDED_PLACEMENTS: usize = 16;

impl ServedConnections {
    pub(super) fn new(server: Arc<ConnectionServer>, workers: Arc<Workers>, own: usize) -> Self {
        Self { server, workers, own, tasks: JoinSet::new(), placements: Vec::new() }
    }

    /// Serves a connection. Clear text and TLS have futures of different types, so clear text does not pay for TLS.
    pub(super) fn start(&mut self, accepted: AcceptedConnection) {
        let AcceptedConnection { stream, admitted, counted } = accepted;
        match stream {
            AcceptedStream::Clear(socket) => {
                let caller = (admitted, CertificateRights::default());
                self.serve(socket.moved_flag(), socket, caller, counted);
            }
            AcceptedStream::Tls(session) => {
                let rights = &self.server.calls.decisions.rights;
                let certificate = rights.of_certificate(client_certificate(&session).as_ref());
                self.serve(session.get_ref().0.moved_flag(), session, (admitted, certificate), counted);
            }
        }
    }

    fn serve<I>(
        &mut self,
        moved: MovedFlag,
        stream: I,
        (admitted, certificate): (Admitted, CertificateRights),
        counted: CountedConnection,
    ) where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let placement = Placement::new(moved);
        let server = Arc::clone(&self.server);
        let serving = server.serve(stream, Arc::clone(&placement), (Arc::new(admitted), certificate));
        self.spawn(PlacedConnection::new(Box::pin(serving), placement, counted));
    }

    /// Continues a connection that another worker has served.
    pub(super) fn go_on(&mut self, moving: MovingConnection) {
        let counted = Arc::clone(&self.workers.links[self.own].open);
        self.spawn(moving.arrive(Arc::clone(&self.server.calls), counted));
    }

    fn spawn(&mut self, connection: PlacedConnection) {
        if self.placements.len() > 2 * self.tasks.len() + ENDED_PLACEMENTS {
            self.forget_ended();
        }
        self.placements.push(Arc::clone(&connection.placement));
        self.tasks.spawn(connection);
    }

    /// Removes the placements of ended connections. An open connection's task shares its placement with the list.
    fn forget_ended(&mut self) {
        self.placements.retain(|placement| Arc::strong_count(placement) > 1);
    }

    /// Moves connections to another worker, a mix of busy and quiet ones.
    pub(super) fn give_away(&mut self, order: GiveAway) {
        self.forget_ended();
        // Connections of an earlier order may still be leaving.
        let leaving = self.tasks.len().saturating_sub(self.placements.len());
        let connections = order.connections.saturating_sub(leaving);
        let placements = self.placements.drain(..);
        let mut busiest_first: Vec<_> =
            placements.map(|placement| (Reverse(placement.take_polls()), placement)).collect();
        busiest_first.sort_by_key(|(polls, _)| *polls);
        let step = (busiest_first.len() / connections.max(1)).max(1);
        for (index, (_, placement)) in busiest_first.into_iter().enumerate() {
            if index % step == step - 1 && index / step < connections {
                placement.move_to(order.to);
            } else {
                self.placements.push(placement);
            }
        }
    }

    /// Waits until a connection ends or leaves. One that leaves goes to the other worker, unless that is ending. `None`
    /// if there is no connection.
    pub(super) async fn one_leaves(&mut self) -> Option<()> {
        match self.tasks.join_next().await? {
            Ok(None) => {}
            Ok(Some(moving)) => {
                let to = &self.workers.links[moving.to].arriving;
                if let Err(refused) = to.try_send(Arriving::Moved(moving))
                    && let Arriving::Moved(moving) = refused.into_inner()
                {
                    self.go_on(moving);
                }
            }
            Err(error) => tracing::error!(%error, "connection panicked"),
        }
        Some(())
    }
}
