//! The history of a process, observed second by second on its own clock.

mod excepted;
mod live;

use std::io::Write as _;
use std::sync::Arc;

use base::clock::SystemClock;
use engine::{Caller, Descriptor, Enforcement, Entry, HashKey, Request, RuleSet};
use rules::{LoadOptions, load};
use serde_json::{Value, json};
use store::leases::BorrowedUnits;
use store::memory::{MemoryOptions, MemoryStore};

use super::mask::{masked, row_id};
use super::*;
use crate::decide::PauseEvents;
use crate::decide::limiter::{Limiter, Rulebook};
use crate::settings::Settings;
use crate::telemetry::metrics::{LOOKED_AT, Metrics};

const T0: u64 = 1_700_000_000;

const RULES: &str = "
domain: d
descriptors:
  - { key: user, rate_limit: { name: per-user, unit: day, requests_per_unit: 1, algorithm: fixed_window, lease: auto } }
  - { key: trial, shadow_mode: true, rate_limit: { name: trial, unit: day, requests_per_unit: 1 } }
  - key: team
    descriptors:
      - { key: path, value: /v1, rate_limit: { unit: day, requests_per_unit: 1 } }
";

fn load_options() -> LoadOptions {
    let settings = Settings::default();
    crate::app::load_options(&settings, engine::ValueHashing::NONE)
}

fn rule_set(text: &str) -> RuleSet {
    let mut file = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a temporary file");
    file.write_all(text.as_bytes()).expect("room for the rules");
    let loaded = load(&[file.path().to_owned()], load_options());
    loaded.unwrap_or_else(|problems| panic!("{problems}")).rules
}

fn options() -> ConsoleOptions {
    ConsoleOptions {
        instance: Instance { name: "host".to_owned(), id: "00c0ffee".to_owned(), started_at: T0 },
        dashboard_url: String::new(),
        needs: ValuesNeed::Token,
        tag_key: HashKey::new(b"a key"),
        is_shadow_mode: false,
    }
}

struct Observed {
    console: Console,
    metrics: Metrics,
    limiters: Vec<Limiter<Arc<MemoryStore<SystemClock>>>>,
    rules: RulesObserved,
    store: StoreObserved,
    service: ServiceObserved,
    live: Option<LiveObserved>,
    end: u64,
}

impl Observed {
    fn start(workers: usize) -> Self {
        let metrics = Metrics::new(800_000).expect("different names");
        let rulebook = Arc::new(Rulebook::new(rule_set(RULES), metrics.clone()));
        let store = Arc::new(MemoryStore::new(MemoryOptions::default(), SystemClock));
        let limiter = |_| Limiter {
            rulebook: Arc::clone(&rulebook),
            store: Arc::clone(&store),
            enforcement: Enforcement::Enforce,
            clock: Arc::new(SystemClock),
            denied: metrics.denied_keys(),
            ledger: crate::ledger::WorkerLedger::default(),
            notices: crate::notify::WorkerNotices::default(),
            pauses: PauseEvents::default(),
        };
        Self {
            limiters: (0..workers).map(limiter).collect(),
            console: Console::new(options()),
            metrics,
            rules: RulesObserved { generation: 1, domains: 1, ..RulesObserved::default() },
            store: StoreObserved { kind: "memory", answers: true, ..StoreObserved::default() },
            service: ServiceObserved::default(),
            live: None,
            end: T0,
        }
    }

    async fn ask(&self, worker: usize, domain: &str, entries: &[(&str, &str)]) {
        let entry =
            |(key, value): &(&str, &str)| Entry { key: (*key).to_owned(), value: (*value).to_owned() };
        let descriptor = Descriptor { entries: entries.iter().map(entry).collect(), ..Descriptor::default() };
        let request = Request {
            domain: domain.to_owned(),
            hits_addend: 1,
            descriptors: vec![descriptor],
            caller: Caller::default(),
        };
        self.limiters[worker].decide(&request, |_| ()).await.expect("memory answers");
    }

    /// Ends the second, and returns the state.
    fn second(&mut self) -> Value {
        self.end += 1;
        self.console.observe(Observation {
            end: self.end,
            seconds: 1,
            metrics: self.metrics.sample(),
            limits: self.metrics.limits_in_force(),
            denied: self.metrics.take_denied_keys(),
            rule_set: self.limiters[0].rulebook.rules(),
            rules: self.rules.clone(),
            store: self.store.clone(),
            service: self.service.clone(),
            live: self.live.clone(),
        });
        serde_json::from_str(&self.console.state(RuleSelection::Most)).expect("JSON")
    }

