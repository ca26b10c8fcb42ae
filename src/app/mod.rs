//! Wiring: the only room that names the concrete types together, and the order of start and end.
//!
//! Start: metrics, rules, ports, then everything that serves. End: not ready, go on answering for as long as callers
//! need to leave, close the gRPC port, finish what is in flight, then the pages and everything else.

mod availability;
mod housekeeping;
mod options;
mod pages;
mod rules;
mod status;
mod stores;

use std::future::{self, Future};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing::subscriber::SetGlobalDefaultError;

use crate::counters::CounterService;
use crate::limiter::Limiter;
use crate::rules::Problems;
use crate::settings::{Log, Settings, StoreKind};
use crate::store::redis::RedisStore;
use crate::telemetry::logging;
use crate::telemetry::metrics::{Metrics, Transport};
use crate::transport::grpc::{self, BoxError, GrpcError, GrpcService, WorkerContext};
use crate::transport::http::{self, CounterEndpoints};
use crate::transport::{Handler, NotReadyReason, Readiness};

use rules::RuleKeeper;
use stores::{AnyStore, Stores, Truth};

/// Why the process cannot start, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Two metrics have one name.
    #[error("the metrics cannot be set up: {0}")]
    Metrics(#[from] prometheus::Error),
    /// There are no rules to start with.
    #[error("the rules cannot be used:\n{0}")]
    Rules(#[from] Problems),
    /// A port cannot be had.
    #[error("{setting}: cannot listen on {address}: {cause}")]
    Bind {
        /// The setting that names it.
        setting: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        cause: io::Error,
    },
    /// The system does not say where it listens.
    #[error("the bound ports are not known: {0}")]
    Addresses(#[source] io::Error),
    /// The store cannot be set up.
    #[error("the store cannot be set up: {0}")]
    Store(#[source] BoxError),
    /// The gRPC port is not served any more.
    #[error("the gRPC port: {0}")]
    Grpc(#[from] GrpcError),
}

/// A process that is about to serve: rules loaded, ports bound.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    metrics: Metrics,
    rules: RuleKeeper,
    stores: Arc<Stores>,
    readiness: Readiness,
    ports: Ports,
}

#[derive(Debug)]
struct Ports {
    grpc: TcpListener,
    http: TcpListener,
    admin: TcpListener,
}

/// Where a process listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The decision call.
    pub grpc: SocketAddr,
    /// `/json`, health, metrics.
    pub http: SocketAddr,
    /// The admin pages.
    pub admin: SocketAddr,
}

/// Sends logs to standard error from here on. For the process, once.
///
/// # Errors
/// When something else takes the logs already.
pub fn start_logging(log: &Log) -> Result<(), SetGlobalDefaultError> {
    logging::init(&log.level, log.format)
}

impl App {
    /// Loads the rules and binds the ports.
    ///
    /// # Errors
    /// [`AppError`] when the rules cannot be used or a port cannot be had.
    pub async fn prepare(settings: Settings) -> Result<Self, AppError> {
        let metrics = Metrics::new(settings.near_limit_ppm)?;
        let rules = RuleKeeper::start(&settings, &metrics)?;
        let stores = Arc::new(Stores::new(&settings, &metrics)?);
        let server = &settings.server;
        let ports = Ports {
            grpc: bind("server.grpc.address", server.grpc.address).await?,
            http: bind("server.http.address", server.http_address).await?,
            admin: bind("server.admin.address", server.admin_address).await?,
        };
        let reasons: &[_] = match settings.store.kind {
            // It is there because the process is.
            StoreKind::Memory => &[NotReadyReason::Starting],
            StoreKind::Redis => &[NotReadyReason::Starting, NotReadyReason::StoreNotReached],
        };
        let readiness = Readiness::not_ready(reasons);
        Ok(Self { settings, metrics, rules, stores, readiness, ports })
    }

    /// Where it listens; a port of 0 in the settings is a free one here.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses {
            grpc: self.ports.grpc.local_addr()?,
            http: self.ports.http.local_addr()?,
            admin: self.ports.admin.local_addr()?,
        })
    }

    /// Serves until `shutdown`, then drains and ends.
    ///
    /// # Errors
    /// [`AppError`] when a part that must run does not.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), AppError> {
        let end = End::default();
        let make_context = self.make_context();
        let store = self.stores.make().map_err(AppError::Store)?;
        let (redis, close_store) = (store.redis(), store.close());
        let pages = http::public_router(
            self.make_handler(Transport::Http)(store),
            self.readiness.clone(),
            self.metrics.clone(),
        );
        let admin = http::admin_router(pages::all(&self.rules, &self.stores), self.counters(redis.clone()));
        let addresses = self.addresses().map_err(AppError::Addresses)?;
        let Self { settings, rules, stores, readiness, ports, .. } = self;

        let service = GrpcService {
            options: options::grpc_options(&settings.server),
            readiness: readiness.clone(),
            make_context,
        };
        let deciding = async {
            let served = grpc::serve(ports.grpc, service, end.deciding.clone()).await;
            end.everything.cancel();
            served.map_err(AppError::from)
        };
        let http = options::http_options();
        let everything_else = async {
            tokio::join!(
                http::serve(ports.http, http, pages, end.everything.clone()),
                http::serve(ports.admin, http, admin, end.everything.clone()),
                rules.watch(settings.rules.watch, || stores.reset_denials(), end.everything.cancelled()),
                housekeeping::keep(&stores, end.everything.cancelled()),
                housekeeping::reach(redis, &readiness, &stores.status, end.everything.cancelled()),
            );
            close_store.await;
            Ok(())
        };
        let ending = async {
            shutdown.await;
            tracing::info!(drain = ?settings.server.drain, "asked to stop: draining");
            readiness.set(NotReadyReason::Draining);
            tokio::time::sleep(settings.server.drain).await;
            end.deciding.cancel();
            Ok(())
        };
        tracing::info!(grpc = %addresses.grpc, http = %addresses.http, admin = %addresses.admin, "serving");
        readiness.clear(NotReadyReason::Starting);
        tokio::try_join!(deciding, everything_else, ending)?;
        tracing::info!("stopped");
        Ok(())
    }

    /// What each worker calls on its own runtime.
    fn make_context(
        &self,
    ) -> impl Fn() -> Result<WorkerContext<AnyStore>, BoxError> + Clone + Send + 'static + use<> {
        let stores = Arc::clone(&self.stores);
        let make_handler = self.make_handler(Transport::Grpc);
        move || {
            let store = stores.make()?;
            let close = store.close();
            Ok(WorkerContext { handler: make_handler(store), close, died: Box::pin(future::pending()) })
        }
    }

    /// What makes a handler from a store of its own.
    fn make_handler(
        &self,
        transport: Transport,
    ) -> impl Fn(AnyStore) -> Handler<AnyStore> + Clone + Send + 'static + use<> {
        let rulebook = Arc::clone(&self.rules.rulebook);
        let (enforcement, bounds) = (self.settings.enforcement, self.settings.server.bounds);
        let response = self.settings.response;
        let meter = self.metrics.requests(transport);
        move |store| {
            let limiter = Limiter { rulebook: Arc::clone(&rulebook), store, enforcement };
            Handler { limiter, bounds, response, meter: meter.clone() }
        }
    }

    /// What the admin port says of counters.
    fn counters(&self, redis: Option<RedisStore>) -> CounterEndpoints<Truth> {
        let key_prefix = match &redis {
            Some(_) => self.settings.store.redis.key_prefix.clone(),
            None => String::new(),
        };
        let store = self.stores.truth(redis);
        CounterEndpoints {
            service: CounterService { rulebook: Arc::clone(&self.rules.rulebook), store },
            bounds: self.settings.server.bounds,
            key_prefix,
        }
    }
}

/// The two steps of the end.
#[derive(Debug, Default)]
struct End {
    /// No new connections for decisions; those in flight are finished.
    deciding: CancellationToken,
    /// The rest follows when that is done, so that health pages tell the truth until then.
    everything: CancellationToken,
}

async fn bind(setting: &'static str, address: SocketAddr) -> Result<TcpListener, AppError> {
    TcpListener::bind(address).await.map_err(|cause| AppError::Bind { setting, address, cause })
}
