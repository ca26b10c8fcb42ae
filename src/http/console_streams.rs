//! Bounds the open event streams. A new one displaces one whose client does not read, or else one of the address with
//! the most streams. So nobody can keep the console full, and an address that keeps opening streams ends its own: a
//! page whose stream ends opens another.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::net::admission::network;

/// Maximum open streams.
pub(super) const MOST_STREAMS: usize = 16;
/// There is an event each second. A client that has not taken one for this long does not read.
const BEHIND: Duration = Duration::from_secs(5);

/// Open streams, oldest first.
#[derive(Debug, Default)]
pub(super) struct Streams(Mutex<Vec<OpenStream>>);

#[derive(Debug)]
struct OpenStream {
    /// The client's IPv4 address or IPv6 network.
    address: IpAddr,
    unread_since: Arc<Mutex<Option<Instant>>>,
    displaced: CancellationToken,
}

#[derive(Debug)]
pub(super) struct StreamPlace {
    streams: Arc<Streams>,
    /// Since when an event waits for the client; `None`: the client has taken everything.
    unread_since: Arc<Mutex<Option<Instant>>>,
    /// Cancelled when another stream takes the slot.
    pub(super) displaced: CancellationToken,
}

impl Streams {
    pub(super) fn open(self: &Arc<Self>, client: IpAddr, now: Instant) -> StreamPlace {
        let (unread_since, displaced) = (Arc::default(), CancellationToken::new());
        let address = network(client);
        let mut open = self.0.lock();
        if open.len() == MOST_STREAMS {
            let behind = |stream: &OpenStream| {
                let since = *stream.unread_since.lock();
                since.map(|since| now.saturating_duration_since(since)).filter(|behind| *behind >= BEHIND)
            };
            // Counts the new stream as well: an address with more than the others displaces its own.
            let of_address = |of: IpAddr| {
                open.iter().map(|stream| stream.address).chain([address]).filter(|one| *one == of).count()
            };
            // The first of equal ones: `max_by_key` returns the last.
            let places = open.iter().map(|stream| (behind(stream), of_address(stream.address)));
            let place = places.enumerate().rev().max_by_key(|(_, rank)| *rank).map_or(0, |(place, _)| place);
            open.remove(place).displaced.cancel();
        }
        open.push(OpenStream {
            address,
            unread_since: Arc::clone(&unread_since),
            displaced: displaced.clone(),
        });
        StreamPlace { streams: Arc::clone(self), unread_since, displaced }
    }
}

impl StreamPlace {
    /// The client is ready for an event.
    pub(super) fn reads(&self) {
        *self.unread_since.lock() = None;
    }

    /// An event waits for the client from `now` on.
    pub(super) fn waits(&self, now: Instant) {
        *self.unread_since.lock() = Some(now);
    }
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        self.streams.0.lock().retain(|stream| !Arc::ptr_eq(&stream.unread_since, &self.unread_since));
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use base::clock::monotonic;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn displaced(open: &[StreamPlace]) -> Vec<usize> {
        (0..open.len()).filter(|place| open[*place].displaced.is_cancelled()).collect()
    }

    #[test]
    fn a_new_stream_takes_the_place_of_one_that_does_not_read_or_of_the_first() {
        let (streams, start) = (Arc::new(Streams::default()), monotonic());
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut open: Vec<_> = (0..MOST_STREAMS).map(|_| streams.open(CLIENT, start)).collect();
        open[3].waits(after(10));
        open[7].waits(after(8));
        open[9].waits(after(5));
        open[9].reads();
        assert_eq!(displaced(&open), [0; 0]);
        // (time, displaced slots)
        let table: [(u64, &[usize]); 4] = [(13, &[7]), (15, &[3, 7]), (16, &[0, 3, 7]), (17, &[0, 1, 3, 7])];
        for (seconds, expected) in table {
            open.push(streams.open(CLIENT, after(seconds)));
            assert_eq!(displaced(&open), expected, "after {seconds} s");
        }
        assert_eq!(streams.0.lock().len(), MOST_STREAMS);
        drop(open);
        assert!(streams.0.lock().is_empty());
    }

    #[test]
    fn an_address_that_opens_streams_again_and_again_ends_its_own() {
        let (streams, start) = (Arc::new(Streams::default()), monotonic());
        let viewer = |host| IpAddr::from([10, 0, 0, host]);
        let mut open: Vec<_> = (2..17).map(|host| streams.open(viewer(host), start)).collect();
        open.extend((0..100).map(|_| streams.open(viewer(1), start)));
        assert_eq!(displaced(&open), (15..114).collect::<Vec<_>>(), "no other viewer loses its stream");
        // Another viewer displaces the oldest: then each has one.
        open.push(streams.open(viewer(17), start));
        assert_eq!(displaced(&open)[0], 0);
    }
}
