//! Keeps a stream to the server open: connects, exchanges messages, and waits before the next attempt.

use std::future::{Future, pending};

use base::clock::{Clock as _, SystemClock, monotonic};
use base::log_throttle::LogThrottle;
use base::{Change, Watched, check_until};
use tls::{ClientConnector, ClientTls, Protocol};

use super::connect::{connect, load};
use super::options::XdsOptions;
use super::pace::Backoff;
use super::state::{XdsFault, XdsState};
use super::stream::{Session, StreamEnd};
use crate::telemetry::metrics::{XdsFailure, XdsMeter};

pub use super::stream::ResourceSink;

pub struct XdsClient<S> {
    options: XdsOptions,
    /// TLS with the last valid files.
    last_good: Option<ClientConnector>,
    session: Session<S>,
    backoff: Backoff,
    meter: XdsMeter,
    state: XdsState,
    failures: LogThrottle,
}

enum Ended {
    /// Connect again immediately.
    Renew,
    Failed {
        failure: XdsFailure,
        reason: String,
    },
}

impl<S: ResourceSink> XdsClient<S> {
    /// The client reports its state through `state`.
    pub fn new(options: XdsOptions, sink: S, meter: XdsMeter, state: XdsState) -> Self {
        Self {
            last_good: None,
            session: Session::new(&options, sink, meter.clone(), state.clone()),
            backoff: Backoff::new(options.backoff),
            failures: LogThrottle::default(),
            options,
            meter,
            state,
        }
    }

    /// Runs until `shutdown`, whatever it is waiting for.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) {
        let server = self.options.address.authority();
        tracing::info!(%server, tls = self.options.tls.is_some(), "reading rules from an xDS server");
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
                    tracing::info!(%server, "xDS certificates changed; opening a new stream");
                }
                Ended::Failed { failure, reason } => {
                    self.meter.failures.count(failure);
                    let fault = XdsFault { at_us: SystemClock.now_us(), reason: reason.clone() };
                    self.state.lock().last_fault = Some(fault);
                    self.session.connection_changed(Some(&reason));
                    if let Some(attempts) = self.failures.count() {
                        let kind = failure.name();
                        tracing::warn!(
                            %server, attempts, kind, error = %reason,
                            "xDS server disconnected; keeping current rules"
                        );
                    }
                    tokio::time::sleep(self.backoff.pause(fastrand::u32(0..=1_000_000))).await;
                }
            }
        }
    }

    /// Opens one connection with one stream.
    async fn attempt(&mut self) -> Ended {
        let files = match self.load_tls().await {
            Ok(files) => files,
            Err(ended) => return ended,
        };
        let tls = self.last_good.as_ref();
        let channel = match connect(&self.options, tls).await {
            Ok(channel) => channel,
            Err(error) => return Ended::Failed { failure: error.failure(), reason: error.to_string() },
        };
        self.set_connected(true);
        self.session.connection_changed(None);
        let renewed = until_renewed(files, self.meter.clone());
        let (end, answers) = self.session.run(channel, renewed).await;
        if answers > 0 {
            self.backoff.reset();
        }
        if matches!(end, StreamEnd::Interrupted) {
            return Ended::Renew;
        }
        Ended::Failed { failure: end.failure(), reason: end.reason() }
    }

    /// Reads the TLS files, and returns them to be watched. Fails if they are invalid and there are no earlier valid
    /// ones.
    async fn load_tls(&mut self) -> Result<Option<Watched<ClientTls>>, Ended> {
        let Some(tls) = &self.options.tls else { return Ok(None) };
        let (files, connector) = load(tls).await;
        match connector {
            Ok(connector) => self.last_good = Some(connector),
            Err(fault) if self.last_good.is_some() => {
                let error = format_args!("rules.xds.tls: {fault}");
                tracing::warn!(%error, "cannot load changed xDS certificates; keeping current ones");
            }
            Err(fault) => {
                let reason = format!("rules.xds.tls: {fault}");
                return Err(Ended::Failed { failure: XdsFailure::Tls, reason });
            }
        }
        Ok(Some(files))
    }

    fn set_connected(&self, is_connected: bool) {
        self.meter.set_connected(is_connected);
        self.state.lock().connected = is_connected;
    }
}

/// Waits until the TLS files have changed and are valid. Invalid files are ignored.
async fn until_renewed(files: Option<Watched<ClientTls>>, meter: XdsMeter) {
    let Some(mut files) = files else { return pending().await };
    check_until(move || {
        let change = files.check(monotonic(), |tls| tls.read_files(Some(Protocol::Http2)));
        let Change::Loaded(loaded) = change else { return None };
        meter.certificates_changed(loaded.is_ok());
        if let Err(fault) = &loaded {
            let error = format_args!("rules.xds.tls: {fault}");
            tracing::warn!(%error, "cannot load changed xDS certificates; keeping the open stream");
        }
        loaded.ok()
    })
    .await;
}
