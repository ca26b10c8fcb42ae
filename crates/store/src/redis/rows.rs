//! Keeps rows that are set while the service runs (lua/rows.lua), and each instance's status. What a row says is up to
//! the service.
//!
//! These are side calls: they use a separate connection, and neither a queue nor a breaker. So they cannot delay or
//! fail a decision.

use std::time::Duration;

use engine::StoreError;
use parking_lot::Mutex;
use redis::{Cmd, FromRedisValue, Pipeline};
use tokio::time::{Instant, timeout_at};

use super::RedisStore;
use super::connect::Connection;
use super::error::CommandError;
use super::node::{CallMode, Node};
use super::script::{ScriptRef, rows_command};
use super::slot::slot_of_key;

/// Maximum time of a side call, including connecting and redirects.
pub(super) const SIDE_CALL_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time of the PING after which a connection that was idle is used again.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// Ends later than this many microseconds since the epoch, in 2255, are stored as this: Lua uses doubles.
const LATEST_END_US: u64 = (1 << 53) - 1;

/// A row as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRow {
    pub id: String,
    /// Unique among all rows, below 2^52, and greater for each change of any row. At least the time at which the row
    /// changed, in microseconds since the epoch.
    pub version: u64,
    /// Microseconds since the epoch; `None` if the row never ends.
    pub until_us: Option<u64>,
    /// Of a ban: how many bans came before it, each soon after the other. Otherwise 0.
    pub level: u32,
    /// As in [`RowPut::is_automatic`].
    pub is_automatic: bool,
    /// What the row says; `None` if it was removed.
    pub json: Option<String>,
}

/// Changed rows, by rising version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowsPage {
    /// Sum of all stored rows' versions, removed rows included, modulo 2^52.
    pub sum: u64,
    /// The server's time in microseconds since the epoch.
    pub now_us: u64,
    /// Pass this as `since` for the next page.
    pub last: u64,
    pub rows: Vec<StoredRow>,
    /// Ids of rows that another program damaged. They are no longer stored, and not part of `sum`.
    pub skipped: Vec<String>,
    /// `true` if there may be a next page.
    pub is_full: bool,
}

/// A row to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowPut {
    pub id: String,
    pub kind: PutKind,
    /// Microseconds since the epoch; `None` for a row without end. Unused by a ban, whose end the server computes.
    pub until_us: Option<u64>,
    /// `true` for a row of a penalty or of feedback. At most 20,000 of the 100,000 rows can be automatic.
    pub is_automatic: bool,
    /// What the row says; `None` to remove it. Unused by a drop.
    pub json: Option<String>,
}

/// When a row is written, and with which version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutKind {
    /// Sets the row if its version is this; `Some(0)`: if no row is in effect. `None`: in any case.
    Set { if_version: Option<u64> },
    /// Unless a row is in effect that does not end earlier.
    Later,
    /// Unless a row is in effect. If the last ban ended less than `max_us` ago, this one reaches the next level. Its
    /// length is `for_us` x `grow`^level, at most `max_us`; all in microseconds.
    Ban { for_us: u64, grow: u64, max_us: u64 },
    /// If the row is absent or older than this version, which it keeps. Needs no room.
    Restore { version: u64, level: u32 },
    /// Deletes the row if its version is this, and it was removed or ended at least 7 days ago. An automatic row need
    /// only be over.
    Drop { version: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// For a drop, `version` is 0.
    Written { version: u64, until_us: Option<u64>, level: u32 },
    /// This row is in effect: it ends later, or the value is banned already.
    Kept(StoredRow),
    /// A restore or a drop does not apply to the stored row.
    Newer,
    /// The stored version differs; `None` if the row does not exist. No row of the call is written.
    Conflict(Option<StoredRow>),
    /// There are 100,000 rows, or 20,000 automatic ones. No row of the call is written. To free space, drop automatic
    /// rows that are over.
    Full,
    /// Nothing speaks against this row, but another one of the call is refused.
    Unwritten,
}

