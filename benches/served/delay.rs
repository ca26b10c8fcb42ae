//! A TCP proxy between service and Redis that delays every byte by a fixed time.
//!
//! It uses threads, not tasks: the timers of a runtime have a resolution of 1 ms, and the delay is shorter.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Forwards to one server on this machine for as long as the process lives.
pub struct Delay {
    port: u16,
}

impl Delay {
    /// Starts a proxy to `server` that delays each direction by `each_way`.
    pub fn start(server: u16, each_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for client in listener.incoming() {
                let client = client.expect("a connection");
                let upstream =
                    TcpStream::connect(("127.0.0.1", server)).expect("the server accepts connections");
                client.set_nodelay(true).expect("a TCP option");
                upstream.set_nodelay(true).expect("a TCP option");
                let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
                forward(clone(&client), clone(&upstream), each_way);
                forward(upstream, client, each_way);
            }
        });
        Self { port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sender.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // Fails if the peer has closed the connection already.
        let _ = to.shutdown(Shutdown::Both);
    });
}
