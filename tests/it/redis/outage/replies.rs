//! Stands between the service and a real Redis, passes everything on, and can give answers to script calls that no
//! real server gives.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The lie, if there is one.
type Lie = Arc<Mutex<Option<&'static str>>>;

/// Ends with the test's process.
pub struct Liar {
    address: SocketAddr,
    lie: Lie,
}

impl Liar {
    pub fn start(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let lie = Lie::default();
        let told = Arc::clone(&lie);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let lie = Arc::clone(&told);
                thread::spawn(move || converse(client, server, &lie));
            }
        });
        Self { address, lie }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on every script call gets this reply.
    pub fn lie(&self, reply: &'static str) {
        *self.lie.lock().expect("nobody panics with it") = Some(reply);
    }

    pub fn stop_lying(&self) {
        *self.lie.lock().expect("nobody panics with it") = None;
    }
}

/// The client sends one command at a time and waits for its reply, so what comes at once belongs together.
fn converse(client: TcpStream, server: SocketAddr, lie: &Lie) {
    let upstream = TcpStream::connect(server).expect("the real server is there");
    let (mut from_client, mut to_server) =
        (client.try_clone().expect("a socket"), upstream.try_clone().expect("a socket"));
    let pending: Arc<Mutex<Option<&'static str>>> = Arc::default();
    let replies = Arc::clone(&pending);
    let answers = thread::spawn(move || {
        let (mut from_server, mut to_client) = (upstream, client);
        pump(&mut from_server, |bytes| {
            let lie = replies.lock().expect("nobody panics with it").take();
            to_client.write_all(lie.map_or(bytes, str::as_bytes)).is_ok()
        });
        // The other end may be gone already.
        let _ = to_client.shutdown(Shutdown::Both);
    });
    pump(&mut from_client, |bytes| {
        if bytes.windows(4).any(|word| word == b"EVAL") {
            *pending.lock().expect("nobody panics with it") = *lie.lock().expect("nobody panics with it");
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
