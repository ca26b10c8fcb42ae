//! Serves all ports until shutdown, or until a required part ends.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use base::clock::SystemClock;
use engine::Enforcement;
use futures_util::future::{OptionFuture, join_all};
use store::redis::RedisStore;
use tokio_util::sync::CancellationToken;

use super::background::Background;
use super::bounds::{FINISH_WITHIN, MAX_UNFINISHED_BYTES, PortBounds, grpc_options};
use super::check_map::CheckMapWatcher;
use super::endpoints::{admin_endpoints, explain};
use super::fleet::Fleet;
use super::live_rows::TaskQueues;
use super::sampler::Sampler;
use super::worker_store::{AuthoritativeStore, WorkerStore};
use super::{Addresses, App, AppError};
use crate::console::ConsoleActions;
use crate::decide::counters::CounterService;
use crate::decide::limiter::Limiter;
use crate::decide::{Failures, Handler, NotReadyReason, OnInvalid, Readiness, Rights};
use crate::grpc::{self, BoxError, GrpcService, MakeContext, WorkerContext};
use crate::http::{self, AccessCheck, ConsoleEndpoints, CounterEndpoints, HttpService, UsageEndpoint};
use crate::ledger::{LedgerThread, WorkerLedger};
use crate::live::LiveExceptions;
use crate::net::tls_port::HandshakeThread;
use crate::net::{Admission, ListenAddress, PortListener, UnfinishedBytes};
use crate::notify::WorkerNotices;
use crate::settings::Settings;
use crate::telemetry::metrics::{DeniedKeys, Port, Transport};

#[derive(Debug, Default)]
struct Shutdown {
    /// Closes the gRPC port and finishes the calls in flight.
    grpc: CancellationToken,
    /// Stops the rest once the gRPC port is closed, so that the health endpoints answer until then.
    rest: CancellationToken,
    /// Ends the tasks behind the queues of requests, after the last request.
    queues: CancellationToken,
    /// Ends the export of metrics and traces after the last answer, so that every request is included.
    exporters: CancellationToken,
}

impl App {
    /// Serves until `stop`, then drains and ends.
    ///
    /// # Errors
    /// [`AppError`] if a required part ends.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), AppError> {
        // The ledger is dropped after everything that books.
        let _ledger = self.start_ledger()?;
        let addresses = self.addresses().map_err(AppError::prefixed("cannot read the bound addresses"))?;
        let store = self.stores.make_store().map_err(AppError::prefixed("cannot set up the store"))?;
        let (http_store, store_failed, store_closed) = (store.redis().cloned(), store.died(), store.close());
        let (unfinished, shutdown) = (UnfinishedBytes::new(MAX_UNFINISHED_BYTES), Shutdown::default());
        let fleet = self.fleet(http_store.as_ref());
        let live = self.live_exceptions(http_store.as_ref(), &fleet);
        let admin = self.admin_router(http_store.clone(), &live, &fleet, &shutdown.rest);
        let admin = self.http_service(Port::Admin, admin, &unfinished);
        let sampler = self.ports.admin.is_some().then(|| self.sampler(live.clone(), fleet.clone()));
        let metrics = self.metrics_service(&unfinished);
        let (queues, act_on_pauses, mut notifier) = self.task_queues(http_store.as_ref(), &live, &fleet)?;
        let public = self.public_service(store, queues.clone(), &unfinished);
        let service = self.grpc_service(queues, unfinished);
        let Self { rules, exceptions, check_map, rights, stores, .. } = self;
        let Self { settings, statsd, traces, readiness, ports, mut tls, bounds, .. } = self;
        let shake_hands = shake_hands(tls.handshakes.take(), shutdown.rest.clone());
        let background = Background {
            rules,
            exceptions,
            live,
            check_map,
            rights,
            tls,
            stores,
            http_store,
            readiness: readiness.clone(),
            ready_in_outage: settings.store.ready_in_outage,
            fleet,
            sampler,
        };

