//! The client of an xDS server: its stream, the answers, failures and certificates.

use prometheus::{IntCounter, IntGauge, Registry, Result};

use super::family::{counter, counters, gauge};

/// What became of an answer of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdsAnswer {
    /// Its rules were put in force.
    Accepted,
    /// Its rules are those in force already.
    Unchanged,
    /// It has errors: the rules before it stay in force.
    Refused,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XdsFailure {
    /// The server's name has no address.
    Resolve,
    /// No TCP or HTTP/2 connection.
    Connect,
    /// The certificates of this client cannot be used, or the TLS handshake failed.
    Tls,
    /// The attempt took too long.
    Timeout,
    /// The stream ended.
    Stream,
    /// An answer was too large.
    TooLarge,
}

impl XdsAnswer {
    const ALL: [Self; 3] = [Self::Accepted, Self::Unchanged, Self::Refused];

    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unchanged => "unchanged",
            Self::Refused => "refused",
        }
    }
}

impl XdsFailure {
    const ALL: [Self; 6] =
        [Self::Resolve, Self::Connect, Self::Tls, Self::Timeout, Self::Stream, Self::TooLarge];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::Stream => "stream",
            Self::TooLarge => "too_large",
        }
    }
}

/// The meter of the client of an xDS server. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct XdsMeter {
    connected: IntGauge,
    /// In the order of [`XdsAnswer::ALL`].
    answers: [IntCounter; XdsAnswer::ALL.len()],
    /// In the order of [`XdsFailure::ALL`].
    failures: [IntCounter; XdsFailure::ALL.len()],
    nacks: IntCounter,
    certificates_changed: IntCounter,
    certificates_unusable: IntCounter,
    last_answer: IntGauge,
}

impl XdsMeter {
    /// Registers the metrics. Every series exists from the start, so that the first count is an increase.
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let answers = counters(
            registry,
            "ratelimitd_xds_answers_total",
            "Answers of the xDS server by result: accepted, unchanged, refused",
            &["result"],
        )?;
        let failures = counters(
            registry,
            "ratelimitd_xds_failures_total",
            "Attempts and streams that ended, by reason: resolve, connect, tls, timeout, stream, too_large",
            &["reason"],
        )?;
        let certificates = counters(
            registry,
            "ratelimitd_xds_certificate_changes_total",
            "Changes of the client's certificate files by result; after a failure the stream stays as it is",
            &["result"],
        )?;
        let connected = "1 while a stream to the xDS server is open";
        let last_answer = "When the xDS server last answered, seconds since the epoch; 0 before";
        Ok(Self {
            connected: gauge(registry, "ratelimitd_xds_connected", connected)?,
            answers: XdsAnswer::ALL.map(|answer| answers.with_label_values(&[answer.name()])),
            failures: XdsFailure::ALL.map(|failure| failures.with_label_values(&[failure.name()])),
            nacks: counter(registry, "ratelimitd_xds_nacks_total", "Refusals sent to the xDS server")?,
            certificates_changed: certificates.with_label_values(&["success"]),
            certificates_unusable: certificates.with_label_values(&["failure"]),
            last_answer: gauge(registry, "ratelimitd_xds_last_answer_timestamp_seconds", last_answer)?,
        })
    }

    pub fn set_connected(&self, is_connected: bool) {
        self.connected.set(i64::from(is_connected));
    }

    pub fn failed(&self, failure: XdsFailure) {
        // The discriminant is the position in ALL.
        self.failures[failure as usize].inc();
    }

    /// An answer came at `now_us`, microseconds since the epoch.
    pub fn answered(&self, answer: XdsAnswer, now_us: u64) {
        // The discriminant is the position in ALL.
        self.answers[answer as usize].inc();
        self.last_answer.set((now_us / 1_000_000).cast_signed());
    }

    pub fn nack_sent(&self) {
        self.nacks.inc();
    }

    pub fn certificates_changed(&self, is_usable: bool) {
        let changes = if is_usable { &self.certificates_changed } else { &self.certificates_unusable };
        changes.inc();
    }
}
