//! Header blocks in several frames, cut at every byte.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt as _, ReadBuf};

use super::*;
use crate::decide::Failures;
use crate::grpc::fast::connection_io::{
    CONTINUATION, ConnectionIo, END_HEADERS, FRAME_HEAD_BYTES, HEADERS, MAX_TRAILER_BYTES, PREFACE_BYTES,
    ReadBudget,
};
use crate::grpc::fast::open_calls::{ConnectionCounts, WorkerCounts};
use crate::telemetry::metrics::{Metrics, Transport};

const DATA: u8 = 0;

/// What arrives in each read; nothing follows.
struct Arriving(VecDeque<Vec<u8>>);

impl AsyncRead for Arriving {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(mut bytes) = self.0.pop_front() else { return Poll::Pending };
        let later = bytes.split_off(bytes.len().min(buf.remaining()));
        buf.put_slice(&bytes);
        if !later.is_empty() {
            self.0.push_front(later);
        }
        Poll::Ready(Ok(()))
    }
}

fn counts(metrics: &Metrics) -> Arc<ConnectionCounts> {
    let meter = metrics.requests(Transport::Grpc);
    Arc::new(WorkerCounts::new(&options(), Failures::new(meter.clone()), meter)).add_connection(no_slots())
}

/// Everything that h2 reads of what arrives, in reads of at most `at_once` bytes.
fn passed_on(chunks: Vec<Vec<u8>>, at_once: usize, all: &UnfinishedBytes) -> io::Result<Vec<u8>> {
    let metrics = Metrics::new(800_000).expect("different names");
    // A block's time limit needs a runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let _entered = runtime.enter();
    let stream = Arriving(chunks.into_iter().filter(|chunk| !chunk.is_empty()).collect());
    let budget = ReadBudget::new(usize::MAX);
    let mut io = ConnectionIo::new(stream, budget, all.clone(), counts(&metrics));
    let (mut passed, mut bytes) = (Vec::new(), vec![0; at_once]);
    while let Some(read) = io.read(&mut bytes).now_or_never() {
        passed.extend_from_slice(&bytes[..read?]);
    }
    Ok(passed)
}

fn frame((kind, flags, stream): (u8, u8, u32), payload: usize) -> Vec<u8> {
    let length = u32::try_from(payload).expect("short").to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), &vec![b'x'; payload]].concat()
}

fn block(stream: u32, payloads: &[usize]) -> Vec<u8> {
    let last = payloads.len() - 1;
    let frame_of = |(index, payload): (usize, &usize)| {
        let kind = if index == 0 { HEADERS } else { CONTINUATION };
        frame((kind, if index == last { END_HEADERS } else { 0 }, stream), *payload)
    };
    payloads.iter().enumerate().flat_map(frame_of).collect()
}

#[derive(Clone, Debug)]
enum Sent {
    Data(usize),
    Block(Vec<usize>),
}

fn any_sent() -> impl Strategy<Value = Vec<Sent>> {
    let one = prop_oneof![
        (0..40_usize).prop_map(Sent::Data),
        prop::collection::vec(0..40_usize, 1..4).prop_map(Sent::Block),
    ];
    prop::collection::vec(one, 0..6)
}

proptest! {
    #[test]
    fn all_but_an_unfinished_block_is_passed_on(
        sent in any_sent(),
        cut in any::<prop::sample::Index>(),
        sizes in prop::collection::vec(1..60_usize, 1..8),
        at_once in 1..100_usize,
    ) {
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        let mut blocks = Vec::new();
        for (stream, sent) in (1..).step_by(2).zip(&sent) {
            match sent {
                Sent::Data(payload) => bytes.extend(frame((DATA, 1, stream), *payload)),
                Sent::Block(payloads) => {
                    let start = bytes.len();
                    bytes.extend(block(stream, payloads));
                    if payloads.len() > 1 {
                        blocks.push(start + FRAME_HEAD_BYTES..bytes.len());
                    }
                }
            }
        }
        let arrived = cut.index(bytes.len() + 1);
        let expected = blocks.iter().find(|block| block.contains(&arrived)).map_or(arrived, |block| block.start);
        let mut rest = &bytes[..arrived];
        let mut chunks = Vec::new();
        for size in sizes.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (chunk, later) = rest.split_at(rest.len().min(*size));
            chunks.push(chunk.to_vec());
            rest = later;
        }
        let all = UnfinishedBytes::new(10_000);
        let passed = passed_on(chunks, at_once, &all).expect("few bytes");
        prop_assert_eq!(passed, &bytes[..expected]);
        prop_assert!(all.hold_none().grow_to(10_000), "nothing is held any more");
    }
}

#[test]
fn unfinished_blocks_share_a_bound_with_messages() {
    let unfinished = [vec![b'P'; PREFACE_BYTES], frame((HEADERS, 0, 1), 600)].concat();
    let all = UnfinishedBytes::new(1_000);
    let mut other = all.hold_none();
    assert!(other.grow_to(400));
    assert!(passed_on(vec![unfinished.clone()], 100, &all).is_ok());
    assert!(other.grow_to(401));
    let error = passed_on(vec![unfinished], 100, &all).expect_err("401 and 600 bytes");
    assert_eq!(error.to_string(), "unfinished requests hold too many bytes");
}

#[test]
fn a_block_that_is_too_long_or_broken_is_left_to_h2() {
    let preface = vec![b'P'; PREFACE_BYTES];
    let all = UnfinishedBytes::new(usize::MAX);
    let long = [preface.clone(), frame((HEADERS, 0, 1), 16_384)].concat();
    let long = [long, frame((CONTINUATION, 0, 1), 16_384).repeat(84)].concat();
    assert_eq!(passed_on(vec![long.clone()], 50_000, &all).expect("no error"), long);
    let broken = [preface, frame((HEADERS, 0, 1), 10), frame((DATA, 0, 1), 10)].concat();
    assert_eq!(passed_on(vec![broken.clone()], 50_000, &all).expect("no error"), broken);
}

#[test]
fn trailers_that_are_long_end_the_connection() {
    let headers = |stream, bytes| frame((HEADERS, END_HEADERS, stream), bytes);
    let start = [vec![b'P'; PREFACE_BYTES], headers(1, 1_000), headers(3, 1_000)].concat();
    let all = UnfinishedBytes::new(10_000);
    let short = [start.clone(), headers(1, MAX_TRAILER_BYTES), headers(3, 0), headers(5, 1_000)].concat();
    assert_eq!(passed_on(vec![short.clone()], 50_000, &all).expect("no error"), short);
    for trailers in [headers(1, MAX_TRAILER_BYTES + 1), block(3, &[1, 1])] {
        // The trailers come first, or after a held block.
        for before in [vec![], block(5, &[1, 1])] {
            let sent = [&start[..], &before, &trailers].concat();
            let error = passed_on(vec![sent], 50_000, &all).expect_err("long trailers");
            assert_eq!(error.to_string(), "the trailers of a call are too long");
        }
    }
}
