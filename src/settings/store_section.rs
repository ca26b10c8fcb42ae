//! `store.*`: where the counters are; `store.redis.*`: servers, credentials, and how the service uses them.

use std::time::Duration;

use store::breaker::BreakerOptions;
use store::deny_cache::DenyCacheOptions;
use store::memory::MemoryOptions;
use store::redis::{
    Credentials, HomeOptions, Password, RedisOptions, RedisUrl, SentinelOptions, ServerOptions, Topology,
};
use strum::{EnumString, IntoStaticStr, VariantNames};
use tls::{ClientTls, ServerCheck};

use super::error::{Fault, SettingProblem};
use super::parsers::{Parser, duration, flag, named, optional_path, positive, server_name, text};
use super::reader::Reader;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    pub kind: StoreKind,
    /// `store.memory.*`: for `memory`, and for limits with the failure policy `local`.
    pub memory: MemoryOptions,
    pub redis: RedisOptions,
    /// `store.redis.ready_in_outage`: `true` if the process stays ready while Redis does not answer.
    pub ready_in_outage: bool,
    /// `store.redis.deny_cache.*`; `None` if `store.redis.deny_cache.enabled` is `false`.
    pub deny_cache: Option<DenyCacheOptions>,
    /// `store.redis.lease_horizon`: longest time for which this process borrows units ahead.
    pub lease_horizon: Duration,
    /// `store.redis.home.lease_horizon`: the same for counters that all regions share.
    pub home_lease_horizon: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum StoreKind {
    Memory,
    Redis,
}

impl Store {
    pub(super) fn from_reader(reader: &mut Reader) -> Self {
        let kind = reader.take("store.kind", "memory", named());
        let max_keys = reader.take("store.memory.max_keys", "1000000", positive(1_000_000_000));
        let (redis, conflicts) = redis_from_reader(reader);
        if kind == StoreKind::Redis {
            conflicts.into_iter().for_each(|conflict| reader.add_problem(conflict));
        }
        Self {
            kind,
            memory: MemoryOptions { max_keys, ..MemoryOptions::default() },
            ready_in_outage: reader.take("store.redis.ready_in_outage", "true", flag()),
            deny_cache: deny_cache(reader, reserves(&redis)),
            lease_horizon: reader.take("store.redis.lease_horizon", "1s", duration("10ms", "10s")),
            home_lease_horizon: reader.take("store.redis.home.lease_horizon", "5s", duration("100ms", "30s")),
            redis,
        }
    }

    /// `true` if there is a Redis for counters that all regions share.
    pub fn has_home(&self) -> bool {
        self.kind == StoreKind::Redis && self.redis.home.is_some()
    }

    /// `true` if there is a Redis for counters of one-second limits.
    pub fn has_per_second(&self) -> bool {
        self.kind == StoreKind::Redis && self.redis.per_second.is_some()
    }
}

/// `true` if the counters of one request can be in several places.
fn reserves(redis: &RedisOptions) -> bool {
    redis.topology == Topology::Cluster || redis.per_second.is_some() || redis.home.is_some()
}

fn deny_cache(reader: &mut Reader, store_reserves: bool) -> Option<DenyCacheOptions> {
    let enabled = reader.take("store.redis.deny_cache.enabled", "true", flag());
    let options = DenyCacheOptions {
        max_age: reader.take("store.redis.deny_cache.max_age", "1s", duration("1ms", "60s")),
        max_keys: reader.take("store.redis.deny_cache.max_keys", "100000", positive(100_000_000)),
        store_reserves,
    };
    enabled.then_some(options)
}

/// A longer prefix would cost memory on every counter.
const MAX_PREFIX_BYTES: usize = 64;

/// Value of `store.redis.topology`. The topologies' options are separate settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumString, IntoStaticStr, VariantNames)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum TopologyName {
    Standalone,
    Sentinel,
    Cluster,
}

