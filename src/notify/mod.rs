//! Reports once that a share of a limit is used (`notify`): by a signed webhook, in the log and in the ledger.
//!
//! Workers look at the counters of their decisions (`reached`), and queue what is new. One task marks it in the store,
//! and reports what no other process has marked (`notifier`); `message` is its text, `webhook` sends it. Depends on the
//! engine, the stores and the ledger, but on no port.

mod message;
mod notifier;
mod reached;
mod webhook;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tls::FileError;

pub use notifier::{Notifier, NotifierParts};
pub use reached::{Notices, WorkerNotices};
pub use webhook::{Secret, Webhook};

use crate::post::HttpTarget;

/// `notify.*` with a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookOptions {
    pub target: HttpTarget,
    /// Its first line is the secret.
    pub secret_file: PathBuf,
    /// PEM file of trusted CAs; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// For one attempt.
    pub timeout: Duration,
}

impl WebhookOptions {
    /// Reads the secret.
    ///
    /// # Errors
    /// If the file is unreadable, or its first line is not a secret.
    pub fn secret(&self) -> Result<Secret, FileError> {
        Secret::read(&self.secret_file)
    }
}

/// Results of notices.
#[derive(Debug, Default)]
pub struct NotifyStats {
    /// The receiver took it, or there is no receiver.
    pub sent: AtomicU64,
    /// Reported before, by this process or by another one.
    pub known: AtomicU64,
    /// The receiver did not accept it.
    pub failed: AtomicU64,
    /// The queue was full, the store did not answer, or the period ended first. During the period, the next request
    /// finds it again.
    pub dropped: AtomicU64,
}

impl NotifyStats {
    /// Each result with its name in metrics.
    pub fn results(&self) -> [(&'static str, u64); 4] {
        let Self { sent, known, failed, dropped } = self;
        [("sent", sent), ("known", known), ("failed", failed), ("dropped", dropped)]
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

fn count(result: &AtomicU64) {
    result.fetch_add(1, Ordering::Relaxed);
}
