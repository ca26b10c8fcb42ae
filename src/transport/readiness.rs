//! Whether this process should get traffic, and if not, why not. One value, read by every health endpoint.

use std::sync::Arc;

use tokio::sync::watch;

/// A reason to send traffic elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Not everything runs yet.
    Starting,
    /// No store has answered since the start. From then on its outages are no obstacle: failure policies answer.
    StoreNotReached,
    /// It has answered, but turns this process away: credentials, permissions or the database are wrong.
    StoreForbidden,
    /// The process is about to end.
    Draining,
}

impl Obstacle {
    const ALL: [Self; 4] = [Self::Starting, Self::StoreNotReached, Self::StoreForbidden, Self::Draining];

    /// In words, for health pages.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::StoreNotReached => "the store has not answered yet",
            Self::StoreForbidden => {
                "the store turns this process away (credentials, permissions or database)"
            }
            Self::Draining => "draining",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of obstacles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Obstacles(u8);

impl Obstacles {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `obstacle` is among them.
    #[must_use]
    pub fn contains(self, obstacle: Obstacle) -> bool {
        self.0 & obstacle.bit() != 0
    }

    /// Each of them.
    pub fn iter(self) -> impl Iterator<Item = Obstacle> {
        Obstacle::ALL.into_iter().filter(move |&obstacle| self.contains(obstacle))
    }
}

/// What stands in the way of traffic now. Clones share it.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<Obstacles>>);

impl Readiness {
    /// Of a process in which these still stand in the way.
    #[must_use]
    pub fn blocked_by(obstacles: &[Obstacle]) -> Self {
        let bits = obstacles.iter().fold(0, |bits, obstacle| bits | obstacle.bit());
        Self(Arc::new(watch::Sender::new(Obstacles(bits))))
    }

    /// Something came in the way.
    pub fn raise(&self, obstacle: Obstacle) {
        self.0.send_modify(|obstacles| obstacles.0 |= obstacle.bit());
    }

    /// It is out of the way.
    pub fn clear(&self, obstacle: Obstacle) {
        self.0.send_modify(|obstacles| obstacles.0 &= !obstacle.bit());
    }

    /// What stands in the way now.
    #[must_use]
    pub fn obstacles(&self) -> Obstacles {
        *self.0.borrow()
    }

    /// Follows every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Obstacles> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_ready_when_nothing_stands_in_the_way() {
        let readiness = Readiness::blocked_by(&[Obstacle::Starting, Obstacle::StoreNotReached]);
        readiness.clear(Obstacle::Starting);
        let left: Vec<_> = readiness.obstacles().iter().collect();
        assert_eq!(left, [Obstacle::StoreNotReached]);

        readiness.clear(Obstacle::StoreNotReached);
        assert!(readiness.obstacles().is_empty());

        readiness.raise(Obstacle::Draining);
        assert!(readiness.obstacles().contains(Obstacle::Draining));
    }
}
