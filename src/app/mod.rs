//! Wires the process: the only module that names all concrete types. It also fixes the order of startup and shutdown.
//!
//! Startup: metrics, rules, stores, ports; then everything serves (`run.rs`). Shutdown: report not ready, keep
//! answering for the drain time, close the gRPC port, finish the calls in flight, then stop the HTTP ports and the
//! background work.

mod active_rules;
mod background;
mod bounds;
mod certificates;
mod check_map;
mod console_start;
mod endpoints;
mod exceptions;
mod fleet;
mod live_rows;
mod load_status;
mod rights;
mod rule_source;
mod run;
mod sampler;
mod status;
mod stores;
mod worker_store;
mod xds_rules;

use std::borrow::Cow;
use std::error::Error;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::{fs, io};

use base::clock::SystemClock;
use tracing::subscriber::SetGlobalDefaultError;

use crate::console::Console;
use crate::decide::{NotReadyReason, Readiness};
use crate::http::Token;
use crate::ledger::{Ledger, LedgerOutput};
use crate::net::{ListenAddress, PortListener, SocketAccess};
use crate::notify::NotifyStats;
use crate::settings::{Log, Server, Settings, StoreKind};
use crate::telemetry::envoy_ratelimit::{Statsd, timing_queue};
use crate::telemetry::logging;
use crate::telemetry::metrics::{MeteredParts, Metrics, MetricsOptions, RulesOrigin};
use crate::telemetry::traces::{Tracer, Traces};

pub use crate::telemetry::LogQueue;
pub use bounds::refuse_huge_pages;
pub use check_map::load_check_map;
pub use exceptions::{ExceptionsError, read_exceptions};
pub use rule_source::{ReadRules, ReadRulesError, load_options, read_rules};

use bounds::PortBounds;
use certificates::TlsPorts;
use check_map::CheckMapWatcher;
use console_start::{make_console, own_token};
use exceptions::{ConfirmedAt, ExceptionWatcher};
use live_rows::keeps_live_rows;
use rights::RightsWatcher;
use rule_source::RuleWatcher;
use stores::{LocalCounters, Stores};

/// Why the process does not start, or ends.
#[derive(Debug)]
pub struct AppError {
    /// The setting that names something unusable, such as a file or an address, if that is the cause.
    pub setting: Option<Cow<'static, str>>,
    pub text: String,
}

impl AppError {
    /// Says which setting the cause is about.
    fn of<E: Display>(setting: impl Into<Cow<'static, str>>) -> impl FnOnce(E) -> Self {
        let setting = setting.into();
        move |cause| Self { text: format!("{setting}: {cause}"), setting: Some(setting) }
    }

    /// Says before the cause what failed.
    fn prefixed<E: Display>(what: &str) -> impl FnOnce(E) -> Self {
        move |cause| Self { setting: None, text: format!("{what}: {cause}") }
    }
}

impl<E: Error> From<E> for AppError {
    fn from(error: E) -> Self {
        Self { setting: None, text: error.to_string() }
    }
}

/// A process with its rules loaded and its ports bound.
#[derive(Debug)]
pub struct App {
    settings: Settings,
    metrics: Metrics,
    statsd: Option<Statsd>,
    tracer: Tracer,
    traces: Option<Traces>,
    log: LogQueue,
    ledger: Option<Arc<Ledger>>,
    notify_stats: Arc<NotifyStats>,
    rules: RuleWatcher,
    exceptions: ExceptionWatcher,
    live_confirmed_at: ConfirmedAt,
    check_map: Option<CheckMapWatcher>,
    /// `None` if every caller may do everything.
    rights: Option<RightsWatcher>,
    stores: Arc<Stores>,
    readiness: Readiness,
    ports: Ports,
    tls: TlsPorts,
    bounds: PortBounds,
    console: Arc<Console>,
    own_token: Option<Token>,
}

#[derive(Debug)]
struct Ports {
    grpc: PortListener,
    http: PortListener,
    /// `None` if the admin port is off.
    admin: Option<PortListener>,
    /// `None` if the metrics do not have their own port.
    metrics: Option<PortListener>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Serves `ShouldRateLimit`.
    pub grpc: ListenAddress,
    /// Serves `/json`, health and metrics.
    pub http: ListenAddress,
    /// `None` if the admin port is off.
    pub admin: Option<ListenAddress>,
    /// Serves metrics only; `None` if off.
    pub metrics: Option<ListenAddress>,
}

