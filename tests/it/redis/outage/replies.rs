//! A proxy in front of a real Redis that can replace the replies to script calls by replies that no real server sends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The reply to every script call; `None` passes the reply of the server.
type Replacement = Arc<Mutex<Option<&'static str>>>;

/// Its threads end with the test's process.
pub struct ReplyProxy {
    address: SocketAddr,
    replacement: Replacement,
}

impl ReplyProxy {
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let replacement = Replacement::default();
        let shared = Arc::clone(&replacement);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let replacement = Arc::clone(&shared);
                thread::spawn(move || relay(client, server, &replacement));
            }
        });
        Self { address, replacement }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on every script call gets `reply`.
    pub fn replace_replies(&self, reply: &'static str) {
        *self.replacement.lock().expect("no thread panics while it holds the lock") = Some(reply);
    }

    pub fn pass_replies(&self) {
        *self.replacement.lock().expect("no thread panics while it holds the lock") = None;
    }
}

/// The client sends one command at a time and waits for its reply: one read is one command or one reply.
fn relay(client: TcpStream, server: SocketAddr, replacement: &Replacement) {
    let upstream = TcpStream::connect(server).expect("the real server accepts connections");
    let (mut from_client, mut to_server) =
        (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
    let pending: Arc<Mutex<Option<&'static str>>> = Arc::default();
    let replies = Arc::clone(&pending);
    let answers = thread::spawn(move || {
        let (mut from_server, mut to_client) = (upstream, client);
        pump(&mut from_server, |bytes| {
            let replacement = replies.lock().expect("no thread panics while it holds the lock").take();
            to_client.write_all(replacement.map_or(bytes, str::as_bytes)).is_ok()
        });
        // Fails if the other end has closed the connection already.
        let _ = to_client.shutdown(Shutdown::Both);
    });
    pump(&mut from_client, |bytes| {
        if bytes.windows(4).any(|word| word == b"EVAL") {
            *pending.lock().expect("no thread panics while it holds the lock") =
                *replacement.lock().expect("no thread panics while it holds the lock");
        }
        to_server.write_all(bytes).is_ok()
    });
    let _ = to_server.shutdown(Shutdown::Both);
    answers.join().expect("no thread panics");
}

fn pump(from: &mut TcpStream, mut pass_on: impl FnMut(&[u8]) -> bool) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length) = from.read(&mut buffer) {
        if length == 0 || !pass_on(&buffer[..length]) {
            return;
        }
    }
}
