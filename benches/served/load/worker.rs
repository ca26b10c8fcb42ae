//! A thread of the generator: sockets, the timer of the schedule, and the loop that waits for both.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use rustix::event::{Timespec, epoll};
use rustix::fd::OwnedFd;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use super::{Connection, Load, Pace, Tally};

const RECEIVE_BUFFER: usize = 64 << 10;
/// How long a server may take to be ready for calls, and to answer the last calls.
const PATIENCE: Duration = Duration::from_secs(10);
/// The mark of the timer among the marks of sockets, which are their places.
const TIMER: u64 = u64::MAX;

/// The bytes of a connection.
enum Wire {
    Plain(TcpStream),
    Encrypted(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Wire {
    fn new(stream: TcpStream, tls: Option<Arc<ClientConfig>>) -> Self {
        let Some(tls) = tls else { return Self::Plain(stream) };
        let name = ServerName::try_from("localhost").expect("a name");
        let connection = ClientConnection::new(tls, name).expect("a configuration of a client");
        Self::Encrypted(Box::new(StreamOwned::new(connection, stream)))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Encrypted(stream) => stream.write(bytes),
        }
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.read(buffer),
            Self::Encrypted(stream) => stream.read(buffer),
        }
    }
}

/// A connection and its socket.
struct Socket<'a> {
    wire: Wire,
    connection: Box<dyn Connection + 'a>,
    input: BytesMut,
    /// Bytes of `connection.out()` that are sent already.
    sent: usize,
}

impl<'a> Socket<'a> {
    /// Connects, and waits until calls can start.
    fn connect(target: SocketAddr, load: &'a Load, register: impl FnOnce(&TcpStream)) -> Self {
        let stream = TcpStream::connect(target).expect("the target accepts connections");
        stream.set_nodelay(true).expect("a TCP option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a TCP option");
        let handle = stream.try_clone().expect("a second handle");
        let wire = Wire::new(stream, load.tls.clone());
        let mut socket = Self { wire, connection: load.connection(), input: BytesMut::new(), sent: 0 };
        let mut no_calls = Tally::new();
        while !socket.connection.is_ready() {
            assert!(
                socket.flush() && socket.receive(&mut [0; 4_096], &mut no_calls) > 0,
                "the target speaks the protocol"
            );
        }
        handle.set_nonblocking(true).expect("a socket can do without waiting");
        register(&handle);
        socket
    }

    /// Sends what is to be sent, as far as the socket takes it; false if the connection has ended.
    fn flush(&mut self) -> bool {
        let out = self.connection.out();
        while self.sent < out.len() {
            match self.wire.write(&out[self.sent..]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return true,
                Err(_) => return false,
            }
        }
        out.clear();
        self.sent = 0;
        true
    }

    /// Reads once, and returns the number of bytes: 0 if none is there, or the connection has ended.
    fn receive(&mut self, buffer: &mut [u8], tally: &mut Tally) -> usize {
        match self.wire.read(buffer) {
            Ok(length @ 1..) => {
                self.input.extend_from_slice(&buffer[..length]);
                self.connection.receive(&mut self.input, Instant::now(), tally);
                length
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Ok(_) | Err(_) => {
                self.connection.break_off(tally);
                0
            }
        }
    }

    /// Reads what is there. The kernel tells of new bytes once, so it must be all; a plain socket has no more when a
    /// read does not fill the buffer, unless its peer `has_ended`.
    fn receive_all(&mut self, buffer: &mut [u8], has_ended: bool, tally: &mut Tally) {
        loop {
            let length = self.receive(buffer, tally);
            let is_last = length < buffer.len() && matches!(self.wire, Wire::Plain(_)) && !has_ended;
            if length == 0 || is_last {
                return;
            }
        }
    }
}

/// A thread's part of the load.
pub struct Worker<'a> {
    load: &'a Load,
    sockets: Vec<Socket<'a>>,
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the calls of a second are due.
    times: Vec<u64>,
    /// The number of the call that the timer waits for.
    awaited: Option<u64>,
    /// Receives the bytes of any socket.
    buffer: Vec<u8>,
    tally: Tally,
}

