//! Event streams of the console that are open during the run, `-- --streams 16`: what the service sends them must not
//! make it grow. A stream that breaks is opened again, and counted.

use std::fmt;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The service sends an event each second, so a stream that is silent for this time is broken.
const PATIENCE: Duration = Duration::from_secs(20);
const OPEN_AGAIN_AFTER: Duration = Duration::from_secs(1);
const REQUEST: &[u8] = b"GET /console/events HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// What all streams were sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Streamed {
    streams: usize,
    states: u64,
    samples: u64,
    bytes: u64,
    broken: u64,
}

impl fmt::Display for Streamed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { streams, states, samples, bytes, broken } = self;
        let mebibytes = bytes >> 20;
        write!(f, "{streams} streams: {states} states, {samples} samples, {mebibytes} MiB; {broken} broke")
    }
}

/// Opens the streams, each on a thread of its own until `stop`.
pub fn open(admin: u16, streams: u16, stop: &Arc<AtomicBool>) -> Vec<JoinHandle<Streamed>> {
    let stream = |_| {
        let stop = Arc::clone(stop);
        thread::spawn(move || follow(admin, &stop))
    };
    (0..streams).map(stream).collect()
}

/// Waits for the ends of the streams, and adds them up.
pub fn ended(streams: Vec<JoinHandle<Streamed>>) -> Streamed {
    let mut all = Streamed::default();
    for stream in streams {
        let one = stream.join().expect("no stream panics");
        all.streams += 1;
        all.states += one.states;
        all.samples += one.samples;
        all.bytes += one.bytes;
        all.broken += one.broken;
    }
    all
}

fn follow(admin: u16, stop: &AtomicBool) -> Streamed {
    let mut streamed = Streamed::default();
    while !stop.load(Ordering::Relaxed) {
        // A stream has no end while the service runs.
        if follow_one(admin, stop, &mut streamed).is_err() {
            streamed.broken += 1;
            thread::sleep(OPEN_AGAIN_AFTER);
        }
    }
    streamed
}

fn follow_one(admin: u16, stop: &AtomicBool, streamed: &mut Streamed) -> io::Result<()> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, admin))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        line.clear();
        if lines.read_until(b'\n', &mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        streamed.bytes += line.len() as u64;
        streamed.states += u64::from(line.starts_with(b"event: state"));
        streamed.samples += u64::from(line.starts_with(b"event: sample"));
    }
    Ok(())
}
