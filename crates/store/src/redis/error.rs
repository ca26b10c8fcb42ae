//! Maps errors of redis-rs, TLS, DNS and I/O to [`StoreError`] and [`OptionsError`]; nothing else does. Other modules
//! report only what they find out themselves, such as a timeout.

use std::fmt;

use engine::{NoConnection, StoreError};
use redis::{ErrorKind, RedisError, ServerErrorKind};
use tls::{ClientTlsError, DialError, FileError};
use tokio_rustls::rustls;

use super::address::Address;
use super::url::RedisUrlError;

/// Error codes that mean: the server refuses this client.
const FORBIDDEN_CODES: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];

/// Messages that mean the same without such a code: redis-rs drops the code of SELECT errors, and if a script uses a
/// forbidden command, Redis reports it with the code ERR.
const FORBIDDEN_MESSAGES: [&str; 4] = [
    "DB index is out of range",
    "Authentication required",
    "no permissions",
    "The user executing the script",
];

/// Why a store cannot be created from the options.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// The URL is invalid. The message does not quote it.
    #[error("invalid Redis URL: {0}")]
    Url(#[from] RedisUrlError),
    /// The password file is unreadable, or its first line is not a password.
    #[error("cannot use the password file: {0}")]
    PasswordFile(FileError),
    /// A certificate, a key or the trust store is invalid.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] ClientTlsError),
    #[error("no Redis URL given")]
    NoUrl,
    /// An option that must be at least 1 is 0.
    #[error("{0} must be at least 1")]
    Zero(&'static str),
}

#[derive(Debug)]
pub(crate) enum CommandError {
    /// `NOSCRIPT`: the script did not run.
    NoScript,
    /// A cluster redirect: the script did not run on this server. `error` is reported if no other server can be asked.
    Redirected { redirect: Redirect, error: StoreError },
    /// Any other error. The command may have run.
    Failed(StoreError),
}

/// A cluster node's refusal of a command for a slot that it does not serve alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// `MOVED`: another node has the slot. An empty host means the answering node's host.
    Moved(Address),
    /// `ASK`: the slot is migrating; only this request goes to the other node.
    Ask(Address),
    /// `TRYAGAIN`: the slot is migrating, and the command's keys are on both nodes.
    TryAgain,
    /// `CLUSTERDOWN`: no node serves the slot.
    Down,
}

#[derive(Debug)]
pub(crate) enum RouteError {
    /// The request may have been decided, or cannot be decided now.
    Failed(StoreError),
    /// The slot is migrating, and the request's keys are on both nodes: they can only be decided one at a time.
    SlotMigrating,
}

impl Redirect {
    fn from_error(error: &RedisError) -> Option<Self> {
        let ErrorKind::Server(kind) = error.kind() else { return None };
        let address = || Address::parse(error.redirect_node()?.0);
        match kind {
            ServerErrorKind::Moved => address().map(Self::Moved),
            ServerErrorKind::Ask => address().map(Self::Ask),
            ServerErrorKind::TryAgain => Some(Self::TryAgain),
            ServerErrorKind::ClusterDown => Some(Self::Down),
            _ => None,
        }
    }
}

impl From<Redirect> for StoreError {
    fn from(redirect: Redirect) -> Self {
        Self::Refused(match redirect {
            Redirect::Moved(_) | Redirect::Ask(_) => "another node of the cluster has the slot".to_owned(),
            Redirect::TryAgain => "the keys are being moved to another node".to_owned(),
            Redirect::Down => "the cluster does not serve the slot".to_owned(),
        })
    }
}

impl From<StoreError> for RouteError {
    fn from(failure: StoreError) -> Self {
        Self::Failed(failure)
    }
}

impl From<RouteError> for StoreError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::Failed(failure) => failure,
            RouteError::SlotMigrating => Redirect::TryAgain.into(),
        }
    }
}

impl From<CommandError> for StoreError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoScript => Self::Refused("the server has forgotten the script".to_owned()),
            CommandError::Redirected { error, .. } | CommandError::Failed(error) => error,
        }
    }
}

impl From<RedisError> for CommandError {
    fn from(error: RedisError) -> Self {
        if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
            Self::NoScript
        } else if let Some(redirect) = Redirect::from_error(&error) {
            Self::Redirected { redirect, error: store_error(error) }
        } else {
            Self::Failed(store_error(error))
        }
    }
}

