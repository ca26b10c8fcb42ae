//! Which server is the primary: the sentinels are asked for every connection, and the server itself makes sure. That is
//! all a failover needs when the old primary's connections break, or it answers that it is a replica. One that goes on
//! as if nothing had happened, because it was moved away from on purpose or the network is cut in two, is found out by
//! watching.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

use super::dial::{Endpoint, RawConnection};
use super::dns::LOOKUP_TIMEOUT;
use crate::engine::StoreError;
use crate::store::redis::error::store_error;

/// A sentinel that does not answer within that is passed over. Longer than the lookup of a name, or an old address would
/// never be used.
const SENTINEL_TIMEOUT: Duration = LOOKUP_TIMEOUT.saturating_add(Duration::from_millis(40));

/// A server that is named and has not let us in within that is passed over: another sentinel may name another.
const MASTER_TIMEOUT: Duration = Duration::from_millis(150);

/// Between two looks at whether the primary still is one, in milliseconds, at random.
const LOOK_EVERY_MS: std::ops::RangeInclusive<u64> = 400..=800;

/// Where a server is.
type Place = (String, u16);

/// The way to the primary.
#[derive(Debug)]
pub(crate) struct Sentinels {
    endpoints: Vec<Endpoint>,
    master: String,
    /// How the servers themselves are spoken to.
    server: Endpoint,
    /// The sentinel to begin with: the one that knew last time, or the next one after it.
    first: AtomicUsize,
    /// Where the last connection led.
    current: Mutex<Option<Place>>,
    /// The way there.
    endpoint: Mutex<Option<(Place, Endpoint)>>,
    /// How many primaries there have been while connections to an earlier one were open.
    epochs: Arc<AtomicU64>,
}

/// The time in which a connection leads to the primary.
#[derive(Debug)]
pub(crate) struct MasterEpoch {
    number: u64,
    epochs: Arc<AtomicU64>,
}

impl MasterEpoch {
    /// Whether there is no later one.
    pub(super) fn is_current(&self) -> bool {
        self.epochs.load(Ordering::Relaxed) == self.number
    }
}

impl Sentinels {
    /// `endpoints` must not be empty.
    pub(super) fn new(endpoints: Vec<Endpoint>, master: String, server: Endpoint) -> Self {
        Self {
            endpoints,
            master,
            server,
            first: AtomicUsize::new(0),
            current: Mutex::default(),
            endpoint: Mutex::default(),
            epochs: Arc::default(),
        }
    }

