//! TLS of the ports: loads the certificates, applies changed files while the process runs, and records the result of
//! each attempt.

use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, SystemClock, monotonic};
use base::{Change, Watched, check_forever};
use parking_lot::Mutex;
use tls::{CertificateFacts, FileError, LoadedTls, Protocol, ServerTls, TlsFileError, TlsFileSetting};
use tokio::runtime::Handle;

use super::AppError;
use super::bounds::PortBounds;
use super::load_status::LoadStatus;
use crate::net::ConnectionBounds;
use crate::net::tls_port::{HandshakeThread, PortTls, handshake_bounds};
use crate::settings::Server;
use crate::telemetry::metrics::{CertificateExpiry, Metrics, Port, TlsMeter};

#[derive(Debug, Default)]
pub(super) struct TlsPorts {
    ports: Vec<TlsPort>,
    /// `None` if no port has TLS.
    pub(super) handshakes: Option<HandshakeThread>,
}

/// A port's certificates, for the admin page.
#[derive(Clone, Debug)]
pub(super) struct TlsStatus {
    pub(super) port: Port,
    pub(super) settings: ServerTls,
    pub(super) certificate: CertificateFacts,
    pub(super) authorities: Vec<CertificateFacts>,
    /// An error's reason names the setting and the file.
    pub(super) load: LoadStatus<String>,
}

#[derive(Debug)]
struct TlsPort {
    protocol: Protocol,
    files: Watched<ServerTls>,
    tls: PortTls,
    meter: TlsMeter,
    status: Arc<Mutex<TlsStatus>>,
}

impl TlsPorts {
    /// Loads the certificates of every port with TLS. The bounds are the ports' connection bounds.
    ///
    /// # Errors
    /// The first invalid file, or that the handshake thread could not start.
    pub(super) fn load(server: &Server, bounds: &PortBounds, metrics: &Metrics) -> Result<Self, AppError> {
        let admin = server.admin.tls.as_ref().filter(|_| server.admin.address.is_some());
        let ports = [
            (Port::Grpc, Protocol::Http2, server.grpc.tls.as_ref()),
            (Port::Http, Protocol::Http1, server.http_tls.as_ref()),
            (Port::Admin, Protocol::Http1, admin),
        ];
        if ports.iter().all(|(_, _, settings)| settings.is_none()) {
            return Ok(Self::default());
        }
        let handshakes =
            HandshakeThread::start().map_err(AppError::prefixed("TLS handshake thread: cannot start"))?;
        let with_tls = ports.into_iter().filter_map(|(port, protocol, settings)| {
            Some(TlsPort::load(settings?, protocol, bounds.of(port), metrics.tls(port), handshakes.runtime()))
        });
        Ok(Self { ports: with_tls.collect::<Result<_, _>>()?, handshakes: Some(handshakes) })
    }

    /// `None` if the port is clear text.
    pub(super) fn of_port(&self, port: Port) -> Option<PortTls> {
        self.ports.iter().find(|tls| tls.meter.port == port).map(|tls| tls.tls.clone())
    }

    /// For the admin page.
    pub(super) fn statuses(&self) -> Vec<Arc<Mutex<TlsStatus>>> {
        self.ports.iter().map(|port| Arc::clone(&port.status)).collect()
    }

    /// Applies changed files. Returns only if there are none to watch.
    pub(super) async fn watch(mut self) {
        if !self.ports.is_empty() {
            check_forever(move || self.ports.iter_mut().for_each(TlsPort::check_files)).await;
        }
    }
}