/// Returns the options, and how the URLs and the sentinels' master conflict with the topology. These conflicts matter
/// only if Redis is used; other conflicts, such as two passwords, are always refused.
pub(super) fn redis_from_reader(reader: &mut Reader) -> (RedisOptions, Vec<SettingProblem>) {
    let (main, mut conflicts) = servers(reader, "store.redis", "redis://127.0.0.1:6379");
    let mut further = |reader: &mut Reader, section| {
        let (group, further) = servers(reader, section, "");
        let group = (!group.urls.is_empty()).then_some(group);
        conflicts.extend(further.into_iter().filter(|_| group.is_some()));
        group
    };
    let per_second = further(reader, "store.redis.per_second");
    let home = further(reader, "store.redis.home");
    let timeout = reader.take("store.redis.home.timeout", "300ms", duration("1ms", "10s"));
    let ServerOptions { topology, urls, credentials } = main;
    let options = RedisOptions {
        topology,
        urls,
        credentials,
        per_second,
        home: home.map(|servers| HomeOptions { servers, timeout }),
        tls: tls(reader),
        key_prefix: reader.take("store.redis.key_prefix", "ratelimitd:", key_prefix()),
        timeout: reader.take("store.redis.timeout", "15ms", duration("100us", "10s")),
        connections: reader.take("store.redis.connections", "2", positive(64)),
        max_batch: reader.take("store.redis.max_batch", "128", positive(1_024)),
        max_queue: reader.take("store.redis.max_queue", "8192", positive(1_000_000)),
        breaker: breaker(reader),
    };
    (options, conflicts)
}

/// Reads one group of servers, with its settings in `section`, and its conflicts. If it does not have a default URL,
/// the group can be empty.
fn servers(
    reader: &mut Reader,
    section: &str,
    default_url: &'static str,
) -> (ServerOptions, Vec<SettingProblem>) {
    let topology = reader.take(&format!("{section}.topology"), "standalone", named());
    let url = format!("{section}.url");
    let urls = reader.take(&url, default_url, urls(default_url.is_empty()));
    if reader.written_text(&url).split(',').any(has_two_ats) {
        reader.warn(&url, "only the last '@' ends user and password; write %40 for an '@' within them");
    }
    let credentials = credentials(reader, section);
    let (section, name) = (format!("{section}.sentinel"), "the name that the sentinels have for the primary");
    let master_key = format!("{section}.master");
    let master: Option<String> = reader.take(&master_key, "", text(name).or_nothing());
    let sentinel = SentinelOptions {
        master: master.unwrap_or_default(),
        credentials: self::credentials(reader, &section),
    };
    let mut conflicts: Vec<_> = url_conflicts(topology, &urls)
        .map(|reason| reader.problem(&url, Fault::Unsupported(reason)))
        .collect();
    if topology == TopologyName::Sentinel && sentinel.master.is_empty() {
        let reason = "expected the name that the sentinels have for the primary, as topology is sentinel";
        conflicts.push(reader.problem(&master_key, Fault::Unsupported(reason)));
    }
    let topology = match topology {
        TopologyName::Standalone => Topology::Standalone,
        TopologyName::Sentinel => Topology::Sentinel(sentinel),
        TopologyName::Cluster => Topology::Cluster,
    };
    (ServerOptions { topology, urls, credentials }, conflicts)
}

/// `true` if a URL has an unencoded `@` in its user or password. A mistyped or additional `@` changes the host or the
/// password, and only Redis would notice.
fn has_two_ats(url: &str) -> bool {
    let authority = url.split_once("://").map_or("", |(_, rest)| rest);
    authority.split(['/', '?', '#']).next().unwrap_or_default().matches('@').count() > 1
}

/// Returns why the URLs do not fit the topology.
fn url_conflicts(topology: TopologyName, urls: &[RedisUrl]) -> impl Iterator<Item = &'static str> {
    let is_standalone = topology == TopologyName::Standalone;
    let is_cluster = topology == TopologyName::Cluster;
    let conflicts = [
        (is_standalone && urls.len() > 1, "several addresses are for topology sentinel or cluster"),
        (
            !is_standalone && urls.iter().any(RedisUrl::is_socket),
            "sockets are for topology standalone: the servers of the others have addresses",
        ),
        (
            urls.iter().any(|url| url.is_tls() != urls[0].is_tls()),
            "TLS (rediss://) is for all addresses or for none",
        ),
        (
            is_cluster && urls.iter().any(RedisUrl::names_database),
            "a cluster has no databases: leave the number out",
        ),
    ];
    conflicts.into_iter().filter_map(|(is_conflict, reason)| is_conflict.then_some(reason))
}