impl<'a> Worker<'a> {
    /// Opens the connections with these places among all connections of the load.
    pub fn connect(load: &'a Load, places: impl Iterator<Item = usize>) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll descriptor");
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC).expect("a timer");
        let flags = epoll::EventFlags::IN;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER), flags).expect("room for a descriptor");
        let mut sockets = Vec::new();
        for place in places {
            let mark = epoll::EventData::new_u64(sockets.len() as u64);
            let both = epoll::EventFlags::IN | epoll::EventFlags::OUT;
            let flags = both | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
            let register =
                |stream: &TcpStream| epoll::add(&epoll, stream, mark, flags).expect("room for a descriptor");
            sockets.push(Socket::connect(load.targets[place % load.targets.len()], load, register));
        }
        Self {
            load,
            sockets,
            epoll,
            timer,
            times: load.pace.times_in_a_second(),
            awaited: None,
            buffer: vec![0; RECEIVE_BUFFER],
            tally: Tally::new(),
        }
    }

    /// Makes the calls, and waits for their answers.
    pub fn run(mut self) -> Tally {
        // The kernel may wake a thread late by its slack, to wake several together.
        let slack = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        slack.expect("a thread chooses its own slack");
        let started = Instant::now();
        if let Pace::Closed { in_flight } = self.load.pace {
            let each = in_flight / self.load.connections;
            for (place, socket) in self.sockets.iter_mut().enumerate() {
                socket.connection.keep_in_flight(each, place * 7_919, started + self.load.duration);
            }
            (0..self.sockets.len()).for_each(|place| self.flush(place));
        }
        let (mut n, mut events) = (0, Vec::with_capacity(1_024));
        let end = started + self.load.duration;
        loop {
            let (pending, now) = (self.start_due(&mut n, started), Instant::now());
            let may_be_over = !pending && (n > 0 || now >= end);
            let is_over = may_be_over && self.sockets.iter().all(|socket| socket.connection.is_idle());
            if is_over || now > end + PATIENCE {
                break;
            }
            self.wait(&mut events);
        }
        self.tally.elapsed = started.elapsed();
        for socket in &mut self.sockets {
            socket.connection.break_off(&mut self.tally);
        }
        self.tally.generator = cpu_of_this_thread();
        self.tally
    }

    /// Starts the calls that are due, and sets the timer for the next; false if no call remains.
    fn start_due(&mut self, n: &mut u64, started: Instant) -> bool {
        let (first, mut now) = (*n, Instant::now());
        let mut last_due = None;
        let due_after =
            |n| self.load.pace.due_after(n, &self.times).filter(|after| *after < self.load.duration);
        while let Some(after) = due_after(*n) {
            let due = started + after;
            let wait = due.saturating_duration_since(now);
            if !wait.is_zero() {
                self.flush_started(first..*n);
                if self.awaited.replace(*n) != Some(*n) {
                    set_timer(&self.timer, due.saturating_duration_since(Instant::now()));
                }
                return true;
            }
            let place = usize::try_from(*n % self.sockets.len() as u64).expect("the place of a socket");
            let turn = usize::try_from(*n).expect("at most 2^63 calls");
            self.sockets[place].connection.start(turn, due, &mut self.tally);
            self.tally.record_start(now - due);
            self.tally.bunched += u64::from(last_due.is_some_and(|last| last != due));
            last_due = Some(due);
            *n += 1;
            now = Instant::now();
        }
        self.flush_started(first..*n);
        false
    }

    /// Sends the calls with these numbers, a write for each of their connections.
    fn flush_started(&mut self, numbers: std::ops::Range<u64>) {
        let sockets = self.sockets.len() as u64;
        for n in numbers.take(self.sockets.len()) {
            self.flush(usize::try_from(n % sockets).expect("the place of a socket"));
        }
    }

    fn flush(&mut self, place: usize) {
        if !self.sockets[place].flush() {
            self.sockets[place].connection.break_off(&mut self.tally);
        }
    }

    /// Waits until a call is due or bytes arrive, and takes the answers.
    fn wait(&mut self, events: &mut Vec<epoll::Event>) {
        events.clear();
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        let waited = epoll::wait(&self.epoll, rustix::buffer::spare_capacity(events), Some(&timeout));
        match waited {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => panic!("epoll: {error}"),
        }
        for event in events.iter() {
            let mark = event.data.u64();
            if mark == TIMER {
                continue;
            }
            let place = usize::try_from(mark).expect("the place of a socket");
            let flags = event.flags;
            let has_ended = flags.intersects(epoll::EventFlags::RDHUP | epoll::EventFlags::HUP);
            self.sockets[place].receive_all(&mut self.buffer, has_ended, &mut self.tally);
            self.flush(place);
        }
    }
}

/// Wakes the loop after this time. Setting it again clears what has expired.
fn set_timer(timer: &OwnedFd, wait: Duration) {
    // A time of zero would disarm the timer.
    let wait = wait.max(Duration::from_nanos(1));
    let value = Timespec { tv_sec: wait.as_secs().cast_signed(), tv_nsec: wait.subsec_nanos().into() };
    let interval = Timespec { tv_sec: 0, tv_nsec: 0 };
    let setting = Itimerspec { it_interval: interval, it_value: value };
    timerfd_settime(timer, TimerfdTimerFlags::empty(), &setting).expect("a time that can be set");
}

fn cpu_of_this_thread() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("the account of the scheduler");
    let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("the time on a core comes first"))
}