/// Describes an instance that polled in the last day.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    pub name: String,
    /// Microseconds since its last poll, by the server's clock.
    pub age_us: u64,
    /// What it said of itself.
    pub status: String,
}

impl RowPut {
    fn arguments(&self) -> [String; 8] {
        let (kind, numbers) = match self.kind {
            PutKind::Set { if_version } => ("set", [if_version, None, None]),
            PutKind::Later => ("later", [None; 3]),
            PutKind::Ban { for_us, grow, max_us } => ("ban", [Some(for_us), Some(grow), Some(max_us)]),
            PutKind::Restore { version, level } => ("restore", [Some(version), Some(level.into()), None]),
            PutKind::Drop { version } => ("drop", [Some(version), None, None]),
        };
        let [first, second, third] =
            numbers.map(|number| number.map_or_else(String::new, |number| number.to_string()));
        let until_us = self.until_us.unwrap_or(0).min(LATEST_END_US).to_string();
        let json = self.json.clone().filter(|_| kind != "drop").unwrap_or_default();
        let is_automatic = u8::from(self.is_automatic).to_string();
        [self.id.clone(), kind.to_owned(), until_us, is_automatic, json, first, second, third]
    }
}

impl RedisStore {
    /// Returns up to 1,000 rows with a version above `since`, and stores what the instance says of itself, unless it is
    /// empty. A restored row keeps its version: only another sum shows that it is back.
    ///
    /// # Errors
    /// [`StoreError`] if Redis does not answer within 2 s.
    pub async fn poll_rows(&self, since: u64, instance: &str, status: &str) -> Result<RowsPage, StoreError> {
        let arguments = ["poll", &since.to_string(), instance, status].map(str::to_owned);
        let (sum, now_us, last, is_full, found) = self.call_rows(&arguments).await?;
        let found: Vec<(Vec<u8>, Option<Vec<u8>>)> = found;
        let mut page = RowsPage { sum, now_us, last, rows: Vec::new(), skipped: Vec::new(), is_full };
        for (id, text) in found {
            let id = String::from_utf8_lossy(&id).into_owned();
            match text {
                Some(text) => page.rows.push(stored_row(id, &text)?),
                None => page.skipped.push(id),
            }
        }
        Ok(page)
    }

    /// Writes all rows, or none if one is refused. New versions are greater than `known_version`, the greatest that the
    /// caller read. Returns one result per row.
    ///
    /// # Errors
    /// [`StoreError`] if Redis does not answer within 2 s. The rows may be written nevertheless.
    pub async fn put_rows(&self, known_version: u64, rows: &[RowPut]) -> Result<Vec<PutResult>, StoreError> {
        let mut arguments = vec!["put".to_owned(), known_version.to_string()];
        arguments.extend(rows.iter().flat_map(RowPut::arguments));
        let results: Vec<(String, Option<Vec<u8>>)> = self.call_rows(&arguments).await?;
        if results.len() != rows.len() {
            return Err(StoreError::Malformed("not one result for each row".to_owned()));
        }
        let results = rows.iter().zip(results);
        results.map(|(row, (result, text))| put_result(row.id.clone(), &result, text.as_deref())).collect()
    }

    /// Returns the instances that polled in the last day, and deletes the others.
    ///
    /// # Errors
    /// [`StoreError`] if Redis does not answer within 2 s.
    pub async fn instances(&self) -> Result<Vec<Instance>, StoreError> {
        let instances: Vec<(String, u64, String)> = self.call_rows(&["instances".to_owned()]).await?;
        Ok(instances.into_iter().map(|(name, age_us, status)| Instance { name, age_us, status }).collect())
    }

