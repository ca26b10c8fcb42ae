//! A process with minutes of traffic behind it, made in a moment: the limiter decides on a clock that the scene sets,
//! the console observes each second, and the admin port serves the result. A second passes each real second.
//!
//! What has no part in a scene is told to the console as the sampler would: Redis, latencies, failure policies.

mod story;

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use ::base::clock::{Clock, ManualClock};
use ::rules::{AppliedUpgrades, LoadOptions, describe, load};
use ::store::memory::{MemoryOptions, MemoryStore};
use engine::{
    Caller, Charge, Charges, Descriptor, Effect, Enforcement, Entry, ExceptionRow, Exceptions,
    ExceptionsBuilder, Glob, HashKey, KeyPage, Listing, Outcome, Outcomes, Request, Reset, RowSource,
    RowTerms, RowValue, Store, StoreError, ValueHashing,
};
use ratelimitd::console::{
    Console, ConsoleActions, ConsoleOptions, Instance, LiveObserved, Observation, ValuesNeed,
};
use ratelimitd::decide::counters::CounterService;
use ratelimitd::decide::limiter::{Limiter, Rulebook};
use ratelimitd::decide::{PauseEvents, Rights};
use ratelimitd::http::{
    AccessCheck, AdminAccess, ConsoleEndpoints, CounterEndpoints, HttpService, UsageEndpoint, admin_router,
    serve,
};
use ratelimitd::live::{Author, Keeper, LiveExceptions, LiveOptions};
use ratelimitd::net::{
    Admission, ConnectionBounds, ListenAddress, ListenOptions, PortListener, SocketAccess, UnfinishedBytes,
};
use ratelimitd::settings::Settings;
use ratelimitd::telemetry::metrics::{Metrics, Port};
use serde_json::json;
use tokio_util::sync::CancellationToken;

pub use story::Story;
use story::{Added, BLOCKED_ADDRESS, T_END};

use crate::rules::REFERENCE;

const ACCOUNTS: &str = include_str!("accounts.yaml");
const MICROSECONDS: u64 = 1_000_000;

type Memory = MemoryStore<Arc<ManualClock>>;

/// The store of a scene, shared by its limiter and its admin port.
#[derive(Clone, Debug)]
struct Counters(Arc<Memory>);

impl Store for Counters {
    async fn decide(&self, charges: &Charges) -> Result<Outcomes, StoreError> {
        self.0.decide(charges).await
    }
}

impl Listing for Counters {
    async fn list(&self, start: &str, cursor: Option<&str>) -> Result<Option<KeyPage>, StoreError> {
        self.0.list(start, cursor).await
    }
}

impl Reset for Counters {
    async fn reset(&self, charges: &Charges) -> Result<Vec<bool>, StoreError> {
        self.0.reset(charges).await
    }

    async fn replace(&self, key: &str, charge: &Charge) -> Result<Outcome, StoreError> {
        self.0.replace(key, charge).await
    }

    async fn slot_ends(&self, key: &str, now_us: u64) -> Result<Vec<u64>, StoreError> {
        self.0.slot_ends(key, now_us).await
    }
}

/// A running scene, which ends when it is dropped.
pub struct Scene {
    pub port: u16,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Scene {
    /// Plays `seconds` of a story at once, and then a second each second.
    pub fn start(story: Story, seconds: u64) -> Self {
        let stop = CancellationToken::new();
        let (sender, port) = channel();
        let ending = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime").block_on(play(story, seconds, sender, ending));
        });
        let port = port.recv().expect("the scene starts");
        Self { port, stop, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://localhost:{}/console", self.port)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            assert!(matches!(ended, Some(Ok(()))), "the scene fails");
        }
    }
}

