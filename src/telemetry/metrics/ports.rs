//! Metrics of the ports: refused and closed connections, TLS handshakes, reloads of certificates, and when certificates
//! expire.

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry, Result};
use strum::{IntoStaticStr, VariantArray};

use super::family::{CountersBy, LoadResult, counters};

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Port {
    Grpc,
    Http,
    Admin,
    /// The port for metrics only.
    Metrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum CloseReason {
    /// The port has its maximum of connections.
    Full,
    /// The client's address has its maximum of connections.
    Address,
    /// The longest idle connection, closed for a new one.
    Idle,
    /// The client resets calls whose answers wait for it, which takes memory.
    LeakedStreams,
    /// The gRPC worker does not take connections.
    Handoff,
    /// The system cannot provide a connection: usually too few file descriptors.
    Accept,
}

impl CloseReason {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// Closed connections of one port.
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
        for &port in Port::VARIANTS {
            families.meter(port);
        }
        Ok(families)
    }

    pub(super) fn meter(&self, port: Port) -> ConnectionMeter {
        CountersBy::new(&self.closed, &[port.into_str()])
    }

    /// Connections closed on all ports for any of these reasons.
    pub(super) fn closed_for(&self, reasons: &[CloseReason]) -> u64 {
        let meters = Port::VARIANTS.iter().map(|&port| self.meter(port));
        meters.map(|meter| reasons.iter().map(|&reason| meter.counter(reason).get()).sum::<u64>()).sum()
    }
}

/// Why the admin port refuses a request that a different token could have allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum TokenRefusal {
    Missing,
    /// The request's token is not the required one, nor any other of the port.
    Wrong,
    /// A viewer's token, but actions need an operator's.
    NotOperator,
    /// Many wrong tokens of the client's address wait for their answers.
    TooManyWrong,
}

/// Requests to the admin port refused because of their token.
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
    /// The client sent no certificate, but the port requires one.
    NoCertificate,
    /// The client's certificate is from an unknown CA, expired, or not for clients.
    CertificateInvalid,
    /// The client's certificate has none of the names in the settings.
    CertificateName,
    /// The client sent an alert: it rejects the port's certificate.
    RefusedByClient,
    /// Client and port share no version, cipher or protocol.
    Incompatible,
    NotTls,
    /// The client closed the connection before its first message was complete.
    Disconnected,
    /// The client closed the connection after the port's certificate and signature, which make a handshake expensive.
    Abandoned,
    /// The handshake did not finish in time.
    Timeout,
    /// An old handshake was displaced by a new one.
    Displaced,
    /// There was no slot for a new one.
    Refused,
    /// Any other error.
    Failed,
}

impl HandshakeResult {
    pub const ALL: &'static [Self] = Self::VARIANTS;
}

/// When the current certificates expire, in seconds since the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CertificateExpiry {
    pub certificate_s: i64,
    /// The first CA of client certificates to expire; `None` if no client certificates are requested.
    pub client_ca_s: Option<i64>,
}

#[derive(Debug)]
pub(super) struct TlsFamilies {
    handshakes: IntCounterVec,
    reloads: IntCounterVec,
    expiry: IntGaugeVec,
}

/// The meter of one port with TLS. Clones share the counts.
#[derive(Clone, Debug)]
pub struct TlsMeter {
    pub port: Port,
    pub handshakes: CountersBy<HandshakeResult>,
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

    /// The series of a port start here, so that the first handshake of each kind is an increase.
    pub(super) fn meter(&self, port: Port) -> TlsMeter {
        let label = [port.into_str()];
        TlsMeter {
            port,
            handshakes: CountersBy::new(&self.handshakes, &label),
            reloads: CountersBy::new(&self.reloads, &label),
            expiry: self.expiry.clone(),
        }
    }
}

impl TlsMeter {
    /// Counts changed files, which were applied if they are usable.
    pub fn reloaded(&self, are_usable: bool) {
        self.reloads.count(LoadResult::of(are_usable));
    }

    pub fn set_expiry(&self, expiry: CertificateExpiry) {
        let gauge = |file: &str| -> IntGauge { self.expiry.with_label_values(&[self.port.into_str(), file]) };
        gauge("cert_file").set(expiry.certificate_s);
        if let Some(first_s) = expiry.client_ca_s {
            gauge("client_ca_file").set(first_s);
        }
    }
}
