//! Keeps a stream to the server open: connects, speaks, and waits before the next attempt.

use std::future::{Future, pending};

use store::clock::{Clock as _, SystemClock};
use store::log_throttle::LogThrottle;

use super::backoff::Backoff;
use super::connect::{NotedFarewell, connect};
use super::options::XdsOptions;
use super::state::XdsState;
use super::stream::{Session, StreamEnd};
use super::tls::{CertificateWatch, ClientTls, LoadedTls};
use crate::telemetry::metrics::{XdsFailure, XdsMeter};

pub use super::stream::ResourceSink;

/// A client of one server.
pub struct XdsClient<S> {
    options: XdsOptions,
    tls: Option<ClientTls>,
    session: Session<S>,
    backoff: Backoff,
    meter: XdsMeter,
    state: XdsState,
    failures: LogThrottle,
}

/// How an attempt ended.
enum Ended {
    /// There is a reason to connect again at once.
    Renew,
    Failed {
        failure: XdsFailure,
        reason: String,
    },
}

impl<S: ResourceSink> XdsClient<S> {
    /// The client tells its state by `state`.
    pub fn new(options: XdsOptions, sink: S, meter: XdsMeter, state: XdsState) -> Self {
        Self {
            tls: options.tls.clone().map(ClientTls::new),
            session: Session::new(&options, sink, meter.clone(), state.clone()),
            backoff: Backoff::new(options.backoff),
            failures: LogThrottle::default(),
            options,
            meter,
            state,
        }
    }

    /// Runs until `shutdown`, whatever it waits for.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let server = self.options.address.authority();
        tracing::info!(%server, tls = self.tls.is_some(), "the rules come from an xDS server");
        tokio::select! {
            () = shutdown => {}
            () = self.run_forever(&server) => {}
        }
        self.set_connected(false);
    }

    async fn run_forever(&mut self, server: &str) {
        loop {
            let ended = self.attempt().await;
            self.set_connected(false);
            match ended {
                Ended::Renew => {
                    tracing::info!(%server, "the certificates for the xDS server have changed: a new stream");
                }
                Ended::Failed { failure, reason } => {
                    self.meter.failed(failure);
                    self.state.failed(&reason, SystemClock.now_us());
                    self.session.connection_changed(Some(&reason));
                    if let Some(attempts) = self.failures.count() {
                        let kind = failure.name();
                        tracing::warn!(
                            %server, attempts, kind,
                            "no stream to the xDS server, the rules in force stay: {reason}"
                        );
                    }
                    tokio::time::sleep(self.backoff.pause(fastrand::u32(0..=1_000_000))).await;
                }
            }
        }
    }

    /// One connection with one stream.
    async fn attempt(&mut self) -> Ended {
        let loaded = match self.load_tls().await {
            Ok(loaded) => loaded,
            Err(ended) => return ended,
        };
        let connector = loaded.as_ref().map(|loaded| &loaded.connector);
        let noted = NotedFarewell::default();
        let channel = match connect(&self.options, connector, &noted).await {
            Ok(channel) => channel,
            Err(error) => {
                let (failure, reason) =
                    noted.explain((error.failure(), error.to_string()), self.tls.is_some());
                return Ended::Failed { failure, reason };
            }
        };
        self.set_connected(true);
        self.session.connection_changed(None);
        let renewed = until_renewed(loaded.map(|loaded| loaded.watch), self.meter.clone());
        let (end, answers) = self.session.run(channel, renewed).await;
        if answers > 0 {
            self.backoff.reset();
        }
        if matches!(end, StreamEnd::Interrupted) {
            return Ended::Renew;
        }
        let (failure, reason) = noted.explain((end.failure(), end.reason()), self.tls.is_some());
        Ended::Failed { failure, reason }
    }

    async fn load_tls(&mut self) -> Result<Option<LoadedTls>, Ended> {
        let Some(tls) = &mut self.tls else { return Ok(None) };
        match tls.load().await {
            Ok(loaded) => {
                if let Some(fault) = &loaded.fault {
                    tracing::warn!(
                        "the new certificates for the xDS server cannot be used, the old ones are: {fault}"
                    );
                }
                Ok(Some(loaded))
            }
            Err(fault) => Err(Ended::Failed { failure: XdsFailure::Tls, reason: fault.to_string() }),
        }
    }

    fn set_connected(&self, is_connected: bool) {
        self.meter.set_connected(is_connected);
        self.state.set_connected(is_connected);
    }
}

/// Waits until the files have changed and can be used. Files that cannot be used change nothing.
async fn until_renewed(watch: Option<CertificateWatch>, meter: XdsMeter) {
    let Some(watch) = watch else { return pending().await };
    loop {
        let change = watch.change().await;
        meter.certificates_changed(change.is_ok());
        match change {
            Ok(()) => return,
            Err(fault) => {
                tracing::warn!(
                    "the new certificates for the xDS server cannot be used, the stream stays: {fault}"
                );
            }
        }
    }
}