async fn play(story: Story, seconds: u64, started: Sender<u16>, stop: CancellationToken) {
    let mut process = Process::new(story, T_END - seconds);
    while process.end < T_END {
        process.second(seconds).await;
    }
    let address = ListenAddress::Tcp(([127, 0, 0, 1], 0).into());
    let listener = PortListener::bind(&address, ListenOptions::default(), SocketAccess::OwnUser).await;
    let listener = listener.expect("a free port");
    let Ok(ListenAddress::Tcp(address)) = listener.address() else { panic!("a TCP port") };
    started.send(address.port()).expect("the test waits");
    let bounds = ConnectionBounds { total: 100, per_address: 100 };
    let service = HttpService {
        router: process.router(&stop),
        admission: Admission::new(Port::Admin, bounds, process.metrics.connections(Port::Admin)),
        tls: None,
        unfinished: UnfinishedBytes::new(1 << 20),
        finish_within: Duration::from_secs(1),
        failures: None,
        rights: Rights::default(),
    };
    process.set_live_rows().await;
    let exceptions = stop.run_until_cancelled(process.live.clone().run(Arc::default()));
    let live = async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            process.second(seconds).await;
        }
    };
    tokio::join!(serve(listener, service, stop.clone()), exceptions, live);
}

struct Process {
    story: Story,
    console: Arc<Console>,
    metrics: Metrics,
    live: LiveExceptions,
    limiter: Limiter<Counters>,
    clock: Arc<ManualClock>,
    /// The end of the last second.
    end: u64,
    random: fastrand::Rng,
    added: Added,
}

impl Process {
    fn new(story: Story, start: u64) -> Self {
        let folder = tempfile::TempDir::new().expect("a temporary directory");
        let files = [("edge.yaml", story.rules()), ("accounts.yaml", ACCOUNTS.to_owned())];
        let files = files.map(|(name, text)| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).expect("a rule file");
            path
        });
        let hashing = ValueHashing { key: Some(HashKey::new(b"a scene")), all_values: false };
        let loaded = load(&files, LoadOptions { hashing, ..REFERENCE });
        let loaded = loaded.unwrap_or_else(|problems| panic!("{problems}"));
        let metrics = Metrics::new(800_000).expect("different names");
        let clock = Arc::new(ManualClock::at(start * MICROSECONDS));
        let store = MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
        let limiter = Limiter {
            rulebook: Arc::new(Rulebook::new(loaded.rules, metrics.clone())),
            store: Counters(Arc::new(store)),
            enforcement: Enforcement::Enforce,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            denied: metrics.denied_keys(),
            ledger: ratelimitd::ledger::WorkerLedger::default(),
            notices: ratelimitd::notify::WorkerNotices::default(),
            pauses: PauseEvents::default(),
        };
        let console = Arc::new(Console::new(options()));
        let masking = Arc::clone(&console);
        let live = LiveExceptions::new(LiveOptions {
            keeper: Keeper::Process,
            rulebook: Arc::clone(&limiter.rulebook),
            metrics: metrics.clone(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            on_change: Box::new(|| ()),
            mask: Arc::new(move |domain, key, value| masking.masked_value(domain, key, value)),
            confirmed_at: Arc::default(),
            instance: String::new(),
            status: Arc::new(|_| String::new()),
        });
        let random = fastrand::Rng::with_seed(7);
        Self { story, console, metrics, live, limiter, clock, end: start, random, added: Added::default() }
    }

    /// Sets exceptions that no request of the story meets.
    async fn set_live_rows(&self) {
        let rows = json!([
            {"domain": "edge", "key": "remote_address", "value": "192.0.2.66", "limit": 5, "until": "2h"},
            {"domain": "edge", "key": "tenant", "value": "massive-dynamic", "multiplier": "2", "path": "tenant.*",
                "until": "2026-11-22T08:00:00Z", "by": "ann"},
        ]);
        let reason = Some("INC-42".to_owned());
        let author = Author { reason, by: None, peer: std::net::Ipv4Addr::LOCALHOST.into() };
        let rows = rows.as_array().expect("a list").clone();
        self.live.set(rows, &author).await.expect("two rows");
    }

    /// Decides the requests of a second, and observes it. `seconds`: those before the end of the story.
    async fn second(&mut self, seconds: u64) {
        let now = (self.end + 1).saturating_sub(T_END - seconds) as f64 / seconds as f64;
        if Story::has_row(now) && self.limiter.rulebook.rules().exceptions().is_none() {
            drop(self.limiter.rulebook.replace_exceptions(Arc::new(blocked_address())));
        }
        let requests = self.story.requests(now, &mut self.random);
        let each = MICROSECONDS / (requests.len() as u64 + 1);
        for (index, (domain, entries)) in requests.into_iter().enumerate() {
            self.clock.set(self.end * MICROSECONDS + index as u64 * each);
            self.limiter.decide(&request(&domain, entries), |_| ()).await.expect("memory answers");
        }
        self.end += 1;
        self.clock.set(self.end * MICROSECONDS);
        let mut metrics = self.metrics.sample();
        self.added.add_second(self.story, now, &mut metrics, &mut self.random);
        self.console.observe(Observation {
            end: self.end,
            seconds: 1,
            metrics,
            limits: self.metrics.limits_in_force(),
            denied: self.metrics.take_denied_keys(),
            rule_set: self.limiter.rulebook.rules(),
            rules: self.story.rules_observed(now, seconds),
            store: self.story.store_observed(now, seconds, self.end),
            service: self.story.service_observed(),
            live: LiveObserved::new(&self.live.view()),
        });
    }

    fn router(&self, stop: &CancellationToken) -> axum::Router {
        let service = || CounterService {
            rulebook: Arc::clone(&self.limiter.rulebook),
            store: self.limiter.store.clone(),
            clock: Arc::clone(&self.limiter.clock),
        };
        let (rulebook, clock) = (Arc::clone(&self.limiter.rulebook), Arc::clone(&self.limiter.clock));
        let explain = move |request: &Request| {
            let upgrades = AppliedUpgrades::default();
            describe(&rulebook.rules(), &upgrades, request, clock.now_us())
        };
        let settings = Settings::default();
        let counters = CounterEndpoints {
            service: service(),
            bounds: settings.server.bounds,
            max_message_bytes: 1 << 20,
            key_prefix: String::new(),
            list_service: Arc::new(|| Err("no test lists counters".into())),
            explain: Arc::new(explain),
            console: Arc::clone(&self.console),
        };
        let console = ConsoleEndpoints {
            actions: ConsoleActions { console: Arc::clone(&self.console), service: service() },
            stop: stop.clone(),
        };
        let access = AccessCheck::new(AdminAccess::default(), None, self.metrics.tokens());
        let usage = UsageEndpoint {
            service: service(),
            bounds: settings.server.bounds,
            max_message_bytes: 1 << 20,
            access: None,
            rights: Rights::default(),
            failures: None,
        };
        admin_router(Vec::new(), counters, usage, console, self.live.clone(), access)
    }
}

