//! The connections: a capped pool whose connections remember that they broke, and which fails at once while Redis
//! cannot be reached. Knows how to connect; knows nothing of what is sent.

use std::convert::Infallible;
use std::time::Duration;

use bb8_redis::bb8::{ManageConnection, Pool, PooledConnection};
use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial::Wire;
use super::script;
use super::sentinel::{Term, Way};
use super::setback::Redirect;
use crate::engine::StoreError;

/// The longest a connection may take to come up, script and all.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// After a failed attempt there is no other for about so long: callers learn of the outage at once, Redis is not stormed,
/// and its return is still noticed soon. Half of it more or less, so that not all workers come back in one instant.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection that was not used for so long, which happens to a process that was suspended, is asked whether it still is
/// one.
const TRUSTED_FOR: Duration = Duration::from_secs(2);

/// A connection that cannot be had for so long is not to be had.
pub(super) const PATIENCE: Duration = CONNECT_TIMEOUT.saturating_mul(2);

/// What a server answers whoever it does not let in.
const FORBIDDEN: [&str; 3] = ["NOAUTH", "WRONGPASS", "NOPERM"];

/// What it says where the library keeps only the words: of SELECT.
const FORBIDDEN_WORDS: [&str; 3] = ["DB index is out of range", "Authentication required", "no permissions"];

pub(super) type LinkPool = Pool<Links>;

/// A connection, or why there is none. A failed attempt is handed out like a connection, so that nobody waits for a
/// success that is not in sight.
pub(super) type Attempt = Result<Link, Failure>;

/// Why there is no connection, and for how long that is taken for granted.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    pub(super) cause: StoreError,
    /// Until then there is no other attempt.
    stands_until: Instant,
}

/// Makes connections.
#[derive(Debug)]
pub(super) struct Links {
    way: Way,
    last_failure: Mutex<Option<Failure>>,
}

/// A connection that remembers whether it can still be used.
#[derive(Debug)]
pub(super) struct Link {
    wire: Wire,
    /// How long the server is the one to ask, if that can end.
    term: Option<Term>,
    broken: bool,
    last_used: Instant,
    /// The server behind it cannot decide, though it answers: a replica, or one that is still loading.
    unfit: Option<StoreError>,
}

/// Why a command has no answer.
#[derive(Debug)]
pub(super) enum CommandError {
    /// The server does not know the script: it surely did not run.
    NoScript,
    /// Another server is to be asked: it surely did not run here. Also as an error, where there is no other.
    Redirected { redirect: Redirect, said: StoreError },
    /// Anything else. Whether the command ran is not known.
    Failed(StoreError),
}

/// At most `size` connections, none of them made yet.
pub(super) fn pool(way: Way, size: u32) -> LinkPool {
    let links = Links { way, last_failure: Mutex::new(None) };
    Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .max_lifetime(None)
        .idle_timeout(None)
        .connection_timeout(PATIENCE)
        .build_unchecked(links)
}

impl ManageConnection for Links {
    type Connection = Attempt;
    type Error = Infallible;

    async fn connect(&self) -> Result<Attempt, Infallible> {
        if let Some(failure) = self.last_failure.lock().clone().filter(|failure| !failure.is_stale()) {
            return Ok(Err(failure));
        }
        let attempt = timeout(CONNECT_TIMEOUT, Link::open(&self.way)).await;
        let attempt = attempt.unwrap_or(Err(StoreError::Timeout)).map_err(Failure::now);
        *self.last_failure.lock() = attempt.as_ref().err().cloned();
        Ok(attempt)
    }

    async fn is_valid(&self, _attempt: &mut Attempt) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, attempt: &mut Attempt) -> bool {
        let Ok(link) = attempt else { return true };
        if let Some(failure) = link.unfit.take() {
            // A new connection may lead to another server, but not any sooner than after a failed attempt.
            *self.last_failure.lock() = Some(Failure::now(failure));
            return true;
        }
        link.broken
    }
}

impl Failure {
    fn now(cause: StoreError) -> Self {
        Self { cause, stands_until: Instant::now() + PAUSE * fastrand::u32(50..=150) / 100 }
    }

    /// Whether it is worth trying again.
    fn is_stale(&self) -> bool {
        Instant::now() >= self.stands_until
    }
}

/// A connection, or why there is none, by `deadline`.
pub(super) async fn connection(
    pool: &LinkPool,
    deadline: Instant,
) -> Result<PooledConnection<'_, Links>, StoreError> {
    loop {
        // The attempt itself goes on when this wait ends.
        let Ok(Ok(attempt)) = timeout_at(deadline, pool.get()).await else {
            return Err(StoreError::Timeout);
        };
        // One that failed while nobody waited for it says nothing of now.
        if !attempt.as_ref().is_err_and(Failure::is_stale) {
            return Ok(attempt);
        }
    }
}

impl Link {
    /// Connects and makes the script known.
    pub(super) async fn open(way: &Way) -> Result<Self, StoreError> {
        let (mut wire, term) = way.open().await?;
        // A server that lets nobody in cuts off whoever sends it much, the script for one, without a word that arrives.
        let _: String = redis::cmd("PING").query_async(&mut wire.connection).await.map_err(store_error)?;
        let () = script::load().query_async(&mut wire.connection).await.map_err(store_error)?;
        Ok(Self { wire, term, broken: false, last_used: Instant::now(), unfit: None })
    }