/// Starts logging, including panics, to standard error. Call it once, and [`LogQueue::flush`] before the process exits.
///
/// # Errors
/// If the process already has a log.
pub fn start_logging(log: &Log) -> Result<LogQueue, SetGlobalDefaultError> {
    let queue = logging::init(&log.level, log.format)?;
    logging::log_panics();
    Ok(queue)
}

impl App {
    /// Loads the rules and the certificates, and binds the ports. `log` is the process's log, whose losses are counted.
    ///
    /// # Errors
    /// [`AppError`] if the rules or the certificates are invalid, or a port cannot be bound.
    pub async fn prepare(settings: Settings, log: LogQueue) -> Result<Self, AppError> {
        let bounds = PortBounds::within(bounds::raise_open_files(), settings.server.connections_per_address);
        let reasons: &[_] = match settings.store.kind {
            StoreKind::Memory => &[NotReadyReason::Starting],
            StoreKind::Redis => &[NotReadyReason::Starting, NotReadyReason::StoreNotReached],
        };
        let readiness = Readiness::not_ready(reasons);
        let ready = readiness.clone();
        let counters = LocalCounters::new(&settings.store);
        let (queue, timings) = timing_queue();
        let (confirmed_at, live_confirmed_at) = <(ConfirmedAt, ConfirmedAt)>::default();
        let (age, live_age) = (confirmed_at.clone(), live_confirmed_at.clone());
        let (ledger, lines, notify_stats) =
            (ledger_of(&settings)?, log.clone(), Arc::<NotifyStats>::default());
        let parts = MeteredParts {
            is_ready: Some(Arc::new(move || ready.is_ready())),
            rules: Some(if settings.rules.xds.is_some() { RulesOrigin::Xds } else { RulesOrigin::Files }),
            exceptions_age: settings.exceptions.path.is_some().then(|| age.read_age()),
            live_age: keeps_live_rows(&settings).then(|| live_age.read_age()),
            lost_log_lines: Some(Arc::new(move || lines.lost())),
            memory: Some(counters.memory_stats()),
            deny_cache: counters.deny_cache_stats(),
            leases: counters.lease_stats(),
            releases: counters.release_stats(),
            has_per_second: settings.store.has_per_second(),
            has_home: settings.store.has_home(),
            has_traces: settings.traces.is_some(),
            ledger: ledger.clone(),
            notices: Some(Arc::clone(&notify_stats)),
            timings: settings.metrics.statsd.is_some().then_some(queue),
        };
        let metrics = make_metrics(&settings, parts)?;
        let statsd = settings.metrics.statsd.clone();
        let statsd = statsd.map(|options| Statsd::new(options, metrics.clone(), timings));
        let (tracer, traces) = make_traces(&settings, &metrics)?;
        let (hashing, own_token) = (settings.secrets.value_hashing()?, own_token(&settings)?);
        let console = make_console(&settings, hashing.key, own_token.as_ref())?;
        let options = load_options(&settings, hashing);
        let rules = RuleWatcher::start(&settings, options, &metrics, &readiness)?;
        let exceptions = &settings.exceptions;
        let exceptions = ExceptionWatcher::start(exceptions, &rules.active.rulebook, &metrics, confirmed_at)?;
        let check_map = settings.server.check.as_ref();
        let check_map = check_map.map(|check| CheckMapWatcher::start(check, &rules.active.rulebook));
        let check_map = check_map.transpose().map_err(AppError::of("server.http.check.map"))?;
        let rights = read_token_files(&settings.server)?;
        let tls = TlsPorts::load(&settings.server, &bounds, &metrics)?;
        let ports = Ports::bind(&settings).await?;
        Ok(Self {
            stores: Arc::new(Stores::new(&settings, counters, &metrics)),
            settings,
            metrics,
            statsd,
            tracer,
            traces,
            log,
            ledger,
            notify_stats,
            rules,
            exceptions,
            live_confirmed_at,
            check_map,
            rights,
            readiness,
            ports,
            tls,
            bounds,
            console,
            own_token,
        })
    }

    /// Returns the bound addresses, with the port that the system chose for port 0.
    ///
    /// # Errors
    /// If the system does not report an address.
    pub fn addresses(&self) -> io::Result<Addresses> {
        Ok(Addresses {
            grpc: self.ports.grpc.address()?,
            http: self.ports.http.address()?,
            admin: self.ports.admin.as_ref().map(PortListener::address).transpose()?,
            metrics: self.ports.metrics.as_ref().map(PortListener::address).transpose()?,
        })
    }
}