    fn notices(&mut self) -> Vec<(String, String)> {
        let state = self.second();
        let notices = state["notices"].as_array().expect("a list").clone();
        let texts = notices.iter().map(|notice| {
            let text = |field: &str| notice[field].as_str().expect("a text").to_owned();
            (text("level"), text("title"))
        });
        texts.collect()
    }
}

#[tokio::test]
async fn denials_begin_and_end_to_a_second() {
    let mut process = Observed::start(1);
    let since = |state: &Value| state["rules"]["list"][0]["since"].clone();
    process.ask(0, "d", &[("user", "ann")]).await;
    assert_eq!(since(&process.second()), Value::Null, "nothing is denied");
    for _ in 0..3 {
        process.ask(0, "d", &[("user", "ann")]).await;
        assert_eq!(since(&process.second()), T0 + 1);
        // A pause of 29 seconds does not end the series.
        (0..29).for_each(|_| assert_eq!(since(&process.second()), T0 + 1));
    }
    process.second();
    assert_eq!(since(&process.second()), Value::Null, "it was too long");
    process.ask(0, "d", &[("user", "ann")]).await;
    assert_eq!(since(&process.second()), process.end - 1);
}

#[tokio::test]
async fn workers_count_the_same_key_together() {
    let mut process = Observed::start(2);
    for worker in [0, 0, 1, 1, 1] {
        process.ask(worker, "d", &[("user", "ann@example.org")]).await;
    }
    process.second();
    process.ask(1, "d", &[("user", "ann@example.org")]).await;
    let state = process.second();
    assert_eq!(state["keys"].as_array().map(Vec::len), Some(1), "{state}");
    assert_eq!((&state["keys"][0]["denied_15m"], &state["rules"]["list"][0]["keys"]), (&json!(5), &json!(1)));
}

#[tokio::test]
async fn a_flood_of_keys_is_bounded_and_hides_no_heavy_key() {
    let mut process = Observed::start(1);
    for second in 0..5 {
        for number in 0..100 {
            let user = format!("user {second} {number}");
            process.ask(0, "d", &[("user", &user)]).await;
            process.ask(0, "d", &[("user", &user)]).await;
            process.ask(0, "d", &[("user", "the heavy one")]).await;
        }
        process.second();
    }
    let state = process.second();
    let keys = state["keys"].as_array().expect("a list");
    assert_eq!(keys.len(), 20, "of one rule");
    let heavy = keys[0]["denied_15m"].as_u64().expect("a number");
    assert!((450..=499).contains(&heavy), "a lower bound of 499: {heavy}");
    let rule = &state["rules"]["list"][0];
    assert_eq!((&rule["keys"], &rule["more_keys"]), (&json!(32), &json!(true)));
}

#[tokio::test]
async fn the_hottest_key_is_shown_although_the_table_is_full() {
    let mut process = Observed::start(1);
    // 40 keys at 3 denials per second, later another one at 100.
    for second in 0..65 {
        let new = if second < 60 { 0 } else { 100 };
        for _ in 0..new {
            process.ask(0, "d", &[("user", "the new one")]).await;
        }
        for number in 0..120 {
            process.ask(0, "d", &[("user", &format!("user {}", number % 40))]).await;
        }
        process.second();
    }
    let state = process.second();
    assert_eq!(state["keys"][0]["denied_15m"], 499, "{}", state["keys"]);
}

#[tokio::test]
async fn a_clock_that_steps_back_inflates_no_rate_and_keeps_no_key() {
    let mut process = Observed::start(1);
    process.store = StoreObserved { breakers: 2, breakers_open: 1, ..process.store };
    for second in 0..150 {
        if second == 20 {
            process.end -= 3_600;
        }
        process.ask(0, "d", &[("user", "ann")]).await;
        let state = process.second();
        let rate = state["rules"]["list"][0]["denied"].as_f64().expect("a rate");
        assert!(rate <= 1.0, "{second}: {rate}");
        let has_notice = state["notices"].to_string().contains("circuit breakers of Redis open");
        assert_eq!(has_notice, second >= 120, "{second}");
    }
    (0..900).for_each(|_| drop(process.second()));
    assert_eq!(process.second()["keys"], json!([]));
}