    async fn call_rows<T: FromRedisValue>(&self, arguments: &[String]) -> Result<T, StoreError> {
        let backends = &self.handle.backends;
        let key = |name: &str| format!("{}{{exceptions}}:{name}", backends.options.key_prefix);
        let keys = ["rows", "changes", "instances"].map(key);
        self.side_call(&keys, &|script| rows_command(script, &keys, arguments)).await
    }
}

impl RedisStore {
    /// Sends a command whose keys are in one slot.
    pub(super) async fn side_call<T: FromRedisValue>(
        &self,
        keys: &[String],
        command: &(dyn Fn(ScriptRef) -> Cmd + Sync),
    ) -> Result<T, StoreError> {
        let deadline = Instant::now() + SIDE_CALL_TIMEOUT;
        let call = SideCall { keys, command, deadline, connection: &self.handle.side_calls };
        self.handle.backends.side_call(&call).await
    }
}

/// Parses a row as lua/rows.lua stores it.
fn stored_row(id: String, text: &[u8]) -> Result<StoredRow, StoreError> {
    let text = String::from_utf8_lossy(text);
    let malformed = || StoreError::Malformed(format!("the row {id:?}"));
    let mut parts = text.splitn(5, ' ');
    let mut number = || parts.next().and_then(|part| part.parse::<u64>().ok()).ok_or_else(malformed);
    let (version, until_us, level, is_automatic) = (number()?, number()?, number()?, number()? == 1);
    let json = parts.next().ok_or_else(malformed)?;
    let json = (!json.is_empty()).then(|| json.to_owned());
    let level = u32::try_from(level).map_err(|_| malformed())?;
    let until_us = (until_us > 0).then_some(until_us);
    Ok(StoredRow { version, until_us, level, is_automatic, json, id })
}

fn put_result(id: String, result: &str, text: Option<&[u8]>) -> Result<PutResult, StoreError> {
    let row = text.map(|text| stored_row(id, text)).transpose()?;
    match (result, row) {
        ("written", Some(StoredRow { version, until_us, level, .. })) => {
            Ok(PutResult::Written { version, until_us, level })
        }
        ("kept", Some(row)) => Ok(PutResult::Kept(row)),
        ("newer", _) => Ok(PutResult::Newer),
        ("conflict", row) => Ok(PutResult::Conflict(row)),
        ("full", _) => Ok(PutResult::Full),
        ("unwritten", _) => Ok(PutResult::Unwritten),
        _ => Err(StoreError::Malformed(format!("the result {result:?}"))),
    }
}

/// Side calls share this connection, stored with its node's name; `None` while there is none, or a call uses it.
#[derive(Debug, Default)]
pub(super) struct SideConnection(Mutex<Option<(String, Connection)>>);

impl SideConnection {
    /// Returns the connection to a node, or a new one.
    pub(super) async fn take(&self, node: &Node, deadline: Instant) -> Result<Connection, StoreError> {
        let kept = self.0.lock().take();
        if let Some((_, mut connection)) = kept.filter(|(name, _)| name == node.name())
            && connection.is_alive(PING_TIMEOUT).await
        {
            return Ok(connection);
        }
        timeout_at(deadline, Connection::open(node.target())).await.unwrap_or(Err(StoreError::Timeout))
    }

    /// Keeps a connection for the next call.
    pub(super) fn keep(&self, node: &Node, connection: Connection) {
        *self.0.lock() = Some((node.name().to_owned(), connection));
    }
}

/// A command besides decisions.
pub(super) struct SideCall<'a> {
    /// In one slot.
    pub(super) keys: &'a [String],
    /// Builds the command. Only a script can be named in two ways.
    command: &'a (dyn Fn(ScriptRef) -> Cmd + Sync),
    pub(super) deadline: Instant,
    connection: &'a SideConnection,
}

