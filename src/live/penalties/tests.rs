//! The known answers of bans and feedback, with rows and counters in memory and a clock that the test sets.

use ::rules::{CalendarOptions, CalendarYears, LoadOptions, RuleDirectory, load_stream};
use base::clock::{Clock, ManualClock};
use engine::{
    Applied, Bounds, Code, Decision, Defaults, Enforcement, Entry, PAUSE_KEY, RawDescriptor, RawRequest,
    RetryAfter, RuleSet, SettleResult, ValueHashing,
};
use serde_json::json;
use store::memory::{MemoryOptions, MemoryStore};

use super::*;
use crate::decide::PauseEvents;
use crate::decide::limiter::{Limiter, Rulebook};
use crate::live::{Author, Keeper, LiveOptions};
use crate::telemetry::metrics::{DeniedKeys, Metrics};

/// 14:55 on 26 November 2026.
const T0_US: u64 = 1_795_704_900_000_000;
const RULES: &str = "domain: d
descriptors:
- key: login
  rate_limit: { unit: day, requests_per_unit: 0, PENALTY }
- key: api
  rate_limit: { unit: second, requests_per_unit: 20, algorithm: gcra, settle: true, feedback: { max: 600s } }
- key: plain
  rate_limit: { unit: second, requests_per_unit: 20 }
";
const PENALTY: &str = "penalty: { after: 3, within: 60s, for: 300s, grow: 2, max: 3600s }";

type Memory = MemoryStore<Arc<ManualClock>>;

struct Story {
    clock: Arc<ManualClock>,
    limiter: Limiter<Memory>,
    penalties: Penalties<Memory>,
    events: mpsc::Receiver<PauseEvent>,
    metrics: Metrics,
}

impl Story {
    fn new(penalty: &str) -> Self {
        let options = LoadOptions {
            merge_domains: false,
            defaults: Defaults::ENVOY_RATELIMIT,
            upgrades: Vec::new(),
            hashing: ValueHashing::NONE,
            directory: RuleDirectory::default(),
            calendars: CalendarOptions::new(CalendarYears { first: 2020, last: 2031 }),
            has_home: false,
        };
        let text = RULES.replace("PENALTY", penalty);
        let rules = load_stream("rules", text.as_bytes(), options).expect("valid rules").into_rules();
        let metrics = Metrics::new(800_000).expect("the metrics have different names");
        let rulebook = Arc::new(Rulebook::new(rules, metrics.clone()));
        let clock = Arc::new(ManualClock::at(T0_US));
        let store = || MemoryStore::new(MemoryOptions::default(), Arc::clone(&clock));
        let live = LiveExceptions::new(LiveOptions {
            keeper: Keeper::Process,
            rulebook: Arc::clone(&rulebook),
            metrics: metrics.clone(),
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            on_change: Box::new(|| ()),
            mask: Arc::new(|_, _, _| "masked".to_owned()),
            confirmed_at: Arc::default(),
            instance: "test".to_owned(),
            status: Arc::new(|_| "{}".to_owned()),
        });
        let meter = metrics.families.pauses.clone();
        let (pauses, events) = PauseEvents::channel(meter.clone());
        let limiter = Limiter {
            rulebook,
            store: store(),
            enforcement: Enforcement::Enforce,
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            denied: DeniedKeys::default(),
            ledger: crate::ledger::WorkerLedger::default(),
            notices: crate::notify::WorkerNotices::default(),
            pauses,
        };
        let penalties = Penalties::new(store(), live, meter);
        Self { clock, limiter, penalties, events, metrics }
    }

    /// Decides a request at a time. The task does not act yet.
    async fn decide(&mut self, at_s: f64, entries: &[(&str, &str)], hits: u64) -> Decision {
        self.clock.set(T0_US + (at_s * 1e6).round() as u64);
        let entry = |&(key, value): &(&str, &str)| Entry { key: key.to_owned(), value: value.to_owned() };
        let entries = entries.iter().map(entry).collect();
        let descriptor = RawDescriptor { entries, hits_addend: Some(hits), ..RawDescriptor::default() };
        let request = RawRequest { domain: "d".to_owned(), descriptors: vec![descriptor], hits_addend: 0 };
        let bounds = Bounds { max_descriptors: 9, max_entries: 9, max_value_bytes: 9_999 };
        let request = request.validate(&bounds).expect("a valid request");
        self.limiter.decide(&request, Decision::clone).await.expect("memory answers")
    }

