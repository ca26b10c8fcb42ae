//! Bounds the calls that last until their clients end them: the Watch of health, and reflection. Each holds memory for
//! as long as its connection is open, so their number has a bound of its own, for the whole process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Copy, Debug)]
pub(super) enum StreamKind {
    Watch,
    Reflection,
}

/// A client watches one service or two, and asks reflection once.
const MAX_OF_CONNECTION: usize = 16;
/// Some 10 KB each.
const MAX_WATCHES: usize = 4_096;
/// Each holds a window of 1 MiB of requests if its client takes no answers. Reflection is for people who look at the
/// service.
const MAX_REFLECTIONS: usize = 32;

/// The streams of the process. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct OpenStreams(Arc<ProcessStreams>);

#[derive(Debug, Default)]
struct ProcessStreams {
    watches: AtomicUsize,
    reflections: AtomicUsize,
}

/// The streams of one connection.
#[derive(Debug)]
pub(super) struct ConnectionStreams {
    process: OpenStreams,
    own: Arc<AtomicUsize>,
}

/// Counts one stream until it is dropped.
#[derive(Debug)]
pub(super) struct OpenStream {
    process: OpenStreams,
    kind: StreamKind,
    own: Arc<AtomicUsize>,
}

impl StreamKind {
    /// `None`: the call at this path is no such stream.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        match path {
            "/grpc.health.v1.Health/Watch" => Some(Self::Watch),
            "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
            | "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo" => Some(Self::Reflection),
            _ => None,
        }
    }
}

impl OpenStreams {
    /// A connection without streams.
    pub(super) fn connect(&self) -> ConnectionStreams {
        ConnectionStreams { process: self.clone(), own: Arc::default() }
    }

    fn count(&self, kind: StreamKind) -> (&AtomicUsize, usize) {
        match kind {
            StreamKind::Watch => (&self.0.watches, MAX_WATCHES),
            StreamKind::Reflection => (&self.0.reflections, MAX_REFLECTIONS),
        }
    }
}

impl ConnectionStreams {
    /// Counts a stream, unless a bound forbids it.
    pub(super) fn open(&self, kind: StreamKind) -> Option<OpenStream> {
        let (all, most) = self.process.count(kind);
        add_below(&self.own, MAX_OF_CONNECTION)?;
        if add_below(all, most).is_none() {
            self.own.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(OpenStream { process: self.process.clone(), kind, own: Arc::clone(&self.own) })
    }
}

/// Adds 1 to a number that is below `most`.
fn add_below(number: &AtomicUsize, most: usize) -> Option<()> {
    let add = |number| (number < most).then_some(number + 1);
    number.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok().map(drop)
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.own.fetch_sub(1, Ordering::Relaxed);
        self.process.count(self.kind).0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open_all(streams: &OpenStreams, kind: StreamKind) -> Vec<OpenStream> {
        let of_connection = || {
            let connection = streams.connect();
            std::iter::from_fn(move || connection.open(kind))
        };
        std::iter::repeat_with(of_connection).take(1_000).flatten().collect()
    }

    #[test]
    fn streams_have_a_bound_of_the_process_and_of_a_connection() {
        let streams = OpenStreams::default();
        let connection = streams.connect();
        let own: Vec<_> = std::iter::from_fn(|| connection.open(StreamKind::Reflection)).collect();
        assert_eq!(own.len(), MAX_OF_CONNECTION);
        assert!(connection.open(StreamKind::Watch).is_none(), "both kinds share the bound of the connection");
        let reflections = open_all(&streams, StreamKind::Reflection);
        assert_eq!(reflections.len(), MAX_REFLECTIONS - MAX_OF_CONNECTION);
        let watches = open_all(&streams, StreamKind::Watch);
        assert_eq!(watches.len(), MAX_WATCHES);
        drop(own);
        assert!(connection.open(StreamKind::Watch).is_none(), "the process has as many as it may have");
        assert!(connection.open(StreamKind::Reflection).is_some());
        drop((reflections, watches));
        assert_eq!(connection.own.load(Ordering::Relaxed), 0);
        for kind in [StreamKind::Watch, StreamKind::Reflection] {
            assert_eq!(streams.count(kind).0.load(Ordering::Relaxed), 0, "{kind:?}");
        }
    }
}