/// A row that blocks the address of the story until two hours after its end.
fn blocked_address() -> Exceptions {
    let terms = RowTerms {
        domain: Glob::new("edge"),
        key: "remote_address".into(),
        effect: Effect { block: true, ..Effect::default() },
        ..RowTerms::default()
    };
    let mut builder = ExceptionsBuilder::new(&Exceptions::default());
    builder.add_row(ExceptionRow {
        source: RowSource::File { file: "/etc/ratelimitd/exceptions/blocks.yaml".into(), line: 12 },
        value: RowValue::Exact(BLOCKED_ADDRESS.into()),
        from_us: None,
        until_us: Some((T_END + 7_200) * MICROSECONDS),
        terms: terms.into(),
    });
    builder.build(&Exceptions::default(), |_| {})
}

fn options() -> ConsoleOptions {
    ConsoleOptions {
        instance: Instance {
            name: "ratelimit-7d9c6f-x2x4z".to_owned(),
            id: "9f1c2a7e".to_owned(),
            started_at: T_END - 533_520,
        },
        dashboard_url: "https://grafana.example/d/ratelimitd".to_owned(),
        needs: ValuesNeed::OperatorToken,
        tag_key: HashKey::new(b"a scene"),
        is_shadow_mode: false,
    }
}

fn request(domain: &str, entries: Vec<(String, String)>) -> Request {
    let entries = entries.into_iter().map(|(key, value)| Entry { key, value }).collect();
    Request {
        domain: domain.to_owned(),
        hits_addend: 1,
        descriptors: vec![Descriptor { entries, ..Descriptor::default() }],
        caller: Caller::default(),
    }
}
