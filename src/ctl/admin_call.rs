//! Calls the admin port of a running service.

use std::path::PathBuf;
use std::time::Duration;

use base::escaped_json;
use clap::Args;
use http::request::Builder;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use ratelimitd::cli::service_connection::{
    CONNECTION, HttpAnswer, HttpCallError, TlsArgs, TlsSetupError, block_on, call_http, root_cause,
};
use ratelimitd::http::{PAGE_NOT_FOUND, TokenFile};
use serde_json::Value;

use super::admin_port::AdminPort;

/// How the admin port is called, but for its address.
#[derive(Clone, Debug, Args)]
pub struct AdminCallArgs {
    /// Send the token in this file, for a service with server.admin.token_file or server.admin.operator_token_file
    #[arg(long, help_heading = CONNECTION, value_name = "FILE")]
    token_file: Option<PathBuf>,

    #[command(flatten)]
    tls: TlsArgs,

    /// Give up after this time
    #[arg(
        long, help_heading = CONNECTION,
        value_name = "DURATION", default_value = "5s", value_parser = humantime::parse_duration
    )]
    pub(super) timeout: Duration,
}

/// One admin port, how it is called, and how its answer is printed.
#[derive(Clone, Debug, Args)]
pub struct AdminArgs {
    /// Admin port of the service: an address like http://127.0.0.1:6070, https:// for TLS, or unix:/path/to/socket
    #[arg(long, help_heading = CONNECTION, value_name = "ADDRESS", default_value = "http://127.0.0.1:6070")]
    admin: AdminPort,

    #[command(flatten)]
    call: AdminCallArgs,

    /// Print the service's JSON answer
    #[arg(long)]
    pub json: bool,
}

