//! Bans and reported pauses of three instances with one Redis.

use futures_util::future::join_all;

use crate::support::grpc::{Code, Rls, descriptor, request};
use crate::support::process::{Plan, Ratelimitd};
use crate::support::redis::Redis;
use crate::support::{http, wait};

const RULES: &str = "
domain: d
descriptors:
  - key: address
    rate_limit:
      unit: year
      requests_per_unit: 1
      algorithm: fixed_window
      penalty: { after: 10, within: 60s, for: 15m, grow: 2, max: 24h }
  - key: api
    rate_limit: { unit: year, requests_per_unit: 1000000, algorithm: fixed_window, feedback: { max: 10m } }
";

/// The entry of a third party, whose pause workers report.
const API: (&str, &str) = ("api", "stripe");

struct Fleet {
    instances: Vec<Ratelimitd>,
    clients: Vec<Rls>,
}

impl Fleet {
    async fn start(redis: &Redis) -> Self {
        let start = |_| Plan::new(RULES).redis(&redis.url()).set("server.drain", "0s").start();
        let instances: Vec<Ratelimitd> = (0..3).map(start).collect();
        let mut clients = Vec::new();
        for instance in &instances {
            clients.push(Rls::connect(instance.grpc_port()).await);
        }
        Self { instances, clients }
    }

    /// The answer of one instance: the code, and the seconds until the reset.
    async fn ask(&mut self, instance: usize, entries: &[(&str, &str)]) -> (Code, i64) {
        let (code, status) = self.clients[instance].send_one("d", entries).await;
        (code, status.duration_until_reset.map_or(0, |duration| duration.seconds))
    }

    /// `true` if every instance denies the entry until at most this many seconds are over.
    async fn all_deny(&mut self, entry: (&str, &str), at_most_s: i64) -> bool {
        for instance in 0..self.clients.len() {
            let (code, seconds) = self.ask(instance, &[entry]).await;
            if code == Code::Ok || seconds > at_most_s {
                return false;
            }
        }
        true
    }

    /// `true` if an instance denies the third party. A call that fails without Redis is no denial.
    async fn denies(&mut self, instance: usize) -> bool {
        let answer = self.clients[instance].send(request("d", vec![descriptor(&[API])])).await;
        answer.is_ok_and(|answer| answer.overall_code() == Code::OverLimit)
    }

    /// The sum over all instances of the series whose names begin with this text.
    fn sum(&self, series: &str) -> u64 {
        let of = |instance: &Ratelimitd| {
            let page = http::get(instance.http_port(), "/metrics", &[]).expect("an answer").body;
            let counts = page.lines().filter(|line| line.starts_with(series));
            counts.filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok()).sum::<u64>()
        };
        self.instances.iter().map(of).sum()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_denials_at_three_instances_ban_a_value_once() {
    let redis = Redis::start();
    let mut fleet = Fleet::start(&redis).await;
    let login = ("address", "192.0.2.19");
    assert_eq!(fleet.ask(0, &[login]).await.0, Code::Ok);
    for denial in 0..9 {
        let (code, seconds) = fleet.ask(denial % 3, &[login]).await;
        assert!(code == Code::OverLimit && seconds > 900, "denial {denial} by the limit itself: {seconds} s");
    }
    wait::expect("nine offences", || fleet.sum("ratelimitd_offences_total{") == 9);
    // The tenth denials of three instances at once.
    let tenth = fleet.clients.iter_mut().map(|client| {
        let entries = [login];
        async move { client.send_one("d", &entries).await.0 }
    });
    assert_eq!(join_all(tenth).await, [Code::OverLimit; 3]);
    let banned =
        wait::until_async(wait::PATIENCE, async || fleet.all_deny(login, 900).await.then_some(())).await;
    assert!(banned.is_some(), "a ban of 15 minutes on all instances");
    assert_eq!(fleet.sum("ratelimitd_bans_total{"), 1);
    let (calls, offences) = ("ratelimitd_redis_batch_size_count ", "ratelimitd_offences_total{");
    let before = (fleet.sum(calls), fleet.sum(offences));
    for number in 0..30 {
        let (code, seconds) = fleet.ask(number % 3, &[login]).await;
        assert!(code == Code::OverLimit && (800..=900).contains(&seconds), "{seconds} s: level 0");
    }
    assert_eq!((fleet.sum(calls), fleet.sum(offences)), before, "no call to Redis, and no offence");
    let other = fleet.ask(1, &[("address", "192.0.2.20")]).await;
    assert_eq!(other.0, Code::Ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_reports_of_one_pause_are_a_few_writes() {
    let redis = Redis::start();
    let mut fleet = Fleet::start(&redis).await;
    let workers = (0..100).map(|worker| {
        let mut client = fleet.clients[worker % 3].clone();
        async move { client.send_one("d", &[API, ("ratelimitd_pause", "300")]).await }
    });
    for (code, status) in join_all(workers).await {
        let limit = status.current_limit.as_ref().map(|limit| limit.requests_per_unit);
        let seconds = status.duration_until_reset.map(|duration| duration.seconds);
        assert_eq!((code, status.code(), limit, seconds), (Code::Ok, Code::Ok, Some(0), Some(300)));
    }
    let paused =
        wait::until_async(wait::PATIENCE, async || fleet.all_deny(API, 300).await.then_some(())).await;
    assert!(paused.is_some(), "paused on all instances");
    wait::expect("all reports", || fleet.sum("ratelimitd_pauses_total{") == 100);
    let set = fleet.sum("ratelimitd_pauses_total{domain=\"d\",result=\"set\",rule=\"d.api\"}");
    assert!((1..=5).contains(&set), "{set} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_that_is_reported_while_redis_is_away_is_sent_later() {
    let mut redis = Redis::start();
    let mut fleet = Fleet::start(&redis).await;
    assert_eq!(fleet.ask(0, &[API]).await.0, Code::Ok);
    redis.stop();
    assert_eq!(fleet.ask(0, &[API, ("ratelimitd_pause", "500")]).await, (Code::Ok, 500));
    let here = wait::until_async(wait::PATIENCE, async || fleet.denies(0).await.then_some(())).await;
    assert!(here.is_some(), "denied here without Redis");
    redis.restart();
    let everywhere = wait::until_async(wait::PATIENCE, async || {
        (fleet.denies(0).await && fleet.denies(1).await && fleet.denies(2).await).then_some(())
    })
    .await;
    assert!(everywhere.is_some(), "sent when Redis is back");
}
