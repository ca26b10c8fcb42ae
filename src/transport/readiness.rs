//! Whether this process should get traffic, and if not, why not. Every health endpoint reads the same value.

use std::sync::Arc;

use tokio::sync::watch;

/// A reason not to send traffic to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReadyReason {
    /// Not every part of the process runs yet.
    Starting,
    /// The store has not decided since the start. Later outages are no reason, because failure policies decide then.
    StoreNotReached,
    /// The store answers, but rejects this process: credentials, permissions or the database are wrong.
    StoreForbidden,
    /// The store answers, but accepts no writes: it is a replica.
    StoreReadOnly,
    /// The process was told to stop.
    Draining,
}

impl NotReadyReason {
    const ALL: [Self; 5] =
        [Self::Starting, Self::StoreNotReached, Self::StoreForbidden, Self::StoreReadOnly, Self::Draining];

    /// The reason as text, for the health endpoints.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::StoreNotReached => "the store has not decided yet",
            Self::StoreForbidden => "the store rejects this process (credentials, permissions or database)",
            Self::StoreReadOnly => "the store is a replica, which accepts no writes",
            Self::Draining => "draining",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotReadyReasons(u8);

impl NotReadyReasons {
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub fn contains(self, reason: NotReadyReason) -> bool {
        self.0 & reason.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = NotReadyReason> {
        NotReadyReason::ALL.into_iter().filter(move |&reason| self.contains(reason))
    }
}

/// The current reasons not to send traffic to this process. Without a reason it is ready. Clones share the reasons.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<NotReadyReasons>>);

impl Readiness {
    /// The readiness of a process that has these reasons not to be ready.
    #[must_use]
    pub fn not_ready(reasons: &[NotReadyReason]) -> Self {
        let bits = reasons.iter().fold(0, |bits, reason| bits | reason.bit());
        Self(Arc::new(watch::Sender::new(NotReadyReasons(bits))))
    }

    pub fn set(&self, reason: NotReadyReason) {
        self.0.send_modify(|reasons| reasons.0 |= reason.bit());
    }

    pub fn clear(&self, reason: NotReadyReason) {
        self.0.send_modify(|reasons| reasons.0 &= !reason.bit());
    }

    #[must_use]
    pub fn reasons(&self) -> NotReadyReasons {
        *self.0.borrow()
    }

    /// For waiting until a reason is set or cleared.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<NotReadyReasons> {
        self.0.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_without_a_reason_against_it() {
        let readiness = Readiness::not_ready(&[NotReadyReason::Starting, NotReadyReason::StoreNotReached]);
        readiness.clear(NotReadyReason::Starting);
        let left: Vec<_> = readiness.reasons().iter().collect();
        assert_eq!(left, [NotReadyReason::StoreNotReached]);

        readiness.clear(NotReadyReason::StoreNotReached);
        assert!(readiness.reasons().is_empty());

        readiness.set(NotReadyReason::Draining);
        assert!(readiness.reasons().contains(NotReadyReason::Draining));
    }
}
