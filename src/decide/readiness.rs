//! Whether this process should get traffic, and if not, why not. Every health endpoint reads the same value.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// A reason not to send traffic to this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotReadyReason {
    /// Not every part of the process runs yet.
    Starting,
    /// The store has not decided since the start. A later outage is no such reason, because failure policies decide
    /// then.
    StoreNotReached,
    /// The store answers, but rejects this process: credentials, permissions or the database are wrong.
    StoreForbidden,
    /// The store answers, but accepts no writes: it is a replica.
    StoreReadOnly,
    /// The TLS handshake with the store fails.
    StoreTls,
    /// The store does not answer any more, and the settings ask for this reason.
    StoreOutage,
    /// There are no rules, because the first ones cannot be used.
    NoRules,
    /// The rules in force have no domain, and the settings ask for this reason.
    NoDomain,
    /// The process was told to stop.
    Draining,
}

impl NotReadyReason {
    /// Every reason, in the order in which the health endpoints name them.
    pub const ALL: [Self; 9] = [
        Self::Starting,
        Self::StoreNotReached,
        Self::StoreForbidden,
        Self::StoreReadOnly,
        Self::StoreTls,
        Self::StoreOutage,
        Self::NoRules,
        Self::NoDomain,
        Self::Draining,
    ];

    /// The reason as text, for the health endpoints.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::StoreNotReached => "the store has not decided yet",
            Self::StoreForbidden => "the store rejects this process (credentials, permissions or database)",
            Self::StoreReadOnly => "the store is a replica, which accepts no writes",
            Self::StoreTls => "the TLS handshake with the store fails",
            Self::StoreOutage => "the store does not answer",
            Self::NoRules => "no rate limit configuration loaded",
            Self::NoDomain => "the rules in force have no domain",
            Self::Draining => "draining",
        }
    }

    fn bit(self) -> u16 {
        1 << self as u16
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotReadyReasons(u16);

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
pub struct Readiness(Arc<Reasons>);

#[derive(Debug)]
struct Reasons {
    current: watch::Sender<NotReadyReasons>,
    /// Details of a reason, besides its text.
    details: Mutex<Vec<(NotReadyReason, String)>>,
}

impl Readiness {
    /// The readiness of a process that has these reasons not to be ready.
    #[must_use]
    pub fn not_ready(reasons: &[NotReadyReason]) -> Self {
        let bits = reasons.iter().fold(0, |bits, reason| bits | reason.bit());
        let current = watch::Sender::new(NotReadyReasons(bits));
        Self(Arc::new(Reasons { current, details: Mutex::default() }))
    }

    pub fn set(&self, reason: NotReadyReason) {
        self.0.current.send_modify(|reasons| reasons.0 |= reason.bit());
    }

    /// `detail` is shown by [`describe`](Self::describe), on the HTTP port, so it must hold no address or secret.
    pub fn set_with_detail(&self, reason: NotReadyReason, detail: String) {
        {
            let mut details = self.0.details.lock();
            details.retain(|(known, _)| *known != reason);
            details.push((reason, detail));
        }
        self.set(reason);
    }

    pub fn clear(&self, reason: NotReadyReason) {
        self.0.current.send_modify(|reasons| reasons.0 &= !reason.bit());
        self.0.details.lock().retain(|(known, _)| *known != reason);
    }

    /// The current reasons as text, with their details; empty if the process is ready.
    #[must_use]
    pub fn describe(&self) -> String {
        self.descriptions().join(", ")
    }

    /// Like [`describe`](Self::describe), one text for each reason.
    #[must_use]
    pub fn descriptions(&self) -> Vec<String> {
        let details = self.0.details.lock();
        let describe = |reason: NotReadyReason| {
            let detail = details.iter().find(|(known, _)| *known == reason);
            detail.map_or(reason.text().to_owned(), |(_, detail)| format!("{} ({detail})", reason.text()))
        };
        self.reasons().iter().map(describe).collect()
    }

    #[must_use]
    pub fn reasons(&self) -> NotReadyReasons {
        *self.0.current.borrow()
    }

    /// Tells the receiver when a reason is set or cleared.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<NotReadyReasons> {
        self.0.current.subscribe()
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
        readiness.set_with_detail(NotReadyReason::StoreTls, "UnknownIssuer".to_owned());
        readiness.set_with_detail(NotReadyReason::StoreTls, "Expired".to_owned());
        assert_eq!(readiness.describe(), "the TLS handshake with the store fails (Expired), draining");
        readiness.clear(NotReadyReason::StoreTls);
        readiness.set(NotReadyReason::StoreTls);
        assert_eq!(readiness.describe(), "the TLS handshake with the store fails, draining");
    }
}
