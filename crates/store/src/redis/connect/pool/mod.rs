//! A bounded pool of connections. It replaces a broken connection, and while Redis is unreachable callers get the error
//! immediately.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bb8_redis::bb8::{ManageConnection, Pool, PooledConnection};
use engine::StoreError;
use parking_lot::Mutex;
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, RedisResult, ServerErrorKind};
use tokio::time::error::Elapsed;
use tokio::time::{Instant, timeout, timeout_at};

use super::Target;
use super::dial::RawConnection;
use super::sentinel::PrimaryEpoch;
use crate::redis::error::{CommandError, store_error};
use crate::redis::script;

/// Minimum time for opening a connection, including `SCRIPT LOAD`.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Round trips of `SCRIPT LOAD`: the scripts exceed TCP's initial window.
const LOAD_ROUND_TRIPS: u32 = 3;

/// Pause between a failed attempt to connect and the next one, plus or minus half so that workers do not connect in
/// step. During the pause callers get the error immediately; it is short, so that recovery is noticed soon.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// If a connection ends within this time, before it was used, it is short-lived. If its replacement is short-lived as
/// well, that counts as a failed attempt to connect: the server, or a proxy before it, accepts connections only to
/// close them.
const SHORT_LIFE: Duration = RETRY_PAUSE;

/// A connection opened within this time after a short-lived one ended is its replacement.
const REPLACED_WITHIN: Duration = Duration::from_secs(1);

/// A connection idle for this long is PINGed before use (for example after the process was suspended).
const CHECK_AFTER_IDLE: Duration = Duration::from_secs(2);

pub(crate) type ConnectionPool = Pool<Connector>;

/// A connection, or why there is none. The pool hands out failures like connections, so that callers do not wait for a
/// later attempt.
type ConnectResult = Result<Connection, ConnectFailure>;

#[derive(Clone, Debug)]
pub(crate) struct ConnectFailure {
    pub(crate) cause: StoreError,
    retry_at: Instant,
}

#[derive(Debug)]
pub(crate) struct Connector {
    target: Target,
    /// Connections opened. A new one can reach a restarted server.
    opened: Arc<AtomicU64>,
    last_failure: Mutex<Option<ConnectFailure>>,
    /// When the first short-lived connection since the last failure was noticed.
    short_lived_at: Mutex<Option<Instant>>,
}

/// A pooled connection that tracks whether it is still usable.
#[derive(Debug)]
pub(crate) struct Connection {
    raw: RawConnection,
    /// With sentinels: the connection leads to the primary while this epoch lasts.
    epoch: Option<PrimaryEpoch>,
    is_broken: bool,
    opened: Instant,
    last_used: Instant,
    /// `true` if it ended within [`SHORT_LIFE`], before it was used.
    is_short_lived: bool,
    /// Error of a server that answers but cannot decide: a replica, or a server that is still loading.
    cannot_decide: Option<StoreError>,
}

/// Returns a pool of at most `size` connections; none is opened yet. `opened` counts opened connections.
pub(crate) fn connection_pool(target: Target, size: u32, opened: Arc<AtomicU64>) -> ConnectionPool {
    let timeout = checkout_timeout(&target);
    let connector =
        Connector { target, opened, last_failure: Mutex::default(), short_lived_at: Mutex::default() };
    Pool::builder()
        .max_size(size)
        .test_on_check_out(false)
        .max_lifetime(None)
        .idle_timeout(None)
        .connection_timeout(timeout)
        .build_unchecked(connector)
}

/// Time limit for opening a connection: after [`Target::connect`] come PING and `SCRIPT LOAD`.
fn connect_timeout(target: &Target) -> Duration {
    target.connect_time(CONNECT_TIMEOUT, 1 + LOAD_ROUND_TRIPS)
}

/// Time limit for getting a connection: two attempts to connect.
pub(crate) fn checkout_timeout(target: &Target) -> Duration {
    2 * connect_timeout(target)
}

impl ManageConnection for Connector {
    type Connection = ConnectResult;
    type Error = Infallible;

    async fn connect(&self) -> Result<ConnectResult, Infallible> {
        if let Some(failure) = self.last_failure.lock().clone().filter(|failure| !failure.is_expired()) {
            return Ok(Err(failure));
        }
        let opened = timeout(connect_timeout(&self.target), Connection::open(&self.target)).await;
        let result = opened.unwrap_or(Err(StoreError::Timeout)).map_err(ConnectFailure::new);
        *self.last_failure.lock() = result.as_ref().err().cloned();
        if result.is_ok() {
            self.opened.fetch_add(1, Ordering::Relaxed);
        }
        Ok(result)
    }

    async fn is_valid(&self, _pooled: &mut ConnectResult) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, pooled: &mut ConnectResult) -> bool {
        let Ok(connection) = pooled else { return true };
        if let Some(failure) = connection.cannot_decide.take() {
            // A new connection can reach another server (DNS, sentinels), but only after the same pause.
            *self.last_failure.lock() = Some(ConnectFailure::new(failure));
            return true;
        }
        if connection.is_short_lived {
            self.record_short_lived(connection.opened);
        }
        connection.is_broken
    }
}

impl Connector {
    /// Records a short-lived connection. A single one can be chance, such as a `CLIENT KILL`. If its replacement is
    /// short-lived as well, the pool must pause: otherwise it would open connections without end.
    fn record_short_lived(&self, opened: Instant) {
        let mut short_lived_at = self.short_lived_at.lock();
        let is_replacement =
            short_lived_at.is_some_and(|noticed| opened >= noticed && opened - noticed < REPLACED_WITHIN);
        if is_replacement {
            let cause = StoreError::Unreachable("the server closes new connections".into());
            *self.last_failure.lock() = Some(ConnectFailure::new(cause));
        }
        if is_replacement || short_lived_at.is_none_or(|noticed| noticed.elapsed() >= REPLACED_WITHIN) {
            *short_lived_at = Some(Instant::now());
        }
    }
}

