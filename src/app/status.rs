//! Builds the admin port's JSON pages, as pure functions of the state that they show.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use parking_lot::Mutex;
use rules::{ChangedLimit, DomainDocuments, FileSummary, KindCounts, Problems, RowChanges};
use serde_json::{Value, json};
use store::availability::Outage;
use store::breaker::BreakerState;
use store::deny_cache::DenyCacheStats;
use store::leases::LeaseStats;
use store::memory::MemoryStats;
use store::redis::ServerReport;
use tls::CertificateFacts;

use super::active_rules::RulesStatus;
use super::certificates::{TlsStatus, date};
use super::exceptions::ExceptionsStatus;
use super::load_status::LoadStatus;
use crate::xds::XdsStatus;

/// A snapshot of the process's stores. Contains nothing secret.
#[derive(Debug)]
pub(super) struct StoreView {
    pub(super) memory: MemoryStats,
    pub(super) redis: Option<RedisView>,
}

#[derive(Debug)]
pub(super) struct RedisView {
    pub(super) main: RedisBackendView,
    /// Servers for one-second limits, if they are separate.
    pub(super) per_second: Option<RedisBackendView>,
    /// Servers that all regions share.
    pub(super) home: Option<RedisBackendView>,
    /// The name under which Redis caches the script.
    pub(super) script: String,
    /// Empty until Redis has answered once.
    pub(super) servers: Vec<ServerReport>,
    /// The nodes of every worker. A single server has an empty address.
    pub(super) nodes: Vec<(String, BreakerState)>,
    pub(super) last_outage: Option<Outage>,
    /// Server restarts noticed.
    pub(super) restarts: u64,
    pub(super) denials: Option<DenyCacheStats>,
    pub(super) leases: LeaseStats,
}

#[derive(Debug)]
pub(super) struct RedisBackendView {
    pub(super) topology: &'static str,
    /// URLs without credentials.
    pub(super) addresses: Vec<String>,
}

pub(super) fn store_page(view: &StoreView) -> Value {
    let memory = json!({"keys": view.memory.keys, "evictions": view.memory.evictions});
    match &view.redis {
        None => json!({"kind": "memory", "memory": memory}),
        Some(redis) => json!({"kind": "redis", "memory": memory, "redis": redis_section(redis)}),
    }
}

fn redis_section(redis: &RedisView) -> Value {
    let outage = redis.last_outage.as_ref();
    let group = |group: &RedisBackendView| json!({"topology": group.topology, "addresses": group.addresses});
    json!({
        "topology": redis.main.topology,
        "addresses": redis.main.addresses,
        "per_second": redis.per_second.as_ref().map(group),
        "home": redis.home.as_ref().map(group),
        "script": redis.script,
        "servers": redis.servers.iter().map(server_section).collect::<Vec<_>>(),
        "nodes": breakers_by_node(&redis.nodes),
        "answers": redis_answers(redis),
        "last_outage": outage.map(outage_section),
        "restarts": redis.restarts,
        "deny_cache": redis.denials.map(|stats| json!({"keys": stats.keys, "hits": stats.hits})),
        "leases": {"keys": redis.leases.keys, "held": redis.leases.held, "decisions": redis.leases.decisions},
    })
}

/// `true` if Redis was reached and there is no outage.
pub(super) fn redis_answers(redis: &RedisView) -> bool {
    !redis.servers.is_empty() && redis.last_outage.as_ref().is_none_or(|outage| outage.is_over)
}

fn outage_section(outage: &Outage) -> Value {
    json!({"at": timestamp(outage.at_us), "node": node_name(&outage.node), "error": outage.error})
}

/// A single server has no name.
fn node_name(node: &str) -> &str {
    if node.is_empty() { "server" } else { node }
}

fn server_section(report: &ServerReport) -> Value {
    match &report.description {
        Err(error) => json!({"address": report.address, "error": error.to_string()}),
        Ok(description) => json!({
            "address": report.address,
            "server": description.server,
            "eviction": description.eviction,
            "clock": description.clock,
            "concerns": description.concerns,
        }),
    }
}