    pub(super) async fn connect(&self) -> Result<(RawConnection, MasterEpoch), StoreError> {
        let first = self.first.load(Ordering::Relaxed);
        let number = self.epochs.load(Ordering::Relaxed);
        let mut last = StoreError::Unreachable("there is no sentinel".to_owned());
        for turn in 0..self.endpoints.len() {
            let sentinel = (first + turn) % self.endpoints.len();
            // Whoever gives up waiting for this one begins with the next.
            self.first.store((sentinel + 1) % self.endpoints.len(), Ordering::Relaxed);
            let opened = match self.ask(sentinel, &mut None).await {
                Ok(place) => {
                    let opened = timeout(MASTER_TIMEOUT, self.connect_master(&place)).await;
                    opened.unwrap_or(Err(StoreError::Timeout)).map(|wire| (wire, place))
                }
                Err(failure) => Err(failure),
            };
            match opened {
                Ok((wire, place)) => {
                    self.first.store(sentinel, Ordering::Relaxed);
                    return Ok((wire, self.term(number, place)));
                }
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// That of a connection whose opening began in the term of that number. It ends all others' that lead elsewhere.
    fn term(&self, number: u64, place: Place) -> MasterEpoch {
        let mut current = self.current.lock();
        let has_moved = current.as_ref().is_some_and(|current| *current != place);
        *current = Some(place);
        let number = if has_moved { self.epochs.fetch_add(1, Ordering::Relaxed) + 1 } else { number };
        MasterEpoch { number, epochs: Arc::clone(&self.epochs) }
    }

    /// Ends a term when most sentinels name another server than the one that connections lead to.
    pub(super) async fn watch(&self) -> Infallible {
        let mut wires: Vec<Option<RawConnection>> = self.endpoints.iter().map(|_| None).collect();
        loop {
            sleep(Duration::from_millis(fastrand::u64(LOOK_EVERY_MS))).await;
            let Some(current) = self.current.lock().clone() else { continue };
            let asked = wires.iter_mut().enumerate().map(|(sentinel, wire)| self.ask(sentinel, wire));
            let named = join_all(asked).await;
            let mut now = self.current.lock();
            if let Some(sentinel) = contradiction(&named, &current)
                && now.as_ref() == Some(&current)
            {
                // The next connection begins anew, with a sentinel that knows better.
                *now = None;
                self.first.store(sentinel, Ordering::Relaxed);
                self.epochs.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Whom a sentinel names. The connection to it is kept in `wire`, and taken from there.
    async fn ask(&self, sentinel: usize, wire: &mut Option<RawConnection>) -> Result<Place, StoreError> {
        let endpoint = &self.endpoints[sentinel];
        let open = wire.take();
        let asking = async {
            let mut open = match open {
                Some(open) => open,
                None => endpoint.connect().await?,
            };
            let mut question = redis::cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master);
            let named: Option<Place> =
                question.query_async(&mut open.connection).await.map_err(store_error)?;
            Ok((open, named))
        };
        let (open, named) = timeout(SENTINEL_TIMEOUT, asking).await.unwrap_or(Err(StoreError::Timeout))?;
        *wire = Some(open);
        let unknown = || format!("the sentinel {endpoint:?} knows no master {:?}", self.master);
        named.ok_or_else(|| StoreError::Refused(unknown()))
    }

    /// The way to a server: the same one for as long as it is the same server, so that it knows where its name led.
    fn endpoint(&self, host: &str, port: u16) -> Endpoint {
        let place = (host.to_owned(), port);
        let mut known = self.endpoint.lock();
        match &*known {
            Some((at, endpoint)) if *at == place => endpoint.clone(),
            _ => known.insert((place, self.server.at(host, port))).1.clone(),
        }
    }

    /// A sentinel may be behind the times: the server itself says what it is.
    async fn connect_master(&self, (host, port): &Place) -> Result<RawConnection, StoreError> {
        let mut wire = self.endpoint(host, *port).connect().await?;
        let role: redis::Value =
            redis::cmd("ROLE").query_async(&mut wire.connection).await.map_err(store_error)?;
        let role = match &role {
            redis::Value::Array(parts) => {
                parts.first().and_then(|part| redis::from_redis_value_ref::<String>(part).ok())
            }
            _ => None,
        };
        match role.as_deref() {
            Some("master") => Ok(wire),
            Some(role) => Err(StoreError::Refused(format!("{host}:{port} is a {role}, no master"))),
            None => Err(StoreError::Malformed(format!("{host}:{port} does not say what its role is"))),
        }
    }
}

/// One of the sentinels that, being most of all, name the same server, which is not `current`.
fn contradiction(named: &[Result<Place, StoreError>], current: &Place) -> Option<usize> {
    let is_by_most = |place: &Place| {
        let agreeing = named.iter().flatten().filter(|named| *named == place).count();
        2 * agreeing > named.len()
    };
    named.iter().position(|named| named.as_ref().is_ok_and(|place| place != current && is_by_most(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_most_of_all_sentinels_are_believed_against_a_server_that_answers() {
        let name = |port: u16| Ok(("redis".to_owned(), port));
        let silent = || Err(StoreError::Timeout);
        let current = ("redis".to_owned(), 1);
        let cases = [
            (vec![name(1), name(1), name(1)], None),
            (vec![name(2), name(1), name(1)], None),
            (vec![name(1), name(2), name(2)], Some(1)),
            (vec![silent(), name(2), name(2)], Some(1)),
            (vec![silent(), silent(), name(2)], None),
            (vec![name(2), name(3), name(1)], None),
            (vec![silent(), silent(), silent()], None),
            (vec![name(2)], Some(0)),
        ];
        for (named, expected) in cases {
            assert_eq!(contradiction(&named, &current), expected, "{named:?}");
        }
    }
}