#[tokio::test]
async fn a_limit_that_only_announces_denies_nothing() {
    let soft = "
domain: d
descriptors:
  - { key: user, rate_limit: { unit: day, requests_per_unit: 1, on_over: announce } }
  - { key: open, rate_limit: { unit: day, unlimited: true, count: true, algorithm: fixed_window } }
";
    let mut process = Observed::start(1);
    process.limiters[0].rulebook.replace(rule_set(soft));
    for key in ["user", "user", "open"] {
        process.ask(0, "d", &[(key, "ann")]).await;
    }
    let rules = process.second()["rules"]["list"].clone();
    let kinds = [0, 1].map(|rule| (rules[rule]["rule"].clone(), rules[rule]["kind"].clone()));
    assert_eq!(kinds, [(json!("d.user"), json!("shadow")), (json!("d.open"), json!("enforced"))]);
}

#[tokio::test]
async fn a_rule_says_how_its_limit_counts() {
    let mut process = Observed::start(1);
    process.ask(0, "d", &[("user", "ann")]).await;
    let how = |process: &mut Observed| process.second()["rules"]["list"][0]["how"].clone();
    assert_eq!(how(&mut process), "fixed_window, leased");
    let rules = process.limiters[0].rulebook.rules();
    let of_rule = |label: &str| {
        let limit = rules.limits().iter().find(|limit| limit.name() == label).expect("a limit");
        limit.id
    };
    let others = (of_rule("trial"), BorrowedUnits { keys: 7, held: 7 });
    for (borrowed, said) in [
        (BorrowedUnits { keys: 1, held: 2_312 }, "fixed_window, leased here: 1 key, 2,312 units held"),
        (BorrowedUnits { keys: 4, held: 0 }, "fixed_window, leased here: 4 keys, 0 units held"),
    ] {
        process.store.leases = [(of_rule("per-user"), borrowed), others].into();
        assert_eq!(how(&mut process), said);
    }
}

#[tokio::test]
async fn shadow_denials_are_no_denied_requests() {
    let mut process = Observed::start(1);
    for _ in 0..3 {
        process.ask(0, "d", &[("trial", "ann")]).await;
    }
    let state = process.second();
    let series = ["requests", "denied", "shadow"].map(|name| state["series"][name][0].clone());
    assert_eq!(series, [3, 0, 2].map(Value::from));
    assert_eq!(
        (&state["rules"]["list"][0]["kind"], &state["rules"]["list"][0]["denied_15m"]),
        (&json!("shadow"), &json!(2))
    );
}

#[tokio::test]
async fn a_key_that_no_rule_has_is_named_without_its_value() {
    let mut process = Observed::start(1);
    for _ in 0..LOOKED_AT {
        process.ask(0, "d", &[("usr", "ann"), ("path", "/secret")]).await;
        process.ask(0, "nowhere", &[("user", "ann")]).await;
        process.ask(0, "d", &[("team", "a"), ("path", "/v2")]).await;
    }
    process.second();
    let state = process.second();
    let (notices, unlimited) = (state["notices"].to_string(), &state["unlimited"]);
    assert!(notices.contains("d: no rule has usr; the first level has: team, trial, user."), "{notices}");
    assert_eq!(unlimited["domains"], json!(["nowhere"]));
    let names = unlimited["names"].to_string();
    assert!(names.contains("d: usr, path") && !names.contains("secret"), "{names}");
    assert_eq!(
        unlimited["without_limit"].as_f64(),
        Some(f64::from(LOOKED_AT)),
        "the mean of two seconds: {unlimited}"
    );
}

#[test]
fn an_outage_is_a_span_that_grows_and_ends() {
    let mut process = Observed::start(1);
    process.store = StoreObserved { kind: "redis", answers: true, ..StoreObserved::default() };
    assert_eq!(process.second()["store"]["last_outage"], Value::Null);
    let outage = |is_over| LastOutage { at: T0 + 1, error: "cannot be reached".to_owned(), is_over };
    process.store.last_outage = Some(outage(false));
    process.store.answers = false;
    let state = process.second();
    assert_eq!(
        state["marks"],
        json!([{"at": T0 + 1, "until": T0 + 2, "level": "bad", "text": "Redis unavailable"}])
    );
    let away = process.notices();
    assert_eq!(away[0].0, "bad");
    assert!(
        away[0].1.starts_with("■ Redis has not answered since ")
            && away[0].1.ends_with("(2s): cannot be reached.")
    );
    process.store.last_outage = Some(outage(true));
    process.store.answers = true;
    let state = process.second();
    assert_eq!(
        state["marks"],
        json!([{"at": T0 + 1, "until": T0 + 4, "level": "warn", "text": "Redis unavailable 3s"}])
    );
    assert_eq!(
        state["store"]["last_outage"],
        json!({"at": T0 + 1, "seconds": 3, "error": "cannot be reached"})
    );
    let over = process.notices();
    assert_eq!(over[0].0, "");
    (0..1_000).for_each(|_| drop(process.second()));
    assert_eq!(process.second()["marks"], json!([]));
    assert_eq!(process.notices(), []);
}