        let serve_grpc = async {
            let served = grpc::serve(ports.grpc, service, shutdown.grpc.clone()).await;
            shutdown.rest.cancel();
            served.map_err(AppError::prefixed("gRPC port"))
        };
        let http_ports = [(Some(ports.http), public), (ports.admin, admin), (ports.metrics, metrics)];
        let send_statsd = OptionFuture::from(statsd.map(|statsd| statsd.run(shutdown.exporters.clone())));
        let serve_rest = async {
            tokio::join!(
                serve_http(http_ports, &shutdown),
                // Boxed: many watchers, whose states would fill a small stack.
                Box::pin(background.run(&shutdown.rest)),
                shutdown.queues.run_until_cancelled(act_on_pauses),
                notifier.run(&shutdown.queues),
            );
            store_closed.await;
            shutdown.exporters.cancel();
        };
        let send_traces = traces.map(|traces| traces.run(shutdown.exporters.clone()));
        let serve_rest = async {
            tokio::join!(serve_rest, send_statsd, OptionFuture::from(send_traces));
            Ok(())
        };
        let drain = async {
            stop.await;
            drain(&readiness, settings.server.drain).await;
            shutdown.grpc.cancel();
            Ok(())
        };
        log_serving(&addresses, &settings, bounds);
        readiness.clear(NotReadyReason::Starting);
        let store_lives = fail_with_task(store_failed, &shutdown.rest);
        tokio::try_join!(serve_grpc, serve_rest, shake_hands, drain, store_lives)?;
        tracing::info!("stopped");
        Ok(())
    }

    /// Starts the thread that writes the ledger, if there is one.
    fn start_ledger(&self) -> Result<Option<LedgerThread>, AppError> {
        let Some((ledger, options)) = self.ledger.clone().zip(self.settings.ledger.clone()) else {
            return Ok(None);
        };
        let log = self.log.clone();
        let started = LedgerThread::start(ledger, options, move |line| log.push(line));
        started.map(Some).map_err(AppError::prefixed("cannot start the thread of the usage ledger"))
    }

    /// Returns the gRPC port. Every worker creates its own store and handler on its own runtime.
    fn grpc_service(&self, queues: TaskQueues, unfinished: UnfinishedBytes) -> GrpcService<WorkerStore> {
        let stores = Arc::clone(&self.stores);
        let make_handler = self.handler_factory(Transport::Grpc, queues);
        let make_context: MakeContext<WorkerStore> = Box::new(move || {
            let store = stores.make_store()?;
            let (close, died) = (store.close(), store.died());
            Ok(WorkerContext { handler: make_handler(store), close, died })
        });
        let options = grpc_options(&self.settings);
        let (readiness, admission) = (self.readiness.clone(), self.admission(Port::Grpc));
        let tls = self.tls.of_port(Port::Grpc);
        GrpcService { options, readiness, admission, tls, unfinished, make_context }
    }

    fn http_service(&self, port: Port, router: Router, unfinished: &UnfinishedBytes) -> HttpService {
        let (admission, tls, unfinished) = (self.admission(port), self.tls.of_port(port), unfinished.clone());
        let (failures, rights) = (None, Rights::default());
        HttpService { router, admission, tls, unfinished, finish_within: FINISH_WITHIN, failures, rights }
    }

    fn admission(&self, port: Port) -> Admission {
        Admission::new(port, self.bounds.of(port), self.metrics.connections(port))
    }

    fn handler_factory(
        &self,
        transport: Transport,
        queues: TaskQueues,
    ) -> impl Fn(WorkerStore) -> Handler<WorkerStore> + Clone + Send + 'static + use<> {
        let rulebook = Arc::clone(&self.rules.active.rulebook);
        let enforcement = self.settings.enforcement;
        let (bounds, max_message_bytes) =
            (self.settings.server.bounds, self.settings.server.max_message_bytes);
        let response = self.settings.response.clone();
        // A process in shadow mode denies nothing.
        let on_invalid = match enforcement {
            Enforcement::Enforce => self.settings.server.on_invalid,
            Enforcement::Shadow => OnInvalid::Error,
        };
        let meter = self.metrics.requests(transport);
        // If there is no admin port, nobody reads the keys.
        let (has_console, metrics) = (self.ports.admin.is_some(), self.metrics.clone());
        let (failures, ledger) = (Failures::new(meter.clone()), self.ledger.clone());
        let (tracer, rights) = (self.tracer.clone(), self.rights());
        // A process in shadow mode reports nothing.
        let notifies = enforcement == Enforcement::Enforce;
        move |store| {
            let limiter = Limiter {
                rulebook: Arc::clone(&rulebook),
                store,
                enforcement,
                clock: Arc::new(SystemClock),
                ledger: ledger.as_ref().map_or_else(WorkerLedger::default, |ledger| ledger.worker()),
                denied: if has_console { metrics.denied_keys() } else { DeniedKeys::default() },
                notices: if notifies { queues.notices.worker() } else { WorkerNotices::default() },
                pauses: queues.pauses.clone(),
            };
            Handler {
                limiter,
                bounds,
                max_message_bytes,
                response: response.clone(),
                meter: meter.clone(),
                tracer: tracer.clone(),
                failures: failures.clone(),
                on_invalid,
                rights: rights.clone(),
            }
        }
    }

    fn rights(&self) -> Rights {
        self.rights.as_ref().map(|watcher| watcher.rights.clone()).unwrap_or_default()
    }

    fn metrics_service(&self, unfinished: &UnfinishedBytes) -> HttpService {
        let router = http::metrics_router(&self.settings.metrics.path, self.metrics.clone());
        self.http_service(Port::Metrics, router, unfinished)
    }

    /// Returns the HTTP port. Requests refused by hyper count like those refused by its endpoints.
    fn public_service(
        &self,
        store: WorkerStore,
        queues: TaskQueues,
        unfinished: &UnfinishedBytes,
    ) -> HttpService {
        let redis = store.redis().cloned();
        let handler = self.handler_factory(Transport::Http, queues)(store);
        let failures = Some(handler.failures.clone());
        let check = self.check_map.as_ref().map(CheckMapWatcher::options);
        let token_file = self.settings.server.usage_token_file.clone();
        let access = AccessCheck::of_usage(token_file, self.metrics.tokens());
        let usage = UsageEndpoint {
            access: Some(access),
            rights: self.rights(),
            failures: failures.clone(),
            ..self.usage_endpoint(redis)
        };
        let router = http::public_router(handler, usage, check, self.readiness.clone(), self.metrics.clone());
        HttpService { failures, rights: self.rights(), ..self.http_service(Port::Http, router, unfinished) }
    }

    fn sampler(&self, live: LiveExceptions, fleet: Fleet) -> Sampler {
        Sampler {
            console: Arc::clone(&self.console),
            metrics: self.metrics.clone(),
            rules: self.rules.active.clone(),
            xds: self.rules.xds_state(),
            stores: Arc::clone(&self.stores),
            readiness: self.readiness.clone(),
            tls: self.tls.statuses(),
            live,
            fleet,
        }
    }

    fn counter_service(&self, redis: Option<RedisStore>) -> CounterService<AuthoritativeStore> {
        CounterService {
            rulebook: Arc::clone(&self.rules.active.rulebook),
            store: self.stores.authoritative(redis),
            clock: Arc::new(SystemClock),
        }
    }

    /// For the admin port, which checks the caller itself.
    fn usage_endpoint(&self, redis: Option<RedisStore>) -> UsageEndpoint<AuthoritativeStore> {
        UsageEndpoint {
            service: self.counter_service(redis),
            bounds: self.settings.server.bounds,
            max_message_bytes: self.settings.server.max_message_bytes,
            access: None,
            rights: Rights::default(),
            failures: None,
        }
    }

    /// `stop` ends the console's streams.
    fn admin_router(
        &self,
        redis: Option<RedisStore>,
        live: &LiveExceptions,
        fleet: &Fleet,
        stop: &CancellationToken,
    ) -> Router {
        let key_prefix = match &redis {
            Some(_) => self.settings.store.redis.key_prefix.clone(),
            None => String::new(),
        };
        let console = ConsoleEndpoints {
            actions: ConsoleActions {
                console: Arc::clone(&self.console),
                service: self.counter_service(redis.clone()),
            },
            stop: stop.clone(),
        };
        let (rulebook, stores) = (Arc::clone(&self.rules.active.rulebook), Arc::clone(&self.stores));
        let counters = CounterEndpoints {
            service: self.counter_service(redis.clone()),
            list_service: Arc::new(move || {
                Ok(CounterService {
                    rulebook: Arc::clone(&rulebook),
                    store: stores.for_list()?,
                    clock: Arc::new(SystemClock),
                })
            }),
            explain: explain(self.rules.active.clone()),
            bounds: self.settings.server.bounds,
            max_message_bytes: self.settings.server.max_message_bytes,
            key_prefix,
            console: Arc::clone(&self.console),
        };
        let endpoints =
            admin_endpoints(&self.rules, &self.exceptions, (live, fleet), &self.stores, self.tls.statuses());
        let access = self.settings.server.admin.access.clone();
        let access = AccessCheck::new(access, self.own_token.clone(), self.metrics.tokens());
        http::admin_router(endpoints, counters, self.usage_endpoint(redis), console, live.clone(), access)
    }
}

