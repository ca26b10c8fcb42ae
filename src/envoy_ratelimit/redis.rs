//! Translates the Redis servers: addresses and credentials.

use store::redis::RedisUrl;

use super::certificates;
use super::draft::Draft;
use crate::settings::TopologyName;

/// Variables of one group of servers, and the settings section that they set.
struct ServerNames {
    url: &'static str,
    socket_type: &'static str,
    topology: &'static str,
    auth: &'static str,
    sentinel_auth: &'static str,
    tls: &'static str,
    section: &'static str,
}

const MAIN: ServerNames = ServerNames {
    url: "REDIS_URL",
    socket_type: "REDIS_SOCKET_TYPE",
    topology: "REDIS_TYPE",
    auth: "REDIS_AUTH",
    sentinel_auth: "REDIS_SENTINEL_AUTH",
    tls: "REDIS_TLS",
    section: "store.redis",
};

const PER_SECOND: ServerNames = ServerNames {
    url: "REDIS_PERSECOND_URL",
    socket_type: "REDIS_PERSECOND_SOCKET_TYPE",
    topology: "REDIS_PERSECOND_TYPE",
    auth: "REDIS_PERSECOND_AUTH",
    sentinel_auth: "REDIS_PERSECOND_SENTINEL_AUTH",
    tls: "REDIS_PERSECOND_TLS",
    section: "store.redis.per_second",
};

/// Enables the second group.
const USE_PER_SECOND: &str = "REDIS_PERSECOND";

/// `envoyproxy/ratelimit` waits for Redis as long as its caller does. The default of `store.redis.timeout`, 15 ms,
/// would fail calls to a distant Redis that succeed with `envoyproxy/ratelimit`.
const TIMEOUT: &str = "100ms";

/// Where Go connects if an address has no host.
const LOOPBACK: &str = "127.0.0.1";

pub(super) fn translate(draft: &mut Draft) {
    draft.set_default("store.redis.timeout", TIMEOUT, "a timeout of decisions");
    translate_group(draft, &MAIN);
    let has_second = draft.flag(USE_PER_SECOND);
    if has_second {
        translate_group(draft, &PER_SECOND);
    } else {
        let ServerNames { url, socket_type, topology, auth, sentinel_auth, tls, .. } = PER_SECOND;
        let names = [url, socket_type, topology, auth, sentinel_auth, tls];
        draft.warn_without(&format!("{USE_PER_SECOND}=true"), &names);
    }
    let has_tls = draft.flag(MAIN.tls) || (has_second && draft.flag(PER_SECOND.tls));
    certificates::translate_redis(draft, has_tls);
    let needed = "REDIS_HEALTH_CHECK_ACTIVE_CONNECTION";
    draft.set_if_given("store.redis.ready_in_outage", (!draft.flag(needed)).to_string(), needed);
}

fn translate_group(draft: &mut Draft, names: &ServerNames) {
    let Some(topology) = topology(draft, names.topology) else { return };
    draft.set(&names.key("topology"), <&str>::from(topology), &[names.topology]);
    translate_servers(draft, names, topology);
    translate_credentials(draft, names.auth, [names.key("username"), names.key("password")]);
    if topology == TopologyName::Sentinel {
        let keys = [names.key("sentinel.username"), names.key("sentinel.password")];
        translate_credentials(draft, names.sentinel_auth, keys);
    }
}

impl ServerNames {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.section)
    }

    /// Variables that decide the addresses.
    fn of_addresses(&self) -> Vec<&'static str> {
        let switch = (self.section == PER_SECOND.section).then_some(USE_PER_SECOND);
        switch.into_iter().chain([self.url, self.socket_type, self.tls]).collect()
    }
}

fn topology(draft: &mut Draft, variable: &'static str) -> Option<TopologyName> {
    match draft.text(variable).to_ascii_uppercase().as_str() {
        "SINGLE" => Some(TopologyName::Standalone),
        "CLUSTER" => Some(TopologyName::Cluster),
        "SENTINEL" => Some(TopologyName::Sentinel),
        "" => {
            draft.warn(format!("{variable} is empty; using SINGLE"));
            Some(TopologyName::Standalone)
        }
        _ => {
            draft.refuse(variable, "one of SINGLE, CLUSTER, SENTINEL");
            None
        }
    }
}

fn translate_servers(draft: &mut Draft, names: &ServerNames, topology: TopologyName) {
    let text = draft.text(names.url).to_owned();
    let mut elements: Vec<&str> = text.split(',').collect();
    if topology == TopologyName::Sentinel {
        let master = elements.remove(0);
        if master.is_empty() || elements.is_empty() {
            draft.refuse(names.url, "the name of the master, then the sentinels, with commas between them");
            return;
        }
        draft.set(&names.key("sentinel.master"), master, &[names.url]);
    }
    if topology == TopologyName::Standalone && elements.len() > 1 {
        let expected = format!("one server, as {} is SINGLE", names.topology);
        draft.refuse(names.url, expected);
        return;
    }
    let Ok(network) = network(draft, names) else { return };
    let form = Form { network, is_tls: draft.flag(names.tls), names };
    let urls: Result<Vec<RedisUrl>, String> = elements.into_iter().map(|element| form.url(element)).collect();
    match urls {
        Ok(urls) => set_urls(draft, names, topology, &urls),
        Err(expected) => draft.refuse(names.url, expected),
    }
}