/// Counts for each node the workers whose breaker is in each state.
fn breakers_by_node(nodes: &[(String, BreakerState)]) -> BTreeMap<&str, BTreeMap<&'static str, u64>> {
    let mut counts: BTreeMap<&str, BTreeMap<&'static str, u64>> = BTreeMap::new();
    for (address, state) in nodes {
        *counts.entry(node_name(address)).or_default().entry(state.into_str()).or_default() += 1;
    }
    counts
}

/// `xds`: client of the rule server; `None` for files.
pub(super) fn rules_page(status: &RulesStatus, xds: Option<&XdsStatus>) -> Value {
    let upgrades = status.upgrades.iter().enumerate().map(
        |(row, used)| json!({"row": format!("upgrades[{row}]"), "limits": used.limits, "first": used.first}),
    );
    let upgrades: Vec<_> = upgrades.collect();
    let changed: Vec<_> = status.changed.first.iter().map(changed_limit).collect();
    let has_rules = status.load.loads_ok > 0;
    let domains: Vec<_> = status.domains.iter().map(|domain| &domain.name).collect();
    let documents: BTreeMap<_, Vec<&str>> = status.domains.iter().map(documents_of).collect();
    let (source, documents_name) = if xds.is_some() { ("xds", "resources") } else { ("file", "files") };
    json!({
        "source": source,
        "xds": xds.map(xds_section),
        "in_force": status.is_in_force(),
        "unread_change": status.load.has_unread_change,
        "generation": status.load.loads_ok,
        "digest": has_rules.then_some(&status.digest),
        "loaded_at": has_rules.then(|| timestamp(status.load.loaded_at_us)),
        documents_name: status.files,
        "domains": domains,
        "documents": documents,
        "rules": status.rules,
        "warnings": texts(&status.warnings),
        "upgrades": upgrades,
        "changed_limits": {"limits": status.changed.limits, "first": changed},
        "last_error": last_error(&status.load),
        "loads_ok": status.load.loads_ok,
        "loads_failed": status.load.loads_failed,
    })
}

/// `None`: the settings name no exception files.
pub(super) fn exceptions_page(status: Option<&ExceptionsStatus>) -> Value {
    let Some(status) = status else { return json!({"source": null}) };
    let by_kind = |kinds: KindCounts| -> BTreeMap<_, _> {
        kinds.iter().filter(|(_, rows)| *rows > 0).map(|(kind, rows)| (kind.into_str(), rows)).collect()
    };
    let file = |file: &FileSummary| {
        let RowChanges { added, removed, changed } = file.changes;
        let changes = json!({"added": added, "removed": removed, "changed": changed});
        json!({"file": &*file.name, "rows": file.rows, "kinds": by_kind(file.kinds), "changes": changes})
    };
    let loaded = &status.loaded;
    json!({
        "source": "file",
        "in_force": status.load.is_newest(),
        "unread_change": status.load.has_unread_change,
        "generation": status.load.loads_ok,
        "loaded_at": timestamp(status.load.loaded_at_us),
        "rows": loaded.files.iter().map(|file| file.rows).sum::<u64>(),
        "kinds": by_kind(loaded.kinds()),
        "files": loaded.files.iter().map(file).collect::<Vec<_>>(),
        "table_bytes": loaded.exceptions.table().bytes(),
        "warnings": texts(&status.warnings),
        "last_error": last_error(&status.load),
        "loads_ok": status.load.loads_ok,
        "loads_failed": status.load.loads_failed,
    })
}

fn last_error(load: &LoadStatus<Problems>) -> Option<Value> {
    let error = load.last_error.as_ref()?;
    Some(json!({"at": timestamp(error.at_us), "problems": texts(&error.reason)}))
}

fn texts(problems: &Problems) -> Vec<String> {
    problems.all().iter().map(ToString::to_string).collect()
}

fn changed_limit(change: &ChangedLimit) -> Value {
    json!({
        "limit": change.limit,
        "rule": change.path,
        "before": change.before,
        "after": change.after,
        "counters": change.counters.text(),
    })
}

fn documents_of(domain: &DomainDocuments) -> (&str, Vec<&str>) {
    (&domain.name, domain.documents.iter().map(AsRef::as_ref).collect())
}

