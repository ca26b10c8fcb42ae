//! The floor: a relay between callers and Redis that does nothing else. One thread, no HTTP/2, no rules, no deadlines,
//! no metrics. A service that asks Redis by a script for each call costs at least this; only calls that share a script
//! call can cost less.
//!
//! A request is the value of a key, an answer is one byte, and answers come in the order of requests. Each request
//! becomes the EVALSHA that the service sends for a `gcra` limit of 1,000 per second that is charged alone. All that
//! arrive at one wake-up go to Redis in one write. Without Redis, the relay admits everything at once.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use rustix::event::epoll::{self, EventData, EventFlags};

/// Bytes of a request.
pub const REQUEST: usize = 7;
pub const ADMITTED: u8 = b'1';
pub const DENIED: u8 = b'0';

/// The marks of the listener and of Redis; that of a caller is its place.
const LISTENER: u64 = u64::MAX;
const REDIS: u64 = u64::MAX - 1;

/// A connection of a caller.
struct Caller {
    stream: TcpStream,
    /// The bytes of a request that has not arrived as a whole.
    input: Vec<u8>,
    answers: Vec<u8>,
}

/// The connection to Redis.
struct Redis {
    stream: TcpStream,
    /// A command, before its key's value and after it.
    command: (Vec<u8>, Vec<u8>),
    out: Vec<u8>,
    /// The lines of replies that have not arrived as a whole.
    input: Vec<u8>,
    /// The places of the callers that wait for replies.
    waiting: VecDeque<usize>,
}

/// Serves callers at this port until the process is killed.
pub fn run(port: u16, redis_port: Option<u16>) -> ! {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("a free port");
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("an epoll descriptor");
    let watch = |stream: &dyn std::os::fd::AsFd, mark| {
        epoll::add(&epoll, stream.as_fd(), EventData::new_u64(mark), EventFlags::IN).expect("a descriptor")
    };
    watch(&listener, LISTENER);
    let mut redis = redis_port.map(Redis::connect);
    if let Some(redis) = &redis {
        watch(&redis.stream, REDIS);
    }
    let (mut callers, mut buffer) = (Vec::<Option<Caller>>::new(), vec![0; 64 << 10]);
    let mut events = Vec::with_capacity(1_024);
    loop {
        events.clear();
        epoll::wait(&epoll, rustix::buffer::spare_capacity(&mut events), None).expect("events");
        for event in &events {
            match event.data.u64() {
                LISTENER => {
                    let (stream, _) = listener.accept().expect("a connection");
                    stream.set_nodelay(true).expect("a TCP option");
                    watch(&stream, callers.len() as u64);
                    callers.push(Some(Caller { stream, input: Vec::new(), answers: Vec::new() }));
                }
                REDIS => redis.as_mut().expect("a watched connection").receive(&mut buffer, &mut callers),
                mark => {
                    let place = usize::try_from(mark).expect("the place of a caller");
                    if !receive(&mut callers, place, redis.as_mut(), &mut buffer) {
                        callers[place] = None;
                    }
                }
            }
        }
        if let Some(redis) = redis.as_mut().filter(|redis| !redis.out.is_empty()) {
            redis.stream.write_all(&redis.out).expect("Redis takes commands");
            redis.out.clear();
        }
        for caller in callers.iter_mut().flatten().filter(|caller| !caller.answers.is_empty()) {
            // Fails if the caller has gone; the next event says so.
            let _ = caller.stream.write_all(&caller.answers);
            caller.answers.clear();
        }
    }
}

/// Reads once from a caller; false if it has gone.
fn receive(
    callers: &mut [Option<Caller>],
    place: usize,
    redis: Option<&mut Redis>,
    buffer: &mut [u8],
) -> bool {
    let Some(caller) = &mut callers[place] else { return false };
    let Ok(length @ 1..) = caller.stream.read(buffer) else { return false };
    caller.input.extend_from_slice(&buffer[..length]);
    let (requests, rest) = caller.input.as_chunks::<REQUEST>();
    match redis {
        Some(redis) => requests.iter().for_each(|value| redis.ask(value, place)),
        None => caller.answers.resize(requests.len(), ADMITTED),
    }
    let rest = rest.len();
    caller.input.drain(..caller.input.len() - rest);
    true
}

impl Redis {
    fn connect(port: u16) -> Self {
        let script = store::redis::scripts().find(|script| script.name() == "gcra_whole");
        let script = script.expect("the script of gcra");
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
        let mut connection = client.get_connection().expect("Redis answers");
        let loaded = redis::cmd("SCRIPT").arg("LOAD").arg(script.text()).exec(&mut connection);
        loaded.expect("Redis loads a script");
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("Redis accepts connections");
        stream.set_nodelay(true).expect("a TCP option");
        let (key, rest) = ("ratelimitd:{bench|user0=", "}|path=/v1/items#gc:1000000");
        let length = key.len() + REQUEST + rest.len();
        let head =
            format!("*5\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n$1\r\n1\r\n${length}\r\n{key}", script.sha1());
        // By the clock of Redis; kept for a second more; taken if they fit: units of 1,000 us from a burst of a second.
        let [now, grace, cost, burst] = [-1.0, 1e3, 1e3, 1e6].map(f64::to_le_bytes);
        let argument = [now.as_slice(), &grace, &[1], &cost, &burst].concat();
        let tail = [format!("{rest}\r\n${}\r\n", argument.len()).as_bytes(), &argument, b"\r\n"].concat();
        let command = (head.into_bytes(), tail);
        Self { stream, command, out: Vec::new(), input: Vec::new(), waiting: VecDeque::new() }
    }

    fn ask(&mut self, value: &[u8], place: usize) {
        let (head, tail) = &self.command;
        self.out.extend_from_slice(head);
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(tail);
        self.waiting.push_back(place);
    }

    /// Reads once, and gives each complete reply to its caller: `*2`, the time, and the counter, which is negative if
    /// the charge does not fit.
    fn receive(&mut self, buffer: &mut [u8], callers: &mut [Option<Caller>]) {
        let length = self.stream.read(buffer).expect("Redis answers");
        assert!(length > 0, "Redis keeps the connection");
        self.input.extend_from_slice(&buffer[..length]);
        let mut taken = 0;
        let mut lines = self.input.split_inclusive(|byte| *byte == b'\n');
        while let (Some(head), Some(time), Some(counter)) = (lines.next(), lines.next(), lines.next()) {
            if !counter.ends_with(b"\n") {
                break;
            }
            assert_eq!(head, b"*2\r\n", "a reply of the script");
            taken += head.len() + time.len() + counter.len();
            let place = self.waiting.pop_front().expect("a reply has a request");
            if let Some(caller) = &mut callers[place] {
                caller.answers.push(if counter.starts_with(b":-") { DENIED } else { ADMITTED });
            }
        }
        self.input.drain(..taken);
    }
}