/// `None`: decided by the addresses' form. An error is recorded as a problem.
fn network(draft: &mut Draft, names: &ServerNames) -> Result<Option<Network>, ()> {
    let variable = names.socket_type;
    match draft.text(variable) {
        _ if !draft.is_set(variable) => Ok(None),
        "tcp" | "tcp4" | "tcp6" => Ok(Some(Network::Tcp)),
        "unix" => Ok(Some(Network::Unix)),
        "" => {
            draft.warn(format!("{variable} is empty; the form of {} decides", names.url));
            Ok(None)
        }
        _ => {
            draft.refuse(variable, "tcp or unix");
            Err(())
        }
    }
}

/// As in `envoyproxy/ratelimit`, a password in a sentinel's URL is for the sentinel; in a ratelimitd URL it is for the
/// servers.
fn set_urls(draft: &mut Draft, names: &ServerNames, topology: TopologyName, urls: &[RedisUrl]) {
    let variables = names.of_addresses();
    let mut texts: Vec<String> = urls.iter().map(RedisUrl::with_credentials).collect();
    if topology == TopologyName::Sentinel {
        texts = urls.iter().map(ToString::to_string).collect();
        let (user, password) = urls[0].credentials();
        for (name, text) in [("sentinel.username", user), ("sentinel.password", password)] {
            if let Some(text) = text {
                draft.set(&names.key(name), text, &[names.url]);
            }
        }
    }
    draft.set(&names.key("url"), texts.join(","), &variables);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Network {
    Tcp,
    Unix,
}

/// How to read an address.
#[derive(Clone, Copy)]
struct Form<'n> {
    /// `None`: decided by the address's form.
    network: Option<Network>,
    is_tls: bool,
    names: &'n ServerNames,
}

impl Form<'_> {
    /// Converts an address to a URL. The error describes what was expected: the address can contain a password.
    fn url(self, address: &str) -> Result<RedisUrl, String> {
        let ServerNames { socket_type, tls, .. } = self.names;
        const EXPECTED: &str =
            "host:port, the path of a socket, or redis://[[user]:password@]host:port[/database]";
        let is_path = address.starts_with(['/', '.'])
            || (self.network == Some(Network::Unix) && !address.is_empty() && !address.contains(':'));
        let text = if let Some((scheme, rest)) = address.split_once("://") {
            match (scheme, self.is_tls) {
                ("redis", true) | ("rediss", _) => format!("rediss://{}", with_host(rest)),
                ("redis", false) => format!("redis://{}", with_host(rest)),
                _ => address.to_owned(),
            }
        } else if address.starts_with('@') {
            return Err("host:port or the path of a socket: abstract sockets are not supported".to_owned());
        } else if is_path {
            if self.network == Some(Network::Tcp) {
                return Err(format!("host:port, as {socket_type} is tcp"));
            }
            if self.is_tls {
                return Err(format!("host:port, as {tls} is true: TLS over a Unix socket is not supported"));
            }
            let path = std::path::absolute(address).map_err(|_| EXPECTED.to_owned())?;
            format!("redis+unix://{}", encoded(path.to_str().ok_or(EXPECTED.to_owned())?))
        } else {
            if self.network == Some(Network::Unix) {
                return Err(format!("the path of a socket, as {socket_type} is unix"));
            }
            if !address.contains(':') {
                return Err(EXPECTED.to_owned());
            }
            format!("{}://{}", if self.is_tls { "rediss" } else { "redis" }, with_host(address))
        };
        text.parse().map_err(|_| EXPECTED.to_owned())
    }
}

/// Adds a host to a URL without its scheme. As in Go, a port without a host is on this machine.
fn with_host(rest: &str) -> String {
    let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
    let start = authority.rfind('@').map_or(0, |at| at + 1);
    let host = if authority[start..].starts_with(':') { LOOPBACK } else { "" };
    format!("{}{host}{}", &rest[..start], &rest[start..])
}

/// Encodes a path for a URL.
fn encoded(path: &str) -> String {
    path.bytes().fold(String::new(), |mut text, byte| {
        if byte.is_ascii_alphanumeric() || b"/-._~@:+".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text += &format!("%{byte:02X}");
        }
        text
    })
}

/// `password`, or `user:password`: the part before the first colon is the user.
fn translate_credentials(draft: &mut Draft, variable: &'static str, [user_key, password_key]: [String; 2]) {
    let text = draft.text(variable).to_owned();
    if text.is_empty() {
        return;
    }
    let (user, password) = text.split_once(':').unwrap_or(("", &text));
    if !user.is_empty() {
        draft.set(&user_key, user, &[variable]);
    }
    draft.set(&password_key, password, &[variable]);
}
