//! Bounds the open connections of an HTTP port. When the port is full, the longest idle connection closes for the new
//! one, so that idle connections do not keep out probes and scrapers. A connection with a partial request counts as
//! idle, so half-sent requests do not keep clients out either.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::task::{AbortHandle, Id, JoinSet};
use tokio::time::Instant;

use crate::net::admission::{Admission, Admitted, network};
use crate::telemetry::metrics::CloseReason;

/// When a connection became idle. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct IdleSince(Arc<Mutex<Activity>>);

/// In the order in which connections close to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Activity {
    /// Its last answer is sent; what the client still sends is dropped.
    Lingers,
    /// Since its last answer, or since a request's head whose body is incomplete.
    IdleSince(Instant),
    /// A complete request is unanswered.
    Busy,
}

#[derive(Debug)]
pub(super) struct HttpConnections {
    admission: Admission,
    tasks: JoinSet<()>,
    open: HashMap<Id, OpenConnection>,
}

#[derive(Debug)]
struct OpenConnection {
    task: AbortHandle,
    idle: IdleSince,
    admitted: Admitted,
}

impl IdleSince {
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Activity::IdleSince(Instant::now()))))
    }

    pub(super) fn activity(&self) -> Activity {
        *self.0.lock()
    }

    /// The head of a request has arrived, or its answer is sent.
    pub(super) fn becomes_idle(&self) {
        *self.0.lock() = Activity::IdleSince(Instant::now());
    }

    pub(super) fn request_arrived(&self) {
        *self.0.lock() = Activity::Busy;
    }

    pub(super) fn lingers(&self) {
        *self.0.lock() = Activity::Lingers;
    }
}

impl HttpConnections {
    pub(super) fn new(admission: Admission) -> Self {
        Self { admission, tasks: JoinSet::new(), open: HashMap::new() }
    }

    /// Serves a connection of `client` with `serve`, or closes it at the bounds.
    pub(super) fn spawn<T>(&mut self, client: IpAddr, serve: impl FnOnce(IdleSince) -> T)
    where
        T: Future<Output = ()> + Send + 'static,
    {
        let admitted = self.admission.admit(client).or_else(|reason| {
            let same_network = |address| reason != CloseReason::Address || address == network(client);
            if !self.close_longest_idle(same_network) {
                return Err(reason);
            }
            self.admission.record(CloseReason::Idle, None);
            self.admission.admit(client)
        });
        match admitted {
            Ok(admitted) => {
                let idle = IdleSince::now();
                let task = self.tasks.spawn(serve(idle.clone()));
                self.open.insert(task.id(), OpenConnection { task, idle, admitted });
            }
            Err(reason) => self.admission.record(reason, None),
        }
    }

    /// Closes an idle connection, if there is one, of an address that `may_close` accepts.
    fn close_longest_idle(&mut self, may_close: impl Fn(IpAddr) -> bool) -> bool {
        let candidates = self.open.iter().filter(|(_, open)| may_close(open.admitted.address));
        let activities = candidates.map(|(&id, open)| (open.idle.activity(), id));
        let idle = activities.filter(|&(activity, _)| activity != Activity::Busy);
        let Some((_, id)) = idle.min_by_key(|&(activity, _)| activity) else { return false };
        if let Some(closed) = self.open.remove(&id) {
            closed.task.abort();
        }
        true
    }

    /// Waits for a connection to end; pending if there are none.
    pub(super) async fn next_end(&mut self) {
        match self.tasks.join_next_with_id().await {
            Some(Ok((id, ()))) => {
                self.open.remove(&id);
            }
            Some(Err(ended)) => {
                self.open.remove(&ended.id());
                if ended.is_panic() {
                    tracing::error!(error = %ended, "HTTP connection panicked");
                }
            }
            None => std::future::pending().await,
        }
    }

    /// Waits until all connections are closed.
    pub(super) async fn all_closed(mut self) {
        while self.tasks.join_next().await.is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Duration;

    use super::*;
    use crate::net::ConnectionBounds;
    use crate::telemetry::metrics::{Metrics, Port};

    const CLIENTS: [IpAddr; 3] = [
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2)),
        IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3)),
    ];

    /// Opens a connection a second after the one before. Returns its idle time unless it is refused.
    async fn open(connections: &mut HttpConnections, client: IpAddr) -> Option<IdleSince> {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let mut opened = None;
        connections.spawn(client, |idle| {
            opened = Some(idle);
            pending()
        });
        opened
    }

    fn is_open(connections: &HttpConnections, of: &IdleSince) -> bool {
        connections.open.values().any(|open| Arc::ptr_eq(&open.idle.0, &of.0))
    }

    #[tokio::test(start_paused = true)]
    async fn the_longest_idle_connection_gives_its_place_to_a_new_one() {
        let metrics = Metrics::new(800_000).expect("different names");
        let bounds = ConnectionBounds { total: 3, per_address: 2 };
        let admission = Admission::new(Port::Http, bounds, metrics.connections(Port::Http));
        let mut connections = HttpConnections::new(admission);
        let [a, b, c] = CLIENTS;
        let first = open(&mut connections, a).await.expect("room");
        let second = open(&mut connections, b).await.expect("room");
        let third = open(&mut connections, a).await.expect("room");
        // The first connection was in use after the second.
        first.request_arrived();
        tokio::time::sleep(Duration::from_secs(1)).await;
        first.becomes_idle();
        let fourth = open(&mut connections, c).await.expect("in place of the second");
        assert!(!is_open(&connections, &second));
        // The address is at its bound: only its own connections make room.
        let fifth = open(&mut connections, a).await.expect("in place of the third");
        assert!(!is_open(&connections, &third) && is_open(&connections, &fourth));
        // Busy connections stay.
        for busy in [&first, &fourth, &fifth] {
            busy.request_arrived();
        }
        assert!(open(&mut connections, b).await.is_none());
        assert!([&first, &fourth, &fifth].map(|open| is_open(&connections, open)) == [true; 3]);
        // Connections with a partial request do not: the one with the oldest head closes.
        fifth.becomes_idle();
        tokio::time::sleep(Duration::from_secs(1)).await;
        fourth.becomes_idle();
        let sixth = open(&mut connections, b).await.expect("in place of the fifth");
        assert!([&first, &fourth, &sixth].map(|open| is_open(&connections, open)) == [true; 3]);
        // A lingering connection closes first, although its answer was the last one.
        first.becomes_idle();
        first.lingers();
        let seventh = open(&mut connections, c).await.expect("in place of the first");
        assert!([&fourth, &sixth, &seventh].map(|open| is_open(&connections, open)) == [true; 3]);
    }
}