/// Reads the token files of the ports once. Returns the files of `server.rights`.
fn read_token_files(server: &Server) -> Result<Option<RightsWatcher>, AppError> {
    if server.admin.address.is_some() {
        let checked = server.admin.access.check_token_files();
        checked.map_err(|(setting, cause)| AppError::of(setting)(cause))?;
    }
    if let Some(file) = &server.usage_token_file {
        file.token().map_err(AppError::of("server.http.usage_token_file"))?;
    }
    let rights = Some(&server.rights).filter(|rights| !rights.is_empty()).map(RightsWatcher::start);
    rights.transpose().map_err(AppError::of("server.rights"))
}

impl Ports {
    async fn bind(settings: &Settings) -> Result<Self, AppError> {
        let server = &settings.server;
        let bind = async |setting: &'static str, address: &ListenAddress, access| {
            let bound = PortListener::bind(address, server.listen, access).await;
            bound.map_err(|cause| AppError::of(setting)(format!("cannot listen on {address}: {cause}")))
        };
        // Only this process's user can open a Unix socket.
        let own_user = SocketAccess::OwnUser;
        let ports = Self {
            // As in envoyproxy/ratelimit, the umask sets a Unix socket's mode: proxies run as other users.
            grpc: bind("server.grpc.address", &server.grpc.address, SocketAccess::Umask).await?,
            http: bind("server.http.address", &server.http_address, own_user).await?,
            admin: match &server.admin.address {
                Some(address) => Some(bind("server.admin.address", address, own_user).await?),
                None => None,
            },
            metrics: match &settings.metrics.address {
                Some(address) => Some(bind("metrics.address", address, own_user).await?),
                None => None,
            },
        };
        ports.refuse_shared()?;
        Ok(ports)
    }

    /// With `server.reuse_port`, the system lets two ports of this process share an address, and a connection then
    /// reaches either of them.
    fn refuse_shared(&self) -> Result<(), AppError> {
        let ports = [
            ("server.grpc.address", Some(&self.grpc)),
            ("server.http.address", Some(&self.http)),
            ("server.admin.address", self.admin.as_ref()),
            ("metrics.address", self.metrics.as_ref()),
        ];
        let mut bound: Vec<(&str, SocketAddr)> = Vec::new();
        for (setting, port) in ports {
            let address = port.map(PortListener::address).transpose().map_err(AppError::of(setting))?;
            let Some(ListenAddress::Tcp(address)) = address else { continue };
            if let Some((other, _)) = bound.iter().find(|(_, other)| is_shared(*other, address)) {
                return Err(AppError::of(setting)(format!("{address} is already the address of {other}")));
            }
            bound.push((setting, address));
        }
        Ok(())
    }
}

/// `true` if a connection can arrive at both addresses.
fn is_shared(one: SocketAddr, other: SocketAddr) -> bool {
    // `[::]` is every IPv4 address as well.
    let has_all =
        |of: SocketAddr, also: SocketAddr| of.ip().is_unspecified() && (of.is_ipv6() || also.is_ipv4());
    one.port() == other.port() && (one.ip() == other.ip() || has_all(one, other) || has_all(other, one))
}

/// Returns the ledger, whose directory is there.
fn ledger_of(settings: &Settings) -> Result<Option<Arc<Ledger>>, AppError> {
    let Some(options) = &settings.ledger else { return Ok(None) };
    if let LedgerOutput::Directory(path) = &options.output {
        let fault = |cause| AppError::of("ledger.path")(format!("{}: {cause}", path.display()));
        fs::create_dir_all(path).map_err(fault)?;
    }
    Ok(Some(Arc::new(Ledger::new(Arc::new(SystemClock), options.max_keys))))
}

fn make_traces(settings: &Settings, metrics: &Metrics) -> Result<(Tracer, Option<Traces>), AppError> {
    let traces = settings.traces.clone();
    let traces = traces.map(|options| Traces::new(options, metrics.families.traces.clone())).transpose();
    let traces = traces.map_err(AppError::of("traces.ca_file"))?;
    Ok(traces.map_or_else(Default::default, |(tracer, traces)| (tracer, Some(traces))))
}

fn make_metrics(settings: &Settings, parts: MeteredParts) -> Result<Metrics, AppError> {
    let written = &settings.metrics;
    let metrics = Metrics::with_options(MetricsOptions {
        near_limit_ppm: settings.near_limit_ppm,
        extra_tags: written.extra_tags.clone(),
        response_time: written.response_time,
        values_per_rule: written.values_per_rule,
        parts,
    });
    metrics.map_err(AppError::prefixed("cannot set up metrics"))
}