    /// What a request of a value that its limit of 0 denies leads to: `OVER` with the seconds to wait if a row denies
    /// it, the number of `offences` that now count, or `until` with the second at which the ban ends.
    async fn login(&mut self, at_s: f64, value: &str) -> String {
        let entries = [("login", value)];
        if let RetryAfter::In(us) = self.decide(at_s, &entries, 1).await.retry_after() {
            assert!(self.events.try_recv().is_err(), "a ban is no offence");
            return format!("OVER {}", us as f64 / 1e6);
        }
        let event = self.events.try_recv().expect("an offence");
        let PauseCause::Offence { penalty, counter, .. } = event.cause.clone() else { panic!("{event:?}") };
        self.penalties.act(event).await;
        if let RetryAfter::In(us) = self.decide(at_s, &entries, 1).await.retry_after() {
            return format!("until {}", at_s + us as f64 / 1e6);
        }
        self.events.try_recv().expect("the offence of the second request, which is not acted on");
        let mut peek = offence(&counter, &penalty);
        peek.values_mut().for_each(|charge| charge.cost = Cost::PEEK);
        let left =
            self.penalties.store.decide(&peek).await.expect("memory answers").by_charge[0].report.remaining;
        format!("offences {}", u64::from(penalty.after) - 1 - left)
    }

    /// Reports a pause. Returns whether the value is paused in the answer, and for how many seconds it is paused then.
    async fn report(&mut self, at_s: f64, text: &str) -> (Option<u64>, String) {
        let decision = self.decide(at_s, &[("api", "stripe"), (PAUSE_KEY, text)], 7).await;
        let told = decision.statuses().find_map(|status| match status.applied {
            Applied::Paused(_, length_us) => Some(length_us / 1_000_000),
            _ => None,
        });
        assert_eq!(decision.overall, Code::Ok);
        while let Ok(event) = self.events.try_recv() {
            self.penalties.act(event).await;
        }
        (told, self.api(at_s).await)
    }

    /// The answer to a check of the value.
    async fn api(&mut self, at_s: f64) -> String {
        match self.decide(at_s, &[("api", "stripe")], 0).await.retry_after() {
            RetryAfter::Now => "OK".to_owned(),
            wait => format!("OVER {}", wait.us().expect("an end") as f64 / 1e6),
        }
    }

    async fn remove(&self, key: &str, value: &str) {
        let author = Author { reason: Some("over".to_owned()), by: None, peer: [127, 0, 0, 1].into() };
        let row = json!({"domain": "d", "key": key, "value": value});
        self.penalties.live.remove(vec![row], &[], &author).await.expect("a row");
    }

    fn metric(&self, series: &str) -> u64 {
        let text = self.metrics.render().expect("the metrics");
        let line = text.lines().find_map(|line| line.strip_prefix(series));
        line.map_or(0, |count| count.trim().parse().expect("a count"))
    }
}

async fn play(story: &mut Story, steps: &[(f64, &str)]) {
    for (at_s, expected) in steps {
        assert_eq!(story.login(*at_s, "19").await, *expected, "at {at_s}");
    }
}

#[tokio::test]
async fn the_denials_within_a_minute_ban_and_each_ban_is_longer() {
    let mut story = Story::new(PENALTY);
    let steps = [
        (0.0, "offences 1"),
        (1.0, "offences 2"),
        (2.0, "until 302"),
        (3.0, "OVER 299"),
        (301.999, "OVER 0.001"),
        (302.0, "offences 1"),
        (310.0, "offences 2"),
        // The offence at 302 is outside the window.
        (363.0, "offences 2"),
        (364.0, "until 964"),
        (964.0, "offences 1"),
        (965.0, "offences 2"),
        (966.0, "until 2166"),
    ];
    play(&mut story, &steps).await;
    assert_eq!(story.metric("ratelimitd_bans_total{domain=\"d\",rule=\"d.login\"}"), 3);
    assert_eq!(story.login(966.0, "other").await, "offences 1");
}

#[tokio::test]
async fn an_offence_counts_for_exactly_a_minute() {
    let steps = [(0.0, "offences 1"), (30.0, "offences 2"), (60.0, "offences 2"), (61.0, "until 361")];
    play(&mut Story::new(PENALTY), &steps).await;
}

#[tokio::test]
async fn growth_is_forgotten_after_the_longest_ban_without_one() {
    let (first, second) = ("offences 1", "offences 2");
    let steps = [
        (0.0, first),
        (1.0, second),
        (2.0, "until 302"),
        (3_902.0, first),
        (3_903.0, second),
        (3_904.0, "until 4204"),
    ];
    play(&mut Story::new(PENALTY), &steps).await;
}

#[tokio::test]
async fn a_ban_grows_up_to_the_longest() {
    let mut story = Story::new("penalty: { after: 1, within: 60s, for: 300s, grow: 2, max: 1000s }");
    let ends = ["until 300", "until 900", "until 1900", "until 2900", "until 3900", "until 4900"];
    play(
        &mut story,
        &[0.0, 300.0, 900.0, 1_900.0, 2_900.0, 3_900.0].into_iter().zip(ends).collect::<Vec<_>>(),
    )
    .await;
}

