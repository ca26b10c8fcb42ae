//! Which requests the admin port answers: it refuses foreign web pages and host names that are not its own.
//! `admin_token` refuses requests without the token that they need.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use tls::FileError;

use super::token_file::TokenFile;
pub(crate) use crate::net::sending_page::SendingPage;

/// The settings that name the files of tokens.
pub(super) const TOKEN_FILE: &str = "server.admin.token_file";
pub(super) const OPERATOR_TOKEN_FILE: &str = "server.admin.operator_token_file";

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Which callers the admin port answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdminAccess {
    /// The names of the service, without a port, in lower case; `localhost` and addresses need no entry.
    pub hosts: Vec<String>,
    /// The token that every request must present.
    pub token_file: Option<TokenFile>,
    /// The token of those who may act, which opens the rest, too. `None`: the other token is enough to act.
    pub operator_token_file: Option<TokenFile>,
    /// Whether requests that change nothing are answered under any host name, like in envoyproxy/ratelimit. The
    /// port is then reachable for many clients, so all other requests need a token.
    pub read_by_any_host: bool,
}

/// What a path lets a caller do, and so which token it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdminRole {
    /// Open the page of the console, which has no data. A browser cannot send a token when it opens a page.
    Anybody,
    /// See everything but the values of keys.
    Viewer,
    /// Reset counters.
    Operator,
    /// See values of keys: only with a token.
    ValueReader,
}

/// The page of the console. All paths that begin with it are the console's.
pub(super) const CONSOLE_PAGE: &str = "/console";

impl AdminRole {
    /// The role that a path needs.
    pub(super) fn for_path(path: &str) -> Self {
        match path {
            CONSOLE_PAGE => Self::Anybody,
            "/counters/reset" | "/console/reset" => Self::Operator,
            "/console/values" => Self::ValueReader,
            _ => Self::Viewer,
        }
    }
}

/// Why the admin port does not answer a request. No text contains a part of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AdminRefusal {
    #[error("a request to the admin port needs exactly one valid Host header")]
    NoHost,
    /// DNS rebinding: a page lets its own DNS name point to the address of the admin port. `Host` is then that name.
    #[error(
        "the Host of a request to the admin port must be localhost, an IP address, or one of server.admin.hosts"
    )]
    ForeignHost,
    #[error("the admin port does not answer web pages of other origins (Origin or Sec-Fetch-Site header)")]
    ForeignPage,
    #[error("{}", .0.missing())]
    NoToken(NeededToken),
    #[error("wrong token: {}", .0.expected())]
    WrongToken(NeededToken),
    #[error("too many wrong tokens from your address, or from all, within a second; try again in a second")]
    TooManyWrong,
    #[error("this action needs the token of server.admin.operator_token_file")]
    NotOperator,
    #[error(
        "showing key values needs a token: set server.admin.operator_token_file or server.admin.token_file"
    )]
    NoTokenForValues,
    /// No token is known that a request could present.
    #[error(
        "reading counters needs a token while server.admin.read_by_any_host is true: set server.admin.token_file"
    )]
    TokenNeeded,
    /// The log has the reason.
    #[error("cannot use the admin token file; all tokens are rejected")]
    TokenFile,
    /// A browser sends a page's POST with some other content types without asking the server first (CORS preflight).
    #[error("a POST to the admin port needs the header Content-Type: application/json")]
    NotJson,
}

/// The token that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NeededToken {
    /// That of `server.admin.token_file`.
    Viewer,
    /// That of `server.admin.operator_token_file`.
    Operator,
    /// The one that the service has made.
    Own,
}

impl NeededToken {
    fn missing(self) -> &'static str {
        match self {
            Self::Viewer => {
                "a request to the admin port needs the header Authorization: Bearer, with the token of \
                 server.admin.token_file"
            }
            Self::Operator => {
                "this action needs the header Authorization: Bearer, with the token of server.admin.operator_token_file"
            }
            Self::Own => {
                "showing key values needs a token: `ratelimitctl token` prints it, on the host of the \
                 service or in its container, for its user and for root"
            }
        }
    }

    fn expected(self) -> &'static str {
        match self {
            Self::Viewer => "it must be that of server.admin.token_file",
            Self::Operator => "it must be that of server.admin.operator_token_file",
            Self::Own => "`ratelimitctl token` prints it, on the host of the service or in its container",
        }
    }
}

