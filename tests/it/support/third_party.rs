//! A third party that limits its callers, for the tests of pauses.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What its 429 says in `Retry-After`, and for how long it answers 429.
pub const RETRY_AFTER: Duration = Duration::from_secs(3);

/// An answered request.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    pub at: Instant,
    pub status: u16,
}

/// A server whose thread runs until the process of the tests ends.
pub struct ThirdParty {
    pub port: u16,
    seen: Arc<Seen>,
}

struct Seen {
    calls: Mutex<Vec<Call>>,
    added: Condvar,
    together: usize,
    limited: usize,
}

impl ThirdParty {
    /// The first `together` calls wait for each other. The call with the index `limited` gets the first 429.
    pub fn start(together: usize, limited: usize) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let seen = Seen { calls: Mutex::default(), added: Condvar::new(), together, limited };
        let seen = Arc::new(seen);
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let seen = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &seen));
            }
        });
        Self { port, seen }
    }

    pub fn calls(&self) -> Vec<Call> {
        self.seen.lock().clone()
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Vec<Call>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a call, and returns its status.
    #[expect(clippy::disallowed_methods, reason = "the callers are other processes")]
    fn add(&self) -> u16 {
        let mut calls = self.lock();
        let at = Instant::now();
        let is_over = match calls.get(self.limited) {
            Some(first) => at - first.at < RETRY_AFTER,
            None => calls.len() == self.limited,
        };
        let status = if is_over { 429 } else { 200 };
        calls.push(Call { at, status });
        self.added.notify_all();
        let all = self.added.wait_while(calls, |calls| calls.len() < self.together);
        drop(all.unwrap_or_else(PoisonError::into_inner));
        status
    }
}

/// Answers one request.
fn serve(mut stream: TcpStream, seen: &Seen) {
    let mut lines =
        BufReader::new(stream.try_clone().expect("a file descriptor")).lines().map_while(Result::ok);
    if lines.next().is_none() {
        return;
    }
    while lines.next().is_some_and(|line| !line.is_empty()) {}
    let answer = match seen.add() {
        429 => format!("429 Too Many Requests\r\nretry-after: {}", RETRY_AFTER.as_secs()),
        _ => "200 OK".to_owned(),
    };
    let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    stream.write_all(answer.as_bytes()).expect("the caller waits for the answer");
}