fn credentials(reader: &mut Reader, section: &str) -> Credentials {
    let key = |name: &str| format!("{section}.{name}");
    let username = reader.take(&key("username"), "", text("an ACL user").or_nothing());
    let password = reader.take(&key("password"), "", text("a password").or_nothing().secret());
    let path = reader.take(&key("password_file"), "", optional_path());
    if password.is_some() && path.is_some() {
        let reason = "the password is set already; set only one of the two";
        reader.refuse(&key("password_file"), Fault::Unsupported(reason));
    }
    let password = match (password, path) {
        (Some(password), _) => Password::Text(password),
        (None, Some(path)) => Password::File(path),
        (None, None) => Password::FromUrl,
    };
    Credentials { username, password }
}

fn tls(reader: &mut Reader) -> ClientTls {
    let ca_file = reader.take("store.redis.tls.ca_file", "", optional_path());
    let identity = reader.take_identity("store.redis.tls");
    let check_name = reader.take("store.redis.tls.verify_name", "true", flag());
    ClientTls {
        ca_file,
        trust_system: reader.take("store.redis.tls.system_authorities", "false", flag()),
        identity,
        server_name: reader.take("store.redis.tls.server_name", "", server_name()),
        check: if check_name { ServerCheck::ChainAndName } else { ServerCheck::Chain },
    }
}

fn breaker(reader: &mut Reader) -> BreakerOptions {
    BreakerOptions {
        failures: reader.take("store.redis.breaker.failures", "5", positive(1_000)),
        error_percent: reader.take("store.redis.breaker.error_percent", "50", positive(100)),
        window: reader.take("store.redis.breaker.window", "1s", duration("100ms", "1m")),
        pause: reader.take("store.redis.breaker.pause", "100ms", duration("10ms", "10s")),
    }
}

fn urls(may_be_none: bool) -> Parser<Vec<RedisUrl>> {
    let expected = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or redis+unix:///path; \
                    several, for sentinels and clusters, with commas between them";
    let expected = if may_be_none { format!("{expected}; or nothing") } else { expected.to_owned() };
    Parser::new(expected, move |text| {
        let urls = text.split(',').filter(|_| !(may_be_none && text.is_empty()));
        urls.map(|url| url.trim().parse().ok()).collect()
    })
    .secret_shown_as(|text| {
        let urls = text.split(',').filter_map(|url| url.trim().parse::<RedisUrl>().ok());
        urls.map(|url| url.to_string()).collect::<Vec<_>>().join(",")
    })
}

/// Braces would make Redis hash the prefix instead of the counter's own hash tag; control characters would break
/// command-line tools.
fn key_prefix() -> Parser<String> {
    let expected = format!("at most {MAX_PREFIX_BYTES} visible ASCII characters, no braces");
    Parser::new(expected, |text| {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b'{' && byte != b'}';
        (text.len() <= MAX_PREFIX_BYTES && text.bytes().all(is_plain)).then(|| text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::{Settings, Written};

    #[test]
    fn the_defaults_of_redis_are_those_of_its_options() {
        assert_eq!(Settings::default().store.redis, RedisOptions::default());
    }

    #[test]
    fn an_at_in_a_password_is_told_without_the_password() {
        let told =
            "store.redis.url: only the last '@' ends user and password; write %40 for an '@' within them";
        let table = [
            ("redis://:pa@ss@redis:6379", true),
            ("redis://a:b@one:1,redis://a:pa@ss@two:2", true),
            ("redis://:pa%40ss@redis:6379", false),
            ("redis://redis:6379", false),
            ("redis://a:b@one:1,redis://a:b@two:2", false),
            ("redis+unix:///run/a@b@c.sock", false),
        ];
        for (url, is_told) in table {
            let variables = [
                ("RATELIMITD__STORE__REDIS__URL".to_owned(), url.to_owned()),
                ("RATELIMITD__STORE__REDIS__TOPOLOGY".to_owned(), "cluster".to_owned()),
            ];
            let written = Written::collect(None, variables).expect("variables");
            let (_, report) = Settings::load(written).unwrap_or_else(|error| panic!("{url}: {error}"));
            let expected: &[&str] = if is_told { &[told] } else { &[] };
            assert_eq!(report.warnings, expected, "{url}");
        }
    }
}