impl IntoResponse for AdminRefusal {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NoHost => StatusCode::BAD_REQUEST,
            Self::ForeignHost => StatusCode::MISDIRECTED_REQUEST,
            Self::ForeignPage
            | Self::TokenNeeded
            | Self::NotOperator
            | Self::NoTokenForValues
            | Self::NoToken(NeededToken::Own) => StatusCode::FORBIDDEN,
            Self::NoToken(_) | Self::WrongToken(_) => StatusCode::UNAUTHORIZED,
            Self::TooManyWrong => StatusCode::TOO_MANY_REQUESTS,
            Self::TokenFile => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotJson => StatusCode::UNSUPPORTED_MEDIA_TYPE,
        };
        let mut response = (status, format!("{self}\n")).into_response();
        if status == StatusCode::UNAUTHORIZED {
            // RFC 9110 requires it.
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl AdminAccess {
    /// Reads the token files once. They are read again for every request.
    ///
    /// # Errors
    /// The first setting whose file has no token.
    pub fn check_token_files(&self) -> Result<(), (&'static str, FileError)> {
        let files = [(TOKEN_FILE, &self.token_file), (OPERATOR_TOKEN_FILE, &self.operator_token_file)];
        for (setting, file) in files {
            if let Some(file) = file {
                file.token().map_err(|error| (setting, error))?;
            }
        }
        Ok(())
    }

    pub(super) fn check_sender(&self, request: &Request) -> Result<(), AdminRefusal> {
        let host = host_of(request).ok_or(AdminRefusal::NoHost)?;
        // The console shows what callers do, so its paths are never read under a foreign name.
        let is_console = request.uri().path().starts_with(CONSOLE_PAGE);
        let is_only_read = self.read_by_any_host && request.method().is_safe() && !is_console;
        if !is_only_read && !self.is_own(host.host()) {
            return Err(AdminRefusal::ForeignHost);
        }
        let sender = SendingPage::of_request(request.headers(), Some(&host));
        if sender == SendingPage::Foreign && !is_link_to_console(request) {
            return Err(AdminRefusal::ForeignPage);
        }
        let has_token = match AdminRole::for_path(request.uri().path()) {
            // It needs one in every case: that of the settings, or the one that the service has made.
            AdminRole::ValueReader => true,
            AdminRole::Operator => self.token_file.is_some() || self.operator_token_file.is_some(),
            AdminRole::Anybody | AdminRole::Viewer => self.token_file.is_some(),
        };
        if !request.method().is_safe() && self.read_by_any_host && !has_token {
            return Err(AdminRefusal::TokenNeeded);
        }
        if !request.method().is_safe() && !is_json(request.headers()) {
            return Err(AdminRefusal::NotJson);
        }
        Ok(())
    }

    fn is_own(&self, host: &str) -> bool {
        is_ip_address(host)
            || host.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|own| host.eq_ignore_ascii_case(own))
    }
}

/// A link on another page may open the page of the console, which has no data. A frame may not: its
/// `Sec-Fetch-Dest` is another one.
fn is_link_to_console(request: &Request) -> bool {
    let headers = request.headers();
    request.method() == Method::GET
        && request.uri().path() == CONSOLE_PAGE
        && !headers.contains_key(header::ORIGIN)
        && single(headers, SEC_FETCH_DEST).is_some_and(|target| target == "document")
}

/// The host to which the request goes. A host in the request line overrides the `Host` header (RFC 9112, 3.2.2).
fn host_of(request: &Request) -> Option<Authority> {
    match request.uri().authority() {
        Some(authority) => Some(authority.clone()),
        None => single(request.headers(), header::HOST)?.to_str().ok()?.parse().ok(),
    }
}

/// The value of a header that is there exactly once.
fn single(headers: &HeaderMap, name: HeaderName) -> Option<&HeaderValue> {
    let mut values = headers.get_all(name).iter();
    values.next().filter(|_| values.next().is_none())
}

