//! Accepts connections and deals them out to the workers. Callers open few and keep them for long, so who gets which
//! decides whether all cores have work.

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::connection::{Accepted, Load};
use crate::transport::accept;

/// Connections that may wait for one worker to take them on. A worker that lets more wait is not alive.
const DEALT_AHEAD: usize = 64;

/// Hands connections to workers.
#[derive(Debug, Default)]
pub(super) struct Dealer {
    hands: Vec<Hand>,
    /// Where the search for the least busy worker starts next.
    turn: usize,
}

/// One worker, seen from here.
#[derive(Debug)]
struct Hand {
    connections: mpsc::Sender<Accepted>,
    load: Load,
}

impl Dealer {
    /// One more worker. What it is dealt arrives at the receiver.
    pub(super) fn join(&mut self) -> mpsc::Receiver<Accepted> {
        let (connections, dealt) = mpsc::channel(DEALT_AHEAD);
        let load = Load::default();
        self.hands.push(Hand { connections, load });
        dealt
    }

    /// Hands every connection to the worker with the fewest open, those with equally few taking turns. Never returns.
    pub(super) async fn deal(&mut self, listener: &TcpListener, max_connections: usize) {
        loop {
            let stream = accept::next(listener).await;
            let open: usize = self.hands.iter().map(|hand| hand.load.open()).sum();
            if open >= max_connections {
                tracing::warn!(open, "a connection is refused: as many as allowed are open");
                continue;
            }
            self.hand_over(stream);
        }
    }

    fn hand_over(&mut self, stream: TcpStream) {
        let count = self.hands.len();
        let in_turn = (0..count).map(|step| (self.turn + step) % count);
        let Some(place) = in_turn.min_by_key(|&place| self.hands[place].load.open()) else {
            return;
        };
        self.turn = place + 1;
        let hand = &self.hands[place];
        let seat = hand.load.take_seat();
        let handed_over =
            stream.into_std().map(|stream| hand.connections.try_send(Accepted { stream, seat }));
        if !matches!(handed_over, Ok(Ok(()))) {
            tracing::warn!(worker = place, "a connection is refused: its worker takes none");
        }
    }
}