impl TlsPort {
    fn load(
        settings: &ServerTls,
        protocol: Protocol,
        bounds: ConnectionBounds,
        meter: TlsMeter,
        handshakes: Handle,
    ) -> Result<Self, AppError> {
        let port = meter.port;
        let (files, loaded) = Watched::start(settings.clone(), |tls| tls.load(protocol));
        let loaded = loaded.map_err(|error| AppError::of(setting_of(port, &error))(error.cause))?;
        if settings.client_ca_file.is_none() && !settings.client_names.is_empty() {
            tracing::warn!(
                port = port.into_str(),
                "tls.client_san has no effect; set tls.client_ca_file to require client certificates"
            );
        }
        let now_us = SystemClock.now_us();
        let mut load = LoadStatus::default();
        load.record_loaded(now_us);
        let status = TlsStatus {
            port,
            settings: settings.clone(),
            certificate: loaded.certificate.clone(),
            authorities: loaded.authorities.clone(),
            load,
        };
        report_loaded(&meter, &loaded, now_us);
        let tls = PortTls::new(&loaded, handshake_bounds(bounds), meter.clone(), handshakes);
        Ok(Self { protocol, files, tls, meter, status: Arc::new(Mutex::new(status)) })
    }

    /// Applies changed files. Blocks on the file system.
    fn check_files(&mut self) {
        let Change::Loaded(loaded) = self.files.check(monotonic(), |tls| tls.load(self.protocol)) else {
            return;
        };
        let now_us = SystemClock.now_us();
        let mut status = self.status.lock();
        match loaded.and_then(|loaded| status.unless_worse(loaded, now_us / 1_000_000)) {
            Ok(loaded) => {
                self.tls.replace(&loaded);
                report_loaded(&self.meter, &loaded, now_us);
                self.meter.reloaded(true);
                status.certificate = loaded.certificate;
                status.authorities = loaded.authorities;
                status.load.record_loaded(now_us);
            }
            Err(error) => {
                let port = self.meter.port;
                let error = format!("{}: {error}", setting_of(port, &error));
                tracing::error!(
                    port = port.into_str(),
                    %error,
                    "cannot load changed certificates; keeping current certificates"
                );
                self.meter.reloaded(false);
                status.load.record_failed(error, now_us);
            }
        }
    }
}

impl TlsStatus {
    /// Refuses an expired certificate while the current one is valid: every client would reject it.
    fn unless_worse(&self, loaded: LoadedTls, now_s: u64) -> Result<LoadedTls, TlsFileError> {
        let new = &loaded.certificate;
        if !new.has_expired_at(now_s) || !self.certificate.is_valid_at(now_s) {
            return Ok(loaded);
        }
        let reason = format!("its certificate expired at {}", date(new.not_after_s));
        let cause = FileError::unusable(&self.settings.cert_file, reason);
        Err(TlsFileError { setting: TlsFileSetting::CertFile, cause })
    }
}

fn setting_of(port: Port, error: &TlsFileError) -> String {
    format!("server.{}.tls.{}", port.into_str(), error.setting.into_str())
}

/// Logs the current certificates, and exports when they expire.
fn report_loaded(meter: &TlsMeter, loaded: &LoadedTls, now_us: u64) {
    let certificate = &loaded.certificate;
    let port = meter.port.into_str();
    let client_ca_s = loaded.authorities_not_after_s();
    meter.set_expiry(CertificateExpiry { certificate_s: certificate.not_after_s, client_ca_s });
    tracing::info!(
        port,
        subject = certificate.subject,
        names = certificate.names(),
        expires = date(certificate.not_after_s),
        client_certificates = if client_ca_s.is_some() { "required" } else { "not asked for" },
        "TLS certificate loaded"
    );
    if !certificate.is_valid_at(now_us / 1_000_000) {
        tracing::warn!(port, "TLS certificate expired or not valid yet; clients reject it");
    }
}

/// In UTC; clamped to the years 1970 to 9999.
pub(super) fn date(seconds: i64) -> String {
    const LAST_S: u64 = 253_402_300_799;
    let seconds = u64::try_from(seconds).unwrap_or(0).min(LAST_S);
    humantime::format_rfc3339_seconds(std::time::UNIX_EPOCH + Duration::from_secs(seconds)).to_string()
}
