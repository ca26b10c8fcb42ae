//! Which worker serves a connection. A connection can move between two polls of its task: its future continues on the
//! other worker's runtime, with that worker's limiter and store, unnoticed by the client. Calls still open on the old
//! worker are answered from there. Only [`Placement::begin_poll`] and `ServedConnections` deal with moves.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use arc_swap::ArcSwapOption;
use futures_util::future::BoxFuture;
use futures_util::task::AtomicWaker;

use super::call::CallServer;
use crate::grpc::worker_link::CountedConnection;
use crate::net::socket::MovedFlag;

/// Shared by the worker that serves a connection, its task and its socket.
pub(super) struct Placement {
    /// Set when another worker takes over the connection. The socket then registers with its runtime.
    socket_has_moved: MovedFlag,
    /// The other worker's server, until the task takes it.
    new_server: ArcSwapOption<CallServer>,
    /// Index of the worker that is to take over; [`STAYS`] for none.
    moves_to: AtomicUsize,
    /// Polls of the task since the worker last checked: how busy the connection is.
    polls: AtomicUsize,
    task: AtomicWaker,
}

const STAYS: usize = usize::MAX;

impl Placement {
    pub(super) fn new(socket_has_moved: MovedFlag) -> Arc<Self> {
        Arc::new(Self {
            socket_has_moved,
            new_server: ArcSwapOption::empty(),
            moves_to: AtomicUsize::new(STAYS),
            polls: AtomicUsize::new(0),
            task: AtomicWaker::new(),
        })
    }

    /// Moves the task to the worker of this index, at its next poll.
    pub(super) fn move_to(&self, worker: usize) {
        self.moves_to.store(worker, Ordering::Release);
        self.task.wake();
    }

    pub(super) fn take_polls(&self) -> usize {
        self.polls.swap(0, Ordering::Relaxed)
    }

    /// Records a poll. If another worker has just taken over the connection, returns its server.
    pub(super) fn begin_poll(&self) -> Option<Arc<CallServer>> {
        self.polls.store(self.polls.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if self.new_server.load().is_none() {
            return None;
        }
        self.new_server.swap(None)
    }
}

/// A connection's task on one worker. It ends with the connection, or with what another worker needs to continue.
pub(super) struct PlacedConnection {
    serving: Option<BoxFuture<'static, ()>>,
    pub(super) placement: Arc<Placement>,
    has_registered: bool,
    _counted: CountedConnection,
}

pub(in crate::grpc) struct MovingConnection {
    serving: BoxFuture<'static, ()>,
    placement: Arc<Placement>,
    pub(super) to: usize,
}

impl PlacedConnection {
    pub(super) fn new(
        serving: BoxFuture<'static, ()>,
        placement: Arc<Placement>,
        counted: CountedConnection,
    ) -> Self {
        Self { serving: Some(serving), placement, has_registered: false, _counted: counted }
    }
}

impl MovingConnection {
    /// Continues on the current runtime, with the limiter and the store of `server`.
    pub(super) fn arrive(self, server: Arc<CallServer>, counted: CountedConnection) -> PlacedConnection {
        let placement = &self.placement;
        placement.new_server.store(Some(server));
        placement.moves_to.store(STAYS, Ordering::Relaxed);
        placement.socket_has_moved.set();
        PlacedConnection::new(self.serving, self.placement, counted)
    }
}

impl Future for PlacedConnection {
    type Output = Option<MovingConnection>;

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