impl SideCall<'_> {
    pub(super) fn slot(&self) -> u16 {
        slot_of_key(&self.keys[0])
    }

    /// Sends the call to a node. After an error the next call opens a new connection. So does a call that is made while
    /// another one waits.
    pub(super) async fn send<T: FromRedisValue>(
        &self,
        node: &Node,
        mode: CallMode,
    ) -> Result<T, CommandError> {
        let mut connection = self.connection.take(node, self.deadline).await.map_err(CommandError::Failed)?;
        let mut reply = self.query(&mut connection, mode, ScriptRef::Sha1).await;
        if matches!(reply, Err(CommandError::NoScript)) {
            reply = self.query(&mut connection, mode, ScriptRef::Text).await;
        }
        if reply.is_ok() {
            self.connection.keep(node, connection);
        }
        reply
    }

    async fn query<T: FromRedisValue>(
        &self,
        connection: &mut Connection,
        mode: CallMode,
        script: ScriptRef,
    ) -> Result<T, CommandError> {
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        if mode == CallMode::Asking {
            commands.cmd("ASKING").ignore();
        }
        commands.add_command((self.command)(script));
        let mut replies = connection.query_each(&commands, self.deadline).await?;
        let missing = || CommandError::Failed(StoreError::Malformed("no reply".to_owned()));
        replies.pop().ok_or_else(missing)?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::observer::NoopObserver;
    use crate::redis::options::RedisOptions;
    use crate::redis::testing::{FakeServer, Reply};

    fn store() -> RedisStore {
        let urls = vec!["redis://redis.test:6379".parse().expect("a Redis URL")];
        let options = RedisOptions { urls, ..RedisOptions::default() };
        RedisStore::new(&options, Arc::new(NoopObserver)).expect("good options")
    }

    /// Connections that the server accepted, without the connections for decisions.
    fn side_connections(server: &FakeServer, store: &RedisStore) -> u64 {
        server.connections() as u64 - store.connections_opened()
    }

    /// The reply if a poll finds these rows.
    fn page(rows: &[&str]) -> Reply {
        let rows = rows.iter().enumerate();
        let rows =
            rows.flat_map(|(n, text)| [Reply::Bulk(format!("row{n}")), Reply::Bulk((*text).to_owned())]);
        let numbers = [5, 6, 7, 0].map(Reply::Int);
        Reply::Array(numbers.into_iter().chain([Reply::Array(rows.collect())]).collect())
    }

    fn row(version: u64, until_us: Option<u64>, level: u32, is_automatic: bool, json: &str) -> StoredRow {
        let json = (!json.is_empty()).then(|| json.to_owned());
        StoredRow { id: "row0".to_owned(), version, until_us, level, is_automatic, json }
    }

    #[tokio::test(start_paused = true)]
    async fn rows_are_parsed_as_the_script_stores_them() {
        let server = FakeServer::listen("redis.test", 6_379, |_| None);
        let table = [
            ("17 0 0 0 {\"a\": \"b c\"}", row(17, None, 0, false, "{\"a\": \"b c\"}")),
            (
                "4503599627370495 9007199254740991 4294967295 1 ",
                row((1 << 52) - 1, Some(LATEST_END_US), u32::MAX, true, ""),
            ),
        ];
        let store = store();
        for (text, expected) in table {
            server.handle(move |command| (command[0] == "EVALSHA").then(|| page(&[text])));
            let expected = RowsPage {
                sum: 5,
                now_us: 6,
                last: 7,
                rows: vec![expected],
                skipped: Vec::new(),
                is_full: false,
            };
            assert_eq!(store.poll_rows(3, "here", "{}").await, Ok(expected));
        }
        assert_eq!(server.commands("EVALSHA")[0][6..], ["poll", "3", "here", "{}"]);
        for text in ["", "1 2 3 4", "1 2 -3 0 {}", "1 2 4294967296 0 {}", "a 2 3 0 {}"] {
            server.handle(move |command| (command[0] == "EVALSHA").then(|| page(&[text])));
            let result = store.poll_rows(0, "", "").await;
            assert!(matches!(result, Err(StoreError::Malformed(_))), "{text}: {result:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_put_has_eight_arguments_for_each_row_and_one_result() {
        let result = |name: &str| [Reply::Bulk(name.to_owned()), Reply::Nil];
        let server = FakeServer::listen("redis.test", 6_379, move |command| {
            (command[0] == "EVALSHA").then(|| Reply::Array(["newer", "full"].map(result).concat()))
        });
        let put = |kind, until_us, json: Option<&str>| RowPut {
            id: "id".to_owned(),
            kind,
            until_us,
            is_automatic: until_us.is_some(),
            json: json.map(str::to_owned),
        };
        let table = [
            (put(PutKind::Set { if_version: None }, None, None), ["id", "set", "0", "0", "", "", "", ""]),
            (
                put(PutKind::Set { if_version: Some(0) }, Some(9), Some("{}")),
                ["id", "set", "9", "1", "{}", "0", "", ""],
            ),
            (
                put(PutKind::Later, Some(u64::MAX), Some("{}")),
                ["id", "later", "9007199254740991", "1", "{}", "", "", ""],
            ),
            (
                put(PutKind::Ban { for_us: 1, grow: 2, max_us: 3 }, None, Some("{}")),
                ["id", "ban", "0", "0", "{}", "1", "2", "3"],
            ),
            (
                put(PutKind::Restore { version: 4, level: 5 }, None, None),
                ["id", "restore", "0", "0", "", "4", "5", ""],
            ),
            (put(PutKind::Drop { version: 6 }, None, Some("{}")), ["id", "drop", "0", "0", "", "6", "", ""]),
        ];
        let store = store();
        for pair in table.chunks(2) {
            let (puts, expected): (Vec<RowPut>, Vec<[&str; 8]>) = pair.iter().cloned().unzip();
            let results = store.put_rows(12, &puts).await;
            assert_eq!(results, Ok(vec![PutResult::Newer, PutResult::Full]));
            let sent = server.commands("EVALSHA").pop().expect("a call");
            assert_eq!(sent[6..8], ["put", "12"]);
            assert_eq!(sent[8..], *expected.as_flattened());
            let one = store.put_rows(12, &puts[..1]).await;
            assert_eq!(one, Err(StoreError::Malformed("not one result for each row".to_owned())));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_ends_after_two_seconds_and_the_next_one_opens_a_connection() {
        let server = FakeServer::listen("redis.test", 6_379, |command| {
            (command[0] == "EVALSHA").then_some(Reply::Silence)
        });
        let (store, started) = (store(), Instant::now());
        assert_eq!(store.poll_rows(0, "", "").await, Err(StoreError::Timeout));
        assert_eq!(started.elapsed(), SIDE_CALL_TIMEOUT);
        server.handle(|command| (command[0] == "EVALSHA").then(|| page(&[])));
        for _ in 0..3 {
            store.poll_rows(0, "", "").await.expect("an answer");
        }
        assert_eq!(side_connections(&server, &store), 2, "an answer keeps the connection");
        server.handle(|_| Some(Reply::Silence));
        let started = Instant::now();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert_eq!(store.poll_rows(0, "", "").await, Err(StoreError::Timeout));
        assert!(started.elapsed() < Duration::from_secs(60) + SIDE_CALL_TIMEOUT + PING_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_at_the_same_time_do_not_wait_for_each_other() {
        let second = Duration::from_secs(1);
        let server = FakeServer::listen("redis.test", 6_379, move |command| {
            (command[0] == "EVALSHA").then(|| Reply::After(second, Box::new(page(&[]))))
        });
        let (store, started) = (store(), Instant::now());
        let (one, other) = tokio::join!(store.poll_rows(0, "", ""), store.poll_rows(0, "", ""));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!((started.elapsed(), side_connections(&server, &store)), (second, 2));
        store.poll_rows(0, "", "").await.expect("an answer");
        assert_eq!(side_connections(&server, &store), 2, "one of them is kept");
    }
}
