//! Calls the admin port of a running service.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::{Request, StatusCode, header};
use http_body_util::Full;
use hyper::body::Bytes;

use super::service_connection::{
    AdminPort, HttpCallError, TlsArgs, TlsSetupError, block_on, call_http, root_cause,
};
use crate::http::{PAGE_NOT_FOUND, TokenFile};

/// How the admin port is called, but for its address.
#[derive(Clone, Debug, Args)]
pub struct AdminCallArgs {
    /// The file with the token of the admin port, if the service has server.admin.token_file or
    /// server.admin.operator_token_file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,

    /// How long to wait for the answer
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Why the admin port gave no answer, or refused.
#[derive(Debug, thiserror::Error)]
pub enum AdminCallError {
    #[error("no runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error("cannot connect to {address}: {}", root_cause(cause))]
    Connect { address: String, cause: hyper_util::client::legacy::Error },
    #[error("the admin port does not answer with HTTP: {}", root_cause(.0))]
    Http(#[source] hyper_util::client::legacy::Error),
    #[error("{0}")]
    Tls(#[from] TlsSetupError),
    #[error("--token-file {0}")]
    Token(#[from] tls::FileError),
    #[error("no answer from the admin port in time")]
    Timeout,
    #[error("the answer cannot be read: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The text of the admin port.
    #[error("{}", .0.trim_end())]
    Refused(String),
    /// The answer of the HTTP port to an unknown path, or an error without a text.
    #[error(
        "{address} answers {status}: it is not the admin port of ratelimitd (setting server.admin.address, port 6070 \
         by default)"
    )]
    NotAdmin { address: String, status: StatusCode },
    #[error("the answer is not that of an admin port of ratelimitd: {0}")]
    Json(#[from] serde_json::Error),
}

impl AdminCallArgs {
    /// Posts a body in JSON, and returns the answer.
    ///
    /// # Errors
    /// [`AdminCallError`] without an answer of status 200.
    pub(super) fn post(
        &self,
        admin: &AdminPort,
        path: &'static str,
        body: String,
    ) -> Result<String, AdminCallError> {
        let posted = block_on(async {
            let call = tokio::time::timeout(self.timeout, self.send(admin, path, body));
            call.await.unwrap_or(Err(AdminCallError::Timeout))
        });
        posted.map_err(AdminCallError::from).flatten()
    }

    async fn send(
        &self,
        admin: &AdminPort,
        path: &'static str,
        body: String,
    ) -> Result<String, AdminCallError> {
        let mut request = Request::post(admin.endpoint(path))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("a valid URI and a constant header");
        if let Some(path) = &self.token_file {
            let token = TokenFile(path.clone()).token()?;
            request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        }
        let connector = admin.connector(&self.tls)?;
        let (status, text) = call_http(connector, request).await.map_err(|error| match error {
            HttpCallError::Send(cause) if cause.is_connect() => {
                AdminCallError::Connect { address: admin.to_string(), cause }
            }
            HttpCallError::Send(cause) => AdminCallError::Http(cause),
            HttpCallError::Body(cause) => AdminCallError::Body(cause),
        })?;
        match status {
            StatusCode::OK => Ok(text),
            _ if text == PAGE_NOT_FOUND || text.trim().is_empty() => {
                Err(AdminCallError::NotAdmin { address: admin.to_string(), status })
            }
            _ => Err(AdminCallError::Refused(text)),
        }
    }
}