#[test]
fn the_worst_notice_is_the_first_and_there_are_at_most_six() {
    let mut process = Observed::start(1);
    assert_eq!(process.notices(), []);
    let rejected = RejectedRules { at: T0, problems: vec!["a.yaml:1: wrong".to_owned()] };
    process.rules =
        RulesObserved { rejected: Some(rejected), domains: 0, xds_connected: Some(false), ..process.rules };
    process.service = ServiceObserved {
        reasons: vec!["starting".to_owned(), "draining".to_owned()],
        is_draining: true,
        certificates: vec![Certificate { port: "grpc", expires_at: (T0 + 86_400).cast_signed() }],
        ..ServiceObserved::default()
    };
    process.store.evictions = 7;
    process.second();
    process.store.evictions = 9;
    let notices = process.notices();
    assert_eq!(notices.len(), 6, "{notices:?}");
    assert_eq!(notices[0], ("bad".to_owned(), "■ Not ready: starting.".to_owned()));
    assert!(notices[1..].iter().all(|(level, _)| level == "warn"), "{notices:?}");
    assert!(notices.iter().any(|(_, title)| title == "▲ This process is draining."), "{notices:?}");
}

#[test]
fn an_expired_certificate_and_an_unknown_domain_without_a_name_are_told() {
    let mut process = Observed::start(1);
    process.metrics.domain_not_found(1);
    process.service.certificates = vec![Certificate { port: "grpc", expires_at: (T0 + 1).cast_signed() }];
    let notices = process.second()["notices"].clone();
    let [certificate, domain] = [0, 1].map(|place| notices[place].clone());
    assert_eq!(
        (&certificate["level"], &certificate["title"]),
        (&json!("bad"), &json!("■ The certificate of port grpc has expired."))
    );
    assert_eq!(domain["text"], "Admitted without a limit.");
}

#[test]
fn a_value_is_shown_only_if_the_rule_files_have_it() {
    let (key, rules) = (HashKey::new(b"a key"), rule_set(RULES));
    let shown = |counter: &str| masked(&key, &rules, counter).entries;
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let team = shown("{d|team=acme-corp}|path=/v1#fw:86400000000");
    assert_eq!(team[1], pair("path", "/v1"));
    assert!(team[0].1.starts_with("ac…#") && team[0].1.len() == "ac…#".len() + 4, "{team:?}");
    assert!(shown("{d|user=anna}#fw:1")[0].1.starts_with('#'), "a short value shows its tag only");
    assert_eq!(shown("{d|user=%k0123456789abcdef}#fw:1")[0].1, "%k01234567…");
    assert_eq!(shown("{d|user=%h0123456789abcdef}#fw:1")[0].1, "%h01234567…");
    assert_eq!(shown("{d|user=a*%*}#fw:1")[0].1, "a*", "a pattern is of a rule file");
    let of = |domain: &str, value: &str| shown(&format!("{{{domain}|user={value}}}#fw:1"))[0].1.clone();
    assert_eq!(of("d", "ann"), of("d", "ann"));
    assert_ne!(of("d", "ann"), of("d", "bob"));
    assert_ne!(of("d", "ann"), of("e", "ann"), "a tag is of one domain");
    let other = HashKey::new(b"another key");
    assert_ne!(masked(&other, &rules, "{d|user=ann}#fw:1").entries[0].1, of("d", "ann"), "a tag is keyed");
    assert_eq!(row_id(&key, "x").len(), 12);
    assert_ne!(row_id(&key, "x"), row_id(&key, "y"));
}

#[tokio::test]
async fn a_stream_gets_the_state_then_samples_then_a_state_for_news() {
    let mut process = Observed::start(1);
    process.ask(0, "d", &[("user", "ann")]).await;
    process.second();
    let mut frames = process.console.frames();
    let mut next = async || frames.next().await.expect("the console lives").to_string();
    assert!(next().await.starts_with("event: state\nid: 00c0ffee-1\ndata: {"));
    process.second();
    let sample = next().await;
    assert!(sample.starts_with("event: sample\nid: 00c0ffee-2\ndata: {"), "{sample}");
    assert!(sample.contains("\"rules\":[[0,"), "the rate of a limit falls: {sample}");
    process.rules.generation = 2;
    process.second();
    assert!(next().await.starts_with("event: state\nid: 00c0ffee-3"));
    // A slow reader misses seconds.
    process.second();
    process.second();
    assert!(next().await.starts_with("event: sample\nid: 00c0ffee-5"));
}