/// Why the admin port did not answer, or refused.
#[derive(Debug, thiserror::Error)]
pub enum AdminCallError {
    #[error("cannot start a runtime: {0}")]
    Runtime(#[from] std::io::Error),
    #[error(
        "cannot connect to {address}: {}; name the admin port of the service with --admin",
        root_cause(cause)
    )]
    Connect { address: String, cause: std::io::Error },
    #[error("the admin port does not answer with HTTP: {}", root_cause(.0))]
    Http(#[source] hyper::Error),
    #[error("{0}")]
    Tls(#[from] TlsSetupError),
    #[error("--token-file {0}")]
    Token(#[from] tls::FileError),
    #[error("no answer from the admin port in time")]
    Timeout,
    #[error("cannot read the answer: {0}")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The admin port's message.
    #[error("{}", .0.trim_end())]
    Refused(String),
    /// What the admin port needs, such as Redis, does not answer it. The admin port's message.
    #[error("{}", .0.trim_end())]
    Unavailable(String),
    /// The HTTP port's answer to an unknown path, or an error without a message.
    #[error(
        "{address} answers {status}: it is not the admin port of ratelimitd (setting server.admin.address, port 6070 \
         by default)"
    )]
    NotAdmin { address: String, status: StatusCode },
    #[error("not an answer from a ratelimitd admin port: {0}")]
    Json(#[from] serde_json::Error),
}

impl AdminArgs {
    /// Posts a JSON body, and returns the answer.
    ///
    /// # Errors
    /// [`AdminCallError`] unless the status is 200.
    pub(super) fn post(&self, path: &'static str, body: &Value) -> Result<String, AdminCallError> {
        self.call.post(&self.admin, path, body.to_string())
    }

    /// Returns an answer in words, or as it is with `--json`.
    ///
    /// # Errors
    /// If the answer is not JSON.
    pub(super) fn shown(
        &self,
        answer: String,
        words: impl FnOnce(&Value) -> String,
    ) -> Result<String, AdminCallError> {
        let read = serde_json::from_str(&answer)?;
        Ok(if self.json { escaped_json(answer) } else { words(&read) })
    }
}

impl AdminCallArgs {
    /// Posts a JSON body, and returns the answer.
    ///
    /// # Errors
    /// [`AdminCallError`] unless the status is 200.
    pub(super) fn post(
        &self,
        admin: &AdminPort,
        path: &'static str,
        body: String,
    ) -> Result<String, AdminCallError> {
        let request = Request::post(admin.endpoint(path)).header(header::CONTENT_TYPE, "application/json");
        block_on(self.answer(admin, request, body)).map_err(AdminCallError::from).flatten()
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// [`AdminCallError`] unless the status is 200.
    pub(super) async fn get(&self, admin: &AdminPort, path: &'static str) -> Result<String, AdminCallError> {
        self.answer(admin, Request::get(admin.endpoint(path)), String::new()).await
    }

    /// Sends a GET request whose answer does not end.
    ///
    /// # Errors
    /// [`AdminCallError`] unless the status is 200.
    pub(super) async fn open(
        &self,
        admin: &AdminPort,
        path: &'static str,
    ) -> Result<HttpAnswer, AdminCallError> {
        let request = Request::get(admin.endpoint(path));
        in_time(self.timeout, self.send(admin, request, String::new())).await
    }

    /// Returns the next bytes of an open answer; `None` at the end.
    ///
    /// # Errors
    /// [`AdminCallError`] if the connection breaks, or nothing arrives within `--timeout`.
    pub(super) async fn next(&self, answer: &mut HttpAnswer) -> Result<Option<Bytes>, AdminCallError> {
        let next = async {
            while let Some(frame) = answer.body.frame().await {
                // Ignores trailers.
                if let Ok(bytes) = frame.map_err(|error| AdminCallError::Body(error.into()))?.into_data() {
                    return Ok(Some(bytes));
                }
            }
            Ok(None)
        };
        in_time(self.timeout, next).await
    }

    async fn answer(
        &self,
        admin: &AdminPort,
        request: Builder,
        body: String,
    ) -> Result<String, AdminCallError> {
        let text = async {
            let answer = self.send(admin, request, body).await?;
            answer.text().await.map_err(|error| call_error(admin, error))
        };
        in_time(self.timeout, text).await
    }

    /// Sends a request. The body of an answer with status 200 is still unread.
    async fn send(
        &self,
        admin: &AdminPort,
        request: Builder,
        body: String,
    ) -> Result<HttpAnswer, AdminCallError> {
        let body = Full::new(Bytes::from(body));
        let mut request = request.body(body).expect("a valid URI and a constant header");
        if let Some(path) = &self.token_file {
            let token = TokenFile(path.clone()).token()?;
            request.headers_mut().insert(header::AUTHORIZATION, token.authorization());
        }
        let connector = admin.connector(&self.tls)?;
        let answer = call_http(connector, request).await.map_err(|error| call_error(admin, error))?;
        let status = answer.status;
        if status == StatusCode::OK {
            return Ok(answer);
        }
        let text = answer.text().await.map_err(|error| call_error(admin, error))?;
        if text == PAGE_NOT_FOUND || text.trim().is_empty() {
            return Err(AdminCallError::NotAdmin { address: admin.to_string(), status });
        }
        Err(match status {
            StatusCode::SERVICE_UNAVAILABLE => AdminCallError::Unavailable(text),
            _ => AdminCallError::Refused(text),
        })
    }
}

async fn in_time<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, AdminCallError>>,
) -> Result<T, AdminCallError> {
    tokio::time::timeout(timeout, call).await.unwrap_or(Err(AdminCallError::Timeout))
}

fn call_error(admin: &AdminPort, error: HttpCallError) -> AdminCallError {
    match error {
        HttpCallError::Connect(cause) => AdminCallError::Connect { address: admin.to_string(), cause },
        HttpCallError::Http(cause) => AdminCallError::Http(cause),
        HttpCallError::Body(cause) => AdminCallError::Body(cause),
    }
}