impl ConnectFailure {
    fn new(cause: StoreError) -> Self {
        Self { cause, retry_at: Instant::now() + RETRY_PAUSE * fastrand::u32(50..=150) / 100 }
    }

    /// `true` if the next attempt is due.
    fn is_expired(&self) -> bool {
        Instant::now() >= self.retry_at
    }
}

/// Returns a pooled connection, or why the last attempt to open one failed.
///
/// # Errors
/// [`StoreError::Timeout`] if there is neither by `deadline`.
pub(crate) async fn checkout(
    pool: &ConnectionPool,
    deadline: Instant,
) -> Result<PooledConnection<'_, Connector>, StoreError> {
    loop {
        // The attempt to connect continues after this wait.
        let Ok(Ok(pooled)) = timeout_at(deadline, pool.get()).await else {
            return Err(StoreError::Timeout);
        };
        // Skips expired failures.
        if !pooled.as_ref().is_err_and(ConnectFailure::is_expired) {
            return Ok(pooled);
        }
    }
}

impl Connection {
    /// Connects and loads the scripts.
    pub(crate) async fn open(target: &Target) -> Result<Self, StoreError> {
        let (mut raw, epoch) = target.connect().await?;
        // If a server requires a password, it closes the connection on a large command such as SCRIPT LOAD, and its
        // NOAUTH error is lost. A PING first reveals the error.
        let _: String = raw.query(&redis::cmd("PING")).await?;
        let load = async { script::load().query_async(&mut raw.connection).await.map_err(store_error) };
        let () = raw.timeouts.wait(LOAD_ROUND_TRIPS, load).await?;
        let opened = Instant::now();
        Ok(Self {
            raw,
            epoch,
            is_broken: false,
            opened,
            last_used: opened,
            is_short_lived: false,
            cannot_decide: None,
        })
    }

    /// `true` if the connection is usable. After a long idle time the server has to answer a PING within `limit`.
    pub(crate) async fn is_alive(&mut self, limit: Duration) -> bool {
        self.is_usable() && (self.last_used.elapsed() < CHECK_AFTER_IDLE || self.ping(limit).await)
    }

    /// PINGs the server. If it does not answer within the round-trip time of a new connection, marks the connection as
    /// broken. That says little about the server: the attempt to open another connection says more.
    pub(crate) async fn keep_alive(&mut self) {
        if self.is_usable() {
            self.ping(self.raw.timeouts.step(1)).await;
        }
    }

    /// `true` if the connection is open and leads to the primary.
    fn is_usable(&mut self) -> bool {
        let is_open = self.raw.is_open();
        self.is_short_lived = !is_open && self.is_unused() && self.opened.elapsed() < SHORT_LIFE;
        let is_usable = is_open && self.epoch.as_ref().is_none_or(PrimaryEpoch::is_current);
        self.is_broken |= !is_usable;
        is_usable
    }

    /// `true` if no command was answered on the connection.
    fn is_unused(&self) -> bool {
        self.last_used == self.opened
    }

    async fn ping(&mut self, limit: Duration) -> bool {
        let answer = self.query::<String>(&redis::cmd("PING"), Instant::now() + limit).await;
        // An error reply shows that the connection works. The next request reports the error.
        answer.is_ok() || !self.is_broken
    }

    pub(crate) fn mark_broken(&mut self) {
        self.is_broken = true;
    }

    /// Sends a command and waits for its reply until `deadline`.
    pub(crate) async fn query<T: FromRedisValue>(
        &mut self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let reply = timeout_at(deadline, command.query_async(&mut self.raw.connection)).await;
        self.check_reply(reply)
    }

    /// Sends commands in one pipeline and waits for all replies until `deadline`.
    pub(crate) async fn query_pipeline<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<T, CommandError> {
        let replies = timeout_at(deadline, commands.query_async(&mut self.raw.connection)).await;
        self.check_reply(replies)
    }

    /// Like [`Connection::query_pipeline`], with one result per command.
    pub(crate) async fn query_each<T: FromRedisValue>(
        &mut self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Result<T, CommandError>>, CommandError> {
        let replies: Vec<RedisResult<T>> = self.query_pipeline(commands, deadline).await?;
        Ok(replies.into_iter().map(|reply| reply.map_err(|error| self.check_error(error))).collect())
    }

    fn check_reply<T>(&mut self, reply: Result<RedisResult<T>, Elapsed>) -> Result<T, CommandError> {
        match reply {
            Ok(Ok(reply)) => {
                self.last_used = Instant::now();
                Ok(reply)
            }
            Ok(Err(error)) => Err(self.check_error(error)),
            Err(_elapsed) => {
                self.is_broken = true;
                Err(CommandError::Failed(StoreError::Timeout))
            }
        }
    }

    /// Records what an error implies for the connection and its server.
    fn check_error(&mut self, error: RedisError) -> CommandError {
        // After a reply of an unexpected type, replies may be out of step with their commands.
        let is_mismatch = error.kind() == ErrorKind::UnexpectedReturnType;
        self.is_broken |= error.is_io_error() || error.is_unrecoverable_error() || is_mismatch;
        let cannot_decide = matches!(
            error.kind(),
            ErrorKind::Server(
                ServerErrorKind::ReadOnly | ServerErrorKind::MasterDown | ServerErrorKind::BusyLoading
            )
        );
        let error = CommandError::from(error);
        if let (true, CommandError::Failed(cause)) = (cannot_decide, &error) {
            self.cannot_decide = Some(cause.clone());
        }
        error
    }
}

#[cfg(test)]
mod tests;
