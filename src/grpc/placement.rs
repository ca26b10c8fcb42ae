//! Which worker serves a connection. A connection can move to another worker between two polls of its task: the future
//! that serves it continues on the other worker's runtime, with that worker's limiter and store. Its client does not
//! notice. Calls that the old worker has not answered yet are answered from there.

use std::cmp::Reverse;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use engine::Store;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::mpsc;
use tokio::task::{JoinError, JoinSet};

use super::acceptor::{AcceptedConnection, AcceptedStream, CountedConnection, OpenConnections};
use super::balance::GiveAway;
use super::connection::ConnectionServer;
use crate::net::admission::Admitted;
use crate::net::socket::{ClientSocket, MovedFlag};

/// Shared by the worker that serves a connection, the task and the socket of the connection.
pub(super) struct Placement<S> {
    /// Set when another worker begins to serve the connection. The socket then registers with its runtime.
    socket_has_moved: MovedFlag,
    /// Set at the same time. The task then takes `new_server`.
    task_has_moved: AtomicBool,
    new_server: Mutex<Option<Arc<ConnectionServer<S>>>>,
    /// The index of the worker that is to serve the connection; [`STAYS`] if it is to stay.
    moves_to: AtomicUsize,
    /// How often the task was polled since its worker last looked: how busy the connection is.
    polls: AtomicUsize,
    task: AtomicWaker,
}

const STAYS: usize = usize::MAX;

impl<S> Placement<S> {
    pub(super) fn new(socket_has_moved: MovedFlag) -> Arc<Self> {
        Arc::new(Self {
            socket_has_moved,
            task_has_moved: AtomicBool::new(false),
            new_server: Mutex::new(None),
            moves_to: AtomicUsize::new(STAYS),
            polls: AtomicUsize::new(0),
            task: AtomicWaker::new(),
        })
    }

    /// Asks the task to move to the worker of this index.
    pub(super) fn move_to(&self, worker: usize) {
        self.moves_to.store(worker, Ordering::Release);
        self.task.wake();
    }

    pub(super) fn take_polls(&self) -> usize {
        self.polls.swap(0, Ordering::Relaxed)
    }

    /// Records a poll. Returns the server of the worker that has just begun to serve the connection.
    pub(super) fn begin_poll(&self) -> Option<Arc<ConnectionServer<S>>> {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if !self.task_has_moved.load(Ordering::Relaxed) {
            return None;
        }
        self.task_has_moved.store(false, Ordering::Relaxed);
        self.new_server.lock().take()
    }
}

/// The task of a connection on one worker. It ends with the connection, or with what another worker needs to go on.
pub(super) struct PlacedConnection<S> {
    serving: Option<BoxFuture<'static, ()>>,
    placement: Arc<Placement<S>>,
    has_registered: bool,
    _counted: CountedConnection,
}

/// A connection on its way to another worker.
pub(super) struct MovingConnection<S> {
    serving: BoxFuture<'static, ()>,
    placement: Arc<Placement<S>>,
    /// The index of the worker.
    pub(super) to: usize,
}

impl<S> PlacedConnection<S> {
    pub(super) fn new(
        serving: BoxFuture<'static, ()>,
        placement: Arc<Placement<S>>,
        counted: CountedConnection,
    ) -> Self {
        Self { serving: Some(serving), placement, has_registered: false, _counted: counted }
    }

    pub(super) fn placement(&self) -> &Arc<Placement<S>> {
        &self.placement
    }
}

impl<S> MovingConnection<S> {
    /// Continues on the current runtime, with the limiter and the store of `server`.
    pub(super) fn arrive(
        self,
        server: Arc<ConnectionServer<S>>,
        counted: CountedConnection,
    ) -> PlacedConnection<S> {
        let placement = &self.placement;
        *placement.new_server.lock() = Some(server);
        placement.moves_to.store(STAYS, Ordering::Relaxed);
        placement.task_has_moved.store(true, Ordering::Relaxed);
        placement.socket_has_moved.set();
        PlacedConnection::new(self.serving, self.placement, counted)
    }
}

