//! `store.redis`: which servers there are, who we are to them, and how they are spoken to.

use std::fmt;
use std::path::PathBuf;

use super::StoreKind;
use super::error::{Fault, Problem};
use super::kinds::{Kind, one_of};
use super::reader::Reader;
use super::redis_url::RedisUrl;

const TOPOLOGY: &str = "store.redis.topology";
const URL: &str = "store.redis.url";
const MASTER: &str = "store.redis.sentinel.master";
const CERTIFICATE: &str = "store.redis.tls.cert_file";

/// The servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisServer {
    /// `store.redis.topology`
    pub topology: RedisTopology,
    /// `store.redis.url`: at least one; of a standalone server just one.
    pub urls: Vec<RedisUrl>,
    /// `store.redis.username`, `.password` and `.password_file`
    pub credentials: RedisCredentials,
    /// `store.redis.sentinel.*`
    pub sentinel: RedisSentinel,
    /// `store.redis.tls.*`, for `rediss://`
    pub tls: RedisTls,
}

/// How many servers there are and how they are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedisTopology {
    /// One.
    Standalone,
    /// A primary that sentinels watch over.
    Sentinel,
    /// A Redis Cluster.
    Cluster,
}

/// Who we are, where that is not in the URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisCredentials {
    /// The ACL user.
    pub username: Option<String>,
    /// Its password.
    pub password: Option<Secret>,
    /// The file whose first line is the password. Not together with `password`.
    pub password_file: Option<PathBuf>,
}

/// The sentinels at the URLs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisSentinel {
    /// `store.redis.sentinel.master`: their name for the primary. Set where the topology is `sentinel`.
    pub master: Option<String>,
    /// `store.redis.sentinel.username`, `.password` and `.password_file`
    pub credentials: RedisCredentials,
}

/// How `rediss://` is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RedisTls {
    /// `store.redis.tls.ca_file`: PEM; the system's trust store without.
    pub ca_file: Option<PathBuf>,
    /// `store.redis.tls.cert_file` and `.key_file`: PEM, both or none.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// `store.redis.tls.server_name`: where the certificate has another name than the URL.
    pub server_name: Option<String>,
}

/// A text that is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// The text, for whoever has to send it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl RedisServer {
    pub(super) fn read(reader: &mut Reader, kind: StoreKind) -> Self {
        let topologies = [
            ("standalone", RedisTopology::Standalone),
            ("sentinel", RedisTopology::Sentinel),
            ("cluster", RedisTopology::Cluster),
        ];
        let origins = [TOPOLOGY, URL, MASTER, CERTIFICATE].map(|key| (key, reader.origin(key)));
        let server = Self {
            topology: reader.read(TOPOLOGY, "standalone", one_of(topologies)),
            urls: reader.read(URL, "redis://127.0.0.1:6379", urls()),
            credentials: RedisCredentials::read(
                reader,
                ["store.redis.username", "store.redis.password", "store.redis.password_file"],
            ),
            sentinel: RedisSentinel {
                master: reader.read(MASTER, "", text("the name that the sentinels have for the primary")),
                credentials: RedisCredentials::read(
                    reader,
                    [
                        "store.redis.sentinel.username",
                        "store.redis.sentinel.password",
                        "store.redis.sentinel.password_file",
                    ],
                ),
            },
            tls: RedisTls::read(reader),
        };
        let faults = if kind == StoreKind::Redis { server.faults() } else { Vec::new() };
        for (key, fault) in faults {
            for (_, origin) in origins.iter().filter(|(of, _)| *of == key) {
                let fault = Fault::Unsupported(fault);
                reader.refuse(Problem { key: key.to_owned(), origin: origin.clone(), fault });
            }
        }
        server
    }

    /// What does not go together.
    fn faults(&self) -> Vec<(&'static str, &'static str)> {
        let first = &self.urls[0];
        let is_one = self.topology == RedisTopology::Standalone;
        let is_cluster = self.topology == RedisTopology::Cluster;
        let rules = [
            (URL, is_one && self.urls.len() > 1, "several addresses are for topology sentinel or cluster"),
            (
                URL,
                !is_one && self.urls.iter().any(RedisUrl::is_socket),
                "sockets are for topology standalone: the servers of the others have addresses",
            ),
            (
                URL,
                self.urls.iter().any(|url| url.is_tls() != first.is_tls()),
                "TLS (rediss://) is for all addresses or for none",
            ),
            (
                URL,
                is_cluster && self.urls.iter().any(RedisUrl::names_database),
                "a cluster has no databases: leave the number out",
            ),
            (
                MASTER,
                self.topology == RedisTopology::Sentinel && self.sentinel.master.is_none(),
                "expected the name that the sentinels have for the primary, as topology is sentinel",
            ),
        ];
        rules.into_iter().filter(|(_, is_broken, _)| *is_broken).map(|(key, _, fault)| (key, fault)).collect()
    }
}

impl RedisCredentials {
    fn read(reader: &mut Reader, [username, password, file]: [&'static str; 3]) -> Self {
        let origin = reader.origin(file);
        let credentials = Self {
            username: reader.read(username, "", text("an ACL user")),
            password: reader.read(password, "", secret()),
            password_file: reader.read(file, "", path()),
        };
        if credentials.password.is_some() && credentials.password_file.is_some() {
            let fault = Fault::Unsupported("the password is set already; leave one of the two out");
            reader.refuse(Problem { key: file.to_owned(), origin, fault });
        }
        credentials
    }
}

impl RedisTls {
    fn read(reader: &mut Reader) -> Self {
        let origin = reader.origin(CERTIFICATE);
        let ca_file = reader.read("store.redis.tls.ca_file", "", path());
        let certificate = reader.read(CERTIFICATE, "", path());
        let key = reader.read("store.redis.tls.key_file", "", path());
        if certificate.is_some() != key.is_some() {
            let fault = Fault::Unsupported("cert_file and key_file belong together: set both or none");
            reader.refuse(Problem { key: CERTIFICATE.to_owned(), origin, fault });
        }
        let server_name = reader.read("store.redis.tls.server_name", "", text("a host name"));
        Self { ca_file, identity: certificate.zip(key), server_name }
    }
}

fn urls() -> Kind<Vec<RedisUrl>> {
    let expected = "redis://[user:password@]host[:port][/database], rediss:// for TLS, or redis+unix:///path; \
                    several, for sentinels and clusters, with commas between them";
    Kind::new(expected, |text| text.split(',').map(|url| RedisUrl::parse(url.trim())).collect()).secret()
}

fn text(what: &'static str) -> Kind<Option<String>> {
    Kind::new(format!("{what}, or nothing"), |text| Some((!text.is_empty()).then(|| text.to_owned())))
}

fn path() -> Kind<Option<PathBuf>> {
    Kind::new("the path of a file, or nothing", |text| Some((!text.is_empty()).then(|| PathBuf::from(text))))
}

fn secret() -> Kind<Option<Secret>> {
    Kind::new("a password, or nothing", |text: &str| {
        Some((!text.is_empty()).then(|| Secret(text.to_owned())))
    })
    .secret()
}