fn xds_section(status: &XdsStatus) -> Value {
    let refused = status.refused.as_ref();
    let fault = status.last_fault.as_ref();
    json!({
        "connected": status.connected,
        "version": status.version,
        "refused": refused.map(|refusal| json!({"version": refusal.version, "reason": refusal.reason})),
        "last_fault": fault.map(|fault| json!({"at": timestamp(fault.at_us), "reason": fault.reason})),
    })
}

/// One section per port with TLS.
pub(super) fn tls_page(statuses: &[Arc<Mutex<TlsStatus>>]) -> Value {
    let sections = statuses.iter().map(|status| {
        let status = status.lock();
        (status.port.into_str().to_owned(), tls_section(&status))
    });
    Value::Object(sections.collect())
}

fn tls_section(status: &TlsStatus) -> Value {
    let settings = &status.settings;
    let load = &status.load;
    let last_error =
        load.last_error.as_ref().map(|error| json!({"at": timestamp(error.at_us), "error": error.reason}));
    let client_ca = settings.client_ca_file.as_ref().map(|path| {
        let authorities: Vec<_> = status.authorities.iter().map(certificate_section).collect();
        json!({"file": path.display().to_string(), "certificates": authorities})
    });
    json!({
        "in_force": last_error.is_none(),
        "loaded_at": timestamp(load.loaded_at_us),
        "cert_file": settings.cert_file.display().to_string(),
        "key_file": settings.key_file.display().to_string(),
        "certificate": certificate_section(&status.certificate),
        "client_ca": client_ca,
        "client_san": settings.client_names.iter().map(ToString::to_string).collect::<Vec<_>>(),
        "last_error": last_error,
        "loads_ok": load.loads_ok,
        "loads_failed": load.loads_failed,
    })
}

fn certificate_section(certificate: &CertificateFacts) -> Value {
    json!({
        "subject": certificate.subject,
        "names": certificate.names(),
        "valid_from": date(certificate.not_before_s),
        "valid_to": date(certificate.not_after_s),
    })
}

