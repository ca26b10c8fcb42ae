//! A network between service and Redis: every byte arrives so much later than it was sent.
//!
//! Threads rather than tasks: a runtime's timers go by milliseconds, and the delay is a fraction of one.

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
    /// `each_way` is added in either direction.
    pub fn start(server: u16, each_way: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for near in listener.incoming() {
                let near = near.expect("a connection");
                let far = TcpStream::connect(("127.0.0.1", server)).expect("the server is there");
                near.set_nodelay(true).expect("a TCP option");
                far.set_nodelay(true).expect("a TCP option");
                let clone = |stream: &TcpStream| stream.try_clone().expect("a second handle");
                forward(clone(&near), clone(&far), each_way);
                forward(far, near, each_way);
            }
        });
        Self { port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }
}

fn forward(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sent, arriving) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            if sent.send((Instant::now() + delay, buffer[..length].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in arriving {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        // An end that has gone already cannot be told.
        let _ = to.shutdown(Shutdown::Both);
    });
}