pub(crate) fn store_error(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreError::Timeout,
        ErrorKind::Io => match tls_alert(&error) {
            Some(reason) => StoreError::Tls { address: "the server".to_owned(), reason },
            None => StoreError::Unreachable(NoConnection { was_open: true, ..error.to_string().into() }),
        },
        ErrorKind::UnexpectedReturnType | ErrorKind::Parse => StoreError::Malformed(error.to_string()),
        ErrorKind::Server(ServerErrorKind::ReadOnly) => StoreError::ReadOnly(server_message(&error)),
        _ if is_forbidden(&error) => StoreError::Forbidden(server_message(&error)),
        _ => StoreError::Refused(server_message(&error)),
    }
}

/// Returns the alert with which the server refuses this process's certificate. In TLS 1.3 it arrives in place of the
/// first reply, and redis-rs passes on only its message.
fn tls_alert(error: &RedisError) -> Option<String> {
    const ALERT: &str = "received fatal alert: ";
    let text = error.to_string();
    text.find(ALERT).map(|at| text[at..].to_owned())
}

/// Maps a handshake error. A server without AUTH repeats the arguments of AUTH in its error: they are removed.
pub(crate) fn handshake_error(error: RedisError) -> StoreError {
    let redact_args = |text: String| match text.split_once(", with args") {
        Some((message, _)) => message.to_owned(),
        None => text,
    };
    match store_error(error) {
        StoreError::Refused(text) => StoreError::Refused(redact_args(text)),
        StoreError::Forbidden(text) => StoreError::Forbidden(redact_args(text)),
        StoreError::Unreachable(reason) => StoreError::Unreachable(redact_args(reason.full).into()),
        StoreError::Malformed(text) => StoreError::Malformed(redact_args(text)),
        other => other,
    }
}

/// Maps the error of a connection to `host`. `place` is the host with its port.
pub(crate) fn dial_error(host: &str, place: &str, error: DialError) -> StoreError {
    match error {
        DialError::Timeout => StoreError::Timeout,
        DialError::Resolve(error) | DialError::Connect(error) => unreachable_at(&place)(error),
        DialError::Tls(error) => {
            match error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>()) {
                Some(reason) => StoreError::Tls { address: host.to_owned(), reason: reason.to_string() },
                None => unreachable_at(&host)(error),
            }
        }
    }
}

/// Maps an error (DNS, TCP, TLS) of a connection to `place`.
pub(crate) fn unreachable_at<E: fmt::Display>(place: &dyn fmt::Display) -> impl Fn(E) -> StoreError + use<E> {
    let place = place.to_string();
    move |error| {
        let brief = error.to_string();
        StoreError::Unreachable(NoConnection { full: format!("{place}: {brief}"), brief, was_open: false })
    }
}

/// An option has become invalid since startup, such as a password file that was removed.
impl From<OptionsError> for StoreError {
    fn from(error: OptionsError) -> Self {
        let brief = match &error {
            OptionsError::PasswordFile(_) => "cannot use the password file",
            _ => "invalid connection settings",
        };
        Self::Unreachable(NoConnection { full: error.to_string(), brief: brief.to_owned(), was_open: false })
    }
}

/// The error of requests that a closed store does not send.
pub(crate) fn shut_down() -> StoreError {
    StoreError::Unreachable("the store has been shut down".into())
}

/// The error of requests whose task ended before answering them: it panicked, or its runtime ended.
pub(crate) fn ended_without_answer() -> StoreError {
    let reason = "the task of the request ended without an answer".into();
    StoreError::Unreachable(NoConnection { was_open: true, ..reason })
}

/// Returns the error exactly as the server sent it, `READONLY You can't write ...`: operators search for it.
fn server_message(error: &RedisError) -> String {
    match (error.kind(), error.code(), error.detail()) {
        (ErrorKind::Server(_) | ErrorKind::Extension, Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// `true` if the server refuses this client, not just this command.
fn is_forbidden(error: &RedisError) -> bool {
    let message = error.detail().unwrap_or_default();
    error.kind() == ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| FORBIDDEN_CODES.contains(&code))
        || FORBIDDEN_MESSAGES.iter().any(|forbidden| message.contains(forbidden))
}
