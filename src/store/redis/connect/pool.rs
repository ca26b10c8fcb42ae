//! The connections: a capped pool whose connections remember that they broke, and which fails at once while Redis
//! cannot be reached. Knows how to connect; knows nothing of what is sent.

use std::convert::Infallible;
use std::time::Duration;

use bb8_redis::bb8::{ManageConnection, Pool, PooledConnection};
use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::dial::RawConnection;
use super::sentinel::MasterEpoch;
use super::target::Target;
use crate::engine::StoreError;
use crate::store::redis::error::{CommandError, store_error};
use crate::store::redis::script;

/// The longest a connection may take to come up, script and all.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// After a failed attempt there is no other for about so long: callers learn of the outage at once, Redis is not stormed,
/// and its return is still noticed soon. Half of it more or less, so that not all workers come back in one instant.
const PAUSE: Duration = Duration::from_millis(50);

/// A connection that was not used for so long, which happens to a process that was suspended, is asked whether it still is
/// one.
const CHECK_AFTER_IDLE: Duration = Duration::from_secs(2);

/// A connection that cannot be had for so long is not to be had.
pub(crate) const CHECKOUT_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_mul(2);

pub(crate) type ConnectionPool = Pool<Connector>;

/// A connection, or why there is none. A failed attempt is handed out like a connection, so that nobody waits for a
/// success that is not in sight.
pub(crate) type ConnectResult = Result<Connection, ConnectFailure>;

/// Why there is no connection, and for how long that is taken for granted.
#[derive(Clone, Debug)]
pub(crate) struct ConnectFailure {
    pub(crate) cause: StoreError,
    /// Until then there is no other attempt.
    stands_until: Instant,
}

/// Makes connections.
#[derive(Debug)]
pub(crate) struct Connector {
    target: Target,
    last_failure: Mutex<Option<ConnectFailure>>,
}

/// A connection that remembers whether it can still be used.
#[derive(Debug)]
pub(crate) struct Connection {
    raw: RawConnection,
    /// How long the server is the one to ask, if that can end.
    epoch: Option<MasterEpoch>,
    broken: bool,
    last_used: Instant,
    /// The server behind it cannot decide, though it answers: a replica, or one that is still loading.
    unfit: Option<StoreError>,
}

/// At most `size` connections, none of them made yet.
pub(crate) fn connection_pool(target: Target, size: u32) -> ConnectionPool {
    let connector = Connector { target, last_failure: Mutex::new(None) };
    Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .max_lifetime(None)
        .idle_timeout(None)
        .connection_timeout(CHECKOUT_TIMEOUT)
        .build_unchecked(connector)
}

impl ManageConnection for Connector {
    type Connection = ConnectResult;
    type Error = Infallible;

    async fn connect(&self) -> Result<ConnectResult, Infallible> {
        if let Some(failure) = self.last_failure.lock().clone().filter(|failure| !failure.is_stale()) {
            return Ok(Err(failure));
        }
        let attempt = timeout(CONNECT_TIMEOUT, Connection::open(&self.target)).await;
        let attempt = attempt.unwrap_or(Err(StoreError::Timeout)).map_err(ConnectFailure::now);
        *self.last_failure.lock() = attempt.as_ref().err().cloned();
        Ok(attempt)
    }

    async fn is_valid(&self, _attempt: &mut ConnectResult) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, attempt: &mut ConnectResult) -> bool {
        let Ok(link) = attempt else { return true };
        if let Some(failure) = link.unfit.take() {
            // A new connection may lead to another server, but not any sooner than after a failed attempt.
            *self.last_failure.lock() = Some(ConnectFailure::now(failure));
            return true;
        }
        link.broken
    }
}

impl ConnectFailure {
    fn now(cause: StoreError) -> Self {
        Self { cause, stands_until: Instant::now() + PAUSE * fastrand::u32(50..=150) / 100 }
    }

    /// Whether it is worth trying again.
    fn is_stale(&self) -> bool {
        Instant::now() >= self.stands_until
    }
}

/// A connection, or why there is none, by `deadline`.
pub(crate) async fn checkout(
    pool: &ConnectionPool,
    deadline: Instant,
) -> Result<PooledConnection<'_, Connector>, StoreError> {
    loop {
        // The attempt itself goes on when this wait ends.
        let Ok(Ok(attempt)) = timeout_at(deadline, pool.get()).await else {
            return Err(StoreError::Timeout);
        };
        // One that failed while nobody waited for it says nothing of now.
        if !attempt.as_ref().is_err_and(ConnectFailure::is_stale) {
            return Ok(attempt);
        }
    }
}

impl Connection {
    /// Connects and makes the script known.
    pub(crate) async fn open(target: &Target) -> Result<Self, StoreError> {
        let (mut raw, epoch) = target.connect().await?;
        // A server that lets nobody in cuts off whoever sends it much, the script for one, without a word that arrives.
        let _: String = redis::cmd("PING").query_async(&mut raw.connection).await.map_err(store_error)?;
        let () = script::load().query_async(&mut raw.connection).await.map_err(store_error)?;
        Ok(Self { raw, epoch, broken: false, last_used: Instant::now(), unfit: None })
    }

    /// Whether it can be used: asked of the server, which may take `patience`, where it was idle for long; taken for granted
    /// where it was not.
    pub(crate) async fn is_alive(&mut self, patience: Duration) -> bool {
        if !self.is_usable() {
            return false;
        }
        if self.last_used.elapsed() < CHECK_AFTER_IDLE {
            return true;
        }
        self.ping(patience).await
    }

    /// Asks the server for a sign of life, and gives up a connection that brings none in `patience`, nor in the time in
    /// which a new one would come up.
    pub(crate) async fn keep_alive(&mut self, patience: Duration) {
        if self.is_usable() {
            self.ping(patience.max(CONNECT_TIMEOUT)).await;
        }
    }

    /// Whether it is open, and the server still the one to ask.
    fn is_usable(&mut self) -> bool {
        let is_usable = self.raw.is_open() && self.epoch.as_ref().is_none_or(MasterEpoch::is_current);
        self.broken |= !is_usable;
        is_usable
    }

    async fn ping(&mut self, patience: Duration) -> bool {
        let answer = self.query::<String>(&redis::cmd("PING"), Instant::now() + patience).await;
        // An error that is an answer will be met again by the requests, who are told of it.
        answer.is_ok() || !self.broken
    }

    /// It is not to be used again.
    pub(crate) fn mark_broken(&mut self) {
        self.broken = true;
    }

    /// Sends a command and waits for its answer until `deadline`.
    pub(crate) async fn query<T: FromRedisValue>(
        &mut self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let answer = timeout_at(deadline, command.query_async(&mut self.raw.connection)).await;
        self.settle(answer)
    }

    /// Sends commands together and waits for all their answers until `deadline`.
    pub(crate) async fn query_pipeline<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let answers = timeout_at(deadline, commands.query_async(&mut self.raw.connection)).await;
        self.settle(answers)
    }

    /// As [`Connection::ask_all`], each command with an error of its own.
    pub(crate) async fn query_each<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Result<T, CommandError>>, CommandError> {
        let answers: Vec<RedisResult<T>> = self.query_pipeline(commands, deadline).await?;
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
        let failure = CommandError::from(error);
        if let (true, CommandError::Failed(cause)) = (is_unfit, &failure) {
            self.unfit = Some(cause.clone());
        }
        failure
    }
}