#[tokio::test]
async fn an_operator_ends_a_ban_with_its_offences_and_its_growth() {
    let mut story = Story::new(PENALTY);
    play(&mut story, &[(0.0, "offences 1"), (1.0, "offences 2"), (2.0, "until 302")]).await;
    story.clock.set(T0_US + 9_000_000);
    story.remove("login", "19").await;
    play(&mut story, &[(10.0, "offences 1"), (11.0, "offences 2"), (12.0, "until 312")]).await;
}

#[tokio::test]
async fn a_value_that_looks_like_a_network_bans_no_network() {
    let mut story = Story::new("penalty: { after: 1, within: 60s, for: 300s }");
    for value in ["0.0.0.0/0", "10.0.0.0/33", "::/0", ""] {
        let answer = story.login(0.0, value).await;
        assert!(answer.starts_with("offences"), "{value}: {answer}");
    }
    assert_eq!(story.metric("ratelimitd_offences_dropped_total"), 4);
    assert_eq!(story.login(0.0, &"x".repeat(2_000)).await, "offences 0", "a long value");
    assert_eq!(story.login(0.0, "10.0.0.7").await, "until 300");
    assert_eq!(story.login(1.0, "10.0.0.7:443").await, "OVER 299", "an address in another spelling");
    assert_eq!(story.login(1.0, "10.0.0.8").await, "until 301");
}

#[tokio::test]
async fn a_caller_pauses_a_value_and_only_a_later_end_counts() {
    let mut story = Story::new(PENALTY);
    let paused = |told, answer: &str| (told, answer.to_owned());
    assert_eq!(story.report(0.0, "30").await, paused(Some(30), "OVER 30"));
    assert_eq!(story.api(1.0).await, "OVER 29");
    assert_eq!(story.report(10.0, "5").await, paused(Some(5), "OVER 20"), "kept");
    assert_eq!(story.report(20.0, "60").await, paused(Some(60), "OVER 60"));
    assert_eq!(story.report(21.0, "60").await, paused(Some(60), "OVER 59"), "kept: at most a second later");
    assert_eq!(story.api(80.0).await, "OK");
    assert_eq!(story.report(100.0, "3600").await, paused(Some(600), "OVER 600"));
    story.remove("api", "stripe").await;
    assert_eq!(story.api(100.0).await, "OK");
    assert_eq!(story.report(0.0, "Thu, 26 Nov 2026 15:00:00 GMT").await, paused(Some(300), "OVER 300"));
    for text in ["0", "-5", "1.5", "abc", "", "Thu, 26 Nov 2026 14:00:00 GMT"] {
        assert_eq!(story.report(0.0, text).await, paused(None, "OVER 300"), "{text}");
    }
    let refused = story.decide(0.0, &[("plain", "x"), (PAUSE_KEY, "30")], 1).await;
    assert!(matches!(refused.statuses().next().expect("a status").applied, Applied::Nothing));
    let results = ["set", "kept", "unreadable", "refused"].map(|result| {
        let rule = if result == "refused" { "d.plain" } else { "d.api" };
        story.metric(&format!("ratelimitd_pauses_total{{domain=\"d\",result=\"{result}\",rule=\"{rule}\"}}"))
    });
    assert_eq!(results, [4, 2, 6, 1]);
    assert_eq!(
        story.metric("ratelimitd_unlimited_requests_total"),
        0,
        "a report is no request without a limit"
    );
}

#[tokio::test]
async fn series_end_with_their_rule() {
    let story = Story::new(PENALTY);
    let counted = || story.metrics.render().expect("the metrics").matches("ratelimitd_bans_total{").count();
    assert_eq!(counted(), 1);
    let rules = RuleSet::compile(&[], Defaults::ENVOY_RATELIMIT, ValueHashing::NONE).expect("no rules");
    drop(story.limiter.rulebook.replace(rules));
    assert_eq!(counted(), 0);
}

#[tokio::test]
async fn a_settle_of_a_paused_value_is_booked() {
    let mut story = Story::new(PENALTY);
    let receipt =
        story.decide(0.0, &[("api", "stripe")], 9).await.receipt(|| 1).expect("a receipt").to_string();
    assert_eq!(story.report(0.0, "30").await.1, "OVER 30");
    let settled = story.decide(0.0, &[("api", "stripe"), ("ratelimitd_receipt", &receipt)], 5).await;
    assert_eq!(settled.overall, Code::Ok);
    assert_eq!(settled.settle(0).map(|settle| settle.result), Some(SettleResult::Returned));
}
