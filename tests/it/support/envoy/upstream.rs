//! An upstream that answers as the test says, and keeps the requests that have reached it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A request that has reached the upstream.
#[derive(Clone)]
pub struct Seen {
    pub at: Instant,
    pub path: String,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Seen {
    /// The first header with this name (in lower case).
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A server with a thread for each connection, which run until the process of the tests ends.
pub struct Upstream {
    port: u16,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Upstream {
    /// `status` is called for each request, and returns the status of its answer.
    pub fn start(status: impl Fn(&Seen) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (seen, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(status));
        let upstream = Self { port, seen: Arc::clone(&seen) };
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (seen, status) = (Arc::clone(&seen), Arc::clone(&status));
                std::thread::spawn(move || serve(stream, &seen, &*status));
            }
        });
        upstream
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// All requests so far, in the order in which they came.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no thread panicked").clone()
    }
}

/// Answers one request.
fn serve(mut stream: TcpStream, seen: &Mutex<Vec<Seen>>, status: &impl Fn(&Seen) -> u16) {
    let mut reader = BufReader::new(stream.try_clone().expect("a file descriptor"));
    let Some(request) = read_request(&mut reader) else { return };
    seen.lock().expect("no thread panicked").push(request.clone());
    let status = status(&request);
    let answer = format!("HTTP/1.1 {status} answer\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok");
    // Fails if Envoy has closed the connection.
    let _ = stream.write_all(answer.as_bytes());
}

/// Reads a request with its body; `None` if the connection ends before that.
#[expect(clippy::disallowed_methods, reason = "the time at which a request comes from another process")]
fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Seen> {
    let mut lines = reader.by_ref().lines().map_while(Result::ok);
    let path = lines.next()?.split(' ').nth(1)?.to_owned();
    let at = Instant::now();
    let header =
        |line: String| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(header).collect();
    let seen = Seen { at, path, headers };
    let length = seen.header("content-length").map_or(0, |length| length.parse().expect("a number"));
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(seen)
}
