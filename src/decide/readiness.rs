//! Decides whether this process should get traffic, and why not. Every health endpoint reads the same value.

use std::collections::BTreeMap;
use std::sync::Arc;

use strum::VariantArray;
use tokio::sync::watch;

/// Why this process should not get traffic, in the order in which the health endpoints list the reasons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, VariantArray)]
pub enum NotReadyReason {
    /// Some parts of the process are not running yet.
    Starting,
    /// The store has never decided. A later outage does not count, because failure policies decide then.
    StoreNotReached,
    /// The store answers, but rejects this process: wrong credentials, permissions or database.
    StoreForbidden,
    /// The store answers, but refuses writes: it is a replica.
    StoreReadOnly,
    /// The TLS handshake with the store fails.
    StoreTls,
    /// The store has stopped answering, and the settings ask for this reason.
    StoreOutage,
    /// There are no rules, because the first ones are invalid.
    NoRules,
    /// The current rules lack a domain, and the settings ask for this reason.
    NoDomain,
    Draining,
}

impl NotReadyReason {
    pub const ALL: &[Self] = <Self as VariantArray>::VARIANTS;

    /// For the health endpoints.
    pub fn text(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::StoreNotReached => "the store has not decided yet",
            Self::StoreForbidden => "the store rejects this process (credentials, permissions or database)",
            Self::StoreReadOnly => "the store is a replica, which accepts no writes",
            Self::StoreTls => "the TLS handshake with the store fails",
            Self::StoreOutage => "the store does not answer",
            Self::NoRules => "no rate limit configuration loaded",
            Self::NoDomain => "the active rules have no domain",
            Self::Draining => "draining",
        }
    }
}

/// The reasons, each with an optional detail.
pub type NotReadyReasons = BTreeMap<NotReadyReason, Option<String>>;

/// The current reasons; without one the process is ready. Clones share them.
#[derive(Clone, Debug)]
pub struct Readiness(Arc<watch::Sender<NotReadyReasons>>);

impl Readiness {
    pub fn not_ready(reasons: &[NotReadyReason]) -> Self {
        let reasons = reasons.iter().map(|&reason| (reason, None)).collect();
        Self(Arc::new(watch::Sender::new(reasons)))
    }

    /// Keeps a detail that the reason already has.
    pub fn set(&self, reason: NotReadyReason) {
        self.0.send_modify(|reasons| {
            reasons.entry(reason).or_default();
        });
    }

    /// [`describe`](Self::describe) shows `detail` on the HTTP port, so it must not contain an address or a secret.
    pub fn set_with_detail(&self, reason: NotReadyReason, detail: String) {
        self.0.send_modify(|reasons| {
            reasons.insert(reason, Some(detail));
        });
    }

    pub fn clear(&self, reason: NotReadyReason) {
        self.0.send_modify(|reasons| {
            reasons.remove(&reason);
        });
    }

    /// The current reasons with their details; empty if the process is ready.
    pub fn describe(&self) -> String {
        self.descriptions().join(", ")
    }

    /// Like [`describe`](Self::describe), one string per reason.
    pub fn descriptions(&self) -> Vec<String> {
        let describe = |(reason, detail): (&NotReadyReason, &Option<String>)| match detail {
            Some(detail) => format!("{} ({detail})", reason.text()),
            None => reason.text().to_owned(),
        };
        self.0.borrow().iter().map(describe).collect()
    }

    pub fn is_ready(&self) -> bool {
        self.0.borrow().is_empty()
    }

    pub fn has(&self, reason: NotReadyReason) -> bool {
        self.0.borrow().contains_key(&reason)
    }

    /// Notifies the receiver when a reason is set or cleared.
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
        assert!(readiness.has(NotReadyReason::StoreNotReached));
        assert!(!readiness.has(NotReadyReason::Starting) && !readiness.is_ready());

        readiness.clear(NotReadyReason::StoreNotReached);
        assert!(readiness.is_ready());

        readiness.set(NotReadyReason::Draining);
        assert!(readiness.has(NotReadyReason::Draining));
        readiness.set_with_detail(NotReadyReason::StoreTls, "UnknownIssuer".to_owned());
        readiness.set_with_detail(NotReadyReason::StoreTls, "Expired".to_owned());
        assert_eq!(readiness.describe(), "the TLS handshake with the store fails (Expired), draining");
        readiness.clear(NotReadyReason::StoreTls);
        readiness.set(NotReadyReason::StoreTls);
        assert_eq!(readiness.describe(), "the TLS handshake with the store fails, draining");
    }
}
