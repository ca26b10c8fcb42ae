//! Translates listening addresses, the age of connections, and the log.

use std::net::IpAddr;
use std::time::Duration;

use super::certificates;
use super::draft::Draft;

/// Range of `server.grpc.max_connection_age`.
const AGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(365 * 24 * 3_600));

/// `has_own_admin_address`: `server.admin.address` is set.
pub(super) fn translate(draft: &mut Draft, has_own_admin_address: bool) {
    let ports = [
        ("server.http.address", "HOST", "PORT"),
        ("server.admin.address", "DEBUG_HOST", "DEBUG_PORT"),
        ("server.grpc.address", "GRPC_HOST", "GRPC_PORT"),
    ];
    for (key, host, port) in ports {
        if let Some(address) = address(draft, host, port) {
            draft.set(key, address, &[host, port]);
        }
    }
    translate_socket(draft);
    // An address of ratelimitd's own settings may be public.
    if has_own_admin_address || !is_loopback(draft.text("DEBUG_HOST")) {
        draft.set("server.admin.read_by_any_host", "true", &["DEBUG_HOST"]);
    }
    certificates::translate_port(draft);
    translate_age(draft);
    translate_log(draft);
}

/// A Unix socket instead of the TCP port.
fn translate_socket(draft: &mut Draft) {
    const NAME: &str = "GRPC_UDS";
    let path = draft.text(NAME).to_owned();
    // Go creates an abstract socket for a name that starts with `@`.
    let absolute = std::path::absolute(&path).ok().filter(|_| !path.starts_with('@'));
    match absolute.as_ref().and_then(|path| path.to_str()) {
        _ if path.is_empty() => {}
        Some(absolute) => draft.set("server.grpc.address", format!("unix:{absolute}"), &[NAME]),
        None => draft.refuse(NAME, "the path of a socket; abstract sockets are not supported"),
    }
}

/// Returns a listening address; `None` after a problem.
fn address(draft: &mut Draft, host: &'static str, port: &'static str) -> Option<String> {
    let Ok(number) = u16::try_from(draft.whole(port)) else {
        draft.refuse(port, "a port from 0 to 65535");
        return None;
    };
    let text = address_text(draft.text(host), number);
    if text.is_none() {
        draft.refuse(host, "an IP address, a host name, or nothing");
    }
    text
}

/// Formats host and port for a ratelimitd setting; `None` if the host is invalid.
pub(super) fn address_text(host: &str, port: u16) -> Option<String> {
    const EVERY_ADDRESS: &str = "[::]";
    let host = host_text(host, EVERY_ADDRESS)?;
    // Go listens on every address of both families, whichever is written.
    let host = if host == "0.0.0.0" { EVERY_ADDRESS } else { &host };
    Some(format!("{host}:{port}"))
}

/// Formats an address's host; `None` if it is invalid. `nothing`: the host for an empty value.
pub(super) fn host_text(host: &str, nothing: &str) -> Option<String> {
    let name = host.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(host);
    match name.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) => Some(format!("[{ip}]")),
        Ok(IpAddr::V4(ip)) => Some(ip.to_string()),
        Err(_) if name.is_empty() => Some(nothing.to_owned()),
        Err(_) if name.contains([':', '/']) || name.contains(char::is_whitespace) => None,
        Err(_) => Some(name.to_owned()),
    }
}

/// `true` if only processes of this host reach a port of `host`.
fn is_loopback(host: &str) -> bool {
    let ip: Result<IpAddr, _> = host.trim_matches(['[', ']']).parse();
    host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback())
}

fn translate_age(draft: &mut Draft) {
    const NAME: &str = "GRPC_MAX_CONNECTION_AGE";
    let age = draft.duration(NAME);
    if age.is_zero() || (AGE.0..=AGE.1).contains(&age) {
        let text = humantime::format_duration(age).to_string();
        draft.set_if_given("server.grpc.max_connection_age", text, NAME);
    } else {
        draft.refuse(NAME, "a duration from 1s to 8760h, or 0 for never");
    }
}

fn translate_log(draft: &mut Draft) {
    let level = match draft.text("LOG_LEVEL").to_ascii_lowercase().as_str() {
        "panic" | "fatal" | "error" => Some("error"),
        "warn" | "warning" => Some("warn"),
        "info" => Some("info"),
        "debug" => Some("debug"),
        "trace" => Some("trace"),
        _ => None,
    };
    match level {
        Some(level) => draft.set_if_given("log.level", level, "LOG_LEVEL"),
        None if draft.text("LOG_LEVEL").is_empty() => {
            draft.warn("LOG_LEVEL is empty; using info");
        }
        None => {
            draft.refuse("LOG_LEVEL", "one of panic, fatal, error, warn, warning, info, debug, trace");
        }
    }
    let is_json = draft.text("LOG_FORMAT").eq_ignore_ascii_case("json");
    draft.set_if_given("log.format", if is_json { "envoy_ratelimit" } else { "text" }, "LOG_FORMAT");
}