    /// Whether it can be used: asked of the server, which may take `patience`, where it was idle for long; taken for granted
    /// where it was not.
    pub(super) async fn is_alive(&mut self, patience: Duration) -> bool {
        if !self.leads_on() {
            return false;
        }
        if self.last_used.elapsed() < TRUSTED_FOR {
            return true;
        }
        self.answers(patience).await
    }

    /// Asks the server for a sign of life, and gives up a connection that brings none in `patience`, nor in the time in
    /// which a new one would come up.
    pub(super) async fn look_after(&mut self, patience: Duration) {
        if self.leads_on() {
            self.answers(patience.max(CONNECT_TIMEOUT)).await;
        }
    }

    /// Whether it is open, and the server still the one to ask.
    fn leads_on(&mut self) -> bool {
        let leads_on = self.wire.is_open() && self.term.as_ref().is_none_or(Term::lasts);
        self.broken |= !leads_on;
        leads_on
    }

    async fn answers(&mut self, patience: Duration) -> bool {
        let answer = self.ask::<String>(&redis::cmd("PING"), Instant::now() + patience).await;
        // An error that is an answer will be met again by the requests, who are told of it.
        answer.is_ok() || !self.broken
    }

    /// It is not to be used again.
    pub(super) fn give_up(&mut self) {
        self.broken = true;
    }

    /// Sends a command and waits for its answer until `deadline`.
    pub(super) async fn ask<T: FromRedisValue>(
        &mut self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let answer = timeout_at(deadline, command.query_async(&mut self.wire.connection)).await;
        self.settle(answer)
    }

    /// Sends commands together and waits for all their answers until `deadline`.
    pub(super) async fn ask_all<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let answers = timeout_at(deadline, commands.query_async(&mut self.wire.connection)).await;
        self.settle(answers)
    }

    /// As [`Link::ask_all`], each command with an error of its own.
    pub(super) async fn ask_each<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Result<T, CommandError>>, CommandError> {
        let answers: Vec<RedisResult<T>> = self.ask_all(commands, deadline).await?;
        Ok(answers.into_iter().map(|answer| answer.map_err(|error| self.failed(error))).collect())
    }

    fn settle<T>(&mut self, answer: Result<RedisResult<T>, Elapsed>) -> Result<T, CommandError> {
        match answer {
            Ok(Ok(answer)) => {
                self.last_used = Instant::now();
                Ok(answer)
            }
            Ok(Err(error)) => Err(self.failed(error)),
            Err(_elapsed) => {
                self.broken = true;
                Err(CommandError::Failed(StoreError::Timeout))
            }
        }
    }

    /// What an error says of this connection, and of the command.
    fn failed(&mut self, error: RedisError) -> CommandError {
        // After an answer of the wrong shape, nobody knows whose answer the next one is.
        let is_misread = error.kind() == ErrorKind::UnexpectedReturnType;
        self.broken |= error.is_io_error() || error.is_unrecoverable_error() || is_misread;
        let is_unfit = matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
            )
        );
        let failure = command_error(error);
        if let (true, CommandError::Failed(cause)) = (is_unfit, &failure) {
            self.unfit = Some(cause.clone());
        }
        failure
    }
}

impl From<CommandError> for StoreError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NoScript => Self::Refused("the server has forgotten the script".to_owned()),
            CommandError::Redirected { said: failure, .. } | CommandError::Failed(failure) => failure,
        }
    }
}

fn command_error(error: RedisError) -> CommandError {
    if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) {
        CommandError::NoScript
    } else if let Some(redirect) = Redirect::of(&error) {
        CommandError::Redirected { redirect, said: store_error(error) }
    } else {
        CommandError::Failed(store_error(error))
    }
}

/// The one place where an error of the client library becomes one of the port.
pub(super) fn store_error(error: RedisError) -> StoreError {
    match error.kind() {
        ErrorKind::Io if error.is_timeout() => StoreError::Timeout,
        ErrorKind::Io => StoreError::Unreachable(error.to_string()),
        ErrorKind::UnexpectedReturnType | ErrorKind::Parse => StoreError::Malformed(error.to_string()),
        _ if is_forbidden(&error) => StoreError::Forbidden(words(&error)),
        _ => StoreError::Refused(words(&error)),
    }
}

/// A server's error as it sent it, `READONLY You can't write ...`: what people search for.
fn words(error: &RedisError) -> String {
    match (error.kind(), error.code(), error.detail()) {
        (ErrorKind::Server(_) | ErrorKind::Extension, Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}

/// Whether the server turns away this process, and not a single call.
fn is_forbidden(error: &RedisError) -> bool {
    let words = error.detail().unwrap_or_default();
    error.kind() == ErrorKind::AuthenticationFailed
        || error.code().is_some_and(|code| FORBIDDEN.contains(&code))
        || FORBIDDEN_WORDS.iter().any(|forbidden| words.contains(forbidden))
}