/// Runs the TLS handshake thread until `stop`.
async fn shake_hands(thread: Option<HandshakeThread>, stop: CancellationToken) -> Result<(), AppError> {
    let run = OptionFuture::from(thread.map(|thread| thread.run(&stop)));
    run.await.unwrap_or(Ok(())).map_err(AppError::prefixed("TLS handshake thread"))
}

/// Logs what the process serves, and from where.
fn log_serving(addresses: &Addresses, settings: &Settings, bounds: PortBounds) {
    tracing::info!(
        grpc = bounds.of(Port::Grpc).total,
        http = bounds.of(Port::Http).total,
        admin = bounds.of(Port::Admin).total,
        "connection limits by port"
    );
    let rules = match &settings.rules.xds {
        Some(xds) => xds.address.authority(),
        None => settings.rules.path.display().to_string(),
    };
    let or_off = |address: &Option<ListenAddress>| {
        address.as_ref().map_or_else(|| "off".to_owned(), ToString::to_string)
    };
    tracing::info!(
        grpc = %addresses.grpc,
        http = %addresses.http,
        admin = %or_off(&addresses.admin),
        metrics = %or_off(&addresses.metrics),
        store = settings.store.kind.into_str(),
        %rules,
        "serving"
    );
}

/// Serves these ports, and then ends the queues of their requests.
async fn serve_http(ports: [(Option<PortListener>, HttpService); 3], shutdown: &Shutdown) {
    let open = ports.into_iter().filter_map(|(port, service)| Some((port?, service)));
    join_all(open.map(|(port, service)| http::serve(port, service, shutdown.rest.clone()))).await;
    shutdown.queues.cancel();
}

