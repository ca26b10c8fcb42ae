//! The Redis servers: addresses, credentials, TLS.

use super::draft::Draft;
use crate::store::redis::RedisUrl;

const URL: &str = "REDIS_URL";
const SOCKET_TYPE: &str = "REDIS_SOCKET_TYPE";

/// `envoyproxy/ratelimit` waits for Redis as long as its caller does. The default of `store.redis.timeout`, 15 ms,
/// would fail calls to a distant Redis that succeed there.
const TIMEOUT: &str = "100ms";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    Single,
    Cluster,
    Sentinel,
}

pub(super) fn translate(draft: &mut Draft) {
    let Some(topology) = topology(draft) else { return };
    let name = match topology {
        Topology::Single => "standalone",
        Topology::Cluster => "cluster",
        Topology::Sentinel => "sentinel",
    };
    draft.set("store.redis.topology", name, &["REDIS_TYPE"]);
    draft.set_default("store.redis.timeout", TIMEOUT, "a timeout of decisions");
    translate_servers(draft, topology);
    translate_credentials(draft, "REDIS_AUTH", ["store.redis.username", "store.redis.password"]);
    if topology == Topology::Sentinel {
        let keys = ["store.redis.sentinel.username", "store.redis.sentinel.password"];
        translate_credentials(draft, "REDIS_SENTINEL_AUTH", keys);
    }
    if draft.values.flag("REDIS_TLS") {
        translate_tls(draft);
    }
    let needed = draft.values.flag("REDIS_HEALTH_CHECK_ACTIVE_CONNECTION");
    let ready = (!needed).to_string();
    draft.set_if_given("store.redis.ready_in_outage", ready, "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION");
}

fn topology(draft: &mut Draft) -> Option<Topology> {
    match draft.values.text("REDIS_TYPE").to_ascii_uppercase().as_str() {
        "SINGLE" => Some(Topology::Single),
        "CLUSTER" => Some(Topology::Cluster),
        "SENTINEL" => Some(Topology::Sentinel),
        "" => {
            draft.values.warn("REDIS_TYPE is empty, so it is SINGLE");
            Some(Topology::Single)
        }
        _ => {
            draft.values.refuse("REDIS_TYPE", "one of SINGLE, CLUSTER, SENTINEL");
            None
        }
    }
}

fn translate_servers(draft: &mut Draft, topology: Topology) {
    let text = draft.values.text(URL).to_owned();
    let mut elements: Vec<&str> = text.split(',').collect();
    if topology == Topology::Sentinel {
        let master = elements.remove(0);
        if master.is_empty() || elements.is_empty() {
            draft.values.refuse(URL, "the name of the master, then the sentinels, with commas between them");
            return;
        }
        draft.set("store.redis.sentinel.master", master, &[URL]);
    }
    if topology == Topology::Single && elements.len() > 1 {
        draft.values.refuse(URL, "one server, as REDIS_TYPE is SINGLE");
        return;
    }
    let socket_type = draft.values.text(SOCKET_TYPE).to_owned();
    let network = match socket_type.as_str() {
        _ if !draft.values.is_set(SOCKET_TYPE) => None,
        "tcp" | "tcp4" | "tcp6" => Some(Network::Tcp),
        "unix" => Some(Network::Unix),
        "" => {
            draft.values.warn("REDIS_SOCKET_TYPE is empty, so the form of REDIS_URL decides");
            None
        }
        _ => {
            draft.values.refuse(SOCKET_TYPE, "tcp or unix");
            return;
        }
    };
    let form = Form { network, is_tls: draft.values.flag("REDIS_TLS") };
    let urls: Result<Vec<RedisUrl>, &'static str> =
        elements.into_iter().map(|element| form.url(element)).collect();
    match urls {
        Ok(urls) => set_urls(draft, topology, &urls),
        Err(expected) => draft.values.refuse(URL, expected),
    }
}

