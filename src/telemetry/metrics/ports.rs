//! The ports: connections that the process refuses or closes, TLS handshakes, reloads of certificates, and when
//! certificates expire.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, Result};
use strum::{IntoStaticStr, VariantArray};

use super::family::{CountersBy, LoadResult, counters};

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Port {
    Grpc,
    Http,
    Admin,
    /// The port for metrics alone.
    Metrics,
}

impl Port {
    const ALL: &'static [Self] = Self::VARIANTS;

    #[must_use]
    pub fn name(self) -> &'static str {
        self.into()
    }
}

/// Why the process closes a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CloseReason {
    /// The port has its maximum of connections.
    Full,
    /// The client's address has its maximum of connections.
    Address,
    /// The connection was idle for the longest time, and a new one needed its place.
    Idle,
    /// The client resets calls whose answers wait for it, which takes memory.
    LeakedStreams,
    /// The gRPC worker does not take connections.
    Handoff,
    /// The system gives no connection: usually too few file descriptors.
    Accept,
}

impl CloseReason {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// The connections to one port that were closed.
pub type ConnectionMeter = CountersBy<CloseReason>;

#[derive(Debug)]
pub(super) struct ConnectionFamilies {
    closed: IntCounterVec,
}

impl ConnectionFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let closed = counters(
            registry,
            "ratelimitd_closed_connections_total",
            "Connections refused or closed to protect the process, by port and reason",
            &["port", "reason"],
        )?;
        let families = Self { closed };
        // Every series exists from the start, so that the first closed connection is an increase.
        for &port in Port::ALL {
            families.meter(port);
        }
        Ok(families)
    }

    pub(super) fn meter(&self, port: Port) -> ConnectionMeter {
        CountersBy::new(&self.closed, &[port.name()])
    }

    /// The connections to all ports that were closed for one of these reasons.
    pub(super) fn closed_for(&self, reasons: &[CloseReason]) -> u64 {
        let meters = Port::ALL.iter().map(|&port| self.meter(port));
        meters.map(|meter| reasons.iter().map(|&reason| meter.counter(reason).get()).sum::<u64>()).sum()
    }
}

/// Why the admin port refuses a request that could have been allowed with another token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenRefusal {
    /// The request has no token.
    Missing,
    /// The token of the request is not the one that is needed, and no other one of the port.
    Wrong,
    /// The token is that of viewers, and an action needs that of operators.
    NotOperator,
    /// Many wrong tokens of the client's address wait for their answers.
    TooManyWrong,
}

/// The requests to the admin port that were refused for their token.
pub type TokenMeter = CountersBy<TokenRefusal>;

pub(super) fn token_meter(registry: &Registry) -> Result<TokenMeter> {
    let refused = counters(
        registry,
        "ratelimitd_admin_refused_total",
        "Requests to the admin port rejected for their token, by reason",
        &["reason"],
    )?;
    Ok(CountersBy::new(&refused, &[]))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum HandshakeResult {
    Ok,
    /// The client showed no certificate, which the port requires.
    NoCertificate,
    /// The client's certificate is of another authority, expired, or not for clients.
    CertificateInvalid,
    /// The client's certificate has none of the names that the settings ask for.
    CertificateName,
    /// The client sent an alert: it does not accept our certificate.
    RefusedByClient,
    /// The client has no version, cipher or protocol in common with us.
    Incompatible,
    /// The client does not speak TLS.
    NotTls,
    /// The client closed the connection before its first message was complete.
    Disconnected,
    /// The client closed the connection after our certificate and signature, which are the cost of a handshake.
    Abandoned,
    /// The handshake was not finished in time.
    Timeout,
    /// An old handshake gave its place to a new one.
    Displaced,
    /// There was no place for a new one.
    Refused,
    /// Any other error.
    Failed,
}

impl HandshakeResult {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// When the certificates in force expire, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    pub certificate_s: i64,
    /// The first of the authorities of client certificates; `None` where no client certificates are asked for.
    pub client_ca_s: Option<i64>,
}

#[derive(Debug)]
pub(super) struct TlsFamilies {
    handshakes: IntCounterVec,
    reloads: IntCounterVec,
    expiry: IntGaugeVec,
}

/// The meter of one port with TLS. Clones share the same numbers.
#[derive(Clone, Debug)]
pub struct TlsMeter {
    port: Port,
    handshakes: CountersBy<HandshakeResult>,
    reloads: CountersBy<LoadResult>,
    expiry: IntGaugeVec,
}

impl TlsFamilies {
    pub(super) fn new(registry: &Registry) -> Result<Self> {
        let expiry = IntGaugeVec::new(
            Opts::new(
                "ratelimitd_tls_certificate_expiry_timestamp_seconds",
                "Expiry time of an active certificate in seconds since the epoch, by port and file",
            ),
            &["port", "file"],
        )?;
        registry.register(Box::new(expiry.clone()))?;
        Ok(Self {
            handshakes: counters(
                registry,
                "ratelimitd_tls_handshakes_total",
                "TLS handshakes by port and result",
                &["port", "result"],
            )?,
            reloads: counters(
                registry,
                "ratelimitd_tls_reloads_total",
                "Reloads of changed certificate files by port and result; a failure keeps the current \
                 certificates",
                &["port", "result"],
            )?,
            expiry,
        })
    }

    /// The series of a port begin here, so that the first handshake of each kind is an increase.
    pub(super) fn meter(&self, port: Port) -> TlsMeter {
        let label = [port.name()];
        TlsMeter {
            port,
            handshakes: CountersBy::new(&self.handshakes, &label),
            reloads: CountersBy::new(&self.reloads, &label),
            expiry: self.expiry.clone(),
        }
    }
}

impl TlsMeter {
    #[must_use]
    pub fn port(&self) -> Port {
        self.port
    }

    pub fn handshake(&self, result: HandshakeResult) {
        self.handshakes.count(result);
    }

    /// Counts changed files that are in force.
    pub fn reloaded(&self) {
        self.reloads.count(LoadResult::Success);
    }

    /// Counts changed files that cannot be used.
    pub fn reload_failed(&self) {
        self.reloads.count(LoadResult::Failure);
    }

    pub fn set_expiry(&self, expiry: CertificateExpiry) {
        let gauge = |file: &str| -> IntGauge { self.expiry.with_label_values(&[self.port.name(), file]) };
        gauge("cert_file").set(expiry.certificate_s);
        if let Some(first_s) = expiry.client_ca_s {
            gauge("client_ca_file").set(first_s);
        }
    }
}