fn timestamp(us: u64) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_micros(us)).to_string()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use engine::StoreError;
    use store::redis::ServerDescription;
    use tls::{ClientName, ServerTls};

    use super::*;
    use crate::telemetry::metrics::Port;

    const MEMORY: MemoryStats = MemoryStats { keys: 3, evictions: 1 };

    fn redis_view() -> RedisView {
        RedisView {
            main: RedisBackendView { topology: "cluster", addresses: vec!["redis://a:1".to_owned()] },
            per_second: None,
            home: None,
            script: "abc".to_owned(),
            servers: Vec::new(),
            nodes: Vec::new(),
            last_outage: None,
            restarts: 0,
            denials: None,
            leases: LeaseStats::default(),
        }
    }

    fn outage(is_over: bool) -> Option<Outage> {
        Some(Outage { at_us: 1_500_000, node: String::new(), error: "no answer".to_owned(), is_over })
    }

    fn report(description: Result<ServerDescription, StoreError>) -> ServerReport {
        ServerReport { address: "a:1".to_owned(), description }
    }

    #[test]
    fn memory_has_no_redis_section() {
        let page = store_page(&StoreView { memory: MEMORY, redis: None });
        assert_eq!(page, json!({"kind": "memory", "memory": {"keys": 3, "evictions": 1}}));
    }

    #[test]
    fn workers_are_counted_by_node_and_by_the_state_of_their_breaker() {
        let [closed, open] = [BreakerState::Closed, BreakerState::Open];
        let nodes = [("a:1", closed), ("b:2", open), ("a:1", closed), ("a:1", open)];
        let nodes = nodes.map(|(address, state)| (address.to_owned(), state)).to_vec();
        let page = redis_section(&RedisView { nodes, ..redis_view() });
        assert_eq!(page["nodes"], json!({"a:1": {"closed": 2, "open": 1}, "b:2": {"open": 1}}));
        let page = redis_section(&RedisView { nodes: vec![(String::new(), closed)], ..redis_view() });
        assert_eq!(page["nodes"], json!({"server": {"closed": 1}}));
        assert_eq!(page["per_second"], Value::Null);
        let per_second =
            RedisBackendView { topology: "standalone", addresses: vec!["redis://b:2".to_owned()] };
        let nodes = vec![(String::new(), closed), ("per_second".to_owned(), open)];
        let page = redis_section(&RedisView { nodes, per_second: Some(per_second), ..redis_view() });
        assert_eq!(page["nodes"], json!({"server": {"closed": 1}, "per_second": {"open": 1}}));
        assert_eq!(page["per_second"]["addresses"], json!(["redis://b:2"]));
    }

    #[test]
    fn redis_answers_once_it_was_reached_and_no_outage_lasts() {
        let reached = || vec![report(Err(StoreError::Timeout))];
        let cases = [
            // (servers, last outage, answers)
            (Vec::new(), None, false),
            (reached(), None, true),
            (reached(), outage(true), true),
            (reached(), outage(false), false),
        ];
        for (servers, last_outage, answers) in cases {
            let page = redis_section(&RedisView { servers, last_outage, ..redis_view() });
            assert_eq!(page["answers"], answers, "{page}");
        }
        let page = redis_section(&RedisView { last_outage: outage(true), ..redis_view() });
        assert_eq!(
            page["last_outage"],
            json!({"at": "1970-01-01T00:00:01Z", "node": "server", "error": "no answer"})
        );
    }

    #[test]
    fn a_server_is_described_or_has_an_error() {
        let description = ServerDescription {
            server: "Redis 7.2.4".to_owned(),
            run_id: None,
            keys: None,
            eviction: "noeviction".to_owned(),
            clock: "same".to_owned(),
            clock_ahead_us: Some(0),
            clocks_differ: false,
            concerns: vec!["old".to_owned()],
        };
        let servers = vec![report(Ok(description)), report(Err(StoreError::Timeout))];
        let page = redis_section(&RedisView { servers, ..redis_view() });
        let described = json!({
            "address": "a:1", "server": "Redis 7.2.4", "eviction": "noeviction", "clock": "same",
            "concerns": ["old"],
        });
        let failed = json!({"address": "a:1", "error": StoreError::Timeout.to_string()});
        assert_eq!(page["servers"], json!([described, failed]));
    }

    fn certificate(subject: &str) -> CertificateFacts {
        CertificateFacts {
            subject: subject.to_owned(),
            not_before_s: 0,
            not_after_s: 1_924_992_000,
            dns_names: vec!["*.gateway".to_owned()],
            ip_addresses: Vec::new(),
            uris: Vec::new(),
        }
    }

    #[test]
    fn a_port_has_its_files_certificates_and_the_last_error() {
        let settings = ServerTls {
            cert_file: PathBuf::from("/certs/tls.crt"),
            key_file: PathBuf::from("/certs/tls.key"),
            client_ca_file: Some(PathBuf::from("/certs/ca.crt")),
            client_names: ClientName::parse("envoy.local").into_iter().collect(),
        };
        let error = "server.grpc.tls.key_file: /certs/tls.key: does not match the certificate".to_owned();
        let mut load = LoadStatus::default();
        load.record_loaded(1_000_000);
        load.record_failed(error.clone(), 2_000_000);
        let status = TlsStatus {
            port: Port::Grpc,
            settings,
            certificate: certificate("CN=*"),
            authorities: vec![certificate("CN=envoy-gateway")],
            load,
        };
        let shown = |subject: &str| {
            json!({
                "subject": subject,
                "names": "DNS:*.gateway",
                "valid_from": "1970-01-01T00:00:00Z",
                "valid_to": "2031-01-01T00:00:00Z",
            })
        };
        let expected = json!({"grpc": {
            "in_force": false,
            "loaded_at": "1970-01-01T00:00:01Z",
            "cert_file": "/certs/tls.crt",
            "key_file": "/certs/tls.key",
            "certificate": shown("CN=*"),
            "client_ca": {"file": "/certs/ca.crt", "certificates": [shown("CN=envoy-gateway")]},
            "client_san": ["envoy.local"],
            "last_error": {"at": "1970-01-01T00:00:02Z", "error": error},
            "loads_ok": 1,
            "loads_failed": 1,
        }});
        assert_eq!(tls_page(&[Arc::new(Mutex::new(status))]), expected);
        assert_eq!(tls_page(&[]), json!({}));
    }
}