/// A password in the URL of a sentinel is for the sentinel, as there; in a URL of ours it is for the servers.
fn set_urls(draft: &mut Draft, topology: Topology, urls: &[RedisUrl]) {
    let variables = [URL, SOCKET_TYPE, "REDIS_TLS"];
    let mut texts: Vec<String> = urls.iter().map(RedisUrl::with_credentials).collect();
    if topology == Topology::Sentinel {
        texts = urls.iter().map(ToString::to_string).collect();
        let (user, password) = urls[0].credentials();
        for (key, text) in
            [("store.redis.sentinel.username", user), ("store.redis.sentinel.password", password)]
        {
            if let Some(text) = text {
                draft.set(key, text, &[URL]);
            }
        }
    }
    draft.set("store.redis.url", texts.join(","), &variables);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Tcp,
    Unix,
}

/// How an address of `REDIS_URL` is to be read.
#[derive(Clone, Copy, Debug)]
struct Form {
    /// `None`: as it looks.
    network: Option<Network>,
    is_tls: bool,
}

impl Form {
    /// The URL of an address. The error is what was expected: the address may contain a password.
    fn url(self, address: &str) -> Result<RedisUrl, &'static str> {
        const EXPECTED: &str =
            "host:port, the path of a socket, or redis://[[user]:password@]host:port[/database]";
        let is_path = address.starts_with(['/', '.']) || address.starts_with('@');
        let text = if let Some((scheme, rest)) = address.split_once("://") {
            match (scheme, self.is_tls) {
                ("redis", true) | ("rediss", _) => format!("rediss://{rest}"),
                _ => address.to_owned(),
            }
        } else if is_path {
            if self.network == Some(Network::Tcp) {
                return Err("host:port, as REDIS_SOCKET_TYPE is tcp");
            }
            if self.is_tls {
                return Err("host:port, as REDIS_TLS is true: TLS over a Unix socket is not supported");
            }
            let path = std::path::absolute(address).map_err(|_| EXPECTED)?;
            format!("redis+unix://{}", path.to_str().ok_or(EXPECTED)?)
        } else {
            if self.network == Some(Network::Unix) {
                return Err("the path of a socket, as REDIS_SOCKET_TYPE is unix");
            }
            if !address.contains(':') {
                return Err(EXPECTED);
            }
            format!("{}://{address}", if self.is_tls { "rediss" } else { "redis" })
        };
        text.parse().map_err(|_| EXPECTED)
    }
}

/// `password`, or `user:password`: the text before the first colon is the user.
fn translate_credentials(draft: &mut Draft, variable: &'static str, [user_key, password_key]: [&str; 2]) {
    let text = draft.values.text(variable).to_owned();
    if text.is_empty() {
        return;
    }
    let (user, password) = text.split_once(':').unwrap_or(("", &text));
    if !user.is_empty() {
        draft.set(user_key, user, &[variable]);
    }
    draft.set(password_key, password, &[variable]);
}

fn translate_tls(draft: &mut Draft) {
    const CERTIFICATE: &str = "REDIS_TLS_CLIENT_CERT";
    const KEY: &str = "REDIS_TLS_CLIENT_KEY";
    let [certificate, key] = [CERTIFICATE, KEY].map(|name| draft.values.text(name).to_owned());
    if !certificate.is_empty() && !key.is_empty() {
        draft.set("store.redis.tls.cert_file", certificate, &[CERTIFICATE]);
        draft.set("store.redis.tls.key_file", key, &[KEY]);
    } else if certificate.is_empty() != key.is_empty() {
        draft
            .values
            .warn(format!("{CERTIFICATE} and {KEY} belong together: one is not set, so none is used"));
    }
    let authorities = draft.values.text("REDIS_TLS_CACERT").to_owned();
    if !authorities.is_empty() {
        draft.set("store.redis.tls.ca_file", authorities, &["REDIS_TLS_CACERT"]);
        draft.set("store.redis.tls.system_authorities", "true", &["REDIS_TLS_CACERT"]);
    }
    const SKIP: &str = "REDIS_TLS_SKIP_HOSTNAME_VERIFICATION";
    let verify = (!draft.values.flag(SKIP)).to_string();
    draft.set_if_given("store.redis.tls.verify_name", verify, SKIP);
}
