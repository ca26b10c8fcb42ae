//! Sends an HTTP/1.1 POST to another service, each over its own connection: there are few of them.

use std::fmt;

use http::header::{CONNECTION, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tls::{ByteStream, ClientConnector, DialError, dial};
use tokio_rustls::rustls::pki_types::ServerName;
use url::Url;

/// Answers are a few bytes long; a longer body is an error.
const MAX_ANSWER_BYTES: usize = 64 * 1_024;
const AGENT: &str = concat!("ratelimitd/", env!("CARGO_PKG_VERSION"));

pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// `http://host:port/path` or `https://host:port/path`. Displayed without its query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    pub has_tls: bool,
    pub host: ServerName<'static>,
    pub port: u16,
    /// Starts with a slash.
    pub path: String,
    /// After the question mark.
    pub query: Option<String>,
}

impl HttpTarget {
    /// `None` for another scheme, a user, or a fragment.
    pub fn parse(text: &str) -> Option<Self> {
        let url = Url::parse(text).ok()?;
        let has_tls = match url.scheme() {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let has_more = !url.username().is_empty() || url.password().is_some() || url.fragment().is_some();
        let host = url.host_str()?.trim_start_matches('[').trim_end_matches(']').to_owned();
        let host = ServerName::try_from(host).ok()?;
        let port = url.port_or_known_default().filter(|&port| port > 0)?;
        let (path, query) = (url.path().to_owned(), url.query().map(str::to_owned));
        (!has_more).then_some(Self { has_tls, host, port, path, query })
    }

    /// `host:port`, with brackets around an IPv6 address.
    pub fn authority(&self) -> String {
        let host = self.host.to_str();
        if host.contains(':') { format!("[{host}]:{}", self.port) } else { format!("{host}:{}", self.port) }
    }

    /// Connects. Has no deadline of its own.
    ///
    /// # Errors
    /// If there is no connection.
    pub async fn connect(
        &self,
        tls: Option<&ClientConnector>,
    ) -> Result<TokioIo<Box<dyn ByteStream>>, DialError> {
        dial(&self.host.to_str(), self.port, tls).await.map(TokioIo::new)
    }

    /// Posts a body over a connection of its own, and reads the answer. Its body is an error if it is cut off or longer
    /// than 64 KiB. Has no deadline of its own.
    ///
    /// # Errors
    /// If there is no connection, or no answer.
    pub async fn post(
        &self,
        tls: Option<&ClientConnector>,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<Result<Bytes, BoxError>>, BoxError> {
        let query = self.query.iter().flat_map(|query| ["?", query.as_str()]);
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = std::iter::once(self.path.as_str()).chain(query).collect::<String>().parse()?;
        *request.headers_mut() = headers;
        let headers = request.headers_mut();
        headers.insert(HOST, HeaderValue::try_from(self.authority())?);
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
        headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
        let (mut sender, connection) = http1::handshake(self.connect(tls).await?).await?;
        let exchange = async move {
            let (head, body) = sender.send_request(request).await?.into_parts();
            let body = Limited::new(body, MAX_ANSWER_BYTES).collect().await.map(Collected::to_bytes);
            Ok(Response::from_parts(head, body))
        };
        // The connection ends after the exchange, which has its result, or its errors.
        let (exchanged, _) = tokio::join!(exchange, connection);
        exchanged
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.authority(), self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_url_without_a_user() {
        let cases = [
            ("http://hooks:4318", Some("http://hooks:4318/")),
            ("https://hooks.example.com/a/b?c=d", Some("https://hooks.example.com:443/a/b")),
            ("https://[::1]:1/a", Some("https://[::1]:1/a")),
            ("hooks:4318", None),
            ("ftp://hooks", None),
            ("http://u:p@hooks", None),
            ("http://hooks:0", None),
            ("http://hooks/#a", None),
            ("", None),
        ];
        for (text, expected) in cases {
            let parsed = HttpTarget::parse(text).map(|target| target.to_string());
            assert_eq!(parsed.as_deref(), expected, "{text}");
        }
    }
}
