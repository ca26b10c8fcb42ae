//! Metrics of rules: the current ones (rules, files, load time), the results of loads, and the xDS client's stream,
//! answers, failures and certificates.

use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry, Result};
use strum::{IntoStaticStr, VariantArray};

use super::family::{CountersBy, LoadResult, counter, counters, gauge};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loaded {
    pub rules: usize,
    pub files: usize,
    pub domains: usize,
    /// Microseconds since the epoch.
    pub now_us: u64,
}

#[derive(Debug)]
pub(crate) struct RuleFamilies {
    rules: IntGauge,
    files: IntGauge,
    domains: IntGauge,
    digest: IntGaugeVec,
    loaded_at: IntGauge,
    loads: CountersBy<LoadResult>,
}

impl RuleFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let loads = counters(
            registry,
            "ratelimitd_rule_loads_total",
            "Loads of rules by result; a failed load keeps the previous rules active",
            &["result"],
        )?;
        let digest = Opts::new(
            "ratelimitd_rules_digest_info",
            "1 for the digest of the active rules; equal on all instances with equal files",
        );
        let digest = IntGaugeVec::new(digest, &["digest"])?;
        registry.register(Box::new(digest.clone()))?;
        Ok(Self {
            rules: gauge(registry, "ratelimitd_rules", "Active rules")?,
            files: gauge(registry, "ratelimitd_rule_files", "Files of the active rules")?,
            domains: gauge(
                registry,
                "ratelimitd_rule_domains",
                "Domains of the active rules; with 0, every request is admitted",
            )?,
            loaded_at: gauge(
                registry,
                "ratelimitd_rules_loaded_timestamp_seconds",
                "Load time of the active rules in seconds since the epoch; 0 before the first load",
            )?,
            loads: CountersBy::new(&loads, &[]),
            digest,
        })
    }

    pub(crate) fn loaded(&self, loaded: Loaded, digest: &str) {
        self.digest.reset();
        self.digest.with_label_values(&[digest]).set(1);
        // All of them are far below 2^63.
        self.rules.set(i64::try_from(loaded.rules).unwrap_or(i64::MAX));
        self.files.set(i64::try_from(loaded.files).unwrap_or(i64::MAX));
        self.domains.set(i64::try_from(loaded.domains).unwrap_or(i64::MAX));
        self.loaded_at.set((loaded.now_us / 1_000_000).cast_signed());
        self.loads.count(LoadResult::Success);
    }

    pub(crate) fn failed(&self) {
        self.loads.count(LoadResult::Failure);
    }

    /// Successful and failed loads.
    pub(super) fn loads(&self) -> [u64; 2] {
        [LoadResult::Success, LoadResult::Failure].map(|result| self.loads.counter(result).get())
    }

    /// Files of the current rules.
    pub(super) fn files(&self) -> u64 {
        self.files.get().unsigned_abs()
    }
}

/// Result of a server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum XdsAnswer {
    /// Its rules were applied.
    Accepted,
    /// Its rules equal the current ones.
    Unchanged,
    /// It has errors: the current rules stay.
    Refused,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum XdsFailure {
    /// The server's name cannot be resolved.
    Resolve,
    /// No TCP or HTTP/2 connection.
    Connect,
    /// This client's certificates are invalid, or the TLS handshake failed.
    Tls,
    /// The attempt took too long.
    Timeout,
    Stream,
    TooLarge,
}

impl XdsFailure {
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// The meter of an xDS client. Clones share the counts.
#[derive(Clone, Debug)]
pub struct XdsMeter {
    connected: IntGauge,
    answers: CountersBy<XdsAnswer>,
    pub failures: CountersBy<XdsFailure>,
    pub nacks: IntCounter,
    certificates: CountersBy<LoadResult>,
    last_answer: IntGauge,
}

impl XdsMeter {
    /// Registers the metrics. Every series exists from the start, so that the first count is an increase.
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let answers = counters(
            registry,
            "ratelimitd_xds_answers_total",
            "Responses of the xDS server by result: accepted, unchanged, refused",
            &["result"],
        )?;
        let failures = counters(
            registry,
            "ratelimitd_xds_failures_total",
            "Failed connection attempts and ended streams, by reason: resolve, connect, tls, timeout, \
             stream, too_large",
            &["reason"],
        )?;
        let certificates = counters(
            registry,
            "ratelimitd_xds_certificate_changes_total",
            "Reloads of changed client certificate files by result; a failure keeps the open stream",
            &["result"],
        )?;
        let connected = "1 while a stream to the xDS server is open";
        let last_answer = "Time of the last xDS response in seconds since the epoch; 0 before the first one";
        Ok(Self {
            connected: gauge(registry, "ratelimitd_xds_connected", connected)?,
            answers: CountersBy::new(&answers, &[]),
            failures: CountersBy::new(&failures, &[]),
            nacks: counter(registry, "ratelimitd_xds_nacks_total", "NACKs sent to the xDS server")?,
            certificates: CountersBy::new(&certificates, &[]),
            last_answer: gauge(registry, "ratelimitd_xds_last_answer_timestamp_seconds", last_answer)?,
        })
    }

    pub fn set_connected(&self, is_connected: bool) {
        self.connected.set(i64::from(is_connected));
    }

    /// Records an answer that arrived at `now_us`, microseconds since the epoch.
    pub fn answered(&self, answer: XdsAnswer, now_us: u64) {
        self.answers.count(answer);
        self.last_answer.set((now_us / 1_000_000).cast_signed());
    }

    pub fn certificates_changed(&self, is_usable: bool) {
        self.certificates.count(LoadResult::of(is_usable));
    }
}
