//! The address of a running service's admin port.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use http::Uri;
use ratelimitd::cli::service_connection::{
    ServiceConnector, TlsArgs, TlsSetupError, parse_http_url, with_path,
};
use tls::{Protocol, ServerCheck};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminPort {
    Tcp(Uri),
    Unix(PathBuf),
}

/// Parses `unix:/path`, `host:port`, `http://host:port` or `https://host:port`. An error is a sentence for the user.
impl FromStr for AdminPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some(path) if Path::new(path).is_absolute() => Ok(Self::Unix(PathBuf::from(path))),
            Some(_) => Err("expected an absolute path, as in unix:/path/to/socket".to_owned()),
            None => parse_http_url(text).map(Self::Tcp),
        }
    }
}

impl fmt::Display for AdminPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(server) => f.write_str(server.authority().map_or("", |address| address.as_str())),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl AdminPort {
    /// Returns the URL of an endpoint. A Unix socket does not have a host name; the service accepts `localhost`.
    pub fn endpoint(&self, path: &'static str) -> Uri {
        let server = match self {
            Self::Tcp(server) => server.clone(),
            Self::Unix(_) => Uri::from_static("http://localhost/"),
        };
        with_path(server, path)
    }

    /// Returns the port's connector. Unix sockets do not use TLS.
    ///
    /// # Errors
    /// As for [`TlsArgs::connector`].
    pub fn connector(&self, tls: &TlsArgs) -> Result<ServiceConnector, TlsSetupError> {
        let connector = tls.connector(&self.endpoint("/"), Protocol::Http1, ServerCheck::ChainAndName)?;
        Ok(match self {
            Self::Tcp(_) => connector,
            Self::Unix(path) => ServiceConnector::Unix(path.clone()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_socket_or_a_server() {
        let cases = [
            // (written, displayed, URL of an endpoint)
            ("unix:/run/admin.sock", Ok(("unix:/run/admin.sock", "http://localhost/rules"))),
            ("127.0.0.1:6070", Ok(("127.0.0.1:6070", "http://127.0.0.1:6070/rules"))),
            ("http://[::1]:6070/", Ok(("[::1]:6070", "http://[::1]:6070/rules"))),
            ("unix:admin.sock", Err("expected an absolute path")),
            ("unix:", Err("expected an absolute path")),
            ("https://localhost", Ok(("localhost", "https://localhost/rules"))),
        ];
        for (written, expected) in cases {
            match (written.parse::<AdminPort>(), expected) {
                (Ok(port), Ok((displayed, url))) => {
                    assert_eq!(
                        (port.to_string().as_str(), port.endpoint("/rules").to_string().as_str()),
                        (displayed, url)
                    );
                }
                (Err(error), Err(start)) => assert!(error.starts_with(start), "{error}"),
                (parsed, _) => panic!("{written}: {parsed:?}"),
            }
        }
    }
}