/// DNS rebinding needs a name, so an address in `Host` is safe.
fn is_ip_address(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(host) => host.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<Ipv4Addr>().is_ok(),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = single(headers, header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media_type = content_type.and_then(|value| value.split(';').next());
    media_type.is_some_and(|name| name.trim().eq_ignore_ascii_case("application/json"))
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    fn check(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<(), AdminRefusal> {
        check_with(false, method, target, headers)
    }

    fn check_with(
        read_by_any_host: bool,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<(), AdminRefusal> {
        let hosts = vec!["limits.internal".to_owned()];
        let access = AdminAccess { hosts, read_by_any_host, ..AdminAccess::default() };
        let request = Request::builder().method(method).uri(target);
        let request = headers.iter().fold(request, |request, (name, value)| request.header(*name, *value));
        access.check_sender(&request.body(Body::empty()).expect("a request"))
    }

    #[test]
    fn a_host_is_loopback_an_address_or_configured() {
        let table = [
            ("localhost", Ok(())),
            ("LocalHost:6070", Ok(())),
            ("127.0.0.1:6070", Ok(())),
            ("10.1.2.3", Ok(())),
            ("[::1]:6070", Ok(())),
            ("Limits.Internal:6070", Ok(())),
            ("evil.example", Err(AdminRefusal::ForeignHost)),
            ("evil.example:6070", Err(AdminRefusal::ForeignHost)),
            ("localhost.evil.example", Err(AdminRefusal::ForeignHost)),
            ("127.0.0.1.evil.example", Err(AdminRefusal::ForeignHost)),
            ("localhost@evil.example", Err(AdminRefusal::ForeignHost)),
            ("x.limits.internal", Err(AdminRefusal::ForeignHost)),
            ("1.2.3", Err(AdminRefusal::ForeignHost)),
            ("", Err(AdminRefusal::NoHost)),
            ("a b", Err(AdminRefusal::NoHost)),
        ];
        for (host, expected) in table {
            assert_eq!(check("GET", "/rules", &[("host", host)]), expected, "{host:?}");
        }
        assert_eq!(check("GET", "/rules", &[]), Err(AdminRefusal::NoHost));
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check("GET", "/rules", &twice), Err(AdminRefusal::NoHost));
        let target = "http://evil.example/rules";
        assert_eq!(check("GET", target, &[("host", "localhost")]), Err(AdminRefusal::ForeignHost));
    }

    #[test]
    fn a_port_that_any_host_may_read_changes_nothing_without_a_token() {
        let foreign = [("host", "ratelimit:6070"), ("content-type", "application/json")];
        assert_eq!(check_with(true, "GET", "/rlconfig", &foreign), Ok(()));
        assert_eq!(check_with(true, "POST", "/counters/reset", &foreign), Err(AdminRefusal::ForeignHost));
        let own = [("host", "localhost"), ("content-type", "application/json")];
        assert_eq!(check_with(true, "POST", "/counters/reset", &own), Err(AdminRefusal::TokenNeeded));
        assert_eq!(check_with(true, "POST", "/console/values", &own), Ok(()), "it has a token of its own");
        assert_eq!(check_with(true, "POST", "/console/values", &foreign), Err(AdminRefusal::ForeignHost));
        let page = [("host", "ratelimit:6070"), ("origin", "http://evil.example")];
        assert_eq!(check_with(true, "GET", "/rlconfig", &page), Err(AdminRefusal::ForeignPage));
    }

    #[test]
    fn a_link_opens_the_page_of_the_console_and_a_frame_does_not() {
        let from = |target: &'static str| {
            [("host", "localhost"), ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", target)]
        };
        assert_eq!(check("GET", "/console", &from("document")), Ok(()));
        for target in ["iframe", "frame", "embed", "object", "empty"] {
            assert_eq!(check("GET", "/console", &from(target)), Err(AdminRefusal::ForeignPage), "{target}");
        }
        assert_eq!(check("POST", "/console", &from("document")), Err(AdminRefusal::ForeignPage));
        assert_eq!(check("GET", "/console/state", &from("document")), Err(AdminRefusal::ForeignPage));
        let rebound = [("host", "evil.example"), ("sec-fetch-dest", "document")];
        assert_eq!(check_with(true, "GET", "/console", &rebound), Err(AdminRefusal::ForeignHost));
    }

    #[test]
    fn a_change_needs_a_body_of_json() {
        let table = [
            ("application/json", Ok(())),
            ("Application/JSON; charset=utf-8", Ok(())),
            ("application/json-patch+json", Err(AdminRefusal::NotJson)),
            ("text/plain", Err(AdminRefusal::NotJson)),
            ("text/plain; x=application/json", Err(AdminRefusal::NotJson)),
            ("application/x-www-form-urlencoded", Err(AdminRefusal::NotJson)),
        ];
        for (content_type, expected) in table {
            let headers = [("host", "localhost"), ("content-type", content_type)];
            assert_eq!(check("POST", "/counters/reset", &headers), expected, "{content_type}");
            assert_eq!(check("GET", "/rules", &headers), Ok(()), "{content_type}");
        }
        assert_eq!(check("POST", "/counters/reset", &[("host", "localhost")]), Err(AdminRefusal::NotJson));
    }
}