impl<S> Future for PlacedConnection<S> {
    type Output = Option<MovingConnection<S>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if !self.has_registered {
            self.placement.task.register(cx.waker());
            self.has_registered = true;
        }
        let to = self.placement.moves_to.load(Ordering::Acquire);
        if to == STAYS
            && let Some(serving) = &mut self.serving
        {
            return serving.as_mut().poll(cx).map(|()| None);
        }
        let placement = Arc::clone(&self.placement);
        Poll::Ready(self.serving.take().map(|serving| MovingConnection { serving, placement, to }))
    }
}

/// The connections that a worker serves.
pub(super) struct ServedConnections<S> {
    server: Arc<ConnectionServer<S>>,
    open: OpenConnections,
    pub(super) tasks: JoinSet<Option<MovingConnection<S>>>,
    /// The placements of the open connections, and of some that have ended.
    placements: Vec<Arc<Placement<S>>>,
}

/// The placements of ended connections are removed when the list is longer than twice the number of connections plus
/// this number.
const ENDED_PLACEMENTS: usize = 16;

impl<S: Store + 'static> ServedConnections<S> {
    pub(super) fn new(server: Arc<ConnectionServer<S>>, open: OpenConnections) -> Self {
        Self { server, open, tasks: JoinSet::new(), placements: Vec::new() }
    }

    /// Registers the socket of a connection with the runtime of this thread, and serves the connection. Each kind of
    /// socket has a future of its own type, so that clear text does not pay for TLS.
    pub(super) fn start(&mut self, accepted: AcceptedConnection) -> io::Result<()> {
        let AcceptedConnection { stream, admitted, counted } = accepted;
        match stream {
            AcceptedStream::Tcp(socket) => {
                let socket = ClientSocket::from(TcpStream::from_std(socket)?);
                self.serve(socket.moved_flag(), socket, admitted, counted);
            }
            AcceptedStream::Unix(socket) => {
                let socket = ClientSocket::from(UnixStream::from_std(socket)?);
                self.serve(socket.moved_flag(), socket, admitted, counted);
            }
            AcceptedStream::Tls(session) => {
                self.serve(session.get_ref().0.moved_flag(), session, admitted, counted);
            }
        }
        Ok(())
    }

    fn serve<I>(&mut self, moved: MovedFlag, stream: I, admitted: Admitted, counted: CountedConnection)
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let placement = Placement::new(moved);
        let server = Arc::clone(&self.server);
        let serving = server.serve(stream, Arc::clone(&placement), Arc::new(admitted));
        self.spawn(PlacedConnection::new(Box::pin(serving), placement, counted));
    }

    /// Continues a connection that another worker has served.
    pub(super) fn go_on(&mut self, moving: MovingConnection<S>) {
        let connection = moving.arrive(Arc::clone(&self.server), self.open.count_one());
        self.spawn(connection);
    }

    fn spawn(&mut self, connection: PlacedConnection<S>) {
        if self.placements.len() > 2 * self.tasks.len() + ENDED_PLACEMENTS {
            self.forget_ended();
        }
        self.placements.push(Arc::clone(connection.placement()));
        self.tasks.spawn(connection);
    }

    /// Removes the placements of ended connections. The task of an open connection shares its placement with the list.
    fn forget_ended(&mut self) {
        self.placements.retain(|placement| Arc::strong_count(placement) > 1);
    }

    /// Asks connections to move to another worker, a mix of busy and quiet ones.
    pub(super) fn give_away(&mut self, order: GiveAway) {
        self.forget_ended();
        // Those of an earlier order may still be here.
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

    /// Takes the result of a connection's task: passes on a connection that moves, unless its worker is ending.
    pub(super) fn end(
        &mut self,
        ended: Result<Option<MovingConnection<S>>, JoinError>,
        workers: &[mpsc::Sender<MovingConnection<S>>],
    ) {
        match ended {
            Ok(None) => {}
            Ok(Some(moving)) => {
                if let Err(refused) = workers[moving.to].try_send(moving) {
                    self.go_on(refused.into_inner());
                }
            }
            Err(error) => tracing::error!(%error, "a connection ended by a panic"),
        }
    }
}