/// Reports not ready and waits, so that callers can move to other instances while this one still answers.
async fn drain(readiness: &Readiness, time: Duration) {
    tracing::info!(drain = ?time, "draining");
    readiness.set(NotReadyReason::Draining);
    tokio::time::sleep(time).await;
}

/// Fails if `failed` resolves before `stop`: a store with a failed task answers slowly or not at all.
async fn fail_with_task(
    failed: impl Future<Output = BoxError>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    match stop.run_until_cancelled(failed).await {
        Some(reason) => Err(AppError::prefixed("HTTP ports: a store task failed")(reason)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use store::observer::Observer;
    use store::redis::RedisOptions;

    use super::*;

    #[tokio::test]
    async fn a_failed_task_of_the_store_is_an_error_with_its_reason() {
        let failed = async { "the batcher panicked".into() };
        let ended = fail_with_task(failed, &CancellationToken::new()).await;
        let reason = ended.expect_err("the task failed").text;
        assert_eq!(reason, "HTTP ports: a store task failed: the batcher panicked");
    }

    /// Panics in the task that sends the batches.
    #[derive(Debug)]
    struct PanickingObserver;

    impl Observer for PanickingObserver {
        fn queue_depth(&self, requests: usize) {
            assert_eq!(requests, usize::MAX, "as if by mistake");
        }
    }

    #[tokio::test]
    async fn a_task_of_the_redis_store_that_panics_ends_the_process_with_the_reason() {
        // Nothing listens there: the task panics before it connects.
        let urls = vec!["redis://127.0.0.1:1".parse().expect("a valid URL")];
        let options = RedisOptions { urls, connections: 1, ..RedisOptions::default() };
        let store = RedisStore::new(&options, Arc::new(PanickingObserver)).expect("valid options");
        let failed = store.died().map(Into::into);
        store.probe().await.expect_err("no task answers");
        let ended = fail_with_task(failed, &CancellationToken::new()).await;
        let reason = ended.expect_err("the task failed").text;
        assert!(reason.contains("panicked") && reason.contains("as if by mistake"), "{reason}");
    }

    #[tokio::test]
    async fn a_store_without_failed_tasks_ends_with_the_process() {
        let stop = CancellationToken::new();
        stop.cancel();
        let ended = fail_with_task(std::future::pending(), &stop).await;
        assert!(ended.is_ok());
    }
}
